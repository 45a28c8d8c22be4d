//! Images of a kernel's memory as inputs: a kernel that is drawn, with what was drawn to compare.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::drawn::kernel::{Drawn, draw};
use super::drawn::rng::Rng;

fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let (code, printed, message) = run(folder, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {message}");
    serde_json::from_str(&printed).unwrap()
}

/// Each command shows the machine that was drawn; a bundle of it shows the same.
#[test]
fn every_command_reads_a_dump() {
    for seed in 1..=3 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let Drawn { file, state, .. } = draw(&mut Rng::new(seed));
        std::fs::write(folder.join("vmcore"), file).unwrap();
        let written = json(folder, &["snapshot", "--vmcore", "vmcore", "-o", "s.tar", "--json"]);
        let zones = || {
            let all = state.nodes.iter().flat_map(|node| &node.zones);
            all.filter(|zone| zone.managed_pages > 0)
        };
        let pages: u64 = zones().flat_map(|zone| &zone.pagesets).map(|of| of.pages()).sum();
        let free: u64 = zones().map(|zone| zone.free_pages()).sum();
        assert_eq!(written["kernel"], state.release, "seed {seed}");
        assert_eq!(written["pagesets"]["pages"], pages, "seed {seed}");
        assert_eq!(written["free_pages"], free, "seed {seed}");
        assert_eq!(written["told"], serde_json::json!([]), "seed {seed}");

        let ids: Vec<u64> = state.nodes.iter().map(|node| node.id.into()).collect();
        for input in [["--vmcore", "vmcore"], ["--sysroot", "s.tar"]] {
            let topo = json(folder, &["topo", "--json", input[0], input[1]]);
            let nodes = topo["nodes"].as_array().unwrap();
            let shown: Vec<u64> = nodes.iter().map(|node| node["id"].as_u64().unwrap()).collect();
            assert_eq!(shown, ids, "seed {seed} {input:?}");
            let top = json(folder, &["top", "--once", "--json", input[0], input[1]]);
            let counted = top["sample"]["zones"].as_array().unwrap();
            assert_eq!(counted.len(), zones().count(), "seed {seed} {input:?}: {counted:?}");
            let (code, printed, message) = run(folder, &["doctor", "--json", input[0], input[1]]);
            assert!(matches!(code, Some(0 | 1)), "seed {seed} {input:?}: {message}");
            let found: Value = serde_json::from_str(&printed).unwrap();
            assert!(found["findings"].as_array().is_some_and(|all| !all.is_empty()));
        }
        // The drawn kernel has no log.
        let (code, _, message) = run(folder, &["explain", "--vmcore", "vmcore"]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("OFFSET(") || message.contains("the ring"), "{message}");
    }
}

#[test]
fn what_is_no_dump_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("text"), "MemTotal: 1 kB\n").unwrap();
    for command in [&["topo"][..], &["doctor"], &["top", "--once"], &["explain"], &["snapshot"]] {
        for (name, why) in [("text", "is no ELF file"), ("none", "cannot be read")] {
            let (code, _, message) = run(folder, &[command, &["--vmcore", name]].concat());
            assert_eq!(code, Some(2), "{command:?} {name}: {message}");
            assert!(message.contains(name) && message.contains(why), "{command:?}: {message}");
        }
    }
    let (code, _, message) = run(folder, &["snapshot", "--vmcore", "text", "-o", "s.zip"]);
    assert!(code == Some(2) && message.contains("ends in .tar"), "{message}");
}
