//! `cargo xtask oracle-record` and `bundle-record`: boot a kernel on a made-up topology in QEMU, and keep what it says.
//!
//! ```text
//! topology.json ──> QEMU's arguments ──────────┐
//! guest, nearpage (static) ──> initramfs ──────┼─> qemu-system-… ──> serial port ──> recording, or bundle
//! a Debian kernel ─────────────────────────────┘
//! ```
//!
//! No kernel module is needed: everything comes from /proc and /sys, and from the kernel's log and tracer. What only a
//! module can ask (zonelists, spilling) is therefore not in these recordings.

pub mod architecture;
pub mod boot;
pub mod initramfs;
pub mod kernel;
pub mod output;
pub mod programs;
pub mod qemu;
pub mod small;
pub mod topology;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use architecture::Architecture;
use initramfs::File;
use output::Sent;
use topology::Topology;

/// Boot a Debian kernel on a topology in QEMU, and keep what it prints as a recording.
#[derive(Args)]
#[command(after_long_help = ORACLE_HELP)]
pub struct OracleArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Where the recording goes; it is compressed with zstd
    #[arg(long, value_name = "FILE.json.zst")]
    output: PathBuf,
}

/// Boot a Debian kernel on a topology in QEMU, and record a load there with `nearpage record`.
#[derive(Args)]
#[command(after_long_help = BUNDLE_HELP)]
pub struct BundleArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Where the bundle goes; its name is the bundle's
    #[arg(long, value_name = "NAME.tar.zst")]
    output: PathBuf,
}

#[derive(Args)]
struct MachineArgs {
    /// The topology, a JSON file
    topology: PathBuf,

    /// The processor
    #[arg(long, value_name = "NAME", default_value = "x86_64")]
    arch: Architecture,

    /// The beginning of the kernel's version: 6.12 takes the first of vmlinuz-6.12* in the order of names
    #[arg(long, value_name = "VERSION")]
    kernel: String,

    /// Where kernels were unpacked
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,

    /// Seconds that the machine may run: it is emulated, and slow
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

/// What both need. The words are kept as they are.
macro_rules! needs {
    () => {
        "\
Needs Debian packages: qemu-system-x86 or qemu-system-arm, zstd for bundles, and a kernel: linux-image-VERSION-amd64 or -arm64,
installed, or fetched by `apt-get download linux-image-VERSION-amd64-unsigned` and unpacked by `dpkg -x`. (For arm64 on
another machine: `dpkg --add-architecture arm64`, `apt-get update`, and the name ends in -arm64-unsigned:arm64.) The
kernel is looked for in /boot and, with --kernels DIR, in DIR/boot and DIR. What runs in the machine is built static:
`rustup target add x86_64-unknown-linux-musl`, or aarch64-unknown-linux-musl. Nothing is installed.

A topology has nodes (mem in MiB, a number of cpus), distances (null: 10 and 20), more words for the kernel's
command line, the machine (pc or q35; virt for aarch64), what QEMU's -smp is given (null: the number of CPUs), and
settings that are written after boot (sysctl)"
    };
}

const ORACLE_HELP: &str = concat!(
    needs!(),
    "; and phases, whose settings are written, captured and taken back:

  {\"nodes\": [{\"mem\": 1024, \"cpus\": 2}, {\"mem\": 0, \"cpus\": 1}],
   \"distances\": [[10, 20], [20, 10]],
   \"cmdline\": \"transparent_hugepage=never\",
   \"machine\": \"q35\",
   \"smp\": \"3,maxcpus=4\",
   \"sysctl\": {},
   \"phases\": {\"wsf200\": {\"vm.watermark_scale_factor\": \"200\"}}}

Captures: boot, sysctl if there are any, phase_NAME, restored. `nearpage verify FILE` compares the recording with what
nearpage predicts.

Example:
  cargo xtask oracle-record n3.json --kernel 6.12 --kernels /tmp/kernels --output oracle/corpus/n3-6.12.json.zst"
);

const BUNDLE_HELP: &str = concat!(
    needs!(),
    "; and steps of the load that is recorded, of which prepare has those before it:

  {\"nodes\": [{\"mem\": 512, \"cpus\": 2}, {\"mem\": 512, \"cpus\": 1}],
   \"prepare\": [\"files 0 100 65536\"],
   \"load\": [\"hog 0-2 40 2\", \"cross 0 2 24 256\", \"spawn 0-2 40 128\"]}

Steps are those of xtask/guest/src/load.rs. `nearpage replay FILE` and `nearpage verify FILE` read the bundle.

Example:
  cargo xtask bundle-record bundles/q612-arm64-n3.json --arch aarch64 --kernel 6.12 --kernels /tmp/kernels \\
      --output bundles/q612-arm64-n3.tar.zst"
);

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// The topology is none.
    #[error("{path}: {problem}")]
    Topology {
        /// The file.
        path: String,
        /// What is wrong, with the place if it is one in the file.
        problem: String,
    },
    /// A program, a kernel or a library is not there.
    #[error("{what} is not in {places}: {remedy}")]
    Missing {
        /// What.
        what: String,
        /// Where it was looked for.
        places: String,
        /// How one comes by it.
        remedy: String,
    },
    /// What runs in the machine cannot be built.
    #[error("the programs for {target} are not built ({status})")]
    NotBuilt {
        /// The target.
        target: &'static str,
        /// How the build ended.
        status: ExitStatus,
    },
    /// The name of a bundle is none.
    #[error("{path}: expected a name such as NAME.tar.zst, of letters, digits, - and _")]
    Name {
        /// The name.
        path: String,
    },
    /// The machine did not come to its end.
    #[error("the machine did not finish ({reason}); the last lines of its console:\n{console}")]
    Unfinished {
        /// What happened instead.
        reason: String,
        /// What it printed last.
        console: String,
    },
    /// The bundle is not whole.
    #[error(
        "the kernel lost {0} events: expected a shorter load, or more memory, of which its buffers take 1/32"
    )]
    LostEvents(u64),
    /// What the machine sent is incomplete.
    #[error("the machine did not send {0}")]
    Incomplete(String),
}

