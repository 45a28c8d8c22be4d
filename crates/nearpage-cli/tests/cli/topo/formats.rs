//! What each format prints.

use std::process::Command;

use serde_json::Value;

use super::{stdout, topo};

/// Three nodes: two near each other, one without CPUs further away.
const CXL: [&str; 10] = [
    "--numa",
    "2G,cpus=0-1",
    "--numa",
    "0,cpus=2-3",
    "--numa",
    "4G",
    "--numa-distance",
    "0,1=12",
    "--numa-distance",
    "0,2=14",
];

fn format(format: &str, more: &[&str]) -> String {
    stdout(&[&CXL, more, &["--format", format]].concat(), "")
}

#[test]
fn fallback_lines_are_the_kernels() {
    let lines = "Fallback order for Node 0: 0 2 \n\
                 Fallback order for Node 1: 0 2 \n\
                 Fallback order for Node 2: 2 0 \n";
    assert_eq!(format("fallback", &["--model", "linux-6.12"]), lines);
    let older = lines.replace("Node 1: 0", "Node 1: 1 0");
    assert_eq!(format("fallback", &["--model", "linux-6.1"]), older);
}

/// As Linux's own zonelists: only the line that 6.1 logs names a node that has nothing to give.
#[test]
fn the_fallback_order_of_a_memoryless_node_is_of_nodes_with_memory() {
    for model in ["linux-6.1", "linux-6.12", "nearpage"] {
        let json: Value = serde_json::from_str(&format("json", &["--model", model])).unwrap();
        let node = &json["nodes"][1];
        assert_eq!((node["id"].as_u64(), &node["fallback"]), (Some(1), &serde_json::json!([0, 2])));
        let text = format("text", &["--model", model]);
        let cells: Vec<&str> = text.lines().nth(6).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["1", "2-3", "0", "B", "unknown", "0", "0", "2"], "{model}: {text}");
    }
}

#[test]
fn nodes_without_cpus_are_preferred_by_nearpage_and_after_a_rebuild() {
    let machine =
        ["--numa", "1G,cpus=0", "--numa", "1G,cpus=1", "--numa", "1G", "--format", "fallback"];
    let lines = |more: &[&str]| stdout(&[&machine, more].concat(), "");
    let boot = "Fallback order for Node 0: 0 1 2 \n\
                Fallback order for Node 1: 1 2 0 \n\
                Fallback order for Node 2: 2 0 1 \n";
    let rebuilt = boot.replace("0: 0 1 2", "0: 0 2 1");
    assert_eq!(lines(&["--model", "linux-6.12"]), boot);
    assert_eq!(lines(&["--model", "linux-6.12", "--rebuilt"]), rebuilt);
    assert_eq!(lines(&[]), rebuilt);
}

#[test]
fn numactl_text() {
    assert_eq!(
        format("numactl", &[]),
        "available: 3 nodes (0-2)\n\
         node 0 cpus: 0 1\n\
         node 0 size: 2048 MB\n\
         node 0 free: <not available>\n\
         node 1 cpus: 2 3\n\
         node 1 size: 0 MB\n\
         node 1 free: <not available>\n\
         node 2 cpus:\n\
         node 2 size: 4096 MB\n\
         node 2 free: <not available>\n\
         node distances:\n\
         node     0    1    2 \n   \
            0:   10   12   14 \n   \
            1:   12   10   20 \n   \
            2:   14   20   10 \n"
    );
}

#[test]
fn zoneinfo_has_every_zone_of_every_node() {
    let text = format("zoneinfo", &["--model", "linux-6.12"]);
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("Node")).collect();
    assert_eq!(headings.len(), 15);
    assert_eq!(headings[0], "Node 0, zone      DMA");
    assert_eq!(headings[14], "Node 2, zone   Device");
    assert_eq!(text.matches("per-node stats").count(), 2);
    assert!(text.contains("        promo    "));
    let older = format("zoneinfo", &["--model", "linux-6.1"]);
    assert!(!older.contains("        promo    "));
    // Populated zones: DMA and DMA32 of node 0, DMA32 and Normal of node 2; four CPUs.
    assert_eq!(text.matches("    cpu: ").count(), 16);
    assert_eq!(text.matches("  start_pfn:           1048576\n").count(), 1);
}

#[test]
fn a_setting_of_any_machine_is_replaced_and_told() {
    let low = |set: &[&str]| {
        let document: Value = serde_json::from_str(&format("json", set)).unwrap();
        let zone = &document["nodes"][0]["zones"][0];
        (zone["watermarks"]["low"].as_u64().unwrap(), document["set"].clone())
    };
    let (before, set) = low(&[]);
    assert_eq!(set, serde_json::json!([]));
    let (after, set) = low(&["--set", "vm.watermark_scale_factor=500"]);
    assert!(after > before, "{after} {before}");
    let key = "vm.watermark_scale_factor";
    assert_eq!(
        set,
        serde_json::json!([{ "key": key, "before": "10", "after": "500", "no_effect": null }])
    );
    let text = format("text", &["--set", "vm.watermark_scale_factor=500"]);
    assert!(text.contains("Set       vm.watermark_scale_factor: 10 -> 500\n"), "{text}");
}

