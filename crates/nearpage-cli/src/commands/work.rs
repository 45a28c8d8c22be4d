//! Long work on a terminal: a bar on standard error, and Ctrl-C.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearpage_machine::work::Observer;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// As shells do for a signal: 128 and its number.
pub(super) const INTERRUPTED: u8 = 128 + SIGINT as u8;

/// Work that takes less has no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Watches long work for a user: shows how far it is, and stops it at Ctrl-C.
pub(super) struct Watched {
    bar: ProgressBar,
    begun: Instant,
    is_interrupted: Arc<AtomicBool>,
}

impl Watched {
    /// Begins. From now on Ctrl-C asks the work to stop; the second one ends the process at once.
    ///
    /// # Errors
    ///
    /// The kernel does not let signals be caught.
    pub(super) fn begin(what: &str) -> io::Result<Watched> {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        // In this order: the first Ctrl-C finds the flag unset, and sets it.
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), is_interrupted.clone())?;
        flag::register(SIGINT, is_interrupted.clone())?;
        let style = ProgressStyle::with_template("{msg} {bar:40} {percent} %, {eta} left");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let bar = bar.with_style(style).with_message(what.to_owned());
        Ok(Watched { bar, begun: Instant::now(), is_interrupted })
    }

    /// Ends: the bar is gone.
    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Watched {
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()> {
        if self.bar.is_hidden() && self.begun.elapsed() >= PATIENCE && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(all);
        self.bar.set_position(done);
        match self.is_interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
