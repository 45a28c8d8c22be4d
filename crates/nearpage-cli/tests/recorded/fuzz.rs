//! Readers of recordings against damage: whatever is in a file, it is read or refused.
//!
//! Each case takes a real text, changes a few places, and reads it. `NEARPAGE_FUZZ_SECONDS=n` goes on for
//! so long, `NEARPAGE_INPUTS=n` until so many inputs were read; a failure names the seed, and `NEARPAGE_FUZZ_SEED=n` begins with it.

use std::time::{Duration, Instant};

use nearpage_bundle::module::{parse_info, parse_rebuild};
use nearpage_bundle::predict::{Prediction, Wishes, compare};
use nearpage_bundle::{Recording, parse_buddyinfo, parse_pagetypeinfo};
use nearpage_machine::idlist;
use nearpage_machine::sysfs::{TextFile, zoneinfo};
use nearpage_machine::{Budget, MachineDescription, MachineInput};
use nearpage_trace::{TraceError, read_trace, unpacked as unpacked_stream};
use serde_json::Value;

use super::{recording, unpacked};

/// Cases of each reader without `NEARPAGE_FUZZ_SECONDS`.
const CASES: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Whether inputs are counted.
pub(super) fn are_counted() -> bool {
    number("NEARPAGE_INPUTS").is_some()
}

/// Calls `case` with one seed after the other.
pub(super) fn fuzz(case: impl Fn(&mut fastrand::Rng)) {
    fuzz_some(1, case);
}

/// The same of cases with so many inputs each.
pub(super) fn fuzz_some(inputs: u64, case: impl Fn(&mut fastrand::Rng)) {
    let first = number("NEARPAGE_FUZZ_SEED").unwrap_or(0);
    let time = number("NEARPAGE_FUZZ_SECONDS").map(Duration::from_secs);
    let begin = Instant::now();
    let counted = number("NEARPAGE_INPUTS");
    let goes_on = |cases: u64| match (counted, time) {
        (Some(counted), _) => cases * inputs < counted,
        (None, Some(time)) => begin.elapsed() < time,
        (None, None) => cases < CASES,
    };
    let mut cases = 0;
    while goes_on(cases) {
        let seed = first + cases;
        let run = || case(&mut fastrand::Rng::with_seed(seed));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        assert!(result.is_ok(), "failed with NEARPAGE_FUZZ_SEED={seed}");
        cases += 1;
    }
    println!("{} inputs", cases * inputs);
}

/// Changes some places: other bytes, other numbers, cuts, repetitions.
pub(super) fn damage(text: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    const PIECES: [&[u8]; 12] = [
        b"18446744073709551615",
        b"99999999999999999999999",
        b"-1",
        b"\n",
        b" ",
        b"0",
        b"x",
        b"Node ",
        b", zone",
        b"\xff",
        b"{",
        b"\"",
    ];
    let mut text = text.to_vec();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=text.len());
        match random.u8(..5) {
            0 => drop(text.splice(at..at, PIECES[random.usize(..PIECES.len())].iter().copied())),
            1 => text.truncate(at.max(text.len() / 2)),
            2 => {
                let end = (at + random.usize(..40)).min(text.len());
                text.drain(at..end);
            }
            3 => {
                let end = (at + random.usize(..400)).min(text.len());
                let piece = text[at..end].to_vec();
                drop(text.splice(at..at, piece));
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = random.u8(..);
                }
            }
        }
    }
    text
}

fn text_file(content: &[u8]) -> TextFile {
    TextFile { name: "damaged".into(), text: String::from_utf8_lossy(content).into_owned() }
}

/// The texts of a recording, with their names.
fn texts(document: &Value) -> Vec<(String, String)> {
    let of_capture = document["captures"]["boot"].as_object().unwrap().iter();
    let of_module = document["module"].as_object().unwrap().iter();
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    of_capture.chain(of_module).filter_map(text).collect()
}

