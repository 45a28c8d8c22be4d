//! The command that is recorded.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use nearpage_machine::shown;

use super::error::RecordError;
use super::signals::Message;
use super::system;

/// A program that exists, and its arguments.
pub struct Program {
    path: PathBuf,
    words: Vec<OsString>,
}

impl Program {
    /// Finds the program that is the first of `words`, as a shell would.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be executed.
    pub fn find(words: &[OsString]) -> Result<Program, RecordError> {
        let name = words.first().map(OsString::as_os_str).unwrap_or_default();
        let why = |why| RecordError::NoProgram { program: shown(name).to_string(), why };
        let path = if name.as_encoded_bytes().contains(&b'/') {
            check(Path::new(name)).map(|()| name.into())
        } else {
            search(name)
        };
        Ok(Program { path: path.map_err(why)?, words: words.into() })
    }

    /// The command as it was asked for.
    pub(super) fn words(&self) -> impl Iterator<Item = String> + '_ {
        self.words.iter().map(|word| word.to_string_lossy().into_owned())
    }

    /// The name of the program, without folders.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Starts it. What it prints goes to `output`; its end to `sender`.
    pub(super) fn start(
        &self,
        output: &File,
        sender: Sender<Message>,
    ) -> Result<Child, RecordError> {
        let program = || shown(&self.words[0]).to_string();
        let mut command = Command::new(&self.path);
        command.arg0(&self.words[0]).args(&self.words[1..]).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(RecordError::Setup)?);
        command.stderr(output.try_clone().map_err(RecordError::Setup)?);
        // A group of its own, so that all of it can be stopped, and Ctrl-C reaches the recorder alone.
        command.process_group(0);
        let mut child =
            command.spawn().map_err(|error| RecordError::NotRun { program: program(), error })?;
        let group = child.id();
        let wait = move || {
            // The receiver is gone if the recorder gave up, and nobody asks any more.
            let _ = sender.send(Message::Ended(child.wait()));
        };
        match std::thread::Builder::new().name("command".into()).spawn(wait) {
            Ok(_) => Ok(Child { group, is_running: true }),
            Err(error) => {
                system::signal_group(group, libc::SIGKILL);
                Err(RecordError::Setup(error))
            }
        }
    }
}

/// A running command: killed if it is dropped.
pub(super) struct Child {
    group: u32,
    is_running: bool,
}

impl Child {
    /// Asks its group of processes to end; the second time, kills them.
    pub(super) fn stop(&self, is_asked: bool) {
        let signal = if is_asked { libc::SIGKILL } else { libc::SIGTERM };
        system::signal_group(self.group, signal);
    }

    /// It has ended by itself.
    pub(super) fn has_ended(mut self) {
        self.is_running = false;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_running {
            system::signal_group(self.group, libc::SIGKILL);
        }
    }
}

/// The exit code as a shell has it: of a signal, 128 and its number.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

fn search(name: &OsStr) -> Result<PathBuf, &'static str> {
    let mut found = Err(if name.is_empty() { "no name" } else { "no such program" });
    if name.is_empty() {
        return found;
    }
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        let path = folder.join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(why) if path.exists() => found = Err(why),
            Err(_) => {}
        }
    }
    found
}

fn check(path: &Path) -> Result<(), &'static str> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err("is a folder"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Err("is not executable (chmod +x makes it so)")
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err("may not be read"),
        Err(_) => Err("no such file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str) -> String {
        Program::find(&[name.into()]).err().unwrap().to_string()
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let found = Program::find(&["sh".into(), "-c".into()]).unwrap();
        assert!(found.path.is_absolute() && found.path.ends_with("sh"));
        assert_eq!(found.words().collect::<Vec<_>>(), ["sh", "-c"]);
        assert!(Program::find(&["/bin/sh".into()]).is_ok());
    }

    #[test]
    fn what_is_no_program_is_told() {
        assert!(why("no-such-program").starts_with("no-such-program: no such program"));
        assert!(why("/no/such/file").starts_with("/no/such/file: no such file"));
        assert!(why("/proc/version").contains("is not executable"));
        assert!(why("/proc").contains("is a folder"));
        assert!(why("").contains("no name"));
    }
}
