//! The scan: the zones of a zonelist in order, the first one that may be taken from. Facts 4.1, 4.2.

use core::iter::Chain;
use core::ops::Range;

use super::fast::{FromPageset, Near, hand_out, has_headroom};
use super::hints::{Hints, Others, Refusal};
use super::placed::Scope;
use super::{PageAllocator, Request};
use crate::buddy::{BlockRequest, Buddy, Fragmentation};
use crate::error::{AllocError, LimitOf};
use crate::frame::{Migratetype, ZoneFrames};
use crate::gfp::Gfp;
use crate::pcp::{Storage, list_index};
use crate::platform::{Access, Platform, Shortage};
use crate::reason::Reason;
use crate::units::{MAX_ORDER, NodeIndex, Order, PageCount, Pfn, ZoneKind};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents};
use crate::zonelist::list::{Reading, Zonelist};

/// A request with what follows from its flags.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) order: Order,
    pub(super) gfp: Gfp,
    pub(super) migratetype: Migratetype,
    /// Highest zone kind that may be used.
    pub(super) kind: ZoneKind,
    /// The node whose zonelist is walked.
    pub(super) node: NodeIndex,
    /// The nodes that may be used.
    pub(super) scope: Scope<'a>,
    /// Of a request that may not fail.
    pub(super) climbs: Climbs,
}

/// How often a request that may not fail climbs the ladder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Climbs {
    /// Until it has a page.
    UntilItHas,
    /// Once: its caller looks elsewhere before it asks again.
    One,
}

impl Wanted<'_> {
    pub(super) fn trip(&self, flags: AllocFlags) -> Trip {
        Trip { order: self.order, migratetype: self.migratetype, flags }
    }
}

/// A trip to a zone for blocks.
#[derive(Clone, Copy)]
pub(super) struct Trip {
    pub(super) order: Order,
    pub(super) migratetype: Migratetype,
    pub(super) flags: AllocFlags,
}

impl Trip {
    pub(super) fn block(self) -> BlockRequest {
        let fragmentation = if self.flags.has(AllocFlags::NOFRAGMENT) {
            Fragmentation::Avoided
        } else {
            Fragmentation::Allowed
        };
        BlockRequest { order: self.order, migratetype: self.migratetype, fragmentation }
    }
}

/// How much of a scan's first zone was tried before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstZone {
    /// Nothing.
    Untried,
    /// It passed its watermark, and the pageset for it could not be filled: the fast path.
    PagesetTried,
}

