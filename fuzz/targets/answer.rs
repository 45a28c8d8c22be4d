//! Heads of answers of a process that serves its figures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_machine::stats_socket::{Head, Request};

fuzz_target!(|content: &[u8]| {
    drop(Head::parse(content));
    drop(Request::parse(content));
});
