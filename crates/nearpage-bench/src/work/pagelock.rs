//! `pagelock`: a page locked and unlocked, by one thread and by two, under all rules.

use std::cell::UnsafeCell;
use std::sync::Mutex;

use nearpage::{Order, Request};
use nearpage_linux::{Memory, PageHandle};

use super::pairs::step;
use crate::field::Context;
use crate::rows::{Key, Work};
use crate::source::{GFP, Pair};
use crate::step::Step;

/// Threads that want one page.
const CONTENDERS: usize = 2;

/// Both kinds of work, on all locks.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    let works = [(Work::LockPair, 1), (Work::LockContended, CONTENDERS)];
    for (work, threads) in works.into_iter().filter(|(_, cpus)| *cpus <= context.cpus.count()) {
        let key = |allocator| Key { work, allocator, threads, n: 0 };
        let nearpage = std::iter::once(("nearpage", &context.field.nearpage));
        let others = context.field.page_locks.iter().map(|(name, memory)| (*name, memory));
        for (name, memory) in nearpage.chain(others) {
            // A memory without a single page has no lock to measure.
            if let Some(page) = page_of(memory) {
                steps.push(step(context, key(name), Locked { lock: page, sum: Box::default() }));
            }
        }
        steps.push(step(context, key("std"), Locked { lock: Mutex::new(()), sum: Box::default() }));
    }
    steps
}

/// A page that stays allocated as long as its memory.
fn page_of(memory: &Memory) -> Option<PageHandle<'_>> {
    let pfn = memory.alloc_frames(Request::new(Order(0), GFP)).ok()?;
    memory.page_handle(pfn).ok()
}

/// A lock.
trait Lock: Sync {
    /// Locks it, does something, and unlocks it; returns whether it could.
    fn with(&self, work: impl FnOnce()) -> bool;
}

impl Lock for PageHandle<'_> {
    #[inline(always)]
    fn with(&self, work: impl FnOnce()) -> bool {
        if self.lock().is_err() {
            return false;
        }
        work();
        // SAFETY: it was locked above.
        unsafe { self.unlock() }.is_ok()
    }
}

impl Lock for Mutex<()> {
    #[inline(always)]
    fn with(&self, work: impl FnOnce()) -> bool {
        let locked = self.lock();
        work();
        locked.is_ok()
    }
}

/// A number that a lock keeps whole, on a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Sum(UnsafeCell<u64>);

/// A lock, and an addition under it. The sum is elsewhere: beside it a compiler could not keep what the lock is made of in
/// registers.
struct Locked<L> {
    lock: L,
    sum: Box<Sum>,
}

// SAFETY: the sum is reached under the lock.
unsafe impl<L: Sync> Sync for Locked<L> {}

impl<L: Lock> Pair for Locked<L> {
    #[inline(always)]
    fn pair(&self) -> bool {
        let sum = self.sum.0.get();
        // SAFETY: the sum is this thread's while it has the lock.
        self.lock.with(|| unsafe { sum.write_volatile(sum.read_volatile() + 1) })
    }
}
