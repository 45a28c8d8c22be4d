//! Describing a memory, and making it.

use std::fmt;
use std::sync::atomic::AtomicU64;

use nearpage::internals::SECTION_FRAMES;
use nearpage::{
    Config, CpuId, Model, NodeId, PageAllocator, PfnRange, Settings, Topology, metadata_size,
};

use crate::bind::BindMode;
use crate::binding::Binding;
use crate::environment::{Environment, EnvironmentError};
use crate::error::MemoryError;
use crate::fork::Registration;
use crate::frame::FRAME_SHIFT;
use crate::growth::Growth;
use crate::host::Host;
use crate::huge::{HugePages, HugePagesByNode};
use crate::in_use::StorageInUse;
use crate::locked::{GetCpu, LockedStorage};
use crate::machine::{HostMachine, HostNode};
use crate::memory::Memory;
use crate::metadata::Metadata;
use crate::misuse::OnMisuse;
use crate::objects::Objects;
use crate::pages::{Allocator, PagesOn};
use crate::pressure::{NoPressure, Pressure};
use crate::region::{Region, whole_pages};
use crate::rseq::{Area, RingStorage, RseqUnavailable};
use crate::settings::for_a_process;
use crate::storage::{RingAccess, Rings};
use crate::topology::OwnedTopology;
use crate::waiting::Line;
use crate::warning::Warning;

/// Bytes of a section: nodes' ranges begin at multiples of it, so that no two share a section.
const SECTION_BYTES: u64 = (SECTION_FRAMES as u64) << FRAME_SHIFT;
/// Memory per node by default: enough to try things.
const BYTES_PER_NODE_DEFAULT: u64 = 256 << 20;

/// Describes a [`Memory`]. [`new`](Self::new) begins with defaults that do not depend on the environment of the process;
/// [`from_env`](Self::from_env) begins with what the environment asks for.
///
/// ```
/// use nearpage_linux::{BindMode, Memory};
///
/// let memory = Memory::builder()
///     .bytes_per_node(64 << 20)
///     .reserve_per_node(1 << 30)
///     .bind(BindMode::Advisory)
///     .build()?;
/// assert!(memory.topology().nodes().len() >= 1);
/// # Ok::<(), nearpage_linux::MemoryError>(())
/// ```
pub struct MemoryBuilder {
    environment: Environment,
    machine: Option<HostMachine>,
    bytes_per_node: u64,
    bytes_on: Vec<(NodeId, u64)>,
    reserve_per_node: u64,
    bind: Option<BindMode>,
    huge_pages: HugePagesByNode,
    use_rseq: Option<bool>,
    area: Option<Area>,
    cpu: Option<fn() -> CpuId>,
    hardened: bool,
    on_misuse: OnMisuse,
    pressure: Box<dyn Pressure>,
    model: Model,
    settings: Settings,
}

impl Memory {
    /// Starts to describe a memory.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::new()
    }
}

impl Default for MemoryBuilder {
    /// As [`MemoryBuilder::new`].
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBuilder")
            .field("environment", &self.environment)
            .field("machine", &self.machine)
            .field("bytes_per_node", &self.bytes_per_node)
            .field("bytes_on", &self.bytes_on)
            .field("reserve_per_node", &self.reserve_per_node)
            .field("bind", &self.bind)
            .field("hardened", &self.hardened)
            .finish_non_exhaustive()
    }
}

impl MemoryBuilder {
    /// The defaults: this machine's nodes, 256 MiB on each node with memory, advisory binding, restartable sequences where
    /// they are available, nearpage's own rules.
    pub fn new() -> Self {
        let config = Config::default();
        Self {
            environment: Environment::default(),
            machine: None,
            bytes_per_node: BYTES_PER_NODE_DEFAULT,
            bytes_on: Vec::new(),
            reserve_per_node: 0,
            bind: None,
            huge_pages: HugePagesByNode::default(),
            use_rseq: None,
            area: None,
            cpu: None,
            hardened: false,
            on_misuse: OnMisuse::default(),
            pressure: Box::new(NoPressure),
            model: config.model,
            settings: config.settings,
        }
    }

    /// The defaults, changed by the environment of this process (`NEARPAGE_NUMA`, `NEARPAGE_RSEQ`). A value that is not
    /// understood becomes one of the memory's [warnings](Memory::warnings).
    ///
    /// # Errors
    /// [`EnvironmentError::Strict`] if a value is not understood and `NEARPAGE_ENV` is `strict`.
    pub fn from_env() -> Result<Self, EnvironmentError> {
        Ok(Self::new().environment(Environment::from_env()?))
    }

