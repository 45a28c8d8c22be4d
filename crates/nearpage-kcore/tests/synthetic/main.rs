//! Kernels that are made here: their memory, types, symbols and lists are drawn, written as a core, and read back. Offsets
//! of members and values of enumerations are drawn, too, so a reader that knows those of a version is found.
//!
//! `NEARPAGE_SEED=n` replays one.

mod core;
mod rng;
mod types;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use nearpage_kcore::{Kernel, Limits, State};

use crate::core::{Drawn, draw};
use crate::rng::Rng;

fn seeds() -> Vec<u64> {
    match std::env::var("NEARPAGE_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (1..=6).collect(),
    }
}

fn read(file: &[u8]) -> Result<State, String> {
    let mut kept = tempfile::NamedTempFile::new().unwrap();
    kept.write_all(file).unwrap();
    let kernel = Kernel::open(kept.path()).map_err(|error| error.to_string())?;
    kernel.state().map_err(|error| error.to_string())
}

#[test]
fn what_is_drawn_is_read() {
    for seed in seeds() {
        let Drawn { file, state, .. } = draw(&mut Rng::new(seed));
        let read = read(&file).unwrap_or_else(|error| panic!("NEARPAGE_SEED={seed}: {error}"));
        assert_eq!(read, state, "NEARPAGE_SEED={seed}");
        let lists = state.nodes[0].zones[0].pagesets.iter().map(|of| of.pages()).sum::<u64>();
        assert!(lists > 0, "NEARPAGE_SEED={seed}: nothing to read");
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }
}

/// A planted difference: the comparison above can fail.
#[test]
fn another_order_is_another_state() {
    let Drawn { file, mut state, .. } = draw(&mut Rng::new(1));
    let lists = &mut state.nodes[0].zones[0].pagesets[0].lists;
    lists.iter_mut().find(|list| list.len() > 1).unwrap().swap(0, 1);
    assert_ne!(read(&file).unwrap(), state);
}

#[test]
fn lists_in_circles_are_cut() {
    let drawn = draw(&mut Rng::new(2));
    let (first, second) = drawn.list;
    let write = |file: &mut Vec<u8>, at: usize, word: u64| {
        file[at..at + 8].copy_from_slice(&word.to_le_bytes());
    };
    let word = |at: usize| u64::from_le_bytes(drawn.file[at..at + 8].try_into().unwrap());
    // The second leads to itself, to the first, to nowhere, or to no descriptor.
    let to_second = word(first);
    for to in [to_second, word(second + 8), 0, 0xffff_ffff_8000_0000, to_second + 4] {
        let mut file = drawn.file.clone();
        write(&mut file, second, to);
        let state = read(&file).unwrap();
        assert!(!state.told.is_empty(), "{to:#x}");
        let pagesets = state.nodes[0].zones[0].pagesets.iter();
        assert!(
            pagesets
                .map(|of| of.lists.len())
                .all(|lists| lists == drawn.state.nodes[0].zones[0].pagesets[0].lists.len())
        );
    }
}

#[test]
fn limits_end_the_reading_and_are_told() {
    let Drawn { file, state, .. } = draw(&mut Rng::new(3));
    let mut kept = tempfile::NamedTempFile::new().unwrap();
    kept.write_all(&file).unwrap();
    let kernel = Kernel::open(kept.path()).unwrap();
    let blocks = |state: &State| -> usize {
        let zones = || state.nodes.iter().flat_map(|node| &node.zones);
        let free = zones().flat_map(|zone| &zone.free).flat_map(|area| &area.lists);
        let cached = zones().flat_map(|zone| &zone.pagesets).flat_map(|of| &of.lists);
        let tried = zones().filter_map(|zone| zone.trylock_free.as_ref());
        free.chain(cached).chain(tried).map(Vec::len).sum()
    };
    let all = blocks(&state) as u64;
    let within = |blocks, time| kernel.state_within(Limits { blocks, time }).unwrap();
    assert_eq!(within(all, Duration::MAX), state);
    let part = within(all - 1, Duration::MAX);
    assert_eq!(blocks(&part) as u64, all - 1);
    assert!(part.cut.unwrap().contains(&format!("after {} blocks", all - 1)));
    assert!(within(u64::MAX, Duration::ZERO).cut.unwrap().contains("after 0 s"));
}

#[test]
fn what_is_no_core_is_told() {
    let told = |file: &[u8]| read(file).unwrap_err();
    assert!(told(b"").contains("is empty"));
    assert!(told(&[b'x'; 100]).contains("is no ELF file"));
    assert!(told(b"KDUMP   \x06\0\0\0").contains("makedumpfile -E"));
    let Drawn { file, .. } = draw(&mut Rng::new(3));
    let mut other = file.clone();
    other[18] = 183;
    assert!(told(&other).contains("a core of aarch64"), "{}", told(&other));
    other[18] = 62;
    other[5] = 2;
    assert!(told(&other).contains("big-endian"));
    let missing = Kernel::open(Path::new("/no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("/no/such/file: cannot be read"), "{missing}");
    // Cut off before the note ends, and before memory begins.
    assert!(told(&file[..300]).contains("no VMCOREINFO"), "{}", told(&file[..300]));
}

/// A kernel whose BTF is of another one.
#[test]
fn types_of_another_kernel_are_refused() {
    let drawn = draw(&mut Rng::new(4));
    let at = drawn.file.windows(11).position(|text| text == b"SIZE(zone)=").unwrap() + 11;
    let mut file = drawn.file.clone();
    file[at] = if file[at] == b'9' { b'8' } else { file[at] + 1 };
    assert!(read(&file).unwrap_err().contains("BTF is of another kernel"));
}

/// Any byte may be another, and the file may end anywhere: an answer or an error, soon.
#[test]
fn damage_never_panics() {
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let drawn = draw(&mut rng);
        for round in 0..24 {
            let mut file = drawn.file.clone();
            for _ in 0..1 + rng.below(40) {
                // Where something is: headers, texts, tables, descriptors.
                let (begin, bytes) = drawn.used[rng.below(drawn.used.len() as u64) as usize];
                let at = begin + rng.below(bytes as u64) as usize;
                file[at] = rng.below(256) as u8;
            }
            if round % 4 == 0 {
                file.truncate(rng.below(file.len() as u64) as usize);
            }
            let begun = std::time::Instant::now();
            let _ = read(&file);
            assert!(begun.elapsed().as_secs() < 20, "NEARPAGE_SEED={seed} round {round}");
        }
    }
}
