//! What the core sees of a simulated machine.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};

use nearpage::platform::{Access, Lock, NodeReclaimed, Platform, Shortage};
use nearpage::{FreeError, PageCount, Pfn};
use nearpage_pagelock::{PageLockPlatform, Parked, ParkedThread, WaitState};
use nearpage_slab::SlabPlatform;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::storage::SimStorage;
use crate::world::{LockCounts, TaskId, World, with_current};

/// A lock of the simulated machine. Taken outside a run it costs nothing.
#[derive(Debug)]
pub struct SimLock<T> {
    value: RefCell<T>,
    /// Its number in the world; 0 until it is first taken.
    id: Cell<u32>,
}

impl<T> SimLock<T> {
    /// How it fared.
    pub fn counts(&self, world: &World) -> LockCounts {
        world.counts_of(self.id.get())
    }
}

/// A held [`SimLock`].
pub struct SimGuard<'a, T> {
    // Dropped first: who gets the lock next finds the value free.
    value: RefMut<'a, T>,
    _release: Release<'a>,
}

impl<T> fmt::Debug for SimGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimGuard").finish_non_exhaustive()
    }
}

struct Release<'a>(&'a Cell<u32>);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        with_current(|world| world.release(self.0));
    }
}

impl<T> Deref for SimGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for SimGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Lock<T> for SimLock<T> {
    type Guard<'a>
        = SimGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self { value: RefCell::new(value), id: Cell::new(0) }
    }

    fn lock(&self) -> SimGuard<'_, T> {
        with_current(|world| world.acquire(&self.id));
        SimGuard { value: self.value.borrow_mut(), _release: Release(&self.id) }
    }
}

/// What a host does when the core asks for help. All of it is the scenario's.
pub trait Help {
    /// As [`Platform::wake_reclaim`].
    fn wake_reclaim(&self, _world: &World, _shortage: Shortage) {}

    /// As [`Platform::node_reclaim`].
    fn node_reclaim(&self, _world: &World, _shortage: Shortage) -> NodeReclaimed {
        NodeReclaimed::NotTried
    }
}

/// No help: out of memory is a result.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHelp;

impl Help for NoHelp {}

/// The platform of a simulated machine.
pub struct SimPlatform<'w> {
    world: &'w World,
    storage: SimStorage<'w>,
    help: &'w dyn Help,
    /// Calls of [`Platform::direct_reclaim`], of [`Platform::out_of_memory`], and refused frees.
    pub stalls: Cell<u64>,
    /// Frees that were refused.
    pub misuses: Cell<u64>,
}

impl fmt::Debug for SimPlatform<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPlatform").finish_non_exhaustive()
    }
}

impl<'w> SimPlatform<'w> {
    pub(crate) fn new(world: &'w World, help: &'w dyn Help) -> Self {
        let storage = SimStorage::new(world);
        Self { world, storage, help, stalls: Cell::new(0), misuses: Cell::new(0) }
    }
}

impl<'w> Platform for SimPlatform<'w> {
    type Lock<T> = SimLock<T>;
    type Storage = SimStorage<'w>;
    type Rules = nearpage::rules::ByModel;
    type Waiters = WaitState<Self>;

    #[inline]
    fn storage(&self) -> &Self::Storage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.world.now_ns()
    }

    fn relax(&self) {
        self.world.charge_ps(1_000_000);
        self.world.point();
    }

    fn wake_reclaim(&self, shortage: Shortage) {
        self.help.wake_reclaim(self.world, shortage);
    }

    fn direct_reclaim(&self, _shortage: Shortage) -> PageCount {
        self.stalls.set(self.stalls.get() + 1);
        PageCount(0)
    }

    fn node_reclaim(&self, shortage: Shortage) -> NodeReclaimed {
        self.help.node_reclaim(self.world, shortage)
    }

    fn misuse(&self, _error: &FreeError) {
        self.misuses.set(self.misuses.get() + 1);
    }

    #[inline]
    fn touch(&self, line: *const (), access: Access) {
        self.world.touch(line.addr(), access);
    }

    #[inline]
    fn touch_page(&self, page: Pfn, access: Access) {
        self.world.touch_page(page, access);
    }
}

impl SlabPlatform for SimPlatform<'_> {}

impl PageLockPlatform for SimPlatform<'_> {
    fn this_thread(&self, _word: &AtomicU32) -> ParkedThread {
        ParkedThread(self.world.task().0 as usize)
    }

    fn park(&self, word: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        // Nobody else runs between this look and the stop.
        if word.load(Ordering::Relaxed) == 0 {
            match deadline_ns {
                Some(ns) => self.world.sleep_until_ps(ns.saturating_mul(1000)),
                None => self.world.block(),
            }
        }
        Parked::Awake
    }

    fn unpark(&self, thread: ParkedThread) {
        self.world.wake(TaskId(thread.0 as u32));
    }
}
