//! Reports of the tests, spliced and mutated at random: no panic, no hang, and every line of the answer is told.
//!
//! `NEARPAGE_INPUTS` says how many; `NEARPAGE_SEED` replays.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nearpage_explain::{Beside, Explanation, Reader};

/// Any input of these sizes takes milliseconds, also where others take the CPUs; a loop that does not end takes longer.
const MOST: Duration = Duration::from_secs(120);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// The lines that tell something, so that most mutations meet some.
fn logs() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let mut logs = Vec::new();
    for kernel in ["6.1", "6.12", "public"] {
        for entry in fs::read_dir(folder.join(kernel)).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let is_told = |line: &&str| {
                ["order", "CPU: ", "kB", "reserve", "pages", "oom", "Mem-"]
                    .iter()
                    .any(|part| line.contains(part))
            };
            let text: String = text.split_inclusive('\n').filter(is_told).take(120).collect();
            logs.push(text.into_bytes());
        }
    }
    logs.sort();
    logs
}

fn mutated(random: &mut Random, logs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = logs[random.below(logs.len())].clone();
    for _ in 0..random.below(12) {
        let (at, other) = (random.below(input.len()), &logs[random.below(logs.len())]);
        match random.below(9) {
            0 => input[at] = random.next() as u8,
            1 => input.truncate(at.max(1)),
            // A part of another report, from anywhere to anywhere.
            2 => {
                let from = random.below(other.len());
                let to = from + random.below(other.len() - from);
                input.splice(at..at, other[from..to].iter().copied());
            }
            3 => {
                let end = at + random.below((input.len() - at).min(400));
                input.drain(at..end);
            }
            4 => input.splice(at..at, *b"\n").for_each(drop),
            5 => input.retain(|byte| *byte != b'\n'),
            6 => input.splice(at..at, *b"18446744073709551616").for_each(drop),
            7 => {
                const MARKS: [&[u8]; 8] =
                    [b"\\n", b"#012", b"=\n", b"=3D", b"{\"log\":\"", b"<br>", b"> ", b"Node 0 "];
                input
                    .splice(at..at, MARKS[random.below(MARKS.len())].iter().copied())
                    .for_each(drop);
            }
            _ => {
                let line = input[at..].iter().take_while(|byte| **byte != b'\n').count();
                let copy = input[at..at + line].repeat(1 + random.below(3));
                input.splice(at..at, copy).for_each(drop);
            }
        }
        input.truncate(256 << 10);
        if input.is_empty() {
            input.push(b'\n');
        }
    }
    input
}

#[test]
fn spliced_and_mutated_logs_are_read() {
    let (seed, inputs) = (number("NEARPAGE_SEED", 1), number("NEARPAGE_INPUTS", 1500));
    let logs = logs();
    let (mut reports, mut refused, mut longest) = (0_u64, 0_u64, Duration::ZERO);
    for at in 0..inputs {
        let mut random = Random(seed.wrapping_mul(0x1_0000_0001).wrapping_add(at));
        let input = mutated(&mut random, &logs);
        let began = Instant::now();
        let read = std::panic::catch_unwind(|| {
            let mut beside = Beside::default();
            beside.add_from(&input[..]).unwrap();
            let mut told = 0;
            for report in Reader::new(&input[..]) {
                let Ok(report) = report else { return (told, 1) };
                let explanation = Explanation::with(report, &beside);
                assert!(!explanation.paragraphs().is_empty());
                told += 1;
            }
            (told, 0)
        });
        let took = began.elapsed();
        let replay = format!(
            "input {at}; NEARPAGE_SEED={seed} NEARPAGE_INPUTS={} cargo test -p nearpage-explain --test spliced",
            at + 1
        );
        let (told, failed) = read.unwrap_or_else(|_| panic!("{replay}"));
        assert!(took < MOST, "{took:?} for {} bytes: {replay}", input.len());
        (reports, refused) = (reports + told, refused + failed);
        longest = longest.max(took);
    }
    println!(
        "seed {seed}: {inputs} inputs, {reports} reports, {refused} refused, longest {longest:?}"
    );
    // The canary: mutations leave most reports to be found.
    assert!(reports >= inputs / 2, "{reports} reports in {inputs} inputs");
}
