//! A block of pages that threads share.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Duration;

use nearpage::Pfn;
use nearpage_pagelock::PageLockError;

use super::handle::{Freed, PageHandle};
use crate::frame::FRAME_BYTES;
use crate::memory::{Memory, PageBlock};

/// Why a page of a block could not be locked or waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The block has no such page.
    #[error("page {index} of a block: it has pages 0 to {}", pages - 1)]
    NoSuchPage {
        /// The index.
        index: usize,
        /// Pages of the block.
        pages: usize,
    },
    /// The lock was refused, or the time was up.
    #[error(transparent)]
    Page(#[from] PageLockError),
}

impl<'a> PageBlock<'a> {
    /// Lets threads share the block: each of its pages gets a lock. This removes locks that were taken by frame number.
    pub fn lockable(self) -> LockablePages<'a> {
        LockablePages::new(self)
    }
}

/// A block of pages that threads share. A thread reaches the bytes of a page while it has the page locked.
///
/// The lock is a bit of the frame's metadata, so it needs no memory of its own. A thread that waits sleeps in the kernel on a
/// word of its own stack. Pools that keep frame numbers use [`Memory::lock_page`] and its companions instead.
///
/// ```
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(64 << 20).build()?;
/// let pages = memory.alloc_pages(4)?.lockable();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| pages.lock(2).expect("the block has four pages")[0] += 1);
///     }
/// });
/// assert_eq!(pages.lock(2)?[0], 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LockablePages<'a> {
    block: PageBlock<'a>,
}

// SAFETY: the bytes are reached only through `LockedPage`, and a page has one of those at a time.
unsafe impl Sync for LockablePages<'_> {}

impl<'a> LockablePages<'a> {
    fn new(block: PageBlock<'a>) -> Self {
        let pages = Self { block };
        pages.reset();
        pages
    }

    /// Pages of the block.
    #[expect(clippy::len_without_is_empty, reason = "a block has a page")]
    pub fn len(&self) -> usize {
        self.block.order().pages().0 as usize
    }

    /// Locks a page if it is not locked.
    ///
    /// # Errors
    /// [`LockError::NoSuchPage`].
    #[inline]
    pub fn try_lock(&self, index: usize) -> Result<Option<LockedPage<'_>>, LockError> {
        let page = self.page(index)?;
        Ok(page.try_lock()?.then(|| self.locked(page)))
    }

    /// Locks a page; waits while it is locked.
    ///
    /// # Errors
    /// [`LockError::NoSuchPage`].
    #[inline]
    pub fn lock(&self, index: usize) -> Result<LockedPage<'_>, LockError> {
        let page = self.page(index)?;
        page.lock()?;
        Ok(self.locked(page))
    }

    /// Locks a page; waits while it is locked, but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock`](Self::lock).
    pub fn lock_timeout(
        &self,
        index: usize,
        timeout: Duration,
    ) -> Result<LockedPage<'_>, LockError> {
        let page = self.page(index)?;
        self.memory().lock_page_timeout(page.pfn(), timeout)?;
        Ok(self.locked(page))
    }

    /// Waits until a page is unlocked.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn wait_on(&self, index: usize) -> Result<(), LockError> {
        Ok(self.memory().wait_on_page(self.page(index)?.pfn())?)
    }

    /// As [`wait_on`](Self::wait_on), but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock`](Self::lock).
    pub fn wait_on_timeout(&self, index: usize, timeout: Duration) -> Result<(), LockError> {
        Ok(self.memory().wait_on_page_timeout(self.page(index)?.pfn(), timeout)?)
    }

    /// Whether a page is locked.
    ///
    /// # Errors
    /// [`LockError::NoSuchPage`].
    pub fn is_locked(&self, index: usize) -> Result<bool, LockError> {
        Ok(self.memory().is_page_locked(self.page(index)?.pfn())?)
    }

    /// Ends the sharing and returns the block.
    pub fn into_block(self) -> PageBlock<'a> {
        self.reset();
        let pages = std::mem::ManuallyDrop::new(self);
        // SAFETY: the block is moved out of what is not dropped.
        unsafe { std::ptr::read(&pages.block) }
    }

    /// The first frame.
    pub fn pfn(&self) -> Pfn {
        self.block.pfn()
    }

    fn memory(&self) -> &'a Memory {
        self.block.memory
    }

    #[inline]
    fn page(&self, index: usize) -> Result<PageHandle<'_>, LockError> {
        let pages = self.len();
        if index >= pages {
            return Err(LockError::NoSuchPage { index, pages });
        }
        Ok(self.memory().handle(Pfn(self.block.pfn().0 + index as u64), Freed::OnlyWithIt)?)
    }

    #[inline]
    fn locked<'p>(&'p self, handle: PageHandle<'p>) -> LockedPage<'p> {
        LockedPage { bytes: self.memory().address(handle.pfn()), handle }
    }

    /// Removes locks that forgotten guards left, of this block or of the frames' last owner. Only the caller has the block.
    fn reset(&self) {
        let (pfn, order) = (self.block.pfn(), self.block.order());
        let reset = self.memory().pages().reset_page_locks(pfn, order);
        reset.expect("the block is allocated");
    }
}

impl Drop for LockablePages<'_> {
    fn drop(&mut self) {
        self.reset();
    }
}

/// A page that this thread has locked. Dropping it unlocks the page.
#[derive(Debug)]
pub struct LockedPage<'p> {
    handle: PageHandle<'p>,
    bytes: NonNull<u8>,
}

// SAFETY: a reference to bytes that nobody else reaches; the memory may be shared.
unsafe impl Send for LockedPage<'_> {}
// SAFETY: shared, it gives `&[u8]`.
unsafe impl Sync for LockedPage<'_> {}

impl LockedPage<'_> {
    /// The frame.
    pub fn pfn(&self) -> Pfn {
        self.handle.pfn()
    }
}

impl Deref for LockedPage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the page lies in a block that outlives the guard, is online, and is this guard's alone.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), FRAME_BYTES as usize) }
    }
}

impl DerefMut for LockedPage<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), FRAME_BYTES as usize) }
    }
}

impl Drop for LockedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard has the lock, and its end is the end of all use of it.
        let unlocked = unsafe { self.handle.unlock() };
        // An error means that somebody unlocked the page behind our back; it has been reported.
        debug_assert!(unlocked.is_ok());
    }
}
