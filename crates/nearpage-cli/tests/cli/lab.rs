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
        (
            "[machine]",
            "[machine]\ncatalog = \"p9-sparse\"",
            "line 8: machine: accepted: `catalog`, or",
        ),
        ("cpus_each = 2", "cpus_each = 0", "line 7: machine.nodes: no node has a CPU"),
        ("\"0,8\"", "\"8-0\"", "line 7: ids: "),
        ("altix-sn2", "nowhere.toml", "\"nowhere.toml\" and no such file; tables: altix-sn2"),
        ("stores_per_page = 1", "stores_per_page = 1\nhot_add = 3", "line 15: hot_add is "),
        ("memory-hog", "memory-frog", "line 10: unknown field `memory-frog`"),
        ("cpus_each = 2", "cpus_each = 4294967295", "line 7: machine: 2 nodes and 8589934590 CPUs"),
        ("\"0,8\"", "\"0-999999\"", "line 7: machine: 1000000 nodes and 2000000 CPUs"),
        ("\"64M\"", "\"100T\"", "line 7: machine: 53687091200 pages; at most 268435456"),
        ("\"64M\"", "\"1K\"", "line 7: machine: no node of the topology has memory"),
        ("scale = 1", "scale = 1000000", "line 12: memory is \"32M\"; accepted: at least 3.8 GiB"),
        ("scale = 1", "scale = 0", "line 11: scale is 0; accepted: 1 to 4294967296"),
        ("[\"32M\", \"1G\"]", "[]", "line 12: memory is empty"),
        ("[1, 4]", "[]", "line 13: threads is empty"),
        ("stores_per_page = 1", "stores_per_page = 99999", "line 14: stores_per_page is 99999"),
        (
            "{ other = 20 }",
            "{ other = 20, groups = [{ nodes = 0, distance = 15 }] }",
            "line 8: groups",
        ),
        ("{ other = 20 }", "{ other = 20, matrix = [[10, 20], [20, 10]] }", "not both"),
        ("[workload", "[variants]\npatches = [1]\n[workload", "line 11: variants.patches belongs"),
        (
            "[workload",
            "[reference]\ncolumns = []\nrows = [[]]\n[workload",
            "accepted: memory_gb, threads",
        ),
        (
            "[workload",
            "[calibrate]\nscale = { memory = \"32M\", threads = 1 }\nload_slowdown = { memory = \"1G\", threads = 4 }\n[workload",
            "line 10: calibrate belongs to memory-hog with a reference",
        ),
    ];
    for (good, bad, expected) in cases {
        let error = error_of(&SMALL.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
    }
    let of_catalog = SMALL.lines().filter(|line| !line.starts_with("distance = "));
    let of_catalog = of_catalog.map(|line| match line.starts_with("nodes = ") {
        true => "catalog = \"p10-sparse\"",
        false => line,
    });
    let error = error_of(&of_catalog.collect::<Vec<_>>().join("\n"));
    let expected = "line 7: catalog has no machine \"p10-sparse\"; accepted: altix-28n, ";
    assert!(error.contains(expected), "{error}");
}

/// Pairs that send each other blocks.
const PAIRS: &str = r#"schema = 1
name = "pairs"
title = "two nodes"

[machine]
costs = "intel-2s128"
nodes = [{ ids = "0-1", cpus_each = 3, memory = "64M" }]
distance = { other = 21 }

[variants]
patches = [0, 10]

[[workload.messages]]
name = "w"
pairs = 2
messages = 100
turn = 50
window = 8
copy_ns = 2000.0
blocks = [{ order = 3, every = 1, freed_by = "receiver" }]
"#;

