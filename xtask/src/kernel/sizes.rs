//! What nearpage adds to a kernel: bytes of the kernels of `examples/size`, and what a boot takes a frame.

use std::path::Path;
use std::process::Command;

use super::build::{Purpose, build, has_target, target_folder};
use super::emulator::run_machine;
use super::machines::of_short_form;
use super::{KernelArgs, KernelError, Processor};

/// Features of `examples/size`, and what a kernel has with them.
const FEATURES: [(&str, &str); 5] = [
    ("plain", "pages by Linux's rules (`Kernel::Rules`)"),
    ("", "pages: a boot in parts, blocks of any order from any node, frees"),
    ("heap", "and a heap: the thirty lines of the book"),
    ("heap,acpi", "and nodes out of ACPI's tables"),
    ("all", "and bulk, policies, ranges, page locks, offlining, checks, reports and texts"),
];
/// Optimisations by which kernels are weighed: Rust's names.
const LEVELS: [&str; 2] = ["s", "z"];
/// The machine whose boot is counted.
const BOOTED: &str = "1G,cpus=0";

/// Builds each kernel, and prints its bytes.
///
/// # Errors
///
/// [`KernelError`].
pub fn weigh(processor: Processor) -> Result<(), KernelError> {
    let target = processor.target();
    if !has_target(target)? {
        return Err(KernelError::NoTarget(target));
    }
    let folder = target_folder()?.join("sizes");
    println!(
        "Bytes of code and constants for {target}, one unit of code, everything linked that is reached:\n"
    );
    println!("| a kernel with | opt-level s | opt-level z |\n|---|---|---|");
    for (features, what) in FEATURES {
        print!("| {what} |");
        for level in LEVELS {
            build_one(target, features, level, &folder)?;
            let file = folder.join(target).join("release").join("size");
            let elf = std::fs::read(&file).map_err(KernelError::io(file.display().to_string()))?;
            let bytes = unwritten_bytes(&elf)
                .ok_or_else(|| KernelError::Failed(format!("{}: no ELF file", file.display())))?;
            print!(" {bytes} |");
        }
        println!();
    }
    println!();
    Ok(())
}

fn build_one(
    target: &'static str,
    features: &str,
    level: &str,
    folder: &Path,
) -> Result<(), KernelError> {
    let level = format!("profile.release.opt-level=\"{level}\"");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "size", "--target", target])
        .args(["--features", features, "--config", &level])
        .args(["--config", "profile.release.lto=\"fat\""])
        .args(["--config", "profile.release.codegen-units=1"])
        .arg("--target-dir")
        .arg(folder)
        .status()
        .map_err(KernelError::io("cargo"))?;
    if status.success() { Ok(()) } else { Err(KernelError::Build(target)) }
}

/// Bytes of the sections of a 64-bit little-endian ELF file that are loaded and not written to.
fn unwritten_bytes(elf: &[u8]) -> Option<u64> {
    const LOADED: u64 = 2;
    const WRITTEN: u64 = 1;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let word =
        |at: usize| elf.get(at..)?.first_chunk().map(|bytes: &[u8; 8]| u64::from_le_bytes(*bytes));
    let half =
        |at: usize| elf.get(at..)?.first_chunk().map(|bytes: &[u8; 2]| u16::from_le_bytes(*bytes));
    let (table, size, count) = (word(0x28)?, half(0x3a)?, half(0x3c)?);
    let mut bytes = 0;
    for at in 0..u64::from(count) {
        let header = usize::try_from(table + at * u64::from(size)).ok()?;
        let flags = word(header + 8)?;
        if flags & (LOADED | WRITTEN) == LOADED {
            bytes += word(header + 0x20)?;
        }
    }
    Some(bytes)
}

/// Boots a machine of 1 GiB, counts, and prints the kernel's lines about it.
///
/// # Errors
///
/// [`KernelError`].
pub fn boot_cost(arguments: &KernelArgs) -> Result<(), KernelError> {
    let machine = of_short_form(&[BOOTED.to_owned()], &[])?;
    let kernel = build(arguments.processor, Purpose::Beside)?;
    let ran = run_machine(arguments, arguments.processor, &machine, &kernel)?;
    for line in ran.lines.iter().filter(|line| line.starts_with("boot:")) {
        println!("{line}");
    }
    ran.passed(BOOTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_added_up() {
        let mut elf = vec![0; 0x40 + 3 * 0x40];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[0x28] = 0x40;
        elf[0x3a] = 0x40;
        elf[0x3c] = 3;
        for (at, flags, bytes) in [(0, 6, 100), (1, 2, 20), (2, 3, 77)] {
            elf[0x40 + at * 0x40 + 8] = flags;
            elf[0x40 + at * 0x40 + 0x20] = bytes;
        }
        assert_eq!(unwritten_bytes(&elf), Some(120));
        assert_eq!(unwritten_bytes(&elf[..0x90]), None, "it ends before its table");
        assert_eq!(unwritten_bytes(b"#!/bin/sh"), None);
    }
}
