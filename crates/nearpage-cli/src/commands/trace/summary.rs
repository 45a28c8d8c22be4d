//! `nearpage trace summary`: who allocates, and what outlives the trace.

use std::cell::RefCell;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use nearpage_machine::{Budget, shown};
use nearpage_replay::{Bundle, Input, Replay, ReplayError};
use nearpage_trace::summary::{By, Group, Summarizer, Summary, TYPES};
use nearpage_trace::{TraceError, TraceEvent, read_trace_with_frames};

use super::{CommandError, Names, TraceFailure, opened};
use crate::commands::input::{Limit, STANDARD_INPUT, is_standard, read_machine_text};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;
use crate::commands::{print, print_json};
use crate::confined::Rights;

/// Say who allocates, by task, cgroup, call site, order, type or flags, and what outlives the trace.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct SummaryArgs {
    /// A bundle, or a trace: ftrace's trace file, trace-cmd report, perf script, trace.dat or perf.data, packed or not; - is standard
    /// input, a trace
    #[arg(value_name = "FILE|-")]
    file: PathBuf,

    /// What groups are
    #[arg(long, value_enum, default_value_t)]
    by: ByWhat,

    /// Groups that are shown; --json has all
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// Also replay it, and tell for each group the holds of zone locks that it caused and the pages that came from another node. A trace
    /// without a bundle needs --machine
    #[arg(long)]
    blame: bool,

    /// The machine that a trace without a bundle is played on, as nearpage whatif --machine takes it
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true, requires = "blame")]
    machine: Option<String>,

    #[command(flatten)]
    names: Names,

    /// Print JSON instead
    #[arg(long, conflicts_with = "top")]
    json: bool,

    #[command(flatten)]
    limit: Limit,
}

impl SummaryArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        Rights::default().reading([&self.file]).reading(&self.machine).reading(&self.names.symbols)
    }
}

const AFTER_HELP: &str = "\
Call sites need call chains: `nearpage record --stacks`; `perf record -g -e kmem:mm_page_alloc -e kmem:mm_page_free -a`, then `perf
script`; or ftrace's option stacktrace (`trace-cmd record -T`). A site is the first function of the chain that is not the allocator's
own. A perf.data has addresses and no names of functions: --symbols has those of its machine. Cgroups are told by `nearpage record
--cgroups`, and by `perf record --all-cgroups` in a perf.data.

JSON (--json):
  schema               1
  events, lost_events (null: the trace does not tell), unread_events (lines that cannot be read), sampling, seconds
  requests             allocs, frees, alloc_freed, alloc_only, free_only, failed, and the pages of each (..._pages), as
                       perf kmem stat --page counts them
  by_order_and_type[][] blocks handed out, by order, then unmovable, movable, reclaimable, highatomic, cma, isolate
  with_stack           allocations with a call chain (--by site); unnamed_stacks: of addresses alone; named_stacks: whose site
                       --symbols names; misnamed_stacks: that do not begin in the allocator by it; with_flow: events of
                       refills and drains
  groups[]             name, allocs, alloc_pages, failed, freed, freed_pages, lifetime_mean_ns, lifetime_median_ns, left,
                       left_pages (what outlives the trace), orders[], types[], frees, refill_pages, drain_pages,
                       pinned_pageblocks (with an unmovable block of it that outlives the trace); with --blame holds and far_pages

Examples:
  nearpage trace summary trace.dat
  nearpage trace summary BUNDLE --by type
  perf script | nearpage trace summary - --by site --top 40
  nearpage trace summary perf.data --by site --symbols /proc/kallsyms

Exit status: 0 done, 1 the output could not be written, 2 wrong usage or unreadable input, 130 after Ctrl-C.";

/// `--by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum ByWhat {
    /// The function that asked, from call chains
    Site,
    /// The name of the task
    #[default]
    Task,
    /// Order of the block
    Order,
    /// Migratetype of the request
    Type,
    /// Flags of the request
    Gfp,
    /// The cgroup of the task, where the trace tells it
    Cgroup,
}

pub(super) fn run(arguments: &SummaryArgs) -> Result<(), CommandError> {
    let by = match arguments.by {
        ByWhat::Site => By::Site,
        ByWhat::Task => By::Task,
        ByWhat::Order => By::Order,
        ByWhat::Type => By::Type,
        ByWhat::Gfp => By::Gfp,
        ByWhat::Cgroup => By::Cgroup,
    };
    if arguments.names.symbols.is_some() && arguments.by != ByWhat::Site {
        let problem = "--symbols names functions of call chains, which --by site asks for";
        return Err(CommandError::Usage(problem.into()));
    }
    let budget = arguments.limit.budget();
    let summarizer = Summarizer::new(by).with_symbols(arguments.names.read(&budget)?);
    let summary = match arguments.blame {
        true => blame(arguments, summarizer, &budget)?,
        false => summary(&arguments.file, summarizer, &budget)?,
    };
    match arguments.json {
        true => print_json(&summary),
        false => print(&text(&arguments.file, &summary, arguments)),
    }
}

