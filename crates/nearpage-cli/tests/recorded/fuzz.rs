//! Readers of recordings against damage: whatever is in a file, it is read or refused.
//!
//! Each case takes a real text, changes a few places, and reads it. `NEARPAGE_FUZZ_SECONDS=n` goes on for
//! so long; a failure names the seed, and `NEARPAGE_FUZZ_SEED=n` begins with it.

use std::time::{Duration, Instant};

use nearpage_cli::bundle::{
    Recording, parse_buddyinfo, parse_info, parse_pagetypeinfo, parse_rebuild,
};
use nearpage_cli::predict::{Prediction, Wishes, compare};
use nearpage_cli::topology::{MachineDescription, MachineInput};
use nearpage_linux::idlist;
use nearpage_linux::sysfs::{TextFile, zoneinfo};
use serde_json::Value;

use super::{recording, unpacked};

/// Cases of each reader without `NEARPAGE_FUZZ_SECONDS`.
const CASES: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Calls `case` with one seed after the other.
fn fuzz(case: impl Fn(&mut fastrand::Rng)) {
    let first = number("NEARPAGE_FUZZ_SEED").unwrap_or(0);
    let time = number("NEARPAGE_FUZZ_SECONDS").map(Duration::from_secs);
    let begin = Instant::now();
    let goes_on = |cases: u64| match time {
        Some(time) => begin.elapsed() < time,
        None => cases < CASES,
    };
    let mut cases = 0;
    while goes_on(cases) {
        let seed = first + cases;
        let run = || case(&mut fastrand::Rng::with_seed(seed));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        assert!(result.is_ok(), "failed with NEARPAGE_FUZZ_SEED={seed}");
        cases += 1;
    }
    println!("{cases} cases");
}

/// Changes some places: other bytes, other numbers, cuts, repetitions.
fn damage(text: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
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
            drop(MachineDescription::read(&MachineInput::Path(path.clone())));
        }
    });
}

/// Reads a recording as `verify` does.
fn verify(content: &[u8]) {
    let Ok(recording) = Recording::read_bytes("damaged", content) else { return };
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
