//! `cargo xtask api`: the public API of every published crate beside the text that is committed for it.
//!
//! rustdoc writes what it knows of a crate as JSON, and `public-api` makes lines of it, one for each item that a user
//! can name. Items behind `#[doc(hidden)]` are not among them. The JSON is no stable output of rustdoc: a wrapper sets
//! `RUSTC_BOOTSTRAP` for rustdoc alone, so that nothing else is built another way, and its format belongs to one range
//! of toolchains. On others the comparison is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde::Deserialize;

/// The folder of the texts.
const FOLDER: &str = "api";
/// Traits that a type has or has not by itself, and that nobody asks for. `Send` and `Sync` are asked for.
const SILENT: [&str; 6] = [
    " core::marker::Freeze for ",
    " core::marker::StructuralPartialEq for ",
    " core::marker::Unpin for ",
    " core::marker::UnsafeUnpin for ",
    " core::panic::unwind_safe::RefUnwindSafe for ",
    " core::panic::unwind_safe::UnwindSafe for ",
];

/// Compare the public API of every published crate with the folder `api`
#[derive(Args)]
pub struct ApiArgs {
    /// Write the folder anew instead
    #[arg(long)]
    write: bool,
}

/// Why the API is not the committed one, or not known.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A program could not be run, or a file not be read or written.
    #[error("{what}: {error}")]
    Io {
        /// What could not.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// Cargo failed; it has said why on standard error.
    #[error("cargo {0} failed")]
    Failed(&'static str),
    /// What a program wrote cannot be read.
    #[error("{what}: {error}")]
    Json {
        /// What was read.
        what: String,
        /// Why it cannot be.
        error: serde_json::Error,
    },
    /// The JSON of a crate cannot be read.
    #[error("{what}: {error}")]
    Rustdoc {
        /// The file.
        what: String,
        /// Why.
        error: public_api::Error,
    },
    /// Lines that one side has alone.
    #[error(
        "the public API is not the one in `{FOLDER}` (- committed, + now):\n{0}if that is meant: cargo xtask api --write"
    )]
    Different(String),
}

/// Compares or writes the texts of all published crates.
///
/// # Errors
///
/// [`ApiError`].
pub fn run(arguments: &ApiArgs) -> Result<(), ApiError> {
    let workspace = workspace()?;
    let crates = workspace.published();
    document(&workspace, &crates)?;
    let mut now = BTreeMap::new();
    for &name in &crates {
        let json =
            workspace.target_directory.join("doc").join(format!("{}.json", underscored(name)));
        if let Some(found) = other_format(&json)? {
            let read = rustdoc_types::FORMAT_VERSION;
            eprintln!(
                "SKIPPED: this rustdoc writes format {found} of its JSON, and format {read} is read here"
            );
            return Ok(());
        }
        now.insert(file_of(name), text_of(&json)?);
    }
    let folder = workspace.workspace_root.join(FOLDER);
    if arguments.write {
        return write(&folder, &now);
    }
    let differences = differences(&committed(&folder)?, &now);
    if differences.is_empty() { Ok(()) } else { Err(ApiError::Different(differences)) }
}

/// What `cargo metadata` tells, as far as it is asked for.
#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
    target_directory: PathBuf,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    /// Registries that it may be published to; all of them if there is no list.
    publish: Option<Vec<String>>,
}

impl Workspace {
    /// Names of the crates that may be published.
    fn published(&self) -> Vec<&str> {
        let published =
            |package: &&Package| package.publish.as_ref().is_none_or(|to| !to.is_empty());
        self.packages.iter().filter(published).map(|package| package.name.as_str()).collect()
    }
}

fn workspace() -> Result<Workspace, ApiError> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let output = command.output().map_err(|error| io_error("cargo metadata", error))?;
    if !output.status.success() {
        return Err(ApiError::Failed("metadata"));
    }
    let json_error = |error| ApiError::Json { what: "cargo metadata".to_owned(), error };
    serde_json::from_slice(&output.stdout).map_err(json_error)
}

