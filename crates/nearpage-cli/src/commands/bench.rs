//! `nearpage bench`: what allocating and freeing pages costs on this machine's real memory.

mod addresses;
mod bulk;
mod counts;
mod cross;
mod field;
mod machine;
mod measure;
mod orders;
mod pagelock;
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
mod zonelist;

use clap::{Args, ValueEnum};
use nearpage_linux::memory::StorageInUse;
use nearpage_machine::description::size;
use serde::Serialize;

use super::CommandError;
use field::{Context, Effort, Field};
use machine::Machine;
use rows::{Key, Row, Work};
use run::{Measured, Run};
use slab::Caches;
use step::Step;
use zonelist::Scans;

pub use bulk::SingleLoop;
pub use run::BenchError;
pub(super) use step::StepError;
pub(super) use threads::Cpus;

/// Measure what pages cost on this machine's real memory, beside the limit, glibc and the kernel.
///
/// bulk is the table of the bulk page allocator of 2017; the others are times of allocations and frees at
/// one CPU and at all, of pages and, in slab, of objects. Without a name: all of them but zonelist, in some
/// twenty seconds.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, value_name = "BENCH")]
    benches: Vec<Bench>,

    /// How bulk handles pages one at a time; refused without bulk [default: exact]
    #[arg(long = "loop", value_name = "HOW", value_enum)]
    single_loop: Option<SingleLoop>,

    /// Memory on each node, up to 16383G: addresses, of which only what is used becomes memory. nearpage, its locked
    /// and its hardened variant have as much each; slab has as many memories again, and 4 more. Refused with zonelist
    /// alone, whose emulated nodes have 8M each [default: 2G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<u64>,

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
How it is measured: a round does each step once, on threads with a CPU of their own. Nobody touches the
pages; objects are written to once. A look at the clock costs some ten allocations, so a sample is 1024 operations
of one thread; in cross it is 8192, of which a full queue is an eighth. Median, min and max are over the rounds,
p99 is over the samples of all rounds. bulk times turns: n pages (or as many batches of n as make 512) are allocated
between two looks and freed between the next two; a round is all its turns, and the table has means. What the looks
cost is taken off.

  rseq-limit         a pop and a push by restartable sequences, and nothing around them
  rseq-limit-pair    in random, cross and orders: the same, each CPU with its own numbers. Without zones there is
                     nothing to fill, to send to another CPU, or to split
  nearpage-hardened  the test at a free is an atomic exchange
  nearpage-locked    without restartable sequences
  glibc              posix_memalign(4096) and free; in random a tenth of the pages, since all would be memory
  mmap               mmap with the pages in it, and munmap; fewer of them, since they are slow: a hundredth
                     of the pages in random; samples of 64 pages or of one larger block, of 512 in cross
  off, original, keyed
                     in zonelist: the rules of the zonelist cache. Nodes are emulated, 8 MiB each; in near
                     the first alone has room, in far the last alone
  nearpage-global, nearpage-per-zone, nearpage-no-waiters-bit
                     page locks under other rules: where their wait tables are, and whether an unlock
                     looks at them each time
  std                the standard library's mutex, in lock_*

