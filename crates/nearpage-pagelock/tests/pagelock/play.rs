//! The threads, what they do, and the naive locks beside the real ones.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
use nearpage::stats::WaitCounts;
use nearpage::testing::random::Random;
use nearpage::{
    CpuId, FreeError, Gfp, NodeIndex, OfflineError, Order, PageAllocator, PageCount, Pfn, Request,
};
use nearpage_pagelock::internals::{Awaited, hold_buckets};
use nearpage_pagelock::testing::LockPlatform;
use nearpage_pagelock::{PageLockError, PageLocks as _, ParkedThread, Wait};

use super::naive::{NaiveLock, Thread, Waiter, Wants};

type Allocator<'m> = PageAllocator<'m, LockPlatform>;

const THREADS: usize = 40;
/// Bits of words that are waited for, beside the pages.
const BITS: usize = 3;

/// An allocated block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub pfn: Pfn,
    pub order: Order,
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct Tally {
    pub operations: u64,
    pub waits: u64,
    pub bit_waits: u64,
    pub hand_overs: u64,
    pub from_other_nodes: u64,
    pub collisions: u64,
    pub longest_chain: u64,
    pub timeouts: u64,
    /// Waits that gave up and had what they wanted.
    pub late: u64,
    pub drops: u64,
    pub misuses: u64,
    pub refused_frees: u64,
    pub freed: u64,
    /// Nodes whose memory went offline, came back, and stayed since pages of it were in use.
    pub departures: u64,
    pub arrivals: u64,
    pub refused_departures: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.waits += other.waits;
        self.bit_waits += other.bit_waits;
        self.hand_overs += other.hand_overs;
        self.from_other_nodes += other.from_other_nodes;
        self.collisions += other.collisions;
        self.longest_chain = self.longest_chain.max(other.longest_chain);
        self.timeouts += other.timeouts;
        self.late += other.late;
        self.drops += other.drops;
        self.misuses += other.misuses;
        self.refused_frees += other.refused_frees;
        self.freed += other.freed;
        self.departures += other.departures;
        self.arrivals += other.arrivals;
        self.refused_departures += other.refused_departures;
    }
}

/// A lock or a bit: the real one by where it is, and the naive one.
struct Place {
    page: Option<Pfn>,
    address: u64,
    bit: u32,
    /// The bucket that the definition of the hash says, and the table.
    bucket: (usize, u8),
    naive: NaiveLock,
}

/// What a thread is doing.
struct Doing<'a> {
    place: usize,
    wait: Pin<Box<Wait<'a, LockPlatform>>>,
    woken: Option<Waiter>,
    node: NodeIndex,
}

pub struct Play<'a, 'm> {
    allocator: &'a Allocator<'m>,
    rules: PageLockRules,
    blocks: Vec<Block>,
    random: Random,
    word: &'a AtomicU32,
    places: Vec<Place>,
    /// Nodes whose memory is offline.
    offline: BTreeSet<NodeIndex>,
    tally: Tally,
}

/// `hash_long` of facts 10.1, by long multiplication.
fn naive_bucket(value: u64) -> u8 {
    let product = u128::from(value) * 0x61c8_8646_80b5_83eb_u128;
    ((product % (1 << 64)) >> 56) as u8
}

impl<'a, 'm> Play<'a, 'm> {
    pub fn new(
        allocator: &'a Allocator<'m>,
        word: &'a AtomicU32,
        rules: PageLockRules,
        blocks: Vec<Block>,
        random: Random,
    ) -> Self {
        let (places, offline, tally) = (vec![], BTreeSet::new(), Tally::default());
        let mut play = Self { allocator, rules, blocks, random, word, places, offline, tally };
        let pages =
            |&block: &Block| (0..block.order.pages().0).map(move |at| Pfn(block.pfn.0 + at));
        let pages: Vec<Pfn> = play.blocks.iter().flat_map(pages).collect();
        for pfn in pages {
            let bucket = play.page_bucket(pfn);
            let naive = NaiveLock::default();
            play.places.push(Place { page: Some(pfn), address: 0, bit: 0, bucket, naive });
        }
        let first = play.blocks[0].pfn;
        for bit in 0..BITS as u32 {
            let address = (first.0 << 12) + 64;
            let bucket = (play.table_of(first), naive_bucket(address << 6 | u64::from(bit)));
            let naive = NaiveLock::default();
            play.places.push(Place { page: None, address, bit, bucket, naive });
        }
        play
    }

