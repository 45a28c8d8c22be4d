//! Making an allocator out of the caller's memory.
//!
//! What belongs to a node lies in that node's buffer: the frames of its sections, its zones and zonelists,
//! and the pagesets of its CPUs. What belongs to a memoryless node lies with the nearest node that has
//! memory. The tables that everybody reads (zones, nodes, CPUs, sections) lie with the first node
//! that has memory. Frames and rings are carved and not touched.

use core::fmt;

use super::hints::ScanEvents;
use super::online::OnlineMap;
use super::reasons::FallbackRow;
use super::settings::State;
use super::stalls::StallEvents;
use super::{
    Cpu, Homes, HotplugCounts, NO_ZONE, NodeState, PageAllocator, Preferred, REQUEST_KINDS,
};
use crate::arena::{Arena, Need, OutOfMetadata};
use crate::frame::section::PAGEBLOCKS;
use crate::frame::{LoosePages, Section, SectionLists, SectionMap, SectionRun, ZoneFrames};
use crate::limit::Ledger;
use crate::model::Model;
use crate::pagelock::{BUCKETS, Bucket, WaitTable, WaitTables};
use crate::pcp::pageset::{List, Owner, Pageset};
use crate::pcp::{LISTS, Storage, list_order};
use crate::platform::{Lock, Platform};
use crate::slot::{Slot, SlotRing};
use crate::sync::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use crate::topology::Topology;
use crate::units::{
    CpuId, NodeId, NodeIndex, Pfn, PfnRange, SECTION_FRAMES, SECTION_SHIFT, ZoneIndex, ZoneKind,
};
use crate::watermark::{SettingError, Settings};
use crate::zone::{Ledgers, Zone};
use crate::zonelist::cache::{HintLine, ZonelistCache};
use crate::zonelist::list::Zonelist;

/// What an allocator is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rules.
    pub model: Model,
    /// Sizes of watermarks and pagesets.
    pub settings: Settings,
    /// Log2 of the page size in bytes, where [`Platform::PAGE_SHIFT`] does not say it.
    pub page_shift: u32,
}

impl Default for Config {
    /// nearpage's own rules for pages of 4 KiB.
    fn default() -> Self {
        let settings = Settings { transparent_hugepage: false, ..Settings::default() };
        Self { model: Model::NEARPAGE, settings, page_shift: 12 }
    }
}

/// Why an allocator could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// No node of the topology has memory.
    NoMemory,
    /// A CPU id is too large for a table by id.
    CpuIdTooLarge {
        /// The id.
        cpu: CpuId,
    },
    /// A zone spans more frames than a frame number can tell apart: 2^32 - 1.
    ZoneTooLarge {
        /// The node.
        node: NodeId,
        /// The zone's span.
        span: PfnRange,
    },
    /// The memory of the topology lies too far apart for a table of sections.
    SpanTooLarge {
        /// From the first to the last frame.
        span: PfnRange,
    },
    /// The buffer for a node is smaller than [`metadata_size`] says.
    BufferTooSmall {
        /// The node.
        node: NodeId,
        /// Bytes that were given.
        given: usize,
        /// Bytes that are needed.
        needed: usize,
    },
    /// A setting is out of range.
    Setting(SettingError),
    /// The page allocator has a slab allocator already, or had one: objects of two could not be told apart.
    SecondSlab,
    /// More places for caches were asked for than there are numbers for caches.
    TooManyCaches {
        /// Places asked for.
        caches_max: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("no node of the topology has memory; at least one must"),
            Self::CpuIdTooLarge { cpu } => {
                write!(f, "CPU id {cpu} is too large; ids up to {} are accepted", CPU_ID_MAX)
            }
            Self::ZoneTooLarge { node, span } => write!(
                f,
                "a zone of node {node} spans frames {span}; at most 2^32 - 1 frames are accepted"
            ),
            Self::SpanTooLarge { span } => write!(
                f,
                "memory lies in frames {span}; at most {SECTIONS_MAX} sections from first to last are accepted"
            ),
            Self::BufferTooSmall { node, given, needed } => write!(
                f,
                "the metadata buffer for node {node} has {given} bytes and needs {needed}"
            ),
            Self::Setting(error) => error.fmt(f),
            Self::SecondSlab => {
                f.write_str("the page allocator has, or had, a slab allocator; it can have one")
            }
            Self::TooManyCaches { caches_max } => {
                write!(f, "{caches_max} places for caches; 1 to {} are accepted", CACHES_MAX)
            }
        }
    }
}

