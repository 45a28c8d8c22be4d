//! `nearpage.Machine`: a machine as data, and what an allocator with given rules makes of it.

use std::path::PathBuf;

use nearpage_machine::plan::{Lists, PlannedNode, PlannedZone};
use nearpage_machine::text::{self, Unknown};
use nearpage_machine::{Budget, MachineDescription, MachineDocument, MachineInput, Plan, catalog};
use nearpage_report::MachineView;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{document, model};
use crate::error::{self, Class};
use crate::guard::short;
use crate::table::{Columns, Table};

/// A machine.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Machine {
    pub(crate) description: MachineDescription,
}

/// A node of a machine.
#[pyclass(frozen, get_all, module = "nearpage")]
pub(crate) struct Node {
    id: u32,
    cpus: Vec<u32>,
    memory_bytes: Option<u64>,
    free_bytes: Option<u64>,
}

#[pymethods]
impl Node {
    fn __repr__(&self) -> String {
        let bytes = |bytes: Option<u64>| bytes.map_or("None".into(), |bytes| bytes.to_string());
        let (memory, free) = (bytes(self.memory_bytes), bytes(self.free_bytes));
        format!(
            "Node(id={}, cpus={:?}, memory_bytes={memory}, free_bytes={free})",
            self.id, self.cpus
        )
    }
}

#[pymethods]
impl Machine {
    #[staticmethod]
    fn from_numactl(py: Python<'_>, text: &str) -> PyResult<Machine> {
        Machine::of_text(py, "numactl", text)
    }

    #[staticmethod]
    fn from_short_form(py: Python<'_>, text: &str) -> PyResult<Machine> {
        Machine::of_text(py, "short form", text)
    }

    #[staticmethod]
    fn from_sysfs(py: Python<'_>, path: PathBuf) -> PyResult<Machine> {
        Machine::read(py, MachineInput::Sysroot(path))
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Machine> {
        if let Some(name) = path.to_str().filter(|name| catalog::machine(name).is_some()) {
            return Machine::named(py, name);
        }
        if !path.exists() && path.components().count() == 1 {
            let message = format!(
                "{}: there is no such file, and no machine of that name, expected a file, a folder, or one of {}",
                path.display(),
                catalog::names().collect::<Vec<_>>().join(", ")
            );
            return Err(Class::Machine.error(Some(path.display().to_string()), message));
        }
        Machine::read(py, MachineInput::Path(path))
    }

    #[staticmethod]
    fn live(py: Python<'_>) -> PyResult<Machine> {
        Machine::read(py, MachineInput::ThisMachine)
    }

    #[getter]
    fn source(&self) -> &str {
        &self.description.source
    }

    #[getter]
    fn page_bytes(&self) -> u64 {
        self.description.machine.page_bytes
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.description.warnings.clone()
    }

    #[getter]
    fn nodes(&self) -> Vec<Node> {
        let node = |node: &nearpage_machine::MachineNode| Node {
            id: node.id.0,
            cpus: node.cpus.iter().map(|cpu| cpu.0).collect(),
            memory_bytes: node.memory_bytes,
            free_bytes: node.free_bytes,
        };
        self.description.machine.nodes.iter().map(node).collect()
    }

    #[getter]
    fn distances(&self) -> Vec<Vec<u32>> {
        let machine = &self.description.machine;
        let row = |row: &[u8]| row.iter().copied().map(u32::from).collect();
        machine.distances.chunks(machine.nodes.len().max(1)).map(row).collect()
    }

    #[pyo3(signature = (model = "nearpage", *, rebuilt = false))]
    fn zoneinfo(&self, py: Python<'_>, model: &str, rebuilt: bool) -> PyResult<String> {
        let plan = self.plan(py, model, rebuilt)?;
        short(py, || text::zoneinfo(&plan, Unknown::AllFree).to_string())
    }

    #[pyo3(signature = (model = "nearpage", *, rebuilt = false))]
    fn fallback<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        rebuilt: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let plan = self.plan(py, model, rebuilt)?;
        let orders = PyDict::new(py);
        for (at, node) in plan.nodes.iter().enumerate() {
            let order = short(py, || plan.logged_order(at))?;
            orders.set_item(node.id.0, order.iter().map(|id| id.0).collect::<Vec<u32>>())?;
        }
        Ok(orders)
    }

