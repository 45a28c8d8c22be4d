//! nearpage beside other allocators, in one process.

mod bare;
mod check;
mod contestant;
mod fact;
mod footprint;
mod locks;
mod machine;
mod malloc;
mod nearpage;
mod objects;
mod pages;
mod peers;
mod region;
mod report;
mod sample;
mod source;
mod stats;
mod task;
mod timing;
mod work;
mod workers;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use check::Results;
use timing::Effort;

/// Compares nearpage with other allocators, in one process.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Pages(PagesArguments),
    Objects(ObjectsArguments),
    Locks(locks::LocksArguments),
    Malloc(MallocArguments),
}

/// Allocates and frees objects with all allocators.
///
/// Times are nanoseconds per object; per allocation and free together in `obj_pair*` and `obj_cross`. Each
/// object is written to once. The JSON is that of `pages`, without memory; `n` is the size of objects in bytes.
/// `obj_pair_near`, `obj_pair_memoryless` and `obj_pair_memoryless_old` compare nearpage with itself: CPUs of an
/// emulated node with memory, of one without, and of one without as Linux served it before 2010.
#[derive(Args)]
struct ObjectsArguments {
    /// Writes JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Tells which promises hold; the exit status is 1 if one does not, or cannot be judged (n/a): what it is about was
    /// not measured, as with NEARPAGE_RSEQ=off the restartable sequences.
    #[arg(long)]
    check: bool,
}

/// Allocates and frees objects with nearpage's malloc and others, each through its shared library.
///
/// Work, times and JSON are those of `objects`. Libraries are those of Debian's packages libmimalloc2.0, libjemalloc2 and
/// libtcmalloc-minimal4, and libnearpage_preload.so beside this program; what is not there is named. snmalloc comes
/// with this program, and is told the size at each free.
#[derive(Args)]
struct MallocArguments {
    /// Writes JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Tells which promises hold; the exit status is 1 if one does not, or cannot be judged.
    #[arg(long)]
    check: bool,
}

/// Allocates and frees pages with all allocators.
///
/// Times are nanoseconds per page; per allocation and free together in `pair`, `order9_pair`, `replace` and
/// `cross`. With several threads they are wall time x threads / operations. Medians are over rounds in
/// which all allocators take turns. nearpage and the peers with a pool have 2 GiB of address range;
/// about 5 GiB of memory are used in all. Those that never touch their pages fill ten times as many too, in 10 GiB of
/// address range: others would need as much memory.
///
/// The JSON is {"schema": 1, "machine": {...}, "rows": [...], "resident": [...], "facts": [...],
/// "absent": [...]}. A row has `bench`, `allocator`, `threads`, `n` (pages per call in `single_*` and
/// `bulk_*`, pages held in `fill`, `free_*` and `replace`, else 1), `ns_median`, `ns_min`, `ns_max`. There is no `ns_p99` as
/// in `nearpage bench`: a round is one measurement, not divided into samples. `resident` has,
/// by `allocator`, `resident_bytes` and `beside_pages_bytes` with `pages` pages given out and not
/// touched by their user. `absent` says which allocators did not take part, and why. With --check,
/// "checks" has one verdict per promise.
///
/// `harness-floor` is not an allocator: its rows are what the measuring itself costs. Nor is `bare-stacks`: each thread has
/// a stack of its own pages, and writes a word of each. What it takes more with two threads is the machine's doing.
#[derive(Args)]
struct PagesArguments {
    /// Writes JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Tells which promises hold; the exit status is 1 if one does not, or cannot be judged (n/a): what it is about was
    /// not measured, as with NEARPAGE_RSEQ=off the restartable sequences.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Pages(arguments) => pages(&arguments),
        Command::Objects(arguments) => objects(&arguments),
        Command::Locks(arguments) => locks::run(&arguments),
        Command::Malloc(arguments) => malloc(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pages(arguments: &PagesArguments) -> io::Result<ExitCode> {
    let run = pages::run(&Effort::FULL)?;
    let results = Results::of(&run);
    let checks = arguments.check.then(|| check::evaluate(&results));
    report(&run, checks.as_deref(), arguments.json)
}

fn objects(arguments: &ObjectsArguments) -> io::Result<ExitCode> {
    let run = objects::run(&objects::ObjectEffort::FULL)?;
    let results = Results::of(&run);
    let checks = arguments.check.then(|| check::evaluate_objects(&results));
    report(&run, checks.as_deref(), arguments.json)
}

fn malloc(arguments: &MallocArguments) -> io::Result<ExitCode> {
    malloc::with_room()?;
    let run = objects::run_of(malloc::all(), &objects::ObjectEffort::FULL)?;
    let results = Results::of(&run);
    let checks = arguments.check.then(|| check::evaluate_malloc(&results));
    report(&run, checks.as_deref(), arguments.json)
}

fn report(run: &pages::Run, checks: Option<&[check::Verdict]>, json: bool) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match json {
        true => report::json(&mut out, run, checks)?,
        false => report::text(&mut out, run, checks)?,
    }
    out.flush()?;
    let missed = checks.into_iter().flatten().any(|verdict| !verdict.ok);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
