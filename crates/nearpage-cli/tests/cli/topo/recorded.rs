//! What `topo` derives from a machine's sizes, against what that machine's kernel printed.

use super::{recording, stdout};

/// Keys of `/proc/zoneinfo` whose values follow from sizes and settings, not from what happened.
fn is_derivable(line: &str, model: &str) -> bool {
    const KEYS: [&str; 13] = [
        "Node",
        "boost",
        "min",
        "low",
        "promo",
        "spanned",
        "present",
        "managed",
        "protection:",
        "cpu:",
        "batch:",
        "vm",
        "start_pfn:",
    ];
    // The first `high` is a mark; the one of a pageset moves since 6.7.
    let is_high = line.contains("high ") || line.contains("high:") && model == "linux-6.1";
    is_high || KEYS.contains(&line.split_whitespace().next().unwrap_or(""))
}

/// The line with every number replaced.
fn shape(line: &str) -> String {
    let mut shape = line.replace(|character: char| character.is_ascii_digit(), "#");
    while shape.contains("##") {
        shape = shape.replace("##", "#");
    }
    shape
}

fn check(folder: &str, model: &str) {
    let folder = recording(folder);
    let path = folder.to_str().unwrap();
    let recorded = std::fs::read_to_string(folder.join("proc/zoneinfo")).unwrap();
    let derived = stdout(&["--sysroot", path, "--model", model, "--format", "zoneinfo"], "");
    assert_eq!(derived.lines().count(), recorded.lines().count());
    let mut heading = "";
    for (derived, recorded) in derived.lines().zip(recorded.lines()) {
        if recorded.starts_with("Node") {
            heading = recorded;
        }
        assert_eq!(shape(derived), shape(recorded), "{heading}");
        if is_derivable(recorded, model) {
            assert_eq!(derived, recorded, "{heading}");
        }
    }
    let orders = std::fs::read_to_string(folder.join("fallback.txt")).unwrap();
    let arguments = ["--sysroot", path, "--model", model, "--format", "fallback"];
    assert_eq!(stdout(&arguments, ""), orders);
}

#[test]
fn linux_6_12_with_memoryless_nodes() {
    check("linux-6.12-memoryless", "linux-6.12");
}

#[test]
fn linux_6_1_with_movable_zones() {
    check("linux-6.1-movable", "linux-6.1");
}

/// What a zone is in the recordings of 6.12.117: 5 GiB and 3 GiB on 2 nodes with 2 CPUs each.
#[test]
fn recorded_watermarks_of_two_nodes() {
    let zone = |node: u32, name: &str, start: u64, spanned: u64, present: u64, managed: u64| {
        format!(
            "Node {node}, zone {name:>8}\n  pages free 0\n spanned {spanned}\n present {present}\n \
             managed {managed}\n  start_pfn: {start}\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, content: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("sys/devices/system/node/node0/cpulist", "0-1\n");
    write("sys/devices/system/node/node1/cpulist", "2-3\n");
    write("proc/sys/vm/min_free_kbytes", "90112\n");
    let zoneinfo = zone(0, "DMA", 1, 4095, 3998, 3840)
        + &zone(0, "DMA32", 4096, 1_044_480, 782_304, 765_920)
        + &zone(0, "Normal", 1_048_576, 524_288, 524_288, 503_629)
        + &zone(1, "Normal", 1_572_864, 786_432, 786_432, 763_047);
    write("proc/zoneinfo", &zoneinfo);
    let path = folder.path().to_str().unwrap();
    let json = stdout(&["--topology", path, "--model", "linux-6.12", "--json"], "");
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut rows = Vec::new();
    for node in document["nodes"].as_array().unwrap() {
        for zone in node["zones"].as_array().unwrap() {
            let marks = ["min", "low", "high", "promo"].map(|mark| &zone["watermarks"][mark]);
            let marks = marks.map(|mark| mark.as_u64().unwrap());
            let protection = zone["protection"].to_string();
            rows.push((marks, protection, zone["pageset"]["batch"].as_u64().unwrap()));
        }
    }
    let none = || String::from("[0,0,0,0,0]");
    let expected = [
        ([42, 52, 62, 72], "[0,2991,4959,4959,4959]".into(), 1),
        ([8472, 10590, 12708, 14826], "[0,0,1967,1967,1967]".into(), 63),
        ([5571, 6963, 8355, 9747], none(), 63),
        ([8441, 10551, 12661, 14771], none(), 63),
    ];
    assert_eq!(rows, expected);
}
