//! Address ranges from the kernel: reserved first, made usable piece by piece.

use std::io;
use std::ptr::NonNull;

use nearpage::Pfn;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};

use crate::frame::FRAME_SHIFT;

/// The page size of the kernel in bytes.
pub use rustix::param::page_size;

/// A reserved range of addresses; unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is an address range; nothing about it belongs to a thread.
unsafe impl Send for Region {}
// SAFETY: as for Send; `&Region` gives out addresses and changes protections, which the kernel serializes.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes`, rounded up to whole pages, starting at a multiple of `alignment`: no memory, no
    /// commit charge, only addresses.
    ///
    /// # Errors
    /// What `mmap` says: usually `ENOMEM` under `RLIMIT_AS`.
    pub fn reserve(bytes: usize, alignment: usize) -> io::Result<Self> {
        assert!(alignment.is_power_of_two());
        let bytes = bytes.max(1).next_multiple_of(page_size());
        let padded = bytes.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), padded, ProtFlags::empty(), flags) }?;
        let mapped: *mut u8 = mapped.cast();
        let before = mapped.align_offset(alignment);
        let after = padded - before - bytes;
        // SAFETY: both pieces lie within the mapping that was just made, outside the aligned part.
        unsafe {
            unmap(mapped, before);
            unmap(mapped.add(before + bytes), after);
            let start = NonNull::new(mapped.add(before)).expect("a mapping is never at address 0");
            Ok(Self { start, bytes })
        }
    }

    /// The first address.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of a frame.
    ///
    /// # Panics
    /// If the frame is not one of this region.
    #[inline]
    pub fn address(&self, pfn: Pfn) -> NonNull<u8> {
        let first = self.start.as_ptr().addr() as u64 >> FRAME_SHIFT;
        let number = pfn.0.wrapping_sub(first);
        let frames = self.bytes as u64 >> FRAME_SHIFT;
        assert!(number < frames, "frame {pfn} is not of this memory");
        // SAFETY: the region is that long, and it was just checked that the frame lies in it.
        unsafe { self.start.add((number << FRAME_SHIFT) as usize) }
    }

    /// Makes `bytes` from `offset` on readable and writable: zeroes until they are written.
    ///
    /// # Errors
    /// What `mprotect` says: `ENOMEM` with `vm.overcommit_memory=2` and no commit charge left.
    ///
    /// # Panics
    /// If the part reaches beyond the region.
    pub fn make_usable(&self, offset: usize, bytes: usize) -> io::Result<()> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: the part lies within our own mapping.
        Ok(unsafe {
            mprotect(
                self.at(offset).as_ptr().cast(),
                bytes,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }?)
    }

    /// Asks for huge pages, or for none, behind `bytes` from `offset` on. A kernel without them says no, which
    /// changes nothing.
    pub fn advise_huge(&self, offset: usize, bytes: usize, wanted: bool) {
        let advice = if wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        let _ = self.advise(self.at(offset), bytes, advice);
    }

    /// Puts explicit huge pages of 2 MiB behind `bytes` from `offset` on, readable and writable; what was
    /// there is gone, and so is its binding.
    ///
    /// # Errors
    /// What `mmap` says: `ENOMEM` if the pool has no more. The range is as after [`reserve`](Self::reserve).
    pub fn map_huge(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let huge = MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        self.map_again(offset, bytes, ProtFlags::READ | ProtFlags::WRITE, huge).inspect_err(|_| {
            // A failed mapping may leave a hole where others could map.
            let reserved = self.map_again(offset, bytes, ProtFlags::empty(), MapFlags::NORESERVE);
            reserved.expect("addresses that were just given up are free");
        })
    }

    fn map_again(
        &self,
        offset: usize,
        bytes: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<()> {
        let start = self.at(offset).as_ptr().cast();
        let flags = flags | MapFlags::PRIVATE | MapFlags::FIXED;
        assert!(bytes <= self.bytes - offset);
        // SAFETY: replaces a part of our own mapping that nobody uses yet.
        unsafe { mmap_anonymous(start, bytes, protection, flags) }?;
        Ok(())
    }

    /// Gives the memory of a part back to the kernel: it is zeroes until it is written again.
    ///
    /// # Errors
    /// What `madvise` says: `EINVAL` for locked memory.
    pub fn discard(&self, start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        self.advise(start, bytes, Advice::LinuxDontNeed)
    }

    /// Gives the memory of a part back to the kernel, and makes its addresses unusable until
    /// [`make_usable`](Self::make_usable). What the kernel refuses stays as it is: that costs memory, nothing else.
    pub fn retire(&self, offset: usize, bytes: usize) {
        let start = self.at(offset);
        let _ = self.discard(start, bytes);
        // SAFETY: the part lies within our own mapping, as `discard` saw, and nobody has anything in it any more.
        let _ = unsafe { mprotect(start.as_ptr().cast(), bytes, MprotectFlags::empty()) };
    }

    /// Gives a part its pages now, without a change of what is in them.
    ///
    /// # Errors
    /// What `madvise` says: `EINVAL` before Linux 5.14.
    pub fn populate(&self, start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        self.advise(start, bytes, Advice::LinuxPopulateWrite)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes);
        // SAFETY: within our own mapping.
        unsafe { self.start.add(offset) }
    }

    fn advise(&self, start: NonNull<u8>, bytes: usize, advice: Advice) -> io::Result<()> {
        let offset = start.as_ptr().addr() - self.start.as_ptr().addr();
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: a part of our own mapping. Whoever discards it has it to himself; other advice changes
        // nothing that is in it.
        Ok(unsafe { madvise(start.as_ptr().cast(), bytes, advice) }?)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is our own mapping, and whoever drops it has nothing in it any more.
        unsafe { unmap(self.start.as_ptr(), self.bytes) };
    }
}