fn blame(
    arguments: &SummaryArgs,
    summarizer: Summarizer,
    budget: &Budget,
) -> Result<Summary, CommandError> {
    let failed = |error: ReplayError| CommandError::Trace(error.into());
    let machine = arguments.machine.as_deref();
    let machine = machine.map(|text| read_machine_text(text, budget)).transpose()?;
    let path = &arguments.file;
    // Nothing is written yet: Ctrl-C ends the process at once.
    let bar = Bar::percent("read");
    let input = match is_standard(path) {
        true => Input::read(STANDARD_INPUT, std::io::stdin().lock(), budget, &bar),
        false => Input::open(path, budget, &bar),
    };
    drop(bar);
    let watched = Interruptible::begin(Bar::percent("trace summary"))?;
    let summary = match (input.map_err(failed)?, machine) {
        (Input::Bundle(_), Some(_)) => {
            let problem = "--machine goes with a trace: a bundle has its own, and nearpage whatif takes another";
            return Err(CommandError::Usage(problem.into()));
        }
        (Input::Bundle(bundle), None) => {
            Replay::of(*bundle).and_then(|replay| replay.blame(summarizer, &watched))
        }
        (Input::Trace(trace), Some(machine)) => trace.blame(&machine, summarizer, &watched),
        (Input::Trace(trace), None) => Err(ReplayError::NoMachine { input: trace.name().into() }),
    };
    summary.map_err(failed)
}

fn summary(path: &Path, summarizer: Summarizer, budget: &Budget) -> Result<Summary, CommandError> {
    let failed = |error: TraceFailure| CommandError::Trace(error);
    if !is_standard(path) {
        match Bundle::open(path, budget) {
            Ok(bundle) => {
                let watched = Interruptible::begin(Bar::percent("trace summary"))?;
                let summary = bundle.summarize(summarizer, &watched);
                return summary.map_err(|error| failed(error.into()));
            }
            // A folder can be nothing else.
            Err(error) if path.is_dir() => return Err(failed(error.into())),
            Err(_) => {}
        }
    }
    let (name, text) = opened(path, budget).map_err(|error| failed(error.into()))?;
    let summarizer = RefCell::new(summarizer);
    let each = |event: &TraceEvent<'_>| {
        summarizer.borrow_mut().note(event);
        Ok::<(), TraceError>(())
    };
    let counts =
        read_trace_with_frames(&name, text, each, |line| summarizer.borrow_mut().frame(line));
    let counts = counts.map_err(|error| failed(error.into()))?;
    Ok(summarizer.into_inner().finish(&counts))
}

