//! A platform for tests: [`SingleThreaded`], with a host whose answers the test sets.

use core::cell::Cell;

use crate::error::FreeError;
use crate::host::{Platform, Shortage};
use crate::single::{SingleLock, SingleStorage, SingleThreaded};
use crate::units::{CpuId, NodeId, PageCount, ZoneKind};

/// The plainest platform.
pub type PlainPlatform = Plain<false>;
/// The same, [`HARDENED`](Platform::HARDENED).
pub type HardenedPlatform = Plain<true>;

/// A platform for tests: the CPU is what the test says, refused frees and calls for help are counted.
#[derive(Debug, Default)]
pub struct Plain<const HARDENED: bool> {
    single: SingleThreaded,
    /// Refused frees so far.
    pub misuses: Cell<u64>,
    /// Times that background reclaim was woken.
    pub wakes: Cell<u64>,
    /// Times that direct reclaim was asked for.
    pub reclaims: Cell<u64>,
    /// Times that the last resort was asked for.
    pub out_of_memory: Cell<u64>,
    /// What direct reclaim says that it freed.
    pub says_freed: Cell<PageCount>,
    /// What reclaim says that it could still free of each zone.
    pub says_reclaimable: Cell<PageCount>,
    /// Whether the last resort says that it helped.
    pub says_killed: Cell<bool>,
}

impl<const HARDENED: bool> Plain<HARDENED> {
    /// Goes on as `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        self.single.run_on(cpu);
    }

    /// Sets the time.
    pub fn set_now_ns(&self, now_ns: u64) {
        self.single.set_now_ns(now_ns);
    }

    /// Goes on as `cpu` once the allocator has looked so many times which one it is: a thread that is moved in the midst of
    /// an operation.
    pub fn move_after(&self, looks: u32, cpu: CpuId) {
        self.single.chosen().move_after(looks, cpu);
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl<const HARDENED: bool> Platform for Plain<HARDENED> {
    const HARDENED: bool = HARDENED;
    type Lock<T> = SingleLock<T>;
    type Storage = SingleStorage;
    type Rules = crate::rule_set::ByModel;
    type Waiters = ();
    const BACKGROUND_RECLAIM: bool = true;

    fn storage(&self) -> &SingleStorage {
        self.single.storage()
    }

    fn now_ns(&self) -> u64 {
        self.single.now_ns()
    }

    fn wake_reclaim(&self, _shortage: Shortage) {
        count(&self.wakes);
    }

    fn direct_reclaim(&self, _shortage: Shortage) -> PageCount {
        count(&self.reclaims);
        self.says_freed.get()
    }

    fn reclaimable(&self, _node: NodeId, _kind: ZoneKind) -> PageCount {
        self.says_reclaimable.get()
    }

    fn out_of_memory(&self, _shortage: Shortage) -> bool {
        count(&self.out_of_memory);
        self.says_killed.get()
    }

    fn misuse(&self, _error: &FreeError) {
        count(&self.misuses);
    }
}