#[test]
fn any_text_of_a_kernel_is_read_or_refused() {
    let mut texts: Vec<(String, String)> = ["n4-asymdist-6.1", "n4-asymdist-6.12"]
        .into_iter()
        .flat_map(|name| texts(&unpacked(&recording(name))))
        .collect();
    let newer = include_str!("../../../nearpage/tests/data/zoneinfo-6.18.txt");
    texts.push(("zoneinfo".into(), newer.into()));
    texts.push(("cpulist".into(), "0-3,8,12-15\n".into()));
    fuzz(|random| {
        for (name, text) in &texts {
            let file = text_file(&damage(text.as_bytes(), random));
            match name.as_str() {
                "zoneinfo" => drop(zoneinfo::parse(&file)),
                "buddyinfo" => drop(parse_buddyinfo(&file)),
                "pagetypeinfo" => drop(parse_pagetypeinfo(&file)),
                "info" => drop(parse_info(&file)),
                "rebuild" => drop(parse_rebuild(&file)),
                "cpulist" => drop(idlist::parse(&file.text)),
                _ => {}
            }
        }
    });
}

/// Lines of the three tools that write traces, and what else stands in them.
pub(super) const TRACE: &str = "# tracer: nop\n#\n sh-7   [001] .....  1.000001: tracing_mark_write: nearpage: before begin\n\
    CPU:3 [LOST 12 EVENTS]\nCPU:1 [EVENTS DROPPED]\n => stack\n\n\
    my task-8   [001] .....  1.000003: mm_page_alloc: page=00000000ab pfn=0x10 order=0 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_COMP\n\
    kworker/1:2-9   (      9) [000] d..2.  1.000004: mm_page_free: page=00000000ab pfn=0x10 order=0\n\
    lto cgu.03-10   [001]  1.000005: mm_page_alloc_zone_locked: page=1 pfn=17 order=3 migratetype=1 percpu_refill=1\n\
    load    70/71    [003]  1.000006: kmem:mm_page_pcpu_drain: page=1 pfn=0x11 order=3 migratetype=1\n\
    <...>-11   [001] .....  1.000007: mm_page_alloc_extfrag: page=1 pfn=0x12 alloc_order=0 fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1\n\
    a-12   [002] .....  1.000008: nearpage_bulk: (alloc_pages_bulk_noprof+0x0/0x7a0) gfp=0xdc2 nid=-1 nr=4\n\
    a-12   [002] .....  1.000009: nearpage_bulk_done: (vmalloc+0x1/0x2 <- alloc_pages_bulk_noprof) n=2 p0=0xffffea0004c4f6c0 p1=0xffffea0004c4f700\n\
    a-12   [002] .....  1.000010: kmem_cache_alloc: call_site=f+0x1/0x2 ptr=ffff888307608d80 name=filp bytes_req=184 bytes_alloc=192 gfp_flags=GFP_KERNEL node=-1 accounted=true\n\
    a-12   [002] .....  1.000011: kfree: call_site=f+0x1/0x2 ptr=(null)\n\
    sh-7   [001] .....  1.000012: print: tracing_mark_write: nearpage: after begin\n";

#[test]
fn any_trace_is_read_or_refused() {
    let read = |content: &[u8]| {
        drop(read_trace::<TraceError>("damaged", content, |_| Ok(())));
    };
    read(TRACE.as_bytes());
    fuzz(|random| read(&damage(TRACE.as_bytes(), random)));
}

#[test]
fn any_packed_trace_is_read_or_refused() {
    let packed = std::fs::read(recording("n4-asymdist-6.12")).unwrap();
    let read = |content: &[u8]| {
        if let Ok(text) = unpacked_stream(content, &Budget::DEFAULT) {
            drop(read_trace::<TraceError>("damaged", text, |_| Ok(())));
        }
    };
    fuzz(|random| read(&damage(&packed, random)));
}

