//! A package for Fedora and its like: the spec, built from the archive of the sources.

use std::fs;
use std::process::Command;

use super::program::put;
use super::{Dist, DistError, Result, VERSION, archive, files, has, io_error, step};

pub(super) fn make(dist: &Dist) -> Result {
    if !has("rpmbuild", "the RPM", "apt install rpm") {
        return Ok(());
    }
    archive::source(dist)?;
    let top = dist.stage("rpm")?;
    let sources = format!("nearpage-{VERSION}.tar.gz");
    put(&dist.out.join(&sources), &top.join("SOURCES").join(&sources))?;
    let mut command = Command::new("rpmbuild");
    // The compiler comes from rustup, which no package of this machine knows of.
    command.args(["-bb", "--nodeps", "--define"]).arg(format!("_topdir {}", top.display()));
    command
        .env("CARGO_TARGET_DIR", dist.target.join("rpm"))
        .env("SOURCE_DATE_EPOCH", dist.epoch.to_string());
    step("rpmbuild", command.arg(dist.root.join("packaging/nearpage.spec")))?;
    let built = top.join("RPMS").join(std::env::consts::ARCH);
    for path in files(&built)? {
        let to = dist.out.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &to).map_err(io_error(&path))?;
    }
    match files(&built)?.is_empty() {
        true => Err(DistError::Wrong("rpmbuild made no package".into())),
        false => Ok(()),
    }
}
