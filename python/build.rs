//! A fingerprint of the sources that decide what a replay comes to. Results that are kept carry it: figures of other code are
//! never taken for figures of this one.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose code decides figures.
const CRATES: [&str; 6] = [
    "nearpage",
    "nearpage-slab",
    "nearpage-machine",
    "nearpage-bundle",
    "nearpage-trace",
    "nearpage-replay",
];

fn main() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for name in CRATES {
        let folder = Path::new("../crates").join(name).join("src");
        println!("cargo::rerun-if-changed={}", folder.display());
        for file in files(&folder) {
            let content =
                fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            // FNV-1a, 64 bits, over names and contents.
            for byte in file.as_os_str().as_encoded_bytes().iter().chain(&content) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    println!("cargo::rustc-env=NEARPAGE_SOURCES={hash:016x}");
}

/// All files below a folder, in the order of their paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
        .into_iter()
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}
