//! Allocators of frames.

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::FrameAllocator;
use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_kernel::{Kernel, Pages};

use crate::spin::Spin;

/// There is no memory, or the block is not the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// What the work needs of an allocator of frames.
pub trait Frames {
    /// Its name in tables.
    const NAME: &'static str;

    /// Allocates `1 << order` frames; returns the first.
    ///
    /// # Errors
    /// [`Refused`].
    fn alloc(&self, order: u8) -> Result<u64, Refused>;

    /// Frees them.
    ///
    /// # Errors
    /// [`Refused`], if it notices.
    fn free(&self, frame: u64, order: u8) -> Result<(), Refused>;

    /// Allocates single frames, as many as fit.
    ///
    /// # Errors
    /// [`Refused`].
    fn alloc_bulk(&self, out: &mut [u64]) -> Result<(), Refused>;

    /// Frees single frames.
    ///
    /// # Errors
    /// [`Refused`], if it notices.
    fn free_bulk(&self, frames: &[u64]) -> Result<(), Refused>;
}

/// nearpage's.
#[derive(Debug)]
pub struct Ours<K: Kernel>(pub &'static Pages<'static, K>);

/// Most frames that one call of nearpage's bulk interface is given here.
const BULK_MOST: usize = 512;

impl<K: Kernel> Frames for Ours<K> {
    const NAME: &'static str = "nearpage-kernel";

    #[inline(always)]
    fn alloc(&self, order: u8) -> Result<u64, Refused> {
        let block = self.0.alloc(Request::new(Order(order), Gfp::HIGHUSER_MOVABLE));
        block.map(|block| block.0).map_err(|_| Refused)
    }

    #[inline(always)]
    fn free(&self, frame: u64, order: u8) -> Result<(), Refused> {
        self.0.free(Pfn(frame), Order(order)).map_err(|_| Refused)
    }

    fn alloc_bulk(&self, out: &mut [u64]) -> Result<(), Refused> {
        let mut pages = [Pfn(0); BULK_MOST];
        for part in out.chunks_mut(BULK_MOST) {
            let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
            let got = self.0.alloc_bulk(request, &mut pages[..part.len()]).map_err(|_| Refused)?;
            if got < part.len() {
                return Err(Refused);
            }
            part.iter_mut().zip(&pages).for_each(|(frame, page)| *frame = page.0);
        }
        Ok(())
    }

    fn free_bulk(&self, frames: &[u64]) -> Result<(), Refused> {
        let mut pages = [Pfn(0); BULK_MOST];
        for part in frames.chunks(BULK_MOST) {
            part.iter().zip(&mut pages).for_each(|(frame, page)| *page = Pfn(*frame));
            self.0.free_bulk(&pages[..part.len()]).map_err(|_| Refused)?;
        }
        Ok(())
    }
}

/// The frames of `buddy_system_allocator`: a set of free blocks for each order, whose nodes come from the kernel's heap.
pub struct Buddy<K: Kernel>(Spin<K, FrameAllocator<33>>);

impl<K: Kernel> Buddy<K> {
    /// With frames `0..frames`.
    pub fn new(frames: usize) -> Self {
        let mut all = FrameAllocator::new();
        all.insert(0..frames);
        Self(Spin::new(all))
    }
}

impl<K: Kernel> core::fmt::Debug for Buddy<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Buddy")
    }
}

impl<K: Kernel> Frames for Buddy<K> {
    const NAME: &'static str = "buddy_system_allocator";

    #[inline(always)]
    fn alloc(&self, order: u8) -> Result<u64, Refused> {
        self.0.with(|all| all.alloc(1 << order)).map(|frame| frame as u64).ok_or(Refused)
    }

    #[inline(always)]
    fn free(&self, frame: u64, order: u8) -> Result<(), Refused> {
        self.0.with(|all| all.dealloc(frame as usize, 1 << order));
        Ok(())
    }

    fn alloc_bulk(&self, out: &mut [u64]) -> Result<(), Refused> {
        self.0.with(|all| {
            for frame in out {
                *frame = all.alloc(1).ok_or(Refused)? as u64;
            }
            Ok(())
        })
    }

    fn free_bulk(&self, frames: &[u64]) -> Result<(), Refused> {
        self.0.with(|all| frames.iter().for_each(|&frame| all.dealloc(frame as usize, 1)));
        Ok(())
    }
}

/// `bitmap-allocator`: a bit a frame under a tree of summaries, here for machines of up to 4 GiB.
pub struct Bitmap<K: Kernel>(Spin<K, &'static mut BitAlloc1M>);

impl<K: Kernel> Bitmap<K> {
    /// With frames `0..frames` of a map of zeroes.
    pub fn new(map: &'static mut BitAlloc1M, frames: usize) -> Self {
        map.insert(0..frames);
        Self(Spin::new(map))
    }
}

impl<K: Kernel> core::fmt::Debug for Bitmap<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Bitmap")
    }
}

fn alloc_bits(map: &mut BitAlloc1M, order: u8) -> Option<usize> {
    if order == 0 { map.alloc() } else { map.alloc_contiguous(None, 1 << order, order.into()) }
}

fn free_bits(map: &mut BitAlloc1M, frame: u64, order: u8) -> bool {
    match order {
        0 => map.dealloc(frame as usize),
        _ => map.dealloc_contiguous(frame as usize, 1 << order),
    }
}

impl<K: Kernel> Frames for Bitmap<K> {
    const NAME: &'static str = "bitmap-allocator";

    #[inline(always)]
    fn alloc(&self, order: u8) -> Result<u64, Refused> {
        self.0.with(|map| alloc_bits(map, order)).map(|frame| frame as u64).ok_or(Refused)
    }

    #[inline(always)]
    fn free(&self, frame: u64, order: u8) -> Result<(), Refused> {
        if self.0.with(|map| free_bits(map, frame, order)) { Ok(()) } else { Err(Refused) }
    }

    fn alloc_bulk(&self, out: &mut [u64]) -> Result<(), Refused> {
        self.0.with(|map| {
            for frame in out {
                *frame = map.alloc().ok_or(Refused)? as u64;
            }
            Ok(())
        })
    }

    fn free_bulk(&self, frames: &[u64]) -> Result<(), Refused> {
        let all = self.0.with(|map| frames.iter().all(|&frame| map.dealloc(frame as usize)));
        if all { Ok(()) } else { Err(Refused) }
    }
}
