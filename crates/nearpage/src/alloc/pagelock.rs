//! Locking pages: from a frame number to the word and the wait table, and the rest is [`crate::page_wait`].

use core::time::Duration;

use super::allocator::PageAllocator;
use super::page_lock::PageLock;
use crate::error::PageLockError;
use crate::frame::{Frame, FrameState};
use crate::host::Platform;
use crate::page_wait::Key;
use crate::units::{Order, Pfn};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// The lock of a page of an allocated block. The lock is the page's, not the answer's: it stays locked when the
    /// answer is dropped.
    ///
    /// # Errors
    /// [`PageLockError::Foreign`] and [`PageLockError::NotAllocated`].
    #[inline(always)]
    pub fn page_lock(&self, pfn: Pfn) -> Result<PageLock<'_, 'm, P>, PageLockError> {
        let frame = match self.map.get(pfn) {
            Some(frame) if frame.word().state() == FrameState::Allocated => frame,
            _ => self.inner_frame(pfn)?,
        };
        Ok(PageLock { allocator: self, word: frame.cell().atomic(), pfn })
    }

    /// The frame of a page that is not the first one of an allocated block, but in one.
    #[cold]
    #[inline(never)]
    fn inner_frame(&self, pfn: Pfn) -> Result<Frame<'m>, PageLockError> {
        let frame = self.map.get(pfn).filter(|_| self.is_online(pfn));
        let frame = frame.ok_or(PageLockError::Foreign { pfn })?;
        self.head_of(pfn).map(|_| frame).ok_or(PageLockError::NotAllocated { pfn })
    }

    /// Locks a page unless it is locked; returns whether it did. One atomic exchange.
    ///
    /// # Errors
    /// As [`page_lock`](Self::page_lock).
    #[inline(always)]
    pub fn try_lock_page(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        Ok(self.page_lock(pfn)?.try_lock())
    }

    /// Locks a page; waits while it is locked. One atomic exchange if it is not.
    ///
    /// # Errors
    /// As [`page_lock`](Self::page_lock) and [`PageLock::lock`].
    #[inline(always)]
    pub fn lock_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.lock()?;
        Ok(())
    }

    /// As [`lock_page`](Self::lock_page), for a limited time.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    pub fn lock_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.lock_timeout(timeout)
    }

    /// Unlocks a page that the caller has locked, and wakes who waits for it. One atomic exchange if nobody does.
    ///
    /// # Errors
    /// [`PageLockError::NotLocked`], and as [`page_lock`](Self::page_lock); the host is told
    /// ([`Platform::lock_misuse`]).
    #[inline(always)]
    pub fn unlock_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        match self.page_lock(pfn) {
            Ok(page) => page.unlock()?,
            Err(error) => return Err(self.refuse_unlock(error)),
        }
        Ok(())
    }

    /// Waits until a page is unlocked.
    ///
    /// # Errors
    /// As [`lock_page`](Self::lock_page).
    pub fn wait_on_page(&self, pfn: Pfn) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.wait()
    }

    /// As [`wait_on_page`](Self::wait_on_page), for a limited time.
    ///
    /// # Errors
    /// [`PageLockError::TimedOut`], and as [`lock_page`](Self::lock_page).
    pub fn wait_on_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError> {
        self.page_lock(pfn)?.wait_timeout(timeout)
    }

    /// Whether the block at `pfn` may be freed with `order`. After a fork a page may be said to be waited for by
    /// threads that are not there any more.
    #[inline]
    pub(super) fn may_free(&self, frame: Frame<'m>, pfn: Pfn, order: Order) -> bool {
        frame.word().is_allocated(order) || self.may_free_unless_waited_for(frame, pfn, order)
    }

    #[cold]
    #[inline(never)]
    fn may_free_unless_waited_for(&self, frame: Frame<'m>, pfn: Pfn, order: Order) -> bool {
        let word = frame.word();
        if word.is_locked() || !word.without_lock().is_allocated(order) {
            return false;
        }
        // Waiters set the bit under the lock of their bucket.
        self.wait_table(pfn).unless_waited_for(Key::page(pfn), || {
            frame.cell().replace(word, word.without_lock());
        });
        frame.word().is_allocated(order)
    }

    /// Takes locks that nobody can have any more off the pages of a block: the caller owns it, and nobody waits.
    ///
    /// # Errors
    /// As [`page_lock`](Self::page_lock).
    pub fn reset_page_locks(&self, pfn: Pfn, order: Order) -> Result<(), PageLockError> {
        for page in 0..order.pages().0 {
            let lock = self.page_lock(Pfn(pfn.0 + page))?;
            // Who has it by frame number may unlock it in the same instant: then it is done.
            if lock.is_locked() {
                lock.site().unlock();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::alloc::{Config, Request};
    use crate::error::FreeError;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::page_wait::{PageLockRules, WaitersBit};
    use crate::page_wait::{WaitCounts, WaitTables};
    use crate::sync::{AtomicU32, Ordering};
    use crate::testing::machine::TestMachine;
    use crate::units::NodeIndex;

    const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);

    /// A machine of two nodes, of which one has two zones.
    fn machine(tables: WaitTables) -> TestMachine {
        let page_lock = PageLockRules { tables, waiters_bit: WaitersBit::On };
        let model = Model { page_lock, ..Model::NEARPAGE };
        let machine = TestMachine::new().node(0, 4096, &[0]).movable(2048).node(1, 4096, &[1]);
        machine.config(Config { model, ..Config::default() })
    }

    #[test]
    fn rules_say_which_zones_share_a_table() {
        for (tables, shared) in [
            (WaitTables::PerNode, [true, false]),
            (WaitTables::Global, [true, true]),
            (WaitTables::PerZone, [false, false]),
        ] {
            machine(tables).run(|allocator| {
                let [a, b, c] = allocator.wait_tables() else { panic!("three zones") };
                assert_eq!([core::ptr::eq(*a, *b), core::ptr::eq(*b, *c)], shared);
                let all = shared.iter().filter(|shared| !**shared).count() + 1;
                let held = || allocator.stillness().hold_buckets().count();
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
        machine(WaitTables::PerNode).run(|allocator| {
            let pfn = allocator.alloc(PAGE).unwrap();
            let page = allocator.page_lock(pfn).unwrap();
            allocator.lock_page(pfn).unwrap();
            let soon = Duration::from_nanos(100);
            let before = allocator.platform().now_ns();
            assert_eq!(page.lock_timeout(soon), Err(PageLockError::TimedOut));
            assert_eq!(page.wait_timeout(soon), Err(PageLockError::TimedOut));
            assert_eq!(allocator.platform().now_ns() - before, 200);
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
        machine(WaitTables::PerNode).run(|allocator| {
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
        machine(WaitTables::PerNode).run(|allocator| {
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
            page.word.fetch_or(crate::frame::WAITERS, Ordering::Relaxed);
            assert_eq!(allocator.free(pfn, Order(0)), Ok(()));
            allocator.check().unwrap();
        });
    }

    /// [`TestMachine`] walks after each test, so a test that leaves such a lock fails.
    #[test]
    #[should_panic(expected = "leaves its allocator in order: Locked")]
    fn the_walker_finds_a_lock_on_a_free_page() {
        machine(WaitTables::PerNode).run(|allocator| {
            let pfn = allocator.alloc(PAGE).unwrap();
            let page = allocator.page_lock(pfn).unwrap();
            allocator.free(pfn, Order(0)).unwrap();
            page.try_lock();
        });
    }
}
