//! The locks.

use std::cell::UnsafeCell;
use std::io;

use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
use nearpage::{Gfp, Model, Order, Pfn, Request};
use nearpage_linux::{Memory, MemoryBuilder, PageHandle};
use parking_lot::lock_api::RawMutex as _;

/// A lock that is measured.
pub trait Lock: Sync {
    /// Locks it, does something, and unlocks it.
    fn with(&self, work: impl FnOnce());
}

/// A lock with its name, alive as long as the process, and a number that it keeps whole.
#[derive(Clone, Copy)]
pub struct Contestant {
    pub name: &'static str,
    pub work: &'static (dyn Work + Sync),
}

/// What is done with a lock: `count` times lock and unlock.
pub trait Work {
    /// With nothing in between.
    fn pairs(&self, count: usize);
    /// With an addition in between.
    fn additions(&self, count: usize);
    /// The sum.
    fn sum(&self) -> u64;
}

/// The sum is elsewhere: beside it a compiler could not keep what a lock is made of in registers.
struct Enlisted<L> {
    lock: L,
    sum: &'static Sum,
}

/// On a line of its own.
#[repr(align(128))]
struct Sum(UnsafeCell<u64>);

// SAFETY: the sum is reached under the lock.
unsafe impl<L: Sync> Sync for Enlisted<L> {}

impl<L: Lock> Work for Enlisted<L> {
    #[inline(never)]
    fn pairs(&self, count: usize) {
        for _ in 0..count {
            self.lock.with(|| ());
        }
    }

    #[inline(never)]
    fn additions(&self, count: usize) {
        for _ in 0..count {
            let sum = self.sum.0.get();
            // SAFETY: the sum is this thread's while it has the lock.
            self.lock.with(|| unsafe { sum.write_volatile(sum.read_volatile() + 1) });
        }
    }

    fn sum(&self) -> u64 {
        let mut sum = 0;
        // SAFETY: as above.
        self.lock.with(|| sum = unsafe { self.sum.0.get().read_volatile() });
        sum
    }
}

fn enlist(name: &'static str, lock: impl Lock + 'static) -> Contestant {
    let sum = Box::leak(Box::new(Sum(UnsafeCell::new(0))));
    Contestant { name, work: Box::leak(Box::new(Enlisted { lock, sum })) }
}

/// nearpage under its rules, and the others.
///
/// # Errors
///
/// If there is no memory for the pages.
pub fn all() -> io::Result<Vec<Contestant>> {
    let rules = |tables, waiters_bit| PageLockRules { tables, waiters_bit };
    let variants = [
        ("nearpage", PageLockRules::NEARPAGE),
        ("nearpage-global", rules(WaitTables::Global, WaitersBit::On)),
        ("nearpage-per-zone", rules(WaitTables::PerZone, WaitersBit::On)),
        ("nearpage-no-waiters-bit", rules(WaitTables::PerNode, WaitersBit::Off)),
    ];
    let mut all = Vec::new();
    for (name, rules) in variants {
        let Page { memory, pfn } = Page::new(rules)?;
        let memory: &'static Memory = Box::leak(Box::new(memory));
        all.push(enlist(name, memory.page_handle(pfn).map_err(io::Error::other)?));
    }
    all.push(enlist("nearpage-by-frame", Page::new(PageLockRules::NEARPAGE)?));
    all.push(enlist("parking_lot", ParkingLot(parking_lot::RawMutex::INIT)));
    all.push(enlist("std", Std(std::sync::Mutex::new(()))));
    Ok(all)
}

impl Lock for PageHandle<'static> {
    #[inline(always)]
    fn with(&self, work: impl FnOnce()) {
        let locked = self.lock();
        debug_assert_eq!(locked, Ok(()));
        work();
        // SAFETY: locked above.
        let unlocked = unsafe { self.unlock() };
        debug_assert_eq!(unlocked, Ok(()));
    }
}

/// The lock of a page, which is looked up by its frame number each time.
struct Page {
    memory: Memory,
    pfn: Pfn,
}

impl Page {
    fn new(page_lock: PageLockRules) -> io::Result<Self> {
        let model = Model::NEARPAGE.with(|changed| changed.page_lock = page_lock);
        let builder = MemoryBuilder::from_env().map_err(io::Error::other)?;
        let memory = builder.bytes_per_node(16 << 20).model(model).build();
        let memory = memory.map_err(io::Error::other)?;
        let pfn = memory.alloc_frames(Request::new(Order(0), Gfp::KERNEL));
        Ok(Self { pfn: pfn.map_err(io::Error::other)?, memory })
    }
}

impl Lock for Page {
    #[inline(always)]
    fn with(&self, work: impl FnOnce()) {
        let locked = self.memory.lock_page(self.pfn);
        debug_assert_eq!(locked, Ok(()));
        work();
        // SAFETY: locked above.
        let unlocked = unsafe { self.memory.unlock_page(self.pfn) };
        debug_assert_eq!(unlocked, Ok(()));
    }
}

/// A byte.
struct ParkingLot(parking_lot::RawMutex);

impl Lock for ParkingLot {
    #[inline(always)]
    fn with(&self, work: impl FnOnce()) {
        self.0.lock();
        work();
        // SAFETY: locked above.
        unsafe { self.0.unlock() };
    }
}

/// A futex word.
struct Std(std::sync::Mutex<()>);

impl Lock for Std {
    #[inline(always)]
    fn with(&self, work: impl FnOnce()) {
        let _locked = self.0.lock();
        work();
    }
}
