//! `nearpage.Bundle`: a recording with a trace, and what is asked of it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use nearpage::Model;
use nearpage_machine::over::Over;
use nearpage_replay::bound::Limits;
use nearpage_replay::twin::TwinWish;
use nearpage_replay::{
    Combinations, CpuRule, Options, Question, Replay, Subject, Tunable, Wish, ZoneChoice,
};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{model, model_for, setting, values as values_of};
use crate::error::{self, Class, failed, there};
use crate::events::Events;
use crate::guard::long;
use crate::machine::Machine;
use crate::named;
use crate::report::{BoundAnswer, Report, Rules, sweep_table};
use crate::table::{Columns, Table};
use crate::twin::Profile;

/// CPUs of another machine, and copies of a trace on it. Studies take the same.
const TIMES: RangeInclusive<u32> = 1..=1 << 16;

/// A recording with a trace, in its start state.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Bundle {
    pub(crate) replay: Arc<Replay>,
}

/// The tunables of a dict.
pub(crate) fn tunables(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Tunable>> {
    let Some(settings) = settings else { return Ok(Vec::new()) };
    let one = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let text = format!("{}={}", key.str()?, setting(&value)?);
        text.parse().map_err(|error| Class::Argument.error(Some("settings".into()), error))
    };
    settings.iter().map(one).collect()
}

/// Values of settings to combine.
fn over(settings: &Bound<'_, PyDict>) -> PyResult<Vec<Over>> {
    let one = |(key, values): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        Ok(Over { key: key.str()?.to_string(), values: values_of(&key, &values)? })
    };
    settings.iter().map(one).collect()
}

/// The threads that were asked for, or as many as this process may use.
pub(crate) fn threads(asked: Option<usize>) -> PyResult<NonZeroUsize> {
    match asked {
        None => Ok(available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        Some(threads) => NonZeroUsize::new(threads).ok_or_else(|| {
            Class::Argument.error(Some("threads".into()), "threads=0, expected 1 or more")
        }),
    }
}

fn choice<T: Copy>(argument: &str, name: &str, all: &[(&str, T)]) -> PyResult<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let message = format!("{argument}={name:?}, expected one of {}", names.join(", "));
        Class::Argument.error(Some(argument.into()), message)
    })
}

/// Which CPU of another machine plays a recorded one.
pub(crate) fn cpu_rule(name: &str) -> PyResult<CpuRule> {
    let rules = [
        ("socket", CpuRule::Socket),
        ("comm", CpuRule::Comm),
        ("round-robin", CpuRule::RoundRobin),
    ];
    choice("map_cpus", name, &rules)
}

#[pymethods]
impl Bundle {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Bundle> {
        there(&path)?;
        let input = path.display().to_string();
        let replay = long(py, None, move |_| Replay::open(&path, &nearpage_machine::Budget::DEFAULT))?;
        Ok(Bundle { replay: Arc::new(replay.map_err(|error| failed(&input, &error))?) })
    }

    #[staticmethod]
    fn shipped(py: Python<'_>) -> PyResult<Bundle> {
        Ok(Bundle { replay: Arc::new(long(py, None, |_| Replay::shipped())?) })
    }

    #[getter]
    fn name(&self) -> &str {
        self.replay.bundle().name()
    }

    #[getter]
    fn kernel(&self) -> &str {
        &self.replay.bundle().recording().kernel
    }

    fn events(&self) -> Events {
        Events { replay: self.replay.clone() }
    }

