//! `nearpage bench`: what allocating and freeing pages costs on this machine's real memory.

mod table;

use clap::{Args, ValueEnum};
use nearpage::Model;
use nearpage_bench::{BenchError, Document, Key, Measured, Options, Row, Run, Work};
use nearpage_machine::size;

use super::input;
use super::progress::Bar;
use super::{CommandError, environment};
use crate::terminal;

/// Measure what pages cost on this machine's real memory, beside the limit, glibc and the kernel.
///
/// bulk is the table of the bulk page allocator of 2017; the others are times of allocations and frees at
/// one CPU and at all, of pages and, in slab, of objects. fragmentation and order9 are about what is left of large blocks
/// after single pages were used at random: fragmentation counts, and times nothing. Without a name: all of them but
/// mixed, fragmentation, order9 and zonelist, in half a minute.
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
    /// and its hardened variant have as much each, and so has each --model; slab has as many memories again, and 4 more.
    /// Refused with zonelist alone, whose emulated nodes have 8M each [default: 2G; several sizes in fragmentation and
    /// order9]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<u64>,

    /// Other rules beside nearpage's own, in pairs, random, replace, cross, orders, tails, mixed, fragmentation and order9;
    /// repeats
    #[arg(long = "model", value_name = "MODEL", value_parser = input::rules())]
    models: Vec<Model>,

    /// Threads in fragmentation, each with a CPU of its own as the allocator sees it, however many CPUs there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,

    /// Where the randomness of fragmentation begins. With --threads, --seed or --bytes it is one experiment in place of
    /// six; what is not said is 2 threads, 4G and 42
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Rounds that count; one more comes before them. Refused with fragmentation alone [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Shorter rounds, a tenth of the pages in random and replace, and 256M in fragmentation and order9
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
cost is taken off. In tails each call is a sample: two threads hold 80 % of a memory, and each, again and again, shuffles its
blocks, frees a fifth, and takes as many. random holds ten times as many pages too, in memories of their own. In replace a
thread frees one of its pages, chosen at random before the clock starts, and takes another, as often as it holds pages; it has
done so once before, untimed. In mixed two threads hold 60 % of a memory in single pages and 20 % in blocks of order 9,
and free and take back a fifth of the single pages; then, again and again, one time in eight a block of order 9 is freed at
random or one is taken, else 1 to 64 single pages are taken, or freed at random, within 4000 pages of what a thread began
with. Each call is timed by rdtscp, or by the system's clock where that is not to be had. In order9 a thread takes all pages of a fresh memory, frees them in random order but for
one of each pageblock, and asks for a block of order 9, which there cannot be; another thread takes and frees pages
meanwhile.

fragmentation: single pages, T threads, each pinned; fill to 90 % of all pages, split evenly; shuffle all pages held,
and deal them out again; each thread frees its last pages until 50 % is used; 7 rounds in which each thread, as often as
it holds pages, frees a random page of its own and takes one; 60 rounds in which it shuffles its pages, frees a fifth and
takes as many; then it shuffles and frees down to 10 %, and frees and takes a random page 20 times as often as it holds
pages. Ranges are counted after the 7 rounds, after 1, 5, 20 and 60 rounds of fifths, and at the end. Generators begin with the seed, plus the thread's number, plus 1000 for
the shuffle of all; nothing drains caches meanwhile; min_free_kbytes is 0. Counted are aligned ranges of 512 pages of
which the threads hold none, and after 60 rounds and at the end the requests of order 9 that then succeed: each of the two
is the end of a run of its own. More threads
than CPUs share them; each has a pageset of its own all the same, with a lock in place of restartable sequences. With one
thread a seed always gives the same counts, unless rules look at the clock.

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

JSON (--json): {\"schema\": 1, \"machine\": {...}, \"rows\": [...], \"scans\": [...], \"fragmentation\": [...]}
  machine            cpu, cpus, cpu_list, nodes, memory_bytes, kernel, page_bytes, storage, binding,
                     version, commit, clock_look_ns, bytes_per_node, rounds
  rows[].bench       pair, fill, free_lifo, free_random, replace, cross, order0_pair to order10_pair,
                     order0_alloc, order0_free, order9_alloc and order9_free in tails, the same with mixed_ before in mixed, order9_first and
                     order9_stall in order9, single_alloc, single_free, bulk_alloc, bulk_free; with --loop 2017
                     single_alloc_2017 and single_free_2017; near and far in zonelist; lock_pair,
                     lock_contended; obj_pair, obj_fill, obj_free_random, obj_cross, obj_pair_near,
                     obj_pair_memoryless, obj_pair_memoryless_old
  rows[].allocator   as above, or a model's name
  rows[].threads, n  n is pages per call in single_* and bulk_*, pages held in fill, free_* and replace (1 for
                     rseq-limit-pair), pages of the memory in order9_first and order9_stall, nodes in near and
                     far, bytes of an object in obj_*, 0 in lock_*, else 1
  rows[].ns_median, ns_min, ns_max
                     over the rounds: nanoseconds per page; per allocation and free for *pair and *cross,
                     per lock and unlock for lock_*;
                     with several threads wall time x threads / operations
  rows[].ns_p99      over the samples of all rounds, per operation as ns_median; null in single_*, bulk_*,
                     order9_first and order9_stall, where a round is not divided
  rows[].ns_p999, ns_p9999
                     only in tails and mixed, with ns_p50: what all calls but one in 1000, and but one in 10000, and
                     half of them do not exceed
  rows[].pages_moved, zone_locks_per_1000_pages, shared_writes_per_1000_pages
                     where nearpage counts: allocations and frees of pages, how often a zone's lock was taken for 1000 of
                     them, and writes to words of a zone that all CPUs share (null: these rules do not count them);
                     in the rows of fragmentation too
  call_clock         only with mixed: rdtscp or clock
  scans[]            only with zonelist: bench, allocator, n; pages allocated, zones_visited and
                     zones_skipped behind the first, second_passes, zaps
  fragmentation[]    only with fragmentation: model, threads, bytes, seed; cpus that the threads shared;
                     used_percent, singles_rounds, fifths_rounds, ranges, perfect (if the pages lay side by side),
                     whole, order9_requests (null where the run goes on)";

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Bench {
    /// n pages at a time and by one call, n = 1 to 16384: the table of 2017
    Bulk,
    /// A page allocated and freed, again and again
    Pairs,
    /// 200000 pages, and 2000000, freed in the best and in a random order
    Random,
    /// One of 200000 pages that are held, chosen at random, replaced by another, again and again
    Replace,
    /// Pages allocated on one CPU and freed on another
    Cross,
    /// Blocks of all orders, allocated and freed again and again
    Orders,
    /// The slowest of many requests of order 0 and order 9, one by one, in a memory that is four fifths full
    Tails,
    /// The same of single pages and blocks of order 9 that come and go side by side; only if named
    Mixed,
    /// Ranges of 512 pages that stay whole while threads hold pages at random: counts, not times; only if named
    Fragmentation,
    /// The first request of order 9 after many pages were freed at random, and what others wait meanwhile; only if named
    Order9,
    /// A page past 27 and past 255 full nodes, with and without the zonelist cache; only if named
    Zonelist,
    /// The lock of a page, locked and unlocked by one thread, and by two
    Pagelock,
    /// Objects of some sizes, held and travelling, and on nodes without memory
    Slab,
}

impl From<Bench> for nearpage_bench::Bench {
    fn from(bench: Bench) -> Self {
        match bench {
            Bench::Bulk => Self::Bulk,
            Bench::Pairs => Self::Pairs,
            Bench::Random => Self::Random,
            Bench::Replace => Self::Replace,
            Bench::Cross => Self::Cross,
            Bench::Orders => Self::Orders,
            Bench::Tails => Self::Tails,
            Bench::Mixed => Self::Mixed,
            Bench::Fragmentation => Self::Fragmentation,
            Bench::Order9 => Self::Order9,
            Bench::Zonelist => Self::Zonelist,
            Bench::Pagelock => Self::Pagelock,
            Bench::Slab => Self::Slab,
        }
    }
}

/// `--loop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SingleLoop {
    /// n pages, divided by n
    Exact,
    /// As the original's: n + 1 pages, divided by n
    #[value(name = "2017")]
    Of2017,
}

impl From<SingleLoop> for nearpage_bench::SingleLoop {
    fn from(single_loop: SingleLoop) -> Self {
        match single_loop {
            SingleLoop::Exact => Self::Exact,
            SingleLoop::Of2017 => Self::Of2017,
        }
    }
}

/// Why nothing, or not all, was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchFailure {
    /// Nothing of what is measured looks at an option.
    #[error("{option}: it belongs to {user}, and changes nothing in {benches}")]
    Unused {
        /// The option as it was given.
        option: String,
        /// The benchmarks that look at it.
        user: String,
        /// What is measured.
        benches: String,
    },
    /// The benchmarks say why.
    #[error("{}", by_option(.0))]
    Bench(#[from] BenchError),
}

/// What an error says, with the option that it is about.
fn by_option(error: &BenchError) -> String {
    match error {
        BenchError::Size { bytes, why } => format!("--bytes {}: {why}", size::format(*bytes)),
        error @ BenchError::Model(_) => format!("--model {error}"),
        BenchError::NoAddressesForNodes { reserved, allowed } => format!(
            "zonelist: its memories reserve {} of addresses, whatever --bytes is, and `ulimit -v` allows {}, expected \
             `ulimit -v unlimited`, or the other benchmarks alone",
            size::format(*reserved),
            size::format(*allowed)
        ),
        BenchError::Nodes { reserved, error } => format!(
            "zonelist: emulated nodes: {error}; all its memories together reserve {} of addresses, whatever --bytes is",
            size::format(*reserved)
        ),
        error => error.to_string(),
    }
}

impl BenchFailure {
    /// 2 for what the user can say otherwise, 1 for what went wrong.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Unused { .. }
            | Self::Bench(
                BenchError::Cpus(_)
                | BenchError::Size { .. }
                | BenchError::Model(_)
                | BenchError::Environment(_)
                | BenchError::NoAddressesForNodes { .. }
                | BenchError::NoAddressesForPages { .. },
            ) => 2,
            Self::Bench(_) => 1,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// [`BenchFailure`], or the output cannot be written.
pub fn run(arguments: &BenchArgs) -> Result<(), CommandError> {
    let options = arguments.options();
    options.check().map_err(BenchFailure::from)?;
    arguments.check_unused(options.chosen())?;
    let environment = environment::read()?;
    environment::tell(environment.warnings());
    let run = Run::new(&options.environment(environment)).map_err(BenchFailure::from)?;
    if arguments.json { print_json(&run) } else { print_text(&run) }
}

impl BenchArgs {
    fn options(&self) -> Options {
        let mut options =
            Options::default().quick(self.quick).built_from(option_env!("BUILT_FROM_COMMIT"));
        if !self.benches.is_empty() {
            let benches: Vec<_> = self.benches.iter().map(|&bench| bench.into()).collect();
            options = options.benches(&benches);
        }
        if let Some(single_loop) = self.single_loop {
            options = options.single_loop(single_loop.into());
        }
        if let Some(bytes) = self.bytes {
            options = options.bytes_per_node(bytes);
        }
        if let Some(rounds) = self.rounds {
            options = options.rounds(usize::from(rounds));
        }
        if let Some(threads) = self.threads {
            options = options.threads(usize::from(threads));
        }
        if let Some(seed) = self.seed {
            options = options.seed(seed);
        }
        options.models(&self.models)
    }

    /// An option that changes nothing of what is measured would let its user believe that it did.
    fn check_unused(&self, benches: &[nearpage_bench::Bench]) -> Result<(), BenchFailure> {
        use nearpage_bench::Bench;
        let names: Vec<_> = benches.iter().map(|bench| bench.name()).collect();
        let unused = |option, user: &str| {
            let (user, benches) = (user.to_owned(), names.join(", "));
            Err(BenchFailure::Unused { option, user, benches })
        };
        if let Some(how) = self.single_loop.filter(|_| !benches.contains(&Bench::Bulk)) {
            let how = nearpage_bench::SingleLoop::from(how).name();
            return unused(format!("--loop {how}"), "bulk");
        }
        if let Some(bytes) = self.bytes.filter(|_| benches == [Bench::Zonelist]) {
            return unused(format!("--bytes {}", size::format(bytes)), "all but zonelist");
        }
        if let Some(rounds) = self.rounds.filter(|_| benches == [Bench::Fragmentation]) {
            return unused(format!("--rounds {rounds}"), "all but fragmentation");
        }
        if let Some(model) = self.models.first()
            && !benches.iter().any(|bench| bench.compares_models())
        {
            let compare = Bench::ALL.into_iter().filter(|bench| bench.compares_models());
            let users: Vec<_> = compare.map(Bench::name).collect();
            return unused(format!("--model {}", model.name), &users.join(", "));
        }
        if !benches.contains(&Bench::Fragmentation) {
            if let Some(threads) = self.threads {
                return unused(format!("--threads {threads}"), "fragmentation");
            }
            if let Some(seed) = self.seed {
                return unused(format!("--seed {seed}"), "fragmentation");
            }
        }
        Ok(())
    }
}

/// Each table as soon as it is there.
fn print_text(run: &Run) -> Result<(), CommandError> {
    let (machine, absent) = run.machine().map_err(BenchFailure::from)?;
    let absent = absent.iter().map(|absent| format!("absent   {absent}\n"));
    super::print(&(machine.to_string() + &absent.collect::<String>()))?;
    for &bench in run.benches() {
        let text = match run.why_not(bench) {
            Some(why) => format!("\n{bench}: skipped, {why}\n"),
            None => {
                let measured = measure(run, bench)?;
                let figures = figures(bench, &measured, run.single_loop());
                let counts = table::counts(bench, &measured.rows);
                format!("\n{figures}\n{counts}")
            }
        };
        super::print(&text)?;
    }
    Ok(())
}

fn print_json(run: &Run) -> Result<(), CommandError> {
    let (machine, _) = run.machine().map_err(BenchFailure::from)?;
    let mut document = Document::of(machine);
    for &bench in run.benches() {
        match run.why_not(bench) {
            Some(why) => terminal::note(format_args!("{bench}: skipped, {why}")),
            None => document.add(measure(run, bench)?),
        }
    }
    super::print_json(&document)
}

fn measure(run: &Run, bench: nearpage_bench::Bench) -> Result<Measured, BenchFailure> {
    Ok(run.measure(bench, &Bar::of(&format!("{bench:>8}"), "steps"))?)
}

/// The tables of a benchmark.
fn figures(
    bench: nearpage_bench::Bench,
    measured: &Measured,
    single_loop: nearpage_bench::SingleLoop,
) -> String {
    use nearpage_bench::Bench;
    let rows = measured.rows.as_slice();
    match bench {
        Bench::Bulk => table::bulk(rows, single_loop),
        Bench::Random => {
            let title = |Key { work, n, .. }| format!("{work}: ns per page, {n} pages");
            // Both have the same works, but not the same allocators.
            let (fewer, more) = rows.split_at(rows.partition_point(|row| !is_larger(row, rows)));
            format!("{}\n{}", table::figures(fewer, title), table::figures(more, title))
        }
        Bench::Replace => table::figures(rows, |Key { work, n, .. }| {
            format!("{work}: ns per free and allocation, {n} pages")
        }),
        Bench::Pagelock => {
            table::figures(rows, |key| format!("{}: ns per lock and unlock", key.work))
        }
        Bench::Orders => table::orders(rows, "orders: ns per allocation and free"),
        Bench::Tails => table::tails(rows, "ns per call"),
        Bench::Mixed => {
            let clock = measured.call_clock.unwrap_or("an unknown clock");
            table::tails(rows, &format!("ns per call by {clock}"))
        }
        Bench::Fragmentation => table::fragmentation(&measured.fragmentation),
        Bench::Order9 => table::order9(rows),
        Bench::Zonelist => table::zonelist(rows, &measured.scans),
        Bench::Slab => table::figures(rows, |Key { work, n, .. }| match work {
            Work::ObjFill | Work::ObjFreeRandom => format!("{work}: ns per object of {n} bytes"),
            _ => format!("{work}: ns per allocation and free, {n} bytes"),
        }),
        // Pairs, cross, and what is measured as they are.
        _ => table::figures(rows, |key| format!("{}: ns per allocation and free", key.work)),
    }
}

/// Whether a row is of the memories that hold many times what the first row's hold.
fn is_larger(row: &Row, rows: &[Row]) -> bool {
    let first = rows.iter().find(|row| row.key.allocator == "nearpage");
    first.is_some_and(|first| row.key.n > 2 * first.key.n)
}

pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("expected {}", size::EXPECTED))
}
