//! Bundles that are not what they should be: a clear error with its place, and exit code 2.

use std::path::Path;

use super::{nearpage, replayed, stdout, trace, unpack_shipped};

/// The message of a replay that must fail.
fn refused(bundle: &Path) -> String {
    let output = nearpage(&["replay", bundle.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    message
}

#[test]
fn damage_is_told_with_its_byte() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    let path = bundle.join("trace.txt");
    let begin = text.find("mm_page_alloc: ").unwrap();
    let line = text[..begin].rfind('\n').unwrap() + 1;
    let refused_as = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        refused(&bundle)
    };
    let message = refused_as(&text.as_bytes()[..begin + 40]);
    assert!(message.contains(&format!("byte {line}: found")), "{message}");
    let message = refused_as(b"");
    assert!(message.contains("byte 0: the text ends without an event"), "{message}");
    let message = refused_as(b"\x7fELF\x02\x01\x01\x00 nothing to read");
    assert!(message.contains("byte 0: found"), "{message}");
    // The magic number of zstd and nothing behind it.
    let message = refused_as(&[0x28, 0xb5, 0x2f, 0xfd, 0]);
    assert!(message.contains("byte 0: "), "{message}");
}

/// A trace that ends between two lines is cut off all the same: its other marker is missing. Unless it says that it
/// lost events: then what there is of it is replayed, and nothing is known of the end.
#[test]
fn a_trace_that_ends_too_early_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    let path = bundle.join("trace.txt");
    let end = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    std::fs::write(&path, &text[..end]).unwrap();
    let message = refused(&bundle);
    assert!(message.contains(&format!("byte {end}: the trace ends without")), "{message}");
    std::fs::write(&path, format!("{}CPU:1 [LOST 12 EVENTS]\n", &text[..end])).unwrap();
    let report = replayed(&bundle);
    assert_eq!(report["trace"]["lost_events"], 12);
    let rows = report["fidelity"]["rows"].as_array().unwrap();
    let of = |quantity: &str| rows.iter().find(|row| row["quantity"] == quantity).unwrap();
    assert!(of("free_pages")["recorded"].is_null() && of("numa_hit")["recorded"].is_null());
    assert!(of("refill_pages")["recorded"].as_u64() > Some(1000));
    // Markers, and nothing of pages.
    let markers: Vec<&str> = text.lines().filter(|line| line.contains("nearpage: ")).collect();
    std::fs::write(&path, markers.join("\n")).unwrap();
    let message = refused(&bundle);
    assert!(message.contains("without an event of a block"), "{message}");
}

/// The buffer of a CPU may be full while those of others are not: then the trace has all markers.
#[test]
fn events_that_the_recorder_lost_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let path = bundle.join("meta.json");
    let meta = std::fs::read_to_string(&path).unwrap();
    let none = "\"lost_events\": 0";
    assert!(meta.contains(none));
    std::fs::write(&path, meta.replace(none, "\"lost_events\": 6679")).unwrap();
    let output = stdout(&["replay", bundle.to_str().unwrap()]);
    assert!(output.contains("\nof these: events that the recorder lost: 6679; "), "{output}");
}

#[test]
fn captures_that_are_cut_off_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    for (name, what) in [("buddyinfo", "11 orders"), ("pagetypeinfo", "node 1 zone DMA32 has no")] {
        let path = bundle.join("before").join(name);
        let content = std::fs::read_to_string(&path).unwrap();
        let last = content.rfind("Node 1, zone").unwrap();
        // Within the last zone's line, which has all orders; before it, if it is the only one that tells.
        let cut = if name == "buddyinfo" { last + 60 } else { last };
        std::fs::write(&path, &content[..cut]).unwrap();
        let message = refused(&bundle);
        assert!(message.contains("before") && message.contains(what), "{name}: {message}");
        std::fs::write(&path, content).unwrap();
    }
    std::fs::write(bundle.join("samples.txt"), [0; 4096]).unwrap();
    assert!(refused(&bundle).contains("samples.txt: byte 0: has no samples"));
}

/// As kernels with pages of 64 KiB have them.
#[test]
fn other_sizes_of_pageblocks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let path = bundle.join("before/pagetypeinfo");
    let text = std::fs::read_to_string(&path).unwrap();
    let larger = text.replace("Page block order: 9", "Page block order: 13");
    assert_ne!(text, larger);
    std::fs::write(&path, larger).unwrap();
    let message = refused(&bundle);
    assert!(
        message.contains("its pageblocks are of order 13, expected pages of 4 KiB"),
        "{message}"
    );
    std::fs::write(&path, text).unwrap();
    let path = bundle.join("before/buddyinfo");
    let text = std::fs::read_to_string(&path).unwrap();
    let longer: String = text.lines().map(|line| format!("{line}      0      0\n")).collect();
    std::fs::write(&path, longer).unwrap();
    let message = refused(&bundle);
    assert!(message.contains("it has blocks of order 12, expected pages of 4 KiB"), "{message}");
}

#[test]
fn a_trace_of_another_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    // All of its frames lie above those of the machine.
    let text = trace(&bundle).replace(" pfn=0x", " pfn=0x7");
    let first = text.find("mm_page_").unwrap();
    let line = text[..first].rfind('\n').unwrap() + 1;
    std::fs::write(bundle.join("trace.txt"), text).unwrap();
    let message = refused(&bundle);
    assert!(message.contains(&format!("byte {line}: ")), "{message}");
    assert!(message.contains("another machine"), "{message}");
}

#[test]
fn captures_of_other_kinds_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    for name in ["zoneinfo", "buddyinfo", "pagetypeinfo"] {
        let path = bundle.join("before").join(name);
        let content = std::fs::read(&path).unwrap();
        for damaged in [&b""[..], b"\x00\x01\x02", b"MemTotal: 12 kB\n"] {
            std::fs::write(&path, damaged).unwrap();
            let message = refused(&bundle);
            assert!(message.contains("before"), "{name}: {message}");
        }
        std::fs::write(&path, content).unwrap();
    }
}
