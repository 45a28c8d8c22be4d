//! `nearpage.Memory`: real memory of this process. Pages are handed out as objects that numpy and `memoryview` can wrap; they go back
//! when nobody has them any more, views included.

use std::num::NonZeroU16;
use std::sync::Arc;

use nearpage::{
    AllocError, Cursor, Gfp, NodeId, NodeSet, Order, Pfn, Placement, Policy, Request, Turn,
};
use nearpage_linux::{Environment, FRAME_BYTES, Memory as Host, MemoryBuilder, Nodes};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::model;
use crate::error::Class;
use crate::guard::short;

/// Memory of this process on all of its nodes.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Memory {
    host: Arc<Host>,
    /// Whose turn it is under `interleave`.
    turn: Cursor,
}

/// A block of pages.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Pages {
    host: Arc<Host>,
    pfn: Pfn,
    order: Order,
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `alloc` made this object of a block of its own, the object frees it once, and a view of its memory holds the
        // object: nobody uses the memory any more.
        let freed = unsafe { self.host.free_frames(self.pfn, self.order) };
        debug_assert_eq!(freed, Ok(()));
    }
}

#[pymethods]
impl Pages {
    #[getter]
    fn node(&self) -> Option<u32> {
        self.host.node_of(self.pfn).map(|node| node.0)
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
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, [self.nbytes()])?)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.host.address(self.pfn).as_ptr() as usize, false))?;
        Ok(interface)
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
        bytes_per_node: u64,
        nodes: Option<u16>,
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
        let host = Arc::new(built.map_err(|error| refused(error.to_string()))?);
        Ok(Memory { host, turn: Cursor::default() })
    }

    #[pyo3(signature = (pages = 1, *, node = None, policy = None, nodes = None, zeroed = true))]
    fn alloc(
        &self,
        py: Python<'_>,
        pages: u64,
        node: Option<u32>,
        policy: Option<&str>,
        nodes: Option<Vec<u32>>,
        zeroed: bool,
    ) -> PyResult<Pages> {
        let orders = 0..=Order::MAX.0;
        let order = orders.map(Order).find(|order| pages > 0 && 1 << order.0 >= pages);
        let order = order.ok_or_else(|| {
            let message = format!("pages={pages}, expected 1 to {}", 1_u64 << Order::MAX.0);
            Class::Argument.error(Some("pages".into()), message)
        })?;
        let gfp = if zeroed { Gfp::KERNEL.union(Gfp::ZERO) } else { Gfp::KERNEL };
        let request = Request::new(order, gfp);
        let request = node.map_or(request, |node| request.on(NodeId(node)));
        let (host, topology) = (&*self.host, self.host.topology());
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
        Ok(Pages { host: self.host.clone(), pfn, order })
    }

    #[getter]
    fn nodes(&self) -> Vec<u32> {
        self.host.topology().nodes().iter().map(|node| node.id.0).collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.host.warnings().iter().map(ToString::to_string).collect()
    }

    fn free_pages(&self, node: u32) -> PyResult<u64> {
        if !self.nodes().contains(&node) {
            let message = format!("node={node}, expected one of {:?}", self.nodes());
            return Err(Class::Argument.error(Some("node".into()), message));
        }
        Ok(self.host.free_pages(NodeId(node)).0)
    }

    fn zoneinfo(&self, py: Python<'_>) -> PyResult<String> {
        short(py, || self.host.zoneinfo())
    }

    fn vmstat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let text = short(py, || self.host.vmstat())?;
        let counters = PyDict::new(py);
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            counters.set_item(name, value.trim().parse::<i64>().ok())?;
        }
        Ok(counters)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let checked = short(py, || self.host.check().map(|_| ()))?;
        checked.map_err(|error| Class::Internal.error(None, error))
    }

    fn __repr__(&self) -> String {
        format!("Memory(nodes {:?}, {})", self.nodes(), self.host.storage())
    }
}
