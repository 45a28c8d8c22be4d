//! `nearpage bench`: what allocating and freeing pages costs on this machine's real memory.

mod bulk;
mod counts;
mod cross;
mod field;
mod machine;
mod measure;
mod orders;
mod pairs;
mod random;
mod reference;
mod rows;
mod run;
mod slab;
mod source;
mod step;
mod table;
mod threads;

use std::io;

use clap::{Args, ValueEnum};
use nearpage_linux::description::size;
use serde::Serialize;

use super::CommandError;
use bulk::SingleLoop;
use field::{Context, Effort};
use machine::Machine;
use rows::{Key, Row, Work};
use run::Run;
use slab::Caches;
use step::Step;

pub use run::BenchError;

/// Measure what pages cost on this machine's real memory, beside the limit, glibc and the kernel.
///
/// bulk is the table of the bulk page allocator of 2017; the others are times of allocations and frees at
/// one CPU and at all, of pages and, in slab, of objects. Without a name: all of them, in a few seconds.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, value_name = "BENCH")]
    benches: Vec<Bench>,

    /// How bulk handles pages one at a time
    #[arg(long = "loop", value_name = "HOW", value_enum, default_value_t = SingleLoop::Exact)]
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
rounds. Nobody touches the pages; objects are written to once. A look at the clock costs some ten allocations, so pairs are timed 1024 at
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
                     single_alloc_2017 and single_free_2017; obj_pair, obj_fill, obj_free_random,
                     obj_cross, obj_pair_near, obj_pair_memoryless, obj_pair_memoryless_old
  rows[].allocator   as above
  rows[].threads, n  n is pages per call in single_* and bulk_*, pages held in fill and free_*, bytes of an
                     object in obj_*, else 1
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
    /// Objects of some sizes, held and travelling, and on nodes without memory
    Slab,
}

impl Bench {
    fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Pairs => "pairs",
            Self::Random => "random",
            Self::Cross => "cross",
            Self::Orders => "orders",
            Self::Slab => "slab",
        }
    }

    /// Pages that are held at once, at most.
    fn pages(self, effort: &Effort, cpus: usize) -> usize {
        match self {
            Self::Bulk => effort.batch_max + 1,
            Self::Random => effort.fill_pages,
            Self::Pairs | Self::Cross => 4096,
            Self::Orders => 1024 * cpus,
            // A page has 64 objects.
            Self::Slab => effort.objects / 64 + 4096,
        }
    }

    fn steps<'a>(
        self,
        context: Context<'a>,
        single_loop: SingleLoop,
        caches: Option<&'static Caches>,
    ) -> Vec<Step<'a>> {
        match self {
            Self::Bulk => bulk::steps(context, single_loop),
            Self::Pairs => pairs::steps(context),
            Self::Random => random::steps(context),
            Self::Cross => cross::steps(context),
            Self::Orders => orders::steps(context),
            Self::Slab => caches.map_or(Vec::new(), |caches| slab::steps(context, caches)),
        }
    }

    fn text(self, rows: &[Row], single_loop: SingleLoop) -> String {
        match self {
            Self::Bulk => table::bulk(rows, single_loop),
            Self::Random => {
                let pages = rows.first().map_or(0, |row| row.key.n);
                table::figures(rows, |key| format!("{}: ns per page, {pages} pages", key.work))
            }
            Self::Pairs | Self::Cross => {
                table::figures(rows, |key| format!("{}: ns per allocation and free", key.work))
            }
            Self::Orders => table::orders(rows, "orders: ns per allocation and free"),
            Self::Slab => table::figures(rows, |Key { work, n, .. }| match work {
                Work::ObjFill | Work::ObjFreeRandom => {
                    format!("{work}: ns per object of {n} bytes")
                }
                _ => format!("{work}: ns per allocation and free, {n} bytes"),
            }),
        }
    }
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    machine: Machine,
    rows: Vec<Row>,
}

const SCHEMA: u32 = 1;

/// Runs the command.
///
/// # Errors
///
/// [`BenchError`], or the output cannot be written.
pub fn run(arguments: &BenchArgs) -> Result<(), CommandError> {
    let run = Run::new(arguments)?;
    if arguments.json { print_json(&run) } else { print_text(&run) }
}

/// Each table as soon as it is there.
fn print_text(run: &Run) -> Result<(), CommandError> {
    let field = run.field()?;
    super::print(&Machine::this(&field.nearpage, run).to_string())?;
    for absent in &field.absent {
        super::print(&format!("absent   {absent}\n"))?;
    }
    for &bench in &run.benches {
        let text = match run.why_not(bench) {
            Some(why) => format!("\n{}: skipped, {why}\n", bench.name()),
            None => {
                let (rows, counts) = run.measure(bench)?;
                let (figures, counts) =
                    (bench.text(&rows, run.single_loop), table::counts(&counts));
                format!("\n{figures}\n{counts}")
            }
        };
        super::print(&text)?;
    }
    Ok(())
}

fn print_json(run: &Run) -> Result<(), CommandError> {
    let machine = Machine::this(&run.field()?.nearpage, run);
    let mut rows = Vec::new();
    for &bench in &run.benches {
        match run.why_not(bench) {
            Some(why) => eprintln!("nearpage: {}: skipped, {why}", bench.name()),
            None => rows.extend(run.measure(bench)?.0),
        }
    }
    let document = Document { schema: SCHEMA, machine, rows };
    let text = serde_json::to_string_pretty(&document).map_err(io::Error::from)?;
    super::print(&(text + "\n"))
}

pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("expected {}", size::EXPECTED))
}
