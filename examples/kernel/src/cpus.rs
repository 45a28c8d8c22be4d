//! All CPUs at work: the first gives the work out, the others wait for it with interrupts on.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use nearpage::{CpuId, Gfp, Order, Request};
use nearpage_kernel::{Pages, page_address};

use crate::arch;
use crate::interrupt;
use crate::mine::Mine;

/// CPUs that run, the first one among them.
static RUNNING: AtomicU32 = AtomicU32::new(1);
/// How often work was given out.
static ROUND: AtomicU32 = AtomicU32::new(0);
/// CPUs that have done the work of this round.
static DONE: AtomicU32 = AtomicU32::new(0);
/// The work: a function of the CPU.
static WORK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The order of a stack's block: 64 KiB.
const STACK_ORDER: Order = Order(4);

/// By number: the hardware's.
static HARDWARE_IDS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// The hardware's number of the CPU after this one.
pub fn next_of(cpu: usize) -> u64 {
    HARDWARE_IDS[(cpu + 1) % running() as usize].load(Ordering::Relaxed)
}

/// Starts the CPUs that the machine has beside this one; returns how many run.
pub fn start_all(pages: &Pages<'_, Mine>, hardware_ids: impl Iterator<Item = u64>) -> u32 {
    for (number, id) in hardware_ids.enumerate() {
        HARDWARE_IDS[number].store(id, Ordering::Relaxed);
        if number == 0 {
            continue;
        }
        let cpu = CpuId(number as u32);
        let near = pages.topology().node_of_cpu(cpu).map(|node| pages.topology().node(node).id);
        let request = Request { order: STACK_ORDER, gfp: Gfp::KERNEL, node: near };
        let stack = pages.alloc(request).unwrap_or_else(|error| panic!("a stack: {error}"));
        let end = page_address::<Mine>(stack).wrapping_add(4096 << STACK_ORDER.0);
        let before = RUNNING.load(Ordering::Acquire);
        arch::start_cpu(id, cpu, end);
        // One after the other: all of them begin in one page.
        while RUNNING.load(Ordering::Acquire) == before {
            arch::pause();
        }
    }
    RUNNING.load(Ordering::Relaxed)
}

/// CPUs that run.
pub fn running() -> u32 {
    RUNNING.load(Ordering::Relaxed)
}

/// Lets all CPUs do `work`, this one too, and waits until all have.
pub fn on_all(work: fn(CpuId)) {
    DONE.store(0, Ordering::Relaxed);
    WORK.store(work as *mut (), Ordering::Relaxed);
    // Release pairs with the Acquire in `serve`.
    ROUND.fetch_add(1, Ordering::Release);
    work(arch::cpu_number());
    while DONE.load(Ordering::Acquire) + 1 < running() {
        arch::pause();
    }
}

/// What the other CPUs do from now on.
pub fn serve() -> ! {
    let cpu = arch::cpu_number();
    let mut seen = ROUND.load(Ordering::Acquire);
    // Release pairs with the Acquire in `start_all`.
    RUNNING.fetch_add(1, Ordering::Release);
    arch::interrupts_on();
    arch::start_timer(interrupt::timer_ns());
    loop {
        let round = ROUND.load(Ordering::Acquire);
        if round == seen {
            // A timer interrupt wakes it.
            arch::wait();
            continue;
        }
        seen = round;
        let work = WORK.load(Ordering::Relaxed);
        // SAFETY: `on_all` put a function of this type there before it counted the round.
        let work: fn(CpuId) = unsafe { core::mem::transmute(work) };
        work(cpu);
        // Release pairs with the Acquire in `on_all`.
        DONE.fetch_add(1, Ordering::Release);
    }
}