/// Output of `numactl --hardware` on machines that differ in what it tells.
const NUMACTL: [&str; 3] = [
    "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 15951 MB\nnode 0 free: 14001 MB\n\
     node 1 cpus:\nnode 1 size: 16124 MB\nnode 1 free: 15120 MB\nnode distances:\nnode   0   1 \n  \
     0:  10  21 \n  1:  21  10 \n",
    "available: 3 nodes (0,8,252)\nnode 0 cpus: 0 1\nnode 0 size: 257742 MB\nnode 0 free: 1 MB\n\
     node 8 cpus: 64 65\nnode 8 size: 0 MB\nnode 8 free: 0 MB\nnode 252 cpus:\n\
     node 252 size: 32256 MB\nnode 252 free: 32255 MB\nnode distances:\nnode   0   8  252 \n  \
     0:  10  40  80 \n  8:  40  10  80 \n 252:  80  80  10 \n",
    "available: 1 nodes (0)\nnode 0 cpus: 0-3\nnode 0 size: <not available>\nnode distances:\n\
     node   0 \n  0:  10 \n",
];

#[test]
fn any_numactl_output_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    fuzz(|random| {
        for text in NUMACTL {
            std::fs::write(&path, damage(text.as_bytes(), random)).unwrap();
            drop(MachineDescription::read(&MachineInput::Path(path.clone()), &Budget::DEFAULT));
        }
    });
}

/// Reads a recording as `verify` does.
fn verify(content: &[u8]) {
    let Ok(recording) = Recording::read_bytes("damaged", content, &Budget::DEFAULT) else { return };
    for capture in &recording.captures {
        let Ok(machine) = capture.machine() else { continue };
        let wishes = Wishes::default();
        if let Ok(prediction) = Prediction::new(&recording, capture, &machine, &wishes) {
            let _ = compare(&recording, capture, &machine, &prediction);
        }
    }
}

/// A recording with few captures, so that more cases fit into the time.
fn small() -> Value {
    let mut document = unpacked(&recording("n4-asymdist-6.12"));
    let captures = document["captures"].as_object_mut().unwrap();
    captures.retain(|name, _| ["boot", "restored"].contains(&name.as_str()));
    document["dmesg"]["raw"] = Value::Null;
    document
}

#[test]
fn any_json_is_verified_or_refused() {
    let text = small().to_string();
    fuzz(|random| verify(&damage(text.as_bytes(), random)));
}

/// Damage that leaves the JSON whole: other values anywhere in it.
#[test]
fn any_values_are_verified_or_refused() {
    let document = small();
    fuzz(|random| {
        let mut document = document.clone();
        for _ in 0..random.usize(1..5) {
            replace_some_value(&mut document, random);
        }
        verify(document.to_string().as_bytes());
    });
}

fn replace_some_value(value: &mut Value, random: &mut fastrand::Rng) {
    match value {
        Value::Object(entries) if !entries.is_empty() && random.u8(..40) > 0 => {
            let at = random.usize(..entries.len());
            let entry = entries.values_mut().nth(at).unwrap();
            replace_some_value(entry, random);
        }
        Value::Array(entries) if !entries.is_empty() && random.u8(..40) > 0 => {
            let at = random.usize(..entries.len());
            replace_some_value(&mut entries[at], random);
        }
        Value::String(text) if random.u8(..4) > 0 => {
            let damaged = damage(text.as_bytes(), random);
            *text = String::from_utf8_lossy(&damaged).into_owned();
        }
        other => {
            *other = match random.u8(..6) {
                0 => Value::Null,
                1 => u64::MAX.into(),
                2 => random.u64(..1 << 44).into(),
                3 => (-1).into(),
                4 => "0-9".into(),
                _ => Value::Array(Vec::new()),
            }
        }
    }
}

#[test]
fn any_archive_is_verified_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = super::inputs::bundle_folder(folder.path());
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all("", &bundle).unwrap();
    let archive = builder.into_inner().unwrap();
    fuzz(|random| verify(&damage(&archive, random)));
}
