//! `nearpage verify`: predicts what recorded kernels printed, and compares field by field.

mod json;
mod text;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use nearpage_machine::shown::shown;

use super::{CommandError, print};
use crate::terminal;
use nearpage_bundle::predict::{
    Class, Comparisons, KernelModel, ModelChoice, PredictError, Prediction, Wishes, compare,
};
use nearpage_bundle::{Capture, Recording};

/// Predict what recorded kernels printed, and compare field by field.
///
/// Each capture of each recording is predicted from its sizes and settings, and every field that follows
/// from them is compared with what the kernel printed. One line a recording: the same / all, by class; then
/// every difference, with both values and the rule that gave ours.
///
/// What a kernel computed at boot, from sizes that it no longer prints, is the class boot-time: the sized
/// fields of the captures boot and sysctl, and of bundles and roots whose watermarks do not fit what their
/// zones manage. It is shown apart, and a difference there is no failure but with --strict; what no smaller
/// sizes could have given is a difference like any other.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// Recordings: a folder with meta.json or a tar of one, an oracle JSON (.zst), or a root with proc/ and sys/;
    /// / is this machine
    #[arg(required = true, value_name = "PATH")]
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

    /// Whose rules; auto chooses by the recorded kernel's version
    #[arg(long, value_enum, default_value_t)]
    model: ModelChoice,
}

const AFTER_HELP: &str = "\
Examples:
  nearpage verify oracle/corpus/*.zst
  nearpage verify / --explain

JSON (--json): an array with one object a capture:
  path, capture, kernel, model   what was compared, and whose rules were used
  classes                        by class (watermarks, protection, pageset_sizes, thresholds, fallback_order,
                                 zonelists, min_free_kbytes, numa_mem_id): matched and total without the class
                                 boot-time; apart, how many fields are in that class; apart_matched
  mismatches[]                   field, predicted, recorded, rule
  boot_time_mismatches[]         the same, of the class boot-time
A capture that cannot be read has path, capture and error.

Exit status: 0 all the same, 1 a difference, 2 something could not be read (after the rest was compared).";

/// How a comparison went that did not go well.
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

/// A recording, compared.
struct Report {
    path: String,
    kernel: String,
    captures: Vec<CaptureReport>,
    /// Why the recording could not be opened at all.
    error: Option<PredictError>,
}

/// A capture, compared, or why it could not be.
struct CaptureReport {
    name: String,
    result: Result<Compared, PredictError>,
}

struct Compared {
    model: KernelModel,
    comparisons: Comparisons,
}

/// Runs the command.
///
/// # Errors
///
/// There is a difference, something cannot be read, or the output cannot be written.
pub fn run(arguments: &VerifyArgs) -> Result<(), CommandError> {
    if arguments.model == ModelChoice::Nearpage {
        let problem = "recordings are of Linux: --model takes a linux-* model or auto";
        return Err(CommandError::Usage(problem.into()));
    }
    let wishes = Wishes { model: arguments.model, settings: Vec::new() };
    let reports = verify_all(&arguments.paths, &wishes);
    let text = match arguments.json {
        true => json::format(&reports),
        false => text::format(&reports, arguments.explain, arguments.strict),
    };
    print(&text)?;
    for error in reports.iter().flat_map(Report::errors) {
        terminal::error(error);
    }
    Ok(outcome(&reports, arguments.strict)?)
}

fn outcome(reports: &[Report], strict: bool) -> Result<(), VerifyError> {
    let unreadable = reports.iter().flat_map(Report::errors).count();
    let differences = |apart| {
        let compared = reports.iter().flat_map(Report::compared);
        compared.map(|(_, compared)| compared.comparisons.mismatches(apart).count()).sum::<usize>()
    };
    let different = differences(false) + if strict { differences(true) } else { 0 };
    match (unreadable, different) {
        (0, 0) => Ok(()),
        (0, different) => Err(VerifyError::Different(different)),
        (unreadable, _) => Err(VerifyError::Unreadable(unreadable)),
    }
}

impl Report {
    fn compared(&self) -> impl Iterator<Item = (&str, &Compared)> {
        self.captures
            .iter()
            .filter_map(|capture| Some((capture.name.as_str(), capture.result.as_ref().ok()?)))
    }

    fn errors(&self) -> impl Iterator<Item = &PredictError> {
        let of_captures = self.captures.iter().filter_map(|capture| capture.result.as_ref().err());
        self.error.iter().chain(of_captures)
    }
}

/// Compares all recordings, as many at once as there are CPUs; the reports are in the order of `paths`.
fn verify_all(paths: &[PathBuf], wishes: &Wishes) -> Vec<Report> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(paths.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reports = Vec::new();
        loop {
            // Each worker takes the next path: no data is passed through the counter.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(index) else { return reports };
            reports.push((index, verify(path, wishes)));
        }
    };
    let mut reports: Vec<(usize, Report)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    reports.sort_by_key(|(index, _)| *index);
    reports.into_iter().map(|(_, report)| report).collect()
}

fn verify(path: &Path, wishes: &Wishes) -> Report {
    let source = shown(path).to_string();
    match Recording::read(path) {
        Ok(recording) => Report {
            path: source,
            kernel: recording.kernel.clone(),
            captures: verify_captures(&recording, wishes),
            error: None,
        },
        Err(error) => {
            let error = Some(error.into());
            Report { path: source, kernel: String::new(), captures: Vec::new(), error }
        }
    }
}

fn verify_captures(recording: &Recording, wishes: &Wishes) -> Vec<CaptureReport> {
    // A capture may have failed; a recording without any zones is none.
    let has_zones = recording.captures.iter().any(Capture::has_zones);
    let report = |capture: &Capture| CaptureReport {
        name: capture.name.clone(),
        result: match has_zones && !capture.has_zones() {
            true => Ok(Compared {
                model: wishes.model.for_kernel(&recording.kernel),
                comparisons: Comparisons::default(),
            }),
            false => verify_capture(recording, capture, wishes),
        },
    };
    recording.captures.iter().map(report).collect()
}

fn verify_capture(
    recording: &Recording,
    capture: &Capture,
    wishes: &Wishes,
) -> Result<Compared, PredictError> {
    let machine = capture.machine()?;
    let prediction = Prediction::new(recording, capture, &machine, wishes)?;
    let comparisons = compare(recording, capture, &machine, &prediction)?;
    Ok(Compared { model: prediction.model, comparisons })
}

/// The fields of a class in some captures, and those of them that are boot-time.
fn sum<'a>(
    compared: impl Iterator<Item = &'a Compared>,
    class: Class,
) -> (nearpage_bundle::predict::Counts, nearpage_bundle::predict::Counts) {
    let mut sums =
        (nearpage_bundle::predict::Counts::default(), nearpage_bundle::predict::Counts::default());
    for compared in compared {
        sums.0 += compared.comparisons.counts(class);
        sums.1 += compared.comparisons.apart(class);
    }
    sums
}
