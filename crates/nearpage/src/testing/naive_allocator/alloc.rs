//! Allocation: the scan of a zonelist, and what happens when it finds nothing.

use std_alloc::vec::Vec;

use super::asked::{Asked, NaiveScope};
use super::hints::Scan;
use super::refusals::Refusals;
use super::zone::{Begins, Blocks};
use super::{NaiveAllocator, NaivePageset};
use crate::alloc::{Reason, Request};
use crate::error::{AllocError, LimitOf};
use crate::gfp::Gfp;
use crate::host::NodeReclaimed;
use crate::pcp::list_index;
use crate::pcp::tuning::Decay;
use crate::units::{CpuId, MAX_ORDER, NodeIndex, Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

/// What a scan saw.
#[derive(Default)]
pub(super) struct Seen {
    pub zones: u16,
    pub free: PageCount,
    pub below_watermark: u16,
    pub fragmented: u16,
    pub limit: Option<(LimitOf, PageCount)>,
}

impl NaiveAllocator {
    /// Allocates a block on a CPU.
    pub fn alloc(&mut self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let asked = self.asked(cpu, request)?;
        self.alloc_asked(&asked)
    }

    pub(super) fn asked(&self, cpu: CpuId, request: Request) -> Result<Asked, AllocError> {
        let Request { order, gfp, node } = request;
        if order > MAX_ORDER {
            return Err(AllocError::OrderTooLarge { order });
        }
        let (Some(kind), Some(migratetype)) = (gfp.zone_kind(), gfp.migratetype()) else {
            return Err(AllocError::BadFlags { gfp });
        };
        let node = match node {
            None => self.node_of(cpu),
            Some(id) => match self.nodes.iter().position(|node| node.id == id) {
                None => return Err(AllocError::UnknownNode { node: id }),
                Some(at) => NodeIndex(at as u16),
            },
        };
        let scope = NaiveScope::default();
        let (zonelist, walk, head, near) = (Vec::new(), Vec::new(), None, None);
        let blank =
            Asked { cpu, order, gfp, migratetype, kind, node, zonelist, walk, head, near, scope };
        let asked = self.rescoped(&blank, NaiveScope::default());
        if gfp.contains(Gfp::THISNODE) && asked.zonelist.is_empty() {
            return Err(AllocError::MemorylessNode { node: self.nodes[node.0 as usize].id, gfp });
        }
        Ok(asked)
    }

    /// The node of a CPU; of an unknown one, the first node with memory.
    pub(super) fn node_of(&self, cpu: CpuId) -> NodeIndex {
        self.cpus.get(&cpu).map_or(self.zones[0].node, |cpu| cpu.node)
    }

    pub(super) fn alloc_asked(&mut self, asked: &Asked) -> Result<Pfn, AllocError> {
        let gfp = asked.gfp;
        if let Some(&preferred) = asked.zonelist.first() {
            let mut flags = AllocFlags::WMARK_LOW;
            if gfp.contains(Gfp::KSWAPD_RECLAIM) {
                flags = flags.union(AllocFlags::KSWAPD);
            }
            if self.zones[preferred].avoids_fragmentation {
                flags = flags.union(AllocFlags::NOFRAGMENT);
            }
            if let Some(pfn) = self.take_near(asked, flags) {
                return Ok(pfn);
            }
            let was_tried = self.may_take_near(asked).is_some();
            if let Ok(pfn) = self.scan_after(asked, flags, was_tried) {
                return Ok(pfn);
            }
        }
        self.slow(asked).map_err(|seen| match seen.limit {
            Some((limit, pages)) => {
                AllocError::LimitReached { limit, pages, order: asked.order, gfp }
            }
            None => AllocError::OutOfMemory {
                node: self.nodes[asked.node.0 as usize].id,
                order: asked.order,
                gfp,
                zones: seen.zones,
                free: seen.free,
                below_watermark: seen.below_watermark,
                fragmented: seen.fragmented,
            },
        })
    }

    /// The first zone and the list of its pageset, if the zone has room to spare.
    fn may_take_near(&self, asked: &Asked) -> Option<(usize, usize)> {
        let list = list_index(asked.order, asked.migratetype)?;
        let zone = *asked.zonelist.first()?;
        if asked.near != Some(zone) {
            return None;
        }
        let has_room = asked.order.0 < self.zones[zone].headroom_orders();
        (has_room && self.cpu_on(asked.cpu).is_some()).then_some((zone, list))
    }

    /// A block through the pageset for the first zone, if that has room to spare. A scan that follows does not
    /// try that pageset again.
    fn take_near(&mut self, asked: &Asked, flags: AllocFlags) -> Option<Pfn> {
        let (zone, list) = self.may_take_near(asked)?;
        let is_refill = self.pagesets(asked.cpu)[zone].lacks(list);
        let pfn = self.take_cached(zone, asked, list, flags)?;
        if is_refill {
            self.wake_if_boosted(zone, flags);
        }
        self.hand_out(pfn, zone, asked);
        Some(pfn)
    }

    fn wake_if_boosted(&mut self, zone: usize, flags: AllocFlags) {
        if flags.contains(AllocFlags::KSWAPD) && self.zones[zone].was_boosted {
            self.zones[zone].was_boosted = false;
            self.calls.wakes += 1;
        }
    }

    /// The first zone of the list that may give the block.
    pub(super) fn scan(&mut self, asked: &Asked, flags: AllocFlags) -> Result<Pfn, Seen> {
        self.scan_after(asked, flags, false)
    }

    /// `was_tried` says that the first zone's pageset was tried just now.
    fn scan_after(
        &mut self,
        asked: &Asked,
        flags: AllocFlags,
        was_tried: bool,
    ) -> Result<Pfn, Seen> {
        let (mut flags, mut was_tried) = (flags, was_tried);
        let mut scan = Scan::new(self.model.zonelist_cache, asked, flags);
        let result = loop {
            let result = self.scan_once(asked, flags, was_tried, &mut scan);
            was_tried = false;
            if result.is_ok() {
                break result;
            } else if flags.contains(AllocFlags::NOFRAGMENT) {
                flags = flags.difference(AllocFlags::NOFRAGMENT);
            } else if !scan.wants_second_pass() {
                break result;
            }
        };
        let counts = &mut self.nodes[asked.node.0 as usize].scans;
        *counts += scan.counts;
        result
    }

    fn scan_once(
        &mut self,
        asked: &Asked,
        flags: AllocFlags,
        was_tried: bool,
        scan: &mut Scan,
    ) -> Result<Pfn, Seen> {
        let mut seen = Seen::default();
        let Some(&preferred) = asked.zonelist.first() else { return Err(seen) };
        for &(zone, left_out) in &asked.walk {
            if let Some(why) = left_out {
                let now_ns = self.now_ns;
                scan.passed_over(why, self.full(asked), now_ns);
                continue;
            }
            let is_first = zone == preferred;
            if flags.contains(AllocFlags::NOFRAGMENT)
                && self.zones[zone].node != self.zones[preferred].node
            {
                break;
            }
            if !scan.is_exempt(zone) && scan.leaves_out(zone, self.full(asked)) {
                continue;
            }
            seen.zones += 1;
            seen.free.0 += self.zones[zone].free.0;
            let is_tried = is_first && was_tried;
            let passed_mark = is_tried
                || self.may_take(zone, asked, flags)
                || self.node_reclaim_helps(zone, asked, flags);
            if passed_mark {
                let pfn = self.take_block(zone, asked, flags, is_tried);
                self.wake_if_boosted(zone, flags);
                if let Some(pfn) = pfn {
                    let reason = self.reason(asked, flags, scan);
                    self.count_placement(zone, asked, reason);
                    if flags.contains(AllocFlags::HIGHATOMIC) {
                        let pageblocks = &mut self.pageblocks;
                        self.zones[zone].keep_pageblock_of(pfn, asked.order, pageblocks);
                    }
                    self.hand_out(pfn, zone, asked);
                    return Ok(pfn);
                }
                let limit = self.limit_reached(zone, asked.order.pages().0);
                seen.limit = seen.limit.or(limit);
                seen.fragmented += u16::from(limit.is_none());
            } else {
                seen.below_watermark += 1;
            }
            let now_ns = self.now_ns;
            scan.refused(zone, passed_mark, self.full(asked), now_ns);
        }
        Err(seen)
    }

    fn full(&mut self, asked: &Asked) -> &mut Refusals {
        let turn = self.turn_of(asked.cpu);
        self.nodes[asked.node.0 as usize].full.entry((turn, asked.kind)).or_default()
    }

    fn count_placement(&mut self, zone: usize, asked: &Asked, reason: Reason) {
        let preferred = asked.zonelist[0];
        if self.zones[preferred].node != self.zones[zone].node {
            self.zones[zone].events.miss += 1;
            self.zones[preferred].events.foreign += 1;
        }
        self.count_fallback(zone, asked, asked.order.pages(), reason);
    }

    pub(super) fn count_fallback(
        &mut self,
        zone: usize,
        asked: &Asked,
        pages: PageCount,
        reason: Reason,
    ) {
        let (nearest, left_out) = asked.walk[0];
        let to = self.zones[zone].node;
        let is_named = asked.gfp.contains(Gfp::THISNODE) || asked.scope.named.contains(&asked.node);
        let (from, reason) = if self.nodes[asked.node.0 as usize].is_private && !is_named {
            (asked.node, Reason::PrivateNode)
        } else if nearest != zone {
            (self.zones[nearest].node, left_out.unwrap_or(reason))
        } else {
            return;
        };
        self.nodes[from.0 as usize].fallbacks.entry(to).or_default().record(reason, pages);
        self.all_fallbacks.record(reason, pages);
    }

    /// Why the first zone gave nothing, after another one did.
    fn reason(&self, asked: &Asked, flags: AllocFlags, scan: &Scan) -> Reason {
        let zone = &self.zones[asked.zonelist[0]];
        if scan.left_some_out() {
            Reason::Hint
        } else if zone.passes(asked.order, flags, asked.kind) {
            let is_limited = self.limit_reached(asked.zonelist[0], asked.order.pages().0).is_some();
            if is_limited { Reason::Limit } else { Reason::Fragmentation }
        } else if zone.passes(asked.order, flags, zone.kind) {
            Reason::LowmemReserve
        } else if zone.passes(Order(0), flags, asked.kind) {
            Reason::Fragmentation
        } else {
            Reason::Watermark
        }
    }

    pub(super) fn hand_out(&mut self, pfn: Pfn, zone: usize, asked: &Asked) {
        self.zones[zone].set_begins(pfn, Begins::Held(asked.order, asked.migratetype));
    }

    /// The high mark is asked first, until a zone is known to be below it; then the mark of the flags.
    fn may_take(&mut self, zone: usize, asked: &Asked, flags: AllocFlags) -> bool {
        let zone = &mut self.zones[zone];
        let mark = AllocFlags(AllocFlags::WMARK_MASK);
        let high = flags.difference(mark).union(AllocFlags::WMARK_HIGH);
        if !zone.view.below_high {
            if zone.passes(asked.order, high, asked.kind) {
                return true;
            }
            zone.view.below_high = true;
        }
        flags.contains(AllocFlags::NO_WATERMARKS) || zone.passes(asked.order, flags, asked.kind)
    }

    /// Reclaims a near node, if that is wanted at all.
    fn node_reclaim_helps(&mut self, zone: usize, asked: &Asked, flags: AllocFlags) -> bool {
        let from = self.zones[asked.zonelist[0]].node.0 as usize;
        let to = self.zones[zone].node.0 as usize;
        let is_far = self.distances[from * self.nodes.len() + to] > 30;
        if self.settings.node_reclaim_mode == 0 || is_far {
            return false;
        }
        let did_something =
            matches!(self.calls.node_reclaim(), NodeReclaimed::Some | NodeReclaimed::Enough);
        if !did_something {
            return false;
        }
        let (order, kind) = (asked.order, asked.kind);
        if self.zones[zone].would_pass(order, flags, kind, PageCount(0)) {
            return true;
        }
        false
    }

    fn take_block(
        &mut self,
        zone: usize,
        asked: &Asked,
        flags: AllocFlags,
        was_tried: bool,
    ) -> Option<Pfn> {
        let list = list_index(asked.order, asked.migratetype).filter(|_| !was_tried);
        match list.and_then(|list| self.take_cached(zone, asked, list, flags)) {
            Some(pfn) => Some(pfn),
            None => self.take_single(zone, asked, flags),
        }
    }

    /// A block straight from the zone, with rights to its reserve.
    fn take_single(&mut self, zone: usize, asked: &Asked, flags: AllocFlags) -> Option<Pfn> {
        if self.may_leave(zone, 1, asked.order, flags) < 1 {
            self.zones[zone].note_hold(0);
            return None;
        }
        let pfn = self.take_with_rights(zone, asked, flags)?;
        self.wake_above_soft(zone, flags);
        Some(pfn)
    }

    fn take_with_rights(&mut self, zone: usize, asked: &Asked, flags: AllocFlags) -> Option<Pfn> {
        let last_rights = AllocFlags::OOM.union(AllocFlags::NON_BLOCK);
        let mut reserved = None;
        if flags.contains(AllocFlags::HIGHATOMIC) {
            reserved = self.zones[zone].take_reserved(asked.order);
        }
        if let Some(pfn) = reserved {
            self.count_direct(zone, asked, 1);
            return Some(pfn);
        }
        let ordinary = self.take_direct(zone, asked, flags);
        if ordinary.is_some() || !flags.intersects(last_rights) {
            return ordinary;
        }
        let pfn = self.zones[zone].take_reserved(asked.order)?;
        // The hold was counted when there was nothing else.
        self.zones[zone].holds.acquisitions -= 1;
        self.count_direct(zone, asked, 1);
        Some(pfn)
    }

    fn count_direct(&mut self, zone: usize, asked: &Asked, count: u64) {
        let is_other = self.node_of(asked.cpu) != self.zones[zone].node;
        let (zone, pages) = (&mut self.zones[zone], count << asked.order.0);
        zone.note_hold(pages);
        zone.events.direct_allocs += count;
        zone.events.direct_alloc_pages += pages;
        zone.events.direct_other += if is_other { count } else { 0 };
    }

    /// A block through the pageset of the CPU, if the CPU has any.
    fn take_cached(
        &mut self,
        zone: usize,
        asked: &Asked,
        list: usize,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        self.cpu_on(asked.cpu)?;
        let pageset = &mut self.cpus.get_mut(&asked.cpu)?.pagesets[zone];
        pageset.tuning.before_alloc(&self.model.pcp);
        let is_refill = pageset.lacks(list);
        let pfn = self.pop_or_refill(zone, asked, list, flags);
        if is_refill && pfn.is_some() {
            self.wake_above_soft(zone, flags);
        }
        let pageset = &mut self.cpus.get_mut(&asked.cpu)?.pagesets[zone];
        if self.model.pcp.decay == Decay::ByUnused {
            pageset.tuning.after_alloc(pageset.count);
        }
        pfn
    }

    /// The hottest page of the list, after a refill if it is empty.
    pub(super) fn pop_or_refill(
        &mut self,
        zone: usize,
        asked: &Asked,
        list: usize,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let mut is_refill = self.cpu_on(asked.cpu)?.pagesets[zone].lacks(list);
        if is_refill && self.has_owners() {
            self.refill_pieces(zone, asked, list, flags);
            is_refill = false;
        }
        let may_leave =
            if is_refill { self.may_leave(zone, u64::MAX, asked.order, flags) } else { 0 };
        let pageset = &mut self.cpus.get_mut(&asked.cpu)?.pagesets[zone];
        let zone = &mut self.zones[zone];
        if is_refill {
            let NaivePageset { tuning, count, .. } = pageset;
            let (order, migratetype) = (asked.order, asked.migratetype);
            let blocks = tuning.refill_blocks(&self.model.pcp, order, *count, zone.view);
            let blocks = blocks.min(may_leave);
            let wanted = Blocks { order, migratetype, flags, blocks };
            let taken = zone.take(wanted, &mut self.pageblocks);
            let pages = (taken.len() as u64) << order.0;
            zone.note_hold(pages);
            if pages > 0 {
                pageset.refills.0 += 1;
                pageset.refills.1 += pages;
            }
            pageset.count.0 += pages;
            pageset.lists[list].extend(taken);
        }
        let pfn = pageset.take(list)?;
        pageset.count.0 -= asked.order.pages().0;
        Some(pfn)
    }

    /// A block straight from the zone.
    fn take_direct(&mut self, zone: usize, asked: &Asked, flags: AllocFlags) -> Option<Pfn> {
        let (order, migratetype) = (asked.order, asked.migratetype);
        let blocks = self.may_leave(zone, 1, order, flags);
        let wanted = Blocks { order, migratetype, flags, blocks };
        let taken = self.zones[zone].take(wanted, &mut self.pageblocks);
        self.count_direct(zone, asked, taken.len() as u64);
        taken.first().copied()
    }
}
