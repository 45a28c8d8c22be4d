//! Where the crates come from that are built, and under which licences. Nothing is asked of the network.

use std::process::Command;

use serde_json::Value;

use super::tidy::{complain, root};

/// Licences that ask for no more than to be named.
const LICENCES: [&str; 6] = ["0BSD", "Apache-2.0", "MIT", "Unicode-3.0", "Zlib", "bzip2-1.0.6"];

/// Packages under others, and why they may be.
const OTHERS: [(&str, &str, &str); 1] =
    [("cbindgen", "MPL-2.0", "compares a header in a test; no part of it is in what is built")];

const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Whether an expression of SPDX can be met by the licences above.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    // What is joined by AND is met one by one, whichever way its parts are grouped.
    expression
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|one| LICENCES.contains(&one.trim())))
}

#[test]
fn packages_have_known_licences_and_one_source() {
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0") && is_allowed("GPL-3.0 / MIT"));
    assert!(!is_allowed("MIT AND GPL-3.0-only") && !is_allowed("MPL-2.0") && !is_allowed(""));
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)])
        .output()
        .unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        eprintln!("SKIPPED: packages_have_known_licences_and_one_source: {}", why.trim());
        return;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{}", packages.len());
    let mut complaints = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_default();
        let is_listed = OTHERS.iter().any(|(of, also, _)| (*of, *also) == (name, licence));
        if !is_allowed(licence) && !is_listed {
            complaints.push(format!("{name}: {licence:?}, expected one of {LICENCES:?}"));
        }
        // What has no source is in this repository.
        if let Some(source) = package["source"].as_str().filter(|source| *source != SOURCE) {
            complaints.push(format!("{name}: comes from {source}, expected {SOURCE}"));
        }
    }
    complain("packages", &complaints);
}
