//! Verification of recordings: each capture is predicted, and compared with what its kernel printed.
//!
//! ```no_run
//! use nearpage_bundle::predict::Wishes;
//! use nearpage_bundle::{Recording, verify};
//! use nearpage_machine::Budget;
//! use nearpage_machine::work::Unwatched;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let paths = ["mine.tar.zst".into()];
//! let read = |path: &std::path::Path| Recording::read(path, &Budget::DEFAULT);
//! let reports = verify::verify_all(&paths, &read, &Wishes::default(), &Unwatched)?;
//! assert_eq!(verify::outcome(&reports), verify::Outcome { unreadable: 0, different: 0, boot_time: 0 });
//! # Ok(())
//! # }
//! ```

mod document;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use nearpage_machine::work::{Observer, Stopped};

use crate::predict::{
    Class, Comparisons, Counts, KernelModel, PredictError, Prediction, Wishes, compare,
};
use crate::{BundleError, Capture, Recording};

pub use document::{Entry, entries};

/// A recording, compared.
#[derive(Debug)]
pub struct Report {
    /// Where it was read.
    pub path: String,
    /// The kernel's release; empty if the recording does not tell.
    pub kernel: String,
    /// Its captures, as they were made.
    pub captures: Vec<CaptureReport>,
    /// Why the recording could not be opened.
    pub error: Option<PredictError>,
}

/// A capture, compared, or the reason why it was not.
#[derive(Debug)]
pub struct CaptureReport {
    /// The capture's name.
    pub name: String,
    /// Why there is nothing to compare, if the capture failed when it was recorded.
    pub failed: Option<String>,
    /// The comparison.
    pub result: Result<Compared, PredictError>,
}

/// A comparison and its rules.
#[derive(Debug)]
pub struct Compared {
    /// The rules.
    pub model: KernelModel,
    /// All fields.
    pub comparisons: Comparisons,
}

/// The counts of all comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Recordings and captures that could not be read.
    pub unreadable: usize,
    /// Fields that differ.
    pub different: usize,
    /// Different fields among those that the kernel computed at boot, from sizes that it no longer prints.
    pub boot_time: usize,
}

impl Report {
    /// The captures that could be compared, with their names.
    pub fn compared(&self) -> impl Iterator<Item = (&str, &Compared)> {
        self.captures
            .iter()
            .filter_map(|capture| Some((capture.name.as_str(), capture.result.as_ref().ok()?)))
    }

    /// The captures that have nothing to compare because they failed when they were recorded, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        let compared = self.captures.iter().filter(|capture| capture.result.is_ok());
        compared.filter_map(|capture| Some((capture.name.as_str(), capture.failed.as_deref()?)))
    }

    /// The errors of the recording and of its captures.
    pub fn errors(&self) -> impl Iterator<Item = &PredictError> {
        let of_captures = self.captures.iter().filter_map(|capture| capture.result.as_ref().err());
        self.error.iter().chain(of_captures)
    }
}

/// Counts errors and differences.
pub fn outcome(reports: &[Report]) -> Outcome {
    let differences = |apart| {
        let compared = reports.iter().flat_map(Report::compared);
        compared.map(|(_, compared)| compared.comparisons.mismatches(apart).count()).sum()
    };
    Outcome {
        unreadable: reports.iter().flat_map(Report::errors).count(),
        different: differences(false),
        boot_time: differences(true),
    }
}

/// The fields of a class in some captures, and those of the class that are boot-time.
pub fn sum<'a>(compared: impl Iterator<Item = &'a Compared>, class: Class) -> (Counts, Counts) {
    let mut sums = (Counts::default(), Counts::default());
    for compared in compared {
        sums.0 += compared.comparisons.counts(class);
        sums.1 += compared.comparisons.apart(class);
    }
    sums
}

/// Compares all recordings, as many at once as there are CPUs; the reports are in the order of `paths`. `read` opens a
/// path. The observer is called after each recording.
///
/// # Errors
///
/// [`Stopped`] if the observer asks for it. Recordings that cannot be read are part of the reports.
pub fn verify_all(
    paths: &[PathBuf],
    read: &(dyn Fn(&Path) -> Result<Recording, BundleError> + Sync),
    wishes: &Wishes,
    observer: &dyn Observer,
) -> Result<Vec<Report>, Stopped> {
    let all = paths.len();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(all);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut reports = Vec::new();
        loop {
            // Each worker takes the next path: no data is passed through the counters.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(index) else { return Ok(reports) };
            reports.push((index, verify(&path.to_string_lossy(), read(path), wishes)));
            observer.step(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, all as u64)?;
        }
    };
    let mut reports: Vec<(usize, Report)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        // All workers are joined before an early end is passed on.
        let reports: Vec<Result<Vec<_>, Stopped>> = workers.into_iter().map(join).collect();
        reports.into_iter().collect::<Result<Vec<_>, Stopped>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    reports.sort_by_key(|(index, _)| *index);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

/// Compares all captures of a recording that was read from `path`, or reports why it could not be read.
pub fn verify(path: &str, read: Result<Recording, BundleError>, wishes: &Wishes) -> Report {
    let path = path.to_owned();
    match read {
        Ok(recording) => Report {
            path,
            captures: recording.captures.iter().map(|of| report(&recording, of, wishes)).collect(),
            kernel: recording.kernel,
            error: None,
        },
        Err(error) => {
            let error = Some(error.into());
            Report { path, kernel: String::new(), captures: Vec::new(), error }
        }
    }
}

fn report(recording: &Recording, capture: &Capture, wishes: &Wishes) -> CaptureReport {
    let failed = capture.failed.clone().filter(|_| !capture.has_zones());
    // A recording whose captures all failed is an error.
    let is_recorded = || recording.captures.iter().any(Capture::has_zones);
    let result = match failed.is_some() && is_recorded() {
        true => Ok(Compared {
            model: wishes.model.for_kernel(&recording.kernel),
            comparisons: Comparisons::default(),
        }),
        false => compared(recording, capture, wishes),
    };
    CaptureReport { name: capture.name.clone(), failed, result }
}

fn compared(
    recording: &Recording,
    capture: &Capture,
    wishes: &Wishes,
) -> Result<Compared, PredictError> {
    let machine = capture.machine()?;
    let prediction = Prediction::new(recording, capture, &machine, wishes)?;
    let comparisons = compare(recording, capture, &machine, &prediction)?;
    Ok(Compared { model: prediction.model, comparisons })
}
