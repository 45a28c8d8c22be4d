//! The lock of one page.

use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use nearpage::platform::Platform;
use nearpage::{PageAllocator, Pfn};

use crate::bits::{LockBits, lock_idle, unlock_idle};
use crate::error::PageLockError;
use crate::hash::Key;
use crate::platform::PageLockPlatform;
use crate::wait::{Awaited, Interrupted, PageSite, Site, Unlocked, Wait, try_lock, try_unlock};

/// The lock of one page of an allocated block.
///
/// The page must stay allocated meanwhile: a free of a page that is locked or waited for is refused, as far as the first
/// page of its block is concerned.
pub struct PageLock<'a, 'm, P: PageLockPlatform> {
    pub(super) allocator: &'a PageAllocator<'m, P>,
    pub(super) word: &'m AtomicU32,
    pub(super) pfn: Pfn,
}

impl<P: PageLockPlatform> core::fmt::Debug for PageLock<'_, '_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PageLock")
            .field("pfn", &self.pfn)
            .field("is_locked", &self.is_locked())
            .field("has_waiters", &self.has_waiters())
            .finish_non_exhaustive()
    }
}

/// The word of a frame, as far as the lock of its page is concerned: no other bit can be changed by it.
#[derive(Clone, Copy, Debug)]
pub struct LockWord<'m>(&'m AtomicU32);

impl LockWord<'_> {
    /// The word as it would be if nobody had or wanted the lock.
    #[inline]
    pub fn idle(self) -> u32 {
        LockBits(self.0.load(Ordering::Relaxed)).idle()
    }

    /// Locks a page whose word is `idle` while nobody has or wants the lock; returns whether it was so.
    #[inline(always)]
    pub fn lock_idle(self, idle: u32) -> bool {
        lock_idle(self.0, idle)
    }

    /// Unlocks such a page, if it is locked and nobody waits; returns whether it was so.
    #[inline(always)]
    pub fn unlock_idle(self, idle: u32) -> bool {
        unlock_idle(self.0, idle)
    }
}

impl<P: PageLockPlatform> Clone for PageLock<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: PageLockPlatform> Copy for PageLock<'_, '_, P> {}

