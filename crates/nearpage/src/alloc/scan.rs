//! The scan: the zones of a zonelist in order, the first one that may be taken from. Facts 4.1, 4.2.

use super::RuleSet;
use super::allocator::PageAllocator;
use super::hints::{Hints, Others, Refusal};
use super::near::hand_out;
use super::refill::FromPageset;
use super::wanted::{FirstZone, Wanted};
use crate::error::LimitOf;
use crate::gfp::Gfp;
use crate::host::{Access, Platform, Shortage};
use crate::pcp::list_index;
use crate::reason::Reason;
use crate::units::{Order, PageCount, Pfn};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents, ZoneRules};
use crate::zonelist::list::Reading;

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
            if result.is_err() && flags.contains(AllocFlags::NOFRAGMENT) {
                flags = flags.difference(AllocFlags::NOFRAGMENT);
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
        let avoids = flags.contains(AllocFlags::NOFRAGMENT);
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
            let tried = if position == hints.first() { first_zone } else { FirstZone::Untried };
            match self.ask(zone, wanted, flags, tried, &mut refusals) {
                Ok(number) => {
                    self.note_placement(first, zone, wanted, flags, hints);
                    return Ok(self.hand_out_scanned(zone, wanted, flags, number));
                }
                Err(refusal) => {
                    if hints.refused(position, refusal, || self.platform.now_ns()) {
                        self.platform.touch(cache.line(position), Access::Write);
                    }
                }
            }
        }
        Err(refusals)
    }

    /// Asks one zone for a block: its watermark first, or the host that may reclaim there. Adds what it saw to
    /// `refusals`.
    fn ask(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        tried: FirstZone,
        refusals: &mut Refusals,
    ) -> Result<u32, Refusal> {
        self.platform.touch(zone.marks_line(), Access::Read);
        self.platform.touch(zone.published_line(), Access::Read);
        refusals.zones += 1;
        refusals.free.0 += zone.free_pages().0;
        let passes = tried == FirstZone::PagesetTried
            || self.may_take(zone, wanted, flags)
            || self.node_reclaim_helps(zone, wanted, flags);
        if !passes {
            refusals.below_watermark += 1;
            return Err(Refusal::Watermark);
        }
        self.take_from(zone, wanted, flags, tried).ok_or_else(|| {
            match self.limit_reached(zone, wanted.order) {
                None => refusals.fragmented += 1,
                limit => refusals.limit = refusals.limit.or(limit),
            }
            Refusal::Block
        })
    }

    /// Hands a block out. One that was taken for an urgent request of higher order reserves its pageblock.
    fn hand_out_scanned(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
        number: u32,
    ) -> Pfn {
        if flags.contains(AllocFlags::HIGHATOMIC) {
            P::Rules::reserve_for(zone, number, wanted.order);
        }
        let allocated = P::Rules::held_word(self, zone, number, wanted);
        hand_out(zone.frames(), number, allocated, wanted.order)
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
            let high =
                flags.difference(AllocFlags(AllocFlags::WMARK_MASK)).union(AllocFlags::WMARK_HIGH);
            if zone.passes(wanted.order, high, wanted.kind) {
                return true;
            }
            zone.set_below_high();
        }
        flags.contains(AllocFlags::NO_WATERMARKS) || zone.passes(wanted.order, flags, wanted.kind)
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
        let number = number.or_else(|| P::Rules::take_block(self, zone, wanted, flags));
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
        match self.alloc_from_pageset(pageset, list, wanted.of_zone(flags)) {
            FromPageset::Block(number) => Some(number),
            FromPageset::Nothing | FromPageset::Busy => None,
        }
    }

    /// Counts blocks that came straight from a zone.
    pub(crate) fn note_direct(&self, zone: &Zone<'m, P>, blocks: u64, order: Order) {
        let events = zone.events();
        ZoneEvents::add(&events.direct_allocs, blocks);
        ZoneEvents::add(&events.direct_alloc_pages, blocks << order.0);
        if self.this_node() != zone.node() {
            ZoneEvents::add(&events.direct_other, blocks);
        }
    }

    /// Wakes background reclaim of a zone whose watermarks were boosted. `mm/page_alloc.c: rmqueue`, 6.12.
    pub(crate) fn wake_if_boosted(&self, zone: &Zone<'m, P>, flags: AllocFlags) {
        if flags.contains(AllocFlags::KSWAPD) && zone.take_boosted() {
            let (node, kind) = (self.node_id(zone.node()), zone.kind());
            let shortage = Shortage { node, kind, order: Order(0), gfp: Gfp(0) };
            self.platform.wake_reclaim(shortage);
        }
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::Config;
    use crate::alloc::Request;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::topology::{AddressMap, NodeBuf, TopologyBuf};
    use crate::units::ZoneKind;
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
