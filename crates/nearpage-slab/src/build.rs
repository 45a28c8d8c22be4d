//! Making a slab allocator out of the caller's memory.
//!
//! What belongs to a node lies in that node's buffer: the descriptors of its frames, the lists of caches, the
//! entries of its CPUs' stacks. Tables, and the first line of each stack, lie with the first node that has memory.
//! Descriptors are carved and not touched: a line a frame, of which only slabs use theirs.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};

use nearpage::internals::{
    Arena, Carver, Need, OutOfMetadata, OwnedCounter, Plan, SECTION_FRAMES, SECTION_SHIFT,
};
use nearpage::platform::{CountedList, Lock, Storage};
use nearpage::{CpuId, NodeIndex, PageAllocator, PageCount, Pfn, Topology};

use crate::allocator::SlabAllocator;
use crate::barn::Barn;
use crate::config::SlabConfig;
use crate::cpu::{CpuStack, SlabCpu};
use crate::descriptor::{BIT_WORDS, DescriptorMap, DescriptorSection};
use crate::entry::Frames;
use crate::error::SlabBuildError;
use crate::events::CpuEvents;
use crate::geometry::{GeometryCell, Rules};
use crate::lists::Alien;
use crate::node::{CacheNode, Far};
use crate::place::{Cache, Registry};
use crate::platform::SlabPlatform;
use crate::rules::SlabRules;
use crate::storage::ObjectStorage;
use crate::tag::{CACHES_MAX, Tag};
use crate::tunables::LIMIT_MAX;

/// Entries of a stack: the largest limit, as a power of two.
const STACK_ENTRIES: usize = LIMIT_MAX.next_power_of_two() as usize;
/// The id of no CPU: ids are below 2^20.
const NO_CPU: CpuId = CpuId(1 << 30);
/// From this much memory on slabs may have two pages. `mm/slab.c: kmem_cache_init`, 2.6.35.
const LARGE_MACHINE_BYTES: u64 = 32 << 20;

impl SlabConfig {
    /// Bytes of metadata that a slab allocator of this configuration needs on a node: what [`SlabAllocator::new`] will ask
    /// for. Zero for a node without memory.
    ///
    /// # Errors
    /// [`SlabBuildError`] if no allocator can be made for this topology, or with this configuration.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn metadata_size<P: SlabPlatform>(
        &self,
        topology: &Topology<'_>,
        node: NodeIndex,
    ) -> Result<usize, SlabBuildError> {
        check_config(self)?;
        Ok(need::<P>(&Plan::new(topology)?, node, self).bytes())
    }
}

fn check_config(config: &SlabConfig) -> Result<(), SlabBuildError> {
    match config.caches_max {
        1..=CACHES_MAX => Ok(()),
        caches_max => Err(SlabBuildError::TooManyCaches { caches_max }),
    }
}

fn need<P: SlabPlatform>(plan: &Plan<'_>, node: NodeIndex, config: &SlabConfig) -> Need {
    let mut need = Need::default();
    let (nodes, caches) = (plan.topology.len(), config.caches_max);
    if plan.topology.node(node).memory.is_empty() {
        return need;
    }
    if node == plan.hub {
        need.add::<Option<Arena<'_>>>(nodes);
        need.add::<Option<&DescriptorSection>>(plan.sections as usize);
        need.add::<&[AtomicU64]>(plan.sections as usize);
        need.add::<Option<SlabCpu<P>>>(plan.cpu_ids);
        need.add::<Cache<'_, P>>(caches);
        need.add::<P::Lock<Registry>>(1);
        for _ in 0..caches {
            need.add::<&CacheNode<'_, P>>(nodes);
            need.add::<CpuStack<'_, P>>(plan.cpu_ids);
            need.add::<CpuEvents>(plan.cpu_ids);
            // One entry for each CPU id that no CPU has.
            need.add::<AtomicU32>(plan.cpu_ids);
        }
        // Each of those may be carved apart from the others.
        need.add::<u64>(caches * plan.cpu_ids);
    }
    for _ in plan.owned_sections(node) {
        need.add::<DescriptorSection>(1);
        if P::HARDENED {
            need.add::<AtomicU64>(SECTION_FRAMES * BIT_WORDS);
        }
    }
    for homed in plan.topology.indexes().filter(|&homed| plan.home(homed) == node) {
        for _ in 0..caches {
            need.add::<CacheNode<'_, P>>(1);
            match config.rules.has_sheaves() {
                true => need.add::<P::Lock<Barn>>(1),
                false => need.add::<P::Lock<Alien>>(nodes),
            }
            for _ in plan.topology.node(homed).cpus {
                need.add::<AtomicU32>(STACK_ENTRIES);
            }
        }
    }
    need
}

