//! `nearpage topo` as a user runs it: formats, inputs, error messages, exit codes.

mod environment;
mod errors;
mod formats;
mod inputs;
mod large;
mod placement;
mod recorded;

use std::path::PathBuf;
use std::process::Output;

use assert_cmd::Command;

/// `nearpage topo` with arguments, and none of the variables that these tests may run with.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    for variable in ["NEARPAGE_NUMA", "NEARPAGE_RSEQ", "NEARPAGE_ENV"] {
        command.env_remove(variable);
    }
    command.arg("topo").args(arguments);
    command
}

/// Runs `nearpage topo` with arguments and standard input.
fn topo(arguments: &[&str], input: &str) -> Output {
    command(arguments).write_stdin(input).output().unwrap()
}

/// What a run that succeeds prints.
fn stdout(arguments: &[&str], input: &str) -> String {
    let output = topo(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a run that is refused with exit code 2.
fn refusal(arguments: &[&str], input: &str) -> String {
    let output = topo(arguments, input);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert_eq!(output.stdout, b"", "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A recording in `tests/data`.
fn recording(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
