//! `cargo xtask guest`: the host for Linux on several real nodes. Debian's kernels boot in QEMU on machines with nodes without memory,
//! without CPUs, and with asymmetric distances; in them run the host's own test suites and the program; and
//! what must hold is asserted here.
//!
//! Nothing is installed: what is missing is named, and with `--skip-missing` one line says so and the command succeeds.

mod asserts;
mod build;
mod firmware;
mod machines;
mod names;
mod suites;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nearpage::NodeId;

use crate::kernel::plug;
use crate::record::architecture::Architecture;
use crate::record::initramfs::{self, File};
use crate::record::output::Sent;
use crate::record::{RecordError, boot, kernel, qemu};
use asserts::Told;
use build::Programs;
use machines::{MACHINES, Machine};

/// Boot Debian's kernels on machines of several nodes in QEMU, and run the host for Linux there
#[derive(Args)]
#[command(after_long_help = HELP)]
pub struct GuestArgs {
    /// One of the machines: two, asymmetric, 8-of-2, plugged
    #[arg(long, value_name = "NAME", default_value = "two", conflicts_with = "all")]
    machine: String,
    /// All machines, on kernels 6.1 and 6.12: more than an hour
    #[arg(long)]
    all: bool,
    /// The short form: the program alone, without the host's test suites
    #[arg(long, conflicts_with = "all")]
    short: bool,
    /// The beginning of the kernel's version: 6.12 takes the first of vmlinuz-6.12* in the order of names
    #[arg(long, value_name = "VERSION", default_value = "6.1", conflicts_with = "all")]
    kernel: String,
    /// Where kernels were unpacked
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,
    /// Seconds that a machine may run: it is emulated, and slow
    #[arg(long, default_value_t = 3600)]
    timeout: u64,
    /// Say in one line what is missing, and succeed
    #[arg(long)]
    skip_missing: bool,
    /// Show what the programs in the machine print
    #[arg(long)]
    verbose: bool,
}