/// Lets rustdoc write the JSON of the crates, with all their features; a link that leads nowhere is an error.
fn document(workspace: &Workspace, crates: &[&str]) -> Result<(), ApiError> {
    let wrapper = wrapper(&workspace.target_directory)?;
    let mut command = cargo();
    command.args(["doc", "--quiet", "--no-deps", "--lib", "--all-features"]);
    for name in crates {
        command.args(["--package", name]);
    }
    command.env("RUSTDOC", wrapper);
    command.env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json --deny warnings");
    let status = command.status().map_err(|error| io_error("cargo doc", error))?;
    if status.success() { Ok(()) } else { Err(ApiError::Failed("doc")) }
}

/// A rustdoc that takes unstable options. Cargo and the build scripts do not see the variable.
fn wrapper(target: &Path) -> Result<PathBuf, ApiError> {
    let rustdoc = std::env::var("RUSTDOC").unwrap_or_else(|_| "rustdoc".to_owned());
    let path = target.join("rustdoc-json");
    let written = fs::create_dir_all(target)
        .and_then(|()| {
            fs::write(&path, format!("#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec {rustdoc} \"$@\"\n"))
        })
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
    written.map_err(|error| io_error(&path.display().to_string(), error))?;
    Ok(path)
}

/// The format of a JSON file, if it is not the one that is read here.
fn other_format(json: &Path) -> Result<Option<u32>, ApiError> {
    #[derive(Deserialize)]
    struct Head {
        format_version: u32,
    }
    let what = json.display().to_string();
    let text = fs::read_to_string(json).map_err(|error| io_error(&what, error))?;
    let head: Head = serde_json::from_str(&text).map_err(|error| ApiError::Json { what, error })?;
    Ok(Some(head.format_version).filter(|found| *found != rustdoc_types::FORMAT_VERSION))
}

/// The public items, one a line. Of what is derived there is the head alone: its functions are those of the trait.
fn text_of(json: &Path) -> Result<String, ApiError> {
    let items = |omit_derived: bool| -> Result<Vec<String>, ApiError> {
        let builder = public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true);
        let api = builder.omit_auto_derived_impls(omit_derived).build();
        let rustdoc_error = |error| ApiError::Rustdoc { what: json.display().to_string(), error };
        Ok(api.map_err(rustdoc_error)?.items().map(ToString::to_string).collect())
    };
    Ok(lines_of(&items(false)?, &items(true)?.into_iter().collect()))
}

fn lines_of(all: &[String], written_by_hand: &BTreeSet<String>) -> String {
    let is_head = |line: &String| line.starts_with("impl");
    let is_silent = |line: &String| SILENT.iter().any(|name| line.contains(name));
    let told = |line: &&String| written_by_hand.contains(*line) || is_head(line);
    all.iter().filter(told).filter(|line| !is_silent(line)).flat_map(|line| [line, "\n"]).collect()
}

fn file_of(name: &str) -> String {
    format!("{name}.txt")
}

fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

