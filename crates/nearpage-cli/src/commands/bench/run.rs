//! One run of the command: what is measured, on what, and what can go wrong.

use std::io;
use std::process::ExitCode;

use clap::ValueEnum;
use nearpage_linux::environment::Environment;
use nearpage_linux::memory::{FRAME_BYTES, StorageInUse};
use nearpage_linux::{HostNode, MemoryError};
use nearpage_machine::description::size;

use super::addresses::{self, Memories, NoAddresses};
use super::bulk::SingleLoop;
use super::counts::Counts;
use super::cross;
use super::field::{Context, Effort, Field};
use super::measure::Clock;
use super::rows::Row;
use super::slab::Caches;
use super::step::{StepError, run_rounds};
use super::threads::Cpus;
use super::zonelist::{self, Filled, Scans};
use super::{Bench, BenchArgs};

/// What is to be done, and where: arguments that make sense on this machine.
pub struct Run {
    /// What is measured, in this order.
    pub benches: Vec<Bench>,
    /// How `bulk` handles single pages.
    pub single_loop: SingleLoop,
    /// How much is done.
    pub effort: Effort,
    /// Memory on each node.
    pub bytes_per_node: u64,
    /// Where.
    pub cpus: Cpus,
    /// The clock.
    pub clock: Clock,
}

/// What a benchmark came to.
pub struct Measured {
    /// Times.
    pub rows: Vec<Row>,
    /// What the memories of the field counted.
    pub counts: Vec<Counts>,
    /// What scans did, in `zonelist`.
    pub scans: Vec<Scans>,
}

impl Run {
    /// Looks at the machine, and whether the arguments fit it.
    ///
    /// # Errors
    ///
    /// [`BenchError::Cpus`], [`BenchError::TooSmall`], [`BenchError::TooLarge`], [`BenchError::Unused`],
    /// [`BenchError::NoAddressesForNodes`] and [`BenchError::NoAddresses`].
    pub fn new(arguments: &BenchArgs) -> Result<Self, BenchError> {
        let named = |bench: &Bench| match arguments.benches.as_slice() {
            [] => *bench != Bench::Zonelist,
            benches => benches.contains(bench),
        };
        let mut effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
        effort.rounds = arguments.rounds.map_or(effort.rounds, usize::from);
        let run = Self {
            benches: Bench::value_variants().iter().copied().filter(named).collect(),
            single_loop: arguments.single_loop.unwrap_or(SingleLoop::Exact),
            effort,
            bytes_per_node: arguments.bytes.unwrap_or(BYTES_DEFAULT),
            cpus: Cpus::allowed().map_err(BenchError::Cpus)?,
            clock: Clock::calibrate(),
        };
        if run.bytes_per_node > BYTES_MAX {
            return Err(BenchError::TooLarge { bytes: run.bytes_per_node });
        }
        run.check_unused(arguments)?;
        run.benches.iter().try_for_each(|&bench| run.check_bytes(bench))?;
        let limit = addresses::limit();
        if let Some(bytes) = limit.filter(|&bytes| bytes < zonelist::ADDRESS_BYTES)
            && run.benches.contains(&Bench::Zonelist)
        {
            return Err(BenchError::NoAddressesForNodes { bytes });
        }
        run.memories().check(limit).map_err(BenchError::NoAddresses)?;
        Ok(run)
    }

    /// An option that changes nothing of what is measured would let its user believe that it did.
    fn check_unused(&self, arguments: &BenchArgs) -> Result<(), BenchError> {
        let names: Vec<_> = self.benches.iter().map(|bench| bench.name()).collect();
        let unused =
            |option, user| Err(BenchError::Unused { option, user, benches: names.join(", ") });
        if let Some(how) = arguments.single_loop.filter(|_| !self.benches.contains(&Bench::Bulk)) {
            return unused(format!("--loop {}", how.name()), "bulk");
        }
        if let Some(bytes) = arguments.bytes.filter(|_| self.benches == [Bench::Zonelist]) {
            return unused(format!("--bytes {}", size::format(bytes)), "all but zonelist");
        }
        Ok(())
    }

