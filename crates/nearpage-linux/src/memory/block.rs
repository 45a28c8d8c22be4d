//! [`PageBlock`]: a block that frees itself.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use nearpage::{AllocError, Gfp, NodeId, Order, Pfn, Request};

use super::Memory;
use crate::frame::{FRAME_SHIFT, order_of};

impl Memory {
    /// Allocates the smallest block that has `pages` pages, near the calling thread's CPU. A block has 2^n pages, from 1 to
    /// 1024: a request for 5 pages gets 8, and one for 0 pages gets 1.
    ///
    /// # Errors
    /// [`AllocError`]: [`AllocError::TooManyPages`] above 1024 pages.
    #[inline]
    pub fn alloc_pages(&self, pages: u64) -> Result<PageBlock<'_>, AllocError> {
        self.alloc(Request::new(order_of(pages)?, Gfp::HIGHUSER_MOVABLE))
    }

    /// Allocates a block. `__GFP_ZERO` clears it; otherwise its bytes are what an earlier owner left there.
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<PageBlock<'_>, AllocError> {
        let pfn = self.alloc_frames(request)?;
        Ok(self.block(pfn, request))
    }

    /// The owner of a block that a request got; clears the block if the request asked for that.
    #[inline]
    pub(crate) fn block(&self, pfn: Pfn, request: Request) -> PageBlock<'_> {
        let mut block = PageBlock { memory: self, pfn, order: request.order };
        if request.gfp.contains(Gfp::ZERO) {
            block.fill(0);
        }
        block
    }
}

/// The owner of a block of pages. Dropping it frees the block. It derefs to the block's bytes.
pub struct PageBlock<'a> {
    pub(crate) memory: &'a Memory,
    pfn: Pfn,
    order: Order,
}

impl PageBlock<'_> {
    /// The first frame.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The order.
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }

    /// The node that the block lies on.
    pub fn node(&self) -> NodeId {
        self.memory.node_of(self.pfn).expect("a block lies in the range of a node")
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.memory.address(self.pfn)
    }

    /// Gives up ownership and returns the first frame. The block stays allocated until
    /// [`free_frames`](Memory::free_frames) frees it.
    #[inline]
    pub fn into_frames(self) -> Pfn {
        let pfn = self.pfn;
        std::mem::forget(self);
        pfn
    }

    fn bytes(&self) -> usize {
        self.order.pages().to_bytes(FRAME_SHIFT) as usize
    }
}

impl Deref for PageBlock<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block is `bytes` long, lies in memory that is online (readable, and zero or what was
        // last written there), and belongs to this owner alone until it is dropped.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl DerefMut for PageBlock<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the owner is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl fmt::Debug for PageBlock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBlock({}, order {})", self.pfn, self.order)
    }
}

impl Drop for PageBlock<'_> {
    #[inline]
    fn drop(&mut self) {
        // An error means that somebody freed the frames, or has locked the first page, behind our back. It has been
        // reported, as the memory was told to (`OnMisuse`); there is nobody here to hand it to.
        // SAFETY: this owner has the block, and its end is the end of all use of its memory.
        let _ = unsafe { self.memory.free_frames(self.pfn, self.order) };
    }
}
