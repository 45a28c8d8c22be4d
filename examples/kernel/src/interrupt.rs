//! What runs at interrupts: the handlers allocate and free, in the midst of whatever their CPU does.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nearpage::{Gfp, Order, Pfn, Request};

use crate::arch;
use crate::start::pages;

const CPUS_MAX: usize = 64;
/// Blocks that the handlers of a CPU hold at once.
const HELD: usize = 8;

/// By CPU: blocks that its handler holds, as frame + 1; of order 0 to 3, by place.
static HELD_BLOCKS: [[AtomicU64; HELD]; CPUS_MAX] =
    [const { [const { AtomicU64::new(0) }; HELD] }; CPUS_MAX];
static TURNS: [AtomicU32; CPUS_MAX] = [const { AtomicU32::new(0) }; CPUS_MAX];

/// Interrupts, those whose handler allocated, and those that found nothing.
pub static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
pub static ALLOCATED: AtomicU64 = AtomicU64::new(0);
pub static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Interrupts that cannot be masked.
pub static UNMASKABLE: AtomicU64 = AtomicU64::new(0);
/// Whether the handlers allocate.
pub static WORKS: AtomicBool = AtomicBool::new(false);

static TIMER_NS: AtomicU32 = AtomicU32::new(200_000);

/// From timer interrupt to timer interrupt.
pub fn timer_ns() -> u32 {
    TIMER_NS.load(Ordering::Relaxed)
}

/// Sets it, before CPUs start.
pub fn set_timer_ns(ns: u32) {
    TIMER_NS.store(ns, Ordering::Relaxed);
}

fn order_of(place: usize) -> Order {
    Order([0, 0, 0, 1, 0, 2, 0, 3][place])
}

/// A timer interrupt of this CPU: frees one block, and allocates another in its place.
pub fn timer() {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    if !WORKS.load(Ordering::Relaxed) {
        return;
    }
    let cpu = arch::cpu_number().0 as usize;
    let place = TURNS[cpu].fetch_add(1, Ordering::Relaxed) as usize % HELD;
    let held = &HELD_BLOCKS[cpu][place];
    let order = order_of(place);
    let before = held.swap(0, Ordering::Relaxed);
    if before > 0 {
        pages().free(Pfn(before - 1), order).expect("the handler holds it");
    }
    match pages().alloc(Request::new(order, Gfp::ATOMIC)) {
        Ok(block) => {
            held.store(block.0 + 1, Ordering::Relaxed);
            ALLOCATED.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => _ = REFUSED.fetch_add(1, Ordering::Relaxed),
    }
}

/// An interrupt that cannot be masked: it may come while this CPU holds any lock.
pub fn unmaskable() {
    UNMASKABLE.fetch_add(1, Ordering::Relaxed);
}

/// Frees what the handlers of all CPUs hold, while they do not work.
pub fn free_all() {
    for blocks in &HELD_BLOCKS {
        for (place, held) in blocks.iter().enumerate() {
            let before = held.swap(0, Ordering::Relaxed);
            if before > 0 {
                pages().free(Pfn(before - 1), order_of(place)).expect("a handler held it");
            }
        }
    }
}
