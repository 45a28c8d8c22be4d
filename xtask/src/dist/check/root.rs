//! A root of a release of Debian with nothing but its base, and what packages do in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::super::{
    Dist, DistError, PROCESSOR, Result, VERSION, archive, deb, has, io_error, output, program,
    roots,
};
use super::{RELEASES, expect};
use crate::install::program::{UNITS, put, write};
use crate::step::found;

/// The most that pip may take of a processor: on an idle machine it takes little longer, and this one may be busy.
const PIP_SECONDS: f64 = 5.0;
/// What a wheel is used for.
const REPLAY: &str =
    "import nearpage; print('fidelity', nearpage.Bundle.shipped().replay().fidelity)";
/// Two nodes.
const TOPO: [&str; 5] = ["topo", "--numa", "1G,cpus=0-1", "--numa", "1G,cpus=2-3"];
/// CPython of the release that packages are made for, in packages that can be unpacked anywhere.
const PYTHON: [&str; 7] = [
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libc6",
    "libgcc-s1",
    "libexpat1",
    "zlib1g",
];
const SOURCE: &str = "\
#include <nearpage.h>
#include <stdio.h>
int main(void) {
  nearpage_memory *memory;
  if (nearpage_memory_create(NULL, &memory) != 0) {
    fprintf(stderr, \"%s\\n\", nearpage_last_error());
    return 1;
  }
  printf(\"nearpage %s\\n\", nearpage_version());
  return nearpage_memory_destroy(memory);
}
";
const CMAKE: &str = "\
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(nearpage 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE nearpage::nearpage)
";
const MESON: &str = "\
project('user', 'c')
executable('user', 'main.c', dependencies: dependency('nearpage'))
";

pub(super) struct Root {
    pub(super) folder: PathBuf,
    pub(super) release: &'static str,
}

impl Root {
    /// What a command prints here, with processes, an environment and a view of the machine of its own.
    fn run(&self, command: &[&str]) -> Result<String> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--mount-proc", "--root"]).arg(&self.folder);
        unshare.args(["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        unshare.args(["DEBIAN_FRONTEND=noninteractive", "sh", "-c"]);
        unshare.args(["mount -t sysfs -o ro sysfs /sys && exec \"$@\"", "sh"]).args(command);
        Ok(output(&format!("{} in {}", command.join(" "), self.release), &mut unshare)?)
    }

    fn install(&self, packages: &[&str]) -> Result {
        let apt = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends"];
        self.run(&[&apt, packages].concat()).map(drop)
    }

    /// A program here does what it must.
    fn use_program(&self, program: &[&str], what: &str) -> Result {
        let run = |arguments: &[&str]| self.run(&[program, arguments].concat());
        expect(&run(&["--version"])?, VERSION, what)?;
        expect(&run(&TOPO)?, "fallback order", what)?;
        let replayed = run(&["replay"])?;
        let fidelity = replayed.lines().find(|line| line.starts_with("fidelity: "));
        let fidelity =
            fidelity.ok_or_else(|| DistError::Wrong(format!("{what} replayed {replayed:?}")))?;
        println!("{what} in {}: topo, replay ({fidelity})", self.release);
        Ok(())
    }

    /// The static program of this machine's processor, and those of others in emulation.
    pub(super) fn static_programs(&self, dist: &Dist) -> Result {
        for processor in program::PROCESSORS {
            let name = program::name(processor);
            let Some(packed) = dist.package(&name, ".tar.gz")? else { continue };
            archive::unpack(&packed, &self.folder.join("opt"))?;
            let program = format!("/opt/{name}/bin/nearpage");
            let what = format!("the static program for {processor}");
            if processor == PROCESSOR {
                self.use_program(&[&program], &what)?;
                continue;
            }
            if self.emulates(processor, &what)? {
                self.use_program(&["/emulator", &program], &what)?;
            }
        }
        Ok(())
    }

    /// Puts an emulator of a processor here, if there is one.
    fn emulates(&self, processor: &str, what: &str) -> Result<bool> {
        let emulator = format!("qemu-{processor}-static");
        let is_there = has(&emulator, what, "qemu-user-static");
        if let Some(file) = found(&emulator) {
            put(&file, &self.folder.join("emulator"))?;
        }
        Ok(is_there)
    }

    /// The wheel, by a pip that has neither Rust nor an index.
    pub(super) fn wheel(&self, dist: &Dist) -> Result {
        let end = format!("manylinux_2_28_{PROCESSOR}.whl");
        let Some(wheel) = dist.package("nearpage-", &end)? else { return Ok(()) };
        self.install(&["python3", "python3-venv"])?;
        let version = "import sys; print(sys.version_info >= (3, 10))";
        let is_new = self.run(&["python3", "-c", version])?.trim() == "True";
        let python = if is_new { "python3" } else { self.newer_python(dist)? };
        self.run(&[python, "-m", "venv", "/venv"])?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        put(&wheel, &self.folder.join(&name))?;
        let timed = ["sh", "-c", "\"$@\" && times", "sh"];
        let pip = ["/venv/bin/pip", "install", "--no-index", "--quiet", &format!("/{name}")];
        let begun = Instant::now();
        let times = self.run(&[&timed[..], &pip].concat())?;
        let elapsed = begun.elapsed().as_secs_f64();
        let seconds = of_children(&times)
            .ok_or_else(|| DistError::Wrong(format!("the times of pip are {times:?}")))?;
        let printed = self.run(&["/venv/bin/python", "-c", REPLAY])?;
        expect(&printed, "fidelity ", "Python")?;
        // Alone it has no pyarrow, and says so.
        let fleet = self.run(&["sh", "-c", "/venv/bin/nearpage-fleet --version 2>&1 || true"])?;
        expect(&fleet, "pip install 'nearpage[fleet]'", "nearpage-fleet")?;
        println!(
            "the wheel in {}: pip took {seconds:.1} s of a processor, {elapsed:.1} s in all; {}",
            self.release,
            printed.trim()
        );
        if seconds > PIP_SECONDS {
            let problem =
                format!("pip took {seconds:.1} s of a processor, expected {PIP_SECONDS} at most");
            return Err(DistError::Wrong(problem));
        }
        Ok(())
    }

    /// The wheel of another processor, in emulation, by what Debian's CPython for it is made of.
    pub(super) fn foreign_wheel(&self, dist: &Dist, processor: &str) -> Result {
        let promise = format!("manylinux_2_28_{processor}");
        let Some(wheel) = dist.package("nearpage-", &format!("{promise}.whl"))? else {
            return Ok(());
        };
        let what = format!("the wheel for {processor}");
        if processor == PROCESSOR || !self.emulates(processor, &what)? {
            return Ok(());
        }
        let debian = deb::processor(processor);
        self.run(&["dpkg", "--add-architecture", debian])?;
        self.run(&["apt-get", "update", "--quiet"])?;
        let packages = PYTHON.map(|package| format!("{package}:{debian}")).join(" ");
        let lines = format!(
            "mkdir /other && cd /other && apt-get download --quiet {packages} && \
            for package in *.deb; do dpkg-deb --extract $package .; done"
        );
        self.run(&["sh", "-c", &lines])?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        put(&wheel, &self.folder.join(&name))?;
        let pip = ["/venv/bin/pip", "install", "--quiet", "--no-index", "--only-binary=:all:"];
        let place = ["--platform", &promise, "--target", "/other/site", &format!("/{name}")];
        self.run(&[&pip[..], &place].concat())?;
        let python = ["/emulator", "-L", "/other", "-E", "PYTHONPATH=/other/site"];
        let program = ["/other/usr/bin/python3.11", "-c", REPLAY];
        let printed = self.run(&[&python[..], &program].concat())?;
        expect(&printed, "fidelity ", &what)?;
        println!("{what} in {}: {}", self.release, printed.trim());
        Ok(())
    }

    /// CPython of the newer release, compiled here once: the own one is older than 3.10.
    fn newer_python(&self, dist: &Dist) -> Result<&'static str> {
        let python = "/usr/local/bin/python3.11";
        let (kept, local) = (dist.target.join("roots/python"), self.folder.join("usr/local"));
        if kept.is_dir() {
            roots::copy_to(&kept, &local)?;
            return Ok(python);
        }
        let sources = self.folder.join("etc/apt/sources.list");
        let text = fs::read_to_string(&sources).map_err(io_error(&sources))?;
        let text = text.replace("deb ", "deb-src ").replace(self.release, RELEASES[0]);
        write(&self.folder.join("etc/apt/sources.list.d/newer.list"), text.as_bytes())?;
        self.run(&["apt-get", "update", "--quiet"])?;
        self.install(&["gcc", "libc6-dev", "make", "zlib1g-dev"])?;
        let lines = "cd /opt && apt-get source --quiet --download-only python3.11 && \
            tar -xf python3.11_*.orig.tar.gz && cd Python-3.11* && \
            ./configure --quiet --disable-test-modules CFLAGS='-O1 -g0' && make --silent -j2 && make --silent install";
        self.run(&["sh", "-c", lines])?;
        roots::copy_to(&local, &kept)?;
        Ok(python)
    }

    /// The package for Debian: its program, its malloc, its library as projects find it, its units.
    pub(super) fn debian(&self, dist: &Dist) -> Result {
        let Some(package) = dist.package("nearpage_", ".deb")? else { return Ok(()) };
        put(&package, &self.folder.join("nearpage.deb"))?;
        self.install(&["/nearpage.deb"])?;
        self.use_program(&["nearpage"], "the package for Debian")?;
        self.install(&["gcc", "libc6-dev", "pkg-config", "cmake", "make", "meson", "systemd"])?;
        let project = self.folder.join("project");
        for (file, text) in [("main.c", SOURCE), ("CMakeLists.txt", CMAKE), ("meson.build", MESON)]
        {
            write(&project.join(file), text.as_bytes())?;
        }
        let lines = [
            (
                "pkg-config",
                "cd /project && cc main.c $(pkg-config --cflags --libs nearpage) && ./a.out",
            ),
            ("CMake", "cd /project && cmake -B cmake . && cmake --build cmake && cmake/user"),
            ("meson", "cd /project && meson setup meson && meson compile -C meson && meson/user"),
        ];
        for (what, line) in lines {
            let printed = self.run(&["sh", "-c", line])?;
            expect(&printed, &format!("nearpage {VERSION}\n"), what)?;
        }
        self.run(&[&["systemd-analyze", "verify", "--man=no"][..], &UNITS].concat())?;
        let under = self.run(&["nearpage", "run", "--", "ls", "/usr"])?;
        expect(&under, "bin\n", "ls under the malloc")?;
        self.run(&["dpkg", "--remove", "nearpage"])?;
        println!(
            "the package for Debian in {}: malloc, pkg-config, CMake, meson, units; removed",
            self.release
        );
        Ok(())
    }

    /// The package for Fedora, by Debian's rpm, whose data base has no package.
    pub(super) fn rpm(&self, dist: &Dist) -> Result {
        let Some(package) = dist.package("nearpage-", ".rpm")? else { return Ok(()) };
        put(&package, &self.folder.join("nearpage.rpm"))?;
        self.install(&["rpm"])?;
        self.run(&["rpm", "--install", "--nodeps", "/nearpage.rpm"])?;
        self.use_program(&["nearpage"], "the RPM")?;
        self.run(&["rpm", "--verify", "--nodeps", "nearpage"])?;
        self.run(&["rpm", "--erase", "nearpage"]).map(drop)
    }
}

/// Seconds of processors that a shell's children took, by what its `times` prints: "0m1.50s 0m0.25s", below its own.
fn of_children(times: &str) -> Option<f64> {
    let seconds = |time: &str| -> Option<f64> {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    times.lines().last()?.split_whitespace().map(seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_tells_what_its_children_took() {
        assert_eq!(of_children("0m0.00s 0m0.00s\n1m1.50s 0m0.25s\n"), Some(61.75));
        assert_eq!(of_children("pip failed\n"), None);
    }
}
