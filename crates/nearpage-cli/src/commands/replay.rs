//! `nearpage replay`: drives the core with a recorded trace, and says how exactly it predicts the kernel.

mod json;
mod text;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CommandError, print};
use crate::predict::ModelChoice;
use crate::replay::fidelity::{Fidelity, Truth};
use crate::replay::run::ZoneChoice;
use crate::replay::session::{Replayed, replay};
use crate::replay::source::Bundle;
use crate::replay::start::{Start, free_pages_after};

/// Replay a recorded trace on the recorded machine, and compare with what its kernel logged.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct ReplayArgs {
    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    /// Where the zone of an allocation comes from
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    /// Whose rules; auto chooses by the recorded kernel's version
    #[arg(long, value_enum, default_value_t)]
    model: ModelChoice,

    /// Read this trace instead of the bundle's: ftrace's trace file, trace-cmd report or perf script
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// `--placement`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Placement {
    /// The model's own: node of the CPU, flags, watermarks
    #[default]
    Model,
    /// The recorded page's: for bundles with memory policies, which are in no event
    Recorded,
}

const AFTER_HELP: &str = "\
Fidelity:
  error   = |predicted - recorded| / recorded
  percent = 100 - mean of min(error, 100) over the rows with where: all that have at least 500 recorded

JSON (--json):
  schema                       1
  fidelity.percent             the score, or null if nothing is recorded
  fidelity.percent_known_state the same, counting only what follows after the lists that were filled before the trace
                               have once been empty
  fidelity.rows[]              quantity, where, predicted, recorded, error_percent, start_bound [lo, hi]; at: the
                               moment, of quantities that have one

Open loop: the allocations and frees of the trace come as they were recorded, whatever the model answers.

Exit status: 0 done, 2 wrong usage or unreadable input.";

/// A replay and what it is compared with.
struct Report {
    bundle: Bundle,
    start: Start,
    replayed: Replayed,
    fidelity: Fidelity,
    is_of_other_kernel: bool,
}

/// Runs the command.
///
/// # Errors
///
/// The bundle cannot be read or replayed, or the output cannot be written.
pub fn run(arguments: &ReplayArgs) -> Result<(), CommandError> {
    let bundle = Bundle::open(&arguments.bundle, arguments.trace.as_deref())?;
    let choice = match arguments.placement {
        Placement::Model => ZoneChoice::Model,
        Placement::Recorded => ZoneChoice::Recorded,
    };
    let chosen = arguments.model.for_kernel(&bundle.recording.kernel);
    let capture = bundle.recording.capture(Some("before"))?;
    let page_bytes = bundle.recording.page_bytes.unwrap_or(4096);
    let start = Start::read(&bundle.name(), capture, page_bytes, chosen.model)?;
    let replayed = replay(&bundle, &start, choice)?;
    let fidelity = compare(&bundle, &start, &replayed, choice)?;
    let is_of_other_kernel = chosen.is_of_other_kernel;
    let report = Report { bundle, start, replayed, fidelity, is_of_other_kernel };
    if arguments.json { print(&json::render(&report)) } else { print(&text::render(&report)) }
}

fn compare(
    bundle: &Bundle,
    start: &Start,
    replayed: &Replayed,
    choice: ZoneChoice,
) -> Result<Fidelity, CommandError> {
    let before = bundle.recording.capture(Some("before"))?.machine()?;
    let after = bundle.recording.capture(Some("after")).ok();
    let machine = after.map(|after| after.machine()).transpose()?;
    let free_after = after.map(|after| free_pages_after(after, start)).transpose()?.flatten();
    let samples = bundle.samples()?;
    let truth = Truth {
        before: &before.zones,
        after: machine.as_ref().map(|machine| &*machine.zones),
        free_after,
        samples: &samples,
    };
    Ok(Fidelity::of(start, replayed, &truth, choice))
}
