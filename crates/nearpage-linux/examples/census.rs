//! Allocations and frees of one page and of one object, locks and unlocks of a page, for valgrind to count their
//! instructions: see `cargo xtask census`.
//!
//! `census VARIANT OPERATIONS`, where the variant is `rseq`, `hardened` or `locked`.
//!
//! valgrind registers no restartable sequences, so this thread brings a `struct rseq` that the kernel has
//! not seen. The sequences run on it all the same; nothing aborts them, and nothing need: there is one
//! thread, and it stays on its CPU. On the locked storage valgrind's `sched_getcpu` is a system call, which
//! counts as one instruction.

use std::process::ExitCode;
use std::ptr::NonNull;

use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_linux::internals::Area;
use nearpage_linux::{KmemCache, Memory, MemoryBuilder, PageHandle};
use nearpage_slab::{CacheOptions, SlabConfig};

const REQUEST: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);

/// What is between two marks of the first kind; not a page is `u64::MAX`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_alloc(memory: &Memory) -> u64 {
    memory.alloc_frames(REQUEST).map_or(u64::MAX, |pfn| pfn.0)
}

/// What is between two marks of the second kind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_free(memory: &Memory, page: u64) {
    // SAFETY: `main` passes on what `census_alloc` just gave it. A refusal is counted.
    let _ = unsafe { memory.free_frames(Pfn(page), REQUEST.order) };
}

/// What is between two marks of the third kind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_object_alloc(cache: &KmemCache<'_>) -> *mut u8 {
    cache.alloc(Gfp::KERNEL).map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

/// What is between two marks of the fourth kind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_object_free(cache: &KmemCache<'_>, object: NonNull<u8>) {
    // SAFETY: `main` passes on what `census_object_alloc` just gave it. A refusal is counted.
    let _ = unsafe { cache.free(object) };
}

/// What is between two marks of the fifth kind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_lock(page: &PageHandle<'_>) {
    let _ = page.lock();
}

/// What is between two marks of the sixth kind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_unlock(page: &PageHandle<'_>) {
    // SAFETY: `main` has just locked the page. A refusal is counted.
    let _ = unsafe { page.unlock() };
}

/// What a mark itself costs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn census_nothing() {
    // SAFETY: no instruction at all; it keeps the optimizer from dropping the call.
    unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) };
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [variant, operations] = arguments.as_slice() else { return usage() };
    let Ok(operations) = operations.parse::<u64>() else { return usage() };
    let cpu = stay_here();
    let builder = Memory::builder().bytes_per_node(64 << 20);
    let Some(builder) = as_variant(builder, variant, cpu) else { return usage() };
    let memory = match builder.build() {
        Ok(memory) => memory,
        Err(error) => {
            eprintln!("census: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = count(&memory, operations) {
        eprintln!("census: {error}");
        return ExitCode::FAILURE;
    }
    println!("{operations} operations, {} frees refused", memory.misuses());
    if memory.misuses() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Passes all marks so often.
fn count(memory: &Memory, operations: u64) -> Result<(), Box<dyn std::error::Error>> {
    let slab = memory.slab(SlabConfig::default())?;
    let cache = slab.create(CacheOptions::new("census", 64))?;
    let locked = memory.alloc(REQUEST)?;
    let handle = memory.page_handle(locked.pfn())?;
    // The first page comes from the zone, and the first object from a new slab; those after them from this CPU's own.
    drop(memory.alloc(REQUEST));
    let first = cache.alloc(Gfp::KERNEL)?;
    // SAFETY: just allocated, and freed once.
    unsafe { cache.free(first) }?;
    for _ in 0..operations {
        let page = census_alloc(memory);
        census_free(memory, page);
        let object = NonNull::new(census_object_alloc(&cache)).ok_or("an object was refused")?;
        census_object_free(&cache, object);
        census_lock(&handle);
        census_unlock(&handle);
        census_nothing();
    }
    Ok(())
}

fn usage() -> ExitCode {
    eprintln!("usage: census rseq|hardened|locked OPERATIONS");
    ExitCode::from(2)
}

fn as_variant(builder: MemoryBuilder, variant: &str, cpu: u32) -> Option<MemoryBuilder> {
    match variant {
        "rseq" => Some(builder.rseq_area(own_area(cpu))),
        "hardened" => Some(builder.rseq_area(own_area(cpu)).hardened(true)),
        "locked" => Some(builder.use_rseq(false)),
        _ => None,
    }
}

/// Pins this thread to the CPU that it runs on.
fn stay_here() -> u32 {
    // SAFETY: sched_getcpu reads; an empty set is made of zeroes; the set lies in this frame. If the call
    // fails, the thread may move, and the counts get larger, not wrong.
    unsafe {
        let cpu = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        cpu as u32
    }
}

/// `struct rseq` of `linux/rseq.h`, 6.3.
#[repr(C, align(32))]
#[derive(Default)]
struct Rseq {
    cpu_id_start: u32,
    cpu_id: u32,
    rseq_cs: u64,
    flags: u32,
    node_id: u32,
    mm_cid: u32,
}

/// An area with a `struct rseq` that lives as long as the process.
fn own_area(cpu: u32) -> Area {
    let rseq = Box::leak(Box::new(Rseq { cpu_id_start: cpu, cpu_id: cpu, ..Rseq::default() }));
    let offset = std::ptr::from_mut(rseq).addr().wrapping_sub(thread_pointer());
    // SAFETY: this is the only thread that will use the storage; its thread pointer plus the offset is the
    // struct, which is leaked, and its CPU is the one that the thread was pinned to.
    unsafe { Area::unregistered(offset as isize) }
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of the thread control block is its own address (ELF TLS ABI for x86-64).
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the register may be read at any level of privilege.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem));
    }
    pointer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn thread_pointer() -> usize {
    0
}
