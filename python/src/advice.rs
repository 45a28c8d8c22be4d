//! `nearpage.doctor` and `nearpage.explain_log`: findings about a machine, and why a kernel refused memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};

use nearpage_bundle::{BundleError, Recording};
use nearpage_doctor::{Facts, Report};
use nearpage_explain::{Explanation, Reader};
use nearpage_linux::Environment;
use nearpage_machine::work::{Observer, Stopped};
use nearpage_machine::{Budget, open_tree, shown};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::convert::document;
use crate::error::{self, Class};
use crate::guard::{long, short};
use crate::table::{Columns, Table};

/// What about a machine helps or hinders an allocator.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Diagnosis {
    report: Report,
    unreadable: Vec<String>,
}

#[pymethods]
impl Diagnosis {
    #[getter]
    fn source(&self) -> &str {
        &self.report.source
    }

    #[getter]
    fn problems(&self) -> usize {
        self.report.problems
    }

    #[getter]
    fn unreadable(&self) -> Vec<String> {
        self.unreadable.clone()
    }

    #[getter]
    fn findings(&self) -> PyResult<Table> {
        let all = &self.report.findings;
        Columns::default()
            .text("check", all.iter().map(|of| Some(of.check)))
            .text("level", all.iter().map(|of| Some(of.level.name())))
            .text("found", all.iter().map(|of| Some(&*of.found)))
            .text("meaning", all.iter().map(|of| Some(&*of.meaning)))
            .text("advice", all.iter().map(|of| of.advice.as_deref()))
            .table()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.report)
    }

    fn __repr__(&self) -> String {
        let Report { source, problems, findings, .. } = &self.report;
        format!("Diagnosis({source:?}: {problems} problems, {} findings)", findings.len())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Bound::new(py, self.findings()?)?.call_method0("_repr_html_")?.extract()
    }
}

/// Findings about this machine and process, or about a copy of another machine's files.
#[pyfunction]
#[pyo3(signature = (path = None, *, capture = None))]
pub(crate) fn doctor(
    py: Python<'_>,
    path: Option<PathBuf>,
    capture: Option<String>,
) -> PyResult<Diagnosis> {
    let of = |source: &str, facts: Facts| Diagnosis {
        report: Report::new(source, &facts),
        unreadable: facts.unreadable,
    };
    let Some(path) = path else {
        let environment =
            Environment::from_variables([]).map_err(|error| Class::Machine.error(None, error))?;
        let facts = short(py, || Facts::of_this_machine(&environment))?;
        return Ok(of("this machine", facts));
    };
    let source = path.display().to_string();
    let wrong = |error: BundleError| Class::Machine.error(Some(source.clone()), error);
    match short(py, || Recording::read(&path, &Budget::DEFAULT))? {
        Ok(recording) => {
            let facts = short(py, || {
                let capture = recording.capture(capture.as_deref())?;
                Ok((Facts::read(&*capture.tree), capture.name.clone()))
            })?;
            let (facts, name) = facts.map_err(wrong)?;
            let Diagnosis { report, unreadable } = of(&source, facts);
            Ok(Diagnosis { report: report.of_capture(name), unreadable })
        }
        // A folder may have fewer files, or have them one folder deeper.
        Err(BundleError::NoRecording { .. }) => {
            let facts = short(py, || open_tree(&path, &Budget::DEFAULT).map(|tree| Facts::read(&*tree)))?;
            Ok(of(&source, facts.map_err(|error| error::machine(&error))?))
        }
        Err(error) => Err(wrong(error)),
    }
}

/// All reports of refused memory in a kernel's log: a path, or its text as bytes.
#[pyfunction]
#[pyo3(signature = (log, *, progress = None))]
pub(crate) fn explain_log<'py>(
    py: Python<'py>,
    log: &Bound<'py, PyAny>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (name, source): (String, Box<dyn BufRead + Send>) = match log.extract::<Vec<u8>>() {
        Ok(text) => ("log".into(), Box::new(Cursor::new(text))),
        Err(_) => {
            let path: PathBuf = log.extract()?;
            (shown(&path).to_string(), Box::new(open(&path)?))
        }
    };
    let read = long(py, progress, move |course| {
        let mut explanations = Vec::new();
        for report in Reader::new(source) {
            course.step(explanations.len() as u64, 0).map_err(Failure::from)?;
            let report = report.map_err(|error| Failure::Read(error.to_string()))?;
            explanations.push(Explanation::of(report));
        }
        Ok(explanations)
    })?;
    let explanations = read.map_err(|failure| match failure {
        Failure::Stopped => PyKeyboardInterrupt::new_err(()),
        Failure::Read(message) => {
            Class::Log.error(Some(name.clone()), format!("{name}: {message}"))
        }
    })?;
    explanations.iter().map(|explanation| document(py, explanation)).collect()
}

enum Failure {
    Stopped,
    Read(String),
}

impl From<Stopped> for Failure {
    fn from(Stopped: Stopped) -> Failure {
        Failure::Stopped
    }
}

fn open(path: &Path) -> PyResult<BufReader<File>> {
    let name = shown(path).to_string();
    let file = File::open(path).map_err(|error| {
        Class::Log.error(Some(name.clone()), format!("{name}: {error}, expected a kernel's log"))
    })?;
    Ok(BufReader::with_capacity(256 << 10, file))
}