    /// Sets nodes, binding and storage to what an environment asks for. Other methods override it, except that
    /// `NEARPAGE_RSEQ=off` overrides [`use_rseq`](Self::use_rseq).
    pub fn environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// The nodes and CPUs to make the memory for. The default is the machine that this process runs on.
    pub fn machine(self, machine: HostMachine) -> Self {
        Self { machine: Some(machine), ..self }
    }

    /// Bytes online at start on each node with memory, rounded down to whole pages of the kernel. The default is 256 MiB.
    pub fn bytes_per_node(self, bytes: u64) -> Self {
        Self { bytes_per_node: bytes, ..self }
    }

    /// Bytes online at start on one node, instead of [`bytes_per_node`](Self::bytes_per_node). 0 makes the node
    /// memoryless.
    pub fn bytes_on(mut self, node: NodeId, bytes: u64) -> Self {
        self.bytes_on.push((node, bytes));
        self
    }

    /// Bytes of addresses to reserve on each node with memory. [`Memory::bring_online`] can later bring so much online. A
    /// node reserves at least what it has online at start.
    pub fn reserve_per_node(self, bytes: u64) -> Self {
        Self { reserve_per_node: bytes, ..self }
    }

    /// How memory is bound to its node. The default is advisory; emulated nodes are never bound.
    pub fn bind(self, mode: BindMode) -> Self {
        Self { bind: Some(mode), ..self }
    }

