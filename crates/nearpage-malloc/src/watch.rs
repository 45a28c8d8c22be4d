//! What is counted for those who watch: calls by CPU, and a hook that samples come from.
//!
//! Nothing here is on the fast path: lists are refilled for every few hundred calls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::thread;

/// CPUs that have a counter; those beyond share the last.
pub(crate) const CPUS: usize = 64;

static HANDED: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
/// The hook, or 0.
static HOOK: AtomicUsize = AtomicUsize::new(0);
/// When it is called next, in nanoseconds of the coarse clock.
static NEXT: AtomicU64 = AtomicU64::new(0);
const INTERVAL_NS: u64 = 200_000_000;

/// Calls `hook` from now on, five times a second at most, when something is allocated.
pub(crate) fn set_hook(hook: fn()) {
    HOOK.store(hook as usize, Ordering::Relaxed);
}

/// A thread got so many objects, or one block.
#[inline]
pub(crate) fn note(objects: u64) {
    // SAFETY: asks only. The C library reads the number that the kernel keeps for restartable sequences.
    let cpu = unsafe { libc::sched_getcpu() } as usize;
    HANDED[cpu.min(CPUS - 1)].fetch_add(objects, Ordering::Relaxed);
    if HOOK.load(Ordering::Relaxed) != 0 {
        look();
    }
}

#[cold]
fn look() {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let next = NEXT.load(Ordering::Relaxed);
    let after = now + INTERVAL_NS;
    if now < next
        || NEXT.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    let hook = HOOK.load(Ordering::Relaxed);
    // SAFETY: `set_hook` stored a function of this type.
    let hook = unsafe { std::mem::transmute::<usize, fn()>(hook) };
    thread::inside(hook);
}

/// Objects and blocks that threads got, by the CPU that they ran on.
pub(crate) fn by_cpu() -> [u64; CPUS] {
    std::array::from_fn(|cpu| HANDED[cpu].load(Ordering::Relaxed))
}
