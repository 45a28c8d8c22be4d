//! Rounds of noise for the readers' tests, each from one seed.
//!
//! `NEARPAGE_FUZZ_SECONDS=n` goes on for so long; a failure names the seed, and `NEARPAGE_FUZZ_SEED=n` begins with it.

use std::println;
use std::time::{Duration, Instant};

use nearpage::testing::random::Random;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Calls `round`, which reads so many inputs, with one seed after the other: once, or until the time is up.
pub(crate) fn fuzz(inputs: u64, round: impl Fn(&mut Random)) {
    let first = number("NEARPAGE_FUZZ_SEED").unwrap_or(0);
    let time = number("NEARPAGE_FUZZ_SECONDS").map_or(Duration::ZERO, Duration::from_secs);
    let (begin, mut rounds) = (Instant::now(), 0);
    while rounds == 0 || begin.elapsed() < time {
        let seed = first.wrapping_add(rounds);
        let run = || round(&mut Random(seed));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        assert!(result.is_ok(), "failed with NEARPAGE_FUZZ_SEED={seed}");
        rounds += 1;
    }
    println!("{} inputs, seeds from {first} on", inputs * rounds);
}
