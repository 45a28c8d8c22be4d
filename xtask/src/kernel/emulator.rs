//! One machine in QEMU, from its first line to its exit code.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::machines::GuestMachine;
use super::{KernelArgs, KernelError, Processor, plug};
use crate::tied;

/// How long a machine may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one whose memory is used up, by a count of instructions, may take for each GiB.
const PATIENCE_PER_GIB: Duration = Duration::from_secs(60);
/// From so many CPUs on they take turns on one of the host's: a host that has fewer takes a CPU away from its lock, and all
/// that wait in line for it turn round for nothing.
const CPUS_IN_TURN: usize = 3;
/// The kernel has set all up, and waits for memory.
const READY: &str = "READY to have memory plugged in";
/// Lines at the end that are shown of a machine that failed.
const LAST_LINES: usize = 40;

/// How a machine ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All checks passed.
    Passed,
    /// A check failed.
    Failed,
    /// It did not end in time.
    TimedOut,
    /// The emulator ended otherwise.
    Other(Option<i32>),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed => f.write_str("failed"),
            Self::TimedOut => f.write_str("did not end in time"),
            Self::Other(code) => write!(f, "QEMU ended with {code:?}"),
        }
    }
}

/// What a machine did.
pub struct Ran {
    /// What it said.
    pub lines: Vec<String>,
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub time: Duration,
}

impl Ran {
    /// Shows its last lines.
    pub fn show_end(&self) {
        for line in &self.lines[self.lines.len().saturating_sub(LAST_LINES)..] {
            eprintln!("    {line}");
        }
    }

    /// The machine of this name must have passed.
    ///
    /// # Errors
    ///
    /// [`KernelError::Machine`] if it ended otherwise, after its last lines were shown.
    pub fn passed(&self, name: &str) -> Result<(), KernelError> {
        if self.ended == Ended::Passed {
            return Ok(());
        }
        self.show_end();
        Err(KernelError::Machine { name: name.to_owned(), ended: self.ended })
    }

    /// The lines between `BEGIN name` and `END name`.
    pub fn text(&self, name: &str) -> Vec<&str> {
        let begin = format!("BEGIN {name}");
        let end = format!("END {name}");
        let after = self.lines.iter().skip_while(|line| !line.ends_with(&begin)).skip(1);
        after.take_while(|line| **line != end).map(String::as_str).collect()
    }
}

/// Boots a kernel on a machine and waits until it ends.
///
/// # Errors
///
/// [`KernelError`] if that cannot be done.
pub fn run_machine(
    arguments: &KernelArgs,
    processor: Processor,
    machine: &GuestMachine,
    kernel: &Path,
) -> Result<Ran, KernelError> {
    let folder = tempfile::tempdir().map_err(KernelError::io("a folder for the monitor"))?;
    let monitor = folder.path().join("monitor");
    let plugged = machine.plugged_mib.filter(|_| processor == Processor::X86_64);
    let words = qemu_arguments(arguments, processor, machine, plugged, kernel, &monitor);
    let begun = Instant::now();
    let mut emulator = Command::new(processor.emulator());
    tied::tie(&mut emulator);
    let mut child = emulator
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => KernelError::NoEmulator {
                program: processor.emulator(),
                package: processor.package(),
            },
            _ => KernelError::Io { what: processor.emulator().into(), error },
        })?;
    let gib = u32::try_from(machine.memory_mib() >> 10).unwrap_or(u32::MAX);
    let more = if arguments.bounds { PATIENCE_PER_GIB.saturating_mul(gib) } else { Duration::ZERO };
    let heard = listen(&mut child, PATIENCE + more, |line| {
        if line == READY
            && let (Some(mib), Some(node)) = (plugged, machine.plugged_node())
        {
            return plug::plug(&monitor, mib, node);
        }
        Ok(())
    });
    if !matches!(heard, Ok((_, true))) {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    let status = child.wait().map_err(KernelError::io("QEMU"))?;
    let (lines, is_over) = heard?;
    let ended = match (is_over, processor, status.code()) {
        (false, ..) => Ended::TimedOut,
        // The debug-exit device shifts the code and sets its lowest bit; the others give it as it is.
        (_, Processor::X86_64, Some(33)) => Ended::Passed,
        (_, Processor::X86_64, Some(35)) => Ended::Failed,
        (_, Processor::Aarch64 | Processor::Riscv64, Some(0x10)) => Ended::Passed,
        (_, Processor::Aarch64 | Processor::Riscv64, Some(0x11)) => Ended::Failed,
        (.., code) => Ended::Other(code),
    };
    Ok(Ran { lines, ended, time: begun.elapsed() })
}

