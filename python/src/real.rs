//! What is about real kernels and real memory: `verify`, `bench` and `record`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nearpage::Model;
use nearpage_bench::{Document, Options, Run};
use nearpage_bundle::predict::{ModelChoice, Wishes};
use nearpage_bundle::{Recording, verify as verification};
use nearpage_linux::Environment;
use nearpage_machine::work::Observer;
use nearpage_trace::record::{Contents, Control, EventChoice, Limits, Output, Recorder, Target};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::convert::{document, model};
use crate::error::Class;
use crate::guard::long;
use crate::named;
use crate::table::{Columns, Table};

/// Recordings, predicted and compared with what their kernels printed.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Verification {
    reports: Vec<verification::Report>,
}

#[pymethods]
impl Verification {
    /// Whether everything could be read, and is the same; fields that the kernel computed at boot do not count.
    #[getter]
    fn is_same(&self) -> bool {
        let outcome = verification::outcome(&self.reports);
        (outcome.unreadable, outcome.different) == (0, 0)
    }

    #[getter]
    fn mismatches(&self) -> PyResult<Table> {
        let mut rows: Vec<(&str, &str, String, String, String, &str, bool)> = Vec::new();
        for report in &self.reports {
            for (capture, compared) in report.compared() {
                for apart in [false, true] {
                    rows.extend(compared.comparisons.mismatches(apart).map(|field| {
                        let (predicted, recorded) =
                            (field.predicted.to_string(), field.recorded.to_string());
                        (
                            &*report.path,
                            capture,
                            field.field.to_string(),
                            predicted,
                            recorded,
                            field.rule,
                            apart,
                        )
                    }));
                }
            }
        }
        Columns::default()
            .text("path", rows.iter().map(|of| Some(of.0)))
            .text("capture", rows.iter().map(|of| Some(of.1)))
            .text("field", rows.iter().map(|of| Some(&*of.2)))
            .text("predicted", rows.iter().map(|of| Some(&*of.3)))
            .text("recorded", rows.iter().map(|of| Some(&*of.4)))
            .text("rule", rows.iter().map(|of| Some(of.5)))
            .switch("is_boot_time", rows.iter().map(|of| Some(of.6)))
            .table()
    }

    #[getter]
    fn captures(&self) -> PyResult<Table> {
        /// Path, capture, model, fields that matched and all, error.
        type CaptureRow<'r> = (&'r str, &'r str, &'r str, Option<(u64, u64)>, Option<String>);
        let mut rows: Vec<CaptureRow<'_>> = Vec::new();
        for report in &self.reports {
            let error = report
                .error
                .iter()
                .map(|error| (&*report.path, "", "", None, Some(error.to_string())));
            rows.extend(error);
            for capture in &report.captures {
                let (model, counts, error) = match &capture.result {
                    Ok(compared) => {
                        let classes = nearpage_bundle::predict::Class::ALL.into_iter();
                        let counts = classes.map(|class| compared.comparisons.counts(class));
                        let sums = counts.fold((0, 0), |sums, of| {
                            (sums.0 + of.matched as u64, sums.1 + of.total as u64)
                        });
                        (compared.model.model.name, Some(sums), None)
                    }
                    Err(error) => ("", None, Some(error.to_string())),
                };
                rows.push((&report.path, &capture.name, model, counts, error));
            }
        }
        Columns::default()
            .text("path", rows.iter().map(|of| Some(of.0)))
            .text("capture", rows.iter().map(|of| Some(of.1)))
            .text("model", rows.iter().map(|of| Some(of.2)))
            .count("matched", rows.iter().map(|of| of.3.map(|counts| counts.0)))
            .count("total", rows.iter().map(|of| of.3.map(|counts| counts.1)))
            .text("error", rows.iter().map(|of| of.4.as_deref()))
            .table()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &verification::entries(&self.reports))
    }

    fn __repr__(&self) -> String {
        let outcome = verification::outcome(&self.reports);
        format!(
            "Verification({} recordings, {} fields differ, {} unreadable)",
            self.reports.len(),
            outcome.different,
            outcome.unreadable
        )
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Bound::new(py, self.captures()?)?.call_method0("_repr_html_")?.extract()
    }
}

/// Predicts recordings, and compares.
#[pyfunction]
#[pyo3(signature = (paths, model, *, progress = None))]
pub(crate) fn verify(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    model: &str,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Verification> {
    let model = match model {
        "auto" => ModelChoice::Auto,
        name => match self::model(name)? {
            of if of.name == Model::NEARPAGE.name => {
                let message = "model: recordings are of Linux, expected a linux-* model or auto";
                return Err(Class::Argument.error(Some("model".into()), message));
            }
            of => ModelChoice::Of(of),
        },
    };
    if paths.is_empty() {
        let message = "there is no recording, expected the path of one or more";
        return Err(Class::Argument.error(Some("paths".into()), message));
    }
    let wishes = Wishes { model, settings: Vec::new() };
    let reports = long(py, progress, move |course| {
        verification::verify_all(&paths, &|path| Recording::read(path, &nearpage_machine::Budget::DEFAULT), &wishes, course)
    })?;
    let reports = reports.map_err(|_| PyKeyboardInterrupt::new_err(()))?;
    Ok(Verification { reports })
}

/// Times of real memory.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct BenchReport {
    document: Document,
    skipped: Vec<(String, String)>,
}

