//! `nearpage bench`: what allocating and freeing pages costs on this machine's real memory.

mod bulk;
mod cross;
mod field;
mod machine;
mod measure;
mod orders;
mod pairs;
mod random;
mod reference;
mod rows;
mod source;
mod step;
mod table;
mod threads;

use std::io;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use nearpage_linux::MemoryError;
use nearpage_linux::description::size;
use nearpage_linux::memory::FRAME_BYTES;
use serde::Serialize;

use super::CommandError;
use bulk::SingleLoop;
use field::{Context, Effort, Field};
use machine::{Machine, Settings};
use measure::Clock;
use rows::Row;
use step::{Step, StepError, run_rounds};
use threads::Cpus;

/// Measure what pages cost on this machine's real memory, beside the limit, glibc and the kernel.
///
/// bulk is the table of the bulk page allocator of 2017; the others are times of allocations and frees at
/// one CPU and at all. Without a name: all of them, in a few seconds.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, value_name = "BENCH")]
    benches: Vec<Bench>,

    /// How bulk handles pages one at a time
    #[arg(long = "loop", value_enum, default_value_t = SingleLoop::Exact)]
    single_loop: SingleLoop,

    /// Memory on each node: addresses, of which only what is used becomes memory
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_bytes)]
    bytes: u64,

    /// Rounds that count; one more comes before them [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Shorter rounds, and a tenth of the pages in random
    #[arg(long)]
    quick: bool,

    /// Print one JSON object; --help says what is in it
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
How it is measured: a round does each step once, on threads with a CPU of their own; figures are over the
rounds. Nobody touches the pages. A look at the clock costs some ten allocations, so pairs are timed 1024 at
a time, and bulk times turns: n pages (or as many batches of n as make 512) are allocated between two looks
and freed between the next two. What the looks cost is taken off.

  rseq-limit         a pop and a push by restartable sequences, and nothing around them
  nearpage-hardened  the test at a free is an atomic exchange
  nearpage-locked    without restartable sequences
  glibc              posix_memalign(4096) and free
  mmap               mmap with the page in it, and munmap

JSON (--json): {\"schema\": 1, \"machine\": {...}, \"rows\": [...]}
  machine            cpu, cpus, cpu_list, nodes, memory_bytes, kernel, page_bytes, storage, binding,
                     version, commit, clock_look_ns, bytes_per_node, rounds
  rows[].bench       pair, fill, free_lifo, free_random, cross, order0_pair to order10_pair,
                     single_alloc, single_free, bulk_alloc, bulk_free; with --loop 2017
                     single_alloc_2017 and single_free_2017
  rows[].allocator   as above
  rows[].threads, n  n is pages per call in single_* and bulk_*, pages held in fill and free_*, else 1
  rows[].ns_median, ns_min, ns_max
                     over the rounds: nanoseconds per page; per allocation and free for *pair and cross;
                     with several threads wall time x threads / operations";

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Bench {
    /// n pages at a time and by one call, n = 1 to 16384: the table of 2017
    Bulk,
    /// A page allocated and freed, again and again
    Pairs,
    /// 200000 pages, freed in the best and in a random order
    Random,
    /// Pages allocated on one CPU and freed on another
    Cross,
    /// Blocks of all orders, allocated and freed again and again
    Orders,
}

impl Bench {
    fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Pairs => "pairs",
            Self::Random => "random",
            Self::Cross => "cross",
            Self::Orders => "orders",
        }
    }

    /// Pages that are held at once, at most.
    fn pages(self, effort: &Effort, cpus: usize) -> usize {
        match self {
            Self::Bulk => effort.batch_max + 1,
            Self::Random => effort.fill_pages,
            Self::Pairs | Self::Cross => 4096,
            Self::Orders => 1024 * cpus,
        }
    }

    fn steps<'a>(self, context: Context<'a>, single_loop: SingleLoop) -> Vec<Step<'a>> {
        match self {
            Self::Bulk => bulk::steps(context, single_loop),
            Self::Pairs => pairs::steps(context),
            Self::Random => random::steps(context),
            Self::Cross => cross::steps(context),
            Self::Orders => orders::steps(context),
        }
    }

    fn text(self, rows: &[Row], single_loop: SingleLoop) -> String {
        match self {
            Self::Bulk => table::bulk(rows, single_loop),
            Self::Random => {
                let pages = rows.first().map_or(0, |row| row.key.n);
                table::figures(rows, |work| format!("{work}: ns per page, {pages} pages"))
            }
            Self::Pairs | Self::Cross => {
                table::figures(rows, |work| format!("{work}: ns per allocation and free"))
            }
            Self::Orders => table::orders(rows, "orders: ns per allocation and free"),
        }
    }
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
    /// There is no such memory.
    #[error("--bytes {}: {error}", size::format(*bytes))]
    Memory {
        /// What was asked for.
        bytes: u64,
        /// Why.
        error: MemoryError,
    },
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

