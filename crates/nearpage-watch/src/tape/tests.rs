use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::placement::{Placement, ProcessSample, Processes};
use crate::sample::{NodeSample, PagesetSample, Sample, ZoneSample};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A machine at a moment, every field of which is something.
fn sample(second: u64) -> Sample {
    let zone = |node, name: &str| ZoneSample {
        node,
        zone: name.into(),
        free: Some(500_000 + second * 37 % 1000),
        boost: Some(0),
        min: Some(100),
        low: Some(200),
        high: None,
        promo: Some(u64::MAX),
        present: Some(1 << 20),
        managed: Some(1 << 20),
        protection: vec![0, 0, 1000],
        pageset_pages: Some(second % 60),
        cpus: 2,
        pagesets: (0..2)
            .map(|cpu| PagesetSample { cpu, count: second, high: 9, batch: 63 })
            .collect(),
        blocks: vec![second % 7, 4, 3, 2, 1],
        numa_hit: Some(second * 100),
        numa_miss: Some(0),
        numa_foreign: None,
    };
    let node = |node| NodeSample {
        node,
        total: Some(4 << 20),
        free: Some(2 << 20),
        file: Some(second),
        anon: None,
        slab: Some(7),
        shmem: Some(0),
        hugetlb: (node == 0).then_some((5, 4)),
        anon_huge: Some(2048),
        distances: vec![10, 21],
        cpus: "0-1".into(),
        numa: vec![("numa_hit", second * 1000), ("numa_miss", 3)],
    };
    let process = |pid, rss| ProcessSample {
        pid,
        name: format!("worker {}", pid % 5),
        uid: (pid % 2 == 0).then_some(1000),
        rss,
        nodes: vec![(0, rss / 2), (1, rss / 2)],
        placement: Placement::ALL[pid as usize % 5],
        placed_ago: Some(second % 3),
        runs_on: Some(1),
        may_use: "0-1".into(),
        minor_faults: Some(second % 13),
        major_faults: None,
    };
    Sample {
        time_ms: 1_700_000_000_000 + second * 1000,
        kernel: Some("6.12.1".into()),
        zone_reclaim_mode: Some(0),
        nodes: vec![node(0), node(1)],
        zones: vec![zone(0, "DMA32"), zone(0, "Normal"), zone(1, "Normal")],
        events: vec![("pgfault", second * 1234), ("oom_kill", 0)],
        unreadable: vec!["proc/vmstat: refused".into()],
        processes: Processes {
            list: (0..10).map(|at| process(100 + at, 1_000_000 - u64::from(at) * 1000)).collect(),
            seen: 200,
            denied: 3,
            waiting: 1,
        },
    }
}

fn record(path: &Path, seconds: std::ops::Range<u64>, bytes: u64) -> TapeWriter {
    let mut writer = TapeWriter::open(path, None, Some(bytes), "a box").unwrap();
    seconds.for_each(|second| writer.append(&sample(second)).unwrap());
    writer
}

fn recorded(seconds: u64) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = folder();
    let path = folder.path().join("tape");
    drop(record(&path, 0..seconds, BYTES_LEAST));
    let content = fs::read(&path).unwrap();
    (folder, path, content)
}

#[test]
fn samples_come_back_in_any_order() {
    let (_folder, path, _) = recorded(50);
    let mut tape = Tape::open(&path).unwrap();
    assert_eq!((tape.len(), tape.source()), (50, "a box"));
    for at in [0, 1, 2, 49, 48, 48, 7, 8, 0] {
        assert_eq!(tape.sample(at), sample(at as u64), "{at}");
        assert_eq!(tape.time_ms(at), sample(at as u64).time_ms);
    }
    let empty = path.with_extension("empty");
    TapeWriter::open(&empty, None, None, "").unwrap().append(&Sample::default()).unwrap();
    assert_eq!(Tape::open(&empty).unwrap().sample(0), Sample::default());
}

#[test]
fn a_ring_keeps_the_newest_and_its_size() {
    let folder = folder();
    let path = folder.path().join("tape");
    const SECONDS: u64 = 30_000;
    drop(record(&path, 0..SECONDS, BYTES_LEAST));
    assert!(fs::metadata(&path).unwrap().len() <= BYTES_LEAST);
    let mut tape = Tape::open(&path).unwrap();
    assert!(tape.len() > 2000 && tape.len() < SECONDS as usize, "{}", tape.len());
    let first = SECONDS - tape.len() as u64;
    for at in [0, 1, tape.len() / 2, tape.len() - 1] {
        assert_eq!(tape.sample(at), sample(first + at as u64));
    }
    // A recorder that is started again goes on.
    drop(record(&path, SECONDS..SECONDS + 100, BYTES_LEAST));
    let mut tape = Tape::open(&path).unwrap();
    assert_eq!(tape.sample(tape.len() - 1), sample(SECONDS + 99));
    assert_eq!(tape.sample(tape.len() - 101), sample(SECONDS - 1));
    assert!(fs::metadata(&path).unwrap().len() <= BYTES_LEAST);
}

