//! The static programs that a machine is given: built here, for its processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Architecture, RecordError};

/// Builds programs of the workspace, by the names of their packages, and returns where each is.
///
/// # Errors
///
/// The toolchain cannot build for that processor, or a program is not built.
pub fn build<const N: usize>(
    architecture: Architecture,
    packages: [(&str, &str); N],
) -> Result<[PathBuf; N], RecordError> {
    let target = architecture.target();
    check_target(target)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&root).args(["build", "--quiet", "--release", "--target", target]);
    // The linker that comes with the toolchain, for whatever processor. What names functions would double the machine's
    // files, which take its memory.
    command.arg("--config").arg(format!("target.{target}.linker = \"rust-lld\""));
    command.args(["--config", "profile.release.strip = \"symbols\""]);
    packages.iter().for_each(|(package, _)| _ = command.args(["--package", package]));
    let status = command.status().map_err(RecordError::file(Path::new("cargo")))?;
    if !status.success() {
        return Err(RecordError::NotBuilt { target, status });
    }
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(packages.map(|(_, program)| folder.join(target).join("release").join(program)))
}

/// Whether the toolchain has the target's libraries.
fn check_target(target: &str) -> Result<(), RecordError> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    let output = output.map_err(RecordError::file(Path::new("rustc")))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if Path::new(&folder).is_dir() {
        return Ok(());
    }
    Err(RecordError::Missing {
        what: format!("the library for {target}"),
        places: "the toolchain".into(),
        remedy: format!("`rustup target add {target}` adds it"),
    })
}
