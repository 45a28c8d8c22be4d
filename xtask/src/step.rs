//! Steps of a command: programs that are run in the workspace, and where what is built goes.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

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

/// The error of a program that could not be run.
pub(crate) fn ran(command: &Command) -> impl Fn(io::Error) -> StepError + use<> {
    let program = command.get_program().display().to_string();
    move |error| StepError::Run { program: program.clone(), error }
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
