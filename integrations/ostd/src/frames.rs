//! nearpage behind OSTD's `GlobalFrameAllocator`.
//!
//! OSTD adds all memory by `add_free_memory` before it allocates; what came so far becomes the machine at the first allocation.

use core::alloc::Layout;
use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use nearpage::{Config, CpuId, FreeError, Gfp, Order, PageCount, Pfn, PfnRange, Request};
use nearpage_kernel::boot::{ADDRESS_MAP, EarlyError, EarlyMemory};
use nearpage_kernel::firmware::{Machine, Physical, acpi};
use nearpage_kernel::{Interrupts, Kernel, Pages, TicketLock};
use ostd::mm::{PAGE_SIZE, Paddr, frame::GlobalFrameAllocator};

/// Where OSTD maps all physical memory on x86-64 (`ostd::mm::kspace`, which keeps it to itself).
const LINEAR_MAPPING: u64 = 0xffff_8000_0000_0000;
const INTERRUPT_FLAG: usize = 1 << 9;

/// OSTD, as nearpage sees it.
pub struct Ostd;

// SAFETY: CPU numbers are OSTD's, the flag is the processor's, and memory is mapped at one offset.
unsafe impl Kernel for Ostd {
    type Rules = nearpage::rules::Places;

    #[inline(always)]
    fn this_cpu() -> CpuId {
        CpuId(u32::from(ostd::cpu::CpuId::current_racy()))
    }

    #[inline(always)]
    fn interrupts_off() -> Interrupts {
        let flags: usize;
        // SAFETY: reads the flags and clears one of them.
        unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        Interrupts(flags)
    }

    #[inline(always)]
    fn interrupts_restore(before: Interrupts) {
        if before.0 & INTERRUPT_FLAG != 0 {
            // SAFETY: they were on.
            unsafe { asm!("sti", options(nostack)) };
        }
    }

    fn now_ns() -> u64 {
        ostd::arch::read_tsc()
    }

    #[inline(always)]
    fn phys_to_virt(address: u64) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut((LINEAR_MAPPING + address) as usize)
    }

    fn misuse(error: &FreeError) {
        panic!("{error}");
    }
}

struct Boot {
    machine: Machine,
    memory: EarlyMemory<64>,
}

static BOOT: TicketLock<Ostd, Boot> =
    TicketLock::new(Boot { machine: Machine::new(), memory: EarlyMemory::new() });
/// What OSTD allocated before there was an allocator lies among so many frames from the first on.
static EARLY_START: AtomicU64 = AtomicU64::new(0);
static EARLY_FRAMES: AtomicU64 = AtomicU64::new(0);
/// A bit for each of them: whether OSTD has it still. A free looks here, since to ask the allocator takes longer.
static EARLY_LEFT: [AtomicU64; EARLY_WORDS] = [const { AtomicU64::new(0) }; EARLY_WORDS];
const EARLY_WORDS: usize = 1024;
/// OSTD does not move frames, and does not tell kinds of them apart: all have the type whose lists frees look at first.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
static PAGES: AtomicPtr<Pages<'static, Ostd>> = AtomicPtr::new(core::ptr::null_mut());

/// What OSTD promises.
const FREED: &str = "OSTD frees what it was given";

/// The allocator.
#[ostd::global_frame_allocator]
static FRAMES: Frames = Frames;

pub struct Frames;

/// nearpage's own allocator, once it is there.
#[inline(always)]
pub fn pages() -> Option<&'static Pages<'static, Ostd>> {
    // SAFETY: `boot` puts it there for ever.
    unsafe { PAGES.load(Ordering::Acquire).as_ref() }
}

/// Frames that came from the memory nearest to the CPU that asked, and those that did not.
pub static NEAR: AtomicU64 = AtomicU64::new(0);
pub static FARTHER: AtomicU64 = AtomicU64::new(0);

/// Counts where a frame came from that this CPU has just allocated.
pub fn note_place(address: Paddr) {
    let Some(pages) = pages() else { return };
    let topology = pages.topology();
    let node = topology.node_of_cpu(Ostd::this_cpu());
    let nearest = node.and_then(|node| pages.memory_node(node));
    let is_near = nearest.is_some() && topology.node_of_pfn(frame(address)) == nearest;
    (if is_near { &NEAR } else { &FARTHER }).fetch_add(1, Ordering::Relaxed);
}

/// Firmware's tables, by the same map.
struct Mapped;

impl Physical for Mapped {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        const MAPPED: u64 = 4 << 30;
        let end = address.checked_add(length as u64)?;
        // SAFETY: the boot page table maps what lies below, and nobody writes to the firmware's tables.
        (address > 0 && end <= MAPPED)
            .then(|| unsafe { core::slice::from_raw_parts(Ostd::phys_to_virt(address), length) })
    }
}

/// Where a BIOS leaves ACPI's root pointer: OSTD does not say where it found it.
fn root_pointer() -> Option<u64> {
    (0xe_0000..0x10_0000).step_by(16).find(|&at| Mapped.bytes(at, 8) == Some(b"RSD PTR "))
}

#[cold]
fn boot() -> Option<&'static Pages<'static, Ostd>> {
    let mut boot = BOOT.lock();
    if let Some(pages) = pages() {
        return Some(pages);
    }
    let Boot { machine, memory } = &mut *boot;
    own_gaps(memory).ok()?;
    let read = root_pointer().is_some_and(|at| acpi::read(&Mapped, at, machine).is_ok());
    if !read {
        (0..ostd::cpu::num_cpus() as u64)
            .try_for_each(|cpu| machine.add_cpu(cpu, 0).map(|_| ()))
            .ok()?;
    }
    // SAFETY: OSTD gives this memory away, and maps it.
    let mut handover = unsafe { memory.begin::<Ostd>(machine, ADDRESS_MAP).ok()? };
    let pages = handover.pages(Config::new()).ok()?;
    handover.finish(pages, u64::MAX).ok()?;
    PAGES.store(core::ptr::from_ref(pages).cast_mut(), Ordering::Release);
    Some(pages)
}

