//! `cargo xtask ostd`: nearpage in a kernel that is not ours. The kernel of `integrations/ostd` is built with nearpage's frames and
//! with OSDK's, and booted in QEMU: correctness on 1, 2 and 4 CPUs and on two nodes, instructions on one CPU.
//!
//! By hand, not in CI: it needs a dated nightly compiler and OSTD's own tool. What is missing is named.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;

/// Boot a kernel on OSTD with nearpage's frames, and with OSDK's beside it
#[derive(Args)]
#[command(after_long_help = "\
Needs: `cargo install cargo-osdk --version 0.19.0 --locked`, the toolchain of integrations/ostd/rust-toolchain.toml (rustup fetches
it), and qemu-system-x86. Minutes.")]
pub struct OstdArgs {
    /// Show all that the kernels say
    #[arg(long)]
    verbose: bool,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum OstdError {
    /// OSTD's tool is not there.
    #[error("cargo-osdk is not installed (cargo install cargo-osdk --version 0.19.0 --locked)")]
    NoTool,
    /// A program could not be run, or a file not be written.
    #[error("{what}: {error}")]
    Io {
        /// What could not.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// The kernel was not built; cargo has said why.
    #[error("cargo osdk build failed for the frames of {0}")]
    Build(&'static str),
    /// A machine did not pass.
    #[error("{frames} on {machine}: no PASSED; its last lines:\n{lines}")]
    Machine {
        /// Whose frames.
        frames: &'static str,
        /// The machine.
        machine: &'static str,
        /// What it said last.
        lines: String,
    },
}

/// Whose frames, and the features of the kernel for it.
const FRAMES: [(&str, &[&str]); 2] =
    [("nearpage", &[]), ("osdk-frame-allocator", &["--no-default-features"])];
/// The machine on which instructions are counted.
const COUNTED: &str = "1 CPU, counted";
/// Machines: names, and QEMU's words.
const MACHINES: [(&str, &[&str]); 4] = [
    (COUNTED, &["-m", "1G", "-smp", "1", "-icount", "shift=0,sleep=off"]),
    ("2 CPUs", &["-m", "1G", "-smp", "2", "-accel", "tcg,thread=single"]),
    ("4 CPUs", &["-m", "1G", "-smp", "4", "-accel", "tcg,thread=single"]),
    (
        "4 CPUs on two nodes",
        &[
            "-m",
            "1G",
            "-smp",
            "4",
            "-accel",
            "tcg,thread=single",
            "-object",
            "memory-backend-ram,id=m0,size=512M",
            "-object",
            "memory-backend-ram,id=m1,size=512M",
            "-numa",
            "node,nodeid=0,cpus=0-1,memdev=m0",
            "-numa",
            "node,nodeid=1,cpus=2-3,memdev=m1",
        ],
    ),
];
/// Seconds that a machine may run.
const PATIENCE: Duration = Duration::from_secs(180);

/// Builds, boots, and prints a table.
///
/// # Errors
///
/// [`OstdError`].
pub fn run(arguments: &OstdArgs) -> Result<(), OstdError> {
    let mut tables = Vec::new();
    for (frames, features) in FRAMES {
        let kernel = build(frames, features)?;
        for (machine, words) in MACHINES {
            let lines = boot(&kernel, words)?;
            if arguments.verbose {
                lines.iter().for_each(|line| println!("{frames}, {machine}: {line}"));
            }
            if !lines.iter().any(|line| line.ends_with("PASSED")) {
                let lines = lines[lines.len().saturating_sub(30)..].join("\n");
                return Err(OstdError::Machine { frames, machine, lines });
            }
            for line in lines.iter().filter(|line| is_result(line)) {
                println!("{frames}, {machine}: {line}");
            }
            if machine == COUNTED {
                tables.push(figures(&lines));
            }
        }
    }
    print_table(&tables);
    Ok(())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/ostd")
}

/// Cargo in the kernel's folder, with the toolchain that is written there.
fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(folder());
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTFLAGS", "CARGO_TARGET_DIR"] {
        cargo.env_remove(variable);
    }
    cargo
}

fn build(frames: &'static str, features: &[&str]) -> Result<PathBuf, OstdError> {
    let tool = cargo().args(["osdk", "--version"]).stderr(Stdio::null()).output();
    if !tool.is_ok_and(|tool| tool.status.success()) {
        return Err(OstdError::NoTool);
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| OstdError::Io { what, error }
    };
    // OSTD's tool makes the crate that is linked, and its lock file, unless there is one.
    let base = folder().join("target/osdk/nearpage-ostd-run-base");
    let lock = base.join("Cargo.lock");
    if !lock.exists() {
        let kept = folder().join("Cargo.lock");
        std::fs::create_dir_all(&base)
            .and_then(|()| std::fs::copy(&kept, &lock))
            .map_err(failed(&kept.display().to_string()))?;
    }
    let status = cargo()
        .args(["osdk", "build", "--release"])
        .args(features)
        .status()
        .map_err(failed("cargo osdk"))?;
    if !status.success() {
        return Err(OstdError::Build(frames));
    }
    let built = folder().join("target/osdk/nearpage-ostd/nearpage-ostd-osdk-bin.elf");
    // The next build writes to the same place.
    let kept = built.with_file_name(format!("{frames}.elf"));
    std::fs::copy(&built, &kept).map_err(failed(&built.display().to_string()))?;
    Ok(kept)
}

/// The lines that a machine says until it ends.
fn boot(kernel: &Path, words: &[&str]) -> Result<Vec<String>, OstdError> {
    let failed = |error| OstdError::Io {
        what: "qemu-system-x86_64 (apt install qemu-system-x86)".into(),
        error,
    };
    let output = Command::new("timeout")
        .arg(PATIENCE.as_secs().to_string())
        .args([
            "qemu-system-x86_64",
            "-machine",
            "q35",
            "-cpu",
            "max",
            "-no-reboot",
            "-display",
            "none",
        ])
        .args(["-serial", "stdio", "-monitor", "none"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
        .args(words)
        .arg("-kernel")
        .arg(kernel)
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    Ok(text.lines().map(str::to_owned).collect())
}

fn is_result(line: &str) -> bool {
    const RESULTS: [&str; 6] = ["frames of", "cases:", "workload:", "nodes:", "locks:", "walker:"];
    RESULTS.iter().any(|result| line.starts_with(result))
}

/// Rows of `instructions: | WORK | FIGURE |`.
fn figures(lines: &[String]) -> Vec<(String, String)> {
    let row = |line: &String| {
        let row = line.strip_prefix("instructions: | ")?.strip_suffix(" |")?;
        let (work, figure) = row.split_once(" | ")?;
        Some((work.to_owned(), figure.to_owned()))
    };
    lines.iter().filter_map(row).collect()
}

fn print_table(tables: &[Vec<(String, String)>]) {
    let heads: Vec<&str> = FRAMES.iter().map(|(frames, _)| *frames).collect();
    println!("\nInstructions on one CPU, with all that OSTD does for a frame.\n");
    println!("| work | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    let Some((first, others)) = tables.split_first() else { return };
    for (at, (work, figure)) in first.iter().enumerate() {
        let others: Vec<&str> =
            others.iter().map(|rows| rows.get(at).map_or("", |(_, figure)| figure)).collect();
        println!("| {work} | {figure} | {} |", others.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let lines = ["x", "instructions: | a pair of a frame | 12.5 |", "PASSED"].map(String::from);
        assert_eq!(figures(&lines), [("a pair of a frame".to_owned(), "12.5".to_owned())]);
    }
}
