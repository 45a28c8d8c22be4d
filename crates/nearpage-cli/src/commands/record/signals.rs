//! Signals that end a recording.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use nearpage_trace::record::Control;
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

/// The signal that came last.
#[derive(Clone, Debug, Default)]
pub(super) struct LastSignal(Arc<AtomicI32>);

impl LastSignal {
    /// Its number, if one came.
    pub(super) fn get(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }
}

/// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the recording, and do not end this process. SIGABRT, also that of a
/// panic, ends it and leaves nothing in the kernel.
///
/// # Errors
///
/// The kernel does not allow it.
pub(super) fn watch(control: &Control) -> io::Result<LastSignal> {
    let last = LastSignal::default();
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        let (control, last) = (control.clone(), last.clone());
        let stop = move || {
            last.0.store(signal, Ordering::Relaxed);
            control.stop();
        };
        // SAFETY: the handler stores a number and writes to a descriptor: no allocation, no lock, no panic.
        unsafe { low_level::register(signal, stop)? };
    }
    let control = control.clone();
    let abandon = move || {
        // SAFETY: the next line ends the process; other threads only get errors from files that are closed meanwhile.
        unsafe { control.abandon() };
        let _ = low_level::emulate_default_handler(SIGABRT);
    };
    // SAFETY: both calls of the handler are safe in a handler of a signal, and neither allocates, locks or panics.
    unsafe { low_level::register(SIGABRT, abandon)? };
    Ok(last)
}