impl BenchError {
    /// 2 for what the user can say otherwise, 1 for what went wrong.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Cpus(_) | Self::TooSmall { .. } | Self::Memory { .. } => ExitCode::from(2),
            Self::Step { .. } | Self::Refused { .. } => ExitCode::from(1),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    machine: &'a Machine,
    rows: &'a [Row],
}

const SCHEMA: u32 = 1;

/// Runs the command.
///
/// # Errors
///
/// [`BenchError`], or the output cannot be written.
pub fn run(arguments: &BenchArgs) -> Result<(), CommandError> {
    let run = Run::new(arguments)?;
    let field = run.field()?;
    let settings =
        Settings { clock: run.clock, bytes_per_node: run.bytes, rounds: run.effort.rounds };
    let machine = Machine::this(&field.nearpage, &run.cpus, settings);
    let tell = |text: &str| match arguments.json {
        true => Ok(()),
        false => super::print(text),
    };
    tell(&machine.to_string())?;
    for absent in &field.absent {
        tell(&format!("absent   {absent}\n"))?;
    }
    let mut all = Vec::new();
    for bench in run.benches() {
        if bench == Bench::Cross && run.cpus.count() < cross::THREADS {
            let skipped = "cross: skipped, it takes two CPUs and this process may use one";
            if arguments.json {
                eprintln!("nearpage: {skipped}")
            }
            tell(&format!("\n{skipped}\n"))?;
            continue;
        }
        let rows = run.measure(bench)?;
        tell(&format!("\n{}", bench.text(&rows, arguments.single_loop)))?;
        all.extend(rows);
    }
    if arguments.json {
        let document = Document { schema: SCHEMA, machine: &machine, rows: &all };
        super::print(&(serde_json::to_string_pretty(&document).map_err(io::Error::from)? + "\n"))?;
    }
    Ok(())
}

/// A run whose arguments make sense.
struct Run<'a> {
    arguments: &'a BenchArgs,
    effort: Effort,
    bytes: u64,
    cpus: Cpus,
    clock: Clock,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a BenchArgs) -> Result<Self, BenchError> {
        let mut effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
        effort.rounds = arguments.rounds.map_or(effort.rounds, usize::from);
        let cpus = Cpus::allowed().map_err(BenchError::Cpus)?;
        let bytes = arguments.bytes;
        let run = Self { arguments, effort, bytes, cpus, clock: Clock::calibrate() };
        run.benches().try_for_each(|bench| run.check_bytes(bench))?;
        Ok(run)
    }

    /// Those that were named, or all, in an order of their own.
    fn benches(&self) -> impl Iterator<Item = Bench> {
        let named = &self.arguments.benches;
        let is_named = |bench: &Bench| named.is_empty() || named.contains(bench);
        Bench::value_variants().iter().copied().filter(is_named)
    }

    fn check_bytes(&self, bench: Bench) -> Result<(), BenchError> {
        let pages = bench.pages(&self.effort, self.cpus.count());
        let needed = needed_bytes(pages);
        if self.bytes < needed {
            let (bytes, bench) = (self.bytes, bench.name());
            return Err(BenchError::TooSmall { bytes, bench, pages, needed });
        }
        Ok(())
    }

    fn field(&self) -> Result<Field, BenchError> {
        let bytes = self.bytes;
        Field::new(bytes, &self.cpus).map_err(|error| BenchError::Memory { bytes, error })
    }

    /// Measures on fresh memories, so that the figures don't depend on what was measured before.
    fn measure(&self, bench: Bench) -> Result<Vec<Row>, BenchError> {
        let field = self.field()?;
        let context =
            Context { field: &field, cpus: &self.cpus, effort: self.effort, clock: self.clock };
        let steps = bench.steps(context, self.arguments.single_loop);
        let bench = bench.name();
        let rows = run_rounds(bench, &steps, self.effort.rounds)
            .map_err(|(allocator, error)| BenchError::Step { bench, allocator, error })?;
        for (allocator, memory) in field.memories() {
            let misuses = memory.misuses();
            if misuses > 0 {
                return Err(BenchError::Refused { bench, allocator, misuses });
            }
        }
        drop(steps);
        Ok(rows)
    }
}

/// Memory that lets `pages` be held: watermarks and pagesets keep some to themselves.
fn needed_bytes(pages: usize) -> u64 {
    const MEBIBYTE: u64 = 1 << 20;
    let pages_bytes = pages as u64 * FRAME_BYTES;
    (pages_bytes + pages_bytes / 4).next_multiple_of(MEBIBYTE) + 16 * MEBIBYTE
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("expected {}", size::EXPECTED))
}
