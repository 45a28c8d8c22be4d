//! Who waits for the locks of pages, as far as pages must know: a page that somebody waits for is not freed, and the tables
//! in which waiters stand lie with the metadata of their zones.

use crate::units::Pfn;

/// What happened at a table of waiters, or at several.
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

/// A bit that somebody waits for, in the word at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwaitedBit {
    /// The address.
    pub address: u64,
    /// The bit.
    pub bit: u32,
}

/// A table of waiters: buckets, and what is known of all of them.
#[derive(Debug)]
pub struct WaiterTable<'m, W: Waiters> {
    /// As many as [`Waiters::BUCKETS`], or fewer in models.
    pub buckets: &'m [W::Bucket],
    /// What is known of all of them.
    pub state: W,
}

impl<'m, W: Waiters> WaiterTable<'m, W> {
    /// A table over empty buckets.
    pub fn new(buckets: &'m [W::Bucket]) -> Self {
        Self { buckets, state: W::new() }
    }
}

/// Who waits for pages: what page locks are made of, or `()` on hosts that have none.
pub trait Waiters: Sized {
    /// Waiters of a table that share a queue.
    type Bucket;
    /// Buckets of a table.
    const BUCKETS: usize;
    /// Of a table where nobody waits.
    fn new() -> Self;
    /// A bucket where nobody waits.
    fn bucket() -> Self::Bucket;
    /// What happened at a table.
    fn counts(&self) -> WaitCounts;
    /// Calls `act` unless somebody waits for the lock of a page; nobody begins to meanwhile.
    fn unless_waited_for(table: &WaiterTable<'_, Self>, page: Pfn, act: &mut dyn FnMut());
    /// A waiter that nobody would wake, by what he waits for; of the lock of a page `is_told` says whether who unlocks it hears
    /// of him.
    fn lost(table: &WaiterTable<'_, Self>, is_told: &dyn Fn(Pfn) -> bool) -> Option<AwaitedBit>;
}

/// Nobody ever waits.
impl Waiters for () {
    type Bucket = ();
    const BUCKETS: usize = 0;

    fn new() {}

    fn bucket() {}

    fn counts(&self) -> WaitCounts {
        WaitCounts::default()
    }

    fn unless_waited_for(_table: &WaiterTable<'_, ()>, _page: Pfn, act: &mut dyn FnMut()) {
        act();
    }

    fn lost(_table: &WaiterTable<'_, ()>, _is_told: &dyn Fn(Pfn) -> bool) -> Option<AwaitedBit> {
        None
    }
}

/// Which pages share a wait table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitTables {
    /// Those of a node, as proposed in 2016.
    #[default]
    PerNode,
    /// All: Linux since 4.9.
    Global,
    /// Those of a zone: Linux until 4.8, whose tables were larger.
    PerZone,
}

/// Whether the frame's word tells an unlock that somebody waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitersBit {
    /// It does: `PG_waiters`, Linux since 4.10.
    #[default]
    On,
    /// Each unlock looks whether anybody waits in the page's bucket, and takes its lock if so.
    Off,
}

/// What differs between kernels in how pages are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageLockRules {
    /// Which pages share a wait table.
    pub tables: WaitTables,
    /// Whether an unlock learns from the frame's word that nobody waits.
    pub waiters_bit: WaitersBit,
}

impl PageLockRules {
    /// Linux since 4.10: one table, and the waiters bit.
    pub const LINUX: Self = Self { tables: WaitTables::Global, waiters_bit: WaitersBit::On };
    /// nearpage: tables per node, and the waiters bit.
    pub const NEARPAGE: Self = Self { tables: WaitTables::PerNode, waiters_bit: WaitersBit::On };
}