/// # Safety
/// * `start` and `bytes` are page-aligned and name part of a mapping that is the caller's to give up.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promised. It fails only for unaligned or absurd ranges.
        let answer = unsafe { munmap(start.cast(), bytes) };
        debug_assert_eq!(answer, Ok(()), "munmap");
    }
}

/// As many of `bytes` as make up whole pages of the kernel: addresses are made usable and bound by those, which on
/// some machines are 64 KiB, 16 frames.
pub fn whole_pages(bytes: u64) -> u64 {
    whole(bytes, page_size() as u64)
}

const fn whole(bytes: u64, page_bytes: u64) -> u64 {
    bytes - bytes % page_bytes
}

/// Bytes of memory that the machine has.
pub fn physical_bytes() -> u64 {
    // SAFETY: asks only.
    let (pages, page) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    // Where `sysinfo` is denied, the C library tells what was on its stack.
    (pages.max(1 << 16) as u64).saturating_mul(page.max(4096) as u64).min(1 << 45)
}

/// Bytes of addresses that this process may reserve (`ulimit -v`); `None` without a limit.
pub fn address_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_and_zero_once_usable() {
        let region = Region::reserve(10 << 20, 4 << 20).unwrap();
        assert_eq!(region.start().as_ptr().align_offset(4 << 20), 0);
        region.make_usable(1 << 20, 1 << 20).unwrap();
        // SAFETY: the second MiB was just made usable, and nobody else knows of it.
        let usable = unsafe {
            std::slice::from_raw_parts_mut(region.start().as_ptr().add(1 << 20), 1 << 20)
        };
        assert!(usable.iter().all(|&byte| byte == 0));
        usable[5] = 1;
        assert_eq!(usable[5], 1);
    }

    #[test]
    fn parts_are_whole_pages() {
        assert_eq!(whole(3 * 4096 + 1, 4096), 3 * 4096);
        assert_eq!(
            [0xffff, 0x1_0000, 0x2_1000].map(|it| whole(it, 1 << 16)),
            [0, 1 << 16, 2 << 16]
        );
        assert_eq!(whole_pages(5 * page_size() as u64 - 1), 4 * page_size() as u64);
        // Sections and pageblocks are whole pages of any size that Linux has, 4, 16 and 64 KiB.
        assert_eq!(whole(2 << 20, 1 << 16), 2 << 20);
    }

    #[test]
    fn too_much_is_an_error() {
        assert!(Region::reserve(usize::MAX / 2, 1 << 27).is_err());
        assert!(Region::reserve(usize::MAX - (1 << 27), 1 << 27).is_err());
    }
}