/// The committed texts, by the names of their files.
fn committed(folder: &Path) -> Result<BTreeMap<String, String>, ApiError> {
    let folder_error = |error| io_error(&folder.display().to_string(), error);
    let mut texts = BTreeMap::new();
    if !folder.exists() {
        return Ok(texts);
    }
    for entry in fs::read_dir(folder).map_err(folder_error)? {
        let path = entry.map_err(folder_error)?.path();
        let text = fs::read_to_string(&path)
            .map_err(|error| io_error(&path.display().to_string(), error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        texts.insert(name, text);
    }
    Ok(texts)
}

/// Writes the texts; those of crates that are gone go.
fn write(folder: &Path, now: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let stale = committed(folder)?.into_keys().filter(|name| !now.contains_key(name));
    for name in stale {
        fs::remove_file(folder.join(&name)).map_err(|error| io_error(&name, error))?;
    }
    fs::create_dir_all(folder).map_err(|error| io_error(FOLDER, error))?;
    for (name, text) in now {
        fs::write(folder.join(name), text).map_err(|error| io_error(name, error))?;
    }
    Ok(())
}

/// For each file that differs, its name and the lines that one side has alone. Both sides are sorted the same way, so
/// that a line that only moved is no difference.
fn differences(committed: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> String {
    let mut names: Vec<&String> = committed.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut all = String::new();
    for name in names {
        let side =
            |texts: &BTreeMap<String, String>| counted(texts.get(name).map_or("", String::as_str));
        let (old, new) = (side(committed), side(now));
        let mut lines = String::new();
        for (line, count) in &old {
            append(
                &mut lines,
                '-',
                line,
                count.saturating_sub(new.get(line).copied().unwrap_or(0)),
            );
        }
        for (line, count) in &new {
            append(
                &mut lines,
                '+',
                line,
                count.saturating_sub(old.get(line).copied().unwrap_or(0)),
            );
        }
        if !lines.is_empty() || committed.contains_key(name) != now.contains_key(name) {
            let _ = write!(all, "{FOLDER}/{name}\n{lines}");
        }
    }
    all
}

/// How often each line is there.
fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    text.lines().for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
    counts
}

fn append(lines: &mut String, sign: char, line: &str, times: usize) {
    (0..times).for_each(|_| {
        let _ = writeln!(lines, "{sign} {line}");
    });
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn io_error(what: &str, error: io::Error) -> ApiError {
    ApiError::Io { what: what.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        texts.iter().map(|(name, text)| (file_of(name), (*text).to_owned())).collect()
    }

    #[test]
    fn a_changed_api_is_told_line_by_line() {
        let old = texts(&[("a", "pub fn a::f()\npub fn a::g()\n"), ("b", "pub mod b\n")]);
        let new = texts(&[("a", "pub fn a::f(u32)\npub fn a::g()\n"), ("b", "pub mod b\n")]);
        assert_eq!(differences(&old, &new), "api/a.txt\n- pub fn a::f()\n+ pub fn a::f(u32)\n");
        assert_eq!(differences(&new, &new), "");
        let told = ApiError::Different(differences(&old, &new)).to_string();
        assert!(told.ends_with("cargo xtask api --write"), "{told}");
    }

    #[test]
    fn a_crate_without_text_and_a_text_without_crate_are_told() {
        let (old, new) = (texts(&[("gone", "pub mod gone\n")]), texts(&[("empty", "")]));
        assert_eq!(differences(&old, &new), "api/empty.txt\napi/gone.txt\n- pub mod gone\n");
    }

    #[test]
    fn a_line_that_is_there_less_often_is_told() {
        let (old, new) = (texts(&[("a", "x\nx\n")]), texts(&[("a", "x\n")]));
        assert_eq!(differences(&old, &new), "api/a.txt\n- x\n");
    }

    #[test]
    fn of_the_auto_traits_send_and_sync_are_told_and_of_what_is_derived_the_head() {
        let items = [
            "impl core::clone::Clone for a::T",
            "pub fn a::T::clone(&self) -> a::T",
            "impl core::marker::Send for a::T",
            "impl core::marker::Unpin for a::T",
            "impl core::panic::unwind_safe::UnwindSafe for a::T",
            "impl !core::marker::Sync for a::T",
            "pub struct a::T",
        ];
        let lines = lines_of(&items.map(str::to_owned), &["pub struct a::T".to_owned()].into());
        let told = [items[0], items[2], items[5], items[6]];
        assert_eq!(lines, told.map(|line| line.to_owned() + "\n").concat());
    }

    #[test]
    fn packages_that_may_not_be_published_are_left_out() {
        let json = r#"{"packages": [{"name": "a", "publish": null}, {"name": "b", "publish": []}],
            "target_directory": "t", "workspace_root": "r"}"#;
        let workspace: Workspace = serde_json::from_str(json).unwrap();
        assert_eq!(workspace.published(), ["a"]);
    }

    #[test]
    fn another_format_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, r#"{"root": 1, "format_version": 1}"#).unwrap();
        assert_eq!(other_format(&path).unwrap(), Some(1));
        let known = rustdoc_types::FORMAT_VERSION;
        fs::write(&path, format!(r#"{{"format_version": {known}}}"#)).unwrap();
        assert_eq!(other_format(&path).unwrap(), None);
    }

    #[test]
    fn texts_of_crates_that_are_gone_go() {
        let folder = tempfile::tempdir().unwrap();
        let api = folder.path().join("api");
        write(&api, &texts(&[("a", "x\n"), ("b", "y\n")])).unwrap();
        write(&api, &texts(&[("a", "z\n")])).unwrap();
        assert_eq!(committed(&api).unwrap(), texts(&[("a", "z\n")]));
    }
}
