//! `cargo xtask oracle-record`: boots a kernel on a made-up topology in QEMU, and keeps what it prints.
//!
//! ```text
//! topology.json ──> QEMU's arguments ─┐
//! busybox, init script ──> initramfs ─┼─> qemu-system-x86_64 ──> second serial port ──> recording
//! a Debian kernel ────────────────────┘
//! ```
//!
//! No kernel module is needed: everything comes from /proc and /sys, and from the kernel's log. What only a
//! module can ask (zonelists, spilling) is therefore not in these recordings.

mod initramfs;
mod output;
mod qemu;
mod topology;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use topology::Topology;

/// Boot a Debian kernel on a topology in QEMU, and keep what it prints as a recording.
///
/// Needs three Debian packages: qemu-system-x86 (qemu-system-x86_64 in the PATH), busybox-static
/// (/usr/bin/busybox or /bin/busybox), and a kernel: linux-image-VERSION-amd64, installed, or fetched by
/// `apt-get download linux-image-VERSION-amd64-unsigned` and unpacked by `dpkg -x`. The kernel is looked for in
/// /boot and, with --kernels DIR, in DIR/boot and DIR.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct RecordArgs {
    /// The topology, a JSON file
    topology: PathBuf,

    /// The beginning of the kernel's version: 6.12 takes the first of vmlinuz-6.12* in the order of names
    #[arg(long, value_name = "VERSION")]
    kernel: String,

    /// Where kernels were unpacked
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,

    /// Where the recording goes; it is compressed with zstd
    #[arg(long, value_name = "FILE.json.zst")]
    output: PathBuf,

    /// Seconds that the machine may run: it is emulated, and slow
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

const AFTER_HELP: &str = "\
A topology has nodes (mem in MiB, a number of cpus), distances (null: 10 and 20), more words for the kernel's
command line, the machine (pc or q35), what QEMU's -smp is given (null: the number of CPUs), settings that are written after boot (sysctl), and phases, whose settings are written, captured and
taken back:

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
  cargo xtask oracle-record n3.json --kernel 6.12 --kernels /tmp/kernels --output oracle/corpus/n3-6.12.json.zst";

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
    /// A program or a kernel is not there.
    #[error("{what} is not in {places}: it comes with Debian's {package}")]
    Missing {
        /// What.
        what: String,
        /// Where it was looked for.
        places: String,
        /// The package.
        package: String,
    },
    /// The machine did not come to its end.
    #[error("the machine did not finish ({reason}); the last lines of its console:\n{console}")]
    Unfinished {
        /// What happened instead.
        reason: String,
        /// What it printed last.
        console: String,
    },
    /// What the machine sent is incomplete.
    #[error("the machine did not send {0}")]
    Incomplete(&'static str),
}

impl RecordError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> RecordError {
        move |error| RecordError::File { path: path.display().to_string(), error }
    }
}

/// Runs the command.
pub fn run(arguments: &RecordArgs) -> Result<(), RecordError> {
    let topology = Topology::read(&arguments.topology)?;
    let kernel = find_kernel(&arguments.kernel, arguments.kernels.as_deref())?;
    let busybox = find_busybox()?;
    let folder = tempfile::tempdir().map_err(RecordError::file(Path::new("a temporary folder")))?;
    let image = initramfs::image(&busybox, &topology).map_err(RecordError::file(&busybox))?;
    let files = qemu::Files::in_folder(folder.path(), kernel);
    fs::write(&files.initramfs, image).map_err(RecordError::file(&files.initramfs))?;
    let begin = Instant::now();
    boot(&topology, &files, Duration::from_secs(arguments.timeout))?;
    let seconds = begin.elapsed().as_secs();
    let sent = fs::read(&files.output).map_err(RecordError::file(&files.output))?;
    let mut recording = output::recording(&String::from_utf8_lossy(&sent))?;
    let entries = recording.as_object_mut().expect("a recording is an object");
    entries.insert("spec".into(), topology.spec.clone());
    entries.insert("cmdline".into(), qemu::command_line(&topology).into());
    entries.insert("qemu_args".into(), Value::from(qemu::arguments_to_keep(&topology, &files)));
    entries.insert("wall_s".into(), seconds.into());
    entries.insert("ok".into(), true.into());
    write(&arguments.output, &recording)?;
    println!("{}: recorded in {seconds} s", arguments.output.display());
    Ok(())
}

fn write(path: &Path, recording: &Value) -> Result<(), RecordError> {
    let text = recording.to_string();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let packed = ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
    fs::write(path, packed).map_err(RecordError::file(path))
}

fn find_kernel(version: &str, kernels: Option<&Path>) -> Result<PathBuf, RecordError> {
    let mut folders: Vec<PathBuf> =
        kernels.iter().flat_map(|folder| [folder.join("boot"), folder.to_path_buf()]).collect();
    folders.push("/boot".into());
    for folder in &folders {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_it = |name: &str| {
            let rest = name.strip_prefix("vmlinuz-").and_then(|name| name.strip_prefix(version));
            // 6.1 is not 6.12.
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        };
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| is_it(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        if let Some(kernel) = found.into_iter().next() {
            return Ok(kernel);
        }
    }
    let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(RecordError::Missing {
        what: format!("vmlinuz-{version}*"),
        places: places.join(", "),
        package: format!("linux-image-{version}…-amd64"),
    })
}

fn find_busybox() -> Result<PathBuf, RecordError> {
    const PLACES: [&str; 2] = ["/usr/bin/busybox", "/bin/busybox"];
    let found = PLACES.into_iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| RecordError::Missing {
        what: "busybox".into(),
        places: PLACES.join(" or "),
        package: "busybox-static".into(),
    })
}

/// Runs the machine until it switches itself off.
fn boot(topology: &Topology, files: &qemu::Files, timeout: Duration) -> Result<(), RecordError> {
    let mut command = Command::new(qemu::PROGRAM);
    command.args(qemu::arguments(topology, files)).stdin(Stdio::null()).stdout(Stdio::null());
    let mut machine = command.spawn().map_err(|_| RecordError::Missing {
        what: qemu::PROGRAM.into(),
        places: "the PATH".into(),
        package: "qemu-system-x86".into(),
    })?;
    let console = || {
        let text = fs::read(&files.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    };
    let begin = Instant::now();
    loop {
        match machine.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let reason = status.to_string();
                return Err(RecordError::Unfinished { reason, console: console() });
            }
            Ok(None) if begin.elapsed() < timeout => {
                std::thread::sleep(Duration::from_millis(100));
            }
            _ => {
                let _ = machine.kill();
                let _ = machine.wait();
                let reason = format!("it ran for {} s", timeout.as_secs());
                return Err(RecordError::Unfinished { reason, console: console() });
            }
        }
    }
}