impl RecordError {
    /// A file that cannot be read or written.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> RecordError {
        move |error| RecordError::File { path: path.display().to_string(), error }
    }
}

/// Runs `oracle-record`.
pub fn run_oracle(arguments: &OracleArgs) -> Result<(), RecordError> {
    let OracleArgs { machine, output } = arguments;
    let topology = machine.topology()?;
    let kernel = machine.find_kernel()?;
    let [guest] = programs::build(machine.arch, [("guest", "guest")])?;
    let guest = read(&guest)?;
    let orders = initramfs::orders_to_capture(&topology, machine.arch);
    let files = [
        File { path: "init", content: &guest },
        File { path: "orders", content: orders.as_bytes() },
    ];
    let timeout = Duration::from_secs(machine.timeout);
    let ran = run_machine(machine.arch, timeout, &topology, kernel, &files)?;
    let mut recording = ran.sent()?.recording()?;
    let entries = recording.as_object_mut().expect("a recording is an object");
    entries.insert("spec".into(), topology.spec.clone());
    entries.insert("cmdline".into(), qemu::command_line(&topology, machine.arch).into());
    entries.insert("qemu_args".into(), Value::from(ran.qemu_arguments));
    entries.insert("wall_s".into(), ran.seconds.into());
    entries.insert("ok".into(), true.into());
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let packed = ruzstd::encoding::compress_to_vec(recording.to_string().as_bytes(), level);
    fs::write(output, packed).map_err(RecordError::file(output))?;
    println!("{}: recorded in {} s", output.display(), ran.seconds);
    Ok(())
}

/// Runs `bundle-record`.
pub fn run_bundle(arguments: &BundleArgs) -> Result<(), RecordError> {
    let BundleArgs { machine, output } = arguments;
    let topology = machine.topology()?;
    let name = name_of(output)?;
    if topology.load.is_empty() {
        return Err(machine.problem("no steps of a load, expected \"load\": [\"hog 0 40 1\", …]"));
    }
    let kernel = machine.find_kernel()?;
    let recorder = Recorder::build(machine.arch)?;
    let begin = Instant::now();
    let sent = recorder.record(&topology, kernel, name, Duration::from_secs(machine.timeout))?;
    let bundle = small::packed(&sent)?;
    fs::write(output, &bundle).map_err(RecordError::file(output))?;
    let seconds = begin.elapsed().as_secs();
    println!("{}: {} bytes, recorded in {seconds} s", output.display(), bundle.len());
    Ok(())
}

/// The programs that record a load in a machine.
pub struct Recorder {
    architecture: Architecture,
    /// The first process of the machine, which runs loads here as well: `guest load FILE`.
    pub guest: PathBuf,
    /// `nearpage`, static.
    pub nearpage: PathBuf,
}

