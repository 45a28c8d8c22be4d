//! Records the commit, so that a result says what it was measured on.

use std::env;
use std::path::Path;
use std::process::Command;

/// Whatever changes the commit or what is built from it.
const WATCHED: [&str; 5] =
    ["../../.git/HEAD", "../../.git/logs/HEAD", "../nearpage/src", "../nearpage-linux/src", "src"];

fn main() {
    // A path that is not there would make every build run this again.
    for watched in WATCHED.into_iter().filter(|watched| Path::new(watched).exists()) {
        println!("cargo:rerun-if-changed={watched}");
    }
    println!("cargo:rerun-if-env-changed=BUILT_FROM_COMMIT");
    // `cargo xtask dist` names the commit; else git does, in one length for each clone.
    let commit = env::var("BUILT_FROM_COMMIT").ok().or_else(|| {
        let describe = ["describe", "--always", "--dirty", "--tags", "--abbrev=12"];
        let git = Command::new("git").args(describe).output();
        let output = git.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    });
    // No name with NEARPAGE_: cargo hands it to the program that it runs, which would take it for a setting.
    // A source archive has no commit: the variable is then not set.
    if let Some(commit) = commit {
        println!("cargo:rustc-env=BUILT_FROM_COMMIT={commit}");
    }
}