impl<'a, 'm, P: SlabPlatform> SlabAllocator<'a, 'm, P> {
    /// The slab allocator of a page allocator; there can be one in its life. `buffer` is called as by
    /// [`PageAllocator::new`], with the bytes that [`SlabConfig::metadata_size`] says, and must return **zeroes**.
    ///
    /// # Errors
    /// [`SlabBuildError`].
    pub fn new(
        pages: &'a PageAllocator<'m, P>,
        config: SlabConfig,
        mut buffer: impl FnMut(NodeIndex, usize) -> &'m mut [u8],
    ) -> Result<Self, SlabBuildError> {
        Self::build(pages, config, &mut buffer)
    }

    /// What [`new`](Self::new) does, compiled once for all closures.
    fn build(
        pages: &'a PageAllocator<'m, P>,
        config: SlabConfig,
        buffer: &mut dyn FnMut(NodeIndex, usize) -> &'m mut [u8],
    ) -> Result<Self, SlabBuildError> {
        check_config(&config)?;
        if !pages.has_notes() {
            return Err(SlabBuildError::WithoutNotes);
        }
        let plan = Plan::new(pages.topology())?;
        let need = |node| need::<P>(&plan, node, &config).bytes();
        let (mut carver, mut hub) = Carver::open(plan, &need, buffer)?;
        // Last of what may fail: a claim is for good.
        if !pages.claim_notes() {
            return Err(SlabBuildError::SecondSlab);
        }
        let parts =
            carve::<P>(&mut carver, &mut hub, &config).expect("the needs count all that is carved");
        let frames = Frames {
            base: Pfn(plan.first_section << SECTION_SHIFT),
            page_shift: pages.page_shift(),
        };
        let span = PageCount(plan.sections << SECTION_SHIFT).to_bytes(frames.page_shift);
        let memory: u64 = plan
            .topology
            .nodes()
            .iter()
            .flat_map(|node| node.memory)
            .map(|range| range.pages().0)
            .sum();
        let layout = Rules {
            descriptors: config.descriptors,
            page_shift: frames.page_shift,
            is_large_machine: PageCount(memory).to_bytes(frames.page_shift) > LARGE_MACHINE_BYTES,
            align_min: Self::align_min(span),
        };
        let slab = Self {
            pages,
            layout,
            rules: config.rules,
            local: config.local,
            frames,
            descriptors: parts.descriptors,
            hands: parts.hands,
            cpus: parts.cpus,
            cpu_count: plan.cpus,
            caches: parts.caches,
            registry: parts.registry,
        };
        // No CPU has another node than its own yet.
        let _ = slab.refresh_nodes();
        Ok(slab)
    }
}

/// All that was carved.
struct Parts<'m, P: SlabPlatform> {
    descriptors: DescriptorMap<'m>,
    hands: &'m [&'m [AtomicU64]],
    cpus: &'m [Option<SlabCpu<P>>],
    caches: &'m [Cache<'m, P>],
    registry: &'m P::Lock<Registry>,
}