/// What a scan saw of the zones that refused.
#[derive(Clone, Copy, Default)]
pub(super) struct Refusals {
    pub(super) zones: u16,
    pub(super) free: PageCount,
    pub(super) below_watermark: u16,
    pub(super) fragmented: u16,
    /// The first limit that stood in the way.
    pub(super) limit: Option<(LimitOf, PageCount)>,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// What the fast path did not find.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_scan(&self, request: Request) -> Result<Pfn, AllocError> {
        self.scan(request, &self.wanted(request)?)
    }

    /// As [`alloc`](Self::alloc), but a request that may not fail does, after everything was tried once.
    pub(crate) fn alloc_once(&self, request: Request) -> Result<Pfn, AllocError> {
        if let Some(pfn) = self.alloc_fast(request) {
            return Ok(pfn);
        }
        self.scan(request, &Wanted { climbs: Climbs::One, ..self.wanted(request)? })
    }

    fn scan(&self, request: Request, wanted: &Wanted<'_>) -> Result<Pfn, AllocError> {
        let first_zone = self.first_zone_after_fast_path(request);
        let found = self.zonelist(wanted).next().and_then(|preferred| {
            let flags = first_flags(wanted.gfp, preferred);
            self.get_page(wanted, flags, first_zone).ok()
        });
        found.map_or_else(|| self.alloc_slow(wanted), Ok)
    }

    /// What the fast path did. If storage and tuning move together the trip that it made must not be made
    /// twice; otherwise the fast path may have been disturbed, and once more does no harm.
    pub(super) fn first_zone_after_fast_path(&self, request: Request) -> FirstZone {
        let had_room = |near: Near<'m, P>| has_headroom(near.pageset, request.order);
        if P::Storage::EXACT && self.near(request).is_some_and(had_room) {
            FirstZone::PagesetTried
        } else {
            FirstZone::Untried
        }
    }

    /// Checks a request.
    pub(super) fn wanted<'a>(&self, request: Request) -> Result<Wanted<'a>, AllocError> {
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
        let (scope, climbs) = (Scope::default(), Climbs::UntilItHas);
        let wanted = Wanted { order, gfp, migratetype, kind, node, scope, climbs };
        if gfp.has(Gfp::THISNODE) && self.zonelist(&wanted).next().is_none() {
            return Err(AllocError::MemorylessNode { node: self.node_id(node), gfp });
        }
        Ok(wanted)
    }

    /// The node of this CPU; of a CPU that the topology does not have, the first node with memory.
    pub(crate) fn this_node(&self) -> NodeIndex {
        match self.cpu(self.platform.storage().current_cpu()) {
            Some(cpu) => cpu.owner.node,
            None => self.zones[0].node(),
        }
    }

    /// The zones that a request may use, in the order of fallback. Facts 3.3, 3.4.
    pub(super) fn zonelist<'a>(
        &'a self,
        wanted: &Wanted<'a>,
    ) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'a, 'm, P> {
        let (list, wanted) = (self.list(wanted), *wanted);
        let mut reading = list.read();
        let mut positions = self.positions(reading, &wanted);
        core::iter::from_fn(move || {
            loop {
                match self.zone_at(reading, positions.next()?) {
                    Some(zone) if self.excludes(zone, &wanted).is_none() => return Some(zone),
                    Some(_) => {}
                    // The list was written over: again from the beginning of the one in force. That a zone comes
                    // twice does no harm to any caller.
                    None => {
                        reading = list.read();
                        positions = self.positions(reading, &wanted);
                    }
                }
            }
        })
    }

    /// The places of those zones on a list.
    fn usable_positions<'a>(
        &'a self,
        list: Reading<'m, 'm>,
        wanted: &'a Wanted<'a>,
    ) -> impl Iterator<Item = usize> + use<'a, 'm, P> {
        let is_usable = |zone: &Zone<'m, P>| self.excludes(zone, wanted).is_none();
        self.positions(list, wanted)
            .filter(move |&at| self.zone_at(list, at).is_some_and(is_usable))
    }

    /// The places of all zones that a request would look at if it were not for its policy and its cpuset. Private
    /// nodes come last, unless the request begins at one that it names.
    fn positions(
        &self,
        list: Reading<'m, 'm>,
        wanted: &Wanted<'_>,
    ) -> Chain<Range<usize>, Range<usize>> {
        let general = 0..list.len();
        if wanted.gfp.has(Gfp::THISNODE) {
            list.own().chain(0..0)
        } else if wanted.scope.named.is_none() {
            general.chain(0..0)
        } else if self.is_private(wanted.node) && wanted.scope.names(wanted.node) {
            (general.end..list.all_len()).chain(general)
        } else {
            general.clone().chain(general.end..list.all_len())
        }
    }

    /// Why a request may not use a zone of its list, if it may not.
    #[inline]
    fn excludes(&self, zone: &Zone<'m, P>, wanted: &Wanted<'_>) -> Option<Reason> {
        if wanted.scope.is_general() {
            return None;
        }
        let node = zone.node();
        let is_private = self.is_private(node) && !wanted.gfp.has(Gfp::THISNODE);
        wanted.scope.excludes(node, is_private)
    }

    fn list(&self, wanted: &Wanted<'_>) -> &'m Zonelist<'m> {
        &self.nodes[wanted.node.0 as usize].zonelists[wanted.kind.index()]
    }

    /// `None` if the list was written over meanwhile.
    #[inline]
    fn zone_at(&self, list: Reading<'m, 'm>, position: usize) -> Option<&'m Zone<'m, P>> {
        Some(self.zones[list.zone(position)?.0 as usize])
    }

    /// Walks the zonelist until a zone gives a block. If there is none, and there is another list by then, walks
    /// that: who would get a block by the one or by the other gets it.
    pub(super) fn get_page(
        &self,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        first_zone: FirstZone,
    ) -> Result<Pfn, Refusals> {
        let mut first_zone = first_zone;
        loop {
            let list = self.list(wanted).read();
            let result = self.get_page_from(list, wanted, flags, first_zone);
            if result.is_ok() || list.is_current() {
                return result;
            }
            first_zone = FirstZone::Untried;
        }
    }

    /// Walks a list. Walks it again without `NOFRAGMENT`, and again without the hints of its cache.
    fn get_page_from(
        &self,
        list: Reading<'m, 'm>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        first_zone: FirstZone,
    ) -> Result<Pfn, Refusals> {
        let node = &self.nodes[wanted.node.0 as usize];
        let cache = &self.list(wanted).cache;
        let mut positions = self.usable_positions(list, wanted);
        let Some(first) = positions.next() else { return Err(Refusals::default()) };
        let others = positions.next().map_or(Others::None, |_| Others::Some);
        let rule = self.model.zonelist_cache;
        let mut hints = Hints::new(rule, cache, &node.scans, first, others, wanted.order, flags);
        let (mut flags, mut first_zone) = (flags, first_zone);
        let result = loop {
            let result = self.get_page_once(list, wanted, flags, first_zone, &mut hints);
            first_zone = FirstZone::Untried;
            if result.is_err() && flags.has(AllocFlags::NOFRAGMENT) {
                flags = flags.without(AllocFlags::NOFRAGMENT);
            } else if result.is_ok() || !hints.begin_second_pass() {
                break result;
            }
        };
        hints.finish();
        result
    }

    /// Walks the zonelist once; with `NOFRAGMENT` only the first node's zones, since to be near is worth
    /// more than to mix no pageblocks. `get_page_from_freelist`, facts 4.2.
    fn get_page_once(
        &self,
        list: Reading<'m, 'm>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        first_zone: FirstZone,
        hints: &mut Hints<'_, 'm>,
    ) -> Result<Pfn, Refusals> {
        let cache = &self.list(wanted).cache;
        let mut refusals = Refusals::default();
        let Some(first) = self.zone_at(list, hints.first()) else { return Err(refusals) };
        let avoids = flags.has(AllocFlags::NOFRAGMENT);
        for position in self.positions(list, wanted) {
            // A list that was written over is not in force any more: the caller looks again.
            let Some(zone) = self.zone_at(list, position) else { return Err(refusals) };
            match self.excludes(zone, wanted) {
                None => {}
                Some(reason) => {
                    hints.passed_over(reason, || self.platform.now_ns());
                    continue;
                }
            }
            if avoids && zone.node() != first.node() {
                break;
            }
            if hints.are_read(position) {
                self.platform.touch(cache.line(position), Access::Read);
            }
            if hints.skips(position) {
                continue;
            }
            self.platform.touch(zone.marks_line(), Access::Read);
            self.platform.touch(zone.published_line(), Access::Read);
            refusals.zones += 1;
            refusals.free.0 += zone.free_pages().0;
            let tried = if position == hints.first() { first_zone } else { FirstZone::Untried };
            let refusal = if tried == FirstZone::PagesetTried
                || self.may_take(zone, wanted, flags)
                || self.node_reclaim_helps(zone, wanted, flags)
            {
                if let Some(number) = self.take_from(zone, wanted, flags, tried) {
                    self.note_placement(first, zone, wanted, flags, hints);
                    if flags.has(AllocFlags::HIGHATOMIC) {
                        let (frames, managed) = (*zone.frames(), zone.managed());
                        zone.lock().buddy().reserve(frames, number, wanted.order, managed);
                    }
                    return Ok(hand_out(zone.frames(), number, wanted.order, wanted.migratetype));
                }
                match self.limit_reached(zone, wanted.order) {
                    None => refusals.fragmented += 1,
                    limit => refusals.limit = refusals.limit.or(limit),
                }
                Refusal::Block
            } else {
                refusals.below_watermark += 1;
                Refusal::Watermark
            };
            if hints.refused(position, refusal, || self.platform.now_ns()) {
                self.platform.touch(cache.line(position), Access::Write);
            }
        }
        Err(refusals)
    }

    /// The zone that a request would look at first if it were not for its policy and its cpuset, and why it may
    /// not use it, if it may not.
    pub(super) fn nearest(&self, wanted: &Wanted<'_>) -> Option<(&'m Zone<'m, P>, Option<Reason>)> {
        loop {
            let list = self.list(wanted).read();
            let position = self.positions(list, wanted).next()?;
            if let Some(zone) = self.zone_at(list, position) {
                return Some((zone, self.excludes(zone, wanted)));
            }
        }
    }

    /// Counts an allocation that came from another zone than the preferred one. Facts 11.1.
    fn note_placement(
        &self,
        preferred: &Zone<'m, P>,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        hints: &Hints<'_, 'm>,
    ) {
        if preferred.node() != zone.node() {
            ZoneEvents::add(&zone.events().miss, 1);
            ZoneEvents::add(&preferred.events().foreign, 1);
        }
        self.note_fallback(wanted, zone, wanted.order.pages(), || match hints.have_skipped() {
            true => Reason::Hint,
            false => self.why_not(preferred, wanted, flags),
        });
    }

    /// Whether a zone passes its watermark. A zone below its high mark is noted as such first: its pagesets
    /// stop growing.
    fn may_take(&self, zone: &Zone<'m, P>, wanted: &Wanted<'_>, flags: AllocFlags) -> bool {
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
    /// `rmqueue`, facts 4.2.
    fn take_from(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        first_zone: FirstZone,
    ) -> Option<u32> {
        let mut number = None;
        if first_zone == FirstZone::Untried {
            number = self.take_cached(zone, wanted, flags);
        }
        let number = number.or_else(|| self.take_direct(zone, wanted, flags));
        self.wake_if_boosted(zone, flags);
        number
    }

    fn take_cached(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let list = list_index(wanted.order, wanted.migratetype)?;
        let cpu = self.this_cpu()?;
        let pageset = &cpu.pagesets[zone.index().0 as usize];
        match self.alloc_from_pageset(pageset, list, wanted.trip(flags)) {
            FromPageset::Block(number) => Some(number),
            FromPageset::Nothing | FromPageset::Busy => None,
        }
    }

    /// A block straight from the buddy.
    fn take_direct(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let number = {
            let mut guard = zone.lock_to_take(flags);
            if guard.claim(1, wanted.order) == 0 {
                return None;
            }
            self.platform.touch(zone.published_line(), Access::Write);
            guard.buddy().serve(self.platform.storage().current_cpu());
            let number = take_block(guard.buddy(), *zone.frames(), wanted.trip(flags))?;
            guard.note_moved(wanted.order.pages().0);
            number
        };
        self.platform.touch_page(zone.frames().pfn(number), Access::Write);
        let events = zone.events();
        ZoneEvents::add(&events.direct_allocs, 1);
        ZoneEvents::add(&events.direct_alloc_pages, wanted.order.pages().0);
        if self.this_node() != zone.node() {
            ZoneEvents::add(&events.direct_other, 1);
        }
        self.wake_above_soft_limit(zone, flags);
        Some(number)
    }

    /// Wakes background reclaim of a zone whose watermarks were boosted. `mm/page_alloc.c: rmqueue`, 6.12.
    pub(super) fn wake_if_boosted(&self, zone: &Zone<'m, P>, flags: AllocFlags) {
        if flags.has(AllocFlags::KSWAPD) && zone.take_boosted() {
            let (node, kind) = (self.node_id(zone.node()), zone.kind());
            let shortage = Shortage { node, kind, order: Order(0), gfp: Gfp(0) };
            self.platform.wake_reclaim(shortage);
        }
    }

    /// The id of a node.
    pub(super) fn node_id(&self, node: NodeIndex) -> crate::units::NodeId {
        self.nodes[node.0 as usize].id
    }
}

