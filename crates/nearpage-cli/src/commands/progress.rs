//! How far long work is: a bar on standard error, where [`terminal`] shows it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearpage_machine::escaped;
use nearpage_machine::work::Observer;

use crate::terminal;

/// Work that takes less has no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar for one piece of work, cleared when it is dropped. It has no thread of its own that would take time away.
pub(super) struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    /// A bar behind a name; `unit` is what the work's steps are called.
    pub(super) fn of(name: &str, unit: &str) -> Self {
        Self::with(name, &format!("{{pos}}/{{len}} {unit}"))
    }

    /// A bar behind a name, of work whose steps say nothing to a user.
    pub(super) fn percent(name: &str) -> Self {
        Self::with(name, "{percent} %")
    }

    fn with(name: &str, position: &str) -> Self {
        let template = format!("{{msg}} {{bar:40}} {position}, {{eta}} left");
        let style = ProgressStyle::with_template(&template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::hidden());
        let bar = bar.with_style(style).with_message(escaped(name).into_owned());
        Self { bar, begun: Instant::now() }
    }
}

impl Observer for Bar {
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()> {
        let is_due = self.bar.is_hidden() && self.begun.elapsed() >= PATIENCE;
        if is_due && !terminal::is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(all);
        self.bar.set_position(done);
        ControlFlow::Continue(())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
