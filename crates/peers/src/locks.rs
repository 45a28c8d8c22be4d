//! `peers locks`: the lock of a page beside other locks, and many threads that hand pages over.

mod check;
mod contestants;
mod hand_over;
mod measure;
mod report;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;

use crate::machine::Machine;
use crate::timing::Effort;
use crate::workers::Workers;
use hand_over::HandOvers;
use measure::Row;

/// Locks and unlocks a page, beside other locks.
///
/// `lock_pair` is one thread, nobody else wants the lock; `lock_contended` is two threads on one lock, with one
/// addition between lock and unlock. Times are nanoseconds per lock and unlock together; with two threads they are
/// wall time x threads / operations. Medians are over rounds in which all locks take turns. After that, 64
/// threads hand 64 pages over: each holds its page while another thread runs, so that most have to wait in the kernel. In
/// one round of eight they want two pages only.
///
/// The JSON is {"schema": 1, "machine": {...}, "rows": [...], "hand_overs": {...}}. A row has `bench`,
/// `allocator` (whose lock it is), `threads`, `n` (0), `ns_median`, `ns_min`, `ns_max`; as in `pages` there is no
/// `ns_p99`. `hand_overs` has `threads`,
/// `pages`, `locks` (pages locked), `slept` (wake-ups: hand-overs to a thread that slept in the kernel),
/// `handed_over` (of those, to one that had been overtaken five times), `longest_wait_ms`, `seconds`, `rests` (times that
/// all threads came to rest, so that no wake-up can have been lost before), `lost` (threads that were never woken). With --check, "checks" has one verdict per promise.
#[derive(Args)]
pub struct LocksArguments {
    /// Writes JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Tells which promises hold; the exit status is 1 if one does not.
    #[arg(long)]
    check: bool,
    /// Hand-overs between threads that sleep.
    #[arg(long, default_value_t = hand_over::WANTED, value_name = "N")]
    hand_overs: u64,
}

/// What a run has found.
#[derive(Debug, Serialize)]
pub struct Run {
    machine: Machine,
    rows: Vec<Row>,
    hand_overs: HandOvers,
}

/// Measures, and writes what was found.
///
/// # Errors
///
/// If the benchmark threads cannot be started on CPUs of their own, or the output cannot be written.
pub fn run(arguments: &LocksArguments) -> io::Result<ExitCode> {
    let workers = Workers::start()?;
    let machine = Machine::this();
    let rows = measure::compete(&contestants::all()?, &workers, &Effort::FULL);
    eprintln!("{} hand-overs: a minute or so", HumanCount(arguments.hand_overs));
    let hand_overs = hand_over::run(arguments.hand_overs)?;
    let run = Run { machine, rows, hand_overs };
    let checks = arguments.check.then(|| check::evaluate(&run));
    let mut out = io::stdout().lock();
    match arguments.json {
        true => crate::report::json(&mut out, &run, checks.as_deref())?,
        false => report::text(&mut out, &run, checks.as_deref())?,
    }
    out.flush()?;
    let missed = checks.iter().flatten().any(|verdict| !verdict.ok);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