    #[pyo3(signature = (
        model = "auto", settings = None, *, machine = None, cpus = None, map_cpus = "socket", repeat = 1,
        placement = "model", starts = 0, progress = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn replay(
        &self,
        py: Python<'_>,
        model: &str,
        settings: Option<&Bound<'_, PyDict>>,
        machine: Option<PyRef<'_, Machine>>,
        #[pyo3(from_py_with = named::cpus)] cpus: Option<u32>,
        map_cpus: &str,
        #[pyo3(from_py_with = named::repeat)] repeat: u32,
        placement: &str,
        #[pyo3(from_py_with = named::starts)] starts: u32,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Report> {
        let named = match model {
            "auto" => None,
            name => Some(model_for(name, self.kernel())?),
        };
        for (argument, count) in [("cpus", cpus), ("repeat", Some(repeat))] {
            if let Some(count) = count.filter(|count| !TIMES.contains(count)) {
                let (least, most) = (TIMES.start(), TIMES.end());
                let message = format!("{argument}={count}, expected {least} to {most}");
                return Err(Class::Argument.error(Some(argument.into()), message));
            }
        }
        let other = match (&machine, cpus) {
            (Some(_), Some(_)) => {
                let message = "machine and cpus are both given, expected one of them";
                return Err(Class::Argument.error(Some("cpus".into()), message));
            }
            (Some(machine), None) => Some(machine.description.clone()),
            (None, Some(cpus)) => {
                let scaled = self.replay.scaled_machine(cpus, repeat);
                Some(scaled.map_err(|error| error::machine(&error))?)
            }
            (None, None) if repeat != 1 => {
                let message =
                    "repeat needs a machine for the copies, expected machine or cpus with it";
                return Err(Class::Argument.error(Some("repeat".into()), message));
            }
            (None, None) => None,
        };
        let wish = Wish {
            model: named,
            tunables: tunables(settings)?,
            zonelist_cache: None,
            machine: other,
            cpus: cpu_rule(map_cpus)?,
            repeat,
        };
        let places = [("model", ZoneChoice::Model), ("recorded", ZoneChoice::Recorded)];
        let zones = choice("placement", placement, &places)?;
        let options = Options { zones, starts, wish, ..Options::default() };
        let replay = self.replay.clone();
        let report = long(py, progress, move |course| replay.run(&options, course))?;
        Ok(Report { report: report.map_err(|error| failed(self.name(), &error))? })
    }

