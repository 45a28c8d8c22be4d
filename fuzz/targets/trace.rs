//! Traces: text, trace.dat and perf.data, plain or packed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_trace::{TraceError, read_trace, unpacked};

fuzz_target!(|content: &[u8]| {
    if let Ok(text) = unpacked(content) {
        drop(read_trace::<TraceError>("fuzzed", text, |_| Ok(())));
    }
});
