//! Whole bundles under damage: replayed or refused.
//!
//! Each case damages one file of a short bundle. `NEARPAGE_FUZZ_SECONDS=n` goes on for so long; a failure names the seed, and
//! `NEARPAGE_FUZZ_SEED=n` begins with it.

use std::path::Path;
use std::time::{Duration, Instant};

use nearpage_machine::work::Unwatched;
use nearpage_replay::{Options, Replay, ReplayError};

use super::{trace, unpack_shipped};

/// Cases without `NEARPAGE_FUZZ_SECONDS`.
const CASES: u64 = 10;
/// Lines of the trace that are kept.
const LINES: usize = 2000;
const FILES: [&str; 6] = [
    "trace.txt",
    "before/zoneinfo",
    "before/buddyinfo",
    "before/pagetypeinfo",
    "before/sysfs",
    "before/sysctl",
];
const OBJECTS: &str = " a-7 [001] ..... 9.000001: kmem_cache_alloc: ptr=ffff888307608d80 name=filp bytes_req=184 bytes_alloc=192\n \
    a-7 [000] ..... 9.000002: kmem_cache_free: ptr=ffff888307608d80 name=filp\n";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Other numbers, other bytes, lines that are gone or come twice.
fn damage(text: &str, random: &mut fastrand::Rng) -> Vec<u8> {
    const NUMBERS: [&str; 6] = ["0", "1", "18446744073709551615", "4294967296", "-1", "0x7fffffff"];
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..lines.len());
        let mut words: Vec<&str> = lines[at].split(' ').collect();
        let word = random.usize(..words.len());
        match random.u8(..4) {
            0 | 1 => words[word] = NUMBERS[random.usize(..NUMBERS.len())],
            2 => drop(words.remove(word)),
            _ => words.insert(word, "Node"),
        }
        lines[at] = words.join(" ");
        if random.u8(..4) == 0 {
            let other = lines[random.usize(..lines.len())].clone();
            lines.insert(at, other);
        }
    }
    (lines.join("\n") + "\n").into_bytes()
}

fn play(path: &Path) -> Result<(), ReplayError> {
    Replay::open(path, &nearpage_machine::Budget::DEFAULT)?
        .run(&Options::default(), &Unwatched)
        .map(|_| ())
}

#[test]
fn any_bundle_is_replayed_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let text = trace(&bundle);
    let begin = text.find("nearpage: before begin").unwrap();
    let kept = text[..begin].lines().count().saturating_sub(1);
    let lines: Vec<&str> = text.lines().skip(kept).take(LINES).collect();
    let end = text.lines().find(|line| line.contains("nearpage: after begin")).unwrap();
    let part = format!("{}\n{OBJECTS}{end}\n", lines.join("\n"));
    std::fs::write(bundle.join("trace.txt"), part).unwrap();
    play(&bundle).unwrap();
    let whole = FILES.map(|name| std::fs::read_to_string(bundle.join(name)).unwrap());
    let first = number("NEARPAGE_FUZZ_SEED").unwrap_or(0);
    let time = number("NEARPAGE_FUZZ_SECONDS").map(Duration::from_secs);
    let (begin, mut cases, mut replayed) = (Instant::now(), 0, 0);
    while time.map_or(cases < CASES, |time| begin.elapsed() < time) {
        let seed = first + cases;
        let mut random = fastrand::Rng::with_seed(seed);
        let file = random.usize(..FILES.len());
        let path = bundle.join(FILES[file]);
        std::fs::write(&path, damage(&whole[file], &mut random)).unwrap();
        let run = || play(&bundle).is_ok();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let name = FILES[file];
        replayed +=
            u64::from(result.unwrap_or_else(|_| panic!("NEARPAGE_FUZZ_SEED={seed}: {name}")));
        std::fs::write(&path, &whole[file]).unwrap();
        cases += 1;
    }
    println!("{cases} cases, {replayed} replayed");
}
