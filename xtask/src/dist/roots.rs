//! Roots of Debian's releases with nothing but their base, made once by debootstrap and copied for each use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Dist, Result, has, io_error, output};

/// The certificates that the machine trusts: a proxy on the way to a package index may have one of its own.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// A root as debootstrap leaves it, unless it cannot be had.
pub(super) fn pristine(dist: &Dist, release: &str, made: &str) -> Result<Option<PathBuf>> {
    if !has("debootstrap", made, "debootstrap") {
        return Ok(None);
    }
    let folder = dist.target.join("roots").join(release);
    if folder.is_dir() {
        return Ok(Some(folder));
    }
    let part = dist.stage(&format!("root-{release}"))?;
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", "--include=ca-certificates", release]).arg(&part);
    if let Err(error) = output("debootstrap", &mut command) {
        println!("SKIPPED: {made}, {release}: {error}");
        return Ok(None);
    }
    let own = Path::new("/").join(CERTIFICATES);
    if own.is_file() {
        fs::copy(&own, part.join(CERTIFICATES)).map_err(io_error(&own))?;
    }
    fs::create_dir_all(dist.target.join("roots")).map_err(io_error("roots"))?;
    fs::rename(&part, &folder).map_err(io_error(&folder))?;
    Ok(Some(folder))
}

/// A copy that may be written to.
pub(super) fn copy(dist: &Dist, pristine: &Path) -> Result<PathBuf> {
    let folder = dist.stage("root")?;
    copy_to(pristine, &folder)?;
    Ok(folder)
}

/// Copies a folder with all that it holds.
pub(super) fn copy_to(from: &Path, to: &Path) -> Result {
    output("cp", Command::new("cp").arg("-aT").arg(from).arg(to)).map(drop).map_err(Into::into)
}
