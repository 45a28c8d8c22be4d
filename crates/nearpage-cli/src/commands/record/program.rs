//! The program of a command, found as a shell finds it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nearpage_machine::shown;

/// A program that exists, and its arguments.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    words: Vec<OsString>,
}

/// There is no such program, or it cannot be executed.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {why}; expected a program, by its path or in one of the folders of PATH")]
pub struct NoProgram {
    program: String,
    why: &'static str,
}

impl Program {
    /// Finds the program that is the first of `words`.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be executed.
    pub(super) fn find(words: &[OsString]) -> Result<Program, NoProgram> {
        let name = words.first().map(OsString::as_os_str).unwrap_or_default();
        let why = |why| NoProgram { program: shown(name).to_string(), why };
        let path = if name.as_encoded_bytes().contains(&b'/') {
            check(Path::new(name)).map(|()| name.into())
        } else {
            search(name)
        };
        Ok(Program { path: path.map_err(why)?, words: words.into() })
    }

    /// The command, to be started.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.words[0]).args(&self.words[1..]);
        command
    }

    /// The command as it was asked for.
    pub(super) fn words(&self) -> Vec<String> {
        self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The name of the program, without folders.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }
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
        assert_eq!(found.words(), ["sh", "-c"]);
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
