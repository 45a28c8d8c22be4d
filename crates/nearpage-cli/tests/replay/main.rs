//! `nearpage replay` on recorded bundles, as a user runs it.

mod bound;
mod damaged;
mod deleted;
mod explained;
mod fuzz;
mod inputs;
mod interrupted;
mod musts;
mod objects;
mod rate;
mod rules;
mod score;
mod state;
mod whatif;

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn nearpage(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(arguments).output().unwrap()
}

/// Standard output of a run that must go well.
fn stdout(arguments: &[&str]) -> String {
    let output = nearpage(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

fn replayed(bundle: &Path) -> Value {
    serde_json::from_str(&stdout(&["replay", bundle.to_str().unwrap(), "--json"])).unwrap()
}

/// The bundle that comes with the sources.
fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles/q612-n2-mixed.tar.zst")
}

/// The same, unpacked into a folder.
fn unpack_shipped(folder: &Path) -> PathBuf {
    let file = std::fs::File::open(shipped()).unwrap();
    let text = nearpage_trace::unpacked(file, &nearpage_machine::Budget::DEFAULT).unwrap();
    tar::Archive::new(text).unpack(folder).unwrap();
    folder.join("q612-n2-mixed")
}

/// The text of an unpacked bundle's trace.
fn trace(bundle: &Path) -> String {
    std::fs::read_to_string(bundle.join("trace.txt")).unwrap()
}
