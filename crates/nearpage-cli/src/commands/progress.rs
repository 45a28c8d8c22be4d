//! How far long work is: a bar on standard error, where [`terminal`] shows it.

use std::ops::ControlFlow;

use indicatif::{ProgressBar, ProgressStyle};
use nearpage_machine::work::Observer;

use crate::terminal;

/// A bar for one piece of work, cleared when it is dropped. It has no thread of its own that would take time away.
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// A bar behind a name; `unit` is what the work's steps are called.
    pub(super) fn of(name: &str, unit: &str) -> Self {
        if terminal::is_hidden() {
            return Self(ProgressBar::hidden());
        }
        let template = format!("{{msg}} {{bar:40}} {{pos}}/{{len}} {unit}, {{eta}} left");
        let style = ProgressStyle::with_template(&template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(1).with_style(style).with_message(name.to_owned()))
    }
}

impl Observer for Bar {
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()> {
        self.0.set_length(all);
        self.0.set_position(done);
        ControlFlow::Continue(())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
