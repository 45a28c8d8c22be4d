//! The host of a replay: one thread that plays all CPUs by the clock of the trace.

use std::cell::RefCell;

use nearpage::platform::{Platform, Shortage, SingleLock, SingleStorage, SingleThreaded};
use nearpage::{CpuId, NodeId, ZoneKind};
use nearpage_slab::SlabPlatform;

/// The host of a replay. Background reclaim is asked for here and done by the trace: its frees are events.
#[derive(Debug, Default)]
pub struct ReplayPlatform {
    single: SingleThreaded,
    asked: RefCell<Vec<(NodeId, ZoneKind)>>,
}

impl ReplayPlatform {
    /// Goes on as `cpu` at a time of the trace.
    pub fn play(&self, cpu: CpuId, now_ns: u64) {
        self.single.run_on(cpu);
        self.single.set_now_ns(now_ns);
    }

    /// Takes a node that background reclaim was asked for, and the highest kind of zone.
    pub fn take_asked(&self) -> Option<(NodeId, ZoneKind)> {
        self.asked.borrow_mut().pop()
    }
}

impl Platform for ReplayPlatform {
    type Lock<T> = SingleLock<T>;
    type Storage = SingleStorage;
    type Rules = nearpage::rules::ByModel;
    type Waiters = ();
    const BACKGROUND_RECLAIM: bool = true;

    fn storage(&self) -> &SingleStorage {
        self.single.storage()
    }

    fn now_ns(&self) -> u64 {
        self.single.now_ns()
    }

    fn wake_reclaim(&self, shortage: Shortage) {
        let mut asked = self.asked.borrow_mut();
        let wanted = (shortage.node, shortage.kind);
        if !asked.contains(&wanted) {
            asked.push(wanted);
        }
    }
}

impl SlabPlatform for ReplayPlatform {}
