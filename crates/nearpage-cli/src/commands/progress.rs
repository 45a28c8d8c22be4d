//! How far long work is: a bar on standard error, where [`terminal`] shows it.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearpage_machine::escaped;
use nearpage_machine::work::Observer;

use crate::terminal;

/// Work that takes less has no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar for one piece of work, cleared when it is dropped. It has no thread of its own that would take time away, unless it
/// [tells](Bar::telling) of work whose steps are long.
pub(super) struct Bar {
    bar: ProgressBar,
    begun: Instant,
    /// Ends the thread of one that tells, when it is dropped.
    _told: Option<Sender<()>>,
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

    /// A bar that tells of `runs` of so many pages each, before the first of them is done too: on a terminal it moves, and elsewhere lines
    /// say how far the work is.
    pub(super) fn telling(name: &str, runs: usize, pages: u64) -> Self {
        let mut of = Self::of(name, "runs");
        let (bar, begun, name) = (of.bar.clone(), of.begun, name.to_owned());
        bar.set_length(runs as u64);
        let (told, ended) = mpsc::channel();
        let tell = move || {
            let mut patience = TOLD_AFTER;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(patience) {
                let since = begun.elapsed();
                let all = bar.length().unwrap_or(0);
                if terminal::is_hidden() {
                    terminal::note(told_line(&name, bar.position(), all, pages, since));
                    patience = TOLD_EVERY;
                } else {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(Duration::from_secs(1));
                    return;
                }
            }
        };
        // Without a thread the work goes on in silence.
        of._told = thread::Builder::new().spawn(tell).ok().map(|_| told);
        of
    }

    fn with(name: &str, position: &str) -> Self {
        let template = format!("{{msg}} {{bar:40}} {position}, {{eta}} left");
        let style = ProgressStyle::with_template(&template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::hidden());
        let bar = bar.with_style(style).with_message(escaped(name).into_owned());
        Self { bar, begun: Instant::now(), _told: None }
    }
}

/// Work that takes as long tells of itself, and then again each time that so much has gone by.
const TOLD_AFTER: Duration = Duration::from_secs(2);
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Pages that an idle CPU simulates in a second: the fewest and the most that loads came to on a machine of 192 CPUs.
const PAGES_A_SECOND: [f64; 2] = [0.6e6, 6e6];

/// How far it is, and how long it may take.
fn told_line(name: &str, done: u64, runs: u64, pages: u64, since: Duration) -> String {
    let millions = pages as f64 / 1e6;
    let left = match done {
        0 => {
            let [most, least] = PAGES_A_SECOND.map(|rate| (pages as f64 / rate).ceil());
            format!(
                "a run with all its seeds simulates {millions:.1} million pages, about: {least:.0} to {:.0} s on an idle CPU",
                most.max(2.0)
            )
        }
        _ => format!(
            "{:.0} s left, about",
            since.as_secs_f64() / done as f64 * runs.saturating_sub(done) as f64
        ),
    };
    format!("{name}: {done} of {runs} runs are done after {:.0} s; {left}", since.as_secs_f64())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_says_how_far_it_is() {
        let line =
            |done, seconds| told_line("exit", done, 4, 32_000_000, Duration::from_secs(seconds));
        assert_eq!(
            line(0, 2),
            "exit: 0 of 4 runs are done after 2 s; a run with all its seeds simulates 32.0 million pages, about: 6 to 54 s on an idle CPU"
        );
        assert_eq!(line(1, 30), "exit: 1 of 4 runs are done after 30 s; 90 s left, about");
    }
}
