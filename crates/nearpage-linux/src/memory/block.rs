//! Blocks that free themselves: [`PageBlock`], which borrows its memory, and [`OwnedPages`], which keeps it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

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

    /// Allocates a block; if there is none, waits for one until `timeout` is over. Of threads that wait, the one that came
    /// first is served first. While it waits, a request asks [shrinkers](crate::Shrinker) again and again, as each request without memory
    /// does. A limit that is reached counts as no memory.
    ///
    /// Nobody is woken by a free: the first of those who wait looks again after 0.1 to 4 ms. A thread that waits must not have
    /// what the others need in order to free memory.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use nearpage::{Gfp, Order, Request};
    ///
    /// let memory = nearpage_linux::Memory::builder().bytes_per_node(4 << 20).build()?;
    /// let page = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
    /// let mut held: Vec<_> = std::iter::from_fn(|| memory.alloc(page).ok()).collect();
    /// assert!(memory.alloc_timeout(page, Duration::from_millis(10)).is_err());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| held.truncate(10));
    ///     memory.alloc_timeout(page, Duration::from_secs(60)).map(drop)
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocError`] if the time is over, or at once if the request can never be met.
    pub fn alloc_timeout(
        &self,
        request: Request,
        timeout: Duration,
    ) -> Result<PageBlock<'_>, AllocError> {
        self.line.wait(timeout, || self.alloc(request))
    }

    /// Allocates a block that keeps its memory: it may go to other threads, live as long as anybody wants, and be what bytes of
    /// any kind are made of.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use nearpage::{Gfp, Order, Request};
    ///
    /// let memory = nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build()?;
    /// let memory = Arc::new(memory);
    /// let mut block = memory.alloc_owned(Request::new(Order(2), Gfp::HIGHUSER_MOVABLE))?;
    /// block[..5].copy_from_slice(b"hello");
    /// drop(memory);
    /// let thread = std::thread::spawn(move || block.as_ref()[..5] == *b"hello");
    /// assert!(thread.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc_owned(self: &Arc<Self>, request: Request) -> Result<OwnedPages, AllocError> {
        Ok(self.alloc(request)?.into_owned(self))
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
    /// [`free_frames`](Memory::free_frames) frees it, or until [`from_frames`](Self::from_frames) makes it somebody's again.
    #[inline]
    pub fn into_frames(self) -> Pfn {
        let pfn = self.pfn;
        std::mem::forget(self);
        pfn
    }

    /// The same block, which keeps its memory from now on.
    ///
    /// # Panics
    /// If the block is of another memory.
    pub fn into_owned(self, memory: &Arc<Memory>) -> OwnedPages {
        assert!(std::ptr::eq(self.memory, &**memory), "the block is of another memory");
        let order = self.order;
        OwnedPages { memory: memory.clone(), pfn: self.into_frames(), order }
    }

    fn bytes(&self) -> usize {
        self.order.pages().to_bytes(FRAME_SHIFT) as usize
    }
}

impl<'a> PageBlock<'a> {
    /// The owner of a block of `memory` from now on: the end of [`into_frames`](Self::into_frames).
    ///
    /// ```
    /// use nearpage::Order;
    /// use nearpage_linux::{Memory, PageBlock};
    ///
    /// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
    /// let mut block = memory.alloc_pages(2)?;
    /// block[0] = 7;
    /// let frame = block.into_frames(); // kept in a table, or in a word of 32 bits
    /// // SAFETY: the block was given up just now, and nobody else knows of it.
    /// let block = unsafe { PageBlock::from_frames(&memory, frame, Order(1)) };
    /// assert_eq!(block[0], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// * `first` is the first frame of a block of this order that is allocated from `memory`, and nobody else owns it.
    #[inline]
    pub unsafe fn from_frames(memory: &'a Memory, first: Pfn, order: Order) -> Self {
        Self { memory, pfn: first, order }
    }
}

impl AsRef<[u8]> for PageBlock<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PageBlock<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
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

/// The owner of a block of pages that keeps its memory, which lives at least as long. It is `'static` and `Send`, and its bytes
/// stay where they are: so it can be sent to a thread or a task, be registered with io_uring, or be the owner of a
/// `bytes::Bytes`. A block is aligned to its own size, as `O_DIRECT` wants it. Dropping it frees the block.
///
/// A memory that is a `static` needs none of this: its [`PageBlock`]s are `'static` already.
///
/// ```
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use nearpage::{Gfp, Order, Request};
///
/// let memory = nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build()?;
/// let memory = Arc::new(memory);
/// let block = memory.alloc_owned(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE.union(Gfp::ZERO)))?;
/// let bytes = Bytes::from_owner(block);
/// let header = bytes.slice(..20); // shares the page, which is free once both are gone
/// assert!(header.iter().all(|&byte| byte == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedPages {
    memory: Arc<Memory>,
    pfn: Pfn,
    order: Order,
}

impl OwnedPages {
    /// The owner of a block of `memory` from now on.
    ///
    /// # Safety
    /// * As [`PageBlock::from_frames`].
    pub unsafe fn from_frames(memory: Arc<Memory>, first: Pfn, order: Order) -> Self {
        Self { memory, pfn: first, order }
    }

    /// Gives up ownership, as [`PageBlock::into_frames`] does, and returns the memory and the first frame.
    pub fn into_frames(self) -> (Arc<Memory>, Pfn) {
        let this = ManuallyDrop::new(self);
        // SAFETY: nobody uses or drops `this` any more.
        (unsafe { std::ptr::read(&this.memory) }, this.pfn)
    }

    /// The memory that the block is of.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The first frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The node that the block lies on.
    pub fn node(&self) -> NodeId {
        self.memory.node_of(self.pfn).expect("a block lies in the range of a node")
    }

    /// The first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.memory.address(self.pfn)
    }

    fn bytes(&self) -> usize {
        self.order.pages().to_bytes(FRAME_SHIFT) as usize
    }
}

impl Deref for OwnedPages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for `PageBlock`, and the memory is kept.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl DerefMut for OwnedPages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the owner is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl AsRef<[u8]> for OwnedPages {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for OwnedPages {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for OwnedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedPages({}, order {})", self.pfn, self.order)
    }
}

impl Drop for OwnedPages {
    fn drop(&mut self) {
        // An error is told as one of `PageBlock` is.
        // SAFETY: this owner has the block, and its end is the end of all use of its memory.
        let _ = unsafe { self.memory.free_frames(self.pfn, self.order) };
    }
}
