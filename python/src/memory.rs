//! `nearpage.Memory`: real memory of this process. Pages are handed out as objects that numpy can wrap; they go back
//! when nobody has them any more, views included.

use std::num::NonZeroU16;
use std::sync::Arc;

use nearpage::{
    AllocError, Cursor, Gfp, LimitOf, Limits, NodeId, NodeSet, Order, Pfn, Placement, Policy,
    Request, Turn,
};
use nearpage_linux::{Environment, FRAME_BYTES, Memory as Host, MemoryBuilder, Nodes};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::model;
use crate::error::Class;
use crate::guard::short;
use crate::named;
use crate::objects::{self, Cache, Heap, Object};
use crate::table::{Columns, Table};

/// Memory of this process on all of its nodes.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Memory {
    heap: Arc<Heap>,
    /// Whose turn it is under `interleave`.
    turn: Cursor,
}

/// A block of pages.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Pages {
    heap: Arc<Heap>,
    pfn: Pfn,
    order: Order,
}

/// How numpy finds bytes.
pub(crate) fn array_interface(
    py: Python<'_>,
    address: usize,
    nbytes: u64,
) -> PyResult<Bound<'_, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("shape", PyTuple::new(py, [nbytes])?)?;
    interface.set_item("typestr", "|u1")?;
    interface.set_item("data", (address, false))?;
    Ok(interface)
}

/// Refuses a node that the memory does not have.
pub(crate) fn known(host: &Host, node: Option<u32>) -> PyResult<()> {
    let nodes = || host.topology().nodes().iter().map(|node| node.id.0);
    match node.filter(|node| !nodes().any(|known| known == *node)) {
        None => Ok(()),
        Some(node) => {
            let message = format!("node={node}, expected one of {:?}", nodes().collect::<Vec<_>>());
            Err(Class::Argument.error(Some("node".into()), message))
        }
    }
}

fn limit_of(node: Option<u32>) -> LimitOf {
    node.map_or(LimitOf::Allocator, |node| LimitOf::Node(NodeId(node)))
}

/// The counters of a text with a name and a number a line.
fn counters(text: &str) -> impl Iterator<Item = (&str, i64)> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(name, value)| Some((name, value.trim().parse().ok()?)))
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `alloc` made this object of a block of its own, the object frees it once, and a view of its memory holds the
        // object: nobody uses the memory any more.
        let freed = unsafe { self.heap.host.free_frames(self.pfn, self.order) };
        debug_assert_eq!(freed, Ok(()));
    }
}

#[pymethods]
impl Pages {
    #[getter]
    fn node(&self) -> Option<u32> {
        self.heap.host.node_of(self.pfn).map(|node| node.0)
    }

    #[getter]
    fn pfn(&self) -> u64 {
        self.pfn.0
    }

    #[getter]
    fn order(&self) -> u8 {
        self.order.0
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        FRAME_BYTES << self.order.0
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let address = self.heap.host.address(self.pfn).as_ptr() as usize;
        array_interface(py, address, self.nbytes())
    }

    fn __len__(&self) -> usize {
        self.nbytes() as usize
    }

