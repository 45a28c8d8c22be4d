//! Page locks by frame number.

use std::time::Duration;

use nearpage::alloc::BitWord;
use nearpage::error::PageLockError;
use nearpage::pagelock::WaitCounts;
use nearpage::units::{NodeId, Pfn};

use crate::memory::Memory;
use crate::pages::Allocator;

/// Locks by frame number.
impl Memory {
    /// Locks a page of an allocated block unless it is locked; returns whether it did.
    ///
    /// # Errors
    /// [`PageLockError::Foreign`] and [`PageLockError::NotAllocated`].
    #[inline(always)]
    pub fn try_lock_page(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        match &self.allocator {
            Allocator::Rseq(pages) => pages.try_lock_page(pfn),
            _ => self.try_lock_page_otherwise(pfn),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_page_otherwise(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        self.pages().try_lock_page(pfn)
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
            Allocator::Rseq(pages) => pages.lock_page(pfn)?,
            _ => self.lock_page_otherwise(pfn)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn lock_page_otherwise(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.pages().lock_page(pfn)
    }

    /// As [`lock_page`](Self::lock_page), but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    pub fn lock_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        self.pages().lock_page_timeout(pfn, timeout)
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
            Allocator::Rseq(pages) => pages.unlock_page(pfn)?,
            _ => self.unlock_page_otherwise(pfn)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn unlock_page_otherwise(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.pages().unlock_page(pfn)
    }

    /// Waits until a page is unlocked: to read what whoever had it has written.
    ///
    /// # Errors
    /// As [`lock_page`](Self::lock_page).
    pub fn wait_on_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.pages().wait_on_page(pfn)
    }

    /// As [`wait_on_page`](Self::wait_on_page), but no longer than `timeout`.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    pub fn wait_on_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        self.pages().wait_on_page_timeout(pfn, timeout)
    }

    /// Whether somebody has a page locked.
    ///
    /// # Errors
    /// As [`try_lock_page`](Self::try_lock_page).
    pub fn is_page_locked(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        self.pages().is_page_locked(pfn)
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
        check_bit::<W>(bit)?;
        self.pages().wait_on_bit(&|| word.is_clear(bit), address_of(word), bit, timeout)
    }

    /// Wakes all who wait for a bit of a word in this memory, which the caller has cleared before.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`] if the word is elsewhere, [`PageLockError::NoSuchBit`].
    pub fn wake_up_bit<W: BitWord>(&self, word: &W, bit: u32) -> Result<(), PageLockError> {
        check_bit::<W>(bit)?;
        self.pages().wake_up_bit(address_of(word), bit)
    }

    /// What happened at the wait table of a node's pages, or `None` if there is no such node.
    pub fn wait_counts(&self, node: NodeId) -> Option<WaitCounts> {
        let node = self.topology().index_of(node)?;
        Some(self.pages().wait_counts(node))
    }
}

fn address_of<W>(word: &W) -> u64 {
    std::ptr::from_ref(word).addr() as u64
}

fn check_bit<W: BitWord>(bit: u32) -> Result<(), PageLockError> {
    let bits = W::BITS;
    if bit < bits { Ok(()) } else { Err(PageLockError::NoSuchBit { bit, bits }) }
}
