//! Logs of kernels, and the verdicts about them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_explain::{Explanation, Reader};

fuzz_target!(|content: &[u8]| {
    Reader::new(content).flatten().for_each(|report| drop(Explanation::of(report)));
});
