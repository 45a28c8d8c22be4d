//! The program with what belongs to it: manual pages, completions, units of systemd.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{InstallError, copy, failed};
use crate::step::output;

/// Completions, below `share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/nearpage"),
    ("zsh", "zsh/site-functions/_nearpage"),
    ("fish", "fish/vendor_completions.d/nearpage.fish"),
];
/// Units of systemd.
pub(crate) const UNITS: [&str; 3] =
    ["nearpage-export.service", "nearpage-record-last.service", "nearpage-record.service"];

/// Installs all, for a prefix, into a folder that stands for it.
pub(super) fn install(
    program: &Path,
    root: &Path,
    prefix: &Path,
    place: &Path,
) -> Result<(), InstallError> {
    put(program, &place.join("bin/nearpage"))?;
    texts(program, &place.join("share"))?;
    for unit in UNITS {
        let from = root.join("packaging").join(unit);
        let text = fs::read_to_string(&from).map_err(failed(from.display().to_string()))?;
        let binaries = format!("{}/", prefix.join("bin").display());
        let text = text.replace("/usr/bin/", &binaries);
        write(&place.join("lib/systemd/system").join(unit), text.as_bytes())?;
    }
    Ok(())
}

/// Manual pages and completions below `share`, as the program writes them.
pub(crate) fn texts(program: &Path, share: &Path) -> Result<(), InstallError> {
    let pages = share.join("man/man1");
    output("nearpage man", Command::new(program).args(["man", "--out"]).arg(pages))?;
    for (shell, path) in COMPLETIONS {
        let mut command = Command::new(program);
        let text = output("nearpage completions", command.args(["completions", shell]))?;
        write(&share.join(path), text.as_bytes())?;
    }
    Ok(())
}

/// Copies a file, with its folders.
pub(crate) fn put(from: &Path, to: &Path) -> Result<(), InstallError> {
    make_parent(to)?;
    copy(from, to)
}

/// Writes a file, with its folders.
pub(crate) fn write(to: &Path, content: &[u8]) -> Result<(), InstallError> {
    make_parent(to)?;
    fs::write(to, content).map_err(failed(to.display().to_string()))
}

fn make_parent(of: &Path) -> Result<(), InstallError> {
    let folder = of.parent().unwrap_or(of);
    fs::create_dir_all(folder).map_err(failed(folder.display().to_string()))
}