impl core::error::Error for BuildError {}

/// Places for caches at most: the numbers that fit a frame's tag ([`crate::slab::tag`]).
pub(crate) const CACHES_MAX: usize = (1 << 15) - 1;
/// Largest CPU id: a table of pointers by id stays below 8 MiB.
const CPU_ID_MAX: u32 = (1 << 20) - 1;
/// Most sections from the first to the last frame: 1 PiB of addresses, a table of 192 MiB.
const SECTIONS_MAX: u64 = 1 << 23;

/// Bytes of rings per frame of a zone for the CPUs of its own node, and for all others. With the
/// frame's 12 bytes and small change it stays below 19.
const RING_BYTES_NEAR: u64 = 4;
const RING_BYTES_FAR: u64 = 2;
/// Bytes that the 14 rings of a pageset take for each page that its largest ring can hold:
/// three lists of order 0, as many with half, a quarter and an eighth of the entries, of 4 bytes each;
/// huge pages need next to nothing.
const RING_BYTES_PER_PAGE: u64 = 23;
/// Most pages that a ring of a CPU of another node is made for.
const FAR_HIGH_MAX: u64 = 512;

/// Bytes of metadata that the allocator needs on a node: what [`PageAllocator::new`] will ask for, with
/// the same topology. Zero for a node without memory.
///
/// # Errors
/// [`BuildError`] if no allocator can be made for this topology.
pub fn metadata_size<P: Platform>(
    topology: &Topology<'_>,
    node: NodeIndex,
) -> Result<usize, BuildError> {
    Ok(Plan::new(topology)?.need::<P>(node).bytes())
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// An allocator for the machine, all of whose memory is offline. `buffer` is called once for each
    /// node that has memory with the bytes that [`metadata_size`] says; it must return that much
    /// memory, **filled with zeroes**, best on that node.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn new(
        platform: P,
        topology: Topology<'m>,
        config: Config,
        mut buffer: impl FnMut(NodeIndex, usize) -> &'m mut [u8],
    ) -> Result<Self, BuildError> {
        let mut settings = config.settings;
        settings.movable_min = config.model.movable_min;
        settings.check().map_err(BuildError::Setting)?;
        let plan = Plan::new(&topology)?;
        let need = |node| plan.need::<P>(node).bytes();
        let (mut carver, mut hub) = Carver::open(plan, need, &mut buffer)?;
        let parts = carver.carve::<P>(&mut hub, &config).expect(COUNTED);
        let mut state = Some(State {
            settings,
            object_share: None,
            booted: false,
            plugged: HotplugCounts::default(),
            loads: parts.loads,
            order: parts.order,
        });
        let state = hub.slice(1, |_, _| Ok(P::Lock::new(state.take().ok_or(OutOfMetadata)?)));
        let state: &'m [P::Lock<State<'m>>] = state.expect(COUNTED);
        let node_reclaim: &'m [AtomicBool] =
            hub.slice(1, |_, _| Ok(AtomicBool::new(false))).expect(COUNTED);
        Ok(Self {
            platform,
            model: config.model,
            map: parts.map,
            online: parts.online,
            ledgers: parts.ledgers,
            homes: parts.homes,
            nobodys: parts.nobodys,
            cpus: parts.cpus,
            zones: parts.zones,
            nodes: parts.nodes,
            topology,
            node_reclaim: &node_reclaim[0],
            state: &state[0],
            wait_tables: parts.wait_tables,
            page_shift: config.page_shift,
        })
    }
}

