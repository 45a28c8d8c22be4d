//! The static program, with manual pages and completions.

use std::path::PathBuf;

use super::{Dist, PROCESSOR, Result, VERSION, archive, at_most, step};
use crate::install::program::{put, texts};
use crate::step::has_target;

/// Processors, by the names of rustc and of packages.
pub(super) const PROCESSORS: [&str; 2] = ["x86_64", "aarch64"];
/// The most that an archive may have.
const BYTES_MOST: u64 = 15_000_000;

pub(super) fn make(dist: &Dist) -> Result {
    let own = dist.target.join(format!("{PROCESSOR}-unknown-linux-musl/dist/nearpage"));
    for processor in PROCESSORS {
        let Some(program) = build(dist, processor)? else { continue };
        let name = name(processor);
        let folder = dist.stage(&format!("program-{processor}"))?.join(&name);
        put(&program, &folder.join("bin/nearpage"))?;
        // The texts are those of this machine's program, which comes first.
        texts(&own, &folder.join("share"))?;
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
            put(&dist.root.join(file), &folder.join(file))?;
        }
        let to = dist.out.join(format!("{name}.tar.gz"));
        archive::pack(dist, &folder, &to)?;
        at_most(BYTES_MOST, &to)?;
    }
    Ok(())
}

/// The name of the archive, and of the folder in it.
pub(super) fn name(processor: &str) -> String {
    format!("nearpage-{VERSION}-{processor}-linux")
}

/// The program for a processor, linked with musl by rust-lld, which needs no compiler of that processor.
fn build(dist: &Dist, processor: &str) -> Result<Option<PathBuf>> {
    let target = format!("{processor}-unknown-linux-musl");
    if !has_target(&target) {
        println!("SKIPPED: the static program for {processor}: rustup target add {target}");
        return Ok(None);
    }
    let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
    let mut command = dist.cargo();
    command.args(["build", "--quiet", "--locked", "--profile", "dist"]);
    command.args(["--package", "nearpage-cli", "--target", &target]).env(linker, "rust-lld");
    step("the build of a static program", &mut command)?;
    let program = dist.target.join(target).join("dist/nearpage");
    crate::install::check(&program, &crate::install::builders(&dist.root))?;
    Ok(Some(program))
}
