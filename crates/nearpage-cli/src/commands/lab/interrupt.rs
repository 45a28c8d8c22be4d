//! Ctrl-C: what was finished is printed, and what was not is named.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use super::output::Output;
use crate::terminal;
use nearpage_lab::Report;

/// As shells do for a signal: 128 and its number.
const EXIT_CODE: i32 = 128 + SIGINT;

/// Scenarios that are done, and those that are not yet.
#[derive(Default)]
pub(super) struct Work {
    pub(super) reports: Vec<Report>,
    pub(super) left: Vec<String>,
}

/// Shared with whoever waits for the signal.
pub(super) type Shared = Arc<Mutex<Work>>;

/// From now on Ctrl-C prints what is done and ends the process. Nothing is left behind: a run only computes.
pub(super) fn watch(work: &Shared, output: Arc<Output>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT])?;
    let work = Arc::clone(work);
    thread::Builder::new().name("interrupt".into()).spawn(move || {
        if signals.forever().next().is_some() {
            end(&work.lock().unwrap_or_else(PoisonError::into_inner), &output);
        }
    })?;
    Ok(())
}

fn end(work: &Work, output: &Output) {
    // Text was printed scenario by scenario. An output that is gone does not matter any more.
    let _ = output.end(&work.reports);
    let names: Vec<&str> = work.reports.iter().map(|report| &*report.name).collect();
    let finished = if names.is_empty() { "nothing".into() } else { names.join(", ") };
    let left = work.left.join(", ");
    terminal::error(format_args!("interrupted. Finished: {finished}; not finished: {left}"));
    std::process::exit(EXIT_CODE);
}