/// Carving fails only if `Plan::need` forgot something.
pub(crate) const COUNTED: &str = "the plan counts all that is carved";

/// What lies where.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'m> {
    pub(crate) topology: Topology<'m>,
    /// The node whose buffer holds the tables.
    pub(crate) hub: NodeIndex,
    /// From the first to the last section.
    pub(crate) first_section: u64,
    pub(crate) sections: u64,
    zones: usize,
    pub(crate) cpu_ids: usize,
    /// CPUs of all nodes.
    pub(crate) cpus: u64,
}

impl<'m> Plan<'m> {
    pub(crate) fn new(topology: &Topology<'m>) -> Result<Self, BuildError> {
        let has_memory = |&node: &NodeIndex| !topology.node(node).memory.is_empty();
        let hub = topology.indexes().find(has_memory).ok_or(BuildError::NoMemory)?;
        let all = || topology.nodes().iter().flat_map(|node| node.memory);
        let start = all().map(|range| range.start).min().unwrap_or_default();
        let end = all().map(|range| range.end).max().unwrap_or_default();
        let sections = Pfn(end.0 - 1).section() - start.section() + 1;
        if sections > SECTIONS_MAX {
            return Err(BuildError::SpanTooLarge { span: PfnRange { start, end } });
        }
        let cpus = || topology.nodes().iter().flat_map(|node| node.cpus);
        let last_cpu = cpus().max().copied();
        if let Some(cpu) = last_cpu.filter(|cpu| cpu.0 > CPU_ID_MAX) {
            return Err(BuildError::CpuIdTooLarge { cpu });
        }
        for (node, kind) in zones(topology) {
            let span = topology.span(node, kind);
            // Frame numbers count from the beginning of the first section.
            if span.pages().0 + span.start.section_offset() as u64 >= u32::MAX as u64 {
                return Err(BuildError::ZoneTooLarge { node: topology.node(node).id, span });
            }
        }
        Ok(Self {
            topology: *topology,
            hub,
            first_section: start.section(),
            sections,
            zones: zones(topology).count(),
            cpu_ids: last_cpu.map_or(0, |cpu| cpu.0 as usize + 1),
            cpus: cpus().count() as u64,
        })
    }

    /// Places for pagesets that the fast path looks at, of one kind of zone.
    fn home_slots(&self) -> usize {
        self.cpu_ids.next_power_of_two()
    }

    /// The node whose buffer holds what belongs to `node`: itself, or the nearest one with memory.
    pub(crate) fn home(&self, node: NodeIndex) -> NodeIndex {
        if !self.topology.node(node).memory.is_empty() {
            return node;
        }
        let with_memory =
            self.topology.indexes().filter(|&other| !self.topology.node(other).memory.is_empty());
        with_memory.min_by_key(|&other| self.topology.distance(node, other)).unwrap_or(self.hub)
    }

    /// The node that a section's metadata lies with: the lowest of those that have memory in it.
    pub(crate) fn owner(&self, section: u64) -> Option<NodeIndex> {
        let frames = PfnRange::new(section << SECTION_SHIFT, (section + 1) << SECTION_SHIFT);
        self.topology.indexes().find(|&node| {
            let memory = self.topology.node(node).memory;
            let at = memory.partition_point(|range| range.end <= frames.start);
            memory.get(at).is_some_and(|range| !range.intersection(frames).is_empty())
        })
    }

    /// The sections whose metadata lies with `node`.
    pub(crate) fn owned_sections(
        &self,
        node: NodeIndex,
    ) -> impl Iterator<Item = u64> + use<'_, 'm> {
        let mut next = 0;
        let touched = self.topology.node(node).memory.iter().flat_map(move |range| {
            let first = range.start.section().max(next);
            next = Pfn(range.end.0 - 1).section() + 1;
            first..next
        });
        touched.filter(move |&section| self.owner(section) == Some(node))
    }

