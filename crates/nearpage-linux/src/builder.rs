//! Describing a memory, and making it.

use std::sync::Once;

use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::Platform;
use nearpage::{
    AddressMap, Config, Model, Node, NodeBuf, NodeId, NodeIndex, PageAllocator, Pfn, PfnRange,
    Settings, Topology, TopologyBuf, metadata_size,
};

use crate::environment::Environment;
use crate::fork::Registration;
use crate::growth::Growth;
use crate::host::{Host, NoPressure, OnMisuse, Pressure};
use crate::huge::HugePages;
use crate::locked::LockedStorage;
use crate::machine::{HostMachine, HostNode};
use crate::memory::{Allocator, FRAME_SHIFT, Memory, MemoryError, StorageInUse};
use crate::numa::{BindMode, Binding};
use crate::region::{Region, whole_pages};
use crate::rseq::{Area, RingStorage, Unavailable};
use crate::slab::Objects;
use crate::tell::tell;

/// Bytes of a section: nodes' ranges begin at multiples of it, so that no two share a section.
const SECTION_BYTES: u64 = (SECTION_FRAMES as u64) << FRAME_SHIFT;
/// Memory per node where nothing was said: enough to try things.
const BYTES_PER_NODE_DEFAULT: u64 = 256 << 20;

/// Describes a [`Memory`].
pub struct MemoryBuilder {
    machine: Option<HostMachine>,
    bytes_per_node: u64,
    bytes_on: Vec<(NodeId, u64)>,
    reserve_per_node: u64,
    bind: Option<BindMode>,
    huge_pages: HugePagesByNode,
    use_rseq: Option<bool>,
    area: Option<Area>,
    hardened: bool,
    on_misuse: OnMisuse,
    pressure: Box<dyn Pressure>,
    model: Model,
    settings: Settings,
}

/// Which pages are behind each node's memory.
#[derive(Debug, Default)]
pub(crate) struct HugePagesByNode {
    all: HugePages,
    on: Vec<(NodeId, HugePages)>,
}

impl HugePagesByNode {
    /// What was said last of a node.
    pub fn of(&self, node: NodeId) -> HugePages {
        let said = self.on.iter().rev().find(|(id, _)| *id == node);
        said.map_or(self.all, |(_, huge_pages)| *huge_pages)
    }
}

impl MemoryBuilder {
    pub(crate) fn new() -> Self {
        let config = Config::default();
        Self {
            machine: None,
            bytes_per_node: BYTES_PER_NODE_DEFAULT,
            bytes_on: Vec::new(),
            reserve_per_node: 0,
            bind: None,
            huge_pages: HugePagesByNode::default(),
            use_rseq: None,
            area: None,
            hardened: false,
            on_misuse: OnMisuse::default(),
            pressure: Box::new(NoPressure),
            model: config.model,
            settings: config.settings,
        }
    }

    /// The machine, instead of the one that this process runs on.
    pub fn machine(self, machine: HostMachine) -> Self {
        Self { machine: Some(machine), ..self }
    }

    /// Memory on each node that has some, rounded down to whole pages of the kernel. 256 MiB if nothing is said.
    pub fn bytes_per_node(self, bytes: u64) -> Self {
        Self { bytes_per_node: bytes, ..self }
    }

    /// Memory on one node, instead of [`bytes_per_node`](Self::bytes_per_node). 0 makes it memoryless.
    pub fn bytes_on(mut self, node: NodeId, bytes: u64) -> Self {
        self.bytes_on.push((node, bytes));
        self
    }

    /// Addresses reserved on each node with memory, so that [`Memory::bring_online`] can add to it
    /// later; at least what the node has at start.
    pub fn reserve_per_node(self, bytes: u64) -> Self {
        Self { reserve_per_node: bytes, ..self }
    }

    /// How memory is bound to its node; advisory if nothing is said, none on emulated nodes.
    pub fn bind(self, mode: BindMode) -> Self {
        Self { bind: Some(mode), ..self }
    }