const HELP: &str = "\
Needs Debian packages: qemu-system-x86, and a kernel: linux-image-VERSION-amd64, installed, or fetched by `apt-get download
linux-image-VERSION-amd64-unsigned` and unpacked by `dpkg -x`. On Debian 12, 6.1 is of the distribution, and 6.12 of its
security updates. A kernel is looked for in /boot and, with --kernels DIR, in DIR/boot and DIR. The program is linked static
with glibc (package libc6-dev), which does not tell it of its restartable sequences: its pagesets are under locks there. The
suites are linked as they are here, and their libraries go with them: they run on both storages.

What must hold on each machine is asserted, and printed as a list:
  topo        the machine's nodes, CPUs, distances and fallback orders; which node is which says the firmware (SRAT)
  placement   all pages are on the node asked for (topo --verify-placement)
  verify      every field of zoneinfo that follows from sizes
  doctor      nothing is unreadable
  threads, memory, slab
              the host's suites: each test that xtask/src/guest/names.rs lists ran and passed, by its name, and none was skipped
  bench       it ends
  plugged     on the machine of this name: memory comes while the stress of the suite threads runs, on its node, and goes; a CPU
              goes and comes; placement at each step
With --short, nothing of suites and bench.

Example:
  cargo xtask guest --all --kernels /tmp/kernels";

/// With more CPUs they take turns. Eight at once on two of the host's ended in a panic of the emulated kernel once (`Oops: int3`,
/// QEMU 7.2, Linux 6.12), by the looks of it in code that another CPU was patching.
const CPUS_AT_ONCE: u32 = 3;
/// Versions of `--all`.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Why a machine did not pass.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// It did not come to its end, or something is missing.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no such machine.
    #[error("no machine {0}; expected two, asymmetric, 8-of-2 or plugged")]
    NoMachine(String),
    /// Something does not hold.
    #[error("{machine} on {kernel}: {what}")]
    Broken {
        /// The machine.
        machine: &'static str,
        /// The kernel's file.
        kernel: String,
        /// What, and what was expected.
        what: String,
    },
    /// A program was not built.
    #[error("{0}")]
    NotBuilt(String),
}

/// Boots one machine, or all.
///
/// # Errors
///
/// [`GuestError`].
pub fn run(arguments: &GuestArgs) -> Result<(), GuestError> {
    match run_all(arguments) {
        Err(GuestError::Record(error @ RecordError::Missing { .. })) if arguments.skip_missing => {
            println!("SKIPPED: no kernel was booted on several nodes: {error}");
            Ok(())
        }
        done => done,
    }
}

fn run_all(arguments: &GuestArgs) -> Result<(), GuestError> {
    let find =
        |version: &str| kernel::find(version, Architecture::X86_64, arguments.kernels.as_deref());
    if !arguments.all {
        let machine = MACHINES.iter().find(|machine| machine.name == arguments.machine);
        let machine = machine.ok_or_else(|| GuestError::NoMachine(arguments.machine.clone()))?;
        let kernel = find(&arguments.kernel)?;
        check_emulator()?;
        let programs = Programs::build(!arguments.short)?;
        return judge(arguments, machine, &kernel, &programs);
    }
    // All machines take an hour: a kernel that is missing is named before.
    let mut kernels = Vec::new();
    for version in KERNELS {
        match find(version) {
            Err(error) if arguments.skip_missing => {
                println!("SKIPPED: no machine is booted with {version}: {error}");
            }
            found => kernels.push(found?),
        }
    }
    if kernels.is_empty() {
        return Ok(());
    }
    check_emulator()?;
    let programs = Programs::build(true)?;
    for kernel in kernels {
        for machine in &MACHINES {
            judge(arguments, machine, &kernel, &programs)?;
        }
    }
    Ok(())
}

/// Before minutes of building.
fn check_emulator() -> Result<(), RecordError> {
    let emulator = Architecture::X86_64.emulator();
    let there = std::process::Command::new(emulator).arg("--version").output();
    there.map(|_| ()).map_err(|_| RecordError::Missing {
        what: emulator.into(),
        places: "the PATH".into(),
        remedy: format!("apt install {}", Architecture::X86_64.emulator_package()),
    })
}

/// Boots a machine, and asserts what must hold on it.
fn judge(
    arguments: &GuestArgs,
    machine: &Machine,
    kernel: &Path,
    programs: &Programs,
) -> Result<(), GuestError> {
    let version = kernel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let begin = Instant::now();
    let sent = boot_one(arguments, machine, kernel, programs)?;
    let broken = |what| GuestError::Broken { machine: machine.name, kernel: version.clone(), what };
    let sent = Sent::parse(&sent.0).map_err(|error| RecordError::Unfinished {
        reason: error.to_string(),
        console: sent.1.clone(),
    })?;
    let told = Told::new(&sent, arguments.verbose);
    for line in asserts::check(machine, &told, !arguments.short).map_err(broken)? {
        println!("{} on {version}: {line}", machine.name);
    }
    println!("{} on {version}: passed in {} s", machine.name, begin.elapsed().as_secs());
    Ok(())
}

/// What it sent, and its last lines.
fn boot_one(
    arguments: &GuestArgs,
    machine: &Machine,
    kernel: &Path,
    programs: &Programs,
) -> Result<(Vec<u8>, String), RecordError> {
    let topology = machine.topology()?;
    let folder = tempfile::tempdir().map_err(RecordError::file(Path::new("a folder")))?;
    let files = qemu::Files::in_folder(folder.path(), kernel.to_owned());
    let orders = machine.orders(!arguments.short);
    let mut content: Vec<File<'_>> = programs.files().collect();
    content.push(File { path: "orders", content: orders.as_bytes() });
    fs::write(&files.initramfs, initramfs::image(&content))
        .map_err(RecordError::file(&files.initramfs))?;
    let monitor = folder.path().join("monitor");
    let mut words = qemu::arguments(&topology, Architecture::X86_64, &files);
    if machine.cpus() > CPUS_AT_ONCE {
        let in_turn = |word: &mut String| {
            if word == "tcg,thread=multi" {
                *word = "tcg,thread=single".into();
            }
        };
        words.iter_mut().for_each(in_turn);
    }
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("-qmp", format!("unix:{},server=on,wait=off", monitor.display()));
    if let Some((mib, _)) = machine.plugged {
        // What is given twice is put together.
        add("-m", format!("slots=1,maxmem={}M", machine.memory_mib() + 2 * mib));
    }
    let mut waiting = machine.plugged;
    let each = || {
        if let Some((mib, node)) = waiting
            && wants_memory(&files.output)
        {
            waiting = None;
            plug::plug(&monitor, mib, NodeId(node)).map_err(|error| RecordError::Unfinished {
                reason: error.to_string(),
                console: boot::console(&files),
            })?;
        }
        Ok(())
    };
    let timeout = Duration::from_secs(arguments.timeout);
    let sent = boot::boot(Architecture::X86_64, words, &files, timeout, each)?;
    Ok((sent, boot::console(&files)))
}

/// Whether the machine has asked for memory.
fn wants_memory(output: &Path) -> bool {
    let sent = fs::read(output).unwrap_or_default();
    sent.windows(16).any(|bytes| bytes == b"=== wants-memory")
}
