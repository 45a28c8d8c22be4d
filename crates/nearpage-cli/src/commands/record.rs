//! `nearpage record`: what the kernel's page allocator does while something runs, as a bundle for `nearpage replay`.

mod program;
mod signals;
mod trigger;
mod user;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use nearpage_watch::Mark;
use serde::Serialize;

use super::bench::parse_bytes;
use super::input::is_standard;
use super::{CommandError, print, print_json};
use crate::{sudo, terminal};
use nearpage_trace::record::{
    Contents, Control, Ended, EventChoice, Gauge, Limits, Output, OutputError, Progress,
    RecordError, Recorded, Recorder, SCRIPT, Target,
};
use program::Program;
use trigger::Trigger;
use user::CommandUser;

pub use program::NoProgram;
pub use user::NoUser;

/// Record what the page allocator of this machine does while a command runs.
///
/// Needs root and tracefs. The bundle is what `nearpage replay`, `nearpage verify` and `nearpage topo --bundle` read.
///
/// Without a command: for the time of --duration, or until the process of --pid ends.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct RecordArgs {
    /// The bundle: NAME.tar.zst, NAME.tar.gz or NAME.tar, a folder if it ends in /, or - for standard output [default:
    /// nearpage-CMD.tar.zst in this folder, with a number if there is one]
    #[arg(short, long, value_name = "PATH|-")]
    output: Option<PathBuf>,

    /// Record the slab, too: ten times as many events
    #[arg(long)]
    slab: bool,

    /// Record contention of locks, too
    #[arg(long)]
    lock: bool,

    /// Record the kernel's call chain of each event, too, for nearpage trace summary --by site: each takes several times the bytes, and
    /// rings fill sooner
    #[arg(long, conflicts_with = "redact")]
    stacks: bool,

    /// Tell the cgroup of each task that lives for a second or so, for nearpage trace summary --by cgroup: once a second /proc is looked
    /// through
    #[arg(long, conflicts_with = "redact")]
    cgroups: bool,

    /// End the recording, and the command, after this time: 500ms, 10s, 2m, 1h
    #[arg(long, value_name = "T", value_parser = duration)]
    duration: Option<Duration>,

    /// Memory of each CPU's ring in the kernel, such as 16M [default: up to 128M, all of them 1/32 of memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    buffer: Option<u64>,

    /// The most that the trace may take on disk while it is recorded, such as 4G; later events are lost, and counted
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<u64>,

    /// Keep what happened in the last T, and up to twice as much; the bundle is written at a mark of --on or a signal, or when the
    /// recording ends
    #[arg(long, value_name = "T", value_parser = duration, conflicts_with = "command")]
    last: Option<Duration>,

    /// With --last: marks of nearpage top that end the recording, looked for twice a second; any stands for all
    #[arg(long, value_name = "MARKS", requires = "last", value_delimiter = ',', default_value = "killed,stalled,refusing",
          value_parser = trigger::words())]
    on: Vec<String>,

    /// Record until this process ends, which is not disturbed
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,

    /// Run the command as this user, by name or number [default: who called sudo, else this user]
    #[arg(long, value_name = "USER", requires = "command")]
    user: Option<String>,

    /// Leave out names of tasks, command lines, outputs, logs, times of day and addresses of the kernel
    #[arg(long)]
    redact: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print a sh script that does the same, for machines without nearpage
    #[arg(long, exclusive = true)]
    print_script: bool,

    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
What is recorded: events of page allocation, free, refills, drains, fragmentation, tasks, of the whole machine; bulk
allocation by kprobes where the kernel has them; all in a trace instance of its own, which is removed at the end, also
after Ctrl-C. Captures of /proc and /sys before the command, at its end and a second later; zoneinfo every 0.5 s. Where
/proc/kcore may be read, the kernel's own lists of free pages at the begin and the end (up to two million blocks, 5 s), so
that a replay need not guess; and when each CPU does its once-a-second work, if /proc/kallsyms tells its function.

The kernel keeps the trace in a ring for each CPU. When one is half full, all are taken to a file without a name beside
the bundle (--max-size bounds it); shorter recordings are not disturbed. What a full ring or disk has no room for is
lost, counted and said, and the recording goes on.