    /// Adjoining ones of these sections: number of the first, and how many.
    fn runs(&self, node: NodeIndex) -> impl Iterator<Item = (u64, usize)> + use<'_, 'm> {
        let mut sections = self.owned_sections(node).peekable();
        core::iter::from_fn(move || {
            let first = sections.next()?;
            let mut count = 1;
            while sections.next_if_eq(&(first + count)).is_some() {
                count += 1;
            }
            Some((first, count as usize))
        })
    }

    /// All runs, and the nodes that they lie with.
    fn all_runs(&self) -> impl Iterator<Item = (NodeIndex, u64, usize)> + use<'_, 'm> {
        let of = |node| self.runs(node).map(move |(first, count)| (node, first, count));
        self.topology.indexes().flat_map(of)
    }

    /// Entries of list `index` of the pageset that a CPU of node `of` has for a zone.
    fn ring_entries<S: Storage>(
        &self,
        of: NodeIndex,
        node: NodeIndex,
        kind: ZoneKind,
        index: usize,
    ) -> usize {
        let frames = self.topology.present(node, kind).0;
        let near = self.topology.node(node).cpus.len() as u64;
        let (bytes, cpus) = if of == node {
            (frames * RING_BYTES_NEAR, near)
        } else {
            let most = self.cpus * FAR_HIGH_MAX * RING_BYTES_PER_PAGE;
            ((frames * RING_BYTES_FAR).min(most), self.cpus - near)
        };
        let high_max = (bytes / RING_BYTES_PER_PAGE / cpus.max(1)).min(u32::MAX as u64);
        S::ring_entries(list_order(index), high_max as u32) as usize
    }

    fn need<P: Platform>(&self, node: NodeIndex) -> Need {
        let mut need = Need::default();
        if self.topology.node(node).memory.is_empty() {
            return need;
        }
        if node == self.hub {
            self.add_tables::<P>(&mut need);
        }
        for (_, count) in self.runs(node) {
            need.add::<[AtomicU32; SECTION_FRAMES]>(count);
            need.add::<[AtomicU8; PAGEBLOCKS]>(count);
            need.add::<[LoosePages; PAGEBLOCKS]>(count);
            need.add::<SectionLists>(count);
        }
        zones(&self.topology).filter(|zone| zone.0 == node).for_each(|_| {
            need.add::<Zone<'_, P>>(1);
            // For the rule that needs most: a table a zone.
            need.add::<WaitTable<'_, P>>(1);
            need.add::<Bucket<P>>(BUCKETS);
        });
        for homed in self.topology.indexes().filter(|&homed| self.home(homed) == node) {
            for _ in 0..REQUEST_KINDS {
                need.add::<AtomicU16>(2 * self.zones);
                need.add::<HintLine>(ZonelistCache::lines(self.zones));
            }
            need.add::<AtomicU64>(FallbackRow::cells(self.topology.len()));
            for _ in self.topology.node(homed).cpus {
                self.add_cpu::<P>(&mut need, homed);
            }
        }
        need
    }

    fn add_tables<P: Platform>(&self, need: &mut Need) {
        let nodes = self.topology.len();
        let pageblocks = OnlineMap::pageblocks(self.sections);
        need.add::<Option<Arena<'_>>>(nodes);
        need.add::<Option<Section<'_>>>(self.sections as usize);
        need.add::<SectionRun<'_>>(self.all_runs().count());
        need.add::<AtomicU8>(pageblocks);
        need.add::<AtomicU64>(pageblocks * OnlineMap::WORDS_PER_PAGEBLOCK);
        need.add::<Ledger>(nodes + 1);
        need.add::<&Zone<'_, P>>(self.zones);
        need.add::<Option<&WaitTable<'_, P>>>(self.zones);
        need.add::<&WaitTable<'_, P>>(self.zones);
        need.add::<NodeState<'_>>(nodes);
        need.add::<Slot<'_, Pageset<'_, P>>>(ZoneKind::COUNT * self.home_slots());
        need.add::<Cpu<'_, P>>(self.cpu_ids);
        need.add::<u32>(nodes);
        need.add::<NodeIndex>(nodes);
        need.add::<Owner<P>>(1);
        need.add::<Pageset<'_, P>>(1);
        for index in 0..LISTS {
            need.add::<AtomicU32>(P::Storage::ring_entries(list_order(index), 0) as usize);
        }
        need.add::<P::Lock<State<'_>>>(1);
        need.add::<AtomicBool>(1);
    }

