//! `cargo xtask miri`: Miri runs the tests of the core's unsafe files and of the page-lock protocol, and of the lists in which the
//! malloc's objects go home.
//!
//! Miri is in dated nightlies alone, and this is an extra: without that toolchain nothing is run. Sections of memory are
//! smaller under Miri (`SECTION_SHIFT`), and so are the random machines of the page locks.
//!
//! References are checked by Tree Borrows, with an allocation's atomics taken as one: a reference to a section's words
//! would otherwise be checked word by word, each time that it is copied, and a single test would take minutes.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// The toolchain whose Miri is known to run these tests.
const TOOLCHAIN: &str = "nightly-2026-05-20";
/// How references are checked; see above.
const FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-tree-borrows-no-precise-interior-mut";
/// Unit tests, by their names: those of files with `unsafe`, and of what stands on them.
const UNITS: [&str; 4] = ["arena::", "slot::", "units::", "frame::section::"];

/// Why Miri did not pass.
#[derive(Debug, thiserror::Error)]
pub enum MiriError {
    /// Cargo could not be run.
    #[error("cargo: {0}")]
    Cargo(#[from] io::Error),
    /// Miri found something, or a test failed or did not compile.
    #[error("Miri: cargo {command}: {status}")]
    Failed {
        /// Arguments of cargo.
        command: &'static str,
        /// How it ended.
        status: ExitStatus,
    },
}

/// Runs the tests, if there is a Miri.
///
/// # Errors
///
/// [`MiriError`].
pub fn run() -> Result<(), MiriError> {
    if let Some(missing) = missing(TOOLCHAIN) {
        eprintln!("{missing}");
        return Ok(());
    }
    let mut units = cargo("test --package nearpage --lib");
    units.arg("--").args(UNITS);
    pass("test --package nearpage --lib", units)?;
    let locks = "test --package nearpage-pagelock";
    pass(locks, cargo(locks))?;
    let mut parcels = cargo("test --package nearpage-malloc --lib");
    parcels.args(["--", "parcel::"]);
    pass("test --package nearpage-malloc --lib", parcels)
}

/// The line that tells what is missing, or `None` if that toolchain has a Miri.
fn missing(toolchain: &str) -> Option<String> {
    let mut command = Command::new("cargo");
    command.arg(format!("+{toolchain}")).args(["miri", "--version"]);
    command.env("RUSTUP_AUTO_INSTALL", "0").env_remove("RUSTUP_TOOLCHAIN");
    let is_there = command.output().is_ok_and(|output| output.status.success());
    (!is_there).then(|| {
        format!(
            "SKIPPED: no Miri in {toolchain}; rustup toolchain install {toolchain} --profile minimal \
             --component miri,rust-src"
        )
    })
}

fn pass(command: &'static str, mut cargo: Command) -> Result<(), MiriError> {
    let status = cargo.status()?;
    if status.success() { Ok(()) } else { Err(MiriError::Failed { command, status }) }
}

/// Cargo of the nightly, with a target folder of its own: builds of other toolchains stay as they are.
fn cargo(arguments: &str) -> Command {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mut command = Command::new("cargo");
    command.arg(format!("+{TOOLCHAIN}")).arg("miri").args(arguments.split(' '));
    command.arg("--target-dir").arg(PathBuf::from(folder).join("miri"));
    // What `cargo xtask` was started with is another toolchain's.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command.env("MIRIFLAGS", FLAGS);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_that_is_not_there_is_named_in_one_line() {
        let line = missing("nightly-2015-01-01").unwrap();
        assert!(line.starts_with("SKIPPED: no Miri in nightly-2015-01-01"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn what_fails_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 1"]);
        let failed = pass("test", command).unwrap_err();
        assert!(failed.to_string().contains("cargo test: exit status: 1"), "{failed}");
    }

    #[test]
    fn every_file_with_unsafe_code_has_its_tests_among_them() {
        let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/nearpage/src");
        let mut folders = vec![sources.clone()];
        let mut found = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                if !std::fs::read_to_string(&path).unwrap().contains("unsafe {") {
                    continue;
                }
                let name = path.strip_prefix(&sources).unwrap().with_extension("");
                let module = name.display().to_string().replace('/', "::") + "::";
                // A test machine's sections: every test of a machine uses them.
                let is_used = module == "testing::sections::";
                assert!(is_used || UNITS.iter().any(|test| module.starts_with(test)), "{module}");
                found += 1;
            }
        }
        assert!(found >= 3, "{found}");
    }
}
