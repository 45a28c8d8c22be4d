//! The parts of an allocator, carved out of the caller's buffers.

use super::allocator::{Cpu, Homes, NO_ZONE, NodeLists, NodeState, Preferred, REQUEST_KINDS};
use super::build_error::BuildError;
use super::config::Config;
use super::fallbacks::FallbackRow;
use super::hints::ScanEvents;
use super::online_map::OnlineMap;
use super::plan::{Plan, zones};
use super::stalls::StallEvents;
use crate::arena::{Arena, OutOfMetadata};
use crate::frame::{SectionMap, SectionRun, ZoneFrames};
use crate::host::Platform;
use crate::limit::Ledger;
use crate::model::Model;
use crate::pcp::pageset::{List, Owner, Pageset};
use crate::pcp::pieces::Pieces;
use crate::pcp::{ALL_LISTS, Storage, list_order};
use crate::places::bitmap::Bitmap;
use crate::places::quota::Quota;
use crate::places::zone_maps::{KINDS, ZoneMaps};
use crate::slot::{Slot, SlotRing};
use crate::sync::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};
use crate::units::{CpuId, NodeIndex, PfnRange, ZoneIndex, ZoneKind};
use crate::waiters::{WaitTables, WaiterTable, Waiters};
use crate::zone::{Ledgers, WorkCounters, Zone};
use crate::zonelist::cache::{HintLine, ZonelistCache};
use crate::zonelist::list::Zonelist;

/// Carving fails only if `Plan::need` forgot something.
pub(super) const COUNTED: &str = "the plan counts all that is carved";

/// The buffers while they are being carved.
#[derive(Debug)]
pub struct Carver<'a, 'm> {
    /// What is carved.
    pub plan: Plan<'m>,
    hub: NodeIndex,
    /// Buffers of the nodes other than the hub.
    arenas: &'a mut [Option<Arena<'m>>],
}

/// All that was carved.
pub(super) struct Parts<'m, P: Platform> {
    pub(super) map: SectionMap<'m>,
    pub(super) online: OnlineMap<'m>,
    pub(super) ledgers: &'m [Ledger],
    pub(super) zones: &'m [&'m Zone<'m, P>],
    pub(super) wait_tables: &'m [&'m WaiterTable<'m, P::Waiters>],
    pub(super) nodes: &'m [NodeState<'m>],
    pub(super) lists: &'m [NodeLists<'m>],
    pub(super) homes: [Homes<'m, P>; ZoneKind::COUNT],
    pub(super) nobodys: &'m Pageset<'m, P>,
    pub(super) cpus: &'m [Cpu<'m, P>],
    pub(super) loads: &'m mut [u32],
    pub(super) order: &'m mut [NodeIndex],
}

