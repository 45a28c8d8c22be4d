//! Address ranges for the peers that manage memory given to them.

use std::io;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::source::{HUGE_PAGE, PAGE_BYTES, block_bytes};

/// Pages that each such peer manages: 2 GiB, as nearpage's node has.
pub const POOL_PAGES: usize = 524_288;

/// Pages of those that hold more: 10 GiB.
pub const LARGE_PAGES: usize = 5 * POOL_PAGES;

/// A range of [`POOL_PAGES`] pages, aligned to 2 MiB, with room in front of it; never unmapped.
pub struct Region {
    first: usize,
}

impl Region {
    /// Bytes in front of the first page that belong to the range too.
    pub const FRONT_BYTES: usize = 32 << 20;

    /// Reserves a range; its memory comes with the first touch of each page.
    ///
    /// # Errors
    ///
    /// The error of `mmap`.
    pub fn reserve() -> io::Result<Region> {
        let room = POOL_PAGES * PAGE_BYTES;
        let bytes = Self::FRONT_BYTES + room + block_bytes(HUGE_PAGE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing else.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let base = base.expose_provenance() + Self::FRONT_BYTES;
        Ok(Region { first: base.next_multiple_of(block_bytes(HUGE_PAGE)) })
    }

    /// Address of page number `index`.
    #[inline]
    pub fn address(&self, index: usize) -> usize {
        self.first + index * PAGE_BYTES
    }

    /// A pointer to the `bytes` in front of the first page.
    ///
    /// # Panics
    ///
    /// If `bytes` is more than [`Region::FRONT_BYTES`].
    pub fn front(&self, bytes: usize) -> *mut u8 {
        assert!(bytes <= Self::FRONT_BYTES);
        std::ptr::with_exposed_provenance_mut(self.first - bytes)
    }
}
