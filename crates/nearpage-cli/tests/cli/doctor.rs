//! `nearpage doctor` as a user runs it.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.arg("doctor").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn level<'a>(document: &'a Value, check: &str) -> Option<&'a str> {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == check)?["level"].as_str()
}

/// The lines of findings, without those of what the copy lacks.
fn judged(text: &str) -> Vec<&str> {
    text.lines().skip(2).filter(|line| !line.contains(" missing = ")).collect()
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Two nodes; threads may run on both, and use memory of the first.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for node in 0..2 {
        let nodes = format!("sys/devices/system/node/node{node}");
        write(root, &format!("{nodes}/cpulist"), &format!("{node}\n"));
        write(root, &format!("{nodes}/meminfo"), &format!("Node {node} MemTotal: 4096 kB\n"));
        write(root, &format!("{nodes}/distance"), ["10 20\n", "20 10\n"][node]);
    }
    write(root, "proc/sys/kernel/numa_balancing", "1\n");
    write(root, "proc/sys/vm/zone_reclaim_mode", "0\n");
    write(root, "proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n");
    folder
}

fn judge_copy(path: &str) {
    let output = doctor(&["--sysroot", path, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "nearpage: 2 problems found\n");
    let document = json(&output);
    assert_eq!((&document["schema"], &document["problems"]), (&1.into(), &2.into()));
    assert_eq!(level(&document, "kernel.numa_balancing"), Some("problem"));
    assert_eq!(level(&document, "vm.zone_reclaim_mode"), Some("good"));
    assert_eq!(level(&document, "cpus and memory allowed"), Some("problem"));
    assert_eq!(level(&document, "vm.overcommit_memory"), None);
    assert_eq!(level(&document, "mbind"), None);
}

#[test]
fn a_copy_is_judged_as_a_folder_and_as_an_archive() {
    let folder = copy();
    judge_copy(folder.path().to_str().unwrap());
    let archive = tempfile::NamedTempFile::new().unwrap();
    let mut builder = tar::Builder::new(archive.as_file());
    builder.append_dir_all("box", folder.path()).unwrap();
    builder.finish().unwrap();
    judge_copy(archive.path().to_str().unwrap());
}

/// A recording tells settings and nodes; which of its states is looked at is told and can be chosen.
#[test]
fn recordings_are_judged() {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle");
    let bundle = oracle.join("bundles/q612-memless2.tar.zst");
    let bundle = bundle.to_str().unwrap();
    let document = json(&doctor(&["--sysroot", bundle, "--json"]));
    assert_eq!((&document["source"], &document["capture"]), (&bundle.into(), &"before".into()));
    assert!(level(&document, "vm.overcommit_memory").is_some(), "{document}");
    let after = doctor(&["--sysroot", bundle, "--capture", "after"]);
    let text = String::from_utf8(after.stdout).unwrap();
    assert!(text.starts_with(&format!("Machine   {bundle}, capture after\n")), "{text}");
    let mut piped = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    let piped = piped.args(["doctor", "--sysroot", "-", "--json"]).pipe_stdin(bundle).unwrap();
    let mut of_pipe = json(&piped.output().unwrap());
    assert_eq!(of_pipe["source"], "standard input");
    of_pipe["source"] = bundle.into();
    assert_eq!(of_pipe, document);
    let boot = oracle.join("corpus/n2-2g-4c-6.12.json.zst");
    let document = json(&doctor(&["--sysroot", boot.to_str().unwrap(), "--json"]));
    assert_eq!(document["capture"], "restored");
    let none = doctor(&["--sysroot", bundle, "--capture", "boot"]);
    assert_eq!(none.status.code(), Some(2));
    let error = String::from_utf8(none.stderr).unwrap();
    assert!(
        error.ends_with("has no capture boot, expected one of: before, cmdend, after\n"),
        "{error}"
    );
}

#[test]
fn every_finding_is_one_line() {
    let folder = copy();
    let output = doctor(&["--sysroot", folder.path().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = judged(&text);
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("is not judged")).count(), 5, "{text}");
    assert!(
        lines[0].starts_with("problem   kernel.numa_balancing = 1: the kernel unmaps"),
        "{text}"
    );
    assert!(lines[0].contains(" -> `sysctl kernel.numa_balancing=0`"), "{text}");
}

#[test]
fn this_machine_is_judged() {
    let output = doctor(&["--json"]);
    let document = json(&output);
    assert_eq!(document["source"], "this machine");
    for check in ["mbind", "membarrier", "move_pages", "rseq", "RLIMIT_AS"] {
        assert!(level(&document, check).is_some(), "{check}");
    }
    let expected = if document["problems"] == 0 { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(expected));
}

#[test]
fn wrong_input_is_refused_with_2() {
    let refusal = |path: &Path| {
        let output = doctor(&["--sysroot", path.to_str().unwrap()]);
        assert_eq!((output.status.code(), output.stdout), (Some(2), vec![]));
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = refusal(Path::new("/nonexistent/copy"));
    assert!(missing.starts_with("nearpage: /nonexistent/copy: No such file"), "{missing}");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "--numa 1G").unwrap();
    let expected =
        "not an archive, expected a folder or a tar archive with a copy of /sys and /proc\n";
    assert!(refusal(file.path()).ends_with(expected));
    assert_eq!(doctor(&["--sysroot"]).status.code(), Some(2));
}

#[test]
fn a_bad_file_is_a_line_and_the_others_are_judged() {
    let folder = copy();
    write(folder.path(), "proc/sys/vm/zone_reclaim_mode", "yes");
    let path = folder.path().to_str().unwrap();
    let output = doctor(&["--sysroot", path, "--json"]);
    let bad = format!("{path}/proc/sys/vm/zone_reclaim_mode:1:1: found \"yes\", expected 0 to 7");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("nearpage: {bad}\n"));
    let document = json(&output);
    assert_eq!(document["findings"][0]["found"], bad);
    assert_eq!(level(&document, "unreadable"), Some("problem"));
    assert_eq!(level(&document, "vm.zone_reclaim_mode"), None);
    assert_eq!(level(&document, "kernel.numa_balancing"), Some("problem"));
    assert_eq!(level(&document, "cpus and memory allowed"), Some("problem"));
    assert_eq!(document["problems"], 3);
}

