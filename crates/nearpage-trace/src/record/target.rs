//! What is recorded: a command, a process, or the machine.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::control::Control;
use super::error::RecordError;
use super::system;

/// What is recorded. The trace is of the whole machine; the target says when it begins and ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A command, which is started once tracing is on, in a process group of its own, with empty input. What it prints is
    /// kept. It is recorded until it ends; at the end of the duration it is asked to.
    Command {
        /// The command. Its program should be a path.
        command: &'a mut Command,
        /// What the bundle says that the command was.
        words: Vec<String>,
    },
    /// A child of this process that runs already. It is recorded until it ends; at the end of the duration it is asked to,
    /// with its process group if it leads one.
    Child(&'a mut Child),
    /// A process that runs already. It is recorded until it ends or the duration is over, and never disturbed.
    Process(u32),
    /// Whatever the machine does, until the duration is over.
    Machine,
}

impl<'a> Target<'a> {
    /// A command, by the words that it has.
    pub fn command(command: &'a mut Command) -> Target<'a> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Target::Command { command, words }
    }

    /// What `meta.json` says was recorded: the words of a command.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Target::Command { words, .. } => words.clone(),
            Target::Child(child) => words_of(child.id()),
            Target::Process(pid) => words_of(*pid),
            Target::Machine => Vec::new(),
        }
    }

    /// The number of a process that ran already.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Target::Child(child) => Some(child.id()),
            Target::Process(pid) => Some(*pid),
            Target::Command { .. } | Target::Machine => None,
        }
    }

    /// Refuses a process that there is not, before anything is recorded.
    ///
    /// # Errors
    ///
    /// As above.
    pub(super) fn check(&self) -> Result<(), RecordError> {
        match self {
            Target::Process(pid) => open(*pid).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Begins: starts the command, whose output goes to `output`, or finds the process.
    ///
    /// # Errors
    ///
    /// The command cannot be started, or there is no such process.
    pub(super) fn begin<'r>(
        &'r mut self,
        output: &File,
        control: &'r Control,
    ) -> Result<Running<'r>, RecordError> {
        let (who, pid) = match self {
            Target::Command { command, words } => {
                let child = start(command, output)
                    .map_err(|source| RecordError::NotRun { program: first(words), source })?;
                let pid = child.id();
                (Who::Started(child), pid)
            }
            Target::Child(child) => {
                let pid = child.id();
                (Who::Given(child), pid)
            }
            Target::Process(pid) => (Who::Other, *pid),
            Target::Machine => return Ok(Running { who: Who::Nobody, handle: None, control }),
        };
        let mut running = Running { who, handle: None, control };
        if let Who::Started(_) = running.who {
            control.set_command(number(pid));
        }
        running.handle = Some(open(pid)?);
        Ok(running)
    }
}

fn start(command: &mut Command, output: &File) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    // A group of its own, so that all of it can be stopped, and Ctrl-C reaches the recorder alone.
    command.process_group(0).spawn()
}

fn first(words: &[String]) -> String {
    words.first().cloned().unwrap_or_default()
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// A descriptor that becomes readable when a process ends.
fn open(pid: u32) -> Result<OwnedFd, RecordError> {
    let gone = |source: io::Error| RecordError::NoProcess { pid, source };
    let number = number(pid).ok_or_else(|| gone(io::ErrorKind::InvalidInput.into()))?;
    pidfd_open(number, PidfdFlags::empty()).map_err(|error| gone(error.into()))
}

/// The command line of a process.
fn words_of(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// A target that is recorded. A command that was started here is killed if this is dropped while it runs.
pub(super) struct Running<'a> {
    who: Who<'a>,
    handle: Option<OwnedFd>,
    control: &'a Control,
}

enum Who<'a> {
    Started(Child),
    Given(&'a mut Child),
    Other,
    Nobody,
}

impl Running<'_> {
    /// Becomes readable when it has ended; `None` of what never does.
    pub(super) fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().map(AsFd::as_fd)
    }

    /// Asks it to end, the second time with force. Returns whether that makes sense: others than children are not
    /// disturbed.
    pub(super) fn stop(&self, is_asked: bool) -> bool {
        let child = match &self.who {
            Who::Started(child) => child,
            Who::Given(child) => child,
            Who::Other | Who::Nobody => return false,
        };
        if let Some(pid) = number(child.id()) {
            system::signal(pid, if is_asked { Signal::KILL } else { Signal::TERM });
        }
        true
    }

    /// The exit code as a shell has it: of a signal, 128 and its number. 0 of what is no child.
    ///
    /// # Errors
    ///
    /// The child is not this process's any more.
    pub(super) fn exit_code(mut self) -> io::Result<i32> {
        let code = match &mut self.who {
            Who::Started(child) => exit_code(child.wait()?),
            Who::Given(child) => exit_code(child.wait()?),
            Who::Other | Who::Nobody => 0,
        };
        self.who = Who::Nobody;
        Ok(code)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Who::Started(child) = &self.who
            && let Some(pid) = number(child.id())
        {
            system::signal(pid, Signal::KILL);
        }
        self.control.set_command(None);
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn until_ended(running: &Running<'_>) {
        let mut handle = [PollFd::from_borrowed_fd(running.handle().unwrap(), PollFlags::IN)];
        poll(&mut handle, None).unwrap();
    }

    #[test]
    fn a_command_prints_into_a_file_and_has_an_exit_code() {
        let control = Control::new().unwrap();
        let output = tempfile::tempfile().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo out; echo err >&2; exit 7"]);
        let mut target = Target::command(&mut command);
        assert_eq!(target.words()[..2], ["/bin/sh", "-c"]);
        let running = target.begin(&output, &control).unwrap();
        until_ended(&running);
        assert_eq!(running.exit_code().unwrap(), 7);
        let mut text = String::new();
        io::Seek::rewind(&mut &output).unwrap();
        io::Read::read_to_string(&mut &output, &mut text).unwrap();
        assert_eq!(text, "out\nerr\n");
    }

    #[test]
    fn what_a_command_started_is_stopped_with_it() {
        let control = Control::new().unwrap();
        let output = tempfile::tempfile().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap '' TERM; sleep 600 & sleep 600"]);
        let mut target = Target::command(&mut command);
        let running = target.begin(&output, &control).unwrap();
        assert!(running.stop(true));
        until_ended(&running);
        assert_eq!(running.exit_code().unwrap(), 128 + 9);
    }

    #[test]
    fn another_process_is_watched_and_not_disturbed() {
        let control = Control::new().unwrap();
        let output = tempfile::tempfile().unwrap();
        let mut other = Command::new("/bin/sleep").arg("0.5").spawn().unwrap();
        let mut target = Target::Process(other.id());
        target.check().unwrap();
        // A process that just began has no command line yet.
        while target.words().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(target.words(), ["/bin/sleep", "0.5"]);
        let running = target.begin(&output, &control).unwrap();
        assert!(!running.stop(false));
        until_ended(&running);
        assert_eq!(running.exit_code().unwrap(), 0);
        assert!(other.wait().unwrap().success());
        let gone = Target::Process(other.id()).check().unwrap_err().to_string();
        assert!(gone.contains("there is no process"), "{gone}");
    }

    #[test]
    fn a_given_child_has_its_own_exit_code() {
        let control = Control::new().unwrap();
        let output = tempfile::tempfile().unwrap();
        let mut child = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().unwrap();
        let mut target = Target::Child(&mut child);
        let running = target.begin(&output, &control).unwrap();
        until_ended(&running);
        assert_eq!(running.exit_code().unwrap(), 3);
    }
}
