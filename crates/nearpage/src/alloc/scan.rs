//! The scan: the zones of a zonelist in order, the first one that may be taken from. Facts 4.1, 4.2.

use super::fast::FromPageset;
use super::hints::{Hints, Refusal};
use super::{PageAllocator, Request};
use crate::buddy::{BlockRequest, Fragmentation};
use crate::error::AllocError;
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::pcp::list_index;
use crate::platform::Platform;
use crate::units::{MAX_ORDER, NodeIndex, Order, PageCount, Pfn, ZoneKind};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents};
use crate::zonelist::list::Zonelist;

/// A request with what follows from its flags.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) order: Order,
    pub(super) gfp: Gfp,
    pub(super) migratetype: Migratetype,
    /// Highest zone kind that may be used.
    pub(super) kind: ZoneKind,
    /// The node whose zonelist is walked.
    pub(super) node: NodeIndex,
}

impl Wanted {
    pub(super) fn block(&self) -> BlockRequest {
        BlockRequest {
            order: self.order,
            migratetype: self.migratetype,
            fragmentation: Fragmentation::Allowed,
        }
    }
}

/// What a scan saw of the zones that refused.
#[derive(Clone, Copy, Default)]
pub(super) struct Refusals {
    pub(super) zones: u16,
    pub(super) free: PageCount,
    pub(super) below_watermark: u16,
    pub(super) fragmented: u16,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// What the fast path did not find.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_scan(&self, request: Request) -> Result<Pfn, AllocError> {
        let wanted = self.wanted(request)?;
        let flags = first_flags(wanted.gfp);
        match self.get_page(&wanted, flags) {
            Ok(pfn) => Ok(pfn),
            Err(_) => self.alloc_slow(&wanted),
        }
    }

    /// Checks a request.
    pub(super) fn wanted(&self, request: Request) -> Result<Wanted, AllocError> {
        let Request { order, gfp, node } = request;
        if order > MAX_ORDER {
            return Err(AllocError::OrderTooLarge { order });
        }
        let (Some(kind), Some(migratetype)) = (gfp.zone_kind(), gfp.migratetype()) else {
            return Err(AllocError::BadFlags { gfp });
        };
        let node = match node {
            Some(id) => self.node_index(id).ok_or(AllocError::UnknownNode { node: id })?,
            None => self.this_node(),
        };
        let wanted = Wanted { order, gfp, migratetype, kind, node };
        if gfp.has(Gfp::THISNODE) && self.zonelist(&wanted).next().is_none() {
            return Err(AllocError::MemorylessNode { node: self.node_id(node), gfp });
        }
        Ok(wanted)
    }

    /// The node of this CPU; of a CPU that the topology does not have, the first node with memory.
    pub(super) fn this_node(&self) -> NodeIndex {
        match self.this_cpu() {
            Some(cpu) => cpu.node,
            None => self.zones[0].node(),
        }
    }

    /// The zones that a request may use, in the order of fallback. Facts 3.3, 3.4.
    pub(super) fn zonelist(
        &self,
        wanted: &Wanted,
    ) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'_, 'm, P> {
        let list = self.list(wanted);
        (0..zones_of(list, wanted)).map(|position| self.zone_at(list, position))
    }

    fn list(&self, wanted: &Wanted) -> &'m Zonelist<'m> {
        &self.nodes[wanted.node.0 as usize].zonelists[wanted.kind.index()]
    }

    fn zone_at(&self, list: &Zonelist<'m>, position: usize) -> &'m Zone<'m, P> {
        self.zones[list.zone(position).0 as usize]
    }

    /// Walks the zonelist until a zone gives a block: with the hints of its cache, and then without.
    pub(super) fn get_page(&self, wanted: &Wanted, flags: AllocFlags) -> Result<Pfn, Refusals> {
        let node = &self.nodes[wanted.node.0 as usize];
        let list = self.list(wanted);
        let (rule, zones) = (self.model.zonelist_cache, zones_of(list, wanted));
        let mut hints = Hints::new(rule, &list.cache, &node.scans, zones, wanted.order, flags);
        let mut result = self.get_page_once(wanted, flags, &mut hints);
        if result.is_err() && hints.begin_second_pass() {
            result = self.get_page_once(wanted, flags, &mut hints);
        }
        hints.finish();
        result
    }

    /// Walks the zonelist once. `get_page_from_freelist`, facts 4.2.
    fn get_page_once(
        &self,
        wanted: &Wanted,
        flags: AllocFlags,
        hints: &mut Hints<'_, 'm>,
    ) -> Result<Pfn, Refusals> {
        let list = self.list(wanted);
        let mut refusals = Refusals::default();
        for position in 0..zones_of(list, wanted) {
            if hints.skips(position) {
                continue;
            }
            let zone = self.zone_at(list, position);
            refusals.zones += 1;
            refusals.free.0 += zone.free_pages().0;
            let refusal = if self.may_take(zone, wanted, flags) {
                if let Some(number) = self.take_from(zone, wanted) {
                    note_placement(self.zone_at(list, 0), zone);
                    return Ok(self.hand_out(zone, number, wanted.order, wanted.migratetype));
                }
                refusals.fragmented += 1;
                Refusal::Block
            } else {
                refusals.below_watermark += 1;
                Refusal::Watermark
            };
            hints.refused(position, refusal, || self.platform.now_ns());
        }
        Err(refusals)
    }

    /// Whether a zone passes its watermark. A zone below its high mark is noted as such first: its pagesets
    /// stop growing.
    fn may_take(&self, zone: &Zone<'m, P>, wanted: &Wanted, flags: AllocFlags) -> bool {
        if !zone.view().below_high {
            let high = flags.without(AllocFlags(AllocFlags::WMARK_MASK)).or(AllocFlags::WMARK_HIGH);
            if zone.passes(wanted.order, high, wanted.kind) {
                return true;
            }
            zone.set_below_high();
        }
        flags.has(AllocFlags::NO_WATERMARKS) || zone.passes(wanted.order, flags, wanted.kind)
    }

    /// A block from a zone: through this CPU's pageset where pagesets have the order, else from the buddy.
    fn take_from(&self, zone: &Zone<'m, P>, wanted: &Wanted) -> Option<u32> {
        if let Some(list) = list_index(wanted.order, wanted.migratetype)
            && let Some(cpu) = self.this_cpu()
        {
            let pageset = &cpu.pagesets[zone.index().0 as usize];
            let (order, migratetype) = (wanted.order, wanted.migratetype);
            if let FromPageset::Block(number) =
                self.alloc_from_pageset(cpu, pageset, order, migratetype, list)
            {
                return Some(number);
            }
        }
        self.take_direct(zone, wanted)
    }

    /// A block straight from the buddy.
    fn take_direct(&self, zone: &Zone<'m, P>, wanted: &Wanted) -> Option<u32> {
        let number = {
            let mut guard = zone.lock_to_move();
            let number = guard.buddy().alloc(*zone.frames(), wanted.block())?;
            guard.note_moved(wanted.order.pages().0);
            number
        };
        let events = zone.events();
        ZoneEvents::add(&events.direct_allocs, 1);
        ZoneEvents::add(&events.direct_alloc_pages, wanted.order.pages().0);
        if self.this_node() != zone.node() {
            ZoneEvents::add(&events.direct_other, 1);
        }
        Some(number)
    }

    /// The id of a node.
    pub(super) fn node_id(&self, node: NodeIndex) -> crate::units::NodeId {
        self.nodes[node.0 as usize].id
    }
}

/// How many zones of a list a request may use.
fn zones_of(list: &Zonelist<'_>, wanted: &Wanted) -> usize {
    if wanted.gfp.has(Gfp::THISNODE) { list.own_len() } else { list.len() }
}

/// The flags of the first scan: the low mark. Facts 4.1.
pub(super) fn first_flags(gfp: Gfp) -> AllocFlags {
    let flags = AllocFlags::WMARK_LOW;
    if gfp.has(Gfp::KSWAPD_RECLAIM) { flags.or(AllocFlags::KSWAPD) } else { flags }
}

/// Counts an allocation that came from another node than the preferred zone's. Facts 11.1.
fn note_placement<P: Platform>(preferred: &Zone<'_, P>, zone: &Zone<'_, P>) {
    if preferred.node() != zone.node() {
        ZoneEvents::add(&zone.events().miss, 1);
        ZoneEvents::add(&preferred.events().foreign, 1);
    }
}