With --last T the trace is a window that moves on: every T a capture begins another, and what is older than the one before
is forgotten, on disk too. The bundle begins with the capture before the last and holds the second after the mark.

The bundle holds names of tasks, the kernel's command line and log, addresses of the kernel, and the first 64 KiB
that the command printed, which go to cmd.txt instead of the terminal. Its input is empty. Only the owner may read the
bundle: who called sudo, where that user may make files, else who runs this. --redact keeps what a replay needs: tasks
are numbers, pages lie where they do without KASLR, and a kernel is known by its version alone. Nobody can undo it.

Under sudo, doas and pkexec the command runs as the user who called it, with the environment that was passed on and
that user's HOME, USER, LOGNAME and SHELL; --user root runs it as root. su does not say who called it: name --user. Of
the environment, the command of another --user gets only PATH, TERM, COLORTERM, TZ, LANG, LANGUAGE and LC_*. As another
user than root, it has no terminal.

Ctrl-C, SIGTERM, SIGHUP, SIGQUIT or the end of --duration: the command and what it started are asked to end (SIGTERM),
after 5 s or a second Ctrl-C they are killed; the bundle holds what happened until then. Ctrl-C while the bundle is
written gives it up. SIGABRT leaves no bundle, and nothing in the kernel; what a recorder left that was killed with
SIGKILL, the next one removes.

Examples:
  nearpage record -- make -j8
  nearpage record --duration 10s
  nearpage record --pid 1234 --duration 1m -o busy.tar.zst
  nearpage record -o - -- make | ssh HOST nearpage replay -
  nearpage record --last 60s --on killed,stalled --max-size 4G

JSON (--json):
  schema               1
  bundle               where it is, or null for standard output; bundle_bytes
  kernel, command, pid what was recorded; pid of --pid, or null
  ended                by-itself, after-duration or stopped; exit_code of the command
  events, lost_events  in the trace, and not in it; lost_marks among them; samples, seconds
  ring_bytes           of the trace as the kernel had it; buffer_bytes of each CPU's ring
  cut                  null, or why the trace was not taken to its end
  has_state            whether the kernel's own lists are in the bundle; lacks[]: what a replay could use and why it is
                       not there, one sentence each
  has_mounted_tracefs  whether a tracefs was mounted, which stays
  left                 null, or what could not be removed
  mark                 null, or with --last the mark that ended it: word, node, zone, reason

Exit status: that of the command, 128 + N if signal N ended it or the recorder, 0 after --duration; before anything
is recorded 2 for wrong usage or a machine that does not allow it; 1 if a file could not be read or written.";