fn carve<'m, P: SlabPlatform>(
    carver: &mut Carver<'_, 'm>,
    hub: &mut Arena<'m>,
    config: &SlabConfig,
) -> Result<Parts<'m, P>, OutOfMetadata> {
    let plan = carver.plan;
    let section_at = |index: usize| plan.owner(plan.first_section + index as u64);
    let descriptors = hub.slice(plan.sections as usize, |index, hub| {
        let Some(owner) = section_at(index) else { return Ok(None) };
        Ok(Some(&carver.arena(owner, hub).untouched::<DescriptorSection>(1)?[0]))
    })?;
    let hands = hub.slice(plan.sections as usize, |index, hub| -> Result<&'m [AtomicU64], _> {
        match section_at(index) {
            Some(owner) if P::HARDENED => {
                carver.arena(owner, hub).untouched(SECTION_FRAMES * BIT_WORDS)
            }
            _ => Ok(&[]),
        }
    })?;
    let cpus = hub.slice(plan.cpu_ids, |index, _| {
        let id = CpuId(index as u32);
        let node = plan.topology.node_of_cpu(id);
        Ok(node.map(|node| SlabCpu {
            id,
            node,
            effective: AtomicU16::new(node.0),
            is_on: AtomicBool::new(true),
            reap_node: AtomicU16::new(index as u16 % plan.topology.len() as u16),
            exclusion: P::Storage::per_cpu(id),
        }))
    })?;
    let cpus: &'m [Option<SlabCpu<P>>] = cpus;
    let caches = hub.slice(config.caches_max, |index, hub| {
        carve_cache(carver, hub, index as u16, cpus, config.rules)
    })?;
    let registry = hub.slice(1, |_, _| Ok(P::Lock::new(Registry::default())))?;
    Ok(Parts {
        descriptors: DescriptorMap(descriptors),
        hands,
        cpus,
        caches,
        registry: &registry[0],
    })
}

fn carve_cache<'m, P: SlabPlatform>(
    carver: &mut Carver<'_, 'm>,
    hub: &mut Arena<'m>,
    index: u16,
    cpus: &'m [Option<SlabCpu<P>>],
    rules: SlabRules,
) -> Result<Cache<'m, P>, OutOfMetadata> {
    let plan = carver.plan;
    let nodes = hub.slice(plan.topology.len(), |index, hub| {
        let arena = carver.arena(plan.home(NodeIndex(index as u16)), hub);
        let far = match rules.has_sheaves() {
            true => Far::Barn(&arena.slice(1, |_, _| Ok(P::Lock::new(Barn::new())))?[0]),
            false => {
                let aliens = plan.topology.len();
                Far::Aliens(arena.slice(aliens, |_, _| Ok(P::Lock::new(Alien::new())))?)
            }
        };
        let node = arena.slice(1, |_, _| Ok(CacheNode::new(far)))?;
        Ok(&node[0])
    })?;
    let any = cpus.iter().flatten().next();
    let stacks = hub.slice(cpus.len(), |at, hub| {
        let cpu = cpus[at].as_ref();
        let (id, entries): (_, &'m [AtomicU32]) = match cpu {
            Some(cpu) => (cpu.id, carver.arena(plan.home(cpu.node), hub).untouched(STACK_ENTRIES)?),
            None => (NO_CPU, hub.untouched(1)?),
        };
        let stack = P::Storage::stack(id, entries);
        if cpu.is_none() {
            stack.set_limit(0);
        }
        Ok(CpuStack {
            stack,
            // A table that is not empty has a CPU.
            exclusion: &cpu.or(any).ok_or(OutOfMetadata)?.exclusion,
            tag: AtomicU32::new(Tag::NOBODY.0),
            refilled: AtomicU32::new(0),
            pops_reaped: OwnedCounter::new(),
        })
    })?;
    let events = hub.slice(cpus.len(), |_, _| Ok(CpuEvents::default()))?;
    Ok(Cache {
        index,
        stacks,
        events,
        nodes,
        shift: AtomicU32::new(0),
        batch: AtomicU32::new(0),
        geometry: GeometryCell::new(),
        gfp: AtomicU32::new(0),
        info: P::Lock::new(None),
    })
}
