//! `nearpage topo --bundle` and `nearpage verify` on recordings of real kernels, as a user runs them.

mod corpus;
mod damaged;
#[path = "../../../../fuzz/doors.rs"]
mod doors;
mod formulas;
mod fuzz;
mod hostile;
mod inputs;
mod mutated;

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use nearpage_bundle::Recording;
use serde_json::Value;

fn nearpage(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(arguments).output().unwrap()
}

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = nearpage(arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Standard output of a run that must go well.
fn stdout(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

/// The project's recordings.
fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle").canonicalize().unwrap()
}

/// All recordings of the corpus, in order.
fn corpus() -> Vec<String> {
    let entries = std::fs::read_dir(oracle().join("corpus")).unwrap();
    let mut paths: Vec<String> = entries.map(|entry| shown(&entry.unwrap().path())).collect();
    paths.retain(|path| path.ends_with(".zst"));
    paths.sort();
    paths
}

fn recording(name: &str) -> String {
    shown(&oracle().join("corpus").join(format!("{name}.json.zst")))
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().into()
}

/// The JSON of a recording.
fn unpacked(path: &str) -> Value {
    let content = std::fs::read(path).unwrap();
    let decoder = ruzstd::decoding::StreamingDecoder::new(&content[..]).unwrap();
    serde_json::from_reader(decoder).unwrap()
}

/// Writes a made-up recording.
fn write(folder: &Path, name: &str, document: &Value) -> String {
    let path = folder.join(name);
    std::fs::write(&path, serde_json::to_vec_pretty(document).unwrap()).unwrap();
    shown(&path)
}

/// Reads a recording with the library.
fn read(path: &str) -> Recording {
    Recording::read(Path::new(path), &nearpage_machine::Budget::DEFAULT).unwrap()
}
