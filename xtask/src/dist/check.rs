//! Packages, installed and used where nothing of this machine is: roots of Debian's releases, a virtual environment without Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::program::put;
use super::{Dist, DistError, Result, VERSION, files, has, said, step};

/// The release that packages are made for, and one that is older than all that they are built with.
const RELEASES: [&str; 2] = ["bookworm", "bullseye"];
/// The longest that pip may take.
const PIP_SECONDS: f64 = 5.0;

pub(super) fn run(dist: &Dist) -> Result {
    checksums(dist)?;
    wheel(dist)?;
    cmake_and_meson(dist)?;
    let made = "packages in a clean root";
    if !has("debootstrap", made, "apt install debootstrap") || !has("chroot", made, "coreutils") {
        return Ok(());
    }
    for release in RELEASES {
        let root = dist.stage(&format!("root-{release}"))?;
        let mut command = Command::new("debootstrap");
        command.args(["--variant=minbase", release]).arg(&root);
        if let Err(error) = step("debootstrap", &mut command) {
            println!("SKIPPED: {made}, {release}: {error}");
            continue;
        }
        static_program(dist, &root, release)?;
        if release == RELEASES[0] {
            debian(dist, &root)?;
        }
    }
    Ok(())
}

fn package(dist: &Dist, begin: &str, end: &str) -> Result<Option<PathBuf>> {
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(begin) && name.ends_with(end)
    };
    Ok(files(&dist.out)?.into_iter().find(is_it))
}

fn checksums(dist: &Dist) -> Result {
    step(
        "sha256sum",
        Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&dist.out),
    )
}

/// What a command prints in a root.
fn within(root: &Path, command: &[&str]) -> Result<String> {
    let mut chroot = Command::new("chroot");
    chroot
        .arg(root)
        .arg("/usr/bin/env")
        .args(["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
        .args(command);
    said(&command.join(" "), &mut chroot)
}

fn expect(text: &str, part: &str, of: &str) -> Result {
    match text.contains(part) {
        true => Ok(()),
        false => Err(DistError::Wrong(format!("{of} printed {text:?}, expected {part:?} in it"))),
    }
}

const SHORT_FORM: &str = "--numa 1G,cpus=0-1 --numa 1G,cpus=2-3";

fn static_program(dist: &Dist, root: &Path, release: &str) -> Result {
    let Some(archive) =
        package(dist, &format!("nearpage-{VERSION}-{}", std::env::consts::ARCH), ".tar.gz")?
    else {
        return Ok(());
    };
    step("tar", Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(root.join("opt")))?;
    let program = format!("/opt/nearpage-{VERSION}-{}-linux/bin/nearpage", std::env::consts::ARCH);
    expect(&within(root, &[&program, "topo", SHORT_FORM])?, "node 1", "topo")?;
    expect(&within(root, &[&program, "replay"])?, "fidelity: ", "replay")?;
    println!("static program in {release}: topo and replay print what they must");
    Ok(())
}

fn debian(dist: &Dist, root: &Path) -> Result {
    let Some(package) = package(dist, "nearpage_", ".deb")? else { return Ok(()) };
    put(&package, &root.join("nearpage.deb"))?;
    within(root, &["apt-get", "install", "-y", "--no-install-recommends", "/nearpage.deb"])?;
    expect(&within(root, &["nearpage", "topo", SHORT_FORM])?, "node 1", "topo")?;
    let malloc =
        format!("LD_PRELOAD=/usr/lib/{}-linux-gnu/libnearpage-malloc.so", std::env::consts::ARCH);
    expect(
        &within(root, &["env", &malloc, "NEARPAGE_STATS=1", "ls", "/usr"])?,
        "bin",
        "ls under the malloc",
    )?;
    within(root, &["ldconfig", "-p"])
        .and_then(|text| expect(&text, "libnearpage.so.0.1", "ldconfig -p"))?;
    within(root, &["dpkg", "-r", "nearpage"])?;
    println!("package for Debian: installed, used, removed");
    Ok(())
}

/// The wheel of this machine, by a pip that knows no Rust and no index.
fn wheel(dist: &Dist) -> Result {
    let arch = std::env::consts::ARCH;
    let Some(wheel) = package(dist, "nearpage-", &format!("manylinux_2_28_{arch}.whl"))? else {
        return Ok(());
    };
    let folder = dist.stage("wheel")?;
    step("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let clean = |program: &str| {
        let mut command = Command::new(folder.join("bin").join(program));
        command.env_clear().env("PATH", folder.join("bin"));
        command
    };
    let begun = Instant::now();
    step("pip install", clean("pip").args(["install", "--no-index", "--quiet"]).arg(&wheel))?;
    let seconds = begun.elapsed().as_secs_f64();
    let program =
        "import nearpage; print(float(nearpage.replay(nearpage.Bundle.shipped()).fidelity) > 90)";
    expect(&said("python", clean("python3").args(["-c", program]))?, "True", "Python")?;
    println!("wheel: installed in {seconds:.1} s without Rust, and used");
    match seconds <= PIP_SECONDS {
        true => Ok(()),
        false => Err(DistError::Wrong(format!(
            "pip took {seconds:.1} s, expected at most {PIP_SECONDS}"
        ))),
    }
}

const PROGRAM: &str = "\
#include <nearpage.h>
int main(void) { struct nearpage_memory *memory = 0; return nearpage_version() == 0 && memory == 0; }
";

/// A program that finds the library as projects do.
fn cmake_and_meson(dist: &Dist) -> Result {
    let staged = dist.target.join("stage/deb/usr");
    if !staged.is_dir() {
        return Ok(());
    }
    let folder = dist.stage("projects")?;
    let write = |name: &str, text: &str| super::program::write(&folder.join(name), text.as_bytes());
    write("main.c", PROGRAM)?;
    if has("cmake", "find_package(nearpage)", "apt install cmake") {
        write(
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(nearpage 0.1 REQUIRED)\n\
             add_executable(user main.c)\ntarget_link_libraries(user PRIVATE nearpage::nearpage)\n",
        )?;
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", staged.display());
        step(
            "cmake",
            Command::new("cmake").args(["-S", ".", "-B", "cmake", &prefix]).current_dir(&folder),
        )?;
        step(
            "cmake --build",
            Command::new("cmake").args(["--build", "cmake"]).current_dir(&folder),
        )?;
        step("a program of CMake", &mut Command::new(folder.join("cmake/user")))?;
        println!("CMake: find_package(nearpage) builds a program that runs");
    }
    if has("meson", "dependency('nearpage')", "apt install meson") {
        write(
            "meson.build",
            "project('user', 'c')\nexecutable('user', 'main.c', dependencies: dependency('nearpage'))\n",
        )?;
        let library = staged.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
        let mut command = Command::new("meson");
        command.args(["setup", "meson"]).current_dir(&folder);
        command.env("PKG_CONFIG_PATH", library.join("pkgconfig"));
        // The package's files stand below a folder of their own.
        command.env("PKG_CONFIG_SYSROOT_DIR", staged.parent().unwrap_or(Path::new("/")));
        step("meson setup", &mut command)?;
        step(
            "meson compile",
            Command::new("meson").args(["compile", "-C", "meson"]).current_dir(&folder),
        )?;
        let mut command = Command::new(folder.join("meson/user"));
        step("a program of meson", command.env("LD_LIBRARY_PATH", &library))?;
        println!("meson: dependency('nearpage') builds a program that runs");
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}