/// A recording that failed, or was made of a command that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFailure {
    /// There is no bundle.
    #[error("{0}{hint}", hint = hint(.0))]
    Refused(#[source] RecordError),
    /// There is no such program.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
    /// There is no such user.
    #[error(transparent)]
    NoUser(#[from] NoUser),
    /// Signals cannot be caught.
    #[error("cannot prepare the recorder: {0}")]
    Signals(#[source] io::Error),
    /// There is one.
    #[error("the command ended with exit code {0}; the bundle is whole")]
    Command(i32),
    /// There is one of a part.
    #[error("interrupted by signal {0}; the bundle holds what happened until then")]
    Interrupted(i32),
}

impl From<RecordError> for RecordFailure {
    fn from(error: RecordError) -> Self {
        Self::Refused(error)
    }
}

/// What an option does about an error.
fn hint(error: &RecordError) -> &'static str {
    match error {
        RecordError::NotRoot => {
            ". Run it with sudo; for a machine without nearpage, `nearpage record --print-script > record.sh` there: `sudo \
             sh record.sh -- CMD`"
        }
        RecordError::Output(OutputError::NoName { .. } | OutputError::Unwritable { .. }) => {
            "; -o names another place"
        }
        _ => "",
    }
}

impl RecordFailure {
    pub(super) fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Refused(
                RecordError::File { .. }
                | RecordError::Setup(_)
                | RecordError::Output(OutputError::Taken { .. }),
            )
            | Self::Signals(_) => 1,
            Self::Refused(RecordError::Abandoned) => 130,
            Self::Refused(_) | Self::NoProgram(_) | Self::NoUser(_) => 2,
            Self::Command(code) => *code,
            Self::Interrupted(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(1)
    }
}

pub(super) fn run(arguments: &RecordArgs) -> Result<(), CommandError> {
    if arguments.print_script {
        return print(SCRIPT);
    }
    let RecordArgs { duration, pid, last, .. } = arguments;
    if arguments.command.is_empty() && duration.is_none() && pid.is_none() && last.is_none() {
        let problem =
            "what is to be recorded? Accepted: `-- CMD`, `--pid PID`, `--duration T` or `--last T`";
        return Err(CommandError::Usage(problem.into()));
    }
    if arguments.json && arguments.is_to_standard_output() {
        let problem = "--json and -o - both go to standard output: -o takes a PATH";
        return Err(CommandError::Usage(problem.into()));
    }
    let program = match arguments.command.is_empty() {
        true => None,
        false => Some(Program::find(&arguments.command).map_err(RecordFailure::from)?),
    };
    let output = arguments.output(program.as_ref()).map_err(RecordFailure::from)?;
    let mut command = program.as_ref().map(Program::command);
    if let Some(command) = &mut command
        && let Some(user) =
            CommandUser::of(arguments.user.as_deref()).map_err(RecordFailure::from)?
    {
        user.take(command);
        if user.is_caller {
            let name = &user.name;
            terminal::note(format!(
                "the command runs as {name}, who called sudo; --user root runs it as root"
            ));
        }
    }
    let recorder = Recorder {
        target: target(program.as_ref(), command.as_mut(), arguments.pid),
        events: EventChoice {
            slab: arguments.slab,
            lock: arguments.lock,
            stacks: arguments.stacks,
            cgroups: arguments.cgroups,
        },
        duration: arguments.duration,
        limits: Limits {
            ring_bytes: arguments.buffer,
            trace_bytes: arguments.max_size,
            last: arguments.last,
        },
        contents: if arguments.redact { Contents::Redacted } else { Contents::Whole },
    };
    let control = Control::new().map_err(RecordFailure::Signals)?;
    let signal = signals::watch(&control).map_err(RecordFailure::Signals)?;
    let bar = terminal::spinner();
    let mut trigger = arguments.last.map(|_| Trigger::new(&arguments.on));
    let recorded = recorder.record(output, &control, &mut |progress| {
        if let (Progress::Running(_), Some(trigger)) = (progress, &mut trigger)
            && trigger.fires()
        {
            control.stop();
        }
        show(&bar, progress);
    });
    bar.finish_and_clear();
    let recorded = recorded.map_err(RecordFailure::from)?;
    let mark = trigger.and_then(|trigger| trigger.mark);
    if let Some(Mark { word, reason, .. }) = &mark {
        terminal::note(format!("{word}: {reason}"));
    }
    arguments.print(&recorded, &mark)?;
    arguments.tell_limits(&recorded);
    if let Some(left) = &recorded.left {
        terminal::error(left);
    }
    // A signal is how a recording of what happened last is asked for.
    tell_failure(&recorded, signal.get().filter(|_| arguments.last.is_none()))
}

/// The result, and the mark at which it was written.
#[derive(Serialize)]
struct WithMark<'r> {
    #[serde(flatten)]
    recorded: &'r Recorded,
    mark: &'r Option<Mark>,
}

fn target<'a>(
    program: Option<&Program>,
    command: Option<&'a mut Command>,
    pid: Option<u32>,
) -> Target<'a> {
    match (program, command, pid) {
        (Some(program), Some(command), _) => Target::Command { command, words: program.words() },
        (.., Some(pid)) => Target::Process(pid),
        _ => Target::Machine,
    }
}

impl RecordArgs {
    fn is_to_standard_output(&self) -> bool {
        self.output.as_deref().is_some_and(is_standard)
    }

    fn output(&self, program: Option<&Program>) -> Result<Output, RecordError> {
        let name = || match (program, self.pid) {
            _ if self.redact => "redacted".into(),
            (Some(program), _) => program.name(),
            (None, Some(pid)) => name_of(pid),
            (None, None) => "machine".into(),
        };
        match &self.output {
            Some(_) if self.is_to_standard_output() => {
                Ok(Output::stream(&name(), Box::new(io::stdout())))
            }
            Some(path) => Output::claim(path, sudo::caller()),
            None => Output::claim_new(&name(), sudo::caller()),
        }
    }

