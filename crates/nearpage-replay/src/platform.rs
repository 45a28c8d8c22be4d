//! The host of a replay: one thread that plays all CPUs by the clock of the trace.

use std::cell::{Cell, RefCell, RefMut};

use nearpage::pcp::serial::{CurrentCpu, SerialStorage, Single};
use nearpage::platform::{Lock, Platform, Shortage};
use nearpage::units::{CpuId, NodeId, ZoneKind};

/// The CPU that is played now.
#[derive(Debug, Default)]
pub struct PlayedCpu(Cell<CpuId>);

impl CurrentCpu for PlayedCpu {
    fn current_cpu(&self) -> CpuId {
        self.0.get()
    }
}

/// A lock that is always free: nobody else is there.
#[derive(Debug)]
pub struct FreeLock<T>(RefCell<T>);

impl<T> Lock<T> for FreeLock<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    fn lock(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}

/// The host of a replay. Background reclaim is asked for here and done by the trace: its frees are events.
#[derive(Debug, Default)]
pub struct ReplayPlatform {
    storage: SerialStorage<Single<PlayedCpu>>,
    now_ns: Cell<u64>,
    asked: RefCell<Vec<(NodeId, ZoneKind)>>,
}

impl ReplayPlatform {
    /// Goes on as `cpu` at a time of the trace.
    pub fn play(&self, cpu: CpuId, now_ns: u64) {
        self.storage.0.0.0.set(cpu);
        self.now_ns.set(now_ns);
    }

    /// Takes a node that background reclaim was asked for, and the highest kind of zone.
    pub fn take_asked(&self) -> Option<(NodeId, ZoneKind)> {
        self.asked.borrow_mut().pop()
    }
}

impl Platform for ReplayPlatform {
    type Lock<T> = FreeLock<T>;
    type Storage = SerialStorage<Single<PlayedCpu>>;
    const BACKGROUND_RECLAIM: bool = true;

    fn storage(&self) -> &Self::Storage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn wake_reclaim(&self, shortage: Shortage) {
        let mut asked = self.asked.borrow_mut();
        let wanted = (shortage.node, shortage.kind);
        if !asked.contains(&wanted) {
            asked.push(wanted);
        }
    }
}
