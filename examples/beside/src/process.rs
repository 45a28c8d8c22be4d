//! A process that plays a kernel: threads are its CPUs, and an array is its memory.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use beside::Byte;
use nearpage::{AddressMap, Config, CpuId};
use nearpage_kernel::boot::EarlyMemory;
use nearpage_kernel::firmware::Machine;
use nearpage_kernel::{Heap, Interrupts, Kernel, Pages};
use nearpage_slab::SlabConfig;

/// Frames of the machine: 512 MiB.
pub const FRAMES: usize = 1 << 17;
/// What each of the other heaps has.
pub const HEAP_BYTES: usize = 16 << 20;
/// Where the machine's memory begins.
const FIRST_BYTE: u64 = 16 << 20;

/// nearpage's heap.
pub static HEAP: Heap<Stub, 4096> = Heap::new();

/// Where byte 0 of the machine would be.
static BASE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static SWITCHES: Cell<u64> = const { Cell::new(0) };
}

/// The kernel that the process plays.
#[derive(Debug)]
pub struct Stub;

// SAFETY: no two threads that work at once are the same CPU, nothing interrupts them in the sense of a kernel, and the
// machine's memory is one array.
unsafe impl Kernel for Stub {
    type Rules = nearpage::rules::Places;
    #[inline(always)]
    fn this_cpu() -> CpuId {
        CpuId(CPU.get())
    }

    #[inline(always)]
    fn interrupts_off() -> Interrupts {
        SWITCHES.set(SWITCHES.get() + 1);
        Interrupts(0)
    }

    #[inline(always)]
    fn interrupts_restore(_before: Interrupts) {}

    fn now_ns() -> u64 {
        crate::now_ns()
    }

    #[inline(always)]
    fn phys_to_virt(address: u64) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(
            BASE.load(Ordering::Relaxed).wrapping_add(address as usize),
        )
    }
}

/// Times that this thread switched interrupts off.
pub fn switches() -> u64 {
    SWITCHES.get()
}

/// From now on, this thread is this CPU, of the machine and where it may of the host.
pub fn run_as(cpu: u32) {
    CPU.set(cpu);
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        // Where the process may not, it runs unpinned.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Memory that is nobody's, for ever.
pub fn memory(bytes: usize) -> &'static mut [Byte] {
    let mut all: Vec<Byte> = Vec::with_capacity(bytes);
    all.resize(bytes, MaybeUninit::new(0));
    all.leak()
}

/// Boots nearpage on the process's machine: one node, two CPUs.
///
/// # Panics
/// If it does not boot.
pub fn boot() -> &'static Pages<'static, Stub> {
    const PAGE: usize = 4096;
    let array = memory(FRAMES * PAGE + PAGE);
    let start = array.as_mut_ptr().expose_provenance().next_multiple_of(PAGE);
    BASE.store(start.wrapping_sub(FIRST_BYTE as usize), Ordering::Relaxed);
    let mut machine = Machine::new();
    for cpu in 0..2 {
        machine.add_cpu(cpu, 0).expect("there is room for two CPUs");
    }
    let mut early = EarlyMemory::<64>::new();
    early.add(FIRST_BYTE, (FRAMES * PAGE) as u64).expect("there is room for a range");
    // SAFETY: the array is nobody else's, and mapped for ever.
    let boot = unsafe { early.begin::<Stub>(&mut machine, AddressMap::Flat) };
    let mut boot = boot.expect("it is a machine");
    let pages = boot.pages(Config::new()).expect("metadata fits");
    let room = |node, bytes| boot.metadata(node, bytes).unwrap_or_default();
    HEAP.start(pages, SlabConfig::default(), room).expect("the heap starts once");
    boot.finish(pages, u64::MAX).expect("memory comes online");
    pages
}
