//! `cargo xtask kernel`: the kernel of `examples/kernel`, built, booted in QEMU on machines of several nodes, and judged by
//! what it says.
//!
//! Nothing is installed: what is missing is named, and with `--skip-missing` one line says so and the command succeeds.

mod bounds;
mod build;
mod emulator;
mod error;
mod machines;
pub mod plug;
mod sizes;
mod texts;

use std::time::Instant;

use clap::{Args, ValueEnum};

use build::{Fault, Purpose, build};
use emulator::{Ended, run_machine};
pub use error::KernelError;
use machines::{GuestMachine, named, of_short_form};

/// Build the kernel of examples/kernel and boot it in QEMU
#[derive(Args)]
pub struct KernelArgs {
    /// Add a node with this much memory and these CPUs: 512M,cpus=0-1. The first is node 0. Default: a machine of two nodes
    #[arg(long, value_name = "SIZE[,cpus=LIST]")]
    numa: Vec<String>,
    /// Set a distance, in both directions unless the other is given too: 0,1=21. The default is 20
    #[arg(long, value_name = "NODE,NODE=DISTANCE", requires = "numa")]
    numa_distance: Vec<String>,
    /// One of the machines that have a name: one, two, asymmetric, memoryless, no-cpus, 8-of-2, shared-section, 32-cpus
    #[arg(long, value_name = "NAME", conflicts_with_all = ["numa", "all", "instructions", "sizes", "faults", "bounds", "stack"])]
    machine: Option<String>,
    /// All machines of all processors, and all planted faults: minutes
    #[arg(long, conflicts_with_all = ["numa", "processor"])]
    all: bool,
    /// The processor
    #[arg(long, value_enum, default_value_t = Processor::X86_64)]
    processor: Processor,
    /// Operations of each CPU in the stress: at least 1000, by which each kind of them comes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1000..))]
    operations: Option<u32>,
    /// Where all random numbers come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Count the instructions of operations instead, on one CPU
    #[arg(long, conflicts_with_all = ["all", "numa"])]
    instructions: bool,
    /// Count what each call takes at most, in all and with interrupts off, after random use of 1, 4 and 16 GiB, instead; on x86_64
    #[arg(long, conflicts_with_all = ["all", "numa", "instructions", "sizes", "processor", "kvm"])]
    bounds: bool,
    /// Paint the stack, and tell what each call takes of it in release and without optimization, instead
    #[arg(long, conflicts_with_all = ["all", "numa", "instructions", "sizes", "bounds", "kvm"])]
    stack: bool,
    /// Weigh the smallest kernels by features, and count what a boot takes a frame, instead
    #[arg(long, conflicts_with_all = ["all", "numa", "instructions"])]
    sizes: bool,
    /// Plant each fault, and see it found, instead; on x86_64
    #[arg(long, conflicts_with_all = ["all", "numa", "instructions", "sizes", "processor"])]
    faults: bool,
    /// Use the host's processor, where it has virtualization to give
    #[arg(long)]
    kvm: bool,
    /// Let all CPUs of the machine run at once, though this one may have fewer: slower, with other orders of events
    #[arg(long, conflicts_with = "instructions")]
    parallel: bool,
    /// Say in one line what is missing, and succeed
    #[arg(long)]
    skip_missing: bool,
    /// Show all that the kernel says
    #[arg(long)]
    verbose: bool,
}

impl KernelArgs {
    /// Whether instructions are counted.
    const fn counts(&self) -> bool {
        self.instructions || self.sizes || self.bounds || self.stack
    }
}

/// A processor that the kernel is built for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Processor {
    /// A PC.
    #[value(name = "x86_64")]
    X86_64,
    /// QEMU's board `virt`.
    Aarch64,
    /// The same for RISC-V, under its firmware.
    Riscv64,
}

impl Processor {
    /// Rust's name of the target.
    pub const fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-none",
            Self::Aarch64 => "aarch64-unknown-none",
            Self::Riscv64 => "riscv64gc-unknown-none-elf",
        }
    }

    /// The emulator.
    pub const fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
            Self::Riscv64 => "qemu-system-riscv64",
        }
    }

    /// The package that has it.
    pub const fn package(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86",
            Self::Aarch64 => "qemu-system-arm",
            Self::Riscv64 => "qemu-system-misc",
        }
    }
}

/// Boots one machine, or all.
///
/// # Errors
///
/// [`KernelError`].
pub fn run(arguments: &KernelArgs) -> Result<(), KernelError> {
    match boot(arguments) {
        Err(error) if error.is_missing() && arguments.skip_missing => {
            println!("SKIPPED: the kernel was not booted: {error}");
            Ok(())
        }
        done => done,
    }
}

