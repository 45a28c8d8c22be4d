//! Recordings of nearpage top.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_watch::Tape;

fuzz_target!(|content: &[u8]| {
    if let Ok(mut tape) = Tape::of_bytes("fuzzed", content.to_vec()) {
        (0..tape.len().min(100)).for_each(|at| drop(tape.sample(at)));
    }
});
