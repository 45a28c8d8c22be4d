//! Rings beside naive lists, with sequences aborted by a signal handler that plays the kernel.

mod emulation;
#[cfg(target_arch = "x86_64")]
mod interrupted;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nearpage::CpuId;
use nearpage::testing::storage::check_storage;

use emulation::{Interruption, Rseq};

/// Sends signals to the calling thread while `work` runs, as fast as they are taken.
fn under_signals<R>(signal: libc::c_int, work: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    // SAFETY: has no preconditions.
    let me = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one before it ends.
                unsafe { libc::pthread_kill(me, signal) };
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Where the kernel has no restartable sequences (an emulator of another architecture), this is what shows
/// that an aborted one starts over.
#[test]
fn aborted_sequences_start_over() {
    let (cpu, signal) = (CpuId(2), libc::SIGUSR2);
    let rseq = Rseq::new(cpu);
    let storage = rseq.storage();
    let interruption = Interruption {
        rseq: &rseq,
        signals_before: Cell::new(0),
        meanwhile: &|| {},
        interrupted: Cell::new(0),
        aborted: Cell::new(0),
    };
    // Chance decides when signals come, so go on until enough of them have met a sequence.
    for seed in 0..2000 {
        let conforms = interruption.during(signal, || {
            under_signals(signal, || check_storage(&storage, cpu, seed, 20_000))
        });
        if let Err(difference) = conforms {
            panic!("{difference}; seed {seed}");
        }
        if interruption.aborted.get() >= 20 {
            return;
        }
    }
    panic!(
        "{} of {} signals met a sequence",
        interruption.aborted.get(),
        interruption.interrupted.get()
    );
}
