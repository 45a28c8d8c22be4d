//! A package for Fedora and its like: the spec, built from the archive of the sources.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{
    Dist, DistError, PROCESSOR, Result, VERSION, archive, files, has, io_error, output, take,
};

/// The folder of rpmbuild, below that of stages.
const TOP: &str = "rpm";

/// The sources of the package for Debian, which lie where rpmbuild unpacks those of the spec, and the folder that both are built
/// in: cargo, called with the same flags, finds compiled what the other has compiled.
pub(super) fn sources(dist: &Dist) -> Result<(PathBuf, PathBuf)> {
    let folder = archive::unpacked(dist, &dist.stage(TOP)?.join("BUILD"))?;
    Ok((folder, native(dist)?))
}

/// Where the commit is compiled for this machine's own libc.
fn native(dist: &Dist) -> Result<PathBuf> {
    let target = dist.target.join("native");
    let stamp = target.join("commit");
    if fs::read_to_string(&stamp).is_ok_and(|commit| commit == dist.commit) {
        return Ok(target);
    }
    archive::forget(&target)?;
    fs::create_dir_all(&target).map_err(io_error(&target))?;
    fs::write(&stamp, &dist.commit).map_err(io_error(&stamp))?;
    Ok(target)
}

pub(super) fn make(dist: &Dist) -> Result {
    if !has("rpmbuild", "the RPM", "rpm") {
        return Ok(());
    }
    archive::source(dist)?;
    let top = dist.stage(TOP)?;
    let sources = top.join("SOURCES");
    fs::create_dir_all(&sources).map_err(io_error(&sources))?;
    take(&dist.out.join(format!("nearpage-{VERSION}-source.tar.gz")), &sources)?;
    let mut command = Command::new("rpmbuild");
    // The compiler comes from rustup, which no package of this machine knows of.
    command.args(["-bb", "--nodeps"]);
    for macros in [
        &format!("_topdir {}", top.display()),
        "use_source_date_epoch_as_buildtime 1",
        "clamp_mtime_to_source_date_epoch 1",
        "_buildhost localhost",
    ] {
        command.args(["--define", macros]);
    }
    command
        .env("CARGO_TARGET_DIR", native(dist)?)
        .env("SOURCE_DATE_EPOCH", dist.epoch.to_string())
        .env("BUILT_FROM_COMMIT", &dist.commit);
    output("rpmbuild", command.arg(dist.root.join("packaging/nearpage.spec")))?;
    let built = files(&top.join("RPMS").join(PROCESSOR))?;
    match &built[..] {
        [package] => take(package, &dist.out),
        _ => Err(DistError::Wrong(format!("rpmbuild made {} packages, expected one", built.len()))),
    }
}