    #[pyo3(signature = (model = "nearpage", *, rebuilt = false))]
    fn zones(&self, py: Python<'_>, model: &str, rebuilt: bool) -> PyResult<Table> {
        let plan = self.plan(py, model, rebuilt)?;
        let populated = |node: &'_ PlannedNode| -> Vec<(u32, PlannedZone)> {
            let zones = node.zones.iter().filter(|zone| zone.is_populated());
            zones.map(|zone| (node.id.0, *zone)).collect()
        };
        let zones: Vec<(u32, PlannedZone)> = plan.nodes.iter().flat_map(populated).collect();
        let count = |of: fn(&PlannedZone) -> u64| zones.iter().map(move |(_, zone)| Some(of(zone)));
        Columns::default()
            .count("node", zones.iter().map(|(node, _)| Some(u64::from(*node))))
            .text("zone", zones.iter().map(|(_, zone)| Some(zone.extent.kind.name())))
            .count("start_pfn", count(|zone| zone.extent.start.0))
            .count("spanned", count(|zone| zone.extent.spanned.0))
            .count("present", count(|zone| zone.extent.present.0))
            .count("managed", count(|zone| zone.extent.managed.0))
            .count("min", count(|zone| zone.marks.min.0))
            .count("low", count(|zone| zone.marks.low.0))
            .count("high", count(|zone| zone.marks.high.0))
            .count("promo", count(|zone| zone.marks.promo.0))
            .count("batch", count(|zone| zone.pageset.batch.0))
            .count("high_min", count(|zone| zone.pageset.high_min.0))
            .count("high_max", count(|zone| zone.pageset.high_max.0))
            .table()
    }

    fn numactl(&self, py: Python<'_>) -> PyResult<String> {
        short(py, || text::numactl(&self.description.machine).to_string())
    }

    #[pyo3(signature = (model = "nearpage", *, rebuilt = false))]
    fn to_dict<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        rebuilt: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let plan = self.plan(py, model, rebuilt)?;
        document(py, &MachineDocument::new(&self.description, &plan))
    }

    fn __repr__(&self) -> String {
        let nodes = &self.description.machine.nodes;
        let cpus: usize = nodes.iter().map(|node| node.cpus.len()).sum();
        format!("Machine({:?}: {} nodes, {cpus} CPUs)", self.source(), nodes.len())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let shift = self.description.machine.page_bytes.trailing_zeros();
        short(py, || {
            MachineView::of_topology(&self.description.topology, shift).fragment(self.source())
        })
    }
}

impl Machine {
    /// The machine that comes along by this name.
    pub(crate) fn named(py: Python<'_>, name: &str) -> PyResult<Machine> {
        let Some(machine) = catalog::machine(name) else {
            let names = catalog::names().collect::<Vec<_>>().join(", ");
            let message = format!("there is no machine {name:?}, expected one of {names}");
            return Err(Class::Machine.error(Some(name.into()), message));
        };
        let description = short(py, || MachineDescription::new(name.into(), machine))?;
        Ok(Machine { description: description.map_err(|error| error::machine(&error))? })
    }

    fn read(py: Python<'_>, input: MachineInput) -> PyResult<Machine> {
        let description = short(py, || MachineDescription::read(&input, &Budget::DEFAULT))?;
        Ok(Machine { description: description.map_err(|error| error::machine(&error))? })
    }

    pub(crate) fn of_text(py: Python<'_>, name: &str, text: &str) -> PyResult<Machine> {
        let description = short(py, || MachineDescription::from_reader(name, text.as_bytes(), &Budget::DEFAULT))?;
        Ok(Machine { description: description.map_err(|error| error::machine(&error))? })
    }

    fn plan(&self, py: Python<'_>, rules: &str, rebuilt: bool) -> PyResult<Plan> {
        let model = model(rules)?;
        let lists = if rebuilt { Lists::Rebuilt } else { Lists::Boot };
        let plan = short(py, || Plan::new(&self.description, model, lists))?;
        plan.map_err(|error| {
            let source = &self.description.source;
            Class::Machine.error(Some(source.clone()), format!("{source}: {error}"))
        })
    }
}
