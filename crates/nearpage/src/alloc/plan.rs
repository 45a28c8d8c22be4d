//! What of an allocator lies where, and how many bytes it takes.

use super::allocator::{Cpu, NodeLists, NodeState, REQUEST_KINDS};
use super::build_error::{BuildError, CPU_ID_MAX, SECTIONS_MAX};
use super::config::Config;
use super::fallbacks::FallbackRow;
use super::online_map::OnlineMap;
use super::state::State;
use crate::arena::{Arena, Need};
use crate::frame::section::PAGEBLOCKS;
use crate::frame::{MapWords, Section, SectionLists, SectionRun, ZONES_MAX};
use crate::host::Platform;
use crate::limit::Ledger;
use crate::model::PageblockOwners;
use crate::pcp::pageset::{Owner, Pageset};
use crate::pcp::pieces::Pieces;
use crate::pcp::{ALL_LISTS, COLD, Storage, list_order};
use crate::places::bitmap::Bitmap;
use crate::places::quota::Quota;
use crate::places::size::{COLD_MAX, list_max};
use crate::places::zone_maps::KINDS;
use crate::rule_set::RuleParts;
use crate::slot::Slot;
use crate::sync::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use crate::topology::Topology;
use crate::units::{
    NodeIndex, Order, PAGEBLOCK_ORDER, Pfn, PfnRange, SECTION_FRAMES, SECTION_SHIFT, ZoneKind,
};
use crate::waiters::{WaiterTable, Waiters};
use crate::zone::Zone;
use crate::zonelist::cache::{HintLine, ZonelistCache};

/// Bytes of rings per frame of a zone for the CPUs of its own node, and for all others. With the
/// frame's 12 bytes and small change it stays below 19, unless nodes are small or CPUs many.
const RING_BYTES_NEAR: u64 = 4;
const RING_BYTES_FAR: u64 = 2;
/// Bytes that the 14 rings of a pageset take for each page that its largest ring can hold:
/// three lists of order 0, as many with half, a quarter and an eighth of the entries, of 4 bytes each;
/// huge pages need next to nothing.
const RING_BYTES_PER_PAGE: u64 = 23;
/// Most pages that a ring of a CPU of another node is made for.
const FAR_HIGH_MAX: u64 = 512;

/// What lies where.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'m> {
    /// The machine.
    pub topology: Topology<'m>,
    /// The node whose buffer holds the tables.
    pub hub: NodeIndex,
    /// From the first to the last section.
    pub first_section: u64,
    /// How many.
    pub sections: u64,
    pub(super) zones: usize,
    /// Zonelists that each node has by the instances that they begin with.
    pub(super) rotations: usize,
    pub(crate) owners: PageblockOwners,
    /// Whether there is room for notes.
    notes: bool,
    /// CPU ids up to the largest.
    pub cpu_ids: usize,
    /// CPUs of all nodes.
    pub cpus: u64,
}

impl<'m> Plan<'m> {
    /// That of a machine.
    ///
    /// # Errors
    /// [`BuildError`] for a machine that no allocator can be made for.
    pub fn new(topology: &Topology<'m>) -> Result<Self, BuildError> {
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
        for (node, _, span) in zones(topology) {
            // Frame numbers count from the beginning of the first section.
            if span.pages().0 + span.start.section_offset() as u64 >= u32::MAX as u64 {
                return Err(BuildError::ZoneTooLarge { node: topology.node(node).id, span });
            }
        }
        let zones = zones(topology).count();
        if zones > ZONES_MAX {
            return Err(BuildError::TooManyZones { zones });
        }
        Ok(Self {
            topology: *topology,
            hub,
            first_section: start.section(),
            sections,
            zones,
            rotations: topology.most_instances(),
            owners: PageblockOwners::Nobody,
            notes: true,
            cpu_ids: last_cpu.map_or(0, |cpu| cpu.0 as usize + 1),
            cpus: cpus().count() as u64,
        })
    }

    /// The same for what an allocator is made with.
    pub(super) fn with(self, config: &Config) -> Self {
        Self { owners: config.model.owners, notes: config.notes, ..self }
    }

    /// Pagesets of a CPU that have pieces in place of lists.
    pub(super) fn pieces<P: Platform>(&self) -> usize {
        let has_owners = self.owners == PageblockOwners::Cpus && P::Storage::EXACT;
        let has_owners = has_owners && P::Rules::have(self.owners);
        if has_owners { self.zones } else { 0 }
    }

    /// Pagesets of a CPU that have quotas.
    pub(super) fn quotas<P: Platform>(&self) -> usize {
        if P::Rules::have_maps(self.owners) { self.zones } else { 0 }
    }

    /// Whether frames have links: for zones with free lists, for pagesets without rings, and for notes.
    pub(super) fn links<P: Platform>(&self) -> bool {
        self.quotas::<P>() == 0 || P::Storage::ring_entries(Order(0), 1) == 0 || self.notes
    }

    /// Pageblocks from the first section of a zone with this span on.
    pub(super) fn pageblocks(span: PfnRange) -> u32 {
        let base = span.start.section() << SECTION_SHIFT;
        (span.end.0 - base).div_ceil(PAGEBLOCK_ORDER.pages().0) as u32
    }

    /// Places for pagesets that the fast path looks at, of one kind of zone.
    pub(super) fn home_slots(&self) -> usize {
        self.cpu_ids.next_power_of_two()
    }

    /// The node whose buffer holds what belongs to `node`: itself, or the nearest one with memory.
    pub fn home(&self, node: NodeIndex) -> NodeIndex {
        if !self.topology.node(node).memory.is_empty() {
            return node;
        }
        let with_memory =
            self.topology.indexes().filter(|&other| !self.topology.node(other).memory.is_empty());
        with_memory.min_by_key(|&other| self.topology.distance(node, other)).unwrap_or(self.hub)
    }

