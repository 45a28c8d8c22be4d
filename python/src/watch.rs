//! `nearpage.top`: what a machine's memory is like now, was in a copy, or was while a tape recorded it, as tables.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nearpage_bundle::{BundleError, Recording};
use nearpage_machine::work::Observer;
use nearpage_machine::{Budget, FileTree, FolderTree, open_tree, shown};
use nearpage_watch::{Mark, Pagesets, Sample, Sampler, Tape, marks};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use serde::Serialize;

use crate::convert::document;
use crate::error::{self, Class};
use crate::guard::long;
use crate::named;
use crate::table::{Columns, Table, escaped};

/// The longest pause between two samples.
const SECONDS_MAX: f64 = 86_400.0;
/// Between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);
/// Files without which there is nothing to watch.
const FIGURES: [&str; 3] = ["proc/zoneinfo", "proc/buddyinfo", "sys/devices/system/node"];

/// A machine at one moment, and what is wrong with it.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Moment {
    source: String,
    sample: Sample,
    marks: Vec<Mark>,
}

/// The JSON of `nearpage top --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    source: &'a str,
    sample: &'a Sample,
    marks: &'a [Mark],
}

#[pymethods]
impl Moment {
    #[getter]
    fn source(&self) -> &str {
        &self.source
    }

    #[getter]
    fn time_ms(&self) -> u64 {
        self.sample.time_ms
    }

    #[getter]
    fn kernel(&self) -> Option<&str> {
        self.sample.kernel.as_deref()
    }

    #[getter]
    fn unreadable(&self) -> Vec<String> {
        self.sample.unreadable.clone()
    }

    #[getter]
    fn nodes(&self) -> PyResult<Table> {
        let all = &self.sample.nodes;
        let mut columns = Columns::default()
            .count("node", all.iter().map(|of| Some(of.node.into())))
            .text("cpus", all.iter().map(|of| Some(&*of.cpus)))
            .count("total_kib", all.iter().map(|of| of.total))
            .count("free_kib", all.iter().map(|of| of.free))
            .count("file_kib", all.iter().map(|of| of.file))
            .count("anon_kib", all.iter().map(|of| of.anon))
            .count("slab_kib", all.iter().map(|of| of.slab))
            .count("shmem_kib", all.iter().map(|of| of.shmem))
            .count("anon_huge_kib", all.iter().map(|of| of.anon_huge))
            .count("hugetlb_pages", all.iter().map(|of| of.hugetlb.map(|pages| pages.0)))
            .count("hugetlb_free_pages", all.iter().map(|of| of.hugetlb.map(|pages| pages.1)));
        for name in nearpage_watch::NUMA {
            let count = |of: &nearpage_watch::NodeSample| {
                of.numa.iter().find(|(other, _)| *other == name).map(|(_, count)| *count)
            };
            columns = columns.count(name, all.iter().map(count));
        }
        columns.table()
    }

    #[getter]
    fn zones(&self) -> PyResult<Table> {
        let all = &self.sample.zones;
        Columns::default()
            .count("node", all.iter().map(|of| Some(of.node.into())))
            .text("zone", all.iter().map(|of| Some(&*of.zone)))
            .count("free", all.iter().map(|of| of.free))
            .count("min", all.iter().map(|of| of.min))
            .count("low", all.iter().map(|of| of.low))
            .count("high", all.iter().map(|of| of.high))
            .count("promo", all.iter().map(|of| of.promo))
            .count("boost", all.iter().map(|of| of.boost))
            .count("present", all.iter().map(|of| of.present))
            .count("managed", all.iter().map(|of| of.managed))
            .count("pageset_pages", all.iter().map(|of| of.pageset_pages))
            .count(
                "largest_order",
                all.iter().map(|of| of.largest_order().map(|order| order as u64)),
            )
            .count("numa_hit", all.iter().map(|of| of.numa_hit))
            .count("numa_miss", all.iter().map(|of| of.numa_miss))
            .count("numa_foreign", all.iter().map(|of| of.numa_foreign))
            .table()
    }

