//! The kinds of inputs, and that what one prints another reads.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{recording, stdout};

const RECORDING: &str = "linux-6.12-memoryless";

/// Fallback orders of `RECORDING`.
fn expected() -> String {
    std::fs::read_to_string(recording(RECORDING).join("fallback.txt")).unwrap()
}

fn fallback(path: &Path) -> String {
    let arguments = ["--topology", path.to_str().unwrap(), "--model", "linux-6.12"];
    stdout(&[&arguments[..], &["--format", "fallback"]].concat(), "")
}

/// A tar of the recording below `top`.
fn tar(top: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for folder in ["sys", "proc"] {
        builder
            .append_dir_all(format!("{top}{folder}"), recording(RECORDING).join(folder))
            .unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn this_machine() {
    let text = stdout(&[], "");
    assert!(text.starts_with("Machine   this machine; "), "{text}");
}

#[test]
fn folders_and_archives() {
    assert_eq!(fallback(&recording(RECORDING)), expected());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box.tar");
    for top in ["", "box/"] {
        std::fs::write(&path, tar(top)).unwrap();
        assert_eq!(fallback(&path), expected(), "{top:?}");
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar("box/")).unwrap();
    std::fs::write(&path, gzip.finish().unwrap()).unwrap();
    assert_eq!(fallback(&path), expected());
    // A folder that was unpacked where another one is expected.
    let mut archive = tar::Archive::new(std::io::Cursor::new(tar("box/")));
    let unpacked = tempfile::tempdir().unwrap();
    archive.unpack(unpacked.path()).unwrap();
    assert_eq!(fallback(unpacked.path()), expected());
}

#[test]
fn archives_on_standard_input() {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"))
        .args(["topo", "--topology", "-", "--model", "linux-6.12", "--format", "fallback"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&tar("")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected());
}

#[test]
fn the_short_form_in_a_text() {
    let text = "# lab\n--numa 2G,cpus=0-1 --numa 0,cpus=2\n--numa-distance 0,1=21\n";
    let options = ["--numa", "2G,cpus=0-1", "--numa", "0,cpus=2", "--numa-distance", "0,1=21"];
    let format = ["--format", "dot"];
    assert_eq!(
        stdout(&[&["--topology", "-"], &format[..]].concat(), text),
        stdout(&[&options, &format[..]].concat(), "")
    );
}

#[test]
fn what_numactl_format_prints_can_be_read() {
    let options = [
        "--numa",
        "2G,cpus=0-1,cpus=8",
        "--numa",
        "512M",
        "--numa",
        "0,cpus=2-7",
        "--numa-distance",
        "0,1=14",
        "--numa-distance",
        "1,0=15",
        "--format",
        "numactl",
    ];
    let text = stdout(&options, "");
    assert_eq!(stdout(&["--topology", "-", "--format", "numactl"], &text), text);
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"))
        .args(["topo", "--topology", "-", "--format", "zoneinfo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before there is anything to print.
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(b"--numa 2G,cpus=0-63").unwrap();
    assert!(child.wait().unwrap().success());
}