fn text(path: &Path, summary: &Summary, arguments: &SummaryArgs) -> String {
    let mut out = String::new();
    let Summary { events, lost_events, seconds, requests, groups, .. } = summary;
    let path = shown(path).to_string();
    let lost = match lost_events {
        Some(events) => format!("{events} lost"),
        None => "lost ones unknown (perf script tells them with --show-lost-events)".into(),
    };
    let _ = writeln!(out, "{path}: {events} events in {seconds:.3} s, {lost}");
    if summary.unread_events > 0 {
        let _ = writeln!(
            out,
            "{} lines name an event of pages and cannot be read: they are not counted",
            summary.unread_events
        );
    }
    if arguments.blame && arguments.machine.is_none() {
        let _ = writeln!(
            out,
            "counts are of what is replayed: from the first capture of the kernel's figures to the last"
        );
    }
    if let Some(sampling) = &summary.sampling {
        let _ = writeln!(
            out,
            "a sample: {sampling} was recorded, so counts are of a part, and nothing tells whether what is left was freed (perf record -c 1 records all)"
        );
    }
    if requests.allocs + requests.frees == 0 {
        let _ = writeln!(
            out,
            "no allocation and no free of pages: record kmem:mm_page_alloc and kmem:mm_page_free (nearpage record, perf record -e, trace-cmd -e)"
        );
        return out;
    }
    for (what, count, pages) in [
        ("allocations", requests.allocs, requests.alloc_pages),
        ("frees", requests.frees, requests.free_pages),
        ("allocated and freed", requests.alloc_freed, requests.alloc_freed_pages),
        ("allocated, not freed", requests.alloc_only, requests.alloc_only_pages),
        ("freed, not allocated", requests.free_only, requests.free_only_pages),
        ("allocations that failed", requests.failed, requests.failed_pages),
    ] {
        let _ = writeln!(out, "{what:<24} {count:>12} blocks {pages:>12} pages");
    }
    let _ = write!(out, "\n{:<8}", "order");
    TYPES.iter().for_each(|name| {
        let _ = write!(out, " {name:>12}");
    });
    out.push('\n');
    for (order, counts) in summary.by_order_and_type.iter().enumerate() {
        if counts.iter().any(|count| *count > 0) {
            let _ = write!(out, "{order:<8}");
            counts.iter().for_each(|count| {
                let _ = write!(out, " {count:>12}");
            });
            out.push('\n');
        }
    }
    if arguments.by == ByWhat::Site && summary.with_stack == 0 {
        let _ = writeln!(
            out,
            "\nno call chain was read: nearpage record --stacks, ftrace's option stacktrace, and perf record -g write them"
        );
    }
    let Summary { with_stack, unnamed_stacks, named_stacks, misnamed_stacks, .. } = summary;
    if arguments.names.symbols.is_some() && *with_stack > 0 && *named_stacks == 0 {
        let _ = writeln!(
            out,
            "\n--symbols names nothing here: the trace has names of its own, or none of its addresses lies in a function"
        );
    }
    if *unnamed_stacks > 0 {
        let _ = writeln!(
            out,
            "\n{unnamed_stacks} of {with_stack} call chains are addresses without names: --symbols takes /proc/kallsyms of the machine, read by root before it booted again"
        );
    }
    if *misnamed_stacks > 0 {
        let _ = writeln!(
            out,
            "\n{misnamed_stacks} of {with_stack} call chains do not begin in the allocator by these --symbols: they are of another boot or kernel"
        );
    }
    let most = arguments.top as usize;
    let wide = wide(groups.iter().take(most));
    let _ = writeln!(
        out,
        "\n{:<wide$} {:>9} {:>10} {:>9} {:>10} {:>10} {:>10} {:>9} {:>10} {:>10}",
        "who",
        "blocks",
        "pages",
        "freed",
        "mean life",
        "left",
        "left pages",
        "frees",
        "refilled",
        "drained"
    );
    groups.iter().take(most).for_each(|group| line(&mut out, group, wide));
    if requests.frees == 0 && requests.allocs > 0 {
        let _ = writeln!(
            out,
            "no free is in the trace, so nothing tells what is left: record kmem:mm_page_free, too"
        );
    }
    let unseen: u64 = groups.iter().map(|group| group.free_unseen).sum();
    if unseen > 0 {
        let _ = writeln!(
            out,
            "{unseen} of these blocks were handed out again though no free of them is in the trace: they count as not freed, and not as left"
        );
    }
    if groups.len() > most {
        let _ = writeln!(out, "... and {} more (--top N, --json)", groups.len() - most);
    }
    if arguments.blame {
        write_blame(&mut out, summary, most);
    }
    out
}

/// The name of a group, as it is shown.
fn who(group: &Group) -> String {
    shown(&group.name).to_string()
}

/// Columns that the names of groups take.
fn wide<'g>(groups: impl Iterator<Item = &'g Group>) -> usize {
    groups.map(|group| who(group).chars().count()).max().unwrap_or(0).clamp(28, 96)
}

/// What the replay charged each group with, most holds first.
fn write_blame(out: &mut String, summary: &Summary, most: usize) {
    let mut groups: Vec<&Group> = summary.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.holds, group.far_pages)));
    let all: u64 = groups.iter().filter_map(|group| group.holds).sum();
    let wide = wide(groups.iter().take(most).copied());
    let _ = writeln!(
        out,
        "\n{:<wide$} {:>10} {:>7} {:>12} {:>18}   in the model; pageblocks as recorded",
        "who", "holds", "%", "pages far", "pinned pageblocks"
    );
    for group in groups.iter().take(most) {
        let number = |of: Option<u64>| of.map_or("-".into(), |count| count.to_string());
        let share = group.holds.filter(|_| all > 0);
        let share = share.map(|holds| format!("{:.1}", 100.0 * holds as f64 / all as f64));
        let _ = writeln!(
            out,
            "{:<wide$} {:>10} {:>7} {:>12} {:>18}",
            who(group),
            number(group.holds),
            share.unwrap_or("-".into()),
            number(group.far_pages),
            group.pinned_pageblocks
        );
    }
    if let Some(holds) = summary.time_holds {
        let _ = writeln!(out, "{:<wide$} {holds:>10}   once a second on each CPU: nobody's", "");
    }
}

fn line(out: &mut String, group: &Group, wide: usize) {
    let flow = |pages: Option<u64>| pages.map_or("-".into(), |pages| pages.to_string());
    let life = group.lifetime_mean_ns.map_or("-".into(), |ns| match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} us", ns / 1e3),
    });
    let _ = writeln!(
        out,
        "{:<wide$} {:>9} {:>10} {:>9} {life:>10} {:>10} {:>10} {:>9} {:>10} {:>10}",
        who(group),
        group.allocs,
        group.alloc_pages,
        group.freed,
        group.left,
        group.left_pages,
        group.frees,
        flow(group.refill_pages),
        flow(group.drain_pages)
    );
}