/// A block from the buddy: from the reserve first for those that it is for, and last for others who cannot
/// wait. `rmqueue_buddy`, facts 1.7.
fn take_block(buddy: &mut Buddy, frames: ZoneFrames<'_>, trip: Trip) -> Option<u32> {
    let reserved = |buddy: &mut Buddy, rights| {
        if trip.flags.intersects(rights) { buddy.alloc_reserved(frames, trip.order) } else { None }
    };
    reserved(buddy, AllocFlags::HIGHATOMIC)
        .or_else(|| buddy.alloc(frames, trip.block()))
        .or_else(|| reserved(buddy, AllocFlags::OOM.or(AllocFlags::NON_BLOCK)))
}

/// The flags of the first scan: the low mark, and no mixing of pageblocks where the preferred zone has
/// alternatives. Facts 4.1.
pub(super) fn first_flags<P: Platform>(gfp: Gfp, preferred: &Zone<'_, P>) -> AllocFlags {
    let when = |condition, flags| if condition { flags } else { AllocFlags::WMARK_MIN };
    AllocFlags::WMARK_LOW
        .or(when(gfp.has(Gfp::KSWAPD_RECLAIM), AllocFlags::KSWAPD))
        .or(when(preferred.avoids_fragmentation(), AllocFlags::NOFRAGMENT))
}

