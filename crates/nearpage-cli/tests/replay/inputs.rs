//! Where bundles and traces come from, and what is refused of them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;
use serde_json::Value;

use super::{nearpage, shipped, stdout, trace, unpack_shipped};

fn refused(arguments: &[&str]) -> String {
    let output = nearpage(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    // Standard output has the document of the error where JSON was asked for, and nothing else.
    let documents = usize::from(arguments.contains(&"--json"));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown.matches("\"exit_code\": 2").count(), documents, "{shown}");
    assert_eq!(shown.is_empty(), documents == 0, "{shown}");
    message
}

/// Standard output of a run that reads `input`.
fn piped(arguments: &[&str], input: Vec<u8>) -> String {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    let output = command.args(arguments).write_stdin(input).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

fn rows(report: &str) -> Value {
    let report: Value = serde_json::from_str(report).unwrap();
    report["fidelity"].clone()
}

/// The recorder takes samples until it has read `after`: the last one may begin after the window.
#[test]
fn a_sample_after_the_window_is_of_the_same_recording() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    let is_last = |line: &str| line.contains("nearpage: sample ") && line.ends_with(" begin");
    let last = text.lines().rfind(|line| is_last(line)).unwrap();
    let lines = text.lines().filter(|line| *line != last).chain([last]);
    let other = folder.path().join("other.txt");
    fs::write(&other, lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let path = bundle.to_str().unwrap();
    let report = stdout(&["replay", path, "--trace", other.to_str().unwrap(), "--json"]);
    assert!(report.contains("\"trace_is_unproven\": false"));
}

/// A recording without the events of refills and drains is no kernel that had none.
#[test]
fn a_trace_without_events_of_pagesets_is_told_and_not_scored_on_them() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    let is_left = |line: &&str| {
        !line.contains("mm_page_alloc_zone_locked:") && !line.contains("mm_page_pcpu_drain:")
    };
    let text = text.lines().filter(is_left).collect::<Vec<_>>().join("\n") + "\n";
    assert!(text.contains("mm_page_alloc_extfrag:"), "one kind of the kernel's events is left");
    fs::write(bundle.join("trace.txt"), text).unwrap();
    let path = bundle.to_str().unwrap();
    let report: Value = serde_json::from_str(&stdout(&["replay", path, "--json"])).unwrap();
    assert_eq!(report["lacks_flows"], true);
    assert_eq!(report["fidelity"]["percent_known_state"], Value::Null);
    let rows = report["fidelity"]["rows"].as_array().unwrap();
    let of = |quantity| rows.iter().filter(move |row| row["quantity"] == quantity);
    for quantity in ["refills", "refill_pages", "drains", "drain_pages"] {
        assert!(of(quantity).all(|row| row["recorded"].is_null() && row["predicted"].is_u64()));
    }
    assert!(of("extfrag").all(|row| row["recorded"].as_u64() > Some(0)));
    let percent = report["fidelity"]["percent"].as_f64().unwrap();
    assert!(percent > 80.0, "{percent}");
    let told = "no mm_page_alloc_zone_locked and no mm_page_pcpu_drain";
    assert!(stdout(&["replay", path]).contains(told));
    let whole = stdout(&["replay", "--json"]);
    assert!(whole.contains("\"lacks_flows\": false"));
}

/// Whoever has the program has the bundle: it needs neither the sources nor a folder.
#[test]
fn the_shipped_bundle_is_in_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    let output = command.args(["replay", "--json"]).current_dir(folder.path()).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert_eq!(rows(&report), rows(&stdout(&["replay", shipped().to_str().unwrap(), "--json"])));
    assert!(report.contains("\"bundle\": \"q612-n2-mixed.tar.zst\""), "{}", &report[..200]);
}

