//! Locked pages: [`LockablePages`], a block whose pages threads share, one at a time.
//!
//! Below it is the level of frames ([`Memory::lock_page`] and its companions), for pools that keep frame numbers:
//! the lock is a bit of the frame's metadata, so it needs no memory of its own, and a thread that waits sleeps
//! on a word of its own stack.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Duration;

use nearpage::internals::LockWord;
use nearpage::pagelock::{BitWord, PageLockError, WaitCounts};
use nearpage::rules::WaitersBit;
use nearpage::{NodeId, Pfn};

use crate::memory::{Allocator, FRAME_BYTES, Memory, PageBlock, with_allocator};

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
    /// The core refused, or the time was up.
    #[error(transparent)]
    Page(#[from] PageLockError),
}

impl<'a> PageBlock<'a> {
    /// Lets threads share the block, a page at a time: each page has a lock. Locks that somebody took by frame
    /// number are not theirs any more.
    pub fn lockable(self) -> LockablePages<'a> {
        LockablePages::new(self)
    }
}

/// A block of pages that threads share: the bytes of a page are reached while it is locked.
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

    /// Locks a page, unless it is locked.
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
        self.memory().lock_page_timeout(page.pfn, timeout)?;
        Ok(self.locked(page))
    }

    /// Waits until a page is unlocked.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn wait_on(&self, index: usize) -> Result<(), LockError> {
        Ok(self.memory().wait_on_page(self.page(index)?.pfn)?)
    }

    /// As [`wait_on`](Self::wait_on), but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock`](Self::lock).
    pub fn wait_on_timeout(&self, index: usize, timeout: Duration) -> Result<(), LockError> {
        Ok(self.memory().wait_on_page_timeout(self.page(index)?.pfn, timeout)?)
    }

    /// Whether somebody has a page locked.
    ///
    /// # Errors
    /// [`LockError::NoSuchPage`].
    pub fn is_locked(&self, index: usize) -> Result<bool, LockError> {
        Ok(self.memory().is_page_locked(self.page(index)?.pfn)?)
    }

    /// The block again, for its one owner.
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
        LockedPage { handle, bytes: self.memory().address(handle.pfn) }
    }

    /// Unlocks what guards that were forgotten left locked, here or with the frames' last owner: nobody has the
    /// block but the caller.
    fn reset(&self) {
        let (pfn, order) = (self.block.pfn(), self.block.order());
        let reset =
            with_allocator!(self.memory(), allocator => allocator.reset_page_locks(pfn, order));
        reset.expect("the block is allocated");
    }
}

impl Drop for LockablePages<'_> {
    fn drop(&mut self) {
        self.reset();
    }
}

/// A page that the caller has locked; dropping it unlocks the page.
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
        self.handle.pfn
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

/// The lock of a page of an allocated block, found once: for those who lock a page often.
///
/// The lock is the page's, not the handle's: it stays locked when the handle is dropped.
#[derive(Clone, Copy)]
pub struct PageHandle<'a> {
    memory: &'a Memory,
    word: LockWord<'a>,
    /// The word while nobody has or wants the lock: that of an allocated page does not change otherwise. Of a page whose
    /// word does not tell when it is freed, [`NEVER`].
    idle: u32,
    waiters_bit: WaitersBit,
    pfn: Pfn,
}

/// What no word of a frame is: its last bits are zero.
const NEVER: u32 = u32::MAX;

/// Whether a page may be freed while there is a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// The owner of the block has the handle.
    OnlyWithIt,
    /// By anybody.
    AtAnyTime,
}

impl PageHandle<'_> {
    /// The frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// As [`Memory::try_lock_page`].
    ///
    /// # Errors
    /// As [`Memory::try_lock_page`].
    #[inline(always)]
    pub fn try_lock(&self) -> Result<bool, PageLockError> {
        if self.word.lock_idle(self.idle) { Ok(true) } else { self.try_lock_slow() }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_slow(self) -> Result<bool, PageLockError> {
        self.memory.try_lock_page(self.pfn)
    }

    /// As [`Memory::lock_page`].
    ///
    /// # Errors
    /// As [`Memory::lock_page`].
    #[inline(always)]
    pub fn lock(&self) -> Result<(), PageLockError> {
        if !self.word.lock_idle(self.idle) {
            self.lock_slow()?;
        }
        Ok(())
    }

    // By value, and with an answer of its own: nothing is written to the stack before the exchange, which would wait for it.
    #[cold]
    #[inline(never)]
    fn lock_slow(self) -> Result<(), PageLockError> {
        self.memory.lock_page(self.pfn)
    }

    /// As [`Memory::unlock_page`].
    ///
    /// # Errors
    /// As [`Memory::unlock_page`].
    ///
    /// # Safety
    /// * As [`Memory::unlock_page`].
    #[inline(always)]
    pub unsafe fn unlock(&self) -> Result<(), PageLockError> {
        if self.waiters_bit == WaitersBit::Off || !self.word.unlock_idle(self.idle) {
            self.unlock_slow()?;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(self) -> Result<(), PageLockError> {
        with_allocator!(self.memory, allocator => allocator.unlock_page(self.pfn))
    }
}

impl fmt::Debug for PageHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageHandle({})", self.pfn)
    }
}

