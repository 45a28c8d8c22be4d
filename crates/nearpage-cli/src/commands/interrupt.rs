//! Ctrl-C: long work is asked to stop, and leaves nothing half done.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearpage_machine::work::Observer;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::progress::Bar;

/// As shells do for a signal: 128 and its number.
pub(super) const INTERRUPTED: u8 = 128 + SIGINT as u8;

/// Shows how far long work is, and stops it at Ctrl-C.
pub(super) struct Interruptible {
    bar: Bar,
    is_interrupted: Arc<AtomicBool>,
}

impl Interruptible {
    /// From now on Ctrl-C asks the work to stop; the second one ends the process at once.
    ///
    /// # Errors
    ///
    /// The kernel does not let signals be caught.
    pub(super) fn begin(bar: Bar) -> io::Result<Interruptible> {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        // In this order: the first Ctrl-C finds the flag unset, and sets it.
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), is_interrupted.clone())?;
        flag::register(SIGINT, is_interrupted.clone())?;
        Ok(Interruptible { bar, is_interrupted })
    }
}

impl Observer for Interruptible {
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()> {
        if self.is_interrupted.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        self.bar.progress(done, all)
    }
}
