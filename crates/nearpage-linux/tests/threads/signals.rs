//! Signals to threads: each aborts the restartable sequence that it meets.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static ABORTS: AtomicU64 = AtomicU64::new(0);

/// What stands before every abort handler.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(not(target_arch = "x86_64"))]
const SIGNATURE: u32 = 0xd428_bc00;

/// Signals that this process took, and those of them that aborted a sequence.
pub fn counts() -> (u64, u64) {
    (SIGNALS.load(Ordering::Relaxed), ABORTS.load(Ordering::Relaxed))
}

/// Sends a signal to each of `threads` in turn, as fast as can be, until `done`.
///
/// # Safety
/// * The threads do not end before this returns.
pub unsafe fn send_until(done: &AtomicBool, threads: &[libc::pthread_t]) {
    handle();
    while !done.load(Ordering::Relaxed) {
        for &thread in threads {
            // SAFETY: as the caller promised.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        }
    }
}

/// The calling thread, for [`send_until`].
pub fn this_thread() -> libc::pthread_t {
    // SAFETY: has no preconditions.
    unsafe { libc::pthread_self() }
}

fn handle() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        // SAFETY: the handler reads the interrupted context and adds to atomics. All zeroes is an empty mask.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
    });
}

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let pc = program_counter(unsafe { &*context.cast::<libc::ucontext_t>() });
    // A thread whose sequence was aborted is about to run the abort handler.
    if pc % 4096 >= 4 {
        let before = std::ptr::with_exposed_provenance::<u32>(pc - 4);
        // SAFETY: the program counter is in text that can be read, and so are the bytes before it on its page.
        let word = unsafe { before.read_unaligned() };
        ABORTS.fetch_add(u64::from(word == SIGNATURE), Ordering::Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// Nothing is known of sequences here: no program counter looks like an abort handler.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn program_counter(_: &libc::ucontext_t) -> usize {
    0
}