    fn add_cpu<P: Platform>(&self, need: &mut Need, of: NodeIndex) {
        need.add::<Owner<P>>(1);
        need.add::<Pageset<'_, P>>(self.zones);
        for (node, kind) in zones(&self.topology) {
            for index in 0..LISTS {
                need.add::<AtomicU32>(self.ring_entries::<P::Storage>(of, node, kind, index));
            }
        }
    }
}

/// All zones of a topology, by node and kind: the order of zone indexes.
fn zones<'m>(topology: &Topology<'m>) -> impl Iterator<Item = (NodeIndex, ZoneKind)> + use<'m> {
    let topology = *topology;
    topology.indexes().flat_map(move |node| {
        ZoneKind::ALL
            .into_iter()
            .filter(move |&kind| topology.is_populated(node, kind))
            .map(move |kind| (node, kind))
    })
}

/// The buffers while they are being carved.
pub(crate) struct Carver<'a, 'm> {
    pub(crate) plan: Plan<'m>,
    hub: NodeIndex,
    /// Buffers of the nodes other than the hub.
    arenas: &'a mut [Option<Arena<'m>>],
}

/// All that was carved.
struct Parts<'m, P: Platform> {
    map: SectionMap<'m>,
    online: OnlineMap<'m>,
    ledgers: &'m [Ledger],
    zones: &'m [&'m Zone<'m, P>],
    wait_tables: &'m [&'m WaitTable<'m, P>],
    nodes: &'m [NodeState<'m>],
    homes: [Homes<'m, P>; ZoneKind::COUNT],
    nobodys: &'m Pageset<'m, P>,
    cpus: &'m [Cpu<'m, P>],
    loads: &'m mut [u32],
    order: &'m mut [NodeIndex],
}

