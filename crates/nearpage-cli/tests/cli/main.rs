//! The commands as users run them, and what a program can judge about the sources. One binary: linking is most of
//! what a small test costs.

mod bench;
mod dense;
mod doctor;
mod drawn;
mod explain;
mod export;
mod globals;
mod lab;
mod layers;
mod limits;
mod options;
mod packages;
mod proc;
mod record;
mod report;
mod run;
mod strangers;
mod tidy;
mod top;
mod topo;
mod trace;
mod vmcore;
mod web;

use std::fs::File;
use std::path::{Path, PathBuf};

/// Unpacks the bundle of the sources into a folder; the bundle's own folder there.
fn unpacked_bundle(into: &Path) -> PathBuf {
    unpack(&tidy::root().join("bundles/q612-n2-mixed.tar.zst"), into);
    into.join("q612-n2-mixed")
}

/// Unpacks a packed tar into a folder.
fn unpack(packed: &Path, into: &Path) {
    let packed = File::open(packed).unwrap();
    tar::Archive::new(
        nearpage_trace::unpacked(packed, &nearpage_machine::Budget::DEFAULT).unwrap(),
    )
    .unpack(into)
    .unwrap();
}