#[test]
fn a_machine_that_cannot_be_read_is_a_line_too() {
    let folder = copy();
    write(folder.path(), "sys/devices/system/node/node1/cpulist", "none");
    let output = doctor(&["--sysroot", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = judged(&text);
    // The nodes are judged all the same, as far as one list lets them be.
    assert!(lines[0].contains("node1/cpulist:1:1: found \"none\", expected an id"), "{text}");
    assert!(lines[1].starts_with("problem   kernel.numa_balancing = 1"), "{text}");
}

#[test]
fn nothing_that_cannot_be_judged_is_good() {
    let folder = copy();
    let wrong = [
        ("proc/sys/kernel/numa_balancing", "99"),
        ("proc/sys/vm/zone_reclaim_mode", "8"),
        ("proc/sys/vm/overcommit_memory", "7"),
        ("proc/self/status", "garbage"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "nothing"),
        ("sys/kernel/mm/transparent_hugepage/defrag", "[bogus]"),
        ("sys/devices/system/node/online", ""),
        ("sys/devices/system/cpu/online", "0-x"),
        ("sys/devices/system/cpu/possible", ""),
    ];
    for (path, text) in wrong {
        write(folder.path(), path, text);
    }
    let output = doctor(&["--sysroot", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("good "), "{text}");
    for (path, content) in wrong {
        let line = format!("{path}:1:1: found {content:?}, expected ");
        assert_eq!(text.matches(&line).count(), 1, "{line} in {text}");
    }
    assert_eq!(judged(&text).len(), wrong.len(), "{text}");
}

#[test]
fn a_copy_without_proc_says_so() {
    let folder = copy();
    fs::remove_dir_all(folder.path().join("proc")).unwrap();
    let path = folder.path().to_str().unwrap();
    let output = doctor(&["--sysroot", path]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = format!(
        "note      missing = {path}/proc: missing, expected a copy of /proc with sys and self/status: \
         what it would say is not judged"
    );
    assert!(text.lines().any(|of| of == line), "{text}");
    assert!(judged(&text).is_empty(), "{text}");
    for check in ["kernel.numa_balancing", "vm.max_map_count", "CPUs and nodes allowed"] {
        assert!(text.contains(&format!("not in the copy: {check} is not judged")), "{text}");
    }
}

/// Half of the memory is gone, and the node with it: its CPUs run, and no list has them.
#[test]
fn cpus_without_a_node_are_told() {
    let folder = copy();
    fs::remove_dir_all(folder.path().join("sys/devices/system/node/node1")).unwrap();
    write(folder.path(), "sys/devices/system/node/node0/distance", "10\n");
    write(folder.path(), "sys/devices/system/cpu/online", "0-1\n");
    let document = json(&doctor(&["--sysroot", folder.path().to_str().unwrap(), "--json"]));
    assert_eq!(level(&document, "CPUs without a node"), Some("problem"), "{document}");
    assert_eq!(level(&document, "unreadable"), None, "{document}");
}

#[test]
fn empty_files_of_proc_are_told() {
    let folder = copy();
    fs::write(folder.path().join("proc/zoneinfo"), "").unwrap();
    let path = folder.path().to_str().unwrap();
    let output = doctor(&["--sysroot", path]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("missing = {path}/proc/zoneinfo: empty, as tar")), "{text}");
}