JSON (--json): {\"schema\": 1, \"machine\": {...}, \"rows\": [...], \"scans\": [...]}
  machine            cpu, cpus, cpu_list, nodes, memory_bytes, kernel, page_bytes, storage, binding,
                     version, commit, clock_look_ns, bytes_per_node, rounds
  rows[].bench       pair, fill, free_lifo, free_random, cross, order0_pair to order10_pair,
                     single_alloc, single_free, bulk_alloc, bulk_free; with --loop 2017
                     single_alloc_2017 and single_free_2017; near and far in zonelist; lock_pair,
                     lock_contended; obj_pair, obj_fill, obj_free_random, obj_cross, obj_pair_near,
                     obj_pair_memoryless, obj_pair_memoryless_old
  rows[].allocator   as above
  rows[].threads, n  n is pages per call in single_* and bulk_*, pages held in fill and free_* (1 for
                     rseq-limit-pair), nodes in near and far, bytes of an object in obj_*, 0 in lock_*, else 1
  rows[].ns_median, ns_min, ns_max
                     over the rounds: nanoseconds per page; per allocation and free for *pair and *cross,
                     per lock and unlock for lock_*;
                     with several threads wall time x threads / operations
  rows[].ns_p99      over the samples of all rounds, per operation as ns_median; null in single_* and bulk_*,
                     where a round is not divided
  scans[]            only with zonelist: bench, allocator, n; pages allocated, zones_visited and
                     zones_skipped behind the first, second_passes, zaps";

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
    /// A page past 27 and past 255 full nodes, with and without the zonelist cache; only if named
    Zonelist,
    /// The lock of a page, locked and unlocked by one thread, and by two
    Pagelock,
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
            Self::Zonelist => "zonelist",
            Self::Pagelock => "pagelock",
            Self::Slab => "slab",
        }
    }

    /// Pages that are held at once, at most.
    fn pages(self, effort: &Effort, cpus: usize) -> usize {
        match self {
            Self::Bulk => effort.batch_max + 1,
            Self::Random => effort.fill_pages,
            Self::Pairs | Self::Cross | Self::Zonelist => 4096,
            Self::Orders => 1024 * cpus,
            Self::Pagelock => 1,
            // A page has 64 objects.
            Self::Slab => effort.objects / 64 + 4096,
        }
    }

    /// Memories of `--bytes` that are there at once: those of the field, and of `slab` those of objects beside them.
    fn memories(self, nodes: usize, storage: StorageInUse) -> usize {
        let of_field = Field::memories_on(nodes, storage);
        if self == Self::Slab { of_field + Caches::memories_on(nodes) } else { of_field }
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
            // Its steps are on memories of its own: `Run::measure`.
            Self::Zonelist => Vec::new(),
            Self::Pagelock => pagelock::steps(context),
            Self::Slab => caches.map_or(Vec::new(), |caches| slab::steps(context, caches)),
        }
    }

    fn text(self, measured: &Measured, single_loop: SingleLoop) -> String {
        let rows = measured.rows.as_slice();
        match self {
            Self::Bulk => table::bulk(rows, single_loop),
            Self::Random => table::figures(rows, |Key { work, n, .. }| {
                format!("{work}: ns per page, {n} pages")
            }),
            Self::Pairs | Self::Cross => {
                table::figures(rows, |key| format!("{}: ns per allocation and free", key.work))
            }
            Self::Pagelock => {
                table::figures(rows, |key| format!("{}: ns per lock and unlock", key.work))
            }
            Self::Orders => table::orders(rows, "orders: ns per allocation and free"),
            Self::Zonelist => table::zonelist(rows, &measured.scans),
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scans: Vec<Scans>,
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
    super::print(&heading(run)?)?;
    for &bench in &run.benches {
        let text = match run.why_not(bench) {
            Some(why) => format!("\n{}: skipped, {why}\n", bench.name()),
            None => {
                let measured = run.measure(bench)?;
                let figures = bench.text(&measured, run.single_loop);
                let counts = match measured.counts.as_slice() {
                    [] => String::new(),
                    counts => table::counts(counts),
                };
                format!("\n{figures}\n{counts}")
            }
        };
        super::print(&text)?;
    }
    Ok(())
}

/// Where is measured. The memories that it looks at are gone when those of the first table are made: a limit of
/// addresses (`ulimit -v`) has room for them once.
fn heading(run: &Run) -> Result<String, BenchError> {
    let field = run.field()?;
    let absent = field.absent.iter().map(|absent| format!("absent   {absent}\n"));
    Ok(Machine::this(&field.nearpage, run).to_string() + &absent.collect::<String>())
}

fn print_json(run: &Run) -> Result<(), CommandError> {
    let machine = Machine::this(&run.field()?.nearpage, run);
    let (mut rows, mut scans) = (Vec::new(), Vec::new());
    for &bench in &run.benches {
        match run.why_not(bench) {
            Some(why) => eprintln!("nearpage: {}: skipped, {why}", bench.name()),
            None => {
                let measured = run.measure(bench)?;
                rows.extend(measured.rows);
                scans.extend(measured.scans);
            }
        }
    }
    let document = Document { schema: SCHEMA, machine, rows, scans };
    super::print_json(&document)
}

pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("expected {}", size::EXPECTED))
}

/// A line of the table of 2017.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct BulkLine {
    /// Pages a call.
    pub(super) n: usize,
    /// What a page costs, one at a time.
    pub(super) single: f64,
    /// What it costs in bulk.
    pub(super) bulk: f64,
}

/// Allocations and frees as published, in cycles.
pub(super) type PublishedBulk = [Vec<BulkLine>; 2];

pub(super) fn published_bulk() -> PublishedBulk {
    [reference::ALLOC, reference::FREE].map(|lines| {
        let line = |line: &reference::Published| BulkLine {
            n: line.n,
            single: line.single_cycles,
            bulk: line.bulk_cycles,
        };
        lines.iter().map(line).collect()
    })
}

/// Measures `bulk` as the command does: allocations and frees, ns.
pub(super) fn measure_bulk(single_loop: SingleLoop) -> Result<[Vec<BulkLine>; 2], BenchError> {
    let run = Run::new(&BenchArgs {
        benches: vec![Bench::Bulk],
        single_loop: Some(single_loop),
        bytes: None,
        rounds: None,
        quick: false,
        json: false,
    })?;
    let rows = run.measure(Bench::Bulk)?.rows;
    let ns = |work, n| {
        let is_it = |row: &&Row| row.key.work == work && row.key.n == n;
        rows.iter().find(is_it).map(|row| row.summary.median)
    };
    let [alloc, free] = single_loop.works();
    let columns = [(alloc, rows::Work::BulkAlloc), (free, rows::Work::BulkFree)];
    Ok(columns.map(|(single, bulk)| {
        let line = |n| Some(BulkLine { n, single: ns(single, n)?, bulk: ns(bulk, n)? });
        bulk::sizes(run.effort.batch_max).filter_map(line).collect()
    }))
}