    fn page_bucket(&self, pfn: Pfn) -> (usize, u8) {
        let descriptor = 0xffff_ea00_0000_0000 + 64 * pfn.0;
        (self.table_of(pfn), naive_bucket(descriptor << 6))
    }

    /// The number of the wait table of a page.
    fn table_of(&self, pfn: Pfn) -> usize {
        let zones = self.allocator.zones();
        let zone = zones.iter().position(|zone| zone.span().contains(pfn)).expect("a page's zone");
        match self.rules.tables {
            WaitTables::Global => 0,
            WaitTables::PerNode => zones[zone].node().0.into(),
            WaitTables::PerZone => zone,
        }
    }

    pub fn run(mut self, operations: u64) -> Tally {
        let word = self.word;
        let is_clear: Vec<Box<dyn Fn() -> bool + 'a>> = (0..BITS)
            .map(|bit| -> Box<dyn Fn() -> bool + 'a> {
                Box::new(move || word.load(Ordering::Relaxed) >> bit & 1 == 0)
            })
            .collect();
        let mut threads: Vec<Option<Doing<'_>>> = (0..THREADS).map(|_| None).collect();
        let mut expected = WaitCounts::default();
        for operation in 0..operations {
            let cpu = self.random.below(8) as u32;
            self.allocator.platform().plain.run_on(CpuId(cpu));
            self.step(&mut threads, &is_clear, &mut expected);
            if operation % 64 == 0 {
                self.compare();
                assert_eq!(self.counts(), expected);
            }
            if operation % 512 == 0 {
                self.plug();
            }
            if operation % 4096 == 0 {
                self.allocator.check().expect("the walker finds nothing");
            }
        }
        self.end(threads, &mut expected);
        self.tally.operations = operations;
        self.tally.waits = expected.waits;
        self.tally.hand_overs = expected.hand_overs;
        self.tally.collisions = expected.collisions;
        self.tally.longest_chain = expected.longest_chain;
        self.tally.from_other_nodes = expected.wakes_from_other_node;
        self.tally
    }

    fn counts(&self) -> WaitCounts {
        let counts = self.allocator.topology().indexes().map(|at| self.allocator.wait_counts(at));
        counts.fold(WaitCounts::default(), WaitCounts::merged)
    }

    /// The node of the CPU that is played.
    fn here(&self) -> NodeIndex {
        use nearpage::platform::{Platform, Storage};
        let cpu = self.allocator.platform().storage().current_cpu();
        self.allocator.topology().node_of_cpu(cpu).unwrap_or(NodeIndex(0))
    }

    fn step<'w>(
        &mut self,
        threads: &mut [Option<Doing<'w>>],
        is_clear: &'w [Box<dyn Fn() -> bool + 'a>],
        expected: &mut WaitCounts,
    ) where
        'a: 'w,
    {
        // A few places, so that there are queues; all of them now and then.
        let spread = self.random.one_of(&[3, 3, 5, self.places.len() as u64]);
        let place =
            (self.random.below(spread) as usize + self.places.len() - 2) % self.places.len();
        let thread = self.random.below(THREADS as u64) as usize;
        match (self.random.below(20), threads[thread].is_some()) {
            (0..=5, false) => self.begin(threads, thread, place, is_clear, expected),
            (0..=5, true) => self.go_on(threads, thread, expected),
            (6, true) => self.give_up(threads, thread),
            (7, true) => self.drop_wait(threads, thread, expected),
            (8..=10, _) => self.try_lock(place),
            (11, _) => self.free(threads, place),
            (12..=18, _) => self.unlock(threads, place, expected),
            _ => self.misuse(place),
        }
    }

    /// Somebody begins to wait, for a page's lock or unlock, or for a bit.
    fn begin<'w>(
        &mut self,
        threads: &mut [Option<Doing<'w>>],
        thread: Thread,
        at: usize,
        is_clear: &'w [Box<dyn Fn() -> bool + 'a>],
        expected: &mut WaitCounts,
    ) where
        'a: 'w,
    {
        let allocator = self.allocator;
        let is_reader = self.random.below(3) == 0;
        let (awaited, wants) = match self.places[at].page {
            Some(pfn) => {
                let page = allocator.page_lock(pfn).expect("an allocated page");
                match is_reader {
                    true => (page.unlock_wait(), Wants::Unlock),
                    false => (page.lock_wait(), Wants::Lock),
                }
            }
            None => {
                let Place { address, bit, .. } = self.places[at];
                let site = allocator.bit_site(address, bit).expect("online");
                self.tally.bit_waits += 1;
                (Wait::new(Awaited::Clear(site, &*is_clear[bit as usize])), Wants::Unlock)
            }
        };
        let wait = Box::pin(awaited);
        allocator.platform().thread.set(ParkedThread(thread));
        let waiter = Waiter { thread, wants, overtaken: 0, is_owner: false };
        let is_there = self.places[at].naive.want(waiter);
        self.expect_poll(wait.as_ref().poll(), is_there, at, expected);
        if !is_there {
            threads[thread] = Some(Doing { place: at, wait, woken: None, node: self.here() });
        }
    }

    fn expect_poll(&self, poll: Poll<()>, is_there: bool, at: usize, expected: &mut WaitCounts) {
        assert_eq!(poll.is_ready(), is_there, "{:?}", self.places[at].naive);
        if !is_there {
            let bucket = self.places[at].bucket;
            let here = self.places.iter().filter(|place| place.bucket == bucket);
            let chain: usize = here.map(|place| place.naive.queue.len()).sum();
            expected.waits += 1;
            expected.collisions += u64::from(chain > self.places[at].naive.queue.len());
            expected.longest_chain = expected.longest_chain.max(chain as u64);
        }
    }

    /// Somebody who waits runs again, woken or for no reason.
    fn go_on(
        &mut self,
        threads: &mut [Option<Doing<'_>>],
        thread: Thread,
        expected: &mut WaitCounts,
    ) {
        let doing = threads[thread].as_mut().expect("it waits");
        let at = doing.place;
        assert_eq!(doing.wait.is_woken(), doing.woken.is_some());
        self.allocator.platform().thread.set(ParkedThread(thread));
        let Some(waiter) = doing.woken.take() else {
            assert_eq!(doing.wait.as_ref().poll(), Poll::Pending, "for no reason");
            return;
        };
        let place = &mut self.places[at];
        let is_there = match place.page {
            Some(_) => place.naive.go_on(waiter),
            // A bit is looked at again.
            None => place.naive.want(waiter),
        };
        let poll = doing.wait.as_ref().poll();
        self.expect_poll(poll, is_there, at, expected);
        if is_there {
            threads[thread] = None;
        }
    }

    fn give_up(&mut self, threads: &mut [Option<Doing<'_>>], thread: Thread) {
        let doing = threads[thread].take().expect("it waits");
        let place = &mut self.places[doing.place];
        let is_there = match place.page {
            None if doing.woken.is_some() => !place.naive.is_locked,
            _ => place.naive.give_up(thread, doing.woken),
        };
        assert_eq!(doing.wait.cancel(), is_there);
        self.tally.timeouts += 1;
        self.tally.late += u64::from(is_there);
    }

    /// Somebody's stack goes away.
    fn drop_wait(
        &mut self,
        threads: &mut [Option<Doing<'_>>],
        thread: Thread,
        expected: &mut WaitCounts,
    ) {
        let doing = threads[thread].take().expect("it waits");
        let at = doing.place;
        let place = &mut self.places[at];
        let wants_lock = doing.woken.is_some_and(|waiter| waiter.wants == Wants::Lock);
        let has_lock = place.naive.give_up(thread, doing.woken) && wants_lock;
        let woken = match has_lock {
            true => place.naive.unlock().unwrap_or_default(),
            false => vec![],
        };
        drop(doing.wait);
        // A wait does not notice that its thread moved.
        self.expect_wakes(threads, woken, doing.node, expected);
        self.tally.drops += 1;
    }

    fn try_lock(&mut self, at: usize) {
        let Some(pfn) = self.places[at].page else {
            self.word.fetch_or(1 << self.places[at].bit, Ordering::Relaxed);
            self.places[at].naive.is_locked = true;
            return;
        };
        let locked = self.places[at].naive.try_lock();
        assert_eq!(self.allocator.try_lock_page(pfn), Ok(locked));
    }

    fn unlock(&mut self, threads: &mut [Option<Doing<'_>>], at: usize, expected: &mut WaitCounts) {
        let place = &mut self.places[at];
        let woken = match place.page {
            Some(pfn) => {
                let woken = place.naive.unlock();
                let answer = self.allocator.unlock_page(pfn);
                let refused = Err(PageLockError::NotLocked { pfn });
                assert_eq!(answer, if woken.is_some() { Ok(()) } else { refused });
                woken.unwrap_or_default()
            }
            None => {
                self.word.fetch_and(!(1 << place.bit), Ordering::Relaxed);
                self.allocator.wake_up_bit::<AtomicU32>(place.address, place.bit).expect("online");
                place.naive.is_locked = false;
                place.naive.queue.drain(..).collect()
            }
        };
        self.expect_wakes(threads, woken, self.here(), expected);
    }

    fn expect_wakes(
        &mut self,
        threads: &mut [Option<Doing<'_>>],
        woken: Vec<Waiter>,
        here: NodeIndex,
        expected: &mut WaitCounts,
    ) {
        let unparked = self.allocator.platform().unparked.take();
        let expected_threads: Vec<_> =
            woken.iter().map(|waiter| ParkedThread(waiter.thread)).collect();
        assert_eq!(unparked, expected_threads);
        for waiter in woken {
            let doing = threads[waiter.thread].as_mut().expect("it waits");
            expected.wakes += 1;
            expected.hand_overs += u64::from(waiter.is_owner && waiter.wants == Wants::Lock);
            expected.wakes_from_other_node += u64::from(doing.node != here);
            doing.woken = Some(waiter);
        }
    }

    /// A block is freed, and another comes in its place, or the free is refused.
    fn free(&mut self, threads: &[Option<Doing<'_>>], at: usize) {
        let Some(pfn) = self.places[at].page else { return };
        let Some(block) = self.blocks.iter().find(|block| block.pfn == pfn).copied() else {
            return;
        };
        let Block { pfn, order } = block;
        let naive = &self.places[at].naive;
        let is_told = self.rules.waiters_bit == WaitersBit::On;
        if naive.is_locked || (is_told && !naive.queue.is_empty()) {
            assert_eq!(self.allocator.free(pfn, order), Err(FreeError::Locked { pfn, order }));
            let bulk = self.allocator.free_bulk(&[pfn]);
            assert!(bulk.is_err());
            self.tally.refused_frees += 1;
            return;
        }
        // Nobody frees a page that somebody else is about to look at, nor the page with the bits.
        let is_used = |page: u64| {
            let place = self.places.iter().position(|place| place.page == Some(Pfn(pfn.0 + page)));
            let place = place.expect("all pages of blocks are places");
            self.places[place].naive.is_locked
                || threads.iter().flatten().any(|doing| doing.place == place)
        };
        if pfn == self.blocks[0].pfn || (0..order.pages().0).any(is_used) {
            return;
        }
        self.allocator.free(pfn, order).expect("nobody has the page");
        if order == Order(0) {
            let error = PageLockError::NotAllocated { pfn };
            assert_eq!(self.allocator.lock_page(pfn), Err(error));
        }
        let request =
            Request::new(order, self.random.one_of(&[Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE]));
        let fresh = self.allocator.alloc(request).expect("there is room");
        for page in 0..order.pages().0 {
            let (old, new) = (Pfn(pfn.0 + page), Pfn(fresh.0 + page));
            let bucket = self.page_bucket(new);
            let place = self.places.iter_mut().find(|place| place.page == Some(old));
            let place = place.expect("all pages of blocks are places");
            (place.page, place.bucket) = (Some(new), bucket);
        }
        let block = self.blocks.iter_mut().find(|block| block.pfn == pfn);
        block.expect("it was found above").pfn = fresh;
        self.tally.freed += 1;
    }

    /// The memory of a node goes, unless a page of it is in use; or it comes back. No lock and no wait changes.
    fn plug(&mut self) {
        let allocator = self.allocator;
        let nodes = allocator.topology().len() as u64;
        let node = NodeIndex(self.random.below(nodes) as u16);
        let memory = allocator.topology().node(node).memory;
        let (Some(&first), id) = (memory.first(), allocator.topology().node(node).id) else {
            return;
        };
        let pages: u64 = memory.iter().map(|range| range.pages().0).sum();
        if self.offline.remove(&node) {
            assert_eq!(allocator.online_all(memory), Ok(PageCount(pages)));
            self.tally.arrivals += 1;
            return;
        }
        let is_here = |block: &&Block| memory.iter().any(|range| range.contains(block.pfn));
        let in_use = self.blocks.iter().filter(is_here).map(|block| block.order.pages().0);
        match (in_use.sum::<u64>(), allocator.offline_node(id)) {
            (0, Ok(gone)) => assert_eq!(gone.0, pages),
            (in_use, Err(OfflineError::InUse { pages, .. })) => {
                assert_eq!(in_use, pages.0);
                self.tally.refused_departures += 1;
                return;
            }
            (in_use, answer) => panic!("{in_use} pages are in use: {answer:?}"),
        }
        let pfn = first.start;
        assert_eq!(allocator.try_lock_page(pfn), Err(PageLockError::Foreign { pfn }));
        let address = pfn.0 << 12;
        let outside = Some(PageLockError::OutsideMemory { address });
        assert_eq!(allocator.bit_site(address, 0).err(), outside);
        self.offline.insert(node);
        self.tally.departures += 1;
    }

    /// Unlocks what is not locked, and asks for what is not there.
    fn misuse(&mut self, at: usize) {
        let allocator = self.allocator;
        let before = allocator.platform().lock_misuses.get();
        let foreign = Pfn(u64::MAX / 2);
        assert_eq!(allocator.lock_page(foreign), Err(PageLockError::Foreign { pfn: foreign }));
        assert_eq!(allocator.unlock_page(foreign), Err(PageLockError::Foreign { pfn: foreign }));
        let outside = PageLockError::OutsideMemory { address: u64::MAX };
        assert_eq!(allocator.wake_up_bit::<AtomicU32>(u64::MAX, 0), Err(outside));
        let mut misuses = 1;
        if let Some(pfn) = self.places[at].page.filter(|_| !self.places[at].naive.is_locked) {
            assert_eq!(allocator.unlock_page(pfn), Err(PageLockError::NotLocked { pfn }));
            misuses += 1;
        }
        assert_eq!(allocator.platform().lock_misuses.get(), before + misuses);
        self.tally.misuses += misuses;
    }

    /// The words of all pages say what the naive locks say.
    fn compare(&self) {
        for place in &self.places {
            let Some(pfn) = place.page else { continue };
            let page = self.allocator.page_lock(pfn).expect("an allocated page");
            assert_eq!(page.is_locked(), place.naive.is_locked);
            let is_told = self.rules.waiters_bit == WaitersBit::On;
            assert_eq!(page.has_waiters(), is_told && !place.naive.queue.is_empty());
        }
    }

    /// Everybody gives up, everything is unlocked, and nothing is left.
    fn end(&mut self, mut threads: Vec<Option<Doing<'_>>>, expected: &mut WaitCounts) {
        for thread in 0..THREADS {
            if threads[thread].is_some() {
                self.drop_wait(&mut threads, thread, expected);
            }
        }
        for at in 0..self.places.len() {
            if self.places[at].naive.is_locked {
                self.unlock(&mut threads, at, expected);
            }
        }
        self.compare();
        for Block { pfn, order } in &self.blocks {
            self.allocator.free(*pfn, *order).expect("nobody has the page");
        }
        let checked = self.allocator.check().expect("the walker finds nothing");
        assert_eq!(checked.allocated.0, 0);
        let mut buckets = self.allocator.stillness().wait_tables().flat_map(hold_buckets);
        assert!(buckets.all(|bucket| bucket.is_empty()), "stale entries");
    }
}
