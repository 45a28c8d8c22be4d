//! Steps of a command: programs that are run in the workspace, and where what is built goes.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A program could not be run.
    #[error("{program}: {error}")]
    Run {
        /// The program.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// A step failed.
    #[error("{step} failed: {status}")]
    Failed {
        /// The step.
        step: &'static str,
        /// How it ended.
        status: ExitStatus,
    },
    /// A step whose words nobody reads failed.
    #[error("{step} failed: {status}\n{said}")]
    Silent {
        /// The step.
        step: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said last.
        said: String,
    },
}

/// How a program ended.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, StepError> {
    let run = ran(command);
    command.status().map_err(run)
}

/// Runs a program, which must succeed.
pub(crate) fn step(step: &'static str, command: &mut Command) -> Result<(), StepError> {
    let status = status(command)?;
    if status.success() { Ok(()) } else { Err(StepError::Failed { step, status }) }
}

/// What a step prints; if it fails, its last words are in the error.
pub(crate) fn output(step: &str, command: &mut Command) -> Result<String, StepError> {
    let run = ran(command);
    let output = command.stdin(Stdio::null()).output().map_err(run)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    let lines: Vec<&str> = words.trim().lines().collect();
    let said = lines[lines.len().saturating_sub(12)..].join("\n");
    Err(StepError::Silent { step: step.into(), status: output.status, said })
}

/// The error of a program that could not be run.
pub(crate) fn ran(command: &Command) -> impl Fn(io::Error) -> StepError + use<> {
    let program = command.get_program().display().to_string();
    move |error| StepError::Run { program: program.clone(), error }
}

/// A program of the search path.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The search path with a folder before it.
pub(crate) fn with_path(folder: &Path) -> OsString {
    let before = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_owned()).chain(env::split_paths(&before));
    env::join_paths(all).unwrap_or(before)
}

/// Whether the compiler has the libraries of a target.
pub(crate) fn has_target(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    output("rustc", &mut rustc).is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

/// Whether this process is root's.
pub(crate) fn is_root() -> bool {
    // SAFETY: asks only.
    unsafe { libc::geteuid() == 0 }
}

/// The workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => env::current_dir().unwrap_or_default().join(folder),
        None => root().join("target"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_step_that_fails_says_its_last_words() {
        let shell = |script: &str| output("the step", Command::new("sh").args(["-c", script]));
        assert_eq!(shell("echo yes").unwrap(), "yes\n");
        let said = shell("seq 20 >&2; exit 3").unwrap_err().to_string();
        assert!(said.starts_with("the step failed: exit status: 3\n9\n"), "{said}");
        assert!(said.ends_with("\n20"), "{said}");
    }

    #[test]
    fn a_folder_comes_first_in_the_search_path() {
        let path = with_path(Path::new("/first/of/all"));
        assert_eq!(env::split_paths(&path).next(), Some("/first/of/all".into()));
    }

    #[test]
    fn a_program_is_found_in_the_search_path() {
        assert!(found("sh").is_some());
        assert_eq!(found("no-such-program"), None);
        assert!(!has_target("no-such-target"));
    }
}
