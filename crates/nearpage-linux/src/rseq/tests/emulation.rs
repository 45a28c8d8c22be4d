//! The kernel's part in restartable sequences, played by a signal handler: a thread has a `struct rseq`
//! that the kernel does not know, and a signal aborts a sequence where a test wants it.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;

use nearpage::CpuId;

use super::super::{Area, RingStorage};

/// `struct rseq`, `linux/rseq.h`, without what newer kernels append.
#[repr(C, align(32))]
pub struct Rseq {
    cpu_id_start: Cell<u32>,
    cpu_id: Cell<u32>,
    rseq_cs: Cell<u64>,
    flags: u32,
}

/// `struct rseq_cs`.
#[repr(C, align(32))]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    post_commit_offset: u64,
    abort: u64,
}

#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

impl Rseq {
    /// A thread that runs on `cpu`.
    pub fn new(cpu: CpuId) -> Box<Self> {
        let cpu = || Cell::new(cpu.0);
        Box::new(Self { cpu_id_start: cpu(), cpu_id: cpu(), rseq_cs: Cell::new(0), flags: 0 })
    }

    /// Lets the thread run on `cpu` from now on.
    #[cfg(target_arch = "x86_64")]
    pub fn move_to(&self, cpu: CpuId) {
        self.cpu_id_start.set(cpu.0);
        self.cpu_id.set(cpu.0);
    }

    /// The storage of the thread that calls, with this instead of its own `struct rseq`.
    pub fn storage(&self) -> RingStorage {
        let offset = ptr::from_ref(self).addr().wrapping_sub(thread_pointer());
        // SAFETY: for this thread the thread pointer plus the offset is this `struct rseq`, which has a
        // CPU's number; the tests use a storage on one thread only.
        RingStorage::with_area(unsafe { Area::unregistered(offset.cast_signed()) })
    }

    /// What the kernel does to a thread that it interrupts at `pc`, before that goes on: where it goes on.
    ///
    /// # Safety
    /// * `rseq_cs` is 0 or the address of a descriptor, as sequences put it there.
    unsafe fn go_on(&self, pc: u64) -> u64 {
        let descriptor = ptr::with_exposed_provenance::<Descriptor>(self.rseq_cs.take() as usize);
        // SAFETY: as the caller promised.
        let Some(descriptor) = (unsafe { descriptor.as_ref() }) else { return pc };
        assert!((descriptor.version, descriptor.flags) == (0, 0));
        if pc.wrapping_sub(descriptor.start) >= descriptor.post_commit_offset {
            return pc;
        }
        assert!(descriptor.abort.wrapping_sub(descriptor.start) >= descriptor.post_commit_offset);
        let before = ptr::with_exposed_provenance::<u32>(descriptor.abort as usize - 4);
        // SAFETY: an abort handler stands in the program's text, after its signature; text has no alignment
        // on every architecture.
        assert_eq!(unsafe { before.read_unaligned() }, SIGNATURE);
        descriptor.abort
    }
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the x86-64 ABI keeps the thread pointer's own value at its address.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem)) };
    pointer
}

/// What is to happen at a signal to the thread that waits for it.
pub struct Interruption<'a> {
    /// The thread.
    pub rseq: &'a Rseq,
    /// Signals before the one that interrupts.
    pub signals_before: Cell<u32>,
    /// What another thread of the same CPU, or another CPU, does meanwhile.
    pub meanwhile: &'a dyn Fn(),
    /// Times that it has happened.
    pub interrupted: Cell<u32>,
    /// Times that it aborted a sequence.
    pub aborted: Cell<u32>,
}

thread_local! {
    static INTERRUPTION: Cell<*const Interruption<'static>> = const { Cell::new(ptr::null()) };
}

impl Interruption<'_> {
    /// Runs `work` with signals of this number to this thread interrupting it as said.
    pub fn during<R>(&self, signal: libc::c_int, work: impl FnOnce() -> R) -> R {
        handle(signal);
        INTERRUPTION.set(ptr::from_ref(self).cast());
        let result = work();
        INTERRUPTION.set(ptr::null());
        result
    }
}

fn handle(signal: libc::c_int) {
    static SET: [Once; 65] = [const { Once::new() }; 65];
    SET[signal as usize].call_once(|| {
        // SAFETY: the handler touches nothing but the thread's own interruption and context. All zeroes is an
        // empty mask and no flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
        }
    });
}

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `during` put it there, and is still running.
    let Some(interruption) = (unsafe { INTERRUPTION.get().as_ref() }) else { return };
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context, ours to change.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let before = interruption.signals_before.get();
    interruption.signals_before.set(before.saturating_sub(1));
    if before > 0 {
        return;
    }
    let pc = program_counter(context);
    // SAFETY: the sequences of this thread, and nobody else, write its `rseq_cs`.
    let next = unsafe { interruption.rseq.go_on(*pc as u64) } as _;
    add_one(&interruption.interrupted);
    if next != *pc {
        add_one(&interruption.aborted);
        *pc = next;
    }
    (interruption.meanwhile)();
    #[cfg(target_arch = "x86_64")]
    end_steps(context);
}

fn add_one(count: &Cell<u32>) {
    count.set(count.get() + 1);
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut libc::greg_t {
    &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut libc::c_ulonglong {
    &mut context.uc_mcontext.pc
}

/// The trap flag: a `SIGTRAP` after each instruction.
#[cfg(target_arch = "x86_64")]
const TRAP_FLAG: i64 = 1 << 8;

#[cfg(target_arch = "x86_64")]
fn end_steps(context: &mut libc::ucontext_t) {
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
}

/// Runs `work` with a `SIGTRAP` after each instruction, until the interruption has happened.
#[cfg(target_arch = "x86_64")]
pub fn in_steps<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: sets a flag that makes the kernel send signals, which are handled.
    unsafe {
        core::arch::asm!("pushfq", "or dword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG);
    }
    let result = work();
    // SAFETY: clears it.
    unsafe {
        core::arch::asm!("pushfq", "and dword ptr [rsp], ~{flag}", "popfq", flag = const TRAP_FLAG);
    }
    result
}
