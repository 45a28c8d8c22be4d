//! For pip: a wheel for each processor and libc, of the stable interface of CPython 3.10 and later, and an sdist.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Dist, Result, has, io_error, said, step};

/// Targets of rustc, and what a wheel promises to run on.
const WHEELS: [(&str, &str); 4] = [
    ("x86_64-unknown-linux-gnu", "manylinux_2_28"),
    ("aarch64-unknown-linux-gnu", "manylinux_2_28"),
    ("x86_64-unknown-linux-musl", "musllinux_1_2"),
    ("aarch64-unknown-linux-musl", "musllinux_1_2"),
];

pub(super) fn make(dist: &Dist) -> Result {
    if !has("python3", "wheels", "CPython 3.10 or later") {
        return Ok(());
    }
    let tools = dist.target.join("wheel-tools");
    if !tools.join("bin/maturin").is_file() {
        step("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&tools))?;
        // zig links for older systems than this one.
        let mut command = Command::new(tools.join("bin/pip"));
        if let Err(error) =
            step("pip", command.args(["install", "--quiet", "maturin>=1.9,<2", "ziglang"]))
        {
            println!("SKIPPED: wheels: maturin and ziglang cannot be had ({error})");
            return Ok(());
        }
    }
    let maturin = |arguments: &[&str]| {
        let cargo = dist.cargo();
        let mut command = Command::new(tools.join("bin/maturin"));
        command.args(arguments).arg("--out").arg(&dist.out).current_dir(dist.root.join("python"));
        for (name, value) in cargo.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [tools.join("bin")].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(path).unwrap_or_default());
        command.env("VIRTUAL_ENV", &tools);
        command
    };
    step("maturin sdist", &mut maturin(&["sdist"]))?;
    for (target, promise) in WHEELS {
        let libraries = said(
            "rustc",
            Command::new("rustc").args(["--print", "target-libdir", "--target", target]),
        )?;
        if !Path::new(libraries.trim()).is_dir() {
            println!("SKIPPED: the wheel for {target}: rustup target add {target}");
            continue;
        }
        let wanted = [
            "build",
            "--release",
            "--strip",
            "--locked",
            "--zig",
            "--target",
            target,
            "--compatibility",
            promise,
        ];
        step(&format!("the wheel for {target}"), &mut maturin(&wanted))?;
    }
    // What maturin leaves in the folder of the sources.
    let left = dist.root.join("python/target");
    if left.is_dir() {
        fs::remove_dir_all(&left).map_err(io_error(&left))?;
    }
    Ok(())
}
