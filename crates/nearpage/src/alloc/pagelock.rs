//! Locking pages: from a frame number to the word and the wait table, and the rest is [`crate::pagelock`].

use core::pin::pin;
use core::time::Duration;

use super::allocator::PageAllocator;
use crate::error::PageLockError;
use crate::frame::{Frame, FrameState, Word};
use crate::pagelock::{
    Awaited, Bucket, Interrupted, Key, PageSite, Site, Unlocked, Wait, WaitCounts, WaitTable,
    WaitTables, try_lock, try_unlock,
};
use crate::platform::{Access, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{MAX_ORDER, NodeIndex, Order, Pfn, ZoneIndex};

/// A word of which somebody can wait for a bit.
pub trait BitWord {
    /// Bits that it has.
    const BITS: u32;
    /// Whether a bit is clear; what was written before it was cleared is visible then. Asked under the lock of a
    /// bucket too: it may neither wait nor touch a page lock.
    fn is_clear(&self, bit: u32) -> bool;
}

impl BitWord for AtomicU32 {
    const BITS: u32 = u32::BITS;
    fn is_clear(&self, bit: u32) -> bool {
        // Acquire pairs with the Release of whoever clears the bit.
        self.load(Ordering::Acquire) >> bit & 1 == 0
    }
}

impl BitWord for AtomicU64 {
    const BITS: u32 = u64::BITS;
    fn is_clear(&self, bit: u32) -> bool {
        // Acquire pairs with the Release of whoever clears the bit.
        self.load(Ordering::Acquire) >> bit & 1 == 0
    }
}

/// The lock of one page of an allocated block.
///
/// The page must stay allocated meanwhile: a free of a page that is locked or waited for is refused, as far as the first
/// page of its block is concerned.
pub struct PageLock<'a, 'm, P: Platform> {
    allocator: &'a PageAllocator<'m, P>,
    word: &'m AtomicU32,
    pfn: Pfn,
}

impl<P: Platform> Clone for PageLock<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for PageLock<'_, '_, P> {}

impl<'a, 'm, P: Platform> PageLock<'a, 'm, P> {
    /// The page.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The frame's word; its lock bits are as [`crate::pagelock::LockBits`] says.
    #[inline]
    pub fn word(&self) -> &'m AtomicU32 {
        self.word
    }

    /// The word while nobody has or wants the lock, of the first page of a block: as long as the block is allocated it is
    /// that, and not any more when it is free. The words of the other pages say nothing of that.
    pub fn idle_of_first(&self) -> Option<u32> {
        let word = self.allocator.frame_word(self.pfn)?;
        (word.state() == FrameState::Allocated).then(|| word.without_lock().bits())
    }

    /// Whether somebody has locked the page.
    #[inline]
    pub fn is_locked(&self) -> bool {
        crate::pagelock::LockBits(self.word.load(Ordering::Relaxed)).is_locked()
    }

    /// Whether the page's word says that somebody waits.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        crate::pagelock::LockBits(self.word.load(Ordering::Relaxed)).has_waiters()
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
    /// [`PageLockError::NotLocked`]; the host is told then ([`Platform::lock_misuse`]).
    #[inline(always)]
    pub fn unlock(&self) -> Result<(), PageLockError> {
        match try_unlock(self.word, self.allocator.model.page_lock.waiters_bit) {
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
                return Err(self.allocator.refuse_unlock(error));
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
        !crate::pagelock::LockBits(self.word.load(Ordering::Acquire)).is_locked()
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
        if self.allocator.head_of(self.pfn).is_none() {
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
        self.allocator.block(awaited, timeout)
    }

    fn site(&self) -> PageSite<'a, P> {
        PageSite {
            site: self.allocator.site(self.pfn, Key::page(self.pfn)),
            word: self.word,
            waiters_bit: self.allocator.model.page_lock.waiters_bit,
        }
    }
}

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

    /// The first frame of the allocated block that a page lies in.
    fn head_of(&self, pfn: Pfn) -> Option<Frame<'m>> {
        (0..=MAX_ORDER.0).map(Order).find_map(|order| {
            let frame = self.map.get(Pfn(pfn.0 - pfn.0 % order.pages().0))?;
            let word = frame.word();
            (word.state() == FrameState::Allocated && word.order() >= order).then_some(frame)
        })
    }

    /// The word of a page's frame.
    pub(crate) fn frame_word(&self, pfn: Pfn) -> Option<Word> {
        Some(self.map.get(pfn)?.word())
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

    /// Waits until a bit of a word is clear. The word lies in managed memory, at `address`: its frame number
    /// times the page size, and the offset. Who clears the bit calls [`wake_up_bit`](Self::wake_up_bit)
    /// after it.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`], [`PageLockError::NoSuchBit`], and as [`PageLock::lock_timeout`].
    pub fn wait_on_bit<W: BitWord>(
        &self,
        word: &W,
        address: u64,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        let site = self.bit_site_of::<W>(address, bit)?;
        let is_clear = || word.is_clear(bit);
        if is_clear() { Ok(()) } else { self.block(Awaited::Clear(site, &is_clear), timeout) }
    }

    /// Wakes all who wait for a bit of the word of type `W` at `address`, which the caller has cleared before. Nobody's
    /// bucket is locked if nobody waits.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`], [`PageLockError::NoSuchBit`].
    pub fn wake_up_bit<W: BitWord>(&self, address: u64, bit: u32) -> Result<(), PageLockError> {
        self.bit_site_of::<W>(address, bit)?.wake_all();
        Ok(())
    }

    fn bit_site_of<W: BitWord>(
        &self,
        address: u64,
        bit: u32,
    ) -> Result<Site<'_, P>, PageLockError> {
        if bit >= W::BITS {
            return Err(PageLockError::NoSuchBit { bit, bits: W::BITS });
        }
        self.bit_site(address, bit)
    }

    /// Where a bit of the word at `address` is waited for: for waits that the caller drives ([`Wait`]).
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`].
    pub fn bit_site(&self, address: u64, bit: u32) -> Result<Site<'_, P>, PageLockError> {
        let pfn = Pfn(address >> self.page_shift());
        if !self.is_online(pfn) {
            return Err(PageLockError::OutsideMemory { address });
        }
        Ok(self.site(pfn, Key::bit(address, bit)))
    }

    fn block(
        &self,
        awaited: Awaited<'_, P>,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let deadline = |time| self.platform.now_ns().saturating_add(nanoseconds(time));
        let wait = pin!(Wait::new(awaited));
        wait.as_ref().block(timeout.map(deadline)).map_err(|interrupted| match interrupted {
            Interrupted::TimedOut => PageLockError::TimedOut,
            Interrupted::Cancelled => PageLockError::Cancelled,
        })
    }

    /// Tells the host of an unlock that is refused.
    #[cold]
    #[inline(never)]
    fn refuse_unlock(&self, error: PageLockError) -> PageLockError {
        self.platform.lock_misuse(&error);
        error
    }

    /// Where something in an online page is waited for.
    fn site(&self, pfn: Pfn, key: Key) -> Site<'_, P> {
        let here = self.this_cpu().map_or(NodeIndex(0), |cpu| cpu.owner.node);
        Site { parking: &self.platform, table: self.wait_table(pfn), key, here }
    }

    /// The wait table of an online page: that of its zone.
    fn wait_table(&self, pfn: Pfn) -> &'m WaitTable<'m, P> {
        let by_word = self.head_of(pfn).map(|frame| frame.word().zone());
        let zone = by_word.unwrap_or_else(|| self.zone_of_page(pfn));
        if self.model.page_lock.tables == WaitTables::PerZone {
            // Linux 4.8 finds the table by the zone; where it lies is fixed under the other rules.
            self.platform.touch(self.zones[zone.0 as usize].marks_line(), Access::Read);
        }
        self.wait_tables[zone.0 as usize]
    }

    /// The zone of a page that nobody has allocated.
    fn zone_of_page(&self, pfn: Pfn) -> ZoneIndex {
        let has_page = |zone: &&&crate::zone::Zone<'m, P>| {
            self.topology.ranges(zone.node(), zone.kind()).any(|range| range.contains(pfn))
        };
        self.zones.iter().find(has_page).map_or(ZoneIndex(0), |zone| zone.index())
    }

    /// The wait table of each zone's pages, by zone index; zones may share one.
    pub fn wait_tables(&self) -> &'m [&'m WaitTable<'m, P>] {
        self.wait_tables
    }

    /// The buckets of all wait tables.
    pub fn wait_buckets(&self) -> impl Iterator<Item = &'m Bucket<P>> + use<'_, 'm, P> {
        let own = (0..self.zones.len()).filter(|zone| self.is_own(*zone));
        own.flat_map(|zone| self.wait_tables[zone].buckets())
    }

    /// What happened at the wait tables of a node's zones: waits, collisions, wake-ups. With
    /// [`WaitTables::Global`](crate::pagelock::WaitTables) all of it is the first node's.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn wait_counts(&self, node: NodeIndex) -> WaitCounts {
        assert!((node.0 as usize) < self.topology.len(), "no such node");
        let tables = self.zones.iter().zip(self.wait_tables).enumerate();
        let counts = tables.filter(|(index, (zone, _))| zone.node() == node && self.is_own(*index));
        let counts = counts.map(|(_, (_, table))| table.counts());
        counts.fold(WaitCounts::default(), WaitCounts::plus)
    }

    /// Whether a zone is the first of those that share its wait table.
    fn is_own(&self, zone: usize) -> bool {
        !self.wait_tables[..zone].iter().any(|table| core::ptr::eq(*table, self.wait_tables[zone]))
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
    use crate::pagelock::{PageLockRules, WaitersBit};
    use crate::testing::machine::TestMachine;

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
                assert_eq!(allocator.wait_buckets().count(), all * 256);
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
            let before = allocator.platform().now_ns.get();
            assert_eq!(page.lock_timeout(soon), Err(PageLockError::TimedOut));
            assert_eq!(page.wait_timeout(soon), Err(PageLockError::TimedOut));
            assert_eq!(allocator.platform().now_ns.get() - before, 200);
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
            page.word().fetch_or(crate::frame::WAITERS, Ordering::Relaxed);
            assert_eq!(allocator.free(pfn, Order(0)), Ok(()));
            allocator.check().unwrap();
        });
    }

    #[test]
    fn the_walker_finds_a_lock_on_a_free_page() {
        machine(WaitTables::PerNode).run(|allocator| {
            let pfn = allocator.alloc(PAGE).unwrap();
            let page = allocator.page_lock(pfn).unwrap();
            allocator.free(pfn, Order(0)).unwrap();
            page.try_lock();
            let found = allocator.check().unwrap_err();
            assert!(matches!(found, crate::check::CheckError::Locked { .. }), "{found}");
        });
    }
}
