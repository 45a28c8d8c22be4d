//! What takes bytes of strangers, as functions: fuzzers call them, and so do the tests of `nearpage-cli`, which need no fuzzer.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use nearpage_bundle::Recording;
use nearpage_explain::{Explanation, Reader};
use nearpage_kcore::Kernel;
use nearpage_lab::{Scenario, catalog};
use nearpage_machine::stats_socket::{Head, Request};
use nearpage_machine::{Budget, MachineDescription, idlist, short_form};
use nearpage_trace::{TraceError, read_trace, unpacked};
use nearpage_watch::Tape;

/// A door by its name.
pub type Door = (&'static str, fn(&[u8]));

/// All doors.
pub const ALL: [Door; 9] = [
    ("answer", answer),
    ("bundle", bundle),
    ("core", core),
    ("costs", costs),
    ("log", log),
    ("machine", machine),
    ("scenario", scenario),
    ("tape", tape),
    ("trace", trace),
];

/// Heads of answers of a process that serves its figures, and of requests to it.
pub fn answer(content: &[u8]) {
    drop(Head::parse(content));
    drop(Request::parse(content));
}

/// Recordings and packed bundles: JSON, tar, gzip, bzip2, xz, zstd.
pub fn bundle(content: &[u8]) {
    drop(Recording::read_bytes("fuzzed", content, &Budget::DEFAULT));
}

/// Dumps of kernels.
pub fn core(content: &[u8]) {
    let mut file = tempfile::tempfile().expect("there is room for a file");
    file.write_all(content).expect("there is room for it");
    let path = format!("/proc/self/fd/{}", File::as_raw_fd(&file));
    if let Ok(kernel) = Kernel::open(path.as_ref()) {
        drop(kernel.state());
    }
}

/// Tables of costs.
pub fn costs(content: &[u8]) {
    drop(catalog::costs_from_bytes("fuzzed", content));
}

/// Logs of kernels, and the verdicts about them.
pub fn log(content: &[u8]) {
    Reader::new(content).flatten().for_each(|report| drop(Explanation::of(report)));
}

/// Descriptions of machines of any kind: archives, numactl, XML of hwloc, TOML, the short form, lists of CPUs.
pub fn machine(content: &[u8]) {
    drop(MachineDescription::from_reader("fuzzed", content, &Budget::DEFAULT));
    if let Ok(text) = std::str::from_utf8(content) {
        drop(short_form::parse_text("fuzzed", text));
        drop(idlist::parse(text));
    }
}

/// Scenarios of the lab.
pub fn scenario(content: &[u8]) {
    drop(Scenario::from_bytes("fuzzed", content));
}

/// Recordings of `nearpage top`.
pub fn tape(content: &[u8]) {
    if let Ok(mut tape) = Tape::of_bytes("fuzzed", content.to_vec()) {
        (0..tape.len().min(50)).for_each(|at| drop(tape.sample(at)));
    }
}

/// Traces: text, trace.dat and perf.data, plain or packed.
pub fn trace(content: &[u8]) {
    if let Ok(text) = unpacked(content, &Budget::DEFAULT) {
        drop(read_trace::<TraceError>("fuzzed", text, |_| Ok(())));
    }
}