/// Locks by frame number.
impl Memory {
    /// The lock of a page of an allocated block, which should stay allocated as long as the handle is used: when it is
    /// free, locks are refused, and when it is allocated again, they are its new owner's.
    ///
    /// # Errors
    /// [`PageLockError::Foreign`] and [`PageLockError::NotAllocated`].
    pub fn page_handle(&self, pfn: Pfn) -> Result<PageHandle<'_>, PageLockError> {
        self.handle(pfn, Freed::AtAnyTime)
    }

    fn handle(&self, pfn: Pfn, freed: Freed) -> Result<PageHandle<'_>, PageLockError> {
        let (word, first, waiters_bit): (LockWord<'_>, _, _) = with_allocator!(self, allocator => {
            let page = allocator.page_lock(pfn)?;
            (page.lock_word(), page.idle_of_first(), allocator.model().page_lock.waiters_bit)
        });
        let idle = match freed {
            Freed::OnlyWithIt => word.idle(),
            Freed::AtAnyTime => first.unwrap_or(NEVER),
        };
        Ok(PageHandle { memory: self, word, idle, waiters_bit, pfn })
    }

    /// Locks a page of an allocated block unless it is locked; returns whether it did.
    ///
    /// # Errors
    /// [`PageLockError::Foreign`] and [`PageLockError::NotAllocated`].
    #[inline(always)]
    pub fn try_lock_page(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.try_lock_page(pfn),
            _ => self.try_lock_page_otherwise(pfn),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_page_otherwise(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        with_allocator!(self, allocator => allocator.try_lock_page(pfn))
    }

    /// Locks a page of an allocated block; sleeps while it is locked. The block must stay allocated meanwhile, and until
    /// the page is unlocked: a block that ends while its first page is locked is reported and not freed (then
    /// [`free_frames`](Self::free_frames) frees it, once the page is unlocked), and a lock on another page is found by
    /// whoever gets the frames next, who takes it off by [`PageBlock::lockable`].
    ///
    /// # Errors
    /// As [`try_lock_page`](Self::try_lock_page).
    #[inline(always)]
    pub fn lock_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.lock_page(pfn)?,
            _ => self.lock_page_otherwise(pfn)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn lock_page_otherwise(&self, pfn: Pfn) -> Result<(), PageLockError> {
        with_allocator!(self, allocator => allocator.lock_page(pfn))
    }

    /// As [`lock_page`](Self::lock_page), but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    pub fn lock_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        with_allocator!(self, allocator => allocator.lock_page_timeout(pfn, timeout))
    }

    /// Unlocks a page and wakes who waits for it.
    ///
    /// # Errors
    /// [`PageLockError::NotLocked`], and as [`try_lock_page`](Self::try_lock_page); it is counted and reported as a
    /// wrong free is.
    ///
    /// # Safety
    /// * The caller has locked the page, and no [`LockedPage`] stands for that.
    #[inline(always)]
    pub unsafe fn unlock_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.unlock_page(pfn)?,
            _ => self.unlock_page_otherwise(pfn)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn unlock_page_otherwise(&self, pfn: Pfn) -> Result<(), PageLockError> {
        with_allocator!(self, allocator => allocator.unlock_page(pfn))
    }

    /// Waits until a page is unlocked: to read what whoever had it has written.
    ///
    /// # Errors
    /// As [`lock_page`](Self::lock_page).
    pub fn wait_on_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        with_allocator!(self, allocator => allocator.wait_on_page(pfn))
    }

    /// As [`wait_on_page`](Self::wait_on_page), but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    pub fn wait_on_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        with_allocator!(self, allocator => allocator.wait_on_page_timeout(pfn, timeout))
    }

    /// Whether somebody has a page locked.
    ///
    /// # Errors
    /// As [`try_lock_page`](Self::try_lock_page).
    pub fn is_page_locked(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        with_allocator!(self, allocator => allocator.page_lock(pfn).map(|page| page.is_locked()))
    }

    /// Waits until a bit of a word in this memory is clear, but no longer than `timeout`. Who clears it calls
    /// [`wake_up_bit`](Self::wake_up_bit) after it.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`] if the word is elsewhere, [`PageLockError::NoSuchBit`],
    /// [`PageLockError::TimedOut`].
    pub fn wait_on_bit<W: BitWord>(
        &self,
        word: &W,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        let address = address_of(word);
        with_allocator!(self, allocator => allocator.wait_on_bit(word, address, bit, timeout))
    }

    /// Wakes all who wait for a bit of a word in this memory, which the caller has cleared before.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`] if the word is elsewhere, [`PageLockError::NoSuchBit`].
    pub fn wake_up_bit<W: BitWord>(&self, word: &W, bit: u32) -> Result<(), PageLockError> {
        with_allocator!(self, allocator => allocator.wake_up_bit::<W>(address_of(word), bit))
    }

    /// What happened at the wait table of a node's pages, or `None` if there is no such node.
    pub fn wait_counts(&self, node: NodeId) -> Option<WaitCounts> {
        let node = self.topology().index_of(node)?;
        Some(with_allocator!(self, allocator => allocator.wait_counts(node)))
    }
}

fn address_of<W>(word: &W) -> u64 {
    std::ptr::from_ref(word).addr() as u64
}
