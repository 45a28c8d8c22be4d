//! `cargo xtask dist`: packages for machines without Rust.
//!
//! Everything goes to one folder, with `SHA256SUMS` and a bill of materials. Times in archives are that of the last commit; paths
//! of the builder are taken out of programs.

mod archive;
mod bill;
mod check;
mod container;
mod crates;
mod deb;
mod program;
mod roots;
mod rpm;
mod wheels;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::install::{self, InstallError};
use crate::step::{StepError, found, output, root, step, target_dir};

/// Make packages: sources, static programs, a .deb, wheels, crates, with checksums and a bill of materials: an hour of CPU time
///
/// Two runs of a commit are to give the same bytes, which SHA256SUMS shows; the .deb and the RPM are built of what is committed. What is
/// missing on this machine is named in one line, and what needs it is left out: the exit status is 0 then.
#[derive(Args)]
pub struct DistArgs {
    /// What to make [default: all but the RPM and the image, which need tools of their own]
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Where packages go
    #[arg(long, default_value = "target/packages")]
    out: PathBuf,
    /// Then install each in a clean root, and use it: as root, with debootstrap and a package mirror
    #[arg(long)]
    check: bool,
}

/// A kind of package.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The sources, as git has them
    Source,
    /// Static programs for x86-64 and aarch64, with manual pages and completions
    Program,
    /// For Debian and Ubuntu (needs dpkg-dev and lintian)
    Deb,
    /// For Fedora and its like, from the archive of the sources (needs rpm)
    Rpm,
    /// For pip: wheels and an sdist (needs CPython and, the first time, a package index)
    Wheels,
    /// For cargo, in the order in which they depend on each other
    Crates,
    /// An image of the static program, and one of nearpage-fleet (needs buildah, debootstrap and a package mirror)
    Image,
}

/// Why a package was not made.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// A file could not be used.
    #[error("{what}: {error}")]
    Io {
        /// Which.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// A step was not done.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Files were not put where they belong.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// A package is not what it must be.
    #[error("{0}")]
    Wrong(String),
}

type Result<T = (), E = DistError> = std::result::Result<T, E>;

fn io_error(what: impl AsRef<OsStr>) -> impl FnOnce(io::Error) -> DistError {
    let what = what.as_ref().to_string_lossy().into_owned();
    move |error| DistError::Io { what, error }
}

/// What all parts share.
struct Dist {
    root: PathBuf,
    /// Where cargo builds: programs without the builder's paths are other ones than those of `target`.
    target: PathBuf,
    out: PathBuf,
    /// Seconds of the commit.
    epoch: u64,
    /// The commit, as programs name it.
    commit: String,
}

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The processor of this machine.
const PROCESSOR: &str = std::env::consts::ARCH;

/// Makes packages.
///
/// # Errors
///
/// [`DistError`].
pub fn run(arguments: &DistArgs) -> Result {
    let root = fs::canonicalize(root()).map_err(io_error("the root"))?;
    let epoch = given("SOURCE_DATE_EPOCH", &root, &["log", "-1", "--format=%ct"])?;
    let epoch = epoch.parse();
    let epoch = epoch.map_err(|_| DistError::Wrong("SOURCE_DATE_EPOCH is no number".into()))?;
    let describe = ["describe", "--always", "--dirty", "--tags", "--abbrev=12"];
    let commit = given("BUILT_FROM_COMMIT", &root, &describe)?;
    let out = root.join(&arguments.out);
    let target = target_dir().join("packaged");
    for folder in [&out, &target] {
        fs::create_dir_all(folder).map_err(io_error(folder))?;
    }
    let target = fs::canonicalize(&target).map_err(io_error(&target))?;
    let dist = Dist { root, target, out, epoch, commit };
    let usual = [Part::Source, Part::Program, Part::Deb, Part::Wheels, Part::Crates];
    let parts = if arguments.parts.is_empty() { &usual[..] } else { &arguments.parts };
    for part in parts {
        match part {
            Part::Source => archive::source(&dist)?,
            Part::Program => program::make(&dist)?,
            Part::Deb => deb::make(&dist)?,
            Part::Rpm => rpm::make(&dist)?,
            Part::Wheels => wheels::make(&dist)?,
            Part::Crates => crates::make(&dist)?,
            Part::Image => container::make(&dist)?,
        }
    }
    bill::make(&dist)?;
    sums(&dist)?;
    if arguments.check { check::run(&dist) } else { Ok(()) }
}

