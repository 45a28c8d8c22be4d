//! The programs that run in the machine: static ones, and the host's test suites with the C library and the loader that they
//! were linked with. glibc does not tell a static program of its restartable sequences, and the suites are to use them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::GuestError;
use super::suites::SUITES;
use crate::record::RecordError;
use crate::record::initramfs::File;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The loader that the psABI of x86-64 names.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// How programs are linked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linked {
    Static,
    Dynamic,
}

/// Programs and libraries, by their paths in the machine.
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
        let words = ["build", "--package", "guest", "--package", "nearpage-cli"];
        for (name, path) in cargo(&words, Linked::Static)? {
            match name.as_str() {
                "guest" => add("init", &path)?,
                "nearpage" => add("nearpage", &path)?,
                _ => {}
            }
        }
        if with_suites {
            let suites = SUITES.map(|suite| format!("--test={}", suite.name));
            let mut words = vec!["test", "--no-run", "--package", "nearpage-linux"];
            words.extend(suites.iter().map(String::as_str));
            let mut libraries = BTreeSet::new();
            for (name, path) in cargo(&words, Linked::Dynamic)? {
                if SUITES.iter().any(|suite| suite.name == name) {
                    add(&name, &path)?;
                    libraries.extend(libraries_of(&path)?);
                }
            }
            for path in &libraries {
                add(path.trim_start_matches('/'), Path::new(path))?;
            }
        }
        let has = |name: &str| programs.iter().any(|(there, _)| there == name);
        let suites = SUITES.iter().map(|suite| suite.name).filter(|_| with_suites);
        match ["init", "nearpage"].into_iter().chain(suites).find(|name| !has(name)) {
            Some(name) => Err(GuestError::NotBuilt(format!("cargo built no {name}"))),
            None => Ok(Programs(programs)),
        }
    }

    /// The files of the machine.
    pub fn files(&self) -> impl Iterator<Item = File<'_>> {
        self.0.iter().map(|(name, content)| File { path: name, content })
    }
}

/// What cargo built: names, and where they are.
fn cargo(words: &[&str], linked: Linked) -> Result<Vec<(String, PathBuf)>, GuestError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sign = if linked == Linked::Static { '+' } else { '-' };
    let flags =
        format!("target.{TARGET}.rustflags = [\"-C\", \"target-feature={sign}crt-static\"]");
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

/// The files that the loader loads for a program, itself among them.
fn libraries_of(program: &Path) -> Result<Vec<String>, GuestError> {
    let output = Command::new(LOADER).arg("--list").arg(program).output();
    let output = output.map_err(RecordError::file(Path::new(LOADER)))?;
    let libraries = libraries(&String::from_utf8_lossy(&output.stdout));
    if output.status.success() && libraries.iter().any(|library| library == LOADER) {
        return Ok(libraries);
    }
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(GuestError::NotBuilt(format!("{LOADER} --list {}: {told}", program.display())))
}

/// Paths out of the loader's list: `libc.so.6 => /lib/libc.so.6 (0x7f…)`, and its own, which has no arrow.
fn libraries(list: &str) -> Vec<String> {
    let path = |line: &str| {
        let file = line.split_once(" => ").map_or(line, |(_, file)| file).trim();
        file.split_whitespace().next().filter(|path| path.starts_with('/')).map(String::from)
    };
    list.lines().filter_map(path).collect()
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

    #[test]
    fn libraries_are_found_in_the_loaders_list() {
        let list = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7fb1)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7fb2)\n\tlibx.so => not found\n";
        assert_eq!(libraries(list), ["/lib/x86_64-linux-gnu/libc.so.6", LOADER]);
    }
}
