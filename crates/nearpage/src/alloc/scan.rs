//! The scan: the zones of a zonelist in order, the first one that may be taken from. Facts 4.1, 4.2.

use super::fast::{FromPageset, hand_out};
use super::{NO_ZONE, PageAllocator, Request};
use crate::buddy::{BlockRequest, Fragmentation};
use crate::error::AllocError;
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::pcp::list_index;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{MAX_ORDER, NodeIndex, Order, PageCount, Pfn, ZoneKind};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents};

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
            Some(cpu) => cpu.owner.node,
            None => self.zones[0].node(),
        }
    }

    /// The zones that a request may use, in the order of fallback. Facts 3.3, 3.4.
    pub(super) fn zonelist(
        &self,
        wanted: &Wanted,
    ) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'_, 'm, P> {
        let node = &self.nodes[wanted.node.0 as usize];
        let entries = if wanted.gfp.has(Gfp::THISNODE) {
            &node.own[..]
        } else {
            &node.fallback[..node.fallback_len.load(Ordering::Relaxed) as usize]
        };
        let highest = wanted.kind;
        entries
            .iter()
            .map(|entry| entry.load(Ordering::Relaxed))
            .take_while(|&entry| entry != NO_ZONE)
            .map(|entry| self.zones[entry as usize])
            .filter(move |zone| zone.kind() <= highest)
    }

    /// Walks the zonelist once. `get_page_from_freelist`, facts 4.2.
    pub(super) fn get_page(&self, wanted: &Wanted, flags: AllocFlags) -> Result<Pfn, Refusals> {
        let mut refusals = Refusals::default();
        let mut preferred = None;
        for zone in self.zonelist(wanted) {
            let preferred = *preferred.get_or_insert(zone);
            refusals.zones += 1;
            refusals.free.0 += zone.free_pages().0;
            if !self.may_take(zone, wanted, flags) {
                refusals.below_watermark += 1;
                continue;
            }
            match self.take_from(zone, wanted) {
                Some(number) => {
                    note_placement(preferred, zone);
                    return Ok(hand_out(zone.frames(), number, wanted.order, wanted.migratetype));
                }
                None => refusals.fragmented += 1,
            }
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
                self.alloc_from_pageset(pageset, order, migratetype, list)
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