    /// A row for each zone and order.
    #[getter]
    fn blocks(&self) -> PyResult<Table> {
        let rows = self.sample.zones.iter().flat_map(|zone| {
            zone.blocks.iter().enumerate().map(move |(order, count)| (zone, order as u64, *count))
        });
        Columns::default()
            .count("node", rows.clone().map(|(zone, ..)| Some(zone.node.into())))
            .text("zone", rows.clone().map(|(zone, ..)| Some(&*zone.zone)))
            .count("order", rows.clone().map(|(_, order, _)| Some(order)))
            .count("free_blocks", rows.map(|(.., count)| Some(count)))
            .table()
    }

    /// A row for each zone and CPU.
    #[getter]
    fn pagesets(&self) -> PyResult<Table> {
        let zones = self.sample.zones.iter();
        let rows = zones.flat_map(|zone| zone.pagesets.iter().map(move |of| (zone, of)));
        Columns::default()
            .count("node", rows.clone().map(|(zone, _)| Some(zone.node.into())))
            .text("zone", rows.clone().map(|(zone, _)| Some(&*zone.zone)))
            .count("cpu", rows.clone().map(|(_, of)| Some(of.cpu.into())))
            .count("count", rows.clone().map(|(_, of)| Some(of.count)))
            .count("high", rows.clone().map(|(_, of)| Some(of.high)))
            .count("batch", rows.map(|(_, of)| Some(of.batch)))
            .table()
    }

    #[getter]
    fn events(&self) -> PyResult<Table> {
        let all = &self.sample.events;
        Columns::default()
            .text("event", all.iter().map(|(name, _)| Some(*name)))
            .count("since_boot", all.iter().map(|(_, count)| Some(*count)))
            .table()
    }

    /// A row for each process, with a column for each node.
    #[getter]
    fn processes(&self) -> PyResult<Table> {
        let all = &self.sample.processes.list;
        let mut columns = Columns::default()
            .count("pid", all.iter().map(|of| Some(of.pid.into())))
            .text("name", all.iter().map(|of| Some(&*of.name)))
            .count("uid", all.iter().map(|of| of.uid.map(Into::into)))
            .count("rss_kib", all.iter().map(|of| Some(of.rss)))
            .count("runs_on", all.iter().map(|of| of.runs_on.map(Into::into)))
            .text("may_use", all.iter().map(|of| Some(&*of.may_use)))
            .count("minor_faults_per_second", all.iter().map(|of| of.minor_faults))
            .count("major_faults_per_second", all.iter().map(|of| of.major_faults));
        for node in self.sample.nodes.iter().map(|node| node.node) {
            let kib = all.iter().map(|of| of.placed_ago.map(|_| of.on(node)));
            columns = columns.count(&format!("node_{node}_kib"), kib);
        }
        columns.table()
    }

    #[getter]
    fn marks(&self) -> PyResult<Table> {
        let all = &self.marks;
        Columns::default()
            .text("word", all.iter().map(|of| Some(of.word)))
            .count("node", all.iter().map(|of| of.node.map(Into::into)))
            .text("zone", all.iter().map(|of| of.zone.as_deref()))
            .text("reason", all.iter().map(|of| Some(&*of.reason)))
            .table()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Moment { source, sample, marks } = self;
        document(py, &Document { schema: 1, source, sample, marks })
    }

    fn __repr__(&self) -> String {
        let Moment { source, sample, marks } = self;
        let (nodes, zones) = (sample.nodes.len(), sample.zones.len());
        format!("Moment({source:?}: {nodes} nodes, {zones} zones, {} marks)", marks.len())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let mut html = format!("<p><b>{}</b></p>", escaped(&self.__repr__()));
        for table in [self.marks()?, self.nodes()?, self.zones()?] {
            if table.batch.num_rows() > 0 {
                let table = Bound::new(py, table)?;
                html.push_str(&table.call_method0("_repr_html_")?.extract::<String>()?);
            }
        }
        Ok(html)
    }
}

/// Why there is no moment.
enum Failure {
    Stopped,
    Machine(String),
    Error(PyErr),
}