    /// The most memories that there are at once.
    fn memories(&self) -> Memories {
        // Who cannot read the environment or the machine is told when the memories are made.
        let environment = Environment::read().unwrap_or_default();
        let has_memory = |node: &&HostNode| node.has_memory;
        let nodes = environment
            .machine()
            .map_or(1, |machine| machine.nodes.iter().filter(has_memory).count());
        let storage = StorageInUse::of_this_process(&environment);
        let count = |bench: Bench| bench.memories(nodes, storage);
        let largest = self.benches.iter().copied().rev().max_by_key(|&bench| count(bench));
        let largest = largest.unwrap_or(Bench::Bulk);
        let least = |&bench: &Bench| needed_bytes(bench.pages(&self.effort, self.cpus.count()));
        Memories {
            bench: largest.name(),
            count: count(largest) as u64,
            bytes: self.bytes_per_node,
            least: self.benches.iter().map(least).max().unwrap_or(0),
            cpus: self.cpus.count() as u64,
        }
    }

    /// Why memories could not be made.
    fn refused(&self, error: MemoryError) -> BenchError {
        match error {
            MemoryError::NoAddresses { error, .. } | MemoryError::NoMemory { error, .. } => {
                BenchError::NoAddresses(self.memories().refused(addresses::limit(), &error))
            }
            error => BenchError::Memory { bytes: self.bytes_per_node, error },
        }
    }

    fn check_bytes(&self, bench: Bench) -> Result<(), BenchError> {
        let pages = bench.pages(&self.effort, self.cpus.count());
        let (bytes, needed) = (self.bytes_per_node, needed_bytes(pages));
        if bytes < needed {
            return Err(BenchError::TooSmall { bytes, bench: bench.name(), pages, needed });
        }
        Ok(())
    }

    /// Why a benchmark is impossible here.
    pub fn why_not(&self, bench: Bench) -> Option<&'static str> {
        let too_few = bench == Bench::Cross && self.cpus.count() < cross::THREADS;
        too_few.then_some("it takes two CPUs and this process may use one")
    }

    /// Makes fresh memories.
    ///
    /// # Errors
    ///
    /// [`BenchError::NoAddresses`] and [`BenchError::Memory`].
    pub fn field(&self) -> Result<Field, BenchError> {
        Field::new(self.bytes_per_node, &self.cpus).map_err(|error| self.refused(error))
    }

    /// Measures on fresh memories, so that the figures don't depend on what was measured before.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn measure(&self, bench: Bench) -> Result<Measured, BenchError> {
        let field = self.field()?;
        let filled = self.filled(bench)?;
        let context =
            Context { field: &field, cpus: &self.cpus, effort: self.effort, clock: self.clock };
        let caches = match bench {
            Bench::Slab => {
                let caches = Caches::new(self.bytes_per_node, &self.cpus);
                Some(caches.map_err(|error| self.refused(error))?)
            }
            _ => None,
        };
        let steps = match bench {
            Bench::Zonelist => zonelist::steps(context, &filled),
            _ => bench.steps(context, self.single_loop, caches),
        };
        let bench = bench.name();
        let rows = run_rounds(bench, &steps, self.effort.rounds)
            .map_err(|(allocator, error)| BenchError::Step { bench, allocator, error })?;
        let misuses_of = field.memories().map(|(name, memory)| (name, memory.misuses()));
        let of_filled = filled.iter().map(|filled| (filled.scans().allocator, filled.misuses()));
        for (allocator, misuses) in misuses_of.chain(of_filled) {
            if misuses > 0 {
                return Err(BenchError::Refused { bench, allocator, misuses });
            }
        }
        if let Some(misuses) = caches.map(Caches::misuses).filter(|&misuses| misuses > 0) {
            return Err(BenchError::Refused { bench, allocator: "nearpage", misuses });
        }
        let counts = field.memories().filter_map(|(name, memory)| Counts::of(name, memory));
        let scans = filled.iter().map(Filled::scans).collect();
        Ok(Measured { rows, counts: counts.collect(), scans })
    }

    fn filled(&self, bench: Bench) -> Result<Vec<Filled>, BenchError> {
        if bench != Bench::Zonelist {
            return Ok(Vec::new());
        }
        zonelist::fill(&self.cpus).map_err(BenchError::Nodes)
    }
}

