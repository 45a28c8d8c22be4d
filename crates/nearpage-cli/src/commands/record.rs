//! `nearpage record`: what the kernel's page allocator does while a command runs, as a bundle for `nearpage replay`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use nearpage_machine::shown;

use super::CommandError;
use crate::terminal;
use nearpage_trace::record::{
    Ended, EventChoice, Inbox, Output, Program, Progress, RecordError, Recorded, Recorder, SCRIPT,
};

/// Record what the page allocator of this machine does while a command runs.
///
/// Needs root and tracefs. The bundle is what `nearpage replay`, `nearpage verify` and `nearpage topo --bundle` read.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct RecordArgs {
    /// The bundle [default: nearpage-CMD.tar.zst in this folder, with a number if there is one]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Record the slab, too: ten times as many events
    #[arg(long)]
    slab: bool,

    /// Record contention of locks, too
    #[arg(long)]
    lock: bool,

    /// End the command after this time: 500ms, 10s, 2m, 1h
    #[arg(long, value_name = "T", value_parser = duration)]
    duration: Option<Duration>,

    /// Print a sh script that does the same, for machines without nearpage
    #[arg(long, exclusive = true)]
    print_script: bool,

    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "print_script")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
What is recorded: events of page allocation, free, refills, drains, fragmentation, tasks; bulk allocation by
kprobes where the kernel has them; all in a trace instance of its own, which is removed at the end, also after
Ctrl-C. Captures of /proc and /sys before the command, at its end and a second later; zoneinfo every 0.5 s. The
buffers take up to 1/32 of memory; when one is full, later events are lost, counted and said.

The bundle holds names of tasks, the kernel's command line and log, addresses of the kernel, and the first 64 KiB
that the command printed, which go to cmd.txt instead of the terminal. Its input is empty.

Ctrl-C, or the end of --duration: the command and what it started are asked to end (SIGTERM), after 5 s or a second
Ctrl-C they are killed; the bundle holds what happened until then. Ctrl-C while the bundle is written gives it up.

Exit status: that of the command, 128 + N if signal N ended it or the recorder, 0 after --duration; before anything
is recorded 2 for wrong usage or a machine that does not allow it; 1 if a file could not be read or written.";

/// A recording that failed, or was made of a command that failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordFailure {
    /// There is no bundle.
    #[error(transparent)]
    Refused(#[from] RecordError),
    /// There is one.
    #[error("the command ended with exit code {0}; the bundle is whole")]
    Command(i32),
    /// There is one of a part.
    #[error("interrupted by signal {0}; the bundle holds what happened until then")]
    Interrupted(i32),
}

impl RecordFailure {
    pub(super) fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Refused(RecordError::File { .. } | RecordError::Setup(_)) => 1,
            Self::Refused(RecordError::Abandoned) => 130,
            Self::Refused(_) => 2,
            Self::Command(code) => *code,
            Self::Interrupted(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(1)
    }
}

pub(super) fn run(arguments: &RecordArgs) -> Result<(), CommandError> {
    if arguments.print_script {
        return super::print(SCRIPT);
    }
    let program = Program::find(&arguments.command).map_err(RecordFailure::from)?;
    let output = match &arguments.output {
        Some(path) => Output::claim(path),
        None => Output::claim_new(&program.name()),
    };
    let output = output.map_err(RecordFailure::from)?;
    let path = output.path().to_path_buf();
    let bar = terminal::spinner();
    let mut recorder = Recorder {
        program,
        events: EventChoice { slab: arguments.slab, lock: arguments.lock },
        duration: arguments.duration,
        inbox: Inbox::open().map_err(RecordFailure::from)?,
        progress: &mut |progress| show(&bar, progress),
    };
    let recorded = recorder.record(output);
    bar.finish_and_clear();
    let recorded = recorded.map_err(RecordFailure::from)?;
    super::print(&summary(&path, &recorded))?;
    tell_failure(&recorded)
}

fn summary(path: &Path, recorded: &Recorded) -> String {
    let Recorded { events, lost, samples, .. } = *recorded;
    let lost = match lost {
        0 => "none lost".into(),
        lost => {
            format!("{lost} LOST: record less, a shorter time or without --slab and --lock")
        }
    };
    let kilobytes = recorded.bundle_bytes.div_ceil(1000);
    let path = shown(path);
    format!(
        "{path}: {kilobytes} kB, {events} events, {lost}; {samples} samples\nnext: nearpage replay {path}\n"
    )
}

/// The lines that a command printed last are shown if it failed: they say why.
const LINES_SHOWN: usize = 10;

fn tell_failure(recorded: &Recorded) -> Result<(), CommandError> {
    match recorded.ended {
        Ended::Interrupted(signal) => Err(RecordFailure::Interrupted(signal).into()),
        Ended::ByItself if recorded.exit_code != 0 => {
            let printed = String::from_utf8_lossy(&recorded.printed);
            let lines: Vec<&str> = printed.lines().collect();
            for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
                eprintln!("cmd.txt: {line}");
            }
            Err(RecordFailure::Command(recorded.exit_code).into())
        }
        Ended::ByItself | Ended::AfterDuration => Ok(()),
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    const STEP_BYTES: u64 = 1 << 20;
    match progress {
        Progress::Mounted => {
            bar.suspend(|| terminal::note("mounted tracefs at /sys/kernel/tracing; it stays"));
        }
        Progress::Running(time, samples) => {
            let seconds = time.as_secs_f64();
            bar.set_message(format!(
                "recording: {seconds:.1} s, {samples} samples; Ctrl-C ends it"
            ));
        }
        Progress::Copying(bytes) if bytes / STEP_BYTES > bar.position() => {
            bar.set_position(bytes / STEP_BYTES);
            bar.set_message(format!("writing the trace: {} MiB of text", bytes / STEP_BYTES));
        }
        Progress::Copying(_) => {}
    }
}

/// Reads `1.5s`.
fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let expected = "expected a number above 0 and ms, s, m or h, such as 500ms, 10s or 1.5h";
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = number.parse::<f64>().map_err(|_| expected)?;
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, seconds) = unit.ok_or(expected)?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(expected.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let ms = |text: &str| duration(text).unwrap().as_millis();
        assert_eq!(
            [ms("500ms"), ms("10s"), ms("1.5m"), ms("1h")],
            [500, 10_000, 90_000, 3_600_000]
        );
        for wrong in ["", "10", "s", "0s", "-1s", "1d", "1.2.3s", "1 s", "99999999999999999999h"] {
            assert!(duration(wrong).unwrap_err().contains("500ms"), "{wrong}");
        }
    }
}
