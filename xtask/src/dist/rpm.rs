//! A package for Fedora and its like: the spec, built from the archive of the sources.

use std::process::Command;

use super::{
    Dist, DistError, PROCESSOR, Result, VERSION, archive, files, has, io_error, output, take,
};

pub(super) fn make(dist: &Dist) -> Result {
    if !has("rpmbuild", "the RPM", "rpm") {
        return Ok(());
    }
    archive::source(dist)?;
    let top = dist.stage("rpm")?;
    let sources = top.join("SOURCES");
    std::fs::create_dir_all(&sources).map_err(io_error(&sources))?;
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
        .env("CARGO_TARGET_DIR", dist.target.join("rpm"))
        .env("SOURCE_DATE_EPOCH", dist.epoch.to_string())
        .env("BUILT_FROM_COMMIT", &dist.commit);
    output("rpmbuild", command.arg(dist.root.join("packaging/nearpage.spec")))?;
    let built = files(&top.join("RPMS").join(PROCESSOR))?;
    match &built[..] {
        [package] => take(package, &dist.out),
        _ => Err(DistError::Wrong(format!("rpmbuild made {} packages, expected one", built.len()))),
    }
}