#[pymethods]
impl BenchReport {
    #[getter]
    fn rows(&self) -> PyResult<Table> {
        let rows = &self.document.rows;
        Columns::default()
            .text("bench", rows.iter().map(|of| Some(of.key.work.to_string())))
            .text("allocator", rows.iter().map(|of| Some(of.key.allocator)))
            .count("threads", rows.iter().map(|of| Some(of.key.threads as u64)))
            .count("n", rows.iter().map(|of| Some(of.key.n as u64)))
            .real("ns_median", rows.iter().map(|of| Some(of.summary.median)))
            .real("ns_min", rows.iter().map(|of| Some(of.summary.min)))
            .real("ns_max", rows.iter().map(|of| Some(of.summary.max)))
            .real("ns_p99", rows.iter().map(|of| of.p99))
            .table()
    }

    /// What was not measured, and why.
    #[getter]
    fn skipped(&self) -> Vec<(String, String)> {
        self.skipped.clone()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.document)
    }

    fn __repr__(&self) -> String {
        format!("BenchReport({} rows, {} skipped)", self.document.rows.len(), self.skipped.len())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Bound::new(py, self.rows()?)?.call_method0("_repr_html_")?.extract()
    }
}

/// Measures what pages cost on this machine's real memory.
#[pyfunction]
#[pyo3(signature = (benches, *, quick, bytes = None, rounds = None, threads = None, seed = None, models, progress = None))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn bench(
    py: Python<'_>,
    benches: Vec<String>,
    quick: bool,
    #[pyo3(from_py_with = named::bytes)] bytes: Option<u64>,
    #[pyo3(from_py_with = named::rounds)] rounds: Option<usize>,
    #[pyo3(from_py_with = named::threads)] threads: Option<usize>,
    #[pyo3(from_py_with = named::seed)] seed: Option<u64>,
    models: Vec<String>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<BenchReport> {
    let refused = |error: String| Class::Argument.error(Some("bench".into()), error);
    let environment =
        Environment::from_variables([]).map_err(|error| Class::Machine.error(None, error))?;
    let models: Vec<Model> = models.iter().map(|name| model(name)).collect::<PyResult<_>>()?;
    let mut options = Options::default().quick(quick).models(&models).environment(environment);
    if !benches.is_empty() {
        let named = benches.iter().map(|name| name.parse());
        let named: Result<Vec<nearpage_bench::Bench>, _> = named.collect();
        options = options.benches(
            &named.map_err(|error: nearpage_bench::UnknownBench| refused(error.to_string()))?,
        );
    }
    if let Some(bytes) = bytes {
        options = options.bytes_per_node(bytes);
    }
    if let Some(rounds) = rounds.filter(|rounds| *rounds > 0) {
        options = options.rounds(rounds);
    }
    if let Some(threads) = threads.filter(|threads| *threads > 0) {
        options = options.threads(threads);
    }
    if let Some(seed) = seed {
        options = options.seed(seed);
    }
    options.check().map_err(|error| refused(error.to_string()))?;
    let measured = long(py, progress, move |course| {
        let run = Run::new(&options)?;
        let mut report =
            BenchReport { document: Document::of(run.machine()?.0), skipped: Vec::new() };
        for &bench in run.benches() {
            match run.why_not(bench) {
                Some(why) => report.skipped.push((bench.name().into(), why.into())),
                None => report.document.add(run.measure(bench, course)?),
            }
        }
        Ok::<BenchReport, nearpage_bench::BenchError>(report)
    })?;
    measured.map_err(|error| match error {
        nearpage_bench::BenchError::Stopped(_) => PyKeyboardInterrupt::new_err(()),
        error => Class::Memory.error(None, error),
    })
}

/// Between two looks whether a recording is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Records what the page allocator of this machine does while a command runs.
#[pyfunction]
#[pyo3(signature = (command, output, *, slab, lock, seconds = None))]
pub(crate) fn record<'py>(
    py: Python<'py>,
    command: Vec<String>,
    output: PathBuf,
    slab: bool,
    lock: bool,
    #[pyo3(from_py_with = named::seconds)] seconds: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let duration = match seconds.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(duration)) if !duration.is_zero() => Some(duration),
        Some(_) => {
            let message = "seconds: expected a number above 0";
            return Err(Class::Argument.error(Some("seconds".into()), message));
        }
    };
    if command.is_empty() && duration.is_none() {
        let message = "what is to be recorded? Expected a command, or seconds";
        return Err(Class::Argument.error(Some("command".into()), message));
    }
    let recorded = long(py, None, move |course| {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let control = Control::new().map_err(|error| said(&error))?;
        let output = Output::claim(&output, None).map_err(|error| said(&error))?;
        let is_done = Arc::new(AtomicBool::new(false));
        let (of_recorder, done) = (control.clone(), is_done.clone());
        thread::scope(|scope| {
            // An interrupted call ends the recording, and the bundle has what happened until then.
            scope.spawn(move || {
                let mut is_asked = false;
                while !done.load(Ordering::Relaxed) {
                    if !is_asked && course.progress(0, 0).is_break() {
                        of_recorder.stop();
                        is_asked = true;
                    }
                    thread::sleep(LOOK);
                }
            });
            let mut program = command.first().map(Command::new);
            if let Some(program) = &mut program {
                program.args(&command[1..]);
            }
            let target = match &mut program {
                Some(program) => Target::Command { command: program, words: command.clone() },
                None => Target::Machine,
            };
            let (events, limits) =
                (EventChoice { slab, lock, ..EventChoice::default() }, Limits::default());
            let contents = Contents::default();
            let recorder = Recorder { target, events, duration, limits, contents };
            let recorded = recorder.record(output, &control, &mut |_| ());
            is_done.store(true, Ordering::Relaxed);
            recorded.map_err(|error| said(&error))
        })
    })?;
    document(py, &recorded.map_err(|error| Class::Machine.error(None, error))?)
}
