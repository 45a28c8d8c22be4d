//! The kernel, built for bare metal.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{KernelError, Processor};

/// A fault that is planted in the kernel: the checks must find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A lock whose holder has interrupts on.
    InterruptsOn,
    /// Two CPUs with one number, and so with one storage.
    SharedStorage,
    /// A range that is handed over twice.
    RangeTwice,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 3] = [Self::InterruptsOn, Self::SharedStorage, Self::RangeTwice];

    /// The kernel's feature.
    pub const fn feature(self) -> &'static str {
        match self {
            Self::InterruptsOn => "fault-interrupts-on",
            Self::SharedStorage => "fault-shared-storage",
            Self::RangeTwice => "fault-range-twice",
        }
    }

    /// The machine that shows it.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::InterruptsOn | Self::RangeTwice => "one",
            Self::SharedStorage => "two",
        }
    }

    /// What the kernel says of it, one of these.
    pub const fn signs(self) -> &'static [&'static str] {
        match self {
            Self::InterruptsOn => &["deadlock: CPU"],
            // The locks know their holders by the number, too.
            Self::SharedStorage => &["two share its storage", "deadlock: CPU"],
            Self::RangeTwice => &["the kernel's own memory is somebody else's too"],
        }
    }
}

/// What the kernel is built for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// All checks.
    Checks,
    /// All checks, of which one finds the fault.
    Fault(Fault),
    /// To count instructions beside other allocators.
    Beside,
    /// To count what each call takes at most.
    Bounds,
    /// The same without optimization, for the stack.
    BoundsDev,
    /// The forty lines of `examples/smallest`.
    Smallest,
}

impl Purpose {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Checks | Self::Smallest => &[],
            Self::Fault(Fault::InterruptsOn) => &["--features", "fault-interrupts-on"],
            Self::Fault(Fault::SharedStorage) => &["--features", "fault-shared-storage"],
            Self::Fault(Fault::RangeTwice) => &["--features", "fault-range-twice"],
            Self::Bounds | Self::BoundsDev => &["--no-default-features", "--features", "bounds"],
            Self::Beside => &["--no-default-features", "--features", "beside"],
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Checks => "kernel-plain",
            Self::Fault(fault) => fault.feature(),
            Self::Bounds | Self::BoundsDev => "kernel-bounds",
            Self::Beside => "kernel-beside",
            Self::Smallest => "smallest-plain",
        }
    }

    fn profile(self) -> &'static str {
        if self == Self::BoundsDev { "dev" } else { "release" }
    }

    fn package(self) -> &'static str {
        if self == Self::Smallest { "smallest" } else { "kernel" }
    }
}

/// Builds the kernel; returns where it is.
///
/// # Errors
///
/// [`KernelError`].
pub fn build(processor: Processor, purpose: Purpose) -> Result<PathBuf, KernelError> {
    let target = processor.target();
    if !has_target(target)? {
        return Err(KernelError::NoTarget(target));
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", purpose.profile()]);
    cargo.args(["--package", purpose.package(), "--target", target]);
    cargo.args(purpose.arguments());
    let status = cargo.status().map_err(KernelError::io("cargo"))?;
    if !status.success() {
        return Err(KernelError::Build(target));
    }
    let folder = if purpose.profile() == "dev" { "debug" } else { "release" };
    let built = target_folder()?.join(target).join(folder).join(purpose.package());
    // The next build writes to the same place.
    let kept = built.with_file_name(purpose.file());
    std::fs::copy(&built, &kept).map_err(KernelError::io(built.display().to_string()))?;
    Ok(kept)
}

/// Whether the standard library for a target is there.
///
/// # Errors
///
/// [`KernelError::Io`] if rustc cannot be run.
pub fn has_target(target: &str) -> Result<bool, KernelError> {
    let rustc = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .stderr(Stdio::null())
        .output()
        .map_err(KernelError::io("rustc"))?;
    Ok(Path::new(String::from_utf8_lossy(&rustc.stdout).trim()).is_dir())
}

/// Where cargo builds.
///
/// # Errors
///
/// [`KernelError`] if cargo does not say it.
pub fn target_folder() -> Result<PathBuf, KernelError> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .output()
        .map_err(KernelError::io("cargo"))?;
    let read: Metadata = serde_json::from_slice(&metadata.stdout)
        .map_err(|_| KernelError::Failed("cargo metadata".into()))?;
    Ok(read.target_directory)
}