fn boot(arguments: &KernelArgs) -> Result<(), KernelError> {
    if arguments.all {
        return boot_all(arguments);
    }
    if arguments.sizes {
        sizes::weigh(arguments.processor)?;
        return sizes::boot_cost(arguments);
    }
    if arguments.bounds {
        return bounds::measure(arguments);
    }
    if arguments.stack {
        return bounds::stack(arguments);
    }
    if arguments.faults {
        return Fault::ALL.into_iter().try_for_each(|fault| find_fault(arguments, fault));
    }
    let machine = match &arguments.machine {
        _ if arguments.instructions => named("one")?,
        Some(name) => named(name)?,
        None if arguments.numa.is_empty() => named("two")?,
        None => of_short_form(&arguments.numa, &arguments.numa_distance)?,
    };
    judge(arguments, arguments.processor, &machine)?;
    let is_plain = !arguments.instructions && arguments.processor == Processor::X86_64;
    if is_plain { boot_smallest(arguments) } else { Ok(()) }
}

/// What the kernel of forty lines prints, as its readers see it.
const GUIDE: &str = include_str!("../../docs/src/guides/in-your-kernel.md");

/// The kernel of the book has a page from each node: those that the book shows.
fn boot_smallest(arguments: &KernelArgs) -> Result<(), KernelError> {
    let machine = named("two")?;
    let kernel = build(Processor::X86_64, Purpose::Smallest)?;
    let ran = run_machine(arguments, Processor::X86_64, &machine, &kernel)?;
    let nodes = machine.machine.nodes.len();
    let is_page = |line: &&str| line.contains(": page frame 0x");
    let pages: Vec<&str> = ran.lines.iter().map(|line| line.trim()).filter(is_page).collect();
    let told: Vec<&str> = GUIDE.lines().filter(is_page).collect();
    if ran.ended != Ended::Passed || pages.len() != nodes || pages != told {
        ran.show_end();
        eprintln!("the guide has {told:?}, the kernel printed {pages:?}");
        return Err(KernelError::Machine { name: "examples/smallest".into(), ended: ran.ended });
    }
    println!(
        "examples/smallest: a page of each of {nodes} nodes, in {:.1} s",
        ran.time.as_secs_f64()
    );
    Ok(())
}

fn boot_all(arguments: &KernelArgs) -> Result<(), KernelError> {
    let begun = Instant::now();
    let mut count = 0;
    for processor in [Processor::X86_64, Processor::Aarch64, Processor::Riscv64] {
        for machine in machines::all().filter(|machine| machine.unfit(processor).is_none()) {
            judge(arguments, processor, &machine)?;
            count += 1;
        }
    }
    boot_smallest(arguments)?;
    for fault in Fault::ALL {
        find_fault(arguments, fault)?;
    }
    let seconds = begun.elapsed().as_secs();
    println!(
        "{count} machines passed, {} planted faults were found, in {seconds} s",
        Fault::ALL.len()
    );
    Ok(())
}

fn judge(
    arguments: &KernelArgs,
    processor: Processor,
    machine: &GuestMachine,
) -> Result<(), KernelError> {
    if let Some(why) = machine.unfit(processor) {
        return Err(KernelError::Unfit(why.into()));
    }
    let purpose = if arguments.instructions { Purpose::Beside } else { Purpose::Checks };
    let kernel = build(processor, purpose)?;
    let ran = run_machine(arguments, processor, machine, &kernel)?;
    let name = format!("{} on {}", machine.name, processor.target());
    for line in ran.lines.iter().filter(|line| arguments.verbose || is_result(line)) {
        println!("{name}: {line}");
    }
    ran.passed(&name)?;
    if !arguments.instructions {
        texts::compare(&ran, machine, processor)?;
        println!(
            "{name}: texts: zoneinfo, buddyinfo and distances are as `nearpage topo` predicts"
        );
    }
    println!("{name}: passed in {:.1} s", ran.time.as_secs_f64());
    Ok(())
}

/// A fault is found if the machine fails, and says what the fault looks like.
fn find_fault(arguments: &KernelArgs, fault: Fault) -> Result<(), KernelError> {
    let machine = named(fault.machine())?;
    let kernel = build(Processor::X86_64, Purpose::Fault(fault))?;
    let ran = run_machine(arguments, Processor::X86_64, &machine, &kernel)?;
    let told = ran.lines.iter().find(|line| fault.signs().iter().any(|sign| line.contains(sign)));
    match told {
        Some(line) if ran.ended == Ended::Failed => {
            println!("fault {}: found: {line}", fault.feature());
            Ok(())
        }
        _ => {
            ran.show_end();
            Err(KernelError::FaultNotFound { fault: fault.feature(), ended: ran.ended })
        }
    }
}

/// Whether a line is one of those that say what a check did.
fn is_result(line: &str) -> bool {
    const CHECKS: [&str; 15] = [
        "nearpage on",
        "firmware:",
        "later:",
        "conformance:",
        "placement:",
        "stress:",
        "walker,",
        "plugged:",
        "exhausted:",
        "exhaustion:",
        "unmaskable:",
        "ranges:",
        "own:",
        "instructions:",
        "boot:",
    ];
    CHECKS.iter().any(|check| line.starts_with(check))
}