    fn __repr__(&self) -> String {
        let node = self.node().map_or("unknown".into(), |node| node.to_string());
        format!("Pages({} bytes, node {node})", self.nbytes())
    }
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (bytes_per_node, *, nodes = None, model = "nearpage"))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = named::bytes_per_node)] bytes_per_node: u64,
        #[pyo3(from_py_with = named::nodes)] nodes: Option<u16>,
        model: &str,
    ) -> PyResult<Memory> {
        let model = self::model(model)?;
        let refused = |error: String| Class::Memory.error(None, error);
        let mut environment =
            Environment::from_variables([]).map_err(|error| refused(error.to_string()))?;
        if let Some(nodes) = nodes {
            let shares = NonZeroU16::new(nodes).ok_or_else(|| {
                Class::Argument.error(Some("nodes".into()), "nodes=0, expected 1 or more")
            })?;
            environment.nodes = Nodes::Shares(shares);
        }
        let built = short(py, || {
            let builder = MemoryBuilder::new().environment(environment);
            builder.model(model).bytes_per_node(bytes_per_node).build()
        })?;
        let heap = Heap::new(built.map_err(|error| refused(error.to_string()))?);
        Ok(Memory { heap, turn: Cursor::default() })
    }

    #[pyo3(signature = (pages = 1, *, node = None, policy = None, nodes = None, zeroed = true))]
    fn alloc(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::pages)] pages: u64,
        #[pyo3(from_py_with = named::node)] node: Option<u32>,
        policy: Option<&str>,
        #[pyo3(from_py_with = named::nodes)] nodes: Option<Vec<u32>>,
        zeroed: bool,
    ) -> PyResult<Pages> {
        let orders = 0..=Order::MAX.0;
        let order = orders.map(Order).find(|order| pages > 0 && 1 << order.0 >= pages);
        let order = order.ok_or_else(|| {
            let message = format!("pages={pages}, expected 1 to {}", 1_u64 << Order::MAX.0);
            Class::Argument.error(Some("pages".into()), message)
        })?;
        let gfp = if zeroed { Gfp::KERNEL.union(Gfp::ZERO) } else { Gfp::KERNEL };
        known(&self.heap.host, node)?;
        let request = Request::new(order, gfp);
        let request = node.map_or(request, |node| request.on(NodeId(node)));
        let (host, topology) = (&self.heap.host, self.heap.host.topology());
        let has_nodes = nodes.is_some();
        let mut words = vec![0; NodeSet::words(topology)];
        let words = &mut *words;
        let set = move || {
            let ids = nodes.unwrap_or_default().into_iter().map(NodeId);
            NodeSet::new(topology, ids, words).map_err(|error| {
                let known: Vec<String> =
                    topology.nodes().iter().map(|node| node.id.0.to_string()).collect();
                let message = format!("nodes: {error}, expected some of {}", known.join(", "));
                Class::Argument.error(Some("nodes".into()), message)
            })
        };
        let placement = match policy {
            None => None,
            Some("local") => Some(Placement::by(Policy::Local)),
            Some("bind") => Some(Placement::by(Policy::Bind(set()?))),
            Some("preferred") => Some(Placement::by(Policy::Preferred(set()?))),
            Some("interleave") => {
                let turn = Turn::Next(&self.turn);
                Some(Placement::by(Policy::Interleave { nodes: set()?, turn }))
            }
            Some("preferred-many") => Some(Placement::by(Policy::PreferredMany(set()?))),
            Some(other) => {
                let accepted = "local, bind, interleave, preferred or preferred-many";
                let message = format!("policy={other:?}, expected {accepted}");
                return Err(Class::Argument.error(Some("policy".into()), message));
            }
        };
        if policy.is_none() && has_nodes {
            let message = "nodes belong to a policy, expected policy with them, or node";
            return Err(Class::Argument.error(Some("nodes".into()), message));
        }
        let answer = short(py, || match &placement {
            None => host.alloc_frames(request),
            Some(placement) => host.alloc_frames_with(placement, request),
        })?;
        let pfn = answer.map_err(|error: AllocError| {
            Class::Memory.error(None, format!("{pages} pages: {error}"))
        })?;
        Ok(Pages { heap: self.heap.clone(), pfn, order })
    }

    #[getter]
    fn nodes(&self) -> Vec<u32> {
        self.heap.host.topology().nodes().iter().map(|node| node.id.0).collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.heap.host.warnings().iter().map(ToString::to_string).collect()
    }

    fn free_pages(&self, #[pyo3(from_py_with = named::node)] node: u32) -> PyResult<u64> {
        known(&self.heap.host, Some(node))?;
        Ok(self.heap.host.free_pages(NodeId(node)).0)
    }

    fn zoneinfo(&self, py: Python<'_>) -> PyResult<String> {
        short(py, || self.heap.host.zoneinfo())
    }

    fn vmstat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let text = short(py, || self.heap.host.vmstat())?;
        let all = PyDict::new(py);
        for (name, value) in counters(&text) {
            all.set_item(name, value)?;
        }
        Ok(all)
    }

    fn buddyinfo(&self, py: Python<'_>) -> PyResult<String> {
        short(py, || self.heap.host.buddyinfo())
    }

    fn slabinfo(&self, py: Python<'_>) -> PyResult<String> {
        let text = short(py, || self.heap.slabinfo())?;
        text.map_err(|error| Class::Memory.error(None, error))
    }

    /// A row for each node.
    fn stats(&self, py: Python<'_>) -> PyResult<Table> {
        let (host, nodes) = (&self.heap.host, self.nodes());
        let texts = short(py, || {
            let texts = nodes.iter().map(|node| host.numastat(NodeId(*node)).unwrap_or_default());
            texts.collect::<Vec<String>>()
        })?;
        let each = || nodes.iter().map(|node| NodeId(*node));
        let mut columns = Columns::default()
            .count("node", each().map(|node| Some(node.0.into())))
            .count("managed_pages", each().map(|node| Some(host.managed_pages(node).0)))
            .count("free_pages", each().map(|node| Some(host.free_pages(node).0)))
            .count(
                "in_use_pages",
                each().map(|node| host.in_use(LimitOf::Node(node)).ok().map(|pages| pages.0)),
            );
        for name in ["numa_hit", "numa_miss", "numa_foreign", "local_node", "other_node"] {
            let of = |text: &String| {
                let count = counters(text).find(|(other, _)| *other == name);
                count.and_then(|(_, count)| u64::try_from(count).ok())
            };
            columns = columns.count(name, texts.iter().map(of));
        }
        columns.table()
    }

    #[pyo3(signature = (nbytes, *, node = None, align = 1, zeroed = true))]
    fn alloc_bytes(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::nbytes)] nbytes: u64,
        #[pyo3(from_py_with = named::node)] node: Option<u32>,
        #[pyo3(from_py_with = named::align)] align: u64,
        zeroed: bool,
    ) -> PyResult<Object> {
        objects::bytes(py, &self.heap, nbytes, node, align, zeroed)
    }

    #[pyo3(signature = (name, object_bytes, *, align = 8))]
    fn cache(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = named::object_bytes)] object_bytes: u64,
        #[pyo3(from_py_with = named::align)] align: u64,
    ) -> PyResult<Cache> {
        objects::cache(py, &self.heap, name, object_bytes, align)
    }

    fn shrink(&self, py: Python<'_>) -> PyResult<u64> {
        short(py, || self.heap.shrink())
    }

    #[pyo3(signature = (hard_bytes = None, soft_bytes = None, *, node = None))]
    fn set_limits(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::hard_bytes)] hard_bytes: Option<u64>,
        #[pyo3(from_py_with = named::soft_bytes)] soft_bytes: Option<u64>,
        #[pyo3(from_py_with = named::node)] node: Option<u32>,
    ) -> PyResult<()> {
        known(&self.heap.host, node)?;
        let limits = Limits { hard_bytes, soft_bytes, ..Limits::default() };
        let set = short(py, || self.heap.host.set_limits(limit_of(node), limits))?;
        set.map_err(|error| {
            let message = format!("{error}, expected less than hard_bytes by a page or more");
            Class::Argument.error(Some("soft_bytes".into()), message)
        })
    }

    #[pyo3(signature = (*, node = None))]
    fn limits(
        &self,
        #[pyo3(from_py_with = named::node)] node: Option<u32>,
    ) -> PyResult<(Option<u64>, Option<u64>)> {
        known(&self.heap.host, node)?;
        let limits = self.heap.host.limits(limit_of(node)).unwrap_or_default();
        Ok((limits.hard_bytes, limits.soft_bytes))
    }

    #[pyo3(signature = (*, node = None))]
    fn in_use(&self, #[pyo3(from_py_with = named::node)] node: Option<u32>) -> PyResult<u64> {
        known(&self.heap.host, node)?;
        Ok(self.heap.host.in_use(limit_of(node)).map_or(0, |pages| pages.0))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let table: String =
            Bound::new(py, self.stats(py)?)?.call_method0("_repr_html_")?.extract()?;
        Ok(format!("<p><b>{}</b></p>{table}", crate::table::escaped(&self.__repr__())))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let checked = short(py, || self.heap.host.check().map(|_| ()))?;
        checked.map_err(|error| Class::Internal.error(None, error))
    }

    fn __repr__(&self) -> String {
        format!("Memory(nodes {:?}, {})", self.nodes(), self.heap.host.storage())
    }
}
