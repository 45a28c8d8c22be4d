//! The seam: what a kernel gives.

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use nearpage::platform::{RuleSet, Shortage};
use nearpage::{CpuId, FreeError, Gfp, PageCount, Pfn};
use nearpage_pagelock::{PageLockError, Parked, ParkedThread};
use nearpage_slab::ObjectError;

/// What [`Kernel::interrupts_off`] found, in the kernel's own bits: the flags of the processor, or how deep interrupts were
/// off already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupts(pub usize);

/// A kernel, as far as its allocator asks it for something. All functions stand for the CPU that calls them, so the trait
/// has no value: a kernel implements it for an empty type.
///
/// # Safety
///
/// * [`this_cpu`](Self::this_cpu) is the number of the CPU that runs, and no two CPUs have the same.
/// * Between [`interrupts_off`](Self::interrupts_off) and [`interrupts_restore`](Self::interrupts_restore) nothing else runs on
///   this CPU, but for what cannot be masked (NMI, panic), which uses only calls that never
///   wait; and the thread stays on its CPU.
/// * [`phys_to_virt`](Self::phys_to_virt) gives for each byte of memory that was handed to this crate an address where it can
///   be read and written, and [`virt_to_phys`](Self::virt_to_phys) the way back.
/// * Both are the same function of their argument for as long as the kernel runs.
///
/// A kernel that breaks these hands one page out twice.
pub unsafe trait Kernel: 'static {
    /// The rules: nearpage's own ([`Places`](nearpage::rules::Places)) or [`Linux`](nearpage::rules::Linux)'s. Code for others is
    /// not compiled, and an allocator refuses their models. [`ByModel`](nearpage::rules::ByModel) accepts every model.
    type Rules: RuleSet;
    /// Log2 of the page size in bytes.
    const PAGE_SHIFT: u32 = 12;
    /// Whether each free is one atomic exchange, so that two frees of one page in the same instant cannot both pass, and whether
    /// an object of the heap that is freed twice is found at once: otherwise when the second one goes back to its slab, if at all.
    const HARDENED: bool = false;
    /// The flags of the heap's requests. `GFP_ATOMIC` never waits, so that interrupt handlers may use the heap, and may go
    /// below the watermark that others leave alone.
    const HEAP_GFP: Gfp = Gfp::ATOMIC;
    /// Whether a waiter of a page lock may sleep ([`park`](Self::park)); otherwise it spins.
    const PARKS: bool = false;

    /// The CPU that runs this: its place in [`Machine::cpus`](crate::firmware::Machine::cpus). One that the machine does not
    /// have may do all that others do, and has no pagesets: each of its pages comes from a zone.
    fn this_cpu() -> CpuId;

    /// Switches interrupts off on this CPU, and says how they were.
    fn interrupts_off() -> Interrupts;

    /// Brings interrupts back as they were: calls nest.
    fn interrupts_restore(before: Interrupts);

    /// Time since any moment, never less than before: waits with a deadline and the tuning of caches use it. Coarse will
    /// do; it is read on slow paths only.
    fn now_ns() -> u64;

    /// Where physical memory is mapped.
    fn phys_to_virt(address: u64) -> *mut u8;

    /// The way back. The default fits a kernel that maps all memory at one offset.
    #[inline]
    fn virt_to_phys(address: *mut u8) -> u64 {
        (address.addr() as u64).wrapping_sub(Self::phys_to_virt(0).addr() as u64)
    }

    /// Passes a moment while another CPU holds a lock.
    #[inline]
    fn pause() {
        core::hint::spin_loop();
    }

    /// The calling thread, for [`unpark`](Self::unpark), where [`PARKS`](Self::PARKS).
    fn this_thread() -> ParkedThread {
        ParkedThread::default()
    }

    /// Lets the calling thread sleep while `word` is 0: until it is unparked, or for any shorter time. The word is written
    /// before the thread is unparked, so a kernel looks at it once more after it has taken the thread off its CPU.
    fn park(_word: &AtomicU32, _timeout: Option<Duration>) -> Parked {
        Self::pause();
        Parked::Awake
    }

    /// Wakes a thread, if it sleeps: for no reason, if it does not any more.
    fn unpark(_thread: ParkedThread) {}

    /// Memory ran low: wakes whoever gives memory back in the background. Returns at once.
    fn wake_reclaim(_shortage: Shortage) {}

    /// Memory is out, and the request may wait: gives memory back, and says how many pages.
    fn reclaim(_shortage: Shortage) -> PageCount {
        PageCount(0)
    }

    /// Nothing helped: the last resort. Says whether something was freed.
    fn out_of_memory(_shortage: Shortage) -> bool {
        false
    }

    /// A free of pages was refused; nothing was changed. It may come from an interrupt handler.
    fn misuse(_error: &FreeError) {}

    /// A free of an object was refused; nothing was changed.
    fn misuse_of_object(_error: &ObjectError) {}

    /// An unlock of a page was refused; nothing was changed.
    fn lock_misuse(_error: &PageLockError) {}

    /// Rules of locks were broken ([`LockFault`](crate::LockFault)): this CPU would wait for ever, or two CPUs may one day
    /// wait for each other. Called where locks are checked only, and not expected to return.
    fn lock_fault(fault: &crate::LockFault) {
        panic!("{fault}");
    }
}

/// Where a frame of `K`'s memory is mapped.
#[inline]
pub fn page_address<K: Kernel>(page: Pfn) -> *mut u8 {
    K::phys_to_virt(page.0 << K::PAGE_SHIFT)
}

/// Interrupts are off on this CPU until this is dropped. A guard stays on its CPU: it is neither `Send` nor `Sync`.
pub struct InterruptsOff<K: Kernel> {
    before: Interrupts,
    stays: core::marker::PhantomData<*const K>,
}

impl<K: Kernel> InterruptsOff<K> {
    /// Switches them off.
    #[inline(always)]
    pub fn new() -> Self {
        Self { before: K::interrupts_off(), stays: core::marker::PhantomData }
    }

    /// The CPU that runs this, and goes on to.
    #[inline(always)]
    pub fn cpu(&self) -> CpuId {
        K::this_cpu()
    }
}

impl<K: Kernel> Default for InterruptsOff<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Kernel> Drop for InterruptsOff<K> {
    #[inline(always)]
    fn drop(&mut self) {
        K::interrupts_restore(self.before);
    }
}

impl<K: Kernel> core::fmt::Debug for InterruptsOff<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InterruptsOff").field("before", &self.before).finish()
    }
}
