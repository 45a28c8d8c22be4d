//! The allocator's parts, and the ways to them.

use crate::frame::{Frame, SectionMap};
use crate::host::Platform;
use crate::limit::Ledger;
use crate::model::Model;
use crate::pcp::Storage;
use crate::pcp::pageset::{Owner, Pageset};
use crate::slot::SlotRing;
use core::ops::Range;

use crate::sync::{AtomicBool, AtomicU16, Ordering};
use crate::topology::Topology;
use crate::units::{CpuId, NodeId, NodeIndex, Pfn, ZoneIndex, ZoneKind};
use crate::waiters::WaiterTable;
use crate::zone::Zone;
use crate::zonelist::list::Zonelist;

use super::fallbacks::FallbackRow;
use super::hints::{ScanCounts, ScanEvents};
use super::online_map::OnlineMap;
use super::stalls::{StallCounts, StallEvents};
use super::state::State;

/// Who may use the memory of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeAccess {
    /// All requests.
    General,
    /// Only requests that name the node: by a policy whose set has it, or with `__GFP_THISNODE`. What the node's
    /// own CPUs ask for without a name comes from other nodes, and is counted under
    /// [`Reason::PrivateNode`](crate::Reason::PrivateNode).
    Private,
}

/// "No zone" in a table of zone indexes.
pub(super) const NO_ZONE: u16 = u16::MAX;

/// The zones that a node's requests prefer, by the highest kind that a request may use: the first entry of
/// the node's zonelist for it.
#[derive(Debug)]
pub(super) struct Preferred([AtomicU16; ZoneKind::COUNT]);

impl Preferred {
    pub(super) fn new() -> Self {
        Self([const { AtomicU16::new(NO_ZONE) }; ZoneKind::COUNT])
    }

    #[inline(always)]
    pub(super) fn zone(&self, kind: ZoneKind) -> ZoneIndex {
        ZoneIndex(self.0[kind.index()].load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, kind: ZoneKind, zone: Option<ZoneIndex>) {
        self.0[kind.index()].store(zone.map_or(NO_ZONE, |zone| zone.0), Ordering::Relaxed);
    }
}

/// Zone kinds that may be the highest of a request: all but Device.
pub(super) const REQUEST_KINDS: usize = ZoneKind::COUNT - 1;

/// The zonelists of a node for CPUs that begin with the same instances of its zones: a CPU's number, modulo the
/// rotations, says with which ([`ZoneInstances`](crate::ZoneInstances)). Where no zone is divided, a node has one.
pub(super) struct NodeLists<'m> {
    pub(super) preferred: Preferred,
    /// By the highest kind that a request may use.
    pub(super) zonelists: [Zonelist<'m>; REQUEST_KINDS],
}

/// A node.
pub(super) struct NodeState<'m> {
    pub(super) id: NodeId,
    pub(super) private: AtomicBool,
    /// Indexes of its own zones, by kind.
    pub(super) zones: [Range<u16>; ZoneKind::COUNT],
    pub(super) scans: ScanEvents,
    pub(super) stalls: StallEvents,
    pub(super) fallbacks: FallbackRow<'m>,
}

/// A CPU: its node and its pagesets, one a zone.
///
/// In a table by id there are ids that are no CPU: they are always off, have no pagesets, and are owned by
/// [`CpuId::NONE`]. So one load tells the fast path that it may use a CPU's pagesets.
pub(crate) struct Cpu<'m, P: Platform> {
    pub(crate) owner: &'m Owner<P>,
    pub(crate) pagesets: &'m [Pageset<'m, P>],
    /// Where the zonelists of its requests begin in the table of all.
    pub(super) lists: u32,
    pub(super) is_on: AtomicBool,
}

impl<P: Platform> Cpu<'_, P> {
    /// Whether there is such a CPU in the topology, on or off.
    pub(super) fn is_known(&self) -> bool {
        self.owner.cpu != CpuId::NONE
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

/// By CPU id: its pageset of the zone that its node's requests prefer. In place of one that it has not: the pageset
/// of [`CpuId::NONE`], so that nobody need ask whether there is one.
pub(super) type Homes<'m, P> = SlotRing<'m, Pageset<'m, P>>;

/// The NUMA page allocator of one machine.
///
/// No field changes: everything that changes is behind a reference. So a compiler that sees a loop of allocations may
/// load the tables' addresses once.
pub struct PageAllocator<'m, P: Platform> {
    pub(crate) platform: P,
    pub(crate) model: Model,
    pub(crate) map: SectionMap<'m>,
    pub(super) online: OnlineMap<'m>,
    /// By node index, and then that of all nodes.
    pub(super) ledgers: &'m [Ledger],
    /// By the highest kind of zone that a request may use. All that the fast path asks of its CPU: with one look-up
    /// more a pair took half as long again.
    pub(super) homes: [Homes<'m, P>; ZoneKind::COUNT],
    /// The pageset of [`CpuId::NONE`].
    pub(super) nobodys: &'m Pageset<'m, P>,
    /// By CPU id.
    pub(crate) cpus: &'m [Cpu<'m, P>],
    /// By zone index.
    pub(crate) zones: &'m [&'m Zone<'m, P>],
    /// By node index.
    pub(super) nodes: &'m [NodeState<'m>],
    /// By rotation, and then by node index.
    pub(super) lists: &'m [NodeLists<'m>],
    pub(super) topology: Topology<'m>,
    /// [`node_reclaim_mode`](crate::watermark::Settings::node_reclaim_mode) is set.
    pub(super) node_reclaim: &'m AtomicBool,
    pub(super) state: &'m P::Lock<State<'m>>,
    /// By zone index; several zones may share one.
    pub(super) wait_tables: &'m [&'m WaiterTable<'m, P::Waiters>],
    pub(super) page_shift: u32,
    /// Whether there is room for notes.
    pub(super) notes: bool,
}

