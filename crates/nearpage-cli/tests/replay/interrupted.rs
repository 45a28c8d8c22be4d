//! Ctrl-C: a message, its exit code, and nothing half written.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::shipped;

/// Interrupts a command that would take minutes; returns what it said.
fn interrupted(arguments: &[&str]) -> String {
    let mut running = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(running.try_wait().unwrap().is_none(), "{arguments:?} is too fast for this test");
    let begun = Instant::now();
    let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = running.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(status.code(), Some(130));
    let mut printed = String::new();
    running.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "");
    let mut message = String::new();
    running.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    message
}

#[test]
fn an_interrupted_replay_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let machine = "--numa 64G,cpus=0-3 --numa 64G,cpus=4-7";
    let arguments =
        ["replay", "--topology", machine, "--repeat", "1024", "--report", page.to_str().unwrap()];
    let message = interrupted(&arguments);
    assert_eq!(message, "nearpage: interrupted: there is no result, and no file was written\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_sweep_prints_nothing() {
    let bundle = shipped();
    let over = "pcp.batch=1..1000";
    let message = interrupted(&["replay", "sweep", bundle.to_str().unwrap(), "--over", over]);
    assert!(message.contains("interrupted"), "{message}");
}