    /// Says what the kernel or the disk had no room for.
    fn tell_limits(&self, recorded: &Recorded) {
        if let Some(asked) = self.buffer.filter(|&asked| recorded.buffer_bytes < asked) {
            let had = recorded.buffer_bytes >> 10;
            terminal::note(format!("--buffer {asked}: the kernel gave {had}K to each CPU"));
        }
        if let Some(cut) = &recorded.cut {
            terminal::note(format!("the trace is cut off: {cut}"));
        }
        recorded.lacks.iter().for_each(terminal::note);
    }

    /// The result on standard output; if the bundle went there, on standard error.
    fn print(&self, recorded: &Recorded, mark: &Option<Mark>) -> Result<(), CommandError> {
        if self.json {
            return print_json(&WithMark { recorded, mark });
        }
        match &recorded.bundle {
            Some(path) => {
                let next = format!("next: nearpage replay {path}\n");
                print(&(summary(path, recorded) + &next))?;
                if let Ok(found) = fs::metadata(path) {
                    terminal::note(self.content(user::name_of(found.uid()), found.mode()));
                }
                Ok(())
            }
            None => {
                terminal::note(summary("standard output", recorded).trim_end());
                Ok(())
            }
        }
    }

    /// What a bundle holds, and who can read it.
    fn content(&self, owner: String, mode: u32) -> String {
        let readers = match mode & 0o077 {
            0 if owner == "root" => "only root can read it".into(),
            0 => format!("only {owner} and root can read it"),
            _ => format!("it is {owner}'s, and others can read it (mode {:o})", mode & 0o777),
        };
        let held = match self.redact {
            true => "figures of all tasks, without their names",
            false => {
                "names of all tasks, the kernel's log, command line and addresses, and what the command printed"
            }
        };
        format!("it holds {held}; {readers}")
    }
}

/// The name of a process.
fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim().is_empty() { pid.to_string() } else { name.trim().into() }
}

fn summary(path: &str, recorded: &Recorded) -> String {
    let Recorded { events, lost_events, samples, .. } = *recorded;
    let lost = match lost_events {
        0 => "none lost".into(),
        lost => {
            format!(
                "{lost} LOST: record less, with a larger --buffer, or without --slab and --lock"
            )
        }
    };
    let kilobytes = recorded.bundle_bytes.div_ceil(1000);
    format!("{path}: {kilobytes} kB, {events} events, {lost}; {samples} samples\n")
}

/// The lines that a command printed last are shown if it failed: they say why.
const LINES_SHOWN: usize = 10;

fn tell_failure(recorded: &Recorded, signal: Option<i32>) -> Result<(), CommandError> {
    match (recorded.ended, signal) {
        (Ended::Stopped, Some(signal)) => Err(RecordFailure::Interrupted(signal).into()),
        (Ended::ByItself, _) if recorded.exit_code != 0 => {
            let printed = String::from_utf8_lossy(&recorded.printed);
            let lines: Vec<&str> = printed.lines().collect();
            for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
                terminal::report(&format!("cmd.txt: {line}\n"));
            }
            Err(RecordFailure::Command(recorded.exit_code).into())
        }
        _ => Ok(()),
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    const STEP_BYTES: u64 = 1 << 20;
    match progress {
        Progress::Mounted => {
            bar.suspend(|| terminal::note("mounted tracefs at /sys/kernel/tracing; it stays"));
        }
        Progress::Running(gauge) => bar.set_message(gauge_text(gauge)),
        Progress::Copying(bytes) if bytes / STEP_BYTES > bar.position() => {
            bar.set_position(bytes / STEP_BYTES);
            bar.set_message(format!("writing the trace: {} MiB of text", bytes / STEP_BYTES));
        }
        _ => {}
    }
}

fn gauge_text(gauge: Gauge) -> String {
    let (seconds, megabytes) = (gauge.time.as_secs_f64(), gauge.bytes / 1_000_000);
    let Gauge { events, fullest_percent, lost_events, .. } = gauge;
    let lost = if lost_events == 0 { "none".into() } else { lost_events.to_string() };
    format!(
        "recording: {seconds:.1} s, {events} events, {megabytes} MB, fullest ring {fullest_percent} %, {lost} lost; Ctrl-C \
         ends it"
    )
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