/// Memory on each node if nothing is said.
const BYTES_DEFAULT: u64 = 2 << 30;
/// A zone has at most 2^32 - 1 frames: whole sections of what is below.
const BYTES_MAX: u64 = (1 << 32) * FRAME_BYTES - (1 << 30);

/// Memory that lets `pages` be held: watermarks and pagesets keep some to themselves.
fn needed_bytes(pages: usize) -> u64 {
    const MEBIBYTE: u64 = 1 << 20;
    let pages_bytes = pages as u64 * FRAME_BYTES;
    (pages_bytes + pages_bytes / 4).next_multiple_of(MEBIBYTE) + 16 * MEBIBYTE
}

/// Why nothing, or not all, was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// This process does not learn where it may run.
    #[error("cannot tell which CPUs this process may use: {0}")]
    Cpus(#[source] io::Error),
    /// The memory that was asked for is too small for the benchmark.
    #[error(
        "--bytes {}: {bench} holds {pages} pages at once, expected {} or more",
        size::format(*bytes),
        size::format(*needed)
    )]
    TooSmall {
        /// What was asked for.
        bytes: u64,
        /// The benchmark.
        bench: &'static str,
        /// Pages that it holds.
        pages: usize,
        /// What it needs.
        needed: u64,
    },
    /// The memory that was asked for is more than a node can have.
    #[error(
        "--bytes {}: a node has at most 2^32 - 1 frames of 4 KiB, expected {}G or less",
        size::format(*bytes),
        BYTES_MAX >> 30
    )]
    TooLarge {
        /// What was asked for.
        bytes: u64,
    },
    /// Nothing of what is measured looks at an option.
    #[error("{option}: it belongs to {user}, and changes nothing in {benches}")]
    Unused {
        /// The option as it was given.
        option: String,
        /// The benchmarks that look at it.
        user: &'static str,
        /// What is measured.
        benches: String,
    },
    /// There are not enough addresses for the memories.
    #[error(transparent)]
    NoAddresses(NoAddresses),
    /// There are not enough addresses for emulated nodes.
    #[error(
        "zonelist: its memories reserve {reserved} of addresses, whatever --bytes is, and `ulimit -v` allows {bytes}, \
         expected `ulimit -v unlimited`, or the other benchmarks alone",
        reserved = size::format(zonelist::ADDRESS_BYTES),
        bytes = size::format(*bytes)
    )]
    NoAddressesForNodes {
        /// The limit.
        bytes: u64,
    },
    /// There is no such memory.
    #[error("{}{error}", blame(*bytes, error))]
    Memory {
        /// What was asked for.
        bytes: u64,
        /// Why.
        error: MemoryError,
    },
    /// There are no such nodes.
    #[error(
        "zonelist: emulated nodes: {0}; all its memories together reserve {reserved} of addresses, whatever --bytes is",
        reserved = size::format(zonelist::ADDRESS_BYTES)
    )]
    Nodes(#[source] MemoryError),
    /// A step could not be done.
    #[error("{bench}, {allocator}: {error}")]
    Step {
        /// The benchmark.
        bench: &'static str,
        /// Who was measured.
        allocator: &'static str,
        /// Why.
        error: StepError,
    },
    /// An allocator refused to take its own pages back.
    #[error("{bench}, {allocator}: {misuses} frees were refused")]
    Refused {
        /// The benchmark.
        bench: &'static str,
        /// The allocator.
        allocator: &'static str,
        /// How many.
        misuses: u64,
    },
}

/// The option that is to blame for an error; nothing if it is the environment.
fn blame(bytes: u64, error: &MemoryError) -> String {
    match error {
        MemoryError::Environment(_) => String::new(),
        _ => format!("--bytes {}: ", size::format(bytes)),
    }
}

impl BenchError {
    /// 2 for what the user can say otherwise, 1 for what went wrong.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Cpus(_)
            | Self::TooSmall { .. }
            | Self::TooLarge { .. }
            | Self::Unused { .. }
            | Self::NoAddresses(_)
            | Self::NoAddressesForNodes { .. }
            | Self::Memory { .. } => ExitCode::from(2),
            Self::Nodes(_) | Self::Step { .. } | Self::Refused { .. } => ExitCode::from(1),
        }
    }
}