    /// Which pages of the kernel's are behind the memory of all nodes.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages.all = huge_pages;
        self
    }

    /// The same for one node, instead of [`huge_pages`](Self::huge_pages).
    pub fn huge_pages_on(mut self, node: NodeId, huge_pages: HugePages) -> Self {
        self.huge_pages.on.push((node, huge_pages));
        self
    }

    /// Whether pagesets use restartable sequences: where available if nothing is said.
    pub fn use_rseq(self, use_rseq: bool) -> Self {
        Self { use_rseq: Some(use_rseq), ..self }
    }

    /// Restartable sequences with a `struct rseq` of the caller's, see [`Area::unregistered`].
    #[doc(hidden)]
    pub fn rseq_area(self, area: Area) -> Self {
        Self { area: Some(area), ..self }
    }

    /// Makes the test at a free one atomic exchange, so that two frees of one page in the same instant are
    /// told apart too.
    pub fn hardened(self, hardened: bool) -> Self {
        Self { hardened, ..self }
    }

    /// What happens at a wrong free.
    pub fn on_misuse(self, on_misuse: OnMisuse) -> Self {
        Self { on_misuse, ..self }
    }

    /// Who helps when memory gets short.
    pub fn pressure(self, pressure: impl Pressure + 'static) -> Self {
        Self { pressure: Box::new(pressure), ..self }
    }

    /// The rules; nearpage's own if nothing is said.
    pub fn model(self, model: Model) -> Self {
        Self { model, ..self }
    }

    /// Sizes of watermarks and pagesets, and what reclaim aims at; [`Memory::set_settings`] changes them later.
    ///
    /// Two of them have no effect here. `transparent_hugepage` is off whatever is said: it keeps up to a twentieth of
    /// memory free for the kernel thread that collapses pages, which has nothing to collapse in here;
    /// [`huge_pages`](Self::huge_pages) is the choice of a memory. And there are no boosts
    /// (`watermark_boost_factor`): they make background reclaim free whole pageblocks, which shrinkers cannot aim at.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Makes the memory. What was not said is taken from the environment (`NEARPAGE_NUMA`,
    /// `NEARPAGE_RSEQ`) and from the machine.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn build(mut self) -> Result<Memory, MemoryError> {
        let environment = Environment::read()?;
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => environment.machine()?,
        };
        if let Some((node, _)) =
            self.bytes_on.iter().find(|(id, _)| !machine.nodes.iter().any(|node| node.id == *id))
        {
            return Err(MemoryError::UnknownNode { node: *node });
        }
        // `NEARPAGE_RSEQ=off` is for who runs a program, to look for the cause of a problem: it wins.
        let use_rseq = self.use_rseq.unwrap_or(true) && environment.use_rseq != Some(false);
        let bind = self.bind.or(environment.bind);
        let bind = match (machine.emulated, bind) {
            (true, Some(BindMode::Strict)) => return Err(MemoryError::CannotBindEmulated),
            (true, _) => BindMode::None,
            (false, bind) => bind.unwrap_or_default(),
        };

        let (region, node_ranges) = self.lay_out(&machine)?;
        let topology = OwnedTopology::new(&machine, &node_ranges)?;
        let mut binding = Binding::new(bind);
        for (node, range) in &node_ranges {
            let start = (range.start.0 << FRAME_SHIFT) as usize;
            let start = region.start().map_addr(|_| start.try_into().expect("addresses are not 0"));
            binding
                .bind(start, range.pages().to_bytes(FRAME_SHIFT) as usize, *node)
                .map_err(|error| MemoryError::CannotBind { node: *node, error })?;
        }

        let online: Vec<_> = node_ranges
            .iter()
            .map(|(node, range)| {
                let end = range.start.0 + (self.bytes(*node) >> FRAME_SHIFT);
                (*node, PfnRange::new(range.start.0, end))
            })
            .filter(|(_, range)| !range.is_empty())
            .collect();
        let huge_pages = std::mem::take(&mut self.huge_pages);
        let objects = Objects::default();
        let (allocator, metadata, storage, registration) =
            self.allocator(topology.get(), &mut binding, use_rseq, &objects)?;
        let memory = Memory {
            _registration: registration,
            allocator,
            binding,
            storage,
            node_ranges,
            huge_pages,
            growth: Growth::new(),
            objects,
            region,
            _metadata: metadata,
            _topology: topology,
        };
        memory.bring_all_online(&online)?;
        Ok(memory)
    }

    /// Bytes that are online at start on a node with memory.
    fn bytes(&self, node: NodeId) -> u64 {
        let given = self.bytes_on.iter().rev().find(|(id, _)| *id == node);
        whole_pages(given.map_or(self.bytes_per_node, |(_, bytes)| *bytes))
    }

    /// Reserves one range for all nodes, one after the other at multiples of a section.
    fn lay_out(
        &self,
        machine: &HostMachine,
    ) -> Result<(Region, Vec<(NodeId, PfnRange)>), MemoryError> {
        // A node that has a reserve only is memoryless until it grows.
        let most = |node: &HostNode| self.bytes(node.id).max(whole_pages(self.reserve_per_node));
        let with_memory = machine.nodes.iter().filter(|node| node.has_memory && most(node) > 0);
        let sizes: Vec<_> = with_memory
            .map(|node| (node.id, self.bytes(node.id).max(whole_pages(self.reserve_per_node))))
            .collect();
        let total = sizes.iter().try_fold(0_u64, |sum, (_, bytes)| {
            sum.checked_add(bytes.checked_next_multiple_of(SECTION_BYTES)?)
        });
        let no_addresses =
            |error| MemoryError::NoAddresses { bytes: total.unwrap_or(u64::MAX), error };
        let bytes = total
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| no_addresses(std::io::ErrorKind::OutOfMemory.into()))?;
        let region = Region::reserve(bytes, SECTION_BYTES as usize).map_err(no_addresses)?;
        let mut start = region.start().as_ptr().addr() as u64;
        let ranges = sizes.iter().map(|&(node, bytes)| {
            let range = PfnRange::new(start >> FRAME_SHIFT, (start + bytes) >> FRAME_SHIFT);
            start += bytes.next_multiple_of(SECTION_BYTES);
            (node, range)
        });
        let ranges = ranges.collect();
        Ok((region, ranges))
    }

    fn allocator(
        self,
        topology: Topology<'static>,
        binding: &mut Binding,
        use_rseq: bool,
        objects: &Objects,
    ) -> Result<(Allocator, Vec<Region>, StorageInUse, Registration), MemoryError> {
        let config = Config::new()
            .with_model(self.model)
            .with_settings(for_a_process(self.settings))
            .with_page_shift(FRAME_SHIFT);
        let storage = match self.area {
            Some(area) => Ok(area),
            None => StorageInUse::choose(use_rseq),
        };
        if let Err(StorageInUse::LockedBecause(Unavailable::NoMembarrier(errno))) = storage {
            say_once(errno);
        }
        let rings = |area| (RingStorage::with_area(area), RingStorage::with_area(area));
        let (pressure, on_misuse) = (self.pressure, self.on_misuse);
        let mut metadata = Vec::new();
        let mut maker = Maker { topology, config, binding, metadata: &mut metadata };
        let (allocator, in_use, registration) = match (storage.map(rings), self.hardened) {
            (Ok((storage, twin)), false) => {
                let host = Host::new(storage, pressure, on_misuse).with_objects(objects);
                let (made, registration) = maker.make(host, twin)?;
                (Allocator::Rseq(made), StorageInUse::Rseq, registration)
            }
            (Ok((storage, twin)), true) => {
                let host = Host::new(storage, pressure, on_misuse).with_objects(objects);
                let (made, registration) = maker.make(host, twin)?;
                (Allocator::RseqHardened(made), StorageInUse::Rseq, registration)
            }
            (Err(why), false) => {
                let host =
                    Host::new(LockedStorage::default(), pressure, on_misuse).with_objects(objects);
                let (made, registration) = maker.make(host, LockedStorage::default())?;
                (Allocator::Locked(made), why, registration)
            }
            (Err(why), true) => {
                let host =
                    Host::new(LockedStorage::default(), pressure, on_misuse).with_objects(objects);
                let (made, registration) = maker.make(host, LockedStorage::default())?;
                (Allocator::LockedHardened(made), why, registration)
            }
        };
        Ok((allocator, metadata, in_use, registration))
    }
}

