//! The kinds of inputs, and that what one prints another reads.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{command, recording, refusal, stdout};

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

/// A copy of /sys and /proc by that option, and nothing else.
#[test]
fn archives_by_sysroot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box.tar");
    std::fs::write(&path, tar("box/")).unwrap();
    let model = ["--model", "linux-6.12", "--format", "fallback"];
    for source in [path.to_str().unwrap(), "-"] {
        let output = command(&[&["--sysroot", source], &model[..]].concat())
            .write_stdin(tar(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected());
    }
    let message = refusal(&["--sysroot", "-"], "--numa 2G");
    let expected =
        "not an archive, expected a folder or a tar archive with a copy of /sys and /proc\n";
    assert_eq!(message, format!("nearpage: standard input: {expected}"));
}

/// tar asks how long a file is, and the kernel says 0 for those of /proc.
#[test]
fn an_archive_of_proc_itself_says_that_its_files_are_empty() {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in [("sys/devices/system/node/node0/cpulist", "0\n"), ("proc/zoneinfo", "")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o444);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let output = command(&["--topology", "-"]).write_stdin(archive.clone()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let note = "Note: proc/zoneinfo is empty, as tar leaves files that it takes from /proc itself: zones \
                and addresses are taken as unknown.\n";
    assert!(text.contains(note), "{text}");
    let output = command(&["--bundle", "-"]).write_stdin(archive).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "nearpage: standard input: proc/zoneinfo: has no bytes, as tar leaves files that it \
                    takes from /proc itself, expected zones: ";
    assert!(message.starts_with(expected), "{message}");
}

/// Messages escape control characters of a path; a program that reads JSON is told the path itself.
#[test]
fn the_source_in_json_is_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a\nb");
    std::fs::write(&path, "--numa 2G,cpus=0").unwrap();
    let path = path.to_str().unwrap();
    let document = stdout(&["--topology", path, "--json"], "");
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["source"], path);
    let text = stdout(&["--topology", path], "");
    assert!(text.contains("a\\nb; pages of 4 KiB"), "{text}");
}

#[test]
fn the_settings_of_recordings_are_listed() {
    let text = stdout(&["--set", "help"], "");
    assert_eq!(text.lines().count(), 5);
    assert!(text.starts_with("vm.min_free_kbytes                 KiB "), "{text}");
}

#[test]
fn machines_of_the_catalogue_are_taken_by_name() {
    for name in nearpage_machine::catalog::names() {
        let text = stdout(&["--topology", name, "--format", "numactl"], "");
        assert!(text.starts_with("available: "), "{name}: {text}");
    }
    let of_scenario = stdout(&["--topology", "zonelist-cache", "--format", "numactl"], "");
    assert_eq!(of_scenario, stdout(&["--topology", "altix-28n", "--format", "numactl"], ""));
}

#[test]
fn a_name_that_is_no_machine_is_answered_with_the_names() {
    let message = refusal(&["--topology", "nosuch"], "");
    let names = nearpage_machine::catalog::names().collect::<Vec<_>>().join(", ");
    let expected = "nearpage: nosuch: No such file or directory (os error 2), expected a file, a folder or the \
                    name of a machine: ";
    assert_eq!(message, format!("{expected}{names}\n"));
    let mut replay = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    let replay = replay.args(["replay", "--topology", "nosuch"]).output().unwrap();
    assert_eq!((replay.status.code(), replay.stderr), (Some(2), message.into_bytes()));
    // What is a path by its form is no mistyped name.
    assert!(!refusal(&["--topology", "./nosuch"], "").contains("altix-28n"));
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
