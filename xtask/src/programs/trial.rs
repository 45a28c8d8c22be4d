//! One run of a row under one malloc: what it printed, what it cost, what the malloc counted.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::inputs::Inputs;
use super::mallocs::{Malloc, Way};
use super::rows::Row;

/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// What scripts begin with: `m COMMAND` runs a program under the malloc, `server` one in the background, in place of the
/// shell that has its number.
const PRELUDE: &str = r#"set -eu
m() { env LD_PRELOAD="$MALLOC" "$@"; }
server() { exec env LD_PRELOAD="$MALLOC" "$@"; }
"#;

#[derive(thiserror::Error, Debug)]
#[error("{row}: {what}: {error}")]
pub struct TrialError {
    row: &'static str,
    what: &'static str,
    error: io::Error,
}

pub(super) struct Trial<'a> {
    pub row: &'static Row,
    inputs: &'a Inputs,
    folder: PathBuf,
}

/// A run that came to its end.
#[derive(Debug)]
pub(super) struct Ran {
    pub wall_s: f64,
    pub cpu_s: f64,
    /// Of the process that had the most.
    pub peak_bytes: f64,
    exit: String,
    output: String,
    errors: String,
    processes: Vec<Process>,
}

/// What a process under nearpage's malloc wrote at its end.
#[derive(Deserialize, Debug)]
struct Process {
    program: String,
    allocations: u64,
}

impl<'a> Trial<'a> {
    pub fn new(row: &'static Row, inputs: &'a Inputs) -> Result<Self, TrialError> {
        Ok(Self { row, inputs, folder: inputs.folder().join("run") })
    }

    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> TrialError + use<> {
        let row = self.row.name;
        move |error| TrialError { row, what, error }
    }

    /// Runs it in an empty folder of its own.
    pub fn run(&self, malloc: &Malloc, options: &str) -> Result<Ran, TrialError> {
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir(&self.folder).map_err(self.failed("its folder"))?;
        self.inputs.give_to_user(&self.folder).map_err(self.failed("its folder"))?;
        let place = |name: &str| self.inputs.folder().join(name);
        let (output, errors, report) = (place("output"), place("errors"), place("report"));
        let _ = fs::remove_file(&report);
        let create = |file: &PathBuf| File::create(file).map_err(self.failed("its output"));
        let mut command = self.shell(malloc, &place);
        command
            .arg("-c")
            .arg(format!("{PRELUDE}{}", self.row.script))
            .current_dir(&self.folder)
            .env("MALLOC", &malloc.library)
            .env("INPUTS", self.inputs.folder())
            .env("AS_USER", self.inputs.as_user())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(create(&output)?)
            .stderr(create(&errors)?)
            .process_group(0);
        if malloc.is_nearpage && malloc.way == Way::Named {
            command.env("NEARPAGE_MALLOC", options).env("NEARPAGE_MALLOC_REPORT", &report);
            // Programs that become another user write there too.
            let _ = File::create(&report).and_then(|_| self.inputs.open_to_all(&report));
        }
        let begun = Instant::now();
        let child = command.spawn().map_err(self.failed("sh"))?;
        let (status, usage) = wait(child.id()).map_err(self.failed("waiting for it"))?;
        let wall_s = begun.elapsed().as_secs_f64();
        let text = |file| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(Ran {
            wall_s,
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            peak_bytes: usage.ru_maxrss as f64 * 1024.0,
            exit: exit(status),
            output: text(output),
            errors: text(errors),
            processes: text(report)
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
        })
    }

    /// What runs the script.
    fn shell(&self, malloc: &Malloc, place: &impl Fn(&str) -> PathBuf) -> Command {
        let Way::Watched(program) = &malloc.way else {
            let mut command = Command::new("sh");
            match malloc.way {
                Way::All => command.env("LD_PRELOAD", &malloc.library),
                _ => command.env_remove("LD_PRELOAD"),
            };
            return command;
        };
        let mut command = Command::new(program);
        command.env_remove("LD_PRELOAD").args(["run", "--library"]).arg(&malloc.library);
        command.arg("--output").arg(place("watched.txt"));
        command.arg("--report").arg(place("watched.html"));
        command.args(["--", "sh"]);
        command
    }

    /// Why the counters do not show the program's allocations; `None` if they do.
    pub fn uncounted(&self, ran: &Ran) -> Option<String> {
        let of_program =
            ran.processes.iter().filter(|process| process.program == self.row.counted.0);
        let counted: u64 = of_program.map(|process| process.allocations).sum();
        (counted < self.row.counted.1).then(|| {
            let programs: Vec<_> = ran
                .processes
                .iter()
                .map(|of| format!("{} {}", of.program, of.allocations))
                .collect();
            format!(
                "{counted} allocations of {} were counted, not {} or more; processes wrote: {}",
                self.row.counted.0,
                self.row.counted.1,
                programs.join(", ")
            )
        })
    }
}

impl Ran {
    /// Why it did not work, if it did not.
    pub fn failure(&self) -> Option<String> {
        let tail = |text: &str| {
            text.chars().skip(text.chars().count().saturating_sub(400)).collect::<String>()
        };
        if self.exit != "exit code 0" {
            return Some(format!("{}: {}", self.exit, tail(&self.errors)));
        }
        self.errors.contains("nearpage-malloc:").then(|| tail(&self.errors))
    }

    /// How its output differs from what it should be.
    pub fn differs_from(&self, expected: &Ran) -> Option<String> {
        if self.output == expected.output {
            return None;
        }
        let differs =
            self.output.lines().zip(expected.output.lines()).find(|(own, other)| own != other);
        let (own, other) = differs.unwrap_or(("another number of lines", ""));
        Some(format!("it printed {own:?}, not {other:?}"))
    }

    pub fn allocations(&self) -> u64 {
        self.processes.iter().map(|process| process.allocations).sum()
    }
}

fn exit(status: libc::c_int) -> String {
    if libc::WIFEXITED(status) {
        format!("exit code {}", libc::WEXITSTATUS(status))
    } else {
        format!("signal {}", libc::WTERMSIG(status))
    }
}

/// Waits for a process, with what it and its children used; ends its group when it takes too long.
fn wait(process: u32) -> io::Result<(libc::c_int, libc::rusage)> {
    let process = process as libc::pid_t;
    let (over, is_over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: the group is the child's, which is not waited for yet.
                unsafe { libc::kill(-process, libc::SIGKILL) };
            }
        });
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both places are there; zeroes are a value of the second.
        let waited = unsafe { libc::wait4(process, &raw mut status, 0, usage.as_mut_ptr()) };
        drop(over);
        // What a script left behind must not disturb the next one.
        // SAFETY: sends a signal to the group that was the child's.
        unsafe { libc::kill(-process, libc::SIGKILL) };
        if waited < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel wrote it.
        Ok((status, unsafe { usage.assume_init() }))
    })
}