impl<'m> Carver<'_, 'm> {
    /// Takes the buffers of all nodes with memory; the second answer is that of the hub, which has room for the
    /// table of the others.
    pub(crate) fn open(
        plan: Plan<'m>,
        need: impl Fn(NodeIndex) -> usize,
        buffer: &mut dyn FnMut(NodeIndex, usize) -> &'m mut [u8],
    ) -> Result<(Self, Arena<'m>), BuildError> {
        let topology = plan.topology;
        let mut arena_of = |node: NodeIndex| -> Result<Arena<'m>, BuildError> {
            let needed = need(node);
            let buffer = buffer(node, needed);
            if buffer.len() < needed {
                let (node, given) = (topology.node(node).id, buffer.len());
                return Err(BuildError::BufferTooSmall { node, given, needed });
            }
            Ok(Arena::new(buffer))
        };
        let mut hub = arena_of(plan.hub)?;
        let mut refused = None;
        let arenas = hub
            .slice(topology.len(), |index, _| {
                let node = NodeIndex(index as u16);
                if node == plan.hub || plan.home(node) != node {
                    return Ok(None);
                }
                Ok(arena_of(node).map_err(|error| refused = Some(error)).ok())
            })
            .expect(COUNTED);
        match refused {
            Some(error) => Err(error),
            None => Ok((Carver { plan, hub: plan.hub, arenas }, hub)),
        }
    }

    fn carve<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        config: &Config,
    ) -> Result<Parts<'m, P>, OutOfMetadata> {
        let plan = self.plan;
        let mut keys = plan.all_runs();
        let runs = hub.slice(plan.all_runs().count(), |_, hub| {
            let (node, first, count) = keys.next().ok_or(OutOfMetadata)?;
            let arena = self.arena(node, hub);
            let (words, pageblocks) = (arena.untouched(count)?, arena.untouched(count)?);
            let (loose, lists) = (arena.untouched(count)?, arena.untouched(count)?);
            Ok(SectionRun { first, words, pageblocks, loose, lists })
        })?;
        let table = hub.slice(plan.sections as usize, |_, _| Ok(None))?;
        runs.iter().for_each(|run| run.enter(plan.first_section, table));
        let map = SectionMap::new(plan.first_section, runs, table);
        let pageblocks = OnlineMap::pageblocks(plan.sections);
        let online = OnlineMap::new(
            plan.first_section,
            hub.untouched(pageblocks)?,
            hub.untouched(pageblocks * OnlineMap::WORDS_PER_PAGEBLOCK)?,
        );

        // The last one is that of all nodes.
        let ledgers = hub.slice(plan.topology.len() + 1, |_, _| Ok(Ledger::default()))?;
        let ledgers: &'m [Ledger] = ledgers;
        let mut zone_keys = zones(&plan.topology);
        let zones = hub.slice(plan.zones, |index, hub| {
            let (node, kind) = zone_keys.next().ok_or(OutOfMetadata)?;
            let span = plan.topology.span(node, kind);
            let frames = ZoneFrames::new(map, span.start, ZoneIndex(index as u16));
            let zone = self.arena(node, hub).slice(1, |_, _| {
                Ok(Zone::<P>::new(
                    kind,
                    node,
                    frames,
                    span,
                    Ledgers { node: &ledgers[node.0 as usize], all: &ledgers[plan.topology.len()] },
                    config.model.fallback,
                    config.model.departures.merging,
                ))
            })?;
            Ok(&zone[0])
        })?;
        let zones: &'m [&'m Zone<'m, P>] = zones;
        let wait_tables = self.carve_wait_tables(hub, zones, config.model.page_lock.tables)?;

        let nodes = hub.slice(plan.topology.len(), |index, hub| {
            let node = NodeIndex(index as u16);
            let arena = self.arena(plan.home(node), hub);
            let id = plan.topology.node(node).id;
            let zonelists = carve_zonelists(arena, plan.zones)?;
            let fallbacks = arena.untouched(FallbackRow::cells(plan.topology.len()))?;
            let (preferred, scans) = (Preferred::new(), ScanEvents::default());
            let stalls = StallEvents::default();
            let fallbacks = FallbackRow::new(fallbacks);
            let private = AtomicBool::new(false);
            let place = |of: &&Zone<'m, P>| (of.node(), of.kind());
            let zone = |kind| zones.binary_search_by_key(&(node, kind), place).ok();
            let zones = ZoneKind::ALL.map(|kind| zone(kind).map(|at| ZoneIndex(at as u16)));
            Ok(NodeState { id, private, preferred, zones, zonelists, scans, stalls, fallbacks })
        })?;
        let nobodys = carve_pagesets(hub, CpuId::NONE, NodeIndex(0), &zones[..1], |_, index| {
            P::Storage::ring_entries(list_order(index), 0) as usize
        })?;
        let (nobody, nobodys) = (nobodys.owner, &nobodys.pagesets[0]);
        let slots = plan.home_slots();
        let all: &'m [_] = hub.slice(ZoneKind::COUNT * slots, |_, _| Ok(Slot::new(nobodys)))?;
        let homes = core::array::from_fn(|kind| SlotRing::new(&all[kind * slots..][..slots]));
        let cpus = hub.slice(plan.cpu_ids, |index, hub| {
            let cpu = CpuId(index as u32);
            let Some(node) = plan.topology.node_of_cpu(cpu) else {
                return Ok(Cpu { owner: nobody, pagesets: &[], is_on: AtomicBool::new(false) });
            };
            let arena = self.arena(plan.home(node), hub);
            let entries = |zone: &Zone<'m, P>, index| {
                plan.ring_entries::<P::Storage>(node, zone.node(), zone.kind(), index)
            };
            carve_pagesets(arena, cpu, node, zones, entries)
        })?;
        Ok(Parts {
            map,
            online,
            ledgers,
            zones,
            wait_tables,
            nodes,
            homes,
            nobodys,
            cpus,
            loads: hub.slice(plan.topology.len(), |_, _| Ok(0))?,
            order: hub.slice(plan.topology.len(), |_, _| Ok(NodeIndex(0)))?,
        })
    }

    /// The wait table of each zone's pages, by zone index.
    fn carve_wait_tables<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        zones: &'m [&'m Zone<'m, P>],
        rule: WaitTables,
    ) -> Result<&'m [&'m WaitTable<'m, P>], OutOfMetadata> {
        let own: &mut [Option<&'m WaitTable<'m, P>>] = hub.slice(zones.len(), |_, _| Ok(None))?;
        let tables = hub.slice(zones.len(), |index, hub| {
            // The first zone of those that share a table has it.
            let first = match rule {
                WaitTables::Global => 0,
                WaitTables::PerZone => index,
                WaitTables::PerNode => {
                    zones.partition_point(|zone| zone.node() < zones[index].node())
                }
            };
            if let Some(table) = own[first] {
                return Ok(table);
            }
            let table = carve_wait_table(self.arena(zones[first].node(), hub))?;
            own[first] = Some(table);
            Ok(table)
        })?;
        Ok(tables)
    }

    /// The buffer of a node that has memory.
    pub(crate) fn arena<'a>(
        &'a mut self,
        node: NodeIndex,
        hub: &'a mut Arena<'m>,
    ) -> &'a mut Arena<'m> {
        if node == self.hub { hub } else { self.arenas[node.0 as usize].as_mut().expect(COUNTED) }
    }
}

