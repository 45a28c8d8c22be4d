//! Locking pages: from a frame number to the word and the wait table.
#![allow(unsafe_code)]

use core::time::Duration;

use nearpage::internals::NoLock;
use nearpage::{Order, PageAllocator, Pfn};

use crate::bit_wait::{BitWord, bit_site, bit_site_of};
use crate::error::PageLockError;
use crate::page::{PageLock, block, refuse_unlock};
use crate::platform::PageLockPlatform;
use crate::wait::{Awaited, Site};

/// What a page allocator has on a host of page locks.
pub trait PageLocks<'m, P: PageLockPlatform> {
    /// The lock of a page of an allocated block. The lock is the page's, not the answer's: it stays locked when the
    /// answer is dropped.
    ///
    /// # Errors
    /// [`PageLockError::Foreign`] and [`PageLockError::NotAllocated`].
    fn page_lock(&self, pfn: Pfn) -> Result<PageLock<'_, 'm, P>, PageLockError>;

    /// Locks a page unless it is locked; returns whether it did. One atomic exchange.
    ///
    /// # Errors
    /// As [`page_lock`](Self::page_lock).
    fn try_lock_page(&self, pfn: Pfn) -> Result<bool, PageLockError>;

    /// Locks a page; waits while it is locked. One atomic exchange if it is not.
    ///
    /// # Errors
    /// As [`page_lock`](Self::page_lock) and [`PageLock::lock`].
    fn lock_page(&self, pfn: Pfn) -> Result<(), PageLockError>;

    /// As [`lock_page`](Self::lock_page), for a limited time.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    fn lock_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError>;

    /// Unlocks a page that the caller has locked, and wakes who waits for it. One atomic exchange if nobody does.
    ///
    /// # Errors
    /// [`PageLockError::NotLocked`], and as [`page_lock`](Self::page_lock); the host is told
    /// ([`PageLockPlatform::lock_misuse`]).
    fn unlock_page(&self, pfn: Pfn) -> Result<(), PageLockError>;

    /// Waits until a page is unlocked.
    ///
    /// # Errors
    /// As [`lock_page`](Self::lock_page).
    fn wait_on_page(&self, pfn: Pfn) -> Result<(), PageLockError>;

    /// As [`wait_on_page`](Self::wait_on_page), for a limited time.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    fn wait_on_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError>;

    /// Takes locks that nobody can have any more off the pages of a block: the caller owns it, and nobody waits.
    ///
    /// # Errors
    /// As [`page_lock`](Self::page_lock).
    fn reset_page_locks(&self, pfn: Pfn, order: Order) -> Result<(), PageLockError>;

    /// Waits until a bit of a word is clear. The word lies in managed memory, at `address`: its frame number
    /// times the page size, and the offset. Who clears the bit calls [`wake_up_bit`](Self::wake_up_bit)
    /// after it.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`], [`PageLockError::NoSuchBit`], and as
    /// [`PageLock::lock_timeout`](PageLock::lock_timeout).
    fn wait_on_bit<W: BitWord>(
        &self,
        word: &W,
        address: u64,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError>;

    /// Wakes all who wait for a bit of the word of type `W` at `address`, which the caller has cleared before. Nobody's
    /// bucket is locked if nobody waits.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`], [`PageLockError::NoSuchBit`].
    fn wake_up_bit<W: BitWord>(&self, address: u64, bit: u32) -> Result<(), PageLockError>;

    /// Where a bit of the word at `address` is waited for: for waits that the caller drives
    /// ([`Wait`](crate::Wait)).
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`].
    fn bit_site(&self, address: u64, bit: u32) -> Result<Site<'_, P>, PageLockError>;
}

impl<'m, P: PageLockPlatform> PageLocks<'m, P> for PageAllocator<'m, P> {
    #[inline(always)]
    fn page_lock(&self, pfn: Pfn) -> Result<PageLock<'_, 'm, P>, PageLockError> {
        // SAFETY: what locks and unlocks changes the lock bits alone, by atomic exchange.
        match unsafe { self.lock_cell(pfn) } {
            Ok(word) => Ok(PageLock { allocator: self, word, pfn }),
            Err(NoLock::Foreign) => Err(PageLockError::Foreign { pfn }),
            Err(NoLock::NotAllocated) => Err(PageLockError::NotAllocated { pfn }),
        }
    }

    #[inline(always)]
    fn try_lock_page(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        Ok(self.page_lock(pfn)?.try_lock())
    }

    #[inline(always)]
    fn lock_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.lock()?;
        Ok(())
    }

    fn lock_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.lock_timeout(timeout)
    }

    #[inline(always)]
    fn unlock_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        match self.page_lock(pfn) {
            Ok(page) => page.unlock()?,
            Err(error) => return Err(refuse_unlock(self, error)),
        }
        Ok(())
    }

    fn wait_on_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.wait()
    }

    fn wait_on_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.wait_timeout(timeout)
    }

    fn reset_page_locks(&self, pfn: Pfn, order: Order) -> Result<(), PageLockError> {
        for page in 0..order.pages().0 {
            let lock = self.page_lock(Pfn(pfn.0 + page))?;
            // Who has it by frame number may unlock it in the same instant: then it is done.
            if lock.is_locked() {
                lock.site().unlock();
            }
        }
        Ok(())
    }

    fn wait_on_bit<W: BitWord>(
        &self,
        word: &W,
        address: u64,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        let site = bit_site_of::<W, P>(self, address, bit)?;
        let is_clear = || word.is_clear(bit);
        if is_clear() { Ok(()) } else { block(self, Awaited::Clear(site, &is_clear), timeout) }
    }

    fn wake_up_bit<W: BitWord>(&self, address: u64, bit: u32) -> Result<(), PageLockError> {
        bit_site_of::<W, P>(self, address, bit)?.wake_all();
        Ok(())
    }

    fn bit_site(&self, address: u64, bit: u32) -> Result<Site<'_, P>, PageLockError> {
        bit_site(self, address, bit)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use core::time::Duration;

    use nearpage::internals::WAITERS;
    use nearpage::platform::Platform as _;
    use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
    use nearpage::stats::WaitCounts;
    use nearpage::testing::machine::TestMachine;
    use nearpage::{Config, FreeError, Gfp, Model, NodeIndex, Request};

    use super::*;
    use crate::table::hold_buckets;
    use crate::testing::LockPlatform;

    const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);

    /// A machine of two nodes, of which one has two zones.
    fn machine(tables: WaitTables) -> TestMachine {
        let page_lock = PageLockRules { tables, waiters_bit: WaitersBit::On };
        let model = Model::NEARPAGE.with(|changed| changed.page_lock = page_lock);
        let machine = TestMachine::new().node(0, 4096, &[0]).movable(2048).node(1, 4096, &[1]);
        machine.config(Config::new().with_model(model))
    }

    #[test]
    fn rules_say_which_zones_share_a_table() {
        for (tables, shared) in [
            (WaitTables::PerNode, [true, false]),
            (WaitTables::Global, [true, true]),
            (WaitTables::PerZone, [false, false]),
        ] {
            machine(tables).run_on::<LockPlatform, _>(|allocator| {
                let table =
                    |zone: usize| allocator.wait_table(allocator.zones()[zone].span().start);
                let is_shared = [0, 1].map(|zone| core::ptr::eq(table(zone), table(zone + 1)));
                assert_eq!(is_shared, shared);
                let all = shared.iter().filter(|shared| !**shared).count() + 1;
                let held = || allocator.stillness().wait_tables().flat_map(hold_buckets).count();
                assert_eq!(held(), all, "who holds a table that nobody used has its first bucket");
                let pfn = allocator.alloc(PAGE).unwrap();
                allocator.lock_page(pfn).unwrap();
                let waited = allocator.lock_page_timeout(pfn, Duration::ZERO);
                assert_eq!((waited, held()), (Err(PageLockError::TimedOut), all + 255));
                allocator.unlock_page(pfn).unwrap();
            });
        }
    }

    #[test]
    fn waits_end_when_their_time_is_up_or_the_host_says_so() {
        machine(WaitTables::PerNode).run_on::<LockPlatform, _>(|allocator| {
            let pfn = allocator.alloc(PAGE).unwrap();
            let page = allocator.page_lock(pfn).unwrap();
            allocator.lock_page(pfn).unwrap();
            let soon = Duration::from_nanos(100);
            let before = allocator.platform().plain.now_ns();
            assert_eq!(page.lock_timeout(soon), Err(PageLockError::TimedOut));
            assert_eq!(page.wait_timeout(soon), Err(PageLockError::TimedOut));
            assert_eq!(allocator.platform().plain.now_ns() - before, 200);
            allocator.platform().cancels.set(true);
            assert_eq!(page.lock(), Err(PageLockError::Cancelled));
            assert_eq!(allocator.wait_on_page(pfn), Err(PageLockError::Cancelled));
            assert!(page.is_locked() && !page.has_waiters(), "nothing is left behind");
            allocator.unlock_page(pfn).unwrap();
            assert_eq!(page.lock_timeout(Duration::MAX), Ok(()));
            allocator.unlock_page(pfn).unwrap();
            assert_eq!(allocator.wait_counts(NodeIndex(0)).waits, 4);
            assert_eq!(allocator.wait_counts(NodeIndex(1)), WaitCounts::default());
        });
    }

    #[test]
    fn words_and_bits_that_are_not_there_are_refused() {
        machine(WaitTables::PerNode).run_on::<LockPlatform, _>(|allocator| {
            let word = AtomicU32::new(0);
            let inside = allocator.zones()[0].span().start.0 << 12;
            assert_eq!(allocator.wait_on_bit(&word, inside, 31, None), Ok(()));
            let no_bit = PageLockError::NoSuchBit { bit: 32, bits: 32 };
            assert_eq!(allocator.wait_on_bit(&word, inside, 32, None), Err(no_bit));
            let outside = PageLockError::OutsideMemory { address: 8 };
            assert_eq!(allocator.wait_on_bit(&word, 8, 0, None), Err(outside));
            assert_eq!(allocator.wake_up_bit::<AtomicU32>(8, 0), Err(outside));
            assert_eq!(allocator.wake_up_bit::<AtomicU32>(inside, 31), Ok(()));
            assert_eq!(allocator.wake_up_bit::<AtomicU32>(inside, 32), Err(no_bit));
        });
    }

    #[test]
    fn a_page_that_is_waited_for_is_not_freed_and_a_stale_bit_does_not_matter() {
        machine(WaitTables::PerNode).run_on::<LockPlatform, _>(|allocator| {
            let pfn = allocator.alloc(PAGE).unwrap();
            let page = allocator.page_lock(pfn).unwrap();
            assert!(page.try_lock());
            {
                let wait = core::pin::pin!(page.lock_wait());
                assert!(wait.as_ref().poll().is_pending());
                page.unlock().unwrap();
                assert!(wait.is_woken() && page.try_lock());
                assert!(wait.as_ref().poll().is_pending(), "overtaken");
                let refused = Err(FreeError::Locked { pfn, order: Order(0) });
                assert_eq!(allocator.free(pfn, Order(0)), refused);
                allocator.check().unwrap();
            }
            page.unlock().unwrap();
            // As after a fork: the waiter is not there any more.
            page.word.fetch_or(WAITERS, Ordering::Relaxed);
            assert_eq!(allocator.free(pfn, Order(0)), Ok(()));
            allocator.check().unwrap();
        });
    }

    /// [`TestMachine`] walks after each test, so a test that leaves such a lock fails.
    #[test]
    #[should_panic(expected = "leaves its allocator in order: Locked")]
    fn the_walker_finds_a_lock_on_a_free_page() {
        machine(WaitTables::PerNode).run_on::<LockPlatform, _>(|allocator| {
            let pfn = allocator.alloc(PAGE).unwrap();
            let page = allocator.page_lock(pfn).unwrap();
            allocator.free(pfn, Order(0)).unwrap();
            page.try_lock();
        });
    }
}
