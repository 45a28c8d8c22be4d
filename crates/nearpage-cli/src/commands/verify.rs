//! `nearpage verify`: predicts what recorded kernels printed, and compares field by field.

mod text;

use std::path::PathBuf;

use clap::Args;
use nearpage::Model;
use nearpage_bundle::predict::{ModelChoice, Wishes};
use nearpage_bundle::verify::{self, Outcome, Report};
use nearpage_machine::shown;
use nearpage_machine::work::Unwatched;

use super::{CommandError, input, print, print_json};
use crate::confined::Rights;
use crate::terminal;

/// Predict what recorded kernels printed, and compare field by field.
///
/// Each capture of each recording is predicted from its sizes and settings, and every field that follows
/// from them is compared with what the kernel printed. Each recording gets one line: fields that are the same / all,
/// by class. Every difference follows, with both values and the rule of the prediction.
///
/// A kernel computes some fields at boot, from sizes that it no longer prints. They are the class boot-time: the
/// sized fields of the captures boot and sysctl, and of bundles and roots whose watermarks do not fit the pages that
/// their zones manage. The class is shown apart, and its differences are failures only with --strict. A value that no
/// smaller sizes could give is a difference like any other.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// Recordings: a folder with meta.json or a tar of one, an oracle JSON (.zst), or a root with proc/ and sys/;
    /// / is this machine, - is standard input
    #[arg(required = true, value_name = "PATH|-")]
    paths: Vec<PathBuf>,

    /// Print one JSON array instead
    #[arg(long)]
    json: bool,

    /// Print the figures of each capture too, and the differences of the class boot-time
    #[arg(long)]
    explain: bool,

    /// Count a difference of the class boot-time as a failure too
    #[arg(long)]
    strict: bool,

    /// The rules; auto chooses by the recorded kernel's version
    #[arg(long, value_parser = input::models(), default_value_t)]
    model: ModelChoice,

    #[command(flatten)]
    limit: input::Limit,
}

impl VerifyArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        Rights::default().reading(&self.paths)
    }
}

const AFTER_HELP: &str = "\
Examples:
  nearpage verify oracle/corpus/*.zst
  nearpage verify / --explain

JSON (--json): an array with one object a capture:
  schema                         1
  path, capture, kernel, model   what was compared, and whose rules were used
  classes                        by class (watermarks, protection, pageset_sizes, thresholds, fallback_order,
                                 zonelists, min_free_kbytes, numa_mem_id): matched and total without the class
                                 boot-time; apart, how many fields are in that class; apart_matched
  mismatches[]                   field, predicted, recorded, rule
  boot_time_mismatches[]         the same, of the class boot-time
A capture that cannot be read has schema, path, capture and error.

Exit status: 0 all the same, 1 a difference, 2 something could not be read (after the rest was compared).";

/// Why the command fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VerifyError {
    /// There are differences.
    #[error("{0} fields differ")]
    Different(usize),
    /// Some recordings could not be read; the messages were printed before.
    #[error("{0} recordings or captures could not be read")]
    Unreadable(usize),
}

impl VerifyError {
    /// The exit code of the command.
    pub fn exit_code(self) -> u8 {
        match self {
            VerifyError::Different(_) => 1,
            VerifyError::Unreadable(_) => 2,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// There is a difference, something cannot be read, or the output cannot be written.
pub fn run(arguments: &VerifyArgs) -> Result<(), CommandError> {
    if arguments.model.is(&Model::NEARPAGE) {
        let problem = "recordings are of Linux: --model takes a linux-* model or auto";
        return Err(CommandError::Usage(problem.into()));
    }
    if arguments.paths.iter().filter(|path| input::is_standard(path)).count() > 1 {
        let problem = "standard input (-) is given again, expected it once";
        return Err(CommandError::Usage(problem.into()));
    }
    let wishes = Wishes { model: arguments.model, settings: Vec::new() };
    let budget = arguments.limit.budget();
    let read = |path: &std::path::Path| input::read_recording(path, &budget);
    let reports = verify::verify_all(&arguments.paths, &read, &wishes, &Unwatched)
        .expect("nobody asks to stop");
    match arguments.json {
        true => print_json(&verify::entries(&reports))?,
        false => print(&text::format(&reports, arguments.explain, arguments.strict))?,
    }
    for report in &reports {
        for (capture, why) in report.failed() {
            let path = shown(&report.path);
            terminal::note(format_args!(
                "{path}: capture {capture} failed when it was recorded: {why}"
            ));
        }
    }
    for error in reports.iter().flat_map(Report::errors) {
        terminal::error(error);
    }
    Ok(judge(verify::outcome(&reports), arguments.strict)?)
}

fn judge(outcome: Outcome, strict: bool) -> Result<(), VerifyError> {
    let Outcome { unreadable, different, boot_time } = outcome;
    match (unreadable, different + if strict { boot_time } else { 0 }) {
        (0, 0) => Ok(()),
        (0, different) => Err(VerifyError::Different(different)),
        (unreadable, _) => Err(VerifyError::Unreadable(unreadable)),
    }
}