#[test]
fn json_has_all_keys() {
    let document: Value = serde_json::from_str(&format("json", &["--rebuilt"])).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(document["schema"], 1);
    assert_eq!(
        keys(&document),
        [
            "address_map",
            "addresses",
            "binding",
            "distances",
            "lists",
            "model",
            "nodes",
            "page_bytes",
            "schema",
            "set",
            "settings",
            "source",
            "storage",
            "warnings"
        ]
    );
    assert_eq!(document["lists"], "rebuilt");
    assert_eq!(document["distances"].to_string(), "[[10,12,14],[12,10,20],[14,20,10]]");
    let node = &document["nodes"][1];
    assert_eq!(
        keys(node),
        [
            "cpus",
            "effective_node",
            "fallback",
            "free_bytes",
            "id",
            "memory_bytes",
            "zonelist",
            "zonelist_this_node",
            "zones"
        ]
    );
    assert_eq!(node["effective_node"], 0);
    assert_eq!(node["zones"].to_string(), "[]");
    assert_eq!(node["zonelist_this_node"].to_string(), "[]");
    assert_eq!(node["zonelist"][0].to_string(), r#"{"node":0,"zone":"DMA32"}"#);
    let zone = &document["nodes"][2]["zones"][0];
    assert_eq!(
        keys(zone),
        [
            "managed",
            "name",
            "pageset",
            "present",
            "protection",
            "spanned",
            "start_pfn",
            "stat_threshold",
            "watermarks"
        ]
    );
    assert_eq!(zone["name"], "DMA32");
    assert_eq!(zone["managed"], 1 << 18);
    assert_eq!(format("json", &[]), stdout(&[&CXL[..], &["--json"]].concat(), ""));
}

#[test]
fn every_json_key_is_in_the_help() {
    let help = stdout(&["--help"], "");
    fn check(help: &str, value: &Value) {
        match value {
            Value::Object(entries) => entries.iter().for_each(|(key, value)| {
                assert!(help.contains(key.as_str()), "{key}");
                check(help, value);
            }),
            Value::Array(values) => values.iter().for_each(|value| check(help, value)),
            _ => {}
        }
    }
    check(&help, &serde_json::from_str(&format("json", &[])).unwrap());
}

#[test]
fn dot_is_directed_only_if_distances_are() {
    assert_eq!(
        format("dot", &[]),
        "graph nearpage {\n  \
           node [shape=box];\n  \
           node0 [label=\"node 0\\nCPUs 0-1\\n2 GiB\"];\n  \
           node1 [label=\"node 1\\nCPUs 2-3\\nno memory\"];\n  \
           node2 [label=\"node 2\\nno CPUs\\n4 GiB\"];\n  \
           node0 -- node1 [label=\"12\"];\n  \
           node0 -- node2 [label=\"14\"];\n  \
           node1 -- node2 [label=\"20\"];\n}\n"
    );
    let directed = format("dot", &["--numa-distance", "1,0=13"]);
    assert!(directed.starts_with("digraph nearpage {\n"));
    assert!(directed.contains("  node0 -> node1 [label=\"12\"];\n"));
    assert!(directed.contains("  node1 -> node0 [label=\"13\"];\n"));
}

#[test]
fn text_shows_nodes_and_zones_and_of_this_machine_the_storage() {
    let text = format("text", &["--model", "linux-6.12"]);
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "Machine command line; pages of 4 KiB; addresses assumed: those of a PC",
        "Model linux-6.12, zonelists as at boot; min_free_kbytes 90112, watermark_scale_factor 10",
        "node CPUs memory free memory from fallback order",
        "1 2-3 0 B unknown 0 0 2",
        "2 none 4 GiB unknown 2 2 0",
        "from \\ to 0 1 2",
        "2 14 20 10",
        "2 Normal 1048576 786432 786432 786432 11264 14080 16896 19712 0 0 0 0 0",
        "2 Normal 63 3520 24576 36",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\n{text}");
    }
    let has_storage = |text: &str| text.lines().any(|line| line.starts_with("Storage "));
    assert!(!has_storage(&text), "of another machine: {text}");
    assert!(has_storage(&stdout(&[], "")), "of this one");
}

#[test]
fn rseq_can_be_turned_off() {
    let output = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"))
        .arg("topo")
        .env("NEARPAGE_RSEQ", "off")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("Storage   locked (a try-lock per CPU; NEARPAGE_RSEQ=off, or chosen)\n"),
        "{text}"
    );
}

#[test]
fn notes_are_printed_or_said_aside() {
    let input = "node 0 cpus: 0\nnode 0 size: <not available>\n";
    let note = "the memory of node 0 is unknown: taken as none";
    assert!(stdout(&["--topology", "-"], input).ends_with(&format!("\nNote: {note}.\n")));
    let output = topo(&["--topology", "-", "--format", "fallback"], input);
    assert_eq!(output.stdout, b"Fallback order for Node 0: \n");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        format!("nearpage: standard input: {note}\n")
    );
}

#[test]
fn hwloc_draws_what_is_written() {
    let xml = format("hwloc", &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.xml");
    std::fs::write(&path, &xml).unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(stdout(&["--topology", path, "--format", "hwloc"], ""), xml);
    let of_text = format("numactl", &[]);
    let numactl = stdout(&["--topology", path, "--format", "numactl"], "");
    let lines = |text: &str, word: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(word)).map(String::from).collect()
    };
    for word in ["cpus:", "size:", ":   "] {
        assert_eq!(lines(&numactl, word), lines(&of_text, word));
    }
    let drawn = Command::new("lstopo-no-graphics")
        .args(["-i", path, "--of", "console", "--no-io"])
        .output();
    let Ok(drawn) = drawn else {
        eprintln!("skipped: lstopo-no-graphics (package hwloc) is not installed");
        return;
    };
    let (drawn, complaints) =
        (String::from_utf8(drawn.stdout).unwrap(), String::from_utf8(drawn.stderr).unwrap());
    assert_eq!(complaints, "");
    for part in ["NUMANode L#0 (P#0 2048MB)", "NUMANode L#1 (P#1)", "PU L#3 (P#3)"] {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
    assert!(drawn.contains("(P#2 4096MB)"), "{drawn}");
}
