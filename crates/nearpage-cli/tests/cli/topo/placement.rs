//! `--verify-placement`: where memory of this machine is.

use std::process::Command;

use serde_json::Value;

use super::{refusal, topo};

/// Whether this machine tells where pages are; a sandbox may not.
fn tells() -> bool {
    nearpage_linux::SystemCall::MovePages.probe().is_ok()
}

#[test]
fn memory_is_where_it_was_asked_from() {
    if !tells() {
        return;
    }
    let output = topo(&["--verify-placement", "8M", "--json"], "");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    let node = &document["nodes"][0];
    assert!(node["pages"].as_u64().unwrap() > 1500, "{node}");
    assert_eq!((&node["misplaced"], &node["unknown"]), (&0.into(), &0.into()));
    assert_eq!((&node["touched"], &node["untouched"]), (&node["pages"], &0.into()));
    assert_eq!(document["note"], Value::Null);
    let text = String::from_utf8(topo(&["--verify-placement"], "").stdout).unwrap();
    assert!(text.contains("asked node ") && text.contains("100.0 % on node "), "{text}");
    assert!(!text.contains("not touched"), "{text}");
    let sample = text.lines().find_map(|line| line.strip_prefix("Sample    ")).unwrap();
    assert!(sample.ends_with(" pages that were touched"), "{sample}");
}

/// The kernel does not know emulated nodes: that the second one's memory lies on the first is no failure.
#[test]
fn emulated_nodes_are_not_the_kernels() {
    if !tells() || std::fs::exists("/sys/devices/system/node/node1").unwrap() {
        return;
    }
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.env("NEARPAGE_NUMA", "fake=2");
    let output = command.args(["topo", "--verify-placement", "8M"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Binding   none\nNote      NEARPAGE_NUMA=fake=2 emulates"), "{text}");
    assert!(text.contains("asked node 1: 100.0 % on node 0, of "), "{text}");
    let document: Value =
        serde_json::from_slice(&command.arg("--json").output().unwrap().stdout).unwrap();
    assert!(document["note"].as_str().unwrap().starts_with("NEARPAGE_NUMA=fake=2 emulates"));
    assert_eq!(document["nodes"][1]["misplaced"], 0);
}

#[test]
fn only_of_this_machine() {
    assert!(refusal(&["--verify-placement", "--numa", "1G"], "").contains("cannot be used with"));
    assert!(refusal(&["--verify-placement", "many"], "").contains("a size such as"));
}

#[test]
fn too_little_to_look_at() {
    for (size, bytes) in [("0", "0"), ("4K", "4096"), ("2047K", "2096128")] {
        let told = refusal(&["--verify-placement", size], "");
        assert!(
            told.contains(&format!("found {bytes} bytes, expected a size of 2M or more")),
            "{told}"
        );
    }
}

/// Before anything is touched: else the kernel would kill somebody.
#[test]
fn more_than_there_is() {
    for size in ["1024T", "16777215T"] {
        let told = refusal(&["--verify-placement", size], "");
        assert!(told.contains(" TiB on each of ") && told.contains(" are available ("), "{told}");
        assert!(told.contains("), expected a size of 2M to "), "{told}");
    }
}
