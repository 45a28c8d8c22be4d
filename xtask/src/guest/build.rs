//! The programs that run in the machine, linked static with glibc.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::GuestError;
use crate::record::RecordError;
use crate::record::initramfs::File;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The host's test suites.
const SUITES: [&str; 3] = ["memory", "slab", "threads"];

/// Programs, by their names in the machine.
pub struct Programs(Vec<(String, Vec<u8>)>);

impl Programs {
    /// Builds them.
    ///
    /// # Errors
    ///
    /// [`GuestError`].
    pub fn build(with_suites: bool) -> Result<Programs, GuestError> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(GuestError::Record(RecordError::Missing {
                what: "a linker for static programs of x86-64 with glibc".into(),
                places: "this machine".into(),
                remedy: "run it on Linux on x86-64".into(),
            }));
        }
        let mut programs = Vec::new();
        let mut add = |name: &str, path: &Path| -> Result<(), GuestError> {
            let content = std::fs::read(path).map_err(RecordError::file(path))?;
            programs.push((name.to_owned(), content));
            Ok(())
        };
        for (name, path) in cargo(&["build", "--package", "guest", "--package", "nearpage-cli"])? {
            match name.as_str() {
                "guest" => add("init", &path)?,
                "nearpage" => add("nearpage", &path)?,
                _ => {}
            }
        }
        if with_suites {
            let suites = SUITES.map(|suite| format!("--test={suite}"));
            let mut words = vec!["test", "--no-run", "--package", "nearpage-linux"];
            words.extend(suites.iter().map(String::as_str));
            for (name, path) in cargo(&words)? {
                if SUITES.contains(&name.as_str()) {
                    add(&name, &path)?;
                }
            }
        }
        let wanted = 2 + if with_suites { SUITES.len() } else { 0 };
        if programs.len() != wanted {
            let names: Vec<&str> = programs.iter().map(|(name, _)| name.as_str()).collect();
            return Err(GuestError::NotBuilt(format!("cargo built {names:?} alone")));
        }
        Ok(Programs(programs))
    }

    /// The files of the machine.
    pub fn files(&self) -> impl Iterator<Item = File<'_>> {
        self.0.iter().map(|(name, content)| File { path: name, content })
    }
}

/// What cargo built: names, and where they are.
fn cargo(words: &[&str]) -> Result<Vec<(String, PathBuf)>, GuestError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let flags = format!("target.{TARGET}.rustflags = [\"-C\", \"target-feature=+crt-static\"]");
    let output = Command::new(env!("CARGO"))
        .current_dir(&root)
        .args(words)
        .args(["--release", "--target", TARGET, "--message-format=json-render-diagnostics"])
        // Names of functions would double the machine's files, which take its memory.
        .args(["--config", &flags, "--config", "profile.release.strip = \"symbols\""])
        .arg("--target-dir")
        .arg(root.join("target").join("guest"))
        // They would be taken in place of these.
        .env_remove("RUSTFLAGS")
        .stderr(Stdio::inherit())
        .output()
        .map_err(RecordError::file(Path::new("cargo")))?;
    if !output.status.success() {
        return Err(GuestError::NotBuilt("the programs for the machine are not built".into()));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(messages.lines().filter_map(executable).collect())
}

/// Name and place of the executable that a message of cargo's names.
fn executable(message: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let place = message["executable"].as_str()?;
    Some((message["target"]["name"].as_str()?.to_owned(), PathBuf::from(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_messages() {
        let message = r#"{"executable": "/t/memory-1", "target": {"name": "memory"}}"#;
        assert_eq!(executable(message), Some(("memory".into(), "/t/memory-1".into())));
        assert_eq!(executable(r#"{"executable": null, "target": {"name": "x"}}"#), None);
        assert_eq!(executable("Compiling"), None);
    }
}
