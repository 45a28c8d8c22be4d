//! Small machines for tests: a topology, metadata on the heap, and an allocator with all memory online.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::plain::PlainPlatform;
use crate::alloc::{Config, PageAllocator, metadata_size};
use crate::host::Platform;
use crate::model::Model;
use crate::topology::{AddressMap, Node, NodeBuf, Topology, TopologyBuf};
use crate::units::{CpuId, NodeId, NodeIndex, Pfn, PfnRange, SECTION_FRAMES};

/// Describes a machine, and runs tests on it.
///
/// ```
/// use nearpage::Request;
/// use nearpage::Gfp;
/// use nearpage::testing::machine::TestMachine;
/// use nearpage::Order;
///
/// let machine = TestMachine::new().node(0, 4096, &[0, 1]).node(1, 0, &[2]);
/// machine.run(|allocator| {
///     let pfn = allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
///     allocator.free(pfn, Order(0)).unwrap();
/// });
/// ```
#[derive(Clone, Debug)]
pub struct TestMachine {
    topology: TopologyBuf,
    config: Config,
}

impl TestMachine {
    /// A machine without nodes, with nearpage's own rules.
    #[expect(clippy::new_without_default, reason = "a machine without nodes is no default")]
    pub fn new() -> Self {
        let (nodes, distances) = (Vec::new(), Vec::new());
        Self::from(TopologyBuf { nodes, distances, address_map: AddressMap::Flat })
    }

    /// Adds a node, above the ids so far, with `pages` pages of memory that begin at a section of their own.
    /// All distances are 20 again.
    #[must_use]
    pub fn node(mut self, id: u32, pages: u64, cpus: &[u32]) -> Self {
        let section = SECTION_FRAMES as u64;
        let ends = self.topology.nodes.iter().filter_map(|node| node.memory.last());
        let start = ends.map(|range| range.end.0).max().unwrap_or(1).next_multiple_of(section);
        let memory = if pages > 0 { vec![PfnRange::new(start, start + pages)] } else { vec![] };
        let cpus = cpus.iter().copied().map(CpuId).collect();
        self.topology.nodes.push(NodeBuf { id: NodeId(id), memory, cpus, movable_from: None });
        let count = self.topology.nodes.len();
        let distance = |at| if at / count == at % count { 10 } else { 20 };
        self.topology.distances = (0..count * count).map(distance).collect();
        self
    }

    /// Sets all distances, row by row.
    #[must_use]
    pub fn distances(mut self, distances: &[u8]) -> Self {
        self.topology.distances = distances.to_vec();
        self
    }

    /// Makes the last `pages` frames of the node added last its Movable zone.
    ///
    /// # Panics
    /// If that node has no memory.
    #[must_use]
    pub fn movable(mut self, pages: u64) -> Self {
        let node = self.topology.nodes.last_mut().expect("a node was added");
        let memory = node.memory.last().expect("the node has memory");
        node.movable_from = Some(Pfn(memory.end.0 - pages));
        self
    }

    /// Sets the rules, and leaves the settings.
    #[must_use]
    pub fn model(mut self, model: Model) -> Self {
        self.config.model = model;
        self
    }

    /// Sets rules and settings.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Makes an allocator for the machine, brings all memory online, calls `f` with it, and walks over everything
    /// afterwards.
    ///
    /// # Panics
    /// If there can be no such allocator, or the walk finds something wrong.
    pub fn run<R>(&self, f: impl FnOnce(&PageAllocator<'_, PlainPlatform>) -> R) -> R {
        self.call(true, f)
    }

    /// As [`run`](Self::run), on another platform.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_on<P: Platform + Default, R>(
        &self,
        f: impl FnOnce(&PageAllocator<'_, P>) -> R,
    ) -> R {
        self.call(true, f)
    }

    /// As [`run`](Self::run), without any memory online.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_offline<R>(&self, f: impl FnOnce(&PageAllocator<'_, PlainPlatform>) -> R) -> R {
        self.call(false, f)
    }

    /// The memory of the machine.
    pub fn memory(&self) -> Vec<PfnRange> {
        self.topology.nodes.iter().flat_map(|node| node.memory.clone()).collect()
    }

    /// As [`run_offline`](Self::run_offline), for what stands on pages: `f` gets zeroes for each node, as many as `size` says.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_above<P: Platform + Default>(
        &self,
        size: &dyn Fn(&Topology<'_>, NodeIndex) -> usize,
        f: &mut Above<'_, P>,
    ) {
        let nodes: Vec<Node<'_>> = self.topology.nodes.iter().map(NodeBuf::as_node).collect();
        let topology = Topology::new(&nodes, &self.topology.distances, self.topology.address_map)
            .expect("a test describes a topology");
        let zeroes = |size: &dyn Fn(NodeIndex) -> usize| -> Vec<Vec<u8>> {
            topology.indexes().map(|node| vec![0; size(node)]).collect()
        };
        let of_pages = |node| metadata_size::<P>(&topology, &self.config, node);
        let mut metadata = zeroes(&|node| of_pages(node).expect("it has memory"));
        let mut above = zeroes(&|node| size(&topology, node));
        let mut buffers: Vec<&mut [u8]> = metadata.iter_mut().map(Vec::as_mut_slice).collect();
        let platform = P::default();
        let allocator = PageAllocator::new(platform, topology, self.config, |node, _| {
            core::mem::take(&mut buffers[node.0 as usize])
        })
        .expect("buffers are as large as asked");
        f(&allocator, above.iter_mut().map(Vec::as_mut_slice).collect());
        allocator.check().expect("a test leaves its allocator in order");
    }

    /// Calls `f` once, and passes its answer on. The compiler makes a copy of this function for each test, and of
    /// nothing below it.
    fn call<P: Platform + Default, R>(
        &self,
        online: bool,
        f: impl FnOnce(&PageAllocator<'_, P>) -> R,
    ) -> R {
        let (mut f, mut answer) = (Some(f), None);
        self.run_above::<P>(&|_, _| 0, &mut |allocator, _| {
            if online {
                let mut memory = self.memory().into_iter();
                memory
                    .try_for_each(|range| allocator.online(range).map(drop))
                    .expect("memory of the topology, offline until now");
            }
            answer = f.take().map(|f| f(allocator));
        });
        answer.expect("it was called")
    }
}

/// Bytes by node, for what stands on pages.
pub type Buffers<'m> = Vec<&'m mut [u8]>;

/// What is done with the allocator.
pub type Above<'f, P> = dyn for<'m> FnMut(&PageAllocator<'m, P>, Buffers<'m>) + 'f;

impl From<TopologyBuf> for TestMachine {
    /// A machine of this topology, with nearpage's own rules.
    fn from(topology: TopologyBuf) -> Self {
        Self { topology, config: Config::default() }
    }
}
