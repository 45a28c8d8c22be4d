//! A package for Debian and Ubuntu: the program, the libraries, the malloc, units of systemd.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::archive::{all, gzip};
use super::{Dist, PROCESSOR, Result, VERSION, has, io_error, output, rpm};
use crate::install::program::{put, write};
use crate::install::{InstallArgs, install_from, soname};

/// No address is published yet.
const MAINTAINER: &str = "The authors of nearpage <authors@nearpage.invalid>";
const DESCRIPTION: &str = "\
Description: NUMA page allocator of a kernel, to embed, run and study
 nearpage explains refused memory, shows what the page allocator of a kernel
 does, records and replays it, and answers what a machine, a setting or a patch
 would change. The package has the program, the library for C and C++, and a
 malloc for programs that nobody will rewrite.
";

/// What lies elsewhere in Debian.
const MOVED: [(&str, &str); 4] = [
    ("usr/share/zsh/site-functions/_nearpage", "usr/share/zsh/vendor-completions/_nearpage"),
    (
        "usr/lib/systemd/system/nearpage-export.service",
        "lib/systemd/system/nearpage-export.service",
    ),
    (
        "usr/lib/systemd/system/nearpage-record.service",
        "lib/systemd/system/nearpage-record.service",
    ),
    (
        "usr/lib/systemd/system/nearpage-record-last.service",
        "lib/systemd/system/nearpage-record-last.service",
    ),
];

pub(super) fn make(dist: &Dist) -> Result {
    let made = "the package for Debian";
    if !has("dpkg-deb", made, "dpkg") || !has("dpkg-shlibdeps", made, "dpkg-dev") {
        return Ok(());
    }
    let debian = processor(PROCESSOR);
    let libdir = format!("/usr/lib/{PROCESSOR}-linux-gnu");
    let folder = dist.stage("deb")?;
    let arguments = InstallArgs {
        prefix: "/usr".into(),
        libdir: Some(libdir.clone().into()),
        destdir: Some(folder.clone()),
        program: true,
        profile: "dist".into(),
    };
    let (sources, target) = rpm::sources(dist)?;
    install_from(&arguments, &sources, &target, Some(&dist.commit))?;
    for (from, to) in MOVED {
        put(&folder.join(from), &folder.join(to))?;
        fs::remove_file(folder.join(from)).map_err(io_error(from))?;
    }
    let share = folder.join("usr/share");
    for page in all(&share.join("man")).map_err(io_error("manual pages"))? {
        let text = fs::read(&page).map_err(io_error(&page))?;
        gzip(&text, &page.with_extension("1.gz"))?;
        fs::remove_file(&page).map_err(io_error(&page))?;
    }
    documents(dist, &share.join("doc/nearpage"))?;
    put(&dist.root.join("packaging/lintian-overrides"), &share.join("lintian/overrides/nearpage"))?;
    let library = folder.join(&libdir[1..]);
    let shared = library.join(format!("libnearpage.so.{VERSION}"));
    let malloc = library.join("libnearpage-malloc.so");
    control(dist, &folder, debian, &[&folder.join("usr/bin/nearpage"), &shared, &malloc])?;
    rights(&folder)?;
    let to = dist.out.join(format!("nearpage_{VERSION}_{debian}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.env("SOURCE_DATE_EPOCH", dist.epoch.to_string());
    command.args(["--root-owner-group", "-Zxz", "--build"]).arg(&folder).arg(&to);
    output("dpkg-deb", &mut command)?;
    if has("lintian", "lintian of the package", "lintian") {
        let mut command = Command::new("lintian");
        output("lintian", command.args(["--fail-on", "error,warning", "--allow-root"]).arg(&to))?;
    }
    Ok(())
}

/// What Debian calls a processor.
pub(super) fn processor(of: &str) -> &str {
    match of {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
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
    let date = output("date", command.args(["-u", "-R", "-d", &format!("@{}", dist.epoch)]))?;
    let entry = format!(
        "nearpage ({VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources tells what is new.\n\n \
         -- {MAINTAINER}  {date}"
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
    let needs = output("dpkg-shlibdeps", command.arg("-O").args(programs).current_dir(&source))?;
    let needs = needs.trim().strip_prefix("shlibs:Depends=").unwrap_or_default().to_owned();
    let paths = all(folder).map_err(io_error(folder))?;
    let mut bytes = 0;
    let mut sums = String::new();
    for path in paths.iter().filter(|path| path.is_file() && !path.is_symlink()) {
        bytes += fs::metadata(path).map_err(io_error(path))?.len();
        let sum = output("md5sum", Command::new("md5sum").arg(path))?;
        let name = path.strip_prefix(folder).unwrap_or(path);
        sums +=
            &format!("{}  {}\n", sum.split_whitespace().next().unwrap_or_default(), name.display());
    }
    let text = format!(
        "Package: nearpage\nVersion: {VERSION}\nArchitecture: {processor}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {}\nDepends: {needs}\nSection: devel\nPriority: optional\n{DESCRIPTION}",
        bytes.div_ceil(1024)
    );
    let debian = folder.join("DEBIAN");
    write(&debian.join("control"), text.as_bytes())?;
    write(&debian.join("md5sums"), sums.as_bytes())?;
    write(&debian.join("triggers"), b"activate-noawait ldconfig\n")?;
    let soname = soname(VERSION);
    let interface = soname.trim_start_matches("libnearpage.so.");
    let shlibs = format!("libnearpage {interface} nearpage (>= {VERSION})\n");
    Ok(write(&debian.join("shlibs"), shlibs.as_bytes())?)
}

/// Rights as packages have them, whatever the mask of who builds: only programs can be run.
fn rights(folder: &Path) -> Result {
    let set = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io_error(path))
    };
    set(folder, 0o755)?;
    for entry in fs::read_dir(folder).map_err(io_error(folder))?.flatten() {
        let path = entry.path();
        match entry.file_type().map_err(io_error(&path))? {
            kind if kind.is_dir() => rights(&path)?,
            kind if kind.is_file() => {
                set(&path, if folder.ends_with("bin") { 0o755 } else { 0o644 })?
            }
            _ => {}
        }
    }
    Ok(())
}
