//! The first lines of each CPU, and the last of all.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use nearpage_kernel::boot::{Deferred, EarlyMemory};
use nearpage_kernel::firmware::Machine;
use nearpage_kernel::{Pages, TicketLock};

use crate::mine::{Mine, allocator};
use crate::options::Options;
#[cfg(feature = "bounds")]
use crate::painted::stack_of;
use crate::{arch, checks, console, cpus, interrupt, log};

/// What the boot said beside the memory.
pub struct Described {
    /// The command line.
    pub command_line: &'static [u8],
}

static MACHINE: TicketLock<Mine, Machine> = TicketLock::new(Machine::new());
static MEMORY: TicketLock<Mine, EarlyMemory> = TicketLock::new(EarlyMemory::new());
static PAGES: AtomicPtr<Pages<'static, Mine>> = AtomicPtr::new(core::ptr::null_mut());
/// Frees that were refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// What the thirty lines took.
static BOOT_NS: AtomicU64 = AtomicU64::new(0);

/// Bytes of stack that they took, in builds that tell.
static BOOT_STACK: AtomicU64 = AtomicU64::new(0);

/// Exit codes of the machine.
const PASSED: u8 = 0x10;
const FAILED: u8 = 0x11;

/// The allocator, once there is one.
pub fn pages() -> &'static Pages<'static, Mine> {
    let pages = PAGES.load(Ordering::Acquire);
    assert!(!pages.is_null(), "the allocator is there");
    // SAFETY: `first_cpu` put it there, and it is there for ever.
    unsafe { &*pages }
}

/// A free was refused.
pub fn refused(error: &dyn core::fmt::Display) {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    log!("refused: {error}");
}

/// Frees that were refused so far.
pub fn refusals() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// The first CPU, on its boot stack, with interrupts off.
pub fn first_cpu() -> ! {
    let (options, deferred, ids) = boot();
    interrupt::set_timer_ns(options.timer_ns);
    if options.instructions {
        checks::boot_cost(pages(), deferred, BOOT_NS.load(Ordering::Relaxed));
        #[cfg(feature = "bounds")]
        checks::bounds(pages(), BOOT_STACK.load(Ordering::Relaxed));
        #[cfg(not(feature = "bounds"))]
        checks::instructions(pages());
        finish(PASSED);
    }
    let running = cpus::start_all(pages(), ids.into_iter());
    arch::interrupts_on();
    arch::start_timer(options.timer_ns);
    log!("{running} CPUs run");
    checks::run(pages(), deferred, options);
    finish(PASSED)
}

/// From what is in memory to an allocator: options, what comes online later, and the hardware's numbers of the CPUs.
fn boot() -> (Options, &'static Deferred<Mine>, Vec<u64>) {
    let (mut machine, mut memory) = (MACHINE.lock(), MEMORY.lock());
    let described = arch::describe(&mut machine, &mut memory);
    let options = Options::parse(described.command_line);
    checks::own::take(&mut memory).unwrap_or_else(|error| panic!("{error}"));
    let begin = arch::now_ns();
    let mut booted = None;
    let stack = stack_of(|| booted = Some(allocator(&mut machine, &mut memory)));
    BOOT_STACK.store(stack, Ordering::Relaxed);
    let booted = booted.expect("it ran");
    let (pages, deferred) = booted.unwrap_or_else(|error| panic!("{error}"));
    BOOT_NS.store(arch::now_ns() - begin, Ordering::Relaxed);
    // Release pairs with the Acquire in `pages`.
    PAGES.store(core::ptr::from_ref(pages).cast_mut(), Ordering::Release);
    checks::own::hand_over_too(pages);
    let nodes = pages.topology().len();
    log!("nearpage on {}: {nodes} nodes, {} CPUs", arch::NAME, machine.cpus().len());
    machine.notes().for_each(|note| log!("firmware: {note}"));
    (options, deferred, machine.cpus().iter().map(|cpu| cpu.hardware_id).collect())
}

/// Nothing is painted in this build.
#[cfg(not(feature = "bounds"))]
fn stack_of(call: impl FnOnce()) -> u64 {
    call();
    0
}

/// Any other CPU, on its own stack, with interrupts off.
pub fn other_cpu() -> ! {
    cpus::serve()
}

fn finish(code: u8) -> ! {
    console::last_words(format_args!("{}", if code == PASSED { "PASSED" } else { "FAILED" }));
    arch::exit(code)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    arch::interrupts_off();
    console::last_words(format_args!("CPU {}: {info}", arch::cpu_number()));
    finish(FAILED)
}