fn carve_zonelists<'m>(
    arena: &mut Arena<'m>,
    zones: usize,
) -> Result<[Zonelist<'m>; REQUEST_KINDS], OutOfMetadata> {
    let mut carve = || {
        // A list and the one that comes after it.
        let entries = arena.slice(2 * zones, |_, _| Ok(AtomicU16::new(NO_ZONE)))?;
        let lines = arena.slice(ZonelistCache::lines(zones), |_, _| Ok(HintLine::default()))?;
        Ok(Zonelist::new(entries, ZonelistCache::new(lines)))
    };
    Ok([carve()?, carve()?, carve()?, carve()?])
}

fn carve_wait_table<'m, P: Platform>(
    arena: &mut Arena<'m>,
) -> Result<&'m WaitTable<'m, P>, OutOfMetadata> {
    let buckets: &'m [Bucket<P>] = arena.slice(BUCKETS, |_, _| Ok(Bucket::new()))?;
    let table = arena.slice(1, |_, _| Ok(WaitTable::new(buckets)))?;
    Ok(&table[0])
}

/// The pagesets of a CPU for `zones`; `ring_entries` says how many entries list number so and so has for a zone.
fn carve_pagesets<'m, P: Platform>(
    arena: &mut Arena<'m>,
    id: CpuId,
    of: NodeIndex,
    zones: &'m [&'m Zone<'m, P>],
    ring_entries: impl Fn(&Zone<'m, P>, usize) -> usize,
) -> Result<Cpu<'m, P>, OutOfMetadata> {
    let owner = arena
        .slice(1, |_, _| Ok(Owner { cpu: id, node: of, exclusion: P::Storage::per_cpu(id) }))?;
    let owner: &'m Owner<P> = &owner[0];
    let pagesets = arena.slice(zones.len(), |index, arena| {
        let zone = zones[index];
        let mut out_of_metadata = false;
        let lists: [List<'m, P>; LISTS] = core::array::from_fn(|index| {
            let ring = arena.untouched::<AtomicU32>(ring_entries(zone, index)).unwrap_or_else(
                |OutOfMetadata| {
                    out_of_metadata = true;
                    &[]
                },
            );
            P::Storage::list(id, ring)
        });
        if out_of_metadata { Err(OutOfMetadata) } else { Ok(Pageset::new(zone, owner, lists)) }
    })?;
    Ok(Cpu { owner, pagesets, is_on: AtomicBool::new(true) })
}