impl<'m> Carver<'_, 'm> {
    /// Takes the buffers of all nodes with memory; the second answer is that of the hub, which has room for the
    /// table of the others.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn open(
        plan: Plan<'m>,
        need: &dyn Fn(NodeIndex) -> usize,
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

    /// Carves all parts. The plan counted them in the same order.
    pub(super) fn carve<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        config: &Config,
    ) -> Result<Parts<'m, P>, OutOfMetadata> {
        let plan = self.plan;
        let map = self.carve_sections::<P>(hub)?;
        let online = carve_online_map(hub, plan.first_section, plan.sections)?;
        // The last one is that of all nodes.
        let ledgers: &'m [Ledger] =
            hub.slice(plan.topology.len() + 1, |_, _| Ok(Ledger::default()))?;
        let zones = self.carve_zones(hub, map, ledgers, &config.model)?;
        let wait_tables = self.carve_wait_tables(hub, zones, config.model.page_lock.tables)?;
        let nodes = self.carve_nodes(hub, zones)?;
        let lists = self.carve_lists(hub)?;
        // Whoever comes to it asks for any list.
        let nothing = hub.slice(plan.quotas::<P>().min(1), |_, _| Ok(Quota::new(0, 1, 0)))?;
        let none = (&[][..], &*nothing);
        let nobody =
            carve_pagesets(hub, CpuId::NONE, NodeIndex(0), &zones[..1], none, |_, index| {
                P::Storage::ring_entries(list_order(index), 0) as usize
            })?;
        let (owner, nobodys) = (nobody.owner, &nobody.pagesets[0]);
        let slots = plan.home_slots();
        let all: &'m [_] = hub.slice(ZoneKind::COUNT * slots, |_, _| Ok(Slot::new(nobodys)))?;
        let homes = core::array::from_fn(|kind| SlotRing::new(&all[kind * slots..][..slots]));
        let cpus = self.carve_cpus(hub, zones, owner)?;
        let loads = hub.slice(plan.topology.len(), |_, _| Ok(0))?;
        let order = hub.slice(plan.topology.len(), |_, _| Ok(NodeIndex(0)))?;
        Ok(Parts {
            map,
            online,
            ledgers,
            zones,
            wait_tables,
            nodes,
            lists,
            homes,
            nobodys,
            cpus,
            loads,
            order,
        })
    }

    /// The metadata of all frames, each run of sections in its node's buffer, and the table of sections.
    fn carve_sections<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
    ) -> Result<SectionMap<'m>, OutOfMetadata> {
        let plan = self.plan;
        let mut keys = plan.all_runs();
        let runs = hub.slice(plan.all_runs().count(), |_, hub| {
            let (node, first, count) = keys.next().ok_or(OutOfMetadata)?;
            let arena = self.arena(node, hub);
            let (words, pageblocks) = (arena.untouched(count)?, arena.untouched(count)?);
            let maps = arena.untouched(count)?;
            let lists = arena.untouched(if plan.links::<P>() { count } else { 0 })?;
            Ok(SectionRun { first, words, pageblocks, maps, lists })
        })?;
        let table = hub.slice(plan.sections as usize, |_, _| Ok(None))?;
        runs.iter().for_each(|run| run.enter(plan.first_section, table));
        Ok(SectionMap::new(plan.first_section, runs, table))
    }

    /// The zones, by zone index, each in its node's buffer.
    fn carve_zones<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        map: SectionMap<'m>,
        ledgers: &'m [Ledger],
        model: &Model,
    ) -> Result<&'m [&'m Zone<'m, P>], OutOfMetadata> {
        let plan = self.plan;
        let mut keys = zones(&plan.topology);
        let zones = hub.slice(plan.zones, |index, hub| {
            let (node, kind, span) = keys.next().ok_or(OutOfMetadata)?;
            let frames = ZoneFrames::new(map, span.start, ZoneIndex(index as u16));
            let of_zone =
                Ledgers { node: &ledgers[node.0 as usize], all: &ledgers[plan.topology.len()] };
            let zone = self.arena(node, hub).slice(1, |_, arena| {
                let maps =
                    if plan.quotas::<P>() > 0 { Some(carve_maps(arena, span)?) } else { None };
                Ok(Zone::<P>::new(kind, node, frames, span, of_zone, model.fallback, maps))
            })?;
            Ok(&zone[0])
        })?;
        Ok(zones)
    }

    /// The nodes, by node index.
    fn carve_nodes<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        zones: &'m [&'m Zone<'m, P>],
    ) -> Result<&'m [NodeState<'m>], OutOfMetadata> {
        let plan = self.plan;
        let nodes = hub.slice(plan.topology.len(), |index, hub| {
            let node = NodeIndex(index as u16);
            let arena = self.arena(plan.home(node), hub);
            let id = plan.topology.node(node).id;
            let fallbacks = arena.untouched(FallbackRow::cells(plan.topology.len()))?;
            let (scans, stalls) = (ScanEvents::default(), StallEvents::default());
            let fallbacks = FallbackRow::new(fallbacks);
            let private = AtomicBool::new(false);
            let zones = ZoneKind::ALL.map(|kind| {
                let place = |zone: &&Zone<'m, P>| (zone.node(), zone.kind()).cmp(&(node, kind));
                let first = zones.partition_point(|zone| place(zone).is_lt());
                let end = zones.partition_point(|zone| place(zone).is_le());
                first as u16..end as u16
            });
            Ok(NodeState { id, private, zones, scans, stalls, fallbacks })
        })?;
        Ok(nodes)
    }

    /// The zonelists, by rotation and then by node index, the entries of each in its node's buffer.
    fn carve_lists(&mut self, hub: &mut Arena<'m>) -> Result<&'m [NodeLists<'m>], OutOfMetadata> {
        let (plan, nodes) = (self.plan, self.plan.topology.len());
        let lists = hub.slice(plan.rotations * nodes, |index, hub| {
            let arena = self.arena(plan.home(NodeIndex((index % nodes) as u16)), hub);
            let zonelists = carve_zonelists(arena, plan.zones)?;
            Ok(NodeLists { preferred: Preferred::new(), zonelists })
        })?;
        Ok(lists)
    }

    /// The CPUs, by CPU id, and the pagesets of each. Ids that are no CPU are owned by `nobody`.
    fn carve_cpus<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        zones: &'m [&'m Zone<'m, P>],
        nobody: &'m Owner<P>,
    ) -> Result<&'m [Cpu<'m, P>], OutOfMetadata> {
        let plan = self.plan;
        let cpus = hub.slice(plan.cpu_ids, |index, hub| {
            let cpu = CpuId(index as u32);
            let Some(node) = plan.topology.node_of_cpu(cpu) else {
                let is_on = AtomicBool::new(false);
                return Ok(Cpu { owner: nobody, pagesets: &[], lists: 0, is_on });
            };
            let arena = self.arena(plan.home(node), hub);
            let entries = |zone: &Zone<'m, P>, index| {
                plan.ring_entries::<P::Storage>(node, zone.node(), zone.span(), index)
            };
            let lists = (index % plan.rotations * plan.topology.len()) as u32;
            let pieces = arena.slice(plan.pieces::<P>(), |_, _| Ok(Pieces::new()))?;
            let near = plan.topology.node(node).cpus;
            let quotas = arena.slice(plan.quotas::<P>(), |index, _| {
                let zone = zones[index];
                // The CPUs of a node begin in different parts of its zones.
                let place = near.iter().position(|&other| other == cpu);
                let (at, cpus) = match place.filter(|_| zone.node() == node) {
                    Some(place) => (place, near.len()),
                    None => (cpu.0 as usize, plan.cpu_ids),
                };
                Ok(Quota::new(at as u64, cpus as u64, Plan::pageblocks(zone.span())))
            })?;
            let parts = (&*pieces, &*quotas);
            Ok(Cpu { lists, ..carve_pagesets(arena, cpu, node, zones, parts, entries)? })
        })?;
        Ok(cpus)
    }

    /// The wait table of each zone's pages, by zone index.
    fn carve_wait_tables<P: Platform>(
        &mut self,
        hub: &mut Arena<'m>,
        zones: &'m [&'m Zone<'m, P>],
        rule: WaitTables,
    ) -> Result<&'m [&'m WaiterTable<'m, P::Waiters>], OutOfMetadata> {
        let own: &mut [Option<&'m WaiterTable<'m, P::Waiters>>] =
            hub.slice(zones.len(), |_, _| Ok(None))?;
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
            let table = carve_wait_table::<P>(self.arena(zones[first].node(), hub))?;
            own[first] = Some(table);
            Ok(table)
        })?;
        Ok(tables)
    }

    /// The buffer of a node that has memory.
    pub fn arena<'a>(&'a mut self, node: NodeIndex, hub: &'a mut Arena<'m>) -> &'a mut Arena<'m> {
        if node == self.hub { hub } else { self.arenas[node.0 as usize].as_mut().expect(COUNTED) }
    }
}