    /// Which kind of the kernel's pages is behind the memory of all nodes.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages.all = huge_pages;
        self
    }

    /// Which kind of the kernel's pages is behind one node's memory, instead of [`huge_pages`](Self::huge_pages).
    pub fn huge_pages_on(mut self, node: NodeId, huge_pages: HugePages) -> Self {
        self.huge_pages.on.push((node, huge_pages));
        self
    }

    /// Whether the CPUs' caches use restartable sequences. By default they do where that is possible.
    pub fn use_rseq(self, use_rseq: bool) -> Self {
        Self { use_rseq: Some(use_rseq), ..self }
    }

    /// Restartable sequences with a `struct rseq` that the caller provides; see [`Area::unregistered`].
    #[doc(hidden)]
    pub fn rseq_area(self, area: Area) -> Self {
        Self { area: Some(area), ..self }
    }

    /// Pagesets with locks, for threads that work as CPUs of the caller's choice: `cpu` tells the calling thread's. So more
    /// threads than this machine has CPUs get a pageset each. Objects still follow the CPU that a thread runs on.
    #[doc(hidden)]
    pub fn cpu_of_thread(self, cpu: fn() -> CpuId) -> Self {
        Self { cpu: Some(cpu), ..self }
    }

    /// Makes the test at a free one atomic exchange. It then refuses one of two frees of a page in the same instant too.
    pub fn hardened(self, hardened: bool) -> Self {
        Self { hardened, ..self }
    }

    /// What happens at a wrong free or unlock.
    pub fn on_misuse(self, on_misuse: OnMisuse) -> Self {
        Self { on_misuse, ..self }
    }

    /// The callbacks for when memory gets short.
    pub fn pressure(self, pressure: impl Pressure + 'static) -> Self {
        Self { pressure: Box::new(pressure), ..self }
    }

    /// The rules. The default is nearpage's own.
    pub fn model(self, model: Model) -> Self {
        Self { model, ..self }
    }

    /// Sizes of watermarks and caches, and the target of reclaim. [`Memory::set_settings`] changes them later.
    ///
    /// Two settings have no effect on this host. `transparent_hugepage` is always off: it keeps up to a twentieth of memory
    /// free for a kernel thread that collapses pages, and no such thread works here; use
    /// [`huge_pages`](Self::huge_pages). `watermark_boost_factor` is ignored: boosts make background reclaim free whole
    /// pageblocks, and a shrinker cannot aim at those.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Makes the memory.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn build(mut self) -> Result<Memory, MemoryError> {
        let environment = std::mem::take(&mut self.environment);
        let mut warnings: Vec<Warning> =
            environment.ignored.iter().cloned().map(Warning::Ignored).collect();
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => {
                let (machine, of_machine) = environment.machine_and_warnings()?;
                warnings.extend(of_machine);
                machine
            }
        };
        if let Some((node, _)) =
            self.bytes_on.iter().find(|(id, _)| !machine.nodes.iter().any(|node| node.id == *id))
        {
            return Err(MemoryError::UnknownNode { node: *node });
        }
        let bind = bind_mode(self.bind.or(environment.bind), &machine)?;
        // `NEARPAGE_RSEQ=off` is for who runs a program, to look for the cause of a problem: it wins.
        let use_rseq = self.use_rseq.unwrap_or(true) && environment.use_rseq != Some(false);
        let storage = match self.area {
            Some(area) => Ok(area),
            None => StorageInUse::choose(use_rseq && self.cpu.is_none()),
        };

        let (region, node_ranges) = self.lay_out(&machine)?;
        let topology = OwnedTopology::new(&machine, &node_ranges).map_err(MemoryError::Topology)?;
        let mut binding = Binding::new(bind);
        for (node, range) in &node_ranges {
            let bytes = range.pages().to_bytes(FRAME_SHIFT) as usize;
            binding
                .bind(region.address(range.start), bytes, *node)
                .map_err(|error| MemoryError::CannotBind { node: *node, error })?;
        }
        let online = self.online_at_start(&node_ranges);
        let huge_pages = std::mem::take(&mut self.huge_pages);
        let objects = Objects::default();
        let made = self.allocator(topology.get(), &mut binding, storage, &objects)?;
        warnings.extend(refusals(&binding, made.storage));
        let cpus = topology.get().nodes().iter().map(|node| node.cpus.len()).sum();
        let moves_seen = std::iter::repeat_with(AtomicU64::default).take(cpus).collect();
        let memory = Memory {
            _registration: made.registration,
            allocator: made.allocator,
            binding,
            storage: made.storage,
            warnings,
            node_ranges,
            huge_pages,
            growth: Growth::new(),
            line: Line::new(),
            moves_seen,
            objects_at_forks: Registration::of(Box::new(objects.clone())),
            objects,
            region,
            _metadata: made.metadata,
            _topology: topology,
        };
        memory.bring_all_online(&online)?;
        Ok(memory)
    }

    /// What is online at start of nodes' ranges.
    fn online_at_start(&self, node_ranges: &[(NodeId, PfnRange)]) -> Vec<(NodeId, PfnRange)> {
        let online = node_ranges.iter().map(|(node, range)| {
            let end = range.start.0 + (self.bytes(*node) >> FRAME_SHIFT);
            (*node, PfnRange::new(range.start.0, end))
        });
        online.filter(|(_, range)| !range.is_empty()).collect()
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
        storage: Result<Area, StorageInUse>,
        objects: &Objects,
    ) -> Result<Made, MemoryError> {
        let config = Config::new()
            .with_model(self.model)
            .with_settings(for_a_process(self.settings))
            .with_page_shift(FRAME_SHIFT);
        let (pressure, on_misuse) = (self.pressure, self.on_misuse);
        let maker = Maker { topology, config, binding, pressure, on_misuse, objects };
        let rings = |area| (RingStorage::with_area(area), RingStorage::with_area(area));
        let locked = || {
            let storage = || LockedStorage::of(self.cpu.map_or_else(GetCpu::default, GetCpu::Told));
            (storage(), storage())
        };
        match (storage, self.hardened) {
            (Ok(area), false) => maker.make(rings(area), StorageInUse::Rseq, Allocator::Rseq),
            (Ok(area), true) => {
                maker.make(rings(area), StorageInUse::Rseq, Allocator::RseqHardened)
            }
            (Err(why), false) => maker.make(locked(), why, Allocator::Locked),
            (Err(why), true) => maker.make(locked(), why, Allocator::LockedHardened),
        }
    }
}

/// The binding that a machine allows of what was asked for.
fn bind_mode(asked: Option<BindMode>, machine: &HostMachine) -> Result<BindMode, MemoryError> {
    match asked {
        Some(BindMode::Strict) if machine.emulated => Err(MemoryError::CannotBindEmulated),
        _ if machine.emulated => Ok(BindMode::None),
        asked => Ok(asked.unwrap_or_default()),
    }
}

/// The system calls that the kernel refused.
fn refusals(binding: &Binding, storage: StorageInUse) -> impl Iterator<Item = Warning> {
    let membarrier = match storage {
        StorageInUse::LockedBecause(RseqUnavailable::NoMembarrier(errno)) => {
            Some(Warning::MembarrierRefused { errno })
        }
        _ => None,
    };
    let mbind = binding.refused.map(|errno| Warning::MbindRefused { errno });
    membarrier.into_iter().chain(mbind)
}

/// An allocator, and what belongs to it.
struct Made {
    allocator: Allocator,
    storage: StorageInUse,
    metadata: Metadata,
    registration: Registration,
}

