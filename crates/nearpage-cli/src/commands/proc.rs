//! `nearpage proc`: the figures of a process's allocator as a tree of files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nearpage_machine::shown;
use nearpage_watch::{CopyError, ProcessCopy, ProcessTree};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::{CommandError, watched};
use crate::terminal;

/// Write the figures of a process's allocator into a folder, as files of /proc and /sys that other tools read.
///
/// The process must serve them: a program that calls serve_stats, or any program under the preloaded malloc, with
/// NEARPAGE_STATS=PATH.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct ProcArgs {
    /// The process by its id, or the path of its socket
    #[arg(value_name = "PID|SOCKET")]
    process: String,

    /// The folder: made if it is missing, else empty or of an earlier copy
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Write the files anew after each interval, until Ctrl-C or the end of the process
    #[arg(short, long, value_name = "SECONDS", value_parser = watched::delay)]
    every: Option<Duration>,
}

const AFTER_HELP: &str = "\
Exit status: 0 written, or ended by Ctrl-C, 1 a file could not be written, or the process ended, 2 wrong usage, or a
process that cannot be read.

Files: proc/zoneinfo, buddyinfo, pagetypeinfo, vmstat, meminfo, slabinfo (where there are caches), sys/vm/*;
sys/devices/system/node/* with cpulist, distance, meminfo and numastat of each node, sys/devices/system/cpu/*;
nearpage/memory.json and nearpage/fallbacks. Each is replaced in one step.

Examples:
  nearpage proc 4711 /tmp/tree
  nearpage doctor --sysroot /tmp/tree
  prometheus-node-exporter --path.procfs=/tmp/tree/proc --path.sysfs=/tmp/tree/sys";

/// The tree was not written.
#[derive(Debug, thiserror::Error)]
pub enum ProcFailure {
    /// Not at all, or not to its end.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signals(#[source] io::Error),
    /// It ended while the tree was kept up to date.
    #[error("the process has ended: {0}; the files are those of its last moment")]
    Ended(#[source] CopyError),
}

impl ProcFailure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            ProcFailure::Copy(CopyError::Write { .. })
            | ProcFailure::Ended(_)
            | ProcFailure::Signals(_) => 1,
            ProcFailure::Copy(_) => 2,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// The process cannot be read, or a file cannot be written.
pub fn run(arguments: &ProcArgs) -> Result<(), CommandError> {
    let process = ProcessTree::open(&arguments.process)?;
    let copy = ProcessCopy::new(process, &arguments.folder).map_err(ProcFailure::from)?;
    let files = copy.write().map_err(ProcFailure::from)?;
    terminal::note(format_args!("{files} files in {}", shown(&arguments.folder)));
    let Some(interval) = arguments.every else { return Ok(()) };
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, stops.clone()).map_err(ProcFailure::Signals)?;
    }
    let mut next = Instant::now() + interval;
    while !stops.load(Ordering::Relaxed) {
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            thread::sleep(left.min(Duration::from_millis(100)));
            continue;
        }
        next = Instant::now() + interval;
        match copy.write() {
            Ok(_) => {}
            Err(error @ CopyError::Write { .. }) => return Err(ProcFailure::Copy(error).into()),
            Err(error) => return Err(ProcFailure::Ended(error).into()),
        }
    }
    Ok(())
}
