#![no_main]

#[path = "../doors.rs"]
mod doors;

libfuzzer_sys::fuzz_target!(|content: &[u8]| doors::answer(content));