    /// The node that a section's metadata lies with: the lowest of those that have memory in it.
    pub fn owner(&self, section: u64) -> Option<NodeIndex> {
        let frames = PfnRange::new(section << SECTION_SHIFT, (section + 1) << SECTION_SHIFT);
        self.topology.indexes().find(|&node| {
            let memory = self.topology.node(node).memory;
            let at = memory.partition_point(|range| range.end <= frames.start);
            memory.get(at).is_some_and(|range| !range.intersection(frames).is_empty())
        })
    }

    /// The sections whose metadata lies with `node`.
    pub fn owned_sections(&self, node: NodeIndex) -> impl Iterator<Item = u64> + use<'_, 'm> {
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
    pub(super) fn all_runs(&self) -> impl Iterator<Item = (NodeIndex, u64, usize)> + use<'_, 'm> {
        let of = |node| self.runs(node).map(move |(first, count)| (node, first, count));
        self.topology.indexes().flat_map(of)
    }

    /// Entries of list `index` of the pageset that a CPU of node `of` has for the zone with this span on `node`.
    pub(super) fn ring_entries<S: Storage>(
        &self,
        of: NodeIndex,
        node: NodeIndex,
        span: PfnRange,
        index: usize,
    ) -> usize {
        let high_max = self.high_max(of, node, span);
        let order = list_order(index);
        // With quotas, lists are short.
        let high_max = match (self.owners, index) {
            (PageblockOwners::Quotas, COLD) => high_max.min(COLD_MAX.into()),
            (_, COLD) => 0,
            (PageblockOwners::Quotas, _) => u64::from(list_max(order)) << order.0,
            _ => high_max,
        };
        S::ring_entries(order, high_max as u32) as usize
    }

    /// The most pages that a pageset may keep for which there is room in its largest ring.
    fn high_max(&self, of: NodeIndex, node: NodeIndex, span: PfnRange) -> u64 {
        let frames: u64 = self.topology.ranges_in(node, span).map(|range| range.pages().0).sum();
        let near = self.topology.node(node).cpus.len() as u64;
        let (bytes, cpus) = if of == node {
            (frames * RING_BYTES_NEAR, near)
        } else {
            let most = self.cpus * FAR_HIGH_MAX * RING_BYTES_PER_PAGE;
            ((frames * RING_BYTES_FAR).min(most), self.cpus - near)
        };
        (bytes / RING_BYTES_PER_PAGE / cpus.max(1)).min(u32::MAX as u64)
    }

    pub(super) fn need<P: Platform>(&self, node: NodeIndex) -> Need {
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
            need.add::<[MapWords; PAGEBLOCKS]>(count);
            need.add::<SectionLists>(if self.links::<P>() { count } else { 0 });
        }
        zones(&self.topology).filter(|zone| zone.0 == node).for_each(|(_, _, span)| {
            need.add::<Zone<'_, P>>(1);
            for _ in 0..if self.quotas::<P>() > 0 { KINDS } else { 0 } {
                let (words, hints) = Bitmap::<AtomicU64>::words(Self::pageblocks(span));
                need.add::<AtomicU64>(words);
                need.add::<AtomicU64>(hints);
            }
            // For the rule that needs most: a table a zone.
            need.add::<WaiterTable<'_, P::Waiters>>(1);
            need.add::<<P::Waiters as Waiters>::Bucket>(P::Waiters::BUCKETS);
        });
        for homed in self.topology.indexes().filter(|&homed| self.home(homed) == node) {
            for _ in 0..REQUEST_KINDS * self.rotations {
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
        need.add::<Option<&WaiterTable<'_, P::Waiters>>>(self.zones);
        need.add::<&WaiterTable<'_, P::Waiters>>(self.zones);
        need.add::<NodeState<'_>>(nodes);
        need.add::<NodeLists<'_>>(nodes * self.rotations);
        need.add::<Slot<'_, Pageset<'_, P>>>(ZoneKind::COUNT * self.home_slots());
        need.add::<Cpu<'_, P>>(self.cpu_ids);
        need.add::<u32>(nodes);
        need.add::<NodeIndex>(nodes);
        need.add::<Owner<P>>(1);
        need.add::<Quota>(self.quotas::<P>().min(1));
        need.add::<Pageset<'_, P>>(1);
        for index in 0..ALL_LISTS {
            need.add::<AtomicU32>(P::Storage::ring_entries(list_order(index), 0) as usize);
        }
        need.add::<P::Lock<State<'_>>>(1);
        need.add::<AtomicBool>(1);
    }

    fn add_cpu<P: Platform>(&self, need: &mut Need, of: NodeIndex) {
        need.add::<Owner<P>>(1);
        need.add::<Pageset<'_, P>>(self.zones);
        need.add::<Pieces>(self.pieces::<P>());
        need.add::<Quota>(self.quotas::<P>());
        for (node, _, span) in zones(&self.topology) {
            let entries = |index| self.ring_entries::<P::Storage>(of, node, span, index);
            (0..ALL_LISTS).for_each(|index| need.add::<AtomicU32>(entries(index)));
        }
    }
}

/// All zones of a topology with their spans, by node, kind and address: the order of zone indexes.
pub(super) fn zones<'m>(
    topology: &Topology<'m>,
) -> impl Iterator<Item = (NodeIndex, ZoneKind, PfnRange)> + use<'m> {
    let topology = *topology;
    topology.indexes().flat_map(move |node| {
        let of_kind =
            move |kind| topology.zone_spans(node, kind).map(move |span| (node, kind, span));
        ZoneKind::ALL.into_iter().flat_map(of_kind)
    })
}
