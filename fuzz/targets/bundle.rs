//! Recordings and packed bundles: JSON, tar, gzip, bzip2, zstd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_bundle::Recording;

fuzz_target!(|content: &[u8]| drop(Recording::read_bytes("fuzzed", content)));
