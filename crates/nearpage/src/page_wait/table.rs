//! A wait table, and what happens at it.

use super::Parking;
use super::hash::{BUCKETS, Key};
use super::queue::{Bucket, Company, HeldBucket, LockedBucket};
use crate::sync::{AtomicU64, Cell32, Ordering};

/// What happened at a wait table, or at several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WaitCounts {
    /// Times that somebody queued.
    pub waits: u64,
    /// Of those, into a bucket where somebody waited for something else.
    pub collisions: u64,
    /// Most entries that a bucket has had at a time.
    pub longest_chain: u64,
    /// Wake-ups.
    pub wakes: u64,
    /// Of those, by a CPU of another node than the one that was waited on.
    pub wakes_from_other_node: u64,
    /// Locks that were handed over, since the waiter had been overtaken too often.
    pub hand_overs: u64,
}

impl WaitCounts {
    /// The counts of both tables together: sums, and of the longest chains the longer.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            waits: self.waits + other.waits,
            collisions: self.collisions + other.collisions,
            longest_chain: self.longest_chain.max(other.longest_chain),
            wakes: self.wakes + other.wakes,
            wakes_from_other_node: self.wakes_from_other_node + other.wakes_from_other_node,
            hand_overs: self.hand_overs + other.hand_overs,
        }
    }
}

/// Counted as they happen, by anybody: each is beside a sleep or a wake-up, which costs a hundred times as much.
#[derive(Debug, Default)]
pub(super) struct WaitEvents {
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
    pub(super) fn queued(&self, company: &Company) {
        add(&self.waits, 1);
        add(&self.collisions, company.is_mixed.into());
        self.longest_chain.fetch_max(company.chain.into(), Ordering::Relaxed);
    }

    pub(super) fn woken(&self, is_from_other_node: bool) {
        add(&self.wakes, 1);
        add(&self.wakes_from_other_node, is_from_other_node.into());
    }

    pub(super) fn handed_over(&self) {
        add(&self.hand_overs, 1);
    }
}

/// Where the waiters of some pages are.
pub struct WaitTable<'m, K: Parking> {
    buckets: &'m [Bucket<K>],
    /// Whether anybody ever took the lock of a bucket. Written under that of the first.
    is_used: K::Word,
    pub(super) events: WaitEvents,
}

impl<K: Parking> core::fmt::Debug for WaitTable<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WaitTable")
            .field("buckets", &self.buckets.len())
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

impl<'m, K: Parking> WaitTable<'m, K> {
    /// A table over empty buckets: [`BUCKETS`], or fewer in models.
    ///
    /// # Panics
    /// If their number is not a power of two up to [`BUCKETS`].
    pub fn new(buckets: &'m [Bucket<K>]) -> Self {
        assert!(buckets.len().is_power_of_two() && buckets.len() <= BUCKETS);
        Self { buckets, is_used: K::Word::new(0), events: WaitEvents::default() }
    }

    fn index(&self, key: Key) -> usize {
        key.bucket() & (self.buckets.len() - 1)
    }

    /// The bucket of a key.
    pub(super) fn bucket(&self, key: Key) -> &Bucket<K> {
        &self.buckets[self.index(key)]
    }

    /// Takes the lock of the bucket of a key.
    pub(super) fn lock(&self, key: Key) -> LockedBucket<'_, K> {
        if self.is_used.load(Ordering::Relaxed) == 0 {
            self.begin_use();
        }
        self.bucket(key).lock()
    }

    #[cold]
    fn begin_use(&self) {
        let _first = self.buckets[0].lock();
        self.is_used.store(1, Ordering::Relaxed);
    }

    /// Keeps the buckets as they are until the answers are dropped: for hosts whose memory can be copied (`fork`). Of a table that
    /// nobody ever used the first is enough, since who uses it first waits for that. Each bucket is written: most processes that fork
    /// lock no pages, and would copy all of them.
    pub fn hold(&self) -> impl Iterator<Item = HeldBucket<'m, K>> + use<'m, K> {
        let first = self.buckets[0].hold();
        let is_used = self.is_used.load(Ordering::Relaxed) != 0;
        let others = if is_used { &self.buckets[1..] } else { &[] };
        core::iter::once(first).chain(others.iter().map(Bucket::hold))
    }

    /// Calls `act` unless somebody waits for `key`; nobody begins to meanwhile.
    pub(crate) fn unless_waited_for(&self, key: Key, act: impl FnOnce()) {
        let bucket = self.lock(key);
        let is_waited_for = bucket.keys().any(|other| other == key);
        if !is_waited_for {
            act();
        }
    }

    /// Calls `each` with the key of every entry and whether it is in the right bucket.
    pub(crate) fn for_each(&self, mut each: impl FnMut(Key, bool)) {
        if self.is_used.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (index, bucket) in self.buckets.iter().enumerate() {
            bucket.lock().keys().for_each(|key| each(key, self.index(key) == index));
        }
    }

    /// What happened here.
    pub fn counts(&self) -> WaitCounts {
        let get = |event: &AtomicU64| event.load(Ordering::Relaxed);
        WaitCounts {
            waits: get(&self.events.waits),
            collisions: get(&self.events.collisions),
            longest_chain: get(&self.events.longest_chain),
            wakes: get(&self.events.wakes),
            wakes_from_other_node: get(&self.events.wakes_from_other_node),
            hand_overs: get(&self.events.hand_overs),
        }
    }
}
