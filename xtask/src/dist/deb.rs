//! A package for Debian and Ubuntu: the program, the libraries, the malloc, units of systemd.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::archive::{all, gzip};
use super::program::{put, texts, write};
use super::{Dist, DistError, Result, VERSION, has, io_error, said, step};

const DESCRIPTION: &str = "\
Description: NUMA page allocator of a kernel, to embed, run and study
 nearpage explains refused memory, shows what the page allocator of a kernel
 does, records and replays it, and answers what a machine, a setting or a patch
 would change. The package has the program, the library for C and C++, and a
 malloc for programs that nobody will rewrite.
";

pub(super) fn make(dist: &Dist) -> Result {
    let made = "the package for Debian";
    if !has("dpkg-deb", made, "apt install dpkg-dev")
        || !has("dpkg-shlibdeps", made, "apt install dpkg-dev")
    {
        return Ok(());
    }
    let mut command = dist.cargo();
    command.args(["build", "--locked", "--profile", "dist", "--package", "nearpage-cli"]);
    step("the program", &mut command)?;
    let (debian, processor) = match std::env::consts::ARCH {
        "x86_64" => ("amd64", "x86_64-linux-gnu"),
        "aarch64" => ("arm64", "aarch64-linux-gnu"),
        other => return Err(DistError::Wrong(format!("{made} is not made on {other}"))),
    };
    let folder = dist.stage("deb")?;
    let library = format!("/usr/lib/{processor}");
    let mut command = dist.cargo();
    command.args(["xtask", "install", "--prefix", "/usr", "--libdir", &library, "--destdir"]);
    step("cargo xtask install", command.arg(&folder))?;
    let program = folder.join("usr/bin/nearpage");
    put(&dist.target.join("dist/nearpage"), &program)?;
    let malloc = folder.join(&library[1..]).join("libnearpage-malloc.so");
    for stripped in [&program, &malloc] {
        step("strip", Command::new("strip").arg("--strip-unneeded").arg(stripped))?;
    }
    let share = folder.join("usr/share");
    texts(dist, &share)?;
    for page in all(&share.join("man")).map_err(io_error("manual pages"))? {
        let text = fs::read(&page).map_err(io_error(&page))?;
        gzip(&text, &page.with_extension("1.gz"))?;
        fs::remove_file(&page).map_err(io_error(&page))?;
    }
    for unit in ["nearpage-export.service", "nearpage-record.service"] {
        put(
            &dist.root.join("packaging").join(unit),
            &folder.join("lib/systemd/system").join(unit),
        )?;
    }
    documents(dist, &share.join("doc/nearpage"))?;
    put(&dist.root.join("packaging/lintian-overrides"), &share.join("lintian/overrides/nearpage"))?;
    control(dist, &folder, debian, &[&program, &malloc])?;
    let to = dist.out.join(format!("nearpage_{VERSION}_{debian}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.env("SOURCE_DATE_EPOCH", dist.epoch.to_string());
    step(
        "dpkg-deb",
        command.args(["--root-owner-group", "-Zxz", "--build"]).arg(&folder).arg(&to),
    )?;
    if has("lintian", "lintian of the package", "apt install lintian") {
        let mut command = Command::new("lintian");
        step("lintian", command.args(["--fail-on", "error,warning", "--allow-root"]).arg(&to))?;
    }
    Ok(())
}

fn documents(dist: &Dist, folder: &Path) -> Result {
    let read = |name: &str| fs::read_to_string(dist.root.join(name)).map_err(io_error(name));
    let mit = read("LICENSE-MIT")?;
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: nearpage\n\n\
         Files: *\nCopyright: the authors of nearpage\nLicense: MIT or Apache-2.0\n\nLicense: MIT\n{}\n\
         License: Apache-2.0\n On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text.\n",
        indented(&mit)
    );
    write(&folder.join("copyright"), copyright.as_bytes())?;
    let mut command = Command::new("date");
    let date = said("date", command.args(["-u", "-R", "-d", &format!("@{}", dist.epoch)]))?;
    let entry = format!(
        "nearpage ({VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources tells what is new.\n\n \
         -- The authors of nearpage <nearpage@localhost>  {date}"
    );
    gzip(entry.as_bytes(), &folder.join("changelog.gz"))
}

/// Paragraphs of a field.
fn indented(text: &str) -> String {
    let line =
        |line: &str| if line.trim().is_empty() { " .\n".into() } else { format!(" {line}\n") };
    text.trim().lines().map(line).collect()
}

fn control(dist: &Dist, folder: &Path, processor: &str, programs: &[&Path]) -> Result {
    // The tool reads the control file of a source.
    let source = dist.stage("deb-source")?;
    write(
        &source.join("debian/control"),
        b"Source: nearpage\n\nPackage: nearpage\nArchitecture: any\n",
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    let needs = said("dpkg-shlibdeps", command.arg("-O").args(programs).current_dir(&source))?;
    let needs = needs.trim().strip_prefix("shlibs:Depends=").unwrap_or_default().to_owned();
    let paths = all(folder).map_err(io_error(folder))?;
    let mut bytes = 0;
    let mut sums = String::new();
    for path in paths.iter().filter(|path| path.is_file() && !path.is_symlink()) {
        bytes += fs::metadata(path).map_err(io_error(path))?.len();
        let sum = said("md5sum", Command::new("md5sum").arg(path))?;
        let name = path.strip_prefix(folder).unwrap_or(path);
        sums +=
            &format!("{}  {}\n", sum.split_whitespace().next().unwrap_or_default(), name.display());
    }
    let text = format!(
        "Package: nearpage\nVersion: {VERSION}\nArchitecture: {processor}\nMaintainer: The authors of nearpage <nearpage@localhost>\n\
         Installed-Size: {}\nDepends: {needs}\nSection: devel\nPriority: optional\n{DESCRIPTION}",
        bytes.div_ceil(1024)
    );
    let debian = folder.join("DEBIAN");
    write(&debian.join("control"), text.as_bytes())?;
    write(&debian.join("md5sums"), sums.as_bytes())?;
    write(&debian.join("triggers"), b"activate-noawait ldconfig\n")
}
