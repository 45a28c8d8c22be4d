//! Packages, installed and used where nothing of this machine is: in roots of Debian's releases, and by projects of their own.

mod builds;
mod root;

use std::process::Command;

use super::{Dist, DistError, Result, container, has, output, program, roots};
use root::Root;

/// The release that packages are made for, and one that is older than what they are built on.
const RELEASES: [&str; 2] = ["bookworm", "bullseye"];

pub(super) fn run(dist: &Dist) -> Result {
    let mut sums = Command::new("sha256sum");
    sums.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&dist.out);
    output("sha256sum", &mut sums)?;
    builds::crates(dist)?;
    builds::sdist(dist)?;
    container::check(dist)?;
    let made = "packages in a clean root";
    if !has("unshare", made, "util-linux") {
        return Ok(());
    }
    for release in RELEASES {
        let Some(pristine) = roots::pristine(dist, release, made)? else { continue };
        let root = Root { folder: roots::copy(dist, &pristine)?, release };
        root.static_programs(dist)?;
        root.wheel(dist)?;
        if release == RELEASES[0] {
            for processor in program::PROCESSORS {
                root.foreign_wheel(dist, processor)?;
            }
            root.debian(dist)?;
            root.rpm(dist)?;
        }
    }
    Ok(())
}

/// What a command printed has what it must.
pub(super) fn expect(text: &str, part: &str, of: &str) -> Result {
    match text.contains(part) {
        true => Ok(()),
        false => Err(DistError::Wrong(format!("{of} printed {text:?}, expected {part:?} in it"))),
    }
}
