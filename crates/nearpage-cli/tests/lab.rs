//! `nearpage lab`: files that are wrong, results that do not depend on threads, exit codes.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

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
        ("stores_per_page = 1", "stores_per_page = 1\nhot_add = 3", "line 15: hot_add is "),
        ("memory-hog", "memory-frog", "line 10: unknown field `memory-frog`"),
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

/// A page-lock storm, whose processes wait for each other, and whose faults take random times.
const STORM: &str = r#"schema = 1
name = "storm"
title = "four nodes"

[machine]
costs = "intel-8s160"
nodes = [{ ids = "0-3", cpus_each = 2, memory = "64M" }]
distance = { other = 20 }

[workload.page-lock-storm]
processes = [2, 8]
pages = 16
faults = 300
sharers = 4
locked_ns = 300.0
"#;

#[test]
fn wrong_storms_are_named_with_line_and_key() {
    let cases = [
        ("processes = [2, 8]", "processes = [0]", "line 11: processes is 0; accepted: 1 to 8"),
        ("processes = [2, 8]", "processes = [9]", "line 11: processes is 9; accepted: 1 to 8"),
        ("pages = 16", "pages = 0", "line 12: pages is 0; accepted: 1 or more"),
        ("sharers = 4", "sharers = 0", "line 14: sharers is 0; accepted: 1 or more"),
        ("locked_ns = 300.0", "streamed = \"much\"", "line 15: streamed is \"much\""),
    ];
    for (good, bad, expected) in cases {
        let error = error_of(&STORM.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

#[test]
fn a_seed_decides_all_and_threads_nothing() {
    let (_folder, path) = file(STORM);
    let run = |threads: &str, seed: &str| {
        let output = lab().args([&path, "--json", "--seed", seed, "--threads", threads]).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output.stdout
    };
    let json = run("1", "1");
    assert_eq!(json, run("2", "1"));
    assert_ne!(json, run("2", "2"));
    let reports: Value = serde_json::from_slice(&json).expect("JSON");
    let waits = &reports[0]["counts"]["8, per node, waiters bit: waits"];
    assert!(waits.as_f64().expect("a count") > 0.0, "{waits}");
}

#[test]
fn costs_are_listed_printed_and_measured() {
    let text = |arguments: &[&str]| {
        let output = lab().args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(text(&["costs"]).contains("altix-sn2"));
    assert!(text(&["costs", "altix-sn2"]).contains("transfer_ns"));
    let measured = text(&["costs", "--measure"]);
    let costs = nearpage_sim::Costs::parse(&measured).unwrap_or_else(|e| panic!("{e}: {measured}"));
    assert!(costs.own_hit_ns.value > 0.0 && costs.memory_ns.value[0] > costs.own_hit_ns.value);
    assert!(costs.atomic_ns.source.starts_with('M'));
    // It is accepted where a table is.
    let (_folder, scenario) = file(&STORM.replacen("intel-8s160", "amd-8x6", 1));
    let (_other, table) =
        file(&format!("{measured}\n[more]\npage_fault_ns = {{ value = 900.0, source = \"R\" }}\n"));
    text(&[&scenario, "--costs", &table]);
}

#[test]
fn an_interrupted_run_says_what_was_finished() {
    let (_folder, path) = file(SMALL);
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("nearpage"));
    command.args(["lab", &path, "zonelist-cache", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // The small one takes a second or so, the other one many.
    std::thread::sleep(Duration::from_secs(4));
    let pid = child.id().cast_signed();
    // SAFETY: it sends a signal to the child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("interrupted. Finished: "), "{error}");
    assert!(error.contains("not finished: ") && error.contains("zonelist-cache"), "{error}");
    let reports: Value = serde_json::from_slice(&output.stdout).expect("JSON of what is finished");
    assert!(reports.is_array());
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