    #[pyo3(signature = (subject, *, progress = None))]
    fn explain(
        &self,
        py: Python<'_>,
        subject: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<String>> {
        let subject: Subject = subject
            .parse()
            .map_err(|error| Class::Argument.error(Some("subject".into()), error))?;
        let options = Options { explain: Some(subject), ..Options::default() };
        let replay = self.replay.clone();
        let report = long(py, progress, move |course| replay.run(&options, course))?;
        let report = report.map_err(|error| failed(self.name(), &error))?;
        Ok(report.explain.unwrap_or_default())
    }

    #[pyo3(signature = (over, *, threads = None, progress = None))]
    fn sweep(
        &self,
        py: Python<'_>,
        over: &Bound<'_, PyDict>,
        #[pyo3(from_py_with = named::threads)] threads: Option<usize>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Table> {
        let combinations = Combinations::of(&self::over(over)?)
            .map_err(|error| Class::Argument.error(Some("over".into()), error))?;
        let (replay, threads) = (self.replay.clone(), self::threads(threads)?);
        let finished = Arc::new(Mutex::new(Vec::new()));
        let keep = finished.clone();
        let sweep = long(py, progress, move |course| {
            replay.sweep_each(&combinations, threads, course, |point| {
                keep.lock().unwrap_or_else(PoisonError::into_inner).push(point.clone());
            })
        });
        match sweep {
            Ok(sweep) => {
                sweep_table(&sweep.map_err(|error| failed(self.name(), &error))?.points, true)
            }
            Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => {
                let points = finished.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Err(error::interrupted(
                    py,
                    Bound::new(py, sweep_table(&points, false)?)?.into_any(),
                ))
            }
            Err(error) => Err(error),
        }
    }

    #[pyo3(signature = (models = Vec::new(), points = Vec::new(), *, start = "any", progress = None))]
    fn bound(
        &self,
        py: Python<'_>,
        models: Vec<String>,
        #[pyo3(from_py_with = named::points)] points: Vec<(u64, u64)>,
        start: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<BoundAnswer> {
        let models: Vec<Model> = models.iter().map(|name| model(name)).collect::<PyResult<_>>()?;
        let points = points.into_iter().map(|(kept, moved)| Limits { kept, moved }).collect();
        let from_recorded = choice("start", start, &[("any", false), ("recorded", true)])?;
        let question = Question { models, points, from_recorded };
        let replay = self.replay.clone();
        let answer = long(py, progress, move |course| replay.bound(&question, course))?;
        Ok(BoundAnswer { answer: answer.map_err(|error| failed(self.name(), &error))? })
    }

    #[pyo3(signature = (folder, *, cpus = None, nodes = None, hours = None, stretch_seconds = None, seed = 0, progress = None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn twin(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        #[pyo3(from_py_with = named::cpus)] cpus: Option<u32>,
        #[pyo3(from_py_with = named::nodes)] nodes: Option<u32>,
        #[pyo3(from_py_with = named::hours)] hours: Option<f64>,
        #[pyo3(from_py_with = named::stretch_seconds)] stretch_seconds: Option<f64>,
        #[pyo3(from_py_with = named::seed)] seed: u64,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bundle> {
        let seconds = hours.map(|hours| hours * 3600.0);
        let wish = TwinWish { cpus, nodes, seconds, stretch_seconds, seed };
        let replay = crate::twin::twin(&self.replay, py, folder, wish, progress)?;
        Ok(Bundle { replay: Arc::new(replay) })
    }

    #[pyo3(signature = (*, progress = None))]
    fn profile(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<Profile> {
        crate::twin::profile(&self.replay, py, progress)
    }

    /// What the kernel counted: the counters of /proc/vmstat in two captures.
    fn counters(&self) -> PyResult<Table> {
        let counters = |capture: &str| {
            let capture = self.replay.bundle().recording().capture(Some(capture)).ok();
            let text = capture.and_then(|capture| capture.tree.read("proc/vmstat").ok().flatten());
            let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
            let pairs = text.lines().filter_map(|line| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.trim().parse().ok()?))
            });
            pairs.collect::<BTreeMap<String, u64>>()
        };
        let (before, after) = (counters("before"), counters("after"));
        let names: Vec<&String> = before.keys().filter(|name| after.contains_key(*name)).collect();
        Columns::default()
            .text("counter", names.iter().map(|name| Some(&***name)))
            .count("before", names.iter().map(|name| before.get(*name).copied()))
            .count("after", names.iter().map(|name| after.get(*name).copied()))
            .table()
    }

    fn __repr__(&self) -> String {
        format!("Bundle({:?}, kernel {})", self.name(), self.kernel())
    }
}

/// Sets of rules over bundles, beside those of Linux 6.18.
#[pyfunction]
#[pyo3(signature = (paths, models, *, threads = None, progress = None))]
pub(crate) fn compare_rules(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    models: Vec<String>,
    #[pyo3(from_py_with = named::threads)] threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Rules> {
    let models: Vec<Model> = models.iter().map(|name| model(name)).collect::<PyResult<_>>()?;
    let threads = self::threads(threads)?;
    if paths.is_empty() {
        let message = "there is no bundle, expected the path of one or more";
        return Err(Class::Argument.error(Some("bundles".into()), message));
    }
    let compared = long(py, progress, move |course| {
        let bundles = paths.iter().map(|path| Replay::open(path, &nearpage_machine::Budget::DEFAULT)).collect::<Result<Vec<_>, _>>()?;
        nearpage_replay::rules::compare_rules(&bundles, &models, threads, course)
    })?;
    Ok(Rules { compared: compared.map_err(|error| failed("bundles", &error))? })
}

/// Reads the events of a trace and makes nothing of them: what a stream of them is measured against. Answers how many there are.
#[pyfunction]
pub(crate) fn _read_events(py: Python<'_>, bundle: &Bundle) -> PyResult<u64> {
    let replay = bundle.replay.clone();
    let counts = long(py, None, move |course| replay.bundle().events(course, |_| Ok(())))?;
    Ok(counts.map_err(|error| failed(bundle.name(), &error))?.events)
}

/// The settings of what-ifs and sweeps of a replay: key, values, meaning.
#[pyfunction]
pub(crate) fn settings() -> Vec<(&'static str, &'static str, &'static str)> {
    Tunable::keys().map(|key| (key.name, key.values, key.meaning)).collect()
}
