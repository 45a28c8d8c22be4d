//! Bundles that are not what they should be: a clear error with its place, and exit code 2.

use std::path::Path;

use super::{nearpage, trace, unpack_shipped};

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
