//! What others build from packages of sources.

use std::fs;
use std::process::Command;

use super::super::{Dist, Result, VERSION, archive, crates, files, io_error, output, wheels};
use super::expect;
use crate::install::program::write;
use crate::step::with_path;

const MAIN: &str = "\
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = nearpage_linux::Memory::builder().bytes_per_node(64 << 20).build()?;
    let block = memory.alloc_pages(4)?;
    Ok(println!(\"{} bytes\", block.len()))
}
";

/// A project that has the crates as their archives have them.
pub(super) fn crates(dist: &Dist) -> Result {
    let Ok(order) = fs::read_to_string(dist.out.join(crates::ORDER)) else { return Ok(()) };
    let folder = dist.stage("project")?;
    let mut manifest = format!(
        "[package]\nname = \"user\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nnearpage-linux = \"{VERSION}\"\n[patch.crates-io]\n"
    );
    for name in order.lines() {
        let archive = dist.out.join(format!("{name}-{VERSION}.crate"));
        archive::unpack(&archive, &folder)?;
        manifest += &format!("{name} = {{ path = \"{name}-{VERSION}\" }}\n");
    }
    write(&folder.join("Cargo.toml"), manifest.as_bytes())?;
    write(&folder.join("src/main.rs"), MAIN.as_bytes())?;
    let mut command = dist.cargo();
    let target = dist.target.join("project");
    archive::forget(&target)?;
    command.args(["run", "--quiet"]).current_dir(&folder).env("CARGO_TARGET_DIR", target);
    let printed = output("a project on the crates", &mut command)?;
    expect(&printed, "16384 bytes", "a project on the crates")?;
    println!("{} crates: a project runs on them", order.lines().count());
    Ok(())
}

/// The sdist, built and used.
pub(super) fn sdist(dist: &Dist) -> Result {
    let Some(sdist) = dist.package("nearpage-", &format!("{VERSION}.tar.gz"))? else {
        return Ok(());
    };
    let Some(tools) = wheels::tools(dist)? else { return Ok(()) };
    let folder = dist.stage("sdist")?;
    let target = dist.target.join("sdist");
    archive::forget(&target)?;
    let mut build = Command::new(tools.join("bin/pip"));
    // By the profile of tests, which takes half as long to compile.
    build.args([
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--config-settings=build-args=--profile=dev",
    ]);
    build.arg("--wheel-dir").arg(&folder).arg(&sdist).env("CARGO_TARGET_DIR", target);
    output("pip wheel", build.env("PATH", with_path(&tools.join("bin"))))?;
    let venv = folder.join("venv");
    output("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let wheel = files(&folder)?;
    let mut pip = Command::new(venv.join("bin/pip"));
    output("pip install", pip.args(["install", "--quiet", "--no-index"]).args(&wheel))?;
    let mut python = Command::new(venv.join("bin/python"));
    let printed =
        output("python", python.args(["-c", "import nearpage; print(nearpage.__version__)"]))?;
    expect(&printed, VERSION, "Python")?;
    println!("the sdist: a wheel was built of it, and is used");
    fs::remove_dir_all(&folder).map_err(io_error(&folder))
}