impl<P: Platform> core::fmt::Debug for PageAllocator<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PageAllocator")
            .field("model", &self.model.name)
            .field("nodes", &self.nodes.len())
            .field("zones", &self.zones.len())
            .field("page_shift", &self.page_shift)
            .finish_non_exhaustive()
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// The host.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The rules in force.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The machine.
    pub fn topology(&self) -> &Topology<'m> {
        &self.topology
    }

    /// The populated zones, by zone index.
    pub fn zones(&self) -> &'m [&'m Zone<'m, P>] {
        self.zones
    }

    /// The zones that this CPU's requests near a node may use, in the order of fallback (facts 3.3).
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn fallback_zones(
        &self,
        node: NodeIndex,
    ) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'_, 'm, P> {
        // The list of requests for any kind of memory.
        let lists = &self.lists[self.own_lists() as usize + node.0 as usize];
        let list = lists.zonelists[REQUEST_KINDS - 1].read();
        (0..list.len()).map_while(move |position| Some(self.zones[list.zone(position)?.0 as usize]))
    }

    /// The pagesets of a CPU by zone index, or `None` if the topology has no such CPU.
    pub fn pagesets(&self, cpu: CpuId) -> Option<&'m [Pageset<'m, P>]> {
        Some(self.cpu(cpu)?.pagesets)
    }

    /// The CPUs of the topology, on or off, ascending: id, node, and pagesets by zone index.
    pub fn cpus(
        &self,
    ) -> impl Iterator<Item = (CpuId, NodeIndex, &'m [Pageset<'m, P>])> + use<'m, P> {
        self.known_cpus().map(|cpu| (cpu.owner.cpu, cpu.owner.node, cpu.pagesets))
    }

    pub(super) fn known_cpus(&self) -> impl Iterator<Item = &'m Cpu<'m, P>> + use<'m, P> {
        self.cpus.iter().filter(|cpu| cpu.is_known())
    }

    /// What scans of the zonelists of a node did.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn scan_counts(&self, node: NodeIndex) -> ScanCounts {
        self.nodes[node.0 as usize].scans.counts()
    }

    /// What requests that began at a node did when they found nothing.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn stall_counts(&self, node: NodeIndex) -> StallCounts {
        self.nodes[node.0 as usize].stalls.counts()
    }

    /// The nearest node of `node` that has memory which is not only movable: the node itself if it has, `None` if
    /// no node has any. `numa_mem_id()` of its CPUs.
    pub fn memory_node(&self, node: NodeIndex) -> Option<NodeIndex> {
        let zone = self.lists[node.0 as usize].preferred.zone(ZoneKind::Normal);
        Some(self.zones.get(zone.0 as usize)?.node())
    }

    /// The frame of `pfn`, or `None` where the machine has no memory.
    #[inline(always)]
    pub(super) fn frame(&self, pfn: Pfn) -> Option<Frame<'m>> {
        self.map.get(pfn)
    }

    /// A CPU of the topology, on or off.
    pub(crate) fn cpu(&self, id: CpuId) -> Option<&'m Cpu<'m, P>> {
        self.cpus.get(id.0 as usize).filter(|cpu| cpu.is_known())
    }

    /// This CPU's pageset for the zone that its requests for `kind` prefer: what is found may be another CPU's, or
    /// nobody's.
    #[inline(always)]
    pub(super) fn home(&self, kind: ZoneKind) -> Option<&'m Pageset<'m, P>> {
        let cpu = self.platform.storage().current_cpu();
        let pageset = self.homes[kind.index()].slot(cpu.0 as usize).get();
        (P::Storage::CHECKS_CPU || pageset.owner().cpu == cpu).then_some(pageset)
    }

    /// The CPU that this thread runs on, if its id is in the topology and it is on. Others have no pagesets to
    /// use: their requests go to the zones.
    #[inline(always)]
    pub(crate) fn this_cpu(&self) -> Option<&'m Cpu<'m, P>> {
        let cpu = self.cpus.get(self.platform.storage().current_cpu().0 as usize)?;
        cpu.is_on().then_some(cpu)
    }

    #[inline(always)]
    pub(super) fn node_index(&self, id: NodeId) -> Option<NodeIndex> {
        // Most machines number their nodes without gaps.
        let guess = id.0 as usize;
        if self.nodes.get(guess).is_some_and(|node| node.id == id) {
            return Some(NodeIndex(guess as u16));
        }
        self.topology.index_of(id)
    }
}