impl<'a, 'm, P: PageLockPlatform> PageLock<'a, 'm, P> {
    /// The page.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The part of the frame's word that is the lock: for hosts that lock one page many times.
    #[doc(hidden)]
    #[inline]
    pub fn lock_word(&self) -> LockWord<'m> {
        LockWord(self.word)
    }

    /// The word while nobody has or wants the lock, of the first page of a block: as long as the block is allocated it is
    /// that, and not any more when it is free. The words of the other pages say nothing of that.
    #[doc(hidden)]
    pub fn idle_of_first(&self) -> Option<u32> {
        self.allocator.idle_word_of_first(self.pfn)
    }

    /// Whether somebody has locked the page.
    #[inline]
    pub fn is_locked(&self) -> bool {
        LockBits(self.word.load(Ordering::Relaxed)).is_locked()
    }

    /// Whether the page's word says that somebody waits.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        LockBits(self.word.load(Ordering::Relaxed)).has_waiters()
    }

    /// Locks the page unless it is locked; returns whether it did.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        try_lock(self.word)
    }

    /// Locks the page; waits while it is locked.
    ///
    /// # Errors
    /// [`PageLockError::Cancelled`], on hosts that cancel waits; [`PageLockError::NotAllocated`] if the page was freed
    /// while it was waited for.
    #[inline(always)]
    pub fn lock(&self) -> Result<(), PageLockError> {
        if !self.try_lock() {
            self.lock_slow(None)?;
        }
        Ok(())
    }

    /// As [`lock`](Self::lock), for a limited time.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock`](Self::lock).
    pub fn lock_timeout(&self, timeout: Duration) -> Result<(), PageLockError> {
        if !self.try_lock() {
            self.lock_slow(Some(timeout))?;
        }
        Ok(())
    }

    /// Unlocks the page and wakes who waits for it: all who wait for the unlock, and one who wants the lock.
    /// The caller has locked it.
    ///
    /// # Errors
    /// [`PageLockError::NotLocked`]; the host is told then ([`PageLockPlatform::lock_misuse`]).
    #[inline(always)]
    pub fn unlock(&self) -> Result<(), PageLockError> {
        match try_unlock(self.word, self.allocator.model().page_lock.waiters_bit) {
            Unlocked::AndNobodyWaits => {}
            unlocked => self.finish_unlock(unlocked)?,
        }
        Ok(())
    }

    /// What is left to do after [`try_unlock`]: wakes who waits, or refuses.
    #[cold]
    #[inline(never)]
    fn finish_unlock(self, unlocked: Unlocked) -> Result<(), PageLockError> {
        match unlocked {
            Unlocked::AndNobodyWaits => {}
            Unlocked::AndSomebodyWaits => self.site().wake(),
            Unlocked::NotLocked => {
                let error = PageLockError::NotLocked { pfn: self.pfn };
                return Err(refuse_unlock(self.allocator, error));
            }
        }
        Ok(())
    }

    /// Waits until the page is unlocked: what whoever had it wrote before is visible then.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    #[inline]
    pub fn wait(&self) -> Result<(), PageLockError> {
        if self.is_unlocked() { Ok(()) } else { self.block(Awaited::Unlock(self.site()), None) }
    }

    /// As [`wait`](Self::wait), for a limited time.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock`](Self::lock).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), PageLockError> {
        if self.is_unlocked() {
            return Ok(());
        }
        self.block(Awaited::Unlock(self.site()), Some(timeout))
    }

    /// A wait for the lock that the caller drives, step by step: for coroutines. When it is ready the lock is the
    /// caller's.
    pub fn lock_wait(&self) -> Wait<'a, P> {
        Wait::new(Awaited::Lock(self.site()))
    }

    /// A wait for the unlock that the caller drives.
    pub fn unlock_wait(&self) -> Wait<'a, P> {
        Wait::new(Awaited::Unlock(self.site()))
    }

    #[inline]
    fn is_unlocked(&self) -> bool {
        // Acquire pairs with the Release of the unlock.
        !LockBits(self.word.load(Ordering::Acquire)).is_locked()
    }

    // By value: nothing is written to the stack before the lock is tried, which would wait for it.
    #[cold]
    #[inline(never)]
    fn lock_slow(self, timeout: Option<Duration>) -> Result<(), PageLockError> {
        // Each look takes the line away from the holder, so looks get rarer.
        for round in 0..P::PAGE_LOCK_SPINS {
            (0..4 << round).for_each(|_| core::hint::spin_loop());
            if !self.is_locked() && self.try_lock() {
                return Ok(());
            }
        }
        self.block(Awaited::Lock(self.site()), timeout)?;
        // Nobody keeps the page for who waits for it; who freed it meanwhile was wrong, and so was the wait.
        if !self.allocator.is_in_block(self.pfn) {
            self.unlock()?;
            return Err(PageLockError::NotAllocated { pfn: self.pfn });
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn block(
        &self,
        awaited: Awaited<'_, P>,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        block(self.allocator, awaited, timeout)
    }

    pub(super) fn site(&self) -> PageSite<'a, P> {
        PageSite {
            site: site(self.allocator, self.pfn, Key::page(self.pfn)),
            word: self.word,
            waiters_bit: self.allocator.model().page_lock.waiters_bit,
        }
    }
}

/// Tells the host of an unlock that is refused.
#[cold]
#[inline(never)]
pub(crate) fn refuse_unlock<P: PageLockPlatform>(
    pages: &PageAllocator<'_, P>,
    error: PageLockError,
) -> PageLockError {
    pages.platform().lock_misuse(&error);
    error
}

/// Waits, for a limited time if there is a limit.
pub(crate) fn block<P: PageLockPlatform>(
    pages: &PageAllocator<'_, P>,
    awaited: Awaited<'_, P>,
    timeout: Option<Duration>,
) -> Result<(), PageLockError> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let deadline = |time| Platform::now_ns(pages.platform()).saturating_add(nanoseconds(time));
    let wait = pin!(Wait::new(awaited));
    wait.as_ref().block(timeout.map(deadline)).map_err(|interrupted| match interrupted {
        Interrupted::TimedOut => PageLockError::TimedOut,
        Interrupted::Cancelled => PageLockError::Cancelled,
    })
}

/// Where something in an online page is waited for.
pub(crate) fn site<'a, P: PageLockPlatform>(
    pages: &'a PageAllocator<'_, P>,
    pfn: Pfn,
    key: Key,
) -> Site<'a, P> {
    let (parking, table) = (pages.platform(), pages.wait_table(pfn));
    Site { parking, table, key, here: pages.waiting_node() }
}