/// What says where in a zone pages are free.
fn carve_maps<'m>(arena: &mut Arena<'m>, span: PfnRange) -> Result<ZoneMaps<'m>, OutOfMetadata> {
    let pageblocks = Plan::pageblocks(span);
    let (words, hints) = Bitmap::<AtomicU64>::words(pageblocks);
    let mut bits = [(&[][..], &[][..]); KINDS];
    for bits in &mut bits {
        *bits = (arena.untouched(words)?, arena.untouched(hints)?);
    }
    Ok(ZoneMaps::new(pageblocks, bits))
}

fn carve_online_map<'m>(
    hub: &mut Arena<'m>,
    first_section: u64,
    sections: u64,
) -> Result<OnlineMap<'m>, OutOfMetadata> {
    let pageblocks = OnlineMap::pageblocks(sections);
    let states = hub.untouched(pageblocks)?;
    let bits = hub.untouched(pageblocks * OnlineMap::WORDS_PER_PAGEBLOCK)?;
    Ok(OnlineMap::new(first_section, states, bits))
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
) -> Result<&'m WaiterTable<'m, P::Waiters>, OutOfMetadata> {
    let buckets: &'m [_] = arena.slice(P::Waiters::BUCKETS, |_, _| Ok(P::Waiters::bucket()))?;
    let table = arena.slice(1, |_, _| Ok(WaiterTable::new(buckets)))?;
    Ok(&table[0])
}

/// The pagesets of a CPU for `zones`; `ring_entries` says how many entries list number so and so has for a zone.
fn carve_pagesets<'m, P: Platform>(
    arena: &mut Arena<'m>,
    id: CpuId,
    of: NodeIndex,
    zones: &'m [&'m Zone<'m, P>],
    (pieces, quotas): (&'m [Pieces], &'m [Quota]),
    ring_entries: impl Fn(&Zone<'m, P>, usize) -> usize,
) -> Result<Cpu<'m, P>, OutOfMetadata> {
    let owner = arena.slice(1, |_, _| {
        let exclusion = P::Storage::per_cpu(id);
        Ok(Owner { cpu: id, node: of, exclusion, taken: WorkCounters::default() })
    })?;
    let owner: &'m Owner<P> = &owner[0];
    let pagesets = arena.slice(zones.len(), |index, arena| {
        let zone = zones[index];
        let mut out_of_metadata = false;
        let lists: [List<'m, P>; ALL_LISTS] = core::array::from_fn(|index| {
            let ring = arena.untouched::<AtomicU32>(ring_entries(zone, index)).unwrap_or_else(
                |OutOfMetadata| {
                    out_of_metadata = true;
                    &[]
                },
            );
            P::Storage::list(id, ring)
        });
        if out_of_metadata {
            return Err(OutOfMetadata);
        }
        Ok(Pageset::new(zone, owner, lists, pieces.get(index), quotas.get(index)))
    })?;
    Ok(Cpu { owner, pagesets, lists: 0, is_on: AtomicBool::new(true) })
}
