//! Wrong input: exit code 2, nothing on standard output, and a message with place and remedy.

use super::{refusal, stdout, topo};

/// The message for a text on standard input.
fn message(input: &str) -> String {
    refusal(&["--topology", "-"], input)
}

#[test]
fn numactl_text() {
    let table = "node 0 cpus: 0\nnode 0 size: 10 MB\nnode 1 cpus: 1\nnode 1 size: 10 MB\n\
                 node distances:\nnode 0 1\n 0: 10 20\n 1: 20 10\n";
    assert!(stdout(&["--topology", "-"], table).contains("Nodes"));
    let changed = |from: &str, to: &str| {
        assert!(table.contains(from));
        message(&table.replace(from, to))
    };
    assert_eq!(
        changed("node 0 1\n", "node 0 2\n"),
        "nearpage: standard input:6: node 2 is not there, expected some of 0-1\n"
    );
    assert_eq!(
        changed("node 1 cpus: 1", "node 1 cpus: 0"),
        "nearpage: standard input:3: CPU 0 is already on node 0, expected each CPU on one node\n"
    );
    assert_eq!(
        changed("0: 10 20", "0: 10 9"),
        "nearpage: standard input:7: the distance from node 0 to node 1 is 9, expected 10 to 255\n"
    );
    assert_eq!(
        changed("1: 20 10", "1: 20 20"),
        "nearpage: standard input:8: the distance of node 1 to itself is 20, expected 10\n"
    );
    assert_eq!(
        changed("0: 10 20", "0: 10 300"),
        "nearpage: standard input:7: the distance from node 0 to node 1 is 300, expected 10 to 255\n"
    );
    assert!(message("No NUMA available on this system\n").starts_with(
        "nearpage: standard input:1: numactl found no NUMA on that system and says nothing"
    ));
}

#[test]
fn asymmetric_distances_are_legal() {
    let table = "node 0 cpus: 0\nnode 0 size: 10 MB\nnode 1 size: 10 MB\n\
                 node distances:\nnode 0 1\n 0: 10 20\n 1: 30 10\n";
    let text = stdout(&["--topology", "-", "--format", "numactl"], table);
    assert!(text.ends_with("   0:   10   20 \n   1:   30   10 \n"));
}

#[test]
fn short_form() {
    assert_eq!(
        message("--numa 1G\n--numa 1X\n"),
        "nearpage: standard input:2: found \"1X\", expected a size such as 0, 512M, 2G or 1T\n"
    );
    assert_eq!(
        refusal(&["--numa", "1G", "--numa-distance", "0,4=20"], ""),
        "nearpage: --numa-distance number 1: node 4 is not there, expected some of 0\n"
    );
    assert_eq!(
        refusal(&["--numa", "99999999T"], ""),
        "nearpage: --numa number 1: found \"99999999T\", expected a size such as 0, 512M, 2G or 1T\n"
    );
}

#[test]
fn inputs_that_are_no_machine() {
    let missing = refusal(&["--topology", "no/such/file"], "");
    assert!(missing.starts_with("nearpage: no/such/file: No such file or directory"), "{missing}");
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    for option in ["--topology", "--sysroot"] {
        assert_eq!(
            refusal(&[option, path], ""),
            format!(
                "nearpage: {path}: has no sys/devices/system/node and no sys/devices/system/cpu, \
                 expected the root of a copy of /sys and /proc\n"
            )
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(
        refusal(&["--sysroot", path], ""),
        format!(
            "nearpage: {path}: not an archive, expected a folder or a tar archive with a copy of /sys \
             and /proc\n"
        )
    );
    for option in ["--topology", "--sysroot", "--bundle"] {
        let message = refusal(&[option, "no/su\nch\u{1b}file"], "");
        let expected = "nearpage: no/su\\nch\\u{1b}file: No such file or directory";
        assert!(message.starts_with(expected), "{option}: {message:?}");
    }
    assert!(message("").starts_with("nearpage: standard input: describes no node, expected "));
    assert!(
        message("hello\n").starts_with("nearpage: standard input:1: found \"hello\", expected ")
    );
    assert!(
        message("\0\0\0").starts_with(
            "nearpage: standard input: all 3 bytes are zero, as of a tar archive without files, expected "
        )
    );
    assert!(message("a\0b").starts_with("nearpage: standard input: byte 1 is 0x00: "));
}

#[test]
fn a_meminfo_of_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path().join("sys/devices/system/node/node0");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("cpulist"), "0\n").unwrap();
    std::fs::write(node.join("meminfo"), "\nNode 1 MemTotal: 4096 kB\n").unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(
        refusal(&["--sysroot", path], ""),
        format!(
            "nearpage: {path}/sys/devices/system/node/node0/meminfo:2:6: found \"1\", expected 0, the node that \
             the file is of\n"
        )
    );
}

#[test]
fn ids_that_are_named_twice() {
    assert_eq!(
        refusal(&["--numa", "1G", "--numa", "1G,cpus=0-3,cpus=5,5"], ""),
        "nearpage: --numa number 2: CPU 5 is already on node 1, expected each CPU on one node\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let nodes = folder.path().join("sys/devices/system/node");
    std::fs::create_dir_all(nodes.join("node0")).unwrap();
    std::fs::write(nodes.join("node0/cpulist"), "0-3,2\n").unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(
        refusal(&["--sysroot", path], ""),
        format!(
            "nearpage: {path}/sys/devices/system/node/node0/cpulist:1:5: found \"2\", expected each id once\n"
        )
    );
}

/// Else their user would take a machine with other settings for the one that was asked for.
#[test]
fn captures_are_of_recordings_alone() {
    for source in [["--numa", "2G"], ["--sysroot", "/"], ["--topology", "-"]] {
        let message = refusal(&[&source[..], &["--capture", "boot"]].concat(), "");
        assert!(message.contains("cannot be used with"), "{message}");
    }
}

#[test]
fn settings_that_linux_refuses_are_refused_of_any_machine() {
    for source in [["--numa", "2G"], ["--topology", "memoryless-8n2m"]] {
        let set = ["--set", "vm.percpu_pagelist_high_fraction=7"];
        let message = refusal(&[source, set].concat(), "");
        assert!(message.contains("is 7; accepted: 0, or 8 and more"), "{message}");
    }
}

#[test]
fn inputs_without_an_end() {
    let expected =
        |input| format!("nearpage: {input}: longer than 256 MiB; --limit SIZE raises it\n");
    assert_eq!(refusal(&["--topology", "/dev/zero"], ""), expected("/dev/zero"));
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let output = std::process::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"))
        .args(["topo", "--topology", "-"])
        .stdin(endless)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected("standard input"));
}

#[test]
fn settings_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, content: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("sys/devices/system/cpu/online", "0\n");
    write("proc/sys/vm/watermark_scale_factor", "4000\n");
    let path = folder.path().to_str().unwrap();
    assert_eq!(
        refusal(&["--sysroot", path], ""),
        format!("nearpage: {path}: watermark_scale_factor is 4000; accepted: 1 to 3000\n")
    );
}

#[test]
fn wrong_usage() {
    for arguments in [
        &["--format", "xml"][..],
        &["--model", "linux-7"],
        &["--numa-distance", "0,1=20"],
        &["--topology", "-", "--numa", "1G"],
        &["--topology", "-", "--sysroot", "/"],
        &["--json", "--format", "text"],
        &["--nonsense"],
    ] {
        let output = topo(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(topo(&["--help"], "").status.code(), Some(0));
}