impl Recorder {
    /// Builds both.
    ///
    /// # Errors
    ///
    /// They cannot be built for that processor.
    pub fn build(architecture: Architecture) -> Result<Recorder, RecordError> {
        let packages = [("guest", "guest"), ("nearpage-cli", "nearpage")];
        let [guest, nearpage] = programs::build(architecture, packages)?;
        Ok(Recorder { architecture, guest, nearpage })
    }

    /// Boots a machine, and returns the bundle of its load as the recorder there packed it.
    ///
    /// # Errors
    ///
    /// The machine does not start, or does not come to its end.
    pub fn record(
        &self,
        topology: &Topology,
        kernel: PathBuf,
        name: &str,
        timeout: Duration,
    ) -> Result<Vec<u8>, RecordError> {
        let (guest, nearpage) = (read(&self.guest)?, read(&self.nearpage)?);
        let orders = initramfs::orders_to_record(topology, self.architecture, name);
        let (prepare, load) = (topology.prepare.join("\n"), topology.load.join("\n"));
        let files = [
            File { path: "init", content: &guest },
            File { path: "nearpage", content: &nearpage },
            File { path: "orders", content: orders.as_bytes() },
            File { path: "prepare", content: prepare.as_bytes() },
            File { path: "load", content: load.as_bytes() },
        ];
        let ran = run_machine(self.architecture, timeout, topology, kernel, &files)?;
        Ok(ran.sent()?.file("bundle")?.to_vec())
    }
}

/// A machine that ran.
struct Ran {
    output: Vec<u8>,
    console: String,
    qemu_arguments: Vec<String>,
    seconds: u64,
}

impl Ran {
    /// What it sent. If that is not all, what it printed last says why.
    fn sent(&self) -> Result<Sent<'_>, RecordError> {
        Sent::parse(&self.output).map_err(|error| RecordError::Unfinished {
            reason: error.to_string(),
            console: self.console.clone(),
        })
    }
}

impl MachineArgs {
    fn problem(&self, problem: &str) -> RecordError {
        RecordError::Topology { path: self.topology.display().to_string(), problem: problem.into() }
    }

    fn topology(&self) -> Result<Topology, RecordError> {
        let topology = Topology::read(&self.topology)?;
        match topology.machine {
            Some(board) if board.architecture() != self.arch => {
                Err(self.problem(&format!("the board {} is of another processor", board.name())))
            }
            _ => Ok(topology),
        }
    }

    fn find_kernel(&self) -> Result<PathBuf, RecordError> {
        kernel::find(&self.kernel, self.arch, self.kernels.as_deref())
    }
}

fn run_machine(
    architecture: Architecture,
    timeout: Duration,
    topology: &Topology,
    kernel: PathBuf,
    content: &[File<'_>],
) -> Result<Ran, RecordError> {
    let folder = tempfile::tempdir().map_err(RecordError::file(Path::new("a temporary folder")))?;
    let files = qemu::Files::in_folder(folder.path(), kernel);
    let image = initramfs::image(content);
    fs::write(&files.initramfs, image).map_err(RecordError::file(&files.initramfs))?;
    let begin = Instant::now();
    let words = qemu::arguments(topology, architecture, &files);
    let output = boot::boot(architecture, words, &files, timeout, || Ok(()))?;
    Ok(Ran {
        output,
        console: boot::console(&files),
        qemu_arguments: qemu::arguments_to_keep(topology, architecture, &files),
        seconds: begin.elapsed().as_secs(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, RecordError> {
    fs::read(path).map_err(RecordError::file(path))
}

/// `NAME` of `folder/NAME.tar.zst`.
fn name_of(output: &Path) -> Result<&str, RecordError> {
    let name = output.file_name().and_then(|name| name.to_str()?.strip_suffix(".tar.zst"));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let name = name.filter(|name| !name.is_empty() && name.chars().all(is_of_name));
    name.ok_or_else(|| RecordError::Name { path: output.display().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_have_plain_names() {
        assert_eq!(name_of(Path::new("a b/q61-x.tar.zst")).unwrap(), "q61-x");
        for other in ["q61.tar.gz", ".tar.zst", "a b.tar.zst", "a;b.tar.zst", "x/"] {
            let error = name_of(Path::new(other)).unwrap_err().to_string();
            assert!(error.contains("expected a name such as NAME.tar.zst"), "{error}");
        }
    }
}