/// What the core's allocator is made of.
struct Maker<'a> {
    topology: Topology<'static>,
    config: Config,
    binding: &'a mut Binding,
    pressure: Box<dyn Pressure>,
    on_misuse: OnMisuse,
    objects: &'a Objects,
}

impl Maker<'_> {
    /// Makes the allocator, its metadata on the nodes that it describes. Of the two storages, which are alike, one is the
    /// platform's and the other is for forks.
    fn make<A: RingAccess, const HARDENED: bool>(
        self,
        (storage, twin): (Rings<A>, Rings<A>),
        in_use: StorageInUse,
        shape: fn(PagesOn<A, HARDENED>) -> Allocator,
    ) -> Result<Made, MemoryError> {
        let metadata = Metadata::new(&self.topology, self.binding, |node| {
            let bytes =
                metadata_size::<Host<Rings<A>, HARDENED>>(&self.topology, &self.config, node);
            bytes.map_err(MemoryError::Build)
        })?;
        // SAFETY: the core asks for each node once. `Memory` drops the metadata after the allocator.
        let buffer = |node, bytes| unsafe { metadata.of_node(node, bytes) };
        let platform = Host::new(storage, self.pressure, self.on_misuse, self.objects.clone());
        let pages = PageAllocator::new(platform, self.topology, self.config, buffer)
            .map_err(MemoryError::Build)?;
        // SAFETY: the metadata lies in the regions, and `Memory` drops the registration before them.
        let registration = unsafe { Registration::new(&pages, twin) };
        Ok(Made { allocator: shape(pages), storage: in_use, metadata, registration })
    }
}

#[cfg(test)]
mod tests {
    use nearpage::platform::Platform;
    use nearpage::{AddressMap, NodeBuf, TopologyBuf};

    use super::*;

    /// Bytes of metadata for a frame, over all nodes, of a machine of equal nodes.
    fn bytes_per_frame<P: Platform>(
        config: &Config,
        map: AddressMap,
        (nodes, cpus, gibibytes): (u32, u32, u64),
    ) -> f64 {
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
            address_map: map,
        };
        let bytes = |topology: &Topology<'_>| -> usize {
            let size = |node| metadata_size::<P>(topology, config, node).unwrap();
            topology.indexes().map(size).sum()
        };
        machine.with(bytes).unwrap() as f64 / (u64::from(nodes) * frames) as f64
    }

    /// Both storages.
    fn each_storage(config: &Config, map: AddressMap, machine: (u32, u32, u64)) -> [f64; 2] {
        let rseq = bytes_per_frame::<Host<RingStorage, false>>(config, map, machine);
        [rseq, bytes_per_frame::<Host<LockedStorage, false>>(config, map, machine)]
    }

    #[test]
    fn metadata_of_16_cpus_and_4_gib_is_at_most_13_5_bytes_a_frame() {
        let [rseq, locked] = each_storage(&Config::new(), AddressMap::Flat, (1, 16, 4));
        assert!(rseq <= 13.5 && locked <= 13.5, "{rseq} {locked}");
    }

    #[test]
    fn metadata_is_less_than_19_bytes_a_frame() {
        let mut shown = [(f64::MAX, 0.0_f64); 2];
        let configs = [Config::new(), Config::new().without_notes()];
        let mut check = |map, nodes: u32, cpus: u32, gibibytes: u64| {
            // Only the first node has low zones.
            let zones = if map == AddressMap::X86 { nodes + 2 } else { nodes };
            let pagesets = u64::from(nodes * cpus) * u64::from(zones);
            if u64::from(nodes) * (gibibytes << 30) / pagesets < 16 << 20 {
                return;
            }
            for (config, (least, most)) in configs.iter().zip(&mut shown) {
                for bytes in each_storage(config, map, (nodes, cpus, gibibytes)) {
                    let machine =
                        format!("{map:?}: {nodes} nodes of {cpus} CPUs and {gibibytes} GiB");
                    assert!(bytes < 19.0, "{machine}: {bytes}");
                    (*least, *most) = (least.min(bytes), most.max(bytes));
                }
            }
        };
        for map in [AddressMap::Flat, AddressMap::X86] {
            for nodes in [1, 2, 4, 8, 28] {
                for cpus in [1, 2, 8, 64, 256] {
                    for gibibytes in [1, 2, 4, 24, 64] {
                        check(map, nodes, cpus, gibibytes);
                    }
                }
            }
            check(map, 1, 1, 512);
            check(map, 100, 1, 2);
        }
        let shown = shown.map(|(least, most)| format!("{least:.1} to {most:.1}"));
        assert_eq!(shown, ["12.3 to 14.8", "4.3 to 6.8"], "the book has these figures");
    }
}
