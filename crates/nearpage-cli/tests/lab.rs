//! `nearpage lab`: files that are wrong, results that do not depend on threads, exit codes.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

fn lab() -> Command {
    let mut command = Command::cargo_bin("nearpage").expect("the binary is built");
    command.arg("lab");
    command
}

/// A machine of two nodes and a hog that does not fit it.
const SMALL: &str = r#"schema = 1
name = "small"
title = "two nodes"

[machine]
costs = "altix-sn2"
nodes = [{ ids = "0,8", cpus_each = 2, memory = "64M" }]
distance = { other = 20 }

[workload.memory-hog]
scale = 1
memory = ["32M", "1G"]
threads = [1, 4]
stores_per_page = 1
"#;

/// Writes a scenario; returns the folder that keeps it and its path.
fn file(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("scenario.toml");
    fs::write(&path, text).expect("a file in it");
    let path = path.to_string_lossy().into_owned();
    (folder, path)
}

fn error_of(text: &str) -> String {
    let (_folder, path) = file(text);
    let output = lab().arg(&path).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).expect("text");
    error.replace(&path, "FILE")
}

#[test]
fn wrong_files_are_named_with_line_and_key() {
    let cases = [
        ("title", "titel", "line 3: unknown field `titel`"),
        ("schema = 1", "schema = 2", "line 1: schema is 2; accepted: 1"),
        ("threads = [1, 4]", "threads = [0]", "line 13: threads is 0; accepted: 1 to 4"),
        ("threads = [1, 4]", "threads = [5]", "line 13: threads is 5; the machine has 4 CPUs"),
        ("\"32M\"", "\"32 bananas\"", "line 12: memory is \"32 bananas\"; accepted: a size"),
        ("{ other = 20 }", "{}", "line 8: machine.distance: distances are missing"),
        (
            "{ other = 20 }",
            "{ matrix = [[10]] }",
            "line 8: machine.distance.matrix must be 2 rows of 2",
        ),
        ("{ other = 20 }", "{ other = 5 }", "line 7: machine: "),
        ("cpus_each = 2", "cpus_each = 0", "line 7: machine.nodes: no node has a CPU"),
        ("\"0,8\"", "\"8-0\"", "line 7: ids: "),
        ("altix-sn2", "nowhere.toml", "nowhere.toml: "),
    ];
    for (good, bad, expected) in cases {
        let error = error_of(&SMALL.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

#[test]
fn an_unknown_name_lists_those_that_there_are() {
    let output = lab().arg("zonelist-cash").output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("zonelist-cash") && error.contains("zonelist-cache"), "{error}");
}

#[test]
fn out_of_memory_is_a_result_and_threads_change_nothing() {
    let (_folder, path) = file(SMALL);
    let run = |threads: &str| {
        let output = lab().args([&path, "--json", "--seed", "1", "--threads", threads]).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output.stdout
    };
    let json = run("1");
    assert_eq!(json, run("2"));
    let reports: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(reports[0]["schema"], 1);
    assert_eq!(reports[0]["name"], "small");
    let refused = &reports[0]["counts"]["1 GB, 4 threads, off: refused"];
    assert!(refused.as_f64().expect("a count") > 200_000.0, "{refused}");
}

#[test]
fn without_a_name_scenarios_are_listed() {
    let output = lab().output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(["zonelist-cache", "pcp-autotune", "bulk"].iter().all(|name| text.contains(name)));
}
