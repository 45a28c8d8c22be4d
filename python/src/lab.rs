//! `nearpage.lab`: scenarios on simulated machines, from the catalogue, files and dicts.

use std::path::PathBuf;

use nearpage_lab::{LabError, Options, Over, Report, Scenario, catalog};
use nearpage_machine::work::Observer;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{document, values as values_of};
use crate::error::Class;
use crate::guard::{long, short};
use crate::named;
use crate::replay::threads;
use crate::table::{Columns, Table, escaped};

/// What a scenario came to.
#[pyclass(frozen, module = "nearpage.lab")]
pub(crate) struct LabReport {
    report: Report,
}

#[pymethods]
impl LabReport {
    #[getter]
    fn name(&self) -> &str {
        &self.report.name
    }

    #[getter]
    fn title(&self) -> &str {
        &self.report.title
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.report.notes.clone()
    }

    #[getter]
    fn has_failed(&self) -> bool {
        self.report.has_failed()
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        self.report.counts.iter().try_for_each(|(name, count)| counts.set_item(name, count))?;
        Ok(counts)
    }

    #[getter]
    fn verdicts(&self) -> PyResult<Table> {
        let rows = &self.report.rows;
        Columns::default()
            .text("row", rows.iter().map(|row| Some(&*row.row)))
            .text("column", rows.iter().map(|row| Some(&*row.column)))
            .real("reference", rows.iter().map(|row| Some(row.reference)))
            .real("model", rows.iter().map(|row| Some(row.model)))
            .text("verdict", rows.iter().map(|row| Some(row.verdict.name())))
            .table()
    }

    #[getter]
    fn holds(&self) -> PyResult<Table> {
        let holds = &self.report.holds;
        Columns::default()
            .text("what", holds.iter().map(|hold| Some(&*hold.what)))
            .real("value", holds.iter().map(|hold| Some(hold.value)))
            .switch("ok", holds.iter().map(|hold| Some(hold.ok)))
            .table()
    }

    #[getter]
    fn tables(&self) -> PyResult<Vec<Table>> {
        let all = std::iter::once(&self.report.table).chain(&self.report.further);
        let filled = all.filter(|table| !table.header.is_empty());
        let table = |table: &nearpage_lab::report::Table| {
            let columns = table.header.iter().enumerate();
            let with = |columns: Columns, (at, name): (usize, &String)| {
                columns.text(name, table.rows.iter().map(|row| row.get(at)))
            };
            columns.fold(Columns::default(), with).table()
        };
        filled.map(table).collect()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.report)
    }

    fn __repr__(&self) -> String {
        let Report { name, rows, holds, .. } = &self.report;
        let result = if self.report.has_failed() { "failed" } else { "as it must be" };
        format!("LabReport({name:?}: {} figures, {} holds, {result})", rows.len(), holds.len())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let mut html = format!("<p><b>{}</b></p>", escaped(&self.report.title));
        let verdicts = Bound::new(py, self.verdicts()?)?;
        html.push_str(&verdicts.call_method0("_repr_html_")?.extract::<String>()?);
        Ok(html)
    }
}

fn failed(place: &str, error: &LabError) -> PyErr {
    match error {
        LabError::Stopped(_) => PyKeyboardInterrupt::new_err(()),
        LabError::File { file, .. } => Class::Lab.error(Some(file.clone()), error),
        _ => Class::Lab.error(Some(place.to_owned()), error),
    }
}

/// A dict as TOML has it. The error is for what JSON has no word for, such as objects and dicts that have themselves, or TOML.
fn toml_of(py: Python<'_>, dict: &Bound<'_, PyDict>) -> Result<String, String> {
    let dumps = || py.import("json")?.call_method1("dumps", (dict,))?.extract::<String>();
    let json = dumps().map_err(|error: PyErr| error.value(py).to_string())?;
    let value: toml::Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    toml::to_string(&value).map_err(|error| error.to_string())
}

/// A scenario by its name, of a file, or of a dict with what the file would say.
fn scenario(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Scenario> {
    if let Ok(dict) = given.cast::<PyDict>() {
        let toml = toml_of(py, dict).map_err(|error| {
            let expected = "keys and values of a scenario file";
            Class::Lab.error(Some("dict".into()), format!("dict: {error}, expected {expected}"))
        })?;
        let scenario = short(py, || Scenario::from_bytes("dict", toml.as_bytes()))?;
        return scenario.map_err(|error| failed("dict", &error));
    }
    let name = given.extract::<PathBuf>()?.display().to_string();
    short(py, || catalog::scenario(&name))?.map_err(|error| failed(&name, &error))
}

fn simulated(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    over: Vec<Over>,
    seed: u64,
    asked: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<LabReport> {
    let (scenario, threads) = (scenario(py, given)?, threads(asked)?);
    let name = scenario.name.clone();
    let report = long(py, progress, move |course| {
        let observer: &dyn Observer = course;
        let options = Options { seed, threads, costs: None, samples: false, observer };
        match over.is_empty() {
            true => nearpage_lab::run(&scenario, &options),
            false => nearpage_lab::sweep(&scenario, &over, &options),
        }
    })?;
    Ok(LabReport { report: report.map_err(|error| failed(&name, &error))? })
}

/// Runs a scenario.
#[pyfunction]
#[pyo3(signature = (scenario, *, seed = 1, threads = None, progress = None))]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = named::seed)] seed: u64,
    #[pyo3(from_py_with = named::threads)] threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<LabReport> {
    simulated(py, scenario, Vec::new(), seed, threads, progress)
}

/// Runs a scenario under all combinations of some settings.
#[pyfunction]
#[pyo3(signature = (scenario, over, *, seed = 1, threads = None, progress = None))]
pub(crate) fn sweep(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    over: &Bound<'_, PyDict>,
    #[pyo3(from_py_with = named::seed)] seed: u64,
    #[pyo3(from_py_with = named::threads)] threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<LabReport> {
    let wrong = |message: String| Class::Argument.error(Some("over".into()), message);
    let one = |(key, values): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<Over> {
        let values = values_of(&key, &values)?.join(",");
        let text = format!("{}={values}", key.str()?);
        text.parse().map_err(|error| wrong(format!("over: {error}")))
    };
    let over: Vec<Over> = over.iter().map(one).collect::<PyResult<_>>()?;
    if over.is_empty() {
        let message = "over has no setting, expected a dict of keys with their values";
        return Err(wrong(message.into()));
    }
    simulated(py, scenario, over, seed, threads, progress)
}

/// The names of the catalogue.
#[pyfunction]
pub(crate) fn scenarios() -> Vec<&'static str> {
    catalog::names().collect()
}