#[test]
fn a_bundle_comes_through_a_pipe() {
    let expected = rows(&stdout(&["replay", "--json"]));
    let bundle = fs::read(shipped()).unwrap();
    let report = piped(&["replay", "-", "--json"], bundle.clone());
    assert_eq!(rows(&report), expected);
    assert!(report.contains("\"bundle\": \"standard input\""), "{}", &report[..200]);
    // A FIFO has a name, and is read once all the same.
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::process::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"))
        .args(["replay", fifo.to_str().unwrap(), "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(&fifo, bundle).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(rows(&String::from_utf8(output.stdout).unwrap()), expected);
}

#[test]
fn a_trace_comes_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    fs::remove_file(bundle.join("trace.txt")).unwrap();
    let path = bundle.to_str().unwrap();
    assert!(refused(&["replay", path]).contains("has no trace"));
    let report = piped(&["replay", path, "--trace", "-", "--json"], text.into_bytes());
    assert_eq!(rows(&report), rows(&stdout(&["replay", "--json"])));
}

#[test]
fn standard_input_and_output_are_taken_once() {
    assert!(refused(&["replay", "-", "--trace", "-"]).contains("can be read once"));
    assert!(refused(&["replay", "-", "--topology", "-"]).contains("can be read once"));
    assert!(refused(&["replay", "--report", "-", "--json"]).contains("standard output"));
}

#[test]
fn a_page_goes_to_standard_output() {
    let page = stdout(&["replay", "--report", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn no_page_replaces_what_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("b.tar.zst");
    fs::copy(shipped(), &bundle).unwrap();
    let path = bundle.to_str().unwrap();
    let message = refused(&["replay", path, "--report", path]);
    assert!(message.contains("it is the input"), "{message}");
    assert_eq!(fs::read(&bundle).unwrap(), fs::read(shipped()).unwrap());
    let unpacked = unpack_shipped(folder.path());
    let (path, inside) = (unpacked.to_str().unwrap(), unpacked.join("before/zoneinfo"));
    let whole = fs::read(&inside).unwrap();
    let message = refused(&["replay", path, "--report", inside.to_str().unwrap()]);
    assert!(message.contains("it is the input"), "{message}");
    assert_eq!(fs::read(&inside).unwrap(), whole);
    let machine = folder.path().join("machine.txt");
    fs::write(&machine, "--numa 1G,cpus=0-3").unwrap();
    let path = machine.to_str().unwrap();
    let message = refused(&["replay", "--topology", path, "--report", path]);
    assert!(message.contains("it is the input"), "{message}");
    assert_eq!(fs::read(&machine).unwrap(), b"--numa 1G,cpus=0-3");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(["replay", "-", "--report"]).arg(&bundle).stdin(fs::File::open(&bundle).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(fs::read(&bundle).unwrap(), fs::read(shipped()).unwrap());
}

/// A page that does not fit is an error, and no reason to keep the result.
#[test]
fn the_result_is_printed_though_the_page_is_lost() {
    let output = nearpage(&["replay", "--report", "/dev/full"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot write /dev/full: No space left"), "{message}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), stdout(&["replay"]));
}

#[test]
fn options_that_mean_nothing_are_refused() {
    for arguments in [&["--map-cpus", "comm"][..], &["--map-cpus", "socket"], &["--repeat", "2"]] {
        let message = refused(&[&["replay"], arguments].concat());
        let expected = format!("{} needs a machine: --cpus M or --topology MACHINE", arguments[0]);
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn tunables_are_listed() {
    let list = stdout(&["replay", "--set", "help"]);
    for line in ["vm.min_free_kbytes ", "pcp.batch_scale_max ", "pcp.free_high ", " 0 to 6 "] {
        assert!(list.contains(line), "{line}: {list}");
    }
    assert_eq!(list.lines().count(), 13);
    assert_eq!(stdout(&["replay", "sweep", "--over", "help"]), list);
}

#[test]
fn a_sweep_takes_ranges() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let of = |values: &str| {
        let over = format!("pcp.batch_scale_max={values}");
        stdout(&["replay", "sweep", bundle, "--over", &over, "--json"])
    };
    let range = of("3..5");
    assert_eq!(range, of("3,4,5"));
    let range: Value = serde_json::from_str(&range).unwrap();
    assert_eq!(range["points"][2]["settings"][0], "pcp.batch_scale_max=5");
    for (over, expected) in [
        ("pcp.batch_scale_max=5..3", "is no range"),
        ("pcp.batch_scale_max=5..7", "--over pcp.batch_scale_max=7: \"7\" is no value"),
        ("pcp.batch", "has no ="),
        ("pcp.x=1", "\"pcp.x\" is no tunable"),
        ("pcp.batch=1..999,1000..1999,2000..2999,3000..3999,4000..4999", "makes 4999 combinations"),
    ] {
        let message = refused(&["replay", "sweep", bundle, "--over", over]);
        assert!(message.contains(expected), "{message}");
    }
}

/// Memory that came between the captures is in no event: it is told.
#[test]
fn a_zone_that_grew_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let path = bundle.to_str().unwrap();
    assert!(!stdout(&["replay", path]).contains("memory came or went"));
    let after = bundle.join("after/zoneinfo");
    let text = fs::read_to_string(&after).unwrap();
    let (begin, end) = text.split_at(text.find("Node 1, zone    DMA32").unwrap());
    let grown = ["spanned", "present", "managed"].map(|key| grow(end, key));
    let end = grown.iter().fold(end.to_owned(), |end, (old, new)| end.replacen(old, new, 1));
    fs::write(&after, format!("{begin}{end}")).unwrap();
    let text = stdout(&["replay", path]);
    let line = text.lines().find(|line| line.contains("memory came or went")).unwrap();
    assert!(line.starts_with("node 1 zone DMA32: "), "{line}");
    let report: Value = serde_json::from_str(&stdout(&["replay", path, "--json"])).unwrap();
    let zone = &report["changed_zones"][0];
    let pages = |key: &str| zone[key].as_u64().unwrap();
    assert_eq!(pages("managed_after"), pages("managed_before") + 4096, "{zone}");
}

/// The first line of a key, and what it is with 4096 pages more.
fn grow(text: &str, key: &str) -> (String, String) {
    let line = text.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
    let pages = line.split_whitespace().nth(1).unwrap();
    let more = pages.parse::<u64>().unwrap() + 4096;
    (line.to_owned(), line.replace(pages, &more.to_string()))
}

/// A trace of a smaller or quieter machine fits into the zones; what was counted on both sides tells all the same.
#[test]
fn a_trace_of_another_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    let replayed_with = |lines: &[&str]| {
        let other = folder.path().join("other.txt");
        fs::write(&other, lines.join("\n") + "\n").unwrap();
        refused(&["replay", bundle.to_str().unwrap(), "--trace", other.to_str().unwrap()])
    };
    let mut number = 0;
    let few: Vec<&str> = text
        .lines()
        .filter(|line| {
            number += u32::from(line.contains("mm_page_"));
            !line.contains("mm_page_") || number % 10 == 0
        })
        .collect();
    let message = replayed_with(&few);
    assert!(message.contains("allocations in the trace, ") && message.contains("another machine"));
    let is_late = |line: &str| {
        let sample = line.split("nearpage: sample ").nth(1).and_then(|rest| rest.split(' ').next());
        sample.is_some_and(|number| number.parse::<u32>().unwrap() > 5)
    };
    let short: Vec<&str> = text.lines().filter(|line| !is_late(line)).collect();
    let message = replayed_with(&short);
    assert!(message.contains("5 markers of samples in the trace, "), "{message}");
    // CPUs that the machine does not have, though all frames are its own.
    let elsewhere = text.replace(" [000] ", " [100] ").replace(" [001] ", " [101] ");
    let elsewhere = elsewhere.replace(" [002] ", " [102] ").replace(" [003] ", " [103] ");
    let message = replayed_with(&elsewhere.lines().collect::<Vec<_>>());
    assert!(message.contains("were moved by CPUs"), "{message}");
    // Without markers, too many allocations tell, and blocks in no zone.
    let blocks = || text.lines().filter(|line| line.contains("mm_page_"));
    let message = replayed_with(&blocks().chain(blocks()).collect::<Vec<_>>());
    assert!(message.contains("allocations in the trace, "), "{message}");
    let far: Vec<String> = blocks()
        .enumerate()
        .map(
            |(at, line)| if at % 8 == 0 { line.replace("pfn=0x", "pfn=0xff") } else { line.into() },
        )
        .collect();
    let message = replayed_with(&far.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(message.contains("lie in no zone"), "{message}");
    // The whole trace is the bundle's, under whatever name. Of a part nothing is known, which is told.
    let unproven = |path: &Path| {
        let told = ["replay", bundle.to_str().unwrap(), "--trace", path.to_str().unwrap()];
        stdout(&told).contains("nothing shows that it is of this recording")
    };
    assert!(!unproven(&bundle.join("trace.txt")));
    let part = folder.path().join("part.txt");
    fs::write(&part, blocks().collect::<Vec<_>>().join("\n") + "\n").unwrap();
    assert!(unproven(&part));
}

/// What a bundle lacks of the end is told.
#[test]
fn an_end_that_is_missing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let path = bundle.to_str().unwrap();
    assert!(!stdout(&["replay", path]).contains("after/zoneinfo"));
    fs::remove_file(bundle.join("after/zoneinfo")).unwrap();
    assert!(stdout(&["replay", path]).contains("after/zoneinfo is missing or empty"));
}

/// Nothing waits for somebody to write into a file of a bundle.
#[test]
fn a_fifo_in_a_bundle_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let fifo = |name: &str| {
        let place = bundle.join(name);
        fs::remove_file(&place).unwrap();
        Command::new("mkfifo").arg(&place).assert().success();
        let message = refused(&["replay", bundle.to_str().unwrap()]);
        assert!(message.contains(name), "{message}");
    };
    fifo("trace.txt");
    fifo("meta.json");
}