/// What a variable says, else git.
fn given(variable: &str, root: &Path, git: &[&str]) -> Result<String> {
    let said = match std::env::var(variable) {
        Ok(said) => said,
        Err(_) => output("git", Command::new("git").args(git).current_dir(root))?,
    };
    Ok(said.trim().to_owned())
}

impl Dist {
    /// A command of cargo whose programs have no path of the builder.
    fn cargo(&self) -> Command {
        let mut command = install::cargo(&self.root, &install::builders(&self.root));
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "0");
        command.env("SOURCE_DATE_EPOCH", self.epoch.to_string());
        command.env("BUILT_FROM_COMMIT", &self.commit);
        command
    }

    /// What cargo tells of the workspace.
    fn metadata(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.cargo();
        command.args(["metadata", "--format-version=1"]).args(arguments);
        let text = output("cargo metadata", &mut command)?;
        serde_json::from_str(&text)
            .map_err(|error| DistError::Wrong(format!("cargo metadata: {error}")))
    }

    /// An empty folder for what a package holds.
    fn stage(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target.join("stage").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        Ok(folder)
    }

    /// The package with a name that begins and ends so, if it was made.
    fn package(&self, begin: &str, end: &str) -> Result<Option<PathBuf>> {
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with(begin) && name.ends_with(end)
        };
        Ok(files(&self.out)?.into_iter().find(is_it))
    }
}

/// Whether a program is there; if not, a line says what is not made.
fn has(program: &str, made: &str, package: &str) -> bool {
    let is_there = found(program).is_some();
    if !is_there {
        println!("SKIPPED: {made}: {program} is not installed (apt install {package})");
    }
    is_there
}

/// Files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(io_error(folder))?;
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}

/// Refuses a package that is longer than it may be.
fn at_most(bytes_most: u64, path: &Path) -> Result {
    let bytes = fs::metadata(path).map_err(io_error(path))?.len();
    if bytes <= bytes_most {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Err(DistError::Wrong(format!("{name} has {bytes} bytes, expected {bytes_most} at most")))
}

/// The elements of a list in JSON; none of what is no list.
fn array(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A text in JSON; an empty one for what is none.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Copies a file into a folder.
fn take(from: &Path, folder: &Path) -> Result {
    let to = folder.join(from.file_name().unwrap_or_default());
    fs::copy(from, &to).map(drop).map_err(io_error(from))
}

/// `SHA256SUMS` of all packages.
fn sums(dist: &Dist) -> Result {
    let mut text = String::new();
    for path in files(&dist.out)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "SHA256SUMS" {
            continue;
        }
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        println!("{name}: {:.1} MB", bytes.len() as f64 / 1e6);
        text += &format!("{sum}  {name}\n");
    }
    fs::write(dist.out.join("SHA256SUMS"), text).map_err(io_error("SHA256SUMS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Dist {
        /// One whose files all lie in a folder.
        pub(super) fn within(folder: &Path) -> Dist {
            let [root, target, out] = [folder; 3].map(Path::to_owned);
            Dist { root, target, out, epoch: 7, commit: String::new() }
        }
    }

    /// Cargo and the other tools each read their own file: a version that is raised in one of them alone is found here.
    #[test]
    fn all_files_name_one_version() {
        let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
        let siblings = read("Cargo.toml");
        let siblings = siblings.lines().filter(|line| line.contains("path = \"crates/"));
        let wanted = format!("version = \"{VERSION}\"");
        assert!(
            siblings.clone().count() > 10 && siblings.clone().all(|line| line.contains(&wanted))
        );
        for (file, line) in [
            ("Cargo.toml", wanted.clone()),
            ("python/Cargo.toml", wanted),
            ("packaging/nearpage.spec", format!("Version:        {VERSION}")),
            ("docs/README.trycmd", format!("Version {VERSION},")),
            ("docs/src/introduction.md", format!("Version {VERSION},")),
            ("CHANGELOG.md", format!("## {VERSION}")),
        ] {
            assert!(read(file).lines().any(|of| of.starts_with(&line)), "{file} has no {line:?}");
        }
    }

    #[test]
    fn a_package_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().to_owned();
        for name in ["nearpage-1-a.whl", "nearpage-1-b.whl"] {
            fs::write(out.join(name), "").unwrap();
        }
        let dist = Dist::within(&out);
        assert_eq!(
            dist.package("nearpage-", "-b.whl").unwrap(),
            Some(out.join("nearpage-1-b.whl"))
        );
        assert_eq!(dist.package("nearpage-", ".deb").unwrap(), None);
        sums(&dist).unwrap();
        let text = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(text, format!("{empty}  nearpage-1-a.whl\n{empty}  nearpage-1-b.whl\n"));
    }
}