/// A sample of this machine, or of a copy; with `seconds` the second of two, with rates.
#[pyfunction]
#[pyo3(signature = (path = None, *, capture = None, seconds = 0.0, processes = 32))]
pub(crate) fn top(
    py: Python<'_>,
    path: Option<PathBuf>,
    capture: Option<String>,
    #[pyo3(from_py_with = named::seconds)] seconds: f64,
    #[pyo3(from_py_with = named::processes)] processes: usize,
) -> PyResult<Moment> {
    let wrong = |name: &str, message: &str| Class::Argument.error(Some(name.into()), message);
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(wrong("seconds", "seconds: expected a number from 0 to 86400"));
    }
    if path.is_none() && capture.is_some() {
        return Err(wrong("capture", "capture is of a recording, expected its path, too"));
    }
    let pause = Duration::from_secs_f64(seconds);
    let source = path.as_deref().map_or("this machine".into(), |path| shown(path).to_string());
    let name = source.clone();
    let taken = long(py, None, move |course| {
        let tree = tree(path.as_deref(), capture.as_deref())?;
        // Processes are read without a budget: who asks waits, and wants to know.
        let sampler = Sampler::new(tree).with_pagesets(Pagesets::EachCpu);
        let mut sampler = match processes {
            0 => sampler,
            most => sampler.with_processes(most, None),
        };
        let mut sample = sampler.sample();
        let mut before = None;
        if !pause.is_zero() {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if course.progress(0, 0).is_break() {
                    return Err(Failure::Stopped);
                }
                thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
            }
            before = Some(std::mem::replace(&mut sample, sampler.sample()));
        }
        let marks = marks(before.as_ref(), &sample);
        Ok(Moment { source, sample, marks })
    })?;
    taken.map_err(|failure| match failure {
        Failure::Stopped => PyKeyboardInterrupt::new_err(()),
        Failure::Machine(message) => Class::Machine.error(Some(name), message),
        Failure::Error(error) => error,
    })
}

/// The samples of a tape that `nearpage top --record` wrote.
#[pyfunction]
pub(crate) fn tape(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Moment>> {
    let name = shown(&path).to_string();
    let played = long(py, None, move |course| {
        let mut tape = Tape::open(&path).map_err(|error| Failure::Machine(error.to_string()))?;
        let source = match tape.source() {
            "" => shown(&path).to_string(),
            source => source.to_owned(),
        };
        let mut moments: Vec<Moment> = Vec::with_capacity(tape.len());
        for at in 0..tape.len() {
            course.step(at as u64, tape.len() as u64).map_err(|_| Failure::Stopped)?;
            let sample = tape.sample(at);
            let marks = marks(moments.last().map(|before| &before.sample), &sample);
            moments.push(Moment { source: source.clone(), sample, marks });
        }
        Ok(moments)
    })?;
    played.map_err(|failure| match failure {
        Failure::Stopped => PyKeyboardInterrupt::new_err(()),
        Failure::Machine(message) => Class::Machine.error(Some(name), message),
        Failure::Error(error) => error,
    })
}

/// The files of a machine. Without a path, this one's.
fn tree(path: Option<&Path>, capture: Option<&str>) -> Result<Box<dyn FileTree>, Failure> {
    let Some(path) = path else { return Ok(Box::new(FolderTree::new("/"))) };
    let wrong = |error: BundleError| Failure::Machine(error.to_string());
    match Recording::read(path, &Budget::DEFAULT) {
        Ok(mut recording) => {
            let name = recording.capture(capture).map_err(wrong)?.name.clone();
            let at = recording.captures.iter().position(|capture| capture.name == name);
            let at = at.expect("the capture was found by its name");
            Ok(recording.captures.swap_remove(at).tree)
        }
        // A folder may have fewer files, or have them one folder deeper.
        Err(BundleError::NoRecording { .. }) => {
            let tree = open_tree(path, &Budget::DEFAULT).map_err(|error| Failure::Error(error::machine(&error)))?;
            let [zones, blocks, nodes] = FIGURES;
            let has = |file| !matches!(tree.read(file), Ok(None));
            let has_nodes = || tree.names(nodes).is_ok_and(|names| !names.is_empty());
            match has(zones) || has(blocks) || has_nodes() {
                true => Ok(tree),
                false => Err(Failure::Machine(format!(
                    "{}: no copy of a machine, expected one of {}",
                    shown(path),
                    FIGURES.join(", ")
                ))),
            }
        }
        Err(error) => Err(wrong(error)),
    }
}