/// What OSTD allocated before this lies in gaps between what it gave, and may be freed later: it is memory, and taken.
fn own_gaps(memory: &mut EarlyMemory<64>) -> Result<(), EarlyError> {
    const FIRST: u64 = 1 << 20;
    /// Others are holes of the machine.
    const LARGEST: u64 = EARLY_WORDS as u64 * 64 * PAGE_SIZE as u64;
    let mut gaps = [(0, 0); 64];
    let mut count = 0;
    let mut end = FIRST;
    for range in memory.ranges().filter(|range| range.start >= FIRST) {
        let first = if count > 0 { gaps[0].0 } else { end };
        if range.start > end && range.start - first <= LARGEST {
            gaps[count] = (end, range.start - end);
            count += 1;
        }
        end = range.end;
    }
    let gaps = &gaps[..count];
    let frames = |&(start, length): &(u64, u64)| {
        start / PAGE_SIZE as u64..(start + length) / PAGE_SIZE as u64
    };
    if let (Some(first), Some(last)) = (gaps.first(), gaps.last()) {
        let first = frames(first).start;
        EARLY_START.store(first, Ordering::Relaxed);
        EARLY_FRAMES.store(frames(last).end - first, Ordering::Relaxed);
    }
    gaps.iter().try_for_each(|gap| {
        frames(gap).for_each(|frame| note_early(frame, true));
        memory.reserve(gap.0, gap.1)?;
        memory.add(gap.0, gap.1)
    })
}

/// Notes whether OSTD has a frame still since before there was an allocator.
fn note_early(frame: u64, is_left: bool) {
    let at = frame.wrapping_sub(EARLY_START.load(Ordering::Relaxed));
    if at < EARLY_FRAMES.load(Ordering::Relaxed) {
        let (word, bit) = (&EARLY_LEFT[at as usize / 64 % EARLY_WORDS], 1 << (at % 64));
        match is_left {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
    }
}

/// Whether OSTD has a frame still since before there was an allocator.
#[inline(always)]
fn is_early(frame: Pfn) -> bool {
    let at = frame.0.wrapping_sub(EARLY_START.load(Ordering::Relaxed));
    at < EARLY_FRAMES.load(Ordering::Relaxed)
        && EARLY_LEFT[at as usize / 64 % EARLY_WORDS].load(Ordering::Relaxed) >> (at % 64) & 1 == 1
}

#[inline(always)]
fn frame(address: usize) -> Pfn {
    Pfn((address / PAGE_SIZE) as u64)
}

impl Frames {
    /// Several frames, each with a life of its own: OSTD frees them in any order and any number of calls.
    #[inline(never)]
    fn alloc_many(pages: &Pages<'static, Ostd>, frames: u64, align: Order) -> Option<Pfn> {
        let order = Order(frames.next_power_of_two().trailing_zeros() as u8).max(align);
        if order > Order::MAX {
            let request = Request::new(Order(0), GFP);
            let range = pages.alloc_contiguous(PageCount(frames), align, request).ok()?;
            pages.split_range(range, Order(0)).ok()?;
            return Some(range.start);
        }
        let block = pages.alloc(Request::new(order, GFP)).ok()?;
        pages.split(block, order, Order(0)).ok()?;
        for rest in frames..order.pages().0 {
            pages.free(block + PageCount(rest), Order(0)).ok()?;
        }
        Some(block)
    }

    /// A free of more than one frame, or of what was allocated before there was an allocator.
    #[inline(never)]
    fn free_many(&self, pages: &Pages<'static, Ostd>, addr: Paddr, size: usize) {
        let (start, count) = (frame(addr), (size / PAGE_SIZE) as u64);
        if is_early(start) {
            return self.add_free_memory(addr, size);
        }
        for frame in 0..count {
            pages.free(start + PageCount(frame), Order(0)).expect(FREED);
        }
    }
}

impl GlobalFrameAllocator for Frames {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let pages = pages().or_else(boot)?;
        let found = if layout.size() == PAGE_SIZE && layout.align() <= PAGE_SIZE {
            pages.alloc(Request::new(Order(0), GFP)).ok()
        } else {
            let align = layout.align().max(PAGE_SIZE) / PAGE_SIZE;
            let align = Order(align.trailing_zeros() as u8);
            Self::alloc_many(pages, (layout.size() / PAGE_SIZE) as u64, align)
        };
        found.map(|frame| frame.0 as usize * PAGE_SIZE)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        let Some(pages) = pages() else { return self.add_free_memory(addr, size) };
        let start = frame(addr);
        if size == PAGE_SIZE && !is_early(start) {
            pages.free(start, Order(0)).expect(FREED);
        } else {
            self.free_many(pages, addr, size);
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        let Some(pages) = pages() else {
            let added = BOOT.lock().memory.add(addr as u64, size as u64);
            return added.expect("there is room for OSTD's ranges");
        };
        let start = frame(addr);
        let range = PfnRange { start, end: Pfn(start.0 + (size / PAGE_SIZE) as u64) };
        // Later on it is what was allocated before, or new.
        if pages.is_online(start) {
            pages.free_range(range).expect("it was allocated");
        } else {
            pages.online(range).expect("it is new");
            (range.start.0..range.end.0).for_each(|frame| note_early(frame, false));
        }
    }
}
