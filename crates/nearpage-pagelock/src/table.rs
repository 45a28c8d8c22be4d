//! A wait table, and what happens at it.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::Pfn;
use nearpage::internals::{Cell32, WaiterTable, Waiters};
use nearpage::stats::{AwaitedBit, WaitCounts};

use crate::hash::{BUCKETS, Key};
use crate::parking::Parking;
use crate::queue::{Bucket, Company, HeldBucket, LockedBucket};

/// Counted as they happen, by anybody: each is beside a sleep or a wake-up, which costs a hundred times as much.
#[derive(Debug, Default)]
pub(crate) struct WaitEvents {
    waits: AtomicU64,
    collisions: AtomicU64,
    longest_chain: AtomicU64,
    wakes: AtomicU64,
    wakes_from_other_node: AtomicU64,
    hand_overs: AtomicU64,
}

fn add(event: &AtomicU64, n: u64) {
    event.fetch_add(n, Ordering::Relaxed);
}

impl WaitEvents {
    pub(crate) fn queued(&self, company: &Company) {
        add(&self.waits, 1);
        add(&self.collisions, company.is_mixed.into());
        self.longest_chain.fetch_max(company.chain.into(), Ordering::Relaxed);
    }

    pub(crate) fn woken(&self, is_from_other_node: bool) {
        add(&self.wakes, 1);
        add(&self.wakes_from_other_node, is_from_other_node.into());
    }

    pub(crate) fn handed_over(&self) {
        add(&self.hand_overs, 1);
    }

    fn counts(&self) -> WaitCounts {
        let get = |event: &AtomicU64| event.load(Ordering::Relaxed);
        let mut counts = WaitCounts::default();
        counts.waits = get(&self.waits);
        counts.collisions = get(&self.collisions);
        counts.longest_chain = get(&self.longest_chain);
        counts.wakes = get(&self.wakes);
        counts.wakes_from_other_node = get(&self.wakes_from_other_node);
        counts.hand_overs = get(&self.hand_overs);
        counts
    }
}

/// What is known of all buckets of a table.
pub struct WaitState<K: Parking> {
    /// Whether anybody ever took the lock of a bucket. Written under that of the first.
    is_used: K::Word,
    pub(crate) events: WaitEvents,
}

impl<K: Parking> core::fmt::Debug for WaitState<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WaitState").field("events", &self.events).finish_non_exhaustive()
    }
}

/// Where the waiters of some pages are: [`BUCKETS`], or fewer in models, then a power of two.
pub type WaitTable<'m, K> = WaiterTable<'m, WaitState<K>>;

fn index<K: Parking>(table: &WaitTable<'_, K>, key: Key) -> usize {
    key.bucket() & (table.buckets.len() - 1)
}

/// The bucket of a key.
pub(crate) fn bucket<'t, K: Parking>(table: &'t WaitTable<'_, K>, key: Key) -> &'t Bucket<K> {
    &table.buckets[index(table, key)]
}

/// Takes the lock of the bucket of a key.
pub(crate) fn lock<'t, K: Parking>(table: &'t WaitTable<'_, K>, key: Key) -> LockedBucket<'t, K> {
    if table.state.is_used.load(Ordering::Relaxed) == 0 {
        begin_use(table);
    }
    bucket(table, key).lock()
}

/// Keeps the buckets of a table as they are until the answers are dropped: for hosts whose memory can be copied (`fork`). Of a
/// table that nobody ever used the first is enough, since who uses it first waits for that. Each bucket is written: most
/// processes that fork lock no pages, and would copy all of them.
pub fn hold_buckets<'m, K: Parking>(
    table: &WaitTable<'m, K>,
) -> impl Iterator<Item = HeldBucket<'m, K>> + use<'m, K> {
    let first = table.buckets[0].hold();
    let is_used = table.state.is_used.load(Ordering::Relaxed) != 0;
    let others = if is_used { &table.buckets[1..] } else { &[] };
    core::iter::once(first).chain(others.iter().map(Bucket::hold))
}

#[cold]
fn begin_use<K: Parking>(table: &WaitTable<'_, K>) {
    let _first = table.buckets[0].lock();
    table.state.is_used.store(1, Ordering::Relaxed);
}

impl<K: Parking> Waiters for WaitState<K> {
    type Bucket = Bucket<K>;
    const BUCKETS: usize = BUCKETS;

    fn new() -> Self {
        Self { is_used: K::Word::new(0), events: WaitEvents::default() }
    }

    fn bucket() -> Bucket<K> {
        Bucket::new()
    }

    fn counts(&self) -> WaitCounts {
        self.events.counts()
    }

    fn unless_waited_for(table: &WaitTable<'_, K>, page: Pfn, act: &mut dyn FnMut()) {
        let key = Key::page(page);
        let bucket = lock(table, key);
        let is_waited_for = bucket.keys().any(|other| other == key);
        if !is_waited_for {
            act();
        }
    }

    fn lost(table: &WaitTable<'_, K>, is_told: &dyn Fn(Pfn) -> bool) -> Option<AwaitedBit> {
        if table.state.is_used.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let is_found =
            |at, key: Key| index(table, key) == at && key.locked_page().is_none_or(is_told);
        let lost_in = |(at, bucket): (usize, &Bucket<K>)| {
            bucket.lock().keys().find(|&key| !is_found(at, key)).map(Key::awaited)
        };
        table.buckets.iter().enumerate().find_map(lost_in)
    }
}
