//! One thread that plays all CPUs: a lock that is always free, a storage that needs no exclusion, and a clock that
//! the program sets.

use core::cell::{Cell, RefCell, RefMut};

use crate::error::FreeError;
use crate::host::{Lock, Platform};
use crate::pcp::serial::{CurrentCpu, SerialStorage, Single};
use crate::units::CpuId;

/// The CPU that the thread plays now.
#[derive(Debug, Default)]
pub struct ChosenCpu {
    cpu: Cell<CpuId>,
    /// Looks until the thread is moved, and the CPU that it is moved to.
    #[cfg(any(test, feature = "testing"))]
    move_to: Cell<Option<(u32, CpuId)>>,
}

impl ChosenCpu {
    /// Goes on as `cpu`.
    pub fn set(&self, cpu: CpuId) {
        self.cpu.set(cpu);
    }

    /// Goes on as `cpu` once the allocator has looked so many times which CPU it is: a thread that is moved in the
    /// midst of an operation.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn move_after(&self, looks: u32, cpu: CpuId) {
        self.move_to.set(Some((looks, cpu)));
    }
}

impl CurrentCpu for ChosenCpu {
    #[inline]
    fn current_cpu(&self) -> CpuId {
        #[cfg(any(test, feature = "testing"))]
        match self.move_to.get() {
            Some((0, cpu)) => {
                self.cpu.set(cpu);
                self.move_to.set(None);
            }
            Some((looks, cpu)) => self.move_to.set(Some((looks - 1, cpu))),
            None => {}
        }
        self.cpu.get()
    }
}

/// A lock that no other thread can hold.
#[derive(Debug)]
pub struct SingleLock<T>(RefCell<T>);

impl<T> Lock<T> for SingleLock<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// # Panics
    /// If the thread holds the lock already.
    #[inline]
    fn lock(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}

/// The storage of [`SingleThreaded`].
pub type SingleStorage = SerialStorage<Single<ChosenCpu>>;

/// A platform for one thread that plays all CPUs of a machine, one after the other.
///
/// The program says on which CPU the thread is ([`run_on`](Self::run_on)) and what time it is
/// ([`set_now_ns`](Self::set_now_ns)). Storage and tuning move together, operation by operation
/// ([`Storage::EXACT`](crate::pcp::Storage::EXACT)), so that a run repeats itself and can be compared with a recorded
/// kernel. Refused frees are counted ([`misuses`](Self::misuses)).
///
/// A program that wants to hear the allocator's calls for help writes a [`Platform`] of its own around this one: it
/// takes [`SingleLock`] and [`SingleStorage`] as its types, and passes on
/// [`storage`](Platform::storage) and [`now_ns`](Platform::now_ns).
#[derive(Debug, Default)]
pub struct SingleThreaded {
    storage: SingleStorage,
    now_ns: Cell<u64>,
    misuses: Cell<u64>,
}

impl SingleThreaded {
    /// A platform on CPU 0, at time 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on as `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        self.chosen().set(cpu);
    }

    /// Sets the time, in nanoseconds from any start.
    pub fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    /// Frees that were refused so far.
    pub fn misuses(&self) -> u64 {
        self.misuses.get()
    }

    pub(crate) fn chosen(&self) -> &ChosenCpu {
        &self.storage.0.0
    }

    /// Counts one more, of who is refused something above the pages.
    pub fn count_misuse(&self) {
        self.misuses.set(self.misuses.get() + 1);
    }
}

impl Platform for SingleThreaded {
    type Lock<T> = SingleLock<T>;
    type Storage = SingleStorage;
    type Rules = crate::rule_set::Places;
    type Waiters = ();

    fn storage(&self) -> &SingleStorage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn misuse(&self, _error: &FreeError) {
        self.count_misuse();
    }
}