/// The lines that the machine says, and whether it has said its last.
fn listen(
    child: &mut Child,
    patience: Duration,
    mut each: impl FnMut(&str) -> Result<(), KernelError>,
) -> Result<(Vec<String>, bool), KernelError> {
    let output = child.stdout.take().ok_or_else(|| KernelError::Failed("QEMU".into()))?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // Nobody listens any more.
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                break;
            }
        }
    });
    let end = Instant::now() + patience;
    let mut lines = Vec::new();
    loop {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                each(&line)?;
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok((lines, true)),
            Err(RecvTimeoutError::Timeout) => return Ok((lines, false)),
        }
    }
}

fn qemu_arguments(
    arguments: &KernelArgs,
    processor: Processor,
    machine: &GuestMachine,
    plugged: Option<u32>,
    kernel: &Path,
    monitor: &Path,
) -> Vec<String> {
    let mut words: Vec<String> = ["-nodefaults", "-no-reboot"].map(String::from).to_vec();
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("-display", "none".into());
    add("-serial", "stdio".into());
    add("-qmp", format!("unix:{},server=on,wait=off", monitor.display()));
    match processor {
        Processor::X86_64 => {
            add("-machine", "pc".into());
            add("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04".into());
        }
        Processor::Aarch64 => {
            add("-machine", "virt,gic-version=3".into());
            add("-semihosting-config", "enable=on,target=native".into());
        }
        // Its other controller of interrupts cannot have nodes of one CPU.
        Processor::Riscv64 => add("-machine", "virt,aia=aplic".into()),
    }
    let accelerator = match () {
        () if arguments.kvm => "kvm",
        // A CPU of RISC-V that waits does not hand its turn on.
        () if processor == Processor::Riscv64 => "tcg",
        () if machine.cpus() >= CPUS_IN_TURN && !arguments.parallel => "tcg,thread=single",
        () => "tcg",
    };
    add("-accel", accelerator.into());
    let cpu = match processor {
        _ if arguments.kvm => "host",
        Processor::X86_64 | Processor::Aarch64 => "max",
        Processor::Riscv64 => "rv64",
    };
    add("-cpu", cpu.into());
    let mib = machine.memory_mib();
    add(
        "-m",
        match plugged {
            Some(more) => format!("{mib}M,slots=1,maxmem={}M", mib + u64::from(more) * 2),
            None => format!("{mib}M"),
        },
    );
    add("-smp", machine.cpus().to_string());
    add_nodes(machine, &mut add);
    if arguments.counts() {
        add("-icount", "shift=0,sleep=off".into());
    }
    add("-kernel", kernel.display().to_string());
    let operations = arguments.operations.unwrap_or(machine.operations);
    add(
        "-append",
        format!(
            "operations={operations} seed={} plugs={} instructions={}",
            arguments.seed,
            u32::from(plugged.is_some()),
            u32::from(arguments.counts())
        ),
    );
    words
}

fn add_nodes(machine: &GuestMachine, add: &mut impl FnMut(&str, String)) {
    let count = machine.machine.nodes.len();
    for (id, mib, cpus) in machine.nodes() {
        let mut words = format!("node,nodeid={id}");
        for cpu in cpus {
            words += &format!(",cpus={cpu}");
        }
        if mib > 0 {
            add("-object", format!("memory-backend-ram,id=m{id},size={mib}M"));
            words += &format!(",memdev=m{id}");
        }
        add("-numa", words);
    }
    if count < 2 {
        return;
    }
    for (at, distance) in machine.machine.distances.iter().enumerate() {
        let (from, to) = (at / count, at % count);
        add("-numa", format!("dist,src={from},dst={to},val={distance}"));
    }
}