#[test]
fn wrong_messages_are_named_with_line_and_key() {
    let reference = "[reference]\ncolumns = [\"workload\", \"patch\"]\nrows = [[0, nan]]\n[[work";
    let cases = [
        ("pairs = 2", "pairs = 3", "line 15: pairs is 3; accepted: 1 to 2, two CPUs of one node"),
        ("copy_ns = 2000.0", "copy_ns = inf", "line 19: copy_ns is inf; accepted: 0 to 1e9"),
        ("copy_ns = 2000.0", "copy_ns = -5.0", "line 19: copy_ns is -5; accepted: 0 to 1e9"),
        (
            "copy_ns = 2000.0",
            "calibrate = { zone_lock_percent = 200.0 }",
            "line 19: zone_lock_percent",
        ),
        ("patches = [0, 10]", "patches = []", "line 11: variants.patches: one or more"),
        ("[variants]\npatches = [0, 10]", "", "variants.patches: one or more"),
        (
            "blocks = [{ order = 3, every = 1, freed_by = \"receiver\" }]",
            "blocks = []",
            "blocks is empty",
        ),
        ("[[work", reference, "line 13: reference.rows: row 1 has what is no number"),
    ];
    for (good, bad, expected) in cases {
        let error = error_of(&PAIRS.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

/// Messages of objects.
/// Work that models are compared in, with everything that can be wrong in it.
const CONTENTION: &str = r#"schema = 1
name = "contended"
title = "two processes fill and free"
[machine]
costs = "intel-2s128"
nodes = [{ ids = "0", cpus_each = 4, memory = "256M" }]
distance = { other = 20 }
[allocator]
zone_instances = 1
[variants]
models = ["linux-6.18", { model = "rfc-2023-zones", instances = 2 }]
[[workload.contention]]
name = "fill"
fill = { processes = 2, memory = "32M", rounds = 2, bystanders = 1 }
free_ns = 60.0
page_ns = 500.0
"#;

#[test]
fn models_are_compared_side_by_side() {
    let (_folder, path) = file(CONTENTION);
    let output = lab().args([&*path, "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let reports: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let count = |model: &str, what: &str| {
        reports[0]["counts"][format!("fill, {model}: {what}")].as_f64().expect("it is counted")
    };
    for model in ["linux-6.18", "rfc-2023-zones, 2 instances"] {
        assert_eq!(count(model, "pages"), 2.0 * 2.0 * 8192.0);
        assert!(count(model, "holds") > 0.0 && count(model, "refill_us") > 0.0);
    }
    assert!(count("linux-6.18", "worst_wait_us") > 0.0);
}

#[test]
fn wrong_contention_is_named_with_line_and_key() {
    for (good, bad, expected) in [
        (
            "linux-6.18",
            "linux-7.1",
            "line 11: \"linux-7.1\" is no model (no difference known from linux-6.18",
        ),
        ("linux-6.18", "linux-2.4", "rfc-2023-zones"),
        ("instances = 2 }", "instances = 0 }", "line 11: instances is 0; accepted: 1 to 64"),
        ("instances = 2", "batch_scale_max = 9", "line 11: batch_scale_max is 9; accepted: 0 to 6"),
        ("instances = 2 }", "instances = 9999999 }", "line 11: instances is 9999999; accepted"),
        ("instances = 2", "batch_scale_max = -1", "line 11: batch_scale_max is -1; accepted"),
        ("instances = 2", "zones = 2", "accepted: the name of a model, or { model = NAME"),
        (
            "page_ns = 500.0",
            "reference = [{ columns = [\"variant\", \"score\"], rows = [[2, 1.0]] }]",
            "line 16: reference.rows: variant is 2; accepted: 0 to 1",
        ),
        ("zone_instances = 1", "zone_instances = 99", "line 9: instances is 99; accepted: 1 to 64"),
        ("models", "patches = [0]\nmodels", "variants.patches belongs to messages"),
        ("models = ", "# ", "variants.models: one or more are needed"),
        ("processes = 2", "processes = 5", "line 14: processes is 5; accepted: 1 to 4"),
        ("bystanders = 1", "bystanders = 3", "line 14: bystanders is 3; accepted: 0 to 2"),
        (
            "\"32M\"",
            "\"129M\"",
            "line 14: memory: accepted: a page and more, scaled, and at most 128 MiB",
        ),
        ("rounds = 2", "rounds = 0", "line 14: rounds is 0; accepted: 1 to 4294967296"),
        (
            "fill = {",
            "purge = { pairs = 1, pages = 1, window = 1 }\nfill = {",
            "accepted: one of fill, purge, build",
        ),
        (
            "page_ns = 500.0",
            "calibrate = {}",
            "line 16: calibrate: accepted: one of zone_lock_percent, refill_us",
        ),
        (
            "page_ns = 500.0",
            "reference = [{ columns = [\"patch\"], rows = [] }]",
            "accepted: variant, then any of",
        ),
    ] {
        let error = error_of(&CONTENTION.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

const OBJECTS: &str = r#"schema = 1
name = "objects"
title = "two nodes"

[machine]
costs = "amd-8x6"
nodes = [{ ids = "0-1", cpus_each = 2, memory = "4M" }]
distance = { other = 21 }

[workload.slab-messages]
objects = [256, 512]
messages = 40000
burst = 20000
published_messages = 32e6
message_ns = 3000.0
"#;

#[test]
fn objects_that_are_not_to_be_had_are_a_result_too() {
    let (_folder, path) = file(OBJECTS);
    let output = lab().args([&path, "--json"]).output().expect("it runs");
    let reports: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let refused = &reports[0]["counts"]["cpus all on memoryless nodes, before: refused"];
    assert!(refused.as_f64().is_some_and(|count| count > 1000.0), "{reports}");
}

#[test]
fn wrong_objects_are_named_with_line_and_key() {
    let reference = "[reference]\ncolumns = [\"machine\"]\nrows = [[0]]\n[workload";
    let cases = [
        (
            "[workload",
            reference,
            "line 10: reference: one of slab-messages is about three machines",
        ),
        ("32e6", "0.0", "line 14: published_messages is 0; accepted: 1 to 1e15"),
        ("3000.0", "1e300", "line 15: message_ns is 1"),
    ];
    for (good, bad, expected) in cases {
        let error = error_of(&OBJECTS.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

/// What follows messages of objects: requests to a block driver.
const REQUESTS: &str = r#"
[workload.block-requests]
object = 256
depth = 32
turn = 32
warm_up_ns = 1e5
window_ns = 1e5
request_ns = 500.0
machine = { name = "some", costs = "amd-8x6", nodes = [{ ids = "0", cpus_each = 2, memory = "64M" }, { ids = "1", cpus_each = 2, memory = "0" }], distance = { other = 21 } }
whole = { name = "all", costs = "amd-8x6", nodes = [{ ids = "0-1", cpus_each = 2, memory = "64M" }], distance = { other = 21 } }
"#;

#[test]
fn wrong_requests_are_named_with_line_and_key() {
    let cases = [
        ("object = 256", "object = 4", "line 18: object is 4; accepted: 8 to 4096 bytes"),
        ("turn = 32", "turn = 33", "line 19: turn and depth"),
        ("window_ns = 1e5", "window_ns = 1.0", "line 22: window_ns: accepted: 1000 or more"),
        (
            "request_ns = 500.0",
            "",
            "line 17: block-requests: accepted: one of request_ns and published",
        ),
        (
            "request_ns = 500.0",
            "published = { before = 0.0, after = 1.0 }",
            "line 23: published: accepted",
        ),
        (
            "memory = \"0\"",
            "memory = \"64M\"",
            "line 25: block-requests: accepted: a machine with a node",
        ),
    ];
    for (good, bad, expected) in cases {
        let error = error_of(&format!("{OBJECTS}{}", REQUESTS.replacen(good, bad, 1)));
        assert!(error.contains(expected), "{bad}: {error}");
    }
    let alone = OBJECTS.split("[workload").next().expect("what comes before");
    let error = error_of(&format!("{alone}{REQUESTS}"));
    assert!(error.contains("block-requests stands beside slab-messages"), "{error}");
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
        (
            "pages = 16",
            "pages = 9223372036854775807",
            "line 12: pages is 9223372036854775807; accepted",
        ),
        ("pages = 16", "pages = 0", "line 12: pages is 0; accepted: 1 to 4294967296"),
        ("sharers = 4", "sharers = 0", "line 14: sharers is 0; accepted: 1 to 4294967296"),
        ("locked_ns = 300.0", "streamed = \"much\"", "line 15: streamed is \"much\""),
        ("locked_ns = 300.0", "streamed = \"2T\"", "line 15: streamed: accepted: at most 1T"),
        ("locked_ns = 300.0", "locked_ns = inf", "line 15: locked_ns is inf; accepted: 0 to 1e9"),
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
fn what_is_no_text_is_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("garbage");
    fs::write(&path, b"schema = 1\n\xff\xfe").expect("a file in it");
    let garbage = path.to_str().expect("a path of text");
    let cases: [(&[&str], &str); 3] = [
        (&[garbage], "garbage: byte 11 is no UTF-8 text, expected a scenario as TOML"),
        (
            &["thp-then-order0", "--costs", garbage],
            "garbage: byte 11 is no UTF-8 text, expected a table of costs as TOML",
        ),
        (&["costs", garbage], "expected a table of costs as TOML"),
    ];
    for (arguments, expected) in cases {
        let output = lab().args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

/// Runs with this on standard input, and answers what is on standard output.
fn fed(arguments: &[&str], input: &str) -> String {
    let output = lab().args(arguments).write_stdin(input).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_dash_is_standard_input() {
    let (_folder, path) = file(STORM);
    let of_file = fed(&[&path, "--json"], "");
    assert_eq!(fed(&["-", "--json"], STORM), of_file);
    let costs = fed(&["costs", "intel-8s160"], "");
    assert_eq!(fed(&[&path, "--json", "--costs", "-"], &costs), of_file);
    // As it is read, without comments.
    assert!(fed(&["costs", "-"], &costs).starts_with("schema = 1\nname = "));
    let output = lab().arg("-").write_stdin("schema = 2").output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("standard input: line 1: "), "{error}");
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

#[test]
fn an_unknown_scenario_is_answered_with_all_that_the_list_has() {
    let list = String::from_utf8(lab().output().expect("it runs").stdout).expect("text");
    let scenarios = list.lines().skip(1).take_while(|line| !line.starts_with("Loads "));
    let names = scenarios.filter_map(|line| line.split_whitespace().next());
    let known = names.collect::<Vec<_>>().join(", ");
    let error = |arguments: &[&str]| {
        let output = lab().args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let message = error(&["nosuch"]);
    assert!(message.ends_with(&format!("; scenarios: {known}\n")), "{message}");
    // There is nothing to sweep on real memory.
    let message = error(&["sweep", "nosuch", "--over", "zonelist_cache=off"]);
    assert!(!message.contains("bulk"), "{message}");
}

#[test]
fn wrong_usage_is_said() {
    let cases: [(&[&str], &str); 14] = [
        (&["--loop", "2017"], "which scenario?"),
        (
            &["thp-then-order0", "node0-empty", "--loop", "2017"],
            "--loop 2017: it belongs to bulk, and changes nothing in thp-then-order0, node0-empty",
        ),
        (&["thp-then-order0", "--loop", "exact"], "--loop exact: it belongs to bulk"),
        (&["costs", "--loop", "exact"], "lab costs prints TOML"),
        (&["costs", "--costs", "amd-8x6"], "lab costs prints TOML"),
        (&["thp-then-order0", "--threads", "0"], "expected a number of threads, 1 or more"),
        (&["-", "--costs", "-"], "standard input (-) can be read once"),
        (&["thp-then-order0", "--csv", "--report", "-"], "--csv and --report - both go to"),
        (&["--json"], "which scenario?"),
        (&["--measure"], "which scenario?"),
        (&["costs", "--json"], "lab costs prints TOML"),
        (&["sweep", "thp-then-order0"], "takes `--over KEY=VALUES`"),
        (&["sweep", "bulk", "--over", "zonelist_cache=off"], "nothing to sweep"),
        (
            &[
                "sweep",
                "thp-then-order0",
                "--over",
                "zonelist_cache=off",
                "--over",
                "zonelist_cache=keyed",
            ],
            "is there twice",
        ),
    ];
    for (arguments, expected) in cases {
        let output = lab().args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn a_sweep_marks_what_nothing_beats_and_threads_change_nothing() {
    let run = |threads: &str| {
        let over =
            ["--over", "zonelist_cache=off,original,keyed", "--over", "pcp.batch_scale_max=4..5"];
        let output = lab()
            .args(["sweep", "thp-then-order0", "--csv", "--threads", threads])
            .args(over)
            .output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = run("1");
    assert_eq!(text, run("2"));
    assert_eq!(text.lines().filter(|line| line.contains("on_front")).count(), 6, "{text}");
}

#[test]
fn endless_files_and_unknown_costs_are_refused() {
    for arguments in [&["/dev/zero"][..], &["thp-then-order0", "--costs", "/dev/zero"]] {
        let output = lab().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("longer than"), "{output:?}");
    }
    let output = lab().args(["thp-then-order0", "--costs", "nosuch"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("altix-sn2, "), "{output:?}");
}

const MACHINE: &str = "--numa 1G,cpus=0-3 --numa 1G,cpus=4-7";

#[test]
fn a_load_by_name_runs_on_a_machine_of_ones_own() {
    let run = |more: &[&str]| -> Value {
        let output = lab()
            .args(["purge", "--machine", MACHINE, "--rules", "linux-6.12,nearpage", "--json"])
            .args(more)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let pages = |report: &Value, rules: &str| {
        report[0]["counts"][&format!("purge, {rules}: pages")].as_f64().unwrap()
    };
    let whole = run(&["--seconds", "0.02"]);
    assert!(pages(&whole, "linux-6.12") > 0.0 && pages(&whole, "nearpage") > 0.0);
    let notes = whole[0]["notes"].to_string();
    assert!(notes.contains("numbers: ") && notes.contains("no table of costs is given"), "{notes}");
    let few = run(&["--seconds", "0.02", "--cpus", "2"]);
    assert!(pages(&few, "linux-6.12") < pages(&whole, "linux-6.12"));
    let longer = run(&["--seconds", "0.04"]);
    assert!(pages(&longer, "linux-6.12") > pages(&whole, "linux-6.12"));
}

#[test]
fn every_load_has_a_row_of_the_book() {
    let page = super::tidy::root().join("docs/src/reference/loads.md");
    let page = std::fs::read_to_string(page).unwrap();
    let name = |line: &'static str| line.strip_prefix("| `")?.split('`').next();
    let rows: Vec<&str> = page.leak().lines().filter_map(name).collect();
    assert_eq!(rows, nearpage_lab::load::Load::ALL.map(nearpage_lab::load::Load::name));
}

#[test]
fn options_of_loads_go_with_loads() {
    for (arguments, expected) in [
        (&["build"][..], "expected --machine MACHINE"),
        (&["thp-then-order0", "--machine", MACHINE], "--machine goes with loads by name alone"),
        (&["thp-then-order0", "--rules", "nearpage"], "--rules goes with loads by name alone"),
        (&["fill", "--machine", MACHINE, "--cpus", "9"], "expected 1 to 8"),
        (&["fill", "--machine", MACHINE, "--seconds", "0"], "expected seconds from"),
    ] {
        let output = lab().args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn a_sweep_runs_the_rules_of_its_scenario_and_tells_what_does_nothing() {
    let text = r#"schema = 1
name = "own"
title = "own"
[machine]
costs = "amd-1s64"
nodes = [{ ids = "0", cpus_each = 4, memory = "512M" }]
distance = { other = 20 }
[variants]
models = ["linux-6.12", "nearpage"]
[[workload.contention]]
name = "fill"
fill = { processes = 4, memory = "16M", rounds = 2 }
free_ns = 60.0
page_ns = 500.0
"#;
    let (_folder, path) = file(text);
    let sweep = ["sweep", &path, "--over", "pcp.batch_scale_max=0,5"];
    let output = lab().args(sweep).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("model=linux-6.12, pcp.batch_scale_max=5"), "{text}");
    assert!(text.contains("model=nearpage, pcp.batch_scale_max=0"), "{text}");
    let why = "pcp.batch_scale_max has no effect under the rules nearpage: they have no batches";
    assert!(text.contains(why), "{text}");
}

/// What a table of costs lacks is taken from the nearest one, and told.
#[test]
fn all_tables_of_costs_run_a_hog() {
    for costs in ["amd-1s64", "amd-8x6", "hp-sx2000", "intel-2s224", "intel-8s160"] {
        let (_folder, path) = file(&SMALL.replace("altix-sn2", costs).replace(", \"1G\"", ""));
        let output = lab().arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{costs}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("costs: fault_ns is that of "), "{costs}: {text}");
    }
}
