//! The static program, with manual pages and completions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Dist, DistError, Result, VERSION, archive, io_error, said, step};

/// Processors, by the names of rustc and of packages.
const PROCESSORS: [&str; 2] = ["x86_64", "aarch64"];
/// The most that an archive may have.
const BYTES_MOST: u64 = 15 << 20;

pub(super) fn make(dist: &Dist) -> Result {
    for processor in PROCESSORS {
        let Some(program) = build(dist, processor)? else { continue };
        let name = format!("nearpage-{VERSION}-{processor}-linux");
        let folder = dist.stage(&format!("program-{processor}"))?.join(&name);
        put(&program, &folder.join("bin/nearpage"))?;
        texts(dist, &folder.join("share"))?;
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
            put(&dist.root.join(file), &folder.join(file))?;
        }
        let to = dist.out.join(format!("{name}.tar.gz"));
        archive::pack(dist, &folder, &to)?;
        let bytes = fs::metadata(&to).map_err(io_error(&to))?.len();
        if bytes > BYTES_MOST {
            return Err(DistError::Wrong(format!(
                "{name}.tar.gz has {bytes} bytes, expected at most {BYTES_MOST}"
            )));
        }
    }
    Ok(())
}

/// The program for a processor, linked with musl by rust-lld, which needs no compiler of that processor.
fn build(dist: &Dist, processor: &str) -> Result<Option<PathBuf>> {
    let target = format!("{processor}-unknown-linux-musl");
    let libraries = said(
        "rustc",
        Command::new("rustc").args(["--print", "target-libdir", "--target", &target]),
    )?;
    if !Path::new(libraries.trim()).is_dir() {
        println!("SKIPPED: the static program for {processor}: rustup target add {target}");
        return Ok(None);
    }
    let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
    let mut command = dist.cargo();
    command.args([
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "nearpage-cli",
        "--target",
        &target,
    ]);
    step(&format!("the program for {processor}"), command.env(linker, "rust-lld"))?;
    Ok(Some(dist.target.join(target).join("dist/nearpage")))
}

/// Manual pages and completions, below `share`, by the program of this machine.
pub(super) fn texts(dist: &Dist, share: &Path) -> Result {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let host = [dist.target.join("dist/nearpage"), dist.target.join(target).join("dist/nearpage")];
    let host = host.iter().find(|program| program.is_file());
    let host =
        host.ok_or_else(|| DistError::Wrong("no program for this machine was built".into()))?;
    step("nearpage man", Command::new(host).args(["man", "--out"]).arg(share.join("man/man1")))?;
    for (shell, path) in [
        ("bash", "bash-completion/completions/nearpage"),
        ("zsh", "zsh/vendor-completions/_nearpage"),
        ("fish", "fish/vendor_completions.d/nearpage.fish"),
    ] {
        let text = said("nearpage completions", Command::new(host).args(["completions", shell]))?;
        write(&share.join(path), text.as_bytes())?;
    }
    Ok(())
}

/// Copies a file, with its folders.
pub(super) fn put(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).map_err(io_error(to))?;
    fs::copy(from, to).map(drop).map_err(io_error(from))
}

/// Writes a file, with its folders.
pub(super) fn write(to: &Path, content: &[u8]) -> Result {
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).map_err(io_error(to))?;
    fs::write(to, content).map_err(io_error(to))
}
