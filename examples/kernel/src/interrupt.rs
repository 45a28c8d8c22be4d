//! What runs at interrupts: the handlers allocate and free, in the midst of whatever their CPU does.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nearpage::{CpuId, Gfp, Order, Pfn, Request};
use nearpage_kernel::{Aside, TicketLock};

use crate::mine::Mine;
use crate::start::pages;
use crate::{arch, cpus};

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

/// Whether the handler of CPU 0 wants the lock of this count.
pub static WANTS: AtomicBool = AtomicBool::new(false);
pub static WANTED: TicketLock<Mine, u64> = TicketLock::new(0);

static TIMER_NS: AtomicU32 = AtomicU32::new(200_000);

/// From timer interrupt to timer interrupt.
pub fn timer_ns() -> u32 {
    TIMER_NS.load(Ordering::Relaxed)
}

/// Sets it, before CPUs start.
pub fn set_timer_ns(ns: u32) {
    TIMER_NS.store(ns, Ordering::Relaxed);
}

/// Whether the handler of a CPU has worked.
pub fn has_worked(cpu: usize) -> bool {
    TURNS[cpu].load(Ordering::Relaxed) > 0
}

fn order_of(place: usize) -> Order {
    Order([0, 0, 0, 1, 0, 2, 0, 3][place])
}

/// A timer interrupt of this CPU: frees one block, and allocates another in its place.
pub fn timer() {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    if WANTS.load(Ordering::Relaxed) && arch::cpu_number() == CpuId(0) {
        *WANTED.lock() += 1;
    }
    if !WORKS.load(Ordering::Relaxed) {
        return;
    }
    let cpu = arch::cpu_number().0 as usize;
    PUT_OFF.free_all(pages()).expect("handlers held them");
    // The next CPU is interrupted in whatever it does, interrupts off or not.
    arch::interrupt_unmaskably(cpus::next_of(cpu));
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

/// What handlers of interrupts that cannot be masked freed, and what they hold.
static PUT_OFF: Aside<256> = Aside::new();
/// Blocks that such handlers got, and times that they got none.
pub static UNMASKABLE_GOT: AtomicU64 = AtomicU64::new(0);
static UNMASKABLE_HELD: Aside<64> = Aside::new();

/// An interrupt that cannot be masked: it may come while this CPU holds any lock, so it calls what never waits. The board `virt`
/// has none.
#[cfg(target_arch = "x86_64")]
pub fn unmaskable() {
    UNMASKABLE.fetch_add(1, Ordering::Relaxed);
    if let Some(page) = pages().alloc_cached(Request::new(Order(0), Gfp::ATOMIC)) {
        UNMASKABLE_GOT.fetch_add(1, Ordering::Relaxed);
        if !UNMASKABLE_HELD.put(page, Order(0)) {
            assert!(PUT_OFF.put(page, Order(0)), "it is emptied often enough");
        }
    } else if let Some(page) = UNMASKABLE_HELD.take(Order(0)) {
        assert!(PUT_OFF.put(page, Order(0)), "it is emptied often enough");
    }
}

/// Frees what the handlers of all CPUs hold, while they do not work.
pub fn free_all() {
    PUT_OFF.free_all(pages()).expect("handlers held them");
    UNMASKABLE_HELD.free_all(pages()).expect("handlers held them");
    for blocks in &HELD_BLOCKS {
        for (place, held) in blocks.iter().enumerate() {
            let before = held.swap(0, Ordering::Relaxed);
            if before > 0 {
                pages().free(Pfn(before - 1), order_of(place)).expect("a handler held it");
            }
        }
    }
}
