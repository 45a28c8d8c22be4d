//! `cargo xtask dist`: packages for machines without Rust, the same bytes each time.
//!
//! Everything goes to one folder, with `SHA256SUMS` and a bill of materials. Times in archives are that of the last commit; paths
//! of the builder are taken out of programs.

mod archive;
mod bill;
mod check;
mod deb;
mod program;
mod rpm;
mod wheels;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};

/// Make packages: static programs, a .deb, an RPM, wheels and an sdist, the sources, with checksums and a bill of materials
///
/// Programs are built by the profile dist, which takes minutes. What is not installed is named in one line, and its packages are skipped.
#[derive(Args)]
pub struct DistArgs {
    /// What to make [default: all but rpm, which builds everything once more]
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Where packages go
    #[arg(long, default_value = "target/packages")]
    out: PathBuf,
    /// Then install each in a clean root, and use it: needs root, debootstrap and a Debian mirror
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
    /// For Debian and Ubuntu
    Deb,
    /// For Fedora and its like
    Rpm,
    /// For pip: wheels and an sdist
    Wheels,
    /// For cargo
    Crates,
}

/// Why a package was not made.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// A file or program could not be used.
    #[error("{what}: {error}")]
    Io {
        /// Which.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// A step failed.
    #[error("{step} failed: {said}")]
    Failed {
        /// Which.
        step: String,
        /// Its last words.
        said: String,
    },
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
    /// Seconds of the last commit.
    epoch: u64,
}

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes packages.
///
/// # Errors
///
/// [`DistError`].
pub fn run(arguments: &DistArgs) -> Result {
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .map_err(io_error("the root"))?;
    let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => said(
            "git log",
            Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&root),
        )?,
    };
    let epoch = epoch.trim().parse();
    let epoch =
        epoch.map_err(|_| DistError::Wrong("SOURCE_DATE_EPOCH is no number of seconds".into()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let dist =
        Dist { out: root.join(&arguments.out), target: target.join("packaged"), root, epoch };
    fs::create_dir_all(&dist.out).map_err(io_error(&dist.out))?;
    let all = [Part::Source, Part::Program, Part::Deb, Part::Wheels, Part::Crates];
    let parts = if arguments.parts.is_empty() { &all[..] } else { &arguments.parts };
    for part in parts {
        match part {
            Part::Source => archive::source(&dist)?,
            Part::Program => program::make(&dist)?,
            Part::Deb => deb::make(&dist)?,
            Part::Rpm => rpm::make(&dist)?,
            Part::Wheels => wheels::make(&dist)?,
            Part::Crates => crates(&dist)?,
        }
    }
    bill::make(&dist)?;
    sums(&dist)?;
    if arguments.check { check::run(&dist) } else { Ok(()) }
}

impl Dist {
    /// A command of cargo whose programs have no path of the builder.
    fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
        let mut flags = format!("--remap-path-prefix={}=/nearpage", self.root.display());
        if let Some(home) = home {
            flags += &format!("\x1f--remap-path-prefix={}=/cargo", home.display());
        }
        command.current_dir(&self.root).env("CARGO_ENCODED_RUSTFLAGS", flags);
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "0");
        command.env("SOURCE_DATE_EPOCH", self.epoch.to_string());
        command
    }

    /// An empty folder for what a package holds.
    fn stage(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target.join("stage").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        Ok(folder)
    }
}

/// Runs a step whose words nobody reads unless it fails.
fn step(name: &str, command: &mut Command) -> Result {
    said(name, command).map(drop)
}

/// What a step prints.
fn said(name: &str, command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(io_error(name))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    let lines: Vec<&str> = words.trim().lines().collect();
    let last = lines[lines.len().saturating_sub(12)..].join("\n");
    Err(DistError::Failed { step: name.into(), said: format!("{}\n{last}", output.status) })
}

/// Whether a program is there; if not, a line says what is not made.
fn has(program: &str, made: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        println!("SKIPPED: {made}: {program} is not installed ({package})");
    }
    is_there
}

/// The packages of cargo, in the order in which they depend on each other.
fn crates(dist: &Dist) -> Result {
    let mut command = dist.cargo();
    command.args(["package", "--quiet", "--workspace", "--no-verify", "--allow-dirty"]);
    for excluded in ["peers", "kernel", "beside", "size", "smallest", "xtask", "guest"] {
        command.args(["--exclude", excluded]);
    }
    step("cargo package", &mut command)?;
    let folder = dist.target.join("package");
    for path in files(&folder)? {
        let is_ours = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with(&format!("-{VERSION}.crate")));
        if is_ours {
            let to = dist.out.join(path.file_name().expect("a file has a name"));
            fs::copy(&path, &to).map_err(io_error(&path))?;
        }
    }
    Ok(())
}

/// Files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(io_error(folder))?;
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
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