/// What the core's allocator is made of.
struct Maker<'a> {
    topology: Topology<'static>,
    config: Config,
    binding: &'a mut Binding,
    metadata: &'a mut Vec<Region>,
}

impl Maker<'_> {
    /// Makes the allocator, its metadata on the nodes that it describes. `storage` is for forks: one like the
    /// platform's own.
    fn make<P>(
        &mut self,
        platform: P,
        storage: P::Storage,
    ) -> Result<(PageAllocator<'static, P>, Registration), MemoryError>
    where
        P: Platform + 'static,
        P::Storage: Send,
    {
        let mut buffers = Vec::new();
        for index in self.topology.indexes() {
            let bytes = metadata_size::<P>(&self.topology, index).map_err(MemoryError::Build)?;
            if bytes > 0 {
                let node = self.topology.node(index).id;
                buffers.push((index, metadata_region(node, bytes, self.binding)?));
            }
        }
        let buffer = |index: NodeIndex, bytes| {
            let (_, region) =
                buffers.iter().find(|(of, _)| *of == index).expect("metadata_size named this node");
            // SAFETY: the region is `bytes` long, usable, zero, and nobody else's: the core asks for each
            // node once. It stays mapped as long as the allocator is there (`Memory` drops it after).
            unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), bytes) }
        };
        let allocator = PageAllocator::new(platform, self.topology, self.config, buffer)
            .map_err(MemoryError::Build)?;
        // SAFETY: the metadata lies in the regions, and `Memory` drops the registration before them.
        let registration = unsafe { Registration::new(&allocator, storage) };
        self.metadata.extend(buffers.into_iter().map(|(_, region)| region));
        Ok((allocator, registration))
    }
}

