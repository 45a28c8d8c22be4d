//! Scenarios of the lab.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_lab::Scenario;

fuzz_target!(|content: &[u8]| drop(Scenario::from_bytes("fuzzed", content)));