#[cfg(test)]
mod tests {
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::Config;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::topology::{AddressMap, NodeBuf, TopologyBuf};
    use crate::units::{CpuId, NodeId, PfnRange};
    use crate::watermark::Settings;

    const HALF_PAGEBLOCK: Request = Request::new(Order(8), Gfp::HIGHUSER_MOVABLE);
    const UNMOVABLE: Request = Request::new(Order(0), Gfp::KERNEL);

    /// A machine with memory below and above 4 GiB, one half of each pageblock above in use as movable.
    fn with_half_used_pageblocks<R>(
        nodes: u32,
        below: u64,
        run: impl FnOnce(&PageAllocator<'_, PlainPlatform>) -> R,
    ) -> R {
        let bound = 1 << 20;
        let node = |id: u32| NodeBuf {
            id: NodeId(id),
            memory: if id == 0 { vec![PfnRange::new(bound - below, bound + 4096)] } else { vec![] },
            cpus: vec![CpuId(id)],
            movable_from: None,
        };
        let distance = |at: u32| if at / nodes == at % nodes { 10 } else { 20 };
        let topology = TopologyBuf {
            nodes: (0..nodes).map(node).collect(),
            distances: (0..nodes * nodes).map(distance).collect(),
            address_map: AddressMap::X86,
        };
        let settings = Settings { min_free_kbytes: Some(0), ..Settings::default() };
        let config = Config { settings, ..Config::default() };
        TestMachine::from(topology).config(config).run(|allocator| {
            let is_above = |pfn: &Pfn| pfn.0 >= bound;
            let take = || allocator.alloc(HALF_PAGEBLOCK).ok().filter(is_above);
            let blocks: Vec<Pfn> = core::iter::from_fn(take).collect();
            let upper_halves = blocks.iter().filter(|pfn| pfn.0 % 512 != 0);
            for lower in upper_halves.map(|pfn| Pfn(pfn.0 - 256)) {
                assert!(blocks.contains(&lower));
                allocator.free(lower, Order(8)).unwrap();
            }
            run(allocator)
        })
    }

    fn kind_of_next(allocator: &PageAllocator<'_, PlainPlatform>) -> ZoneKind {
        let pfn = allocator.alloc(UNMOVABLE).unwrap();
        allocator.topology().zone_kind_of(pfn).unwrap()
    }

    #[test]
    fn pageblocks_are_not_mixed_while_a_lower_zone_has_whole_ones() {
        with_half_used_pageblocks(1, 4096, |allocator| {
            assert_eq!(kind_of_next(allocator), ZoneKind::Dma32);
            assert!(allocator.zones().iter().all(|zone| zone.boost() == PageCount(0)));
        });
    }

    #[test]
    fn pageblocks_are_mixed_rather_than_none_given_and_the_watermarks_rise() {
        with_half_used_pageblocks(1, 0, |allocator| {
            let zone = allocator.zones()[0];
            let (before, wakes) = (zone.marks(), allocator.platform().wakes.get());
            assert_eq!(kind_of_next(allocator), ZoneKind::Normal);
            assert_eq!(zone.boost(), PageCount(512));
            assert_eq!(zone.marks().low.0, before.low.0 + 512);
            assert_eq!(allocator.platform().wakes.get(), wakes + 1);
            zone.lower_boost(PageCount(600));
            assert_eq!(zone.marks(), before);
        });
    }

    #[test]
    fn without_a_lower_zone_other_nodes_are_no_reason_to_avoid_mixing() {
        for (nodes, below, avoids) in [(1, 0, true), (2, 0, false), (2, 4096, true)] {
            with_half_used_pageblocks(nodes, below, |allocator| {
                let zone = allocator.zones().last().unwrap();
                assert_eq!(zone.avoids_fragmentation(), avoids, "{nodes} nodes, {below} below");
            });
        }
    }
}
