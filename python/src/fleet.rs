//! The native half of `nearpage.fleet`: a bundle that is measured many times, and what studies are checked and named with.

use std::path::PathBuf;
use std::sync::Arc;

use nearpage::Model;
use nearpage_replay::rules::Prepared as Measured;
use nearpage_replay::{Replay, Wish};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{document, model, model_for};
use crate::error::{self, Class, failed};
use crate::guard::long;
use crate::machine::Machine;
use crate::replay::{cpu_rule, tunables};
use crate::report::Report;

/// A bundle whose trace was looked through once, to be measured many times.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Prepared {
    measured: Arc<Measured>,
}

#[pymethods]
impl Prepared {
    #[staticmethod]
    #[pyo3(signature = (path, *, progress = None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Prepared> {
        error::there(&path)?;
        let input = path.display().to_string();
        let measured = long(py, progress, move |course| {
            Replay::open(&path, &nearpage_machine::Budget::DEFAULT).and_then(|replay| Measured::new(replay, course))
        })?;
        Ok(Prepared { measured: Arc::new(measured.map_err(|error| failed(&input, &error))?) })
    }

    #[pyo3(signature = (
        model, settings, *, machine = None, cpus = None, map_cpus = "socket", repeat = 1, seed = 0, progress = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn measure<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        settings: &Bound<'py, PyDict>,
        machine: Option<PyRef<'py, Machine>>,
        cpus: Option<u32>,
        map_cpus: &str,
        repeat: u32,
        seed: u64,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let replay = self.measured.replay();
        let machine = match (machine, cpus) {
            (Some(machine), _) => Some(machine.description.clone()),
            (None, Some(cpus)) => {
                let scaled = replay.scaled_machine(cpus, repeat);
                Some(scaled.map_err(|error| error::machine(&error))?)
            }
            (None, None) => None,
        };
        let of_kernel = replay.bundle().recording().kernel.clone();
        let rules = model_for(model, &of_kernel)?;
        let wish = Wish {
            model: Some(rules),
            tunables: tunables(Some(settings))?,
            machine,
            cpus: cpu_rule(map_cpus)?,
            repeat,
            ..Wish::default()
        };
        let measured = self.measured.clone();
        let passes = long(py, progress, move |course| measured.measure(&wish, seed, course))?;
        let [first, second] = passes.map_err(|error| failed(replay.bundle().name(), &error))?;
        let measured = document(py, &second)?;
        measured.set_item("first_pass", document(py, &first)?)?;
        measured.set_item("rules", rules.name)?;
        Ok(measured)
    }
}

/// Refuses settings that no machine takes.
#[pyfunction]
pub(crate) fn check_settings(settings: &Bound<'_, PyDict>) -> PyResult<()> {
    tunables(Some(settings)).map(drop)
}

/// The machine of a what-if: `name` of one that comes along, `short_form` or `numactl` with a text.
#[pyfunction]
pub(crate) fn what_if_machine(py: Python<'_>, kind: &str, text: &str) -> PyResult<Machine> {
    match kind {
        "name" => Machine::named(py, text),
        "short_form" => Machine::of_text(py, "short form", text),
        "numactl" => Machine::of_text(py, "numactl", text),
        _ => {
            let message = format!("kind={kind:?}, expected name, short_form or numactl");
            Err(Class::Argument.error(Some("kind".into()), message))
        }
    }
}

/// 16 hexadecimal digits that are others when the rules are, or the sources that play them. `auto` is any of the rules, and how one
/// of them is found for a kernel.
#[pyfunction]
pub(crate) fn model_version(name: &str) -> PyResult<String> {
    let rules = match name {
        "auto" => format!("auto {:?}", Model::ALL),
        _ => format!("{:?}", model(name)?),
    };
    // FNV-1a, 64 bits.
    let text = [env!("NEARPAGE_SOURCES"), &rules].concat();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    Ok(format!("{hash:016x}"))
}

/// The recorded machine in figures: nodes, those with memory, CPUs, bytes of memory and of a page.
#[pyfunction]
pub(crate) fn machine_facts<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let machine = &report.report.machine;
    let nodes = &machine.topology.nodes;
    let frames = nodes.iter().flat_map(|node| &node.memory).map(|range| range.pages().0);
    let facts = PyDict::new(py);
    facts.set_item("nodes", nodes.len())?;
    facts.set_item("nodes_with_memory", nodes.iter().filter(|of| !of.memory.is_empty()).count())?;
    facts.set_item("cpus", nodes.iter().map(|node| node.cpus.len()).sum::<usize>())?;
    facts.set_item("memory_bytes", frames.sum::<u64>() << machine.page_shift)?;
    facts.set_item("page_bytes", 1_u64 << machine.page_shift)?;
    Ok(facts)
}