/// The settings in force of those asked for: see [`MemoryBuilder::settings`].
pub(crate) fn for_a_process(settings: Settings) -> Settings {
    settings.with(|changed| changed.transparent_hugepage = false)
}

fn say_once(errno: i32) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let error = std::io::Error::from_raw_os_error(errno);
        tell(format_args!("membarrier is refused ({error}); pagesets use a lock per CPU"));
    });
}

pub(crate) fn metadata_region(
    node: NodeId,
    bytes: usize,
    binding: &mut Binding,
) -> Result<Region, MemoryError> {
    let no_memory = |error| MemoryError::NoMemory { node, bytes: bytes as u64, error };
    let region = Region::reserve(bytes, crate::region::page_size()).map_err(no_memory)?;
    region.make_usable(0, bytes).map_err(no_memory)?;
    binding
        .bind(region.start(), bytes.next_multiple_of(crate::region::page_size()), node)
        .map_err(|error| MemoryError::CannotBind { node, error })?;
    Ok(region)
}

/// A topology that lives as long as the allocator that borrows it.
pub(crate) struct OwnedTopology {
    topology: Topology<'static>,
    nodes: *mut [Node<'static>],
    buf: *mut TopologyBuf,
}

// SAFETY: plain data that nobody writes; the pointers are its owners.
unsafe impl Send for OwnedTopology {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedTopology {}

impl OwnedTopology {
    fn new(machine: &HostMachine, ranges: &[(NodeId, PfnRange)]) -> Result<Self, MemoryError> {
        let memory_of = |id: NodeId| {
            ranges.iter().filter(|(node, _)| *node == id).map(|(_, range)| *range).collect()
        };
        let nodes = machine.nodes.iter().map(|node| NodeBuf {
            id: node.id,
            memory: memory_of(node.id),
            cpus: node.cpus.clone(),
            movable_from: None::<Pfn>,
        });
        let buf: &'static TopologyBuf = Box::leak(Box::new(TopologyBuf {
            nodes: nodes.collect(),
            distances: machine.distances.clone(),
            address_map: AddressMap::Flat,
        }));
        let nodes: &'static [Node<'static>] = Box::leak(
            buf.nodes
                .iter()
                .map(|node| Node {
                    id: node.id,
                    memory: &node.memory,
                    cpus: &node.cpus,
                    movable_from: node.movable_from,
                })
                .collect(),
        );
        let owners = (std::ptr::from_ref(nodes).cast_mut(), std::ptr::from_ref(buf).cast_mut());
        match Topology::new(nodes, &buf.distances, buf.address_map) {
            Ok(topology) => Ok(Self { topology, nodes: owners.0, buf: owners.1 }),
            Err(error) => {
                // SAFETY: both were just leaked from boxes, and nothing borrows them any more.
                unsafe { free_leaked(owners.0, owners.1) };
                Err(MemoryError::Topology(error))
            }
        }
    }

    fn get(&self) -> Topology<'static> {
        self.topology
    }
}