#[test]
fn a_file_that_is_cut_off_plays_to_the_cut() {
    let (_folder, _, content) = recorded(12);
    let mut had = 0;
    for end in 0..=content.len() {
        match Tape::of_bytes("tape", content[..end].to_vec()) {
            Ok(mut tape) => {
                assert!(tape.len() >= had, "{end}");
                if tape.len() > had {
                    had = tape.len();
                    assert_eq!(tape.sample(had - 1), sample(had as u64 - 1));
                }
            }
            Err(TapeError::Empty { .. }) => assert_eq!(had, 0, "{end}"),
            Err(error) => panic!("{end}: {error}"),
        }
    }
    assert_eq!(had, 12);
}

#[test]
fn a_ring_that_is_cut_off_or_damaged_plays_what_is_whole() {
    let folder = folder();
    let path = folder.path().join("tape");
    drop(record(&path, 0..20_000, BYTES_LEAST));
    let content = fs::read(&path).unwrap();
    let whole = Tape::of_bytes("tape", content.clone()).unwrap().len();
    for turn in 1..12 {
        let end = content.len() * turn / 12;
        let mut tape = Tape::of_bytes("tape", content[..end].to_vec()).unwrap();
        assert!(tape.len() < whole);
        for at in [0, tape.len() / 2, tape.len() - 1] {
            let read = tape.sample(at);
            assert_eq!(read, sample((read.time_ms - 1_700_000_000_000) / 1000));
        }
        let mut damaged = content.clone();
        damaged[end] ^= 1 << (turn % 8);
        let mut tape = Tape::of_bytes("tape", damaged).unwrap();
        assert!(tape.len() <= whole && tape.len() > whole / 2, "one slot at most is lost");
        for at in (0..tape.len()).step_by(97) {
            let read = tape.sample(at);
            assert_eq!(read, sample((read.time_ms - 1_700_000_000_000) / 1000));
        }
    }
}

#[test]
fn what_is_no_tape_is_refused() {
    let (_folder, path, content) = recorded(3);
    let error = |content: &[u8]| Tape::of_bytes("f", content.to_vec()).unwrap_err().to_string();
    assert_eq!(error(b""), "f: ends before its first sample");
    assert_eq!(error(b"{}"), "f: no recording of nearpage top: its first bytes are others");
    let mut future = content.clone();
    future[16] = 9;
    assert_eq!(
        error(&future),
        "f: a recording of version 9, expected 1: play it with the nearpage that wrote it"
    );
    let mut damaged = content.clone();
    damaged[21] ^= 1;
    assert_eq!(error(&damaged), "f: damaged: the checksum of its header is wrong");
    // A writer refuses the same, and leaves the file as it is.
    for wrong in [&future[..], &damaged, b"my thesis"] {
        fs::write(&path, wrong).unwrap();
        assert!(TapeWriter::open(&path, None, None, "").is_err());
        assert_eq!(fs::read(&path).unwrap(), wrong);
    }
    assert!(matches!(
        Tape::open(path.parent().unwrap()),
        Err(TapeError::NoFile { .. } | TapeError::Io { .. })
    ));
    assert!(matches!(Tape::open(&path.join("x")), Err(TapeError::Io { .. })));
}

#[test]
fn one_process_records_to_a_file_with_one_size() {
    let (_folder, path, content) = recorded(3);
    let writer = TapeWriter::open(&path, None, None, "").unwrap();
    assert!(matches!(TapeWriter::open(&path, None, None, ""), Err(TapeError::Busy { .. })));
    // It can be played meanwhile.
    assert_eq!(Tape::open(&path).unwrap().len(), 3);
    drop(writer);
    assert!(matches!(
        TapeWriter::open(&path, None, Some(2 << 20), ""),
        Err(TapeError::OtherSize { .. })
    ));
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[test]
fn a_large_machine_is_recorded_without_its_pagesets() {
    let folder = folder();
    let path = folder.path().join("tape");
    let mut writer = TapeWriter::open(&path, None, Some(BYTES_LEAST), "").unwrap();
    let mut large = sample(0);
    let zone = &mut large.zones[0];
    zone.pagesets = (0..1 << 16).map(|cpu| PagesetSample { cpu, ..zone.pagesets[0] }).collect();
    writer.append(&large).unwrap();
    large.zones = vec![large.zones[2].clone(); 100_000];
    assert!(matches!(writer.append(&large), Err(TapeError::TooLarge { .. })));
    writer.append(&sample(1)).unwrap();
    let mut tape = Tape::open(&path).unwrap();
    assert_eq!(tape.len(), 2);
    let first = tape.sample(0);
    assert!(first.zones[0].pagesets.is_empty() && first.zones[0].free == Some(500_000));
    assert_eq!(tape.sample(1), sample(1));
}

/// Whoever made the file may have made its checksums too.
#[test]
fn frames_that_nobody_wrote_are_passed_over() {
    let header = Header::new(BYTES_LEAST, "x");
    let mut random = fastrand(7);
    for _ in 0..2000 {
        let content: Vec<u8> = (0..random() % 60).map(|_| random() as u8).collect();
        let mut file = header.encode();
        file.extend_from_slice(&slot_header(1));
        file.extend_from_slice(&(content.len() as u32).to_le_bytes());
        file.extend_from_slice(&frame_crc(1, SLOT_HEADER_BYTES, &content).to_le_bytes());
        file.extend_from_slice(&content);
        if let Ok(mut tape) = Tape::of_bytes("x", file) {
            tape.sample(0);
        }
    }
}

fn fastrand(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}
