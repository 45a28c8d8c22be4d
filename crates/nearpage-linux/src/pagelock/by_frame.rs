//! Page locks by frame number.

use std::time::Duration;

use nearpage::stats::WaitCounts;
use nearpage::{NodeId, Pfn};
use nearpage_pagelock::{BitWord, PageLockError, PageLocks as _};

use crate::memory::Memory;
use crate::pages::Allocator;

/// Locks by frame number.
impl Memory {
    /// Locks a page of an allocated block if it is not locked; returns whether this call locked it.
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

    /// Locks a page of an allocated block; sleeps while another thread has it locked.
    ///
    /// The block must stay allocated until the page is unlocked. A free of a block whose first page is locked is refused and
    /// recorded as a misuse; [`free_frames`](Self::free_frames) frees the block once the page is unlocked. A lock on another
    /// page of a freed block stays, and the next owner of the frames finds it;
    /// [`PageBlock::lockable`](crate::PageBlock::lockable) removes it.
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

    /// Unlocks a page and wakes threads that wait for it.
    ///
    /// # Errors
    /// [`PageLockError::NotLocked`], and as [`try_lock_page`](Self::try_lock_page). The memory records the error as a
    /// [misuse](crate::OnMisuse).
    ///
    /// # Safety
    /// * The caller has locked the page, and no [`LockedPage`](crate::LockedPage) owns that lock.
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

    /// Waits until a page is unlocked, for example to read what the thread that had it locked wrote.
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

    /// Whether a page is locked.
    ///
    /// # Errors
    /// As [`try_lock_page`](Self::try_lock_page).
    pub fn is_page_locked(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        self.pages().is_page_locked(pfn)
    }

    /// Waits until a bit of a word in this memory is clear, but no longer than `timeout`. The thread that clears the bit must
    /// call [`wake_up_bit`](Self::wake_up_bit) after that.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`] if the word is not in this memory, [`PageLockError::NoSuchBit`],
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

    /// Wakes all threads that wait for a bit of a word in this memory. The caller has cleared the bit before.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`] if the word is not in this memory, [`PageLockError::NoSuchBit`].
    pub fn wake_up_bit<W: BitWord>(&self, word: &W, bit: u32) -> Result<(), PageLockError> {
        check_bit::<W>(bit)?;
        self.pages().wake_up_bit(address_of(word), bit)
    }

    /// What happened at the wait table of a node's pages. `None` if the node is unknown.
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
