//! For pip: a wheel for each processor and libc, of the stable interface of CPython 3.10 and later, and an sdist.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Dist, Result, has, io_error, output};
use crate::step::{StepError, has_target, with_path};

/// Targets of rustc, and what a wheel promises to run on.
const WHEELS: [(&str, &str); 4] = [
    ("x86_64-unknown-linux-gnu", "manylinux_2_28"),
    ("aarch64-unknown-linux-gnu", "manylinux_2_28"),
    ("x86_64-unknown-linux-musl", "musllinux_1_2"),
    ("aarch64-unknown-linux-musl", "musllinux_1_2"),
];
/// What builds them. zig links for older systems than this one, and for other processors. Other versions make other bytes.
const TOOLS: [&str; 2] = ["maturin==1.16.0", "ziglang==0.17.1"];

pub(super) fn make(dist: &Dist) -> Result {
    let Some(tools) = tools(dist)? else { return Ok(()) };
    let maturin = |arguments: &[&str]| -> Result<String, StepError> {
        let mut command = Command::new(tools.join("bin/maturin"));
        command.args(arguments).arg("--out").arg(&dist.out).current_dir(dist.root.join("python"));
        for (name, value) in dist.cargo().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.env("PATH", with_path(&tools.join("bin")));
        output(&format!("maturin {}", arguments.join(" ")), command.env("VIRTUAL_ENV", &tools))
    };
    maturin(&["sdist"])?;
    for (target, promise) in WHEELS {
        if !has_target(target) {
            println!("SKIPPED: the wheel for {target}: rustup target add {target}");
            continue;
        }
        let built = ["build", "--release", "--strip", "--locked", "--zig"];
        let wanted = ["--target", target, "--compatibility", promise];
        maturin(&[&built[..], &wanted].concat())?;
    }
    // What maturin leaves in the folder of the sources.
    let left = dist.root.join("python/target");
    if left.is_dir() {
        fs::remove_dir_all(&left).map_err(io_error(&left))?;
    }
    Ok(())
}

/// An environment with the tools, unless they cannot be had.
pub(super) fn tools(dist: &Dist) -> Result<Option<PathBuf>> {
    if !has("python3", "wheels", "python3 python3-venv") {
        return Ok(None);
    }
    let tools = dist.target.join("wheel-tools");
    if !tools.join("bin/maturin").is_file() {
        output("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&tools))?;
    }
    let mut pip = Command::new(tools.join("bin/pip"));
    match output("pip", pip.args(["install", "--quiet"]).args(TOOLS)) {
        Ok(_) => Ok(Some(tools)),
        Err(error) => {
            println!("SKIPPED: wheels: {} cannot be had: {error}", TOOLS.join(" and "));
            Ok(None)
        }
    }
}