/// # Safety
/// * Both pointers come from leaked boxes, and nothing borrows from them any more.
unsafe fn free_leaked(nodes: *mut [Node<'static>], buf: *mut TopologyBuf) {
    // SAFETY: as the caller promised.
    unsafe {
        drop(Box::from_raw(nodes));
        drop(Box::from_raw(buf));
    }
}

impl Drop for OwnedTopology {
    fn drop(&mut self) {
        // SAFETY: `new` leaked both; `Memory` drops the allocator, the only borrower, before this.
        unsafe { free_leaked(self.nodes, self.buf) };
    }
}

#[cfg(test)]
mod tests {
    use nearpage::CpuId;

    use super::*;

    /// The most bytes of metadata for a frame, over all nodes, of a machine of equal nodes.
    fn bytes_per_frame<P: Platform>(nodes: u32, cpus: u32, gibibytes: u64) -> f64 {
        let frames = gibibytes << (30 - FRAME_SHIFT);
        let node = |id: u32| NodeBuf {
            id: NodeId(id),
            memory: vec![PfnRange::new(u64::from(id) * frames, u64::from(id + 1) * frames)],
            cpus: (id * cpus..(id + 1) * cpus).map(CpuId).collect(),
            movable_from: None,
        };
        let distance = |at| if at / nodes == at % nodes { 10 } else { 20 };
        let machine = TopologyBuf {
            nodes: (0..nodes).map(node).collect(),
            distances: (0..nodes * nodes).map(distance).collect(),
            address_map: AddressMap::Flat,
        };
        let bytes = |topology: &Topology<'_>| -> usize {
            topology.indexes().map(|node| metadata_size::<P>(topology, node).unwrap()).sum()
        };
        machine.with(bytes).unwrap() as f64 / (u64::from(nodes) * frames) as f64
    }

    /// All told: states, lists, bits, pagesets of all CPUs, zonelists.
    #[test]
    fn metadata_is_at_most_24_bytes_a_frame() {
        let machines = [
            (1, 1, 1),
            (1, 2, 24),
            (1, 256, 64),
            (2, 64, 128),
            (8, 32, 64),
            (28, 8, 16),
            (100, 4, 16),
        ];
        for (nodes, cpus, gibibytes) in machines {
            let rseq = bytes_per_frame::<Host<RingStorage, false>>(nodes, cpus, gibibytes);
            let locked = bytes_per_frame::<Host<LockedStorage, false>>(nodes, cpus, gibibytes);
            let machine = format!("{nodes} nodes with {cpus} CPUs and {gibibytes} GiB");
            assert!((12.0..=24.0).contains(&rseq), "{machine}: {rseq}");
            assert!((12.0..=24.0).contains(&locked), "{machine}: {locked}");
        }
    }
}
