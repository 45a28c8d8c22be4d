//! What happens to a machine beside allocation and free: memory, nodes and CPUs that come and go, ranges, drains, settings,
//! limits, pageblocks that change their type.

use nearpage::testing::generate::{any_settings, next_arrival};
use nearpage::{
    CpuId, Lending, LentPages, LimitOf, Limits, Migratetype, NodeAccess, OfflineError, Order,
    PageCount, Pfn, PfnRange, RangeError, ZoneIndex,
};

use crate::naive::{PAGEBLOCK, Page, Wrong, holds};
use crate::play::Play;
use crate::requests::usable;

impl Play<'_, '_> {
    /// Operations that are rare in life, but the reason for many states.
    pub(super) fn rare(&mut self) -> Result<(), Wrong> {
        match self.random.below(16) {
            0 => self.drain(),
            1 => self.decay(),
            2 => self.lend(),
            3 | 4 => self.change_settings(),
            5 => self.grow(),
            6 => self.shrink(),
            7 => self.take_range(),
            8 => self.take_contiguous(),
            9 => self.switch_cpu(),
            10 | 11 => self.change_limits(),
            12 => self.retype(),
            13 => self.change_access(),
            14 => self.prepare_host(),
            _ => self.change_pressure(),
        }
    }

    /// The next calls for help will be answered.
    fn prepare_host(&mut self) -> Result<(), Wrong> {
        self.now("prepare_host", format_args!(""));
        let mut calls = self.allocator.platform().calls.get();
        calls.reclaims_that_help = self.random.one_of(&[0, 1, 5, 40]);
        calls.kills_that_help = self.random.one_of(&[0, 1, 2]);
        calls.answers_from = self.random.below(20);
        self.allocator.platform().calls.set(calls);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Wrong> {
        let zone = self.any_zone();
        let cpu = if self.cpus.is_empty() { CpuId(0) } else { self.random.one_of(&self.cpus) };
        let pagesets = |play: &Self, cpu| play.allocator.pagesets(cpu).unwrap_or_default();
        let (drained, left): (_, Vec<PageCount>) = match self.random.below(3) {
            0 => {
                self.now("drain_cpu", format_args!("{cpu}"));
                let drained = self.allocator.drain_cpu(cpu);
                (drained, pagesets(self, cpu).iter().map(|it| it.count()).collect())
            }
            1 => {
                self.now("drain_zone", format_args!("{zone}"));
                let drained = self.allocator.drain_zone(self.allocator.zones()[zone]);
                let left = self.cpus.iter().map(|&cpu| pagesets(self, cpu)[zone].count());
                (drained, left.collect())
            }
            _ => {
                self.now("drain_all", format_args!(""));
                let drained = self.allocator.drain_all();
                let all = self.cpus.iter().flat_map(|&cpu| pagesets(self, cpu));
                (drained, all.map(|it| it.count()).collect())
            }
        };
        drained.map_err(|error| error.to_string())?;
        let left: u64 = left.iter().map(|pages| pages.0).sum();
        holds(left == 0, || format!("{left} pages are left"))
    }

    /// What is lent is nobody's, or a holder could not free it later; and no page is lent twice.
    fn lend(&mut self) -> Result<(), Wrong> {
        let zone = self.allocator.zones()[self.any_zone()];
        let unit = Order(self.random.one_of(&[0, 0, 2, 4, 6, 9]));
        let turn = self.random.one_of(&[None, Some(1), Some(2)]);
        self.now("lend", format_args!("{zone}, {unit:?}, {turn:?}", zone = zone.index().0));
        let lend_all = |turn: Option<u32>| {
            let (mut from, mut lent) = (zone.span().start, vec![]);
            let lending = Lending { unit, turn };
            let next = |from: Pfn| PfnRange { start: from, end: zone.span().end };
            while let Some(some) = self.allocator.lend_free_pages(zone.index(), next(from), lending)
            {
                from = some.range().end;
                lent.push(some);
            }
            lent
        };
        let lent = lend_all(turn);
        let is_right = |some: &&LentPages<'_, _>| {
            let pages = some.range().pages().0;
            pages % unit.pages().0 == 0 && (1..=pages).contains(&some.touched().0)
        };
        holds(lent.iter().all(|some| is_right(&some)), || format!("{lent:?}"))?;
        let ranges: Vec<PfnRange> = lent.iter().map(LentPages::range).collect();
        drop(lent);
        // Others than before, if some were not free for all while those were lent.
        let again = lend_all(None);
        let is_new = |some: &LentPages<'_, _>| {
            ranges.iter().all(|range| range.intersection(some.range()).is_empty())
        };
        holds(again.iter().all(is_new), || format!("{again:?} are lent once more"))
    }

    fn decay(&mut self) -> Result<(), Wrong> {
        let ns = self.random.one_of(&[1, 30_000_000, 300_000_000, 1_000_000_001]);
        self.now("decay", format_args!("{ns}"));
        let now_ns = &self.allocator.platform().now_ns;
        now_ns.set(now_ns.get() + ns);
        for &cpu in &self.cpus {
            let free =
                || -> u64 { self.allocator.zones().iter().map(|zone| zone.free_pages().0).sum() };
            let before = free();
            let pages = self.allocator.decay_cpu(cpu).map_err(|error| error.to_string())?.0;
            let more = free() - before;
            holds(more == pages, || format!("{more} came back, and not {pages}"))?;
        }
        Ok(())
    }

    fn change_settings(&mut self) -> Result<(), Wrong> {
        let (topology, page_shift) = (&self.machine.topology, self.machine.config.page_shift);
        let settings = any_settings(&mut self.random, topology, page_shift);
        self.now("set_settings", format_args!("{settings:?}"));
        self.allocator.set_settings(settings).map_err(|error| error.to_string())
    }

    fn any_zone(&mut self) -> usize {
        self.random.below(self.allocator.zones().len() as u64) as usize
    }

    fn change_pressure(&mut self) -> Result<(), Wrong> {
        let (zone, active) = (self.any_zone(), self.one_in(3));
        self.now("set_reclaim_active", format_args!("{zone}, {active}"));
        self.allocator.set_reclaim_active(ZoneIndex(zone as u16), active);
        self.allocator.lower_boost(ZoneIndex(zone as u16), PageCount(self.random.below(2000)));
        Ok(())
    }

    fn change_access(&mut self) -> Result<(), Wrong> {
        let nodes = &self.machine.topology.nodes;
        let node = nodes[self.random.below(nodes.len() as u64) as usize].id;
        let access = if self.one_in(3) { NodeAccess::Private } else { NodeAccess::General };
        self.now("set_access", format_args!("{node}, {access:?}"));
        match access {
            NodeAccess::Private => self.private.insert(node),
            NodeAccess::General => self.private.remove(&node),
        };
        self.allocator.set_access(node, access).map_err(|error| error.to_string())
    }

    /// A limit near what is out now, or none.
    fn change_limits(&mut self) -> Result<(), Wrong> {
        let nodes = &self.machine.topology.nodes;
        let node = nodes[self.random.below(nodes.len() as u64) as usize].id;
        let of = if self.one_in(3) { LimitOf::Allocator } else { LimitOf::Node(node) };
        let out = self.allocator.in_use(of).map_err(|error| error.to_string())?.0;
        let pages = (out + self.random.below(2000)).saturating_sub(self.random.below(1000));
        let hard = pages << self.machine.config.page_shift;
        let hard_bytes = (!self.one_in(3)).then_some(hard);
        let soft_bytes = self.one_in(4).then_some(hard / 2).filter(|_| hard > 0);
        let limits = Limits { hard_bytes, soft_bytes, ..Limits::default() };
        self.now("set_limits", format_args!("{of:?}, {limits:?}"));
        if self.allocator.set_limits(of, limits).is_err() {
            // A soft limit that rounds to the hard one.
            holds(soft_bytes.is_some() && hard_bytes.is_some(), || "refused".to_owned())?;
        }
        let counted = self.allocator.counted_in_use(of);
        let now = self.allocator.in_use(of).map_err(|error| error.to_string())?;
        holds(counted.is_none_or(|counted| counted == now), || format!("{counted:?}, {now:?}"))
    }

    /// A pageblock gets another type, or is kept for urgent requests.
    fn retype(&mut self) -> Result<(), Wrong> {
        let pfn = self.any_frame();
        let Some(zone) = self.naive.zone_of(pfn) else { return Ok(()) };
        let of = self.random.one_of(&Migratetype::ALL[..4]);
        let start = Pfn(pfn.0 - pfn.0 % PAGEBLOCK);
        let pageblock = PfnRange { start, end: start + PageCount(PAGEBLOCK) };
        if of == Migratetype::HighAtomic {
            // The reserve is of pageblocks that were whole.
            self.allocator.drain_all().map_err(|error| error.to_string())?;
            if self.naive.first_but(pageblock, Page::Free).is_some() {
                return Ok(());
            }
        }
        self.now("retype_pageblock", format_args!("{pfn}, {}", of.name()));
        let free = self.allocator.zones()[zone].free_pages();
        self.allocator.retype_pageblock(ZoneIndex(zone as u16), pfn, of);
        let now = self.allocator.zones()[zone].free_pages();
        holds(now == free, || format!("{now} pages are free, and not {free}"))
    }

    /// More memory comes, all of a range or its first part.
    fn grow(&mut self) -> Result<(), Wrong> {
        match next_arrival(&mut self.later, &mut self.random) {
            Some(range) => self.online(range),
            None => Ok(()),
        }
    }

    pub(super) fn online(&mut self, range: PfnRange) -> Result<(), Wrong> {
        self.now("online", format_args!("{range}"));
        let pages = self.allocator.online(range).map_err(|error| error.to_string())?;
        holds(pages == range.pages(), || format!("{pages} pages"))?;
        self.naive.fill(range, Page::Free);
        Ok(())
    }

    /// A few pageblocks, likely not all free, or any range.
    fn some_range(&mut self) -> PfnRange {
        let (at, pages) = (self.any_frame().0, 1 + self.random.below(5) * PAGEBLOCK);
        match self.one_in(8) {
            true => PfnRange::new(at, at + pages),
            false => PfnRange::new(
                at - at % PAGEBLOCK,
                at - at % PAGEBLOCK + pages / PAGEBLOCK * PAGEBLOCK,
            ),
        }
    }

    /// Whether an attempt to empty a range went as it should.
    fn is_emptied_rightly(
        &self,
        range: PfnRange,
        told: Result<(), OfflineError>,
    ) -> Result<bool, Wrong> {
        let is_online =
            (range.start.0..range.end.0).all(|pfn| self.naive.page(Pfn(pfn)) != Page::Absent);
        let may = !range.is_empty() && is_online && self.naive.is_in_whole_pageblocks(range);
        let held = if may { self.naive.held_in(range) } else { 0 };
        let is_right = match told {
            Ok(()) => may && held == 0,
            Err(OfflineError::InUse { pages, first, undrained }) => {
                let is_held = matches!(self.naive.page(first), Page::Held | Page::InRange);
                may && pages.0 == held && is_held && range.contains(first) && undrained.is_none()
            }
            Err(_) => !may,
        };
        holds(is_right, || format!("{told:?}, and {held} are held"))?;
        Ok(told.is_ok())
    }

    fn shrink(&mut self) -> Result<(), Wrong> {
        let range = self.some_range();
        self.now("offline", format_args!("{range}"));
        let told = self.allocator.offline(range).map(|_| ());
        if self.is_emptied_rightly(range, told)? {
            self.naive.fill(range, Page::Absent);
            self.later.push(range);
        }
        Ok(())
    }

    /// A few pages, or a few pageblocks.
    fn take_range(&mut self) -> Result<(), Wrong> {
        let range = match self.one_in(2) {
            true => self.some_range(),
            false => {
                let at = self.any_frame().0;
                PfnRange::new(at, at + 1 + self.random.below(40))
            }
        };
        if self.one_in(4) {
            return self.take_within(range);
        }
        self.now("alloc_at", format_args!("{range}"));
        let told = self.allocator.alloc_at(range.start, range.pages());
        let held = self.naive.held_in(range);
        let of_start = self.naive.zone_of(range.start);
        let is_right = match told {
            Ok(()) => self.naive.is_free_in_one_zone(range),
            Err(RangeError::InUse { pages, first, undrained }) => {
                let is_held = matches!(self.naive.page(first), Page::Held | Page::InRange);
                pages.0 == held && is_held && range.contains(first) && undrained.is_none()
            }
            Err(RangeError::NotOnline { first }) => {
                self.naive.page(first) == Page::Absent && range.contains(first)
            }
            Err(RangeError::OtherZone { first }) => {
                let is_other = self.naive.zone_of(first) != of_start;
                range.contains(first)
                    && (is_other || self.naive.is_shared(first.0 - first.0 % PAGEBLOCK))
            }
            Err(RangeError::Empty { .. }) => range.is_empty(),
            Err(_) => false,
        };
        holds(is_right, || format!("{told:?}, and {held} are held"))?;
        told.map_or(Ok(()), |()| self.naive.take_range(range).map(drop))
    }

    /// The first pages of a range that are free, and about as many.
    fn take_within(&mut self, range: PfnRange) -> Result<(), Wrong> {
        let (pages, align) = (1 + self.random.below(600), self.random.below(8) as u8);
        self.now("alloc_within", format_args!("{range}, {pages}, {align}"));
        match self.allocator.alloc_within(range, PageCount(pages), Order(align)) {
            Ok(taken) => {
                let is_as_asked = taken.pages().0 == pages
                    && taken.start.0.is_multiple_of(1 << align)
                    && taken.intersection(range) == taken;
                holds(is_as_asked, || format!("{taken} is not what was asked for"))?;
                self.naive.take_range(taken).map(drop)
            }
            Err(_) => {
                let mut zones = 0..self.naive.zones.len();
                let has_one =
                    |&zone: &usize| self.naive.has_free_range(zone, range, pages, 1 << align);
                let found = zones.find(has_one);
                holds(found.is_none(), || format!("zone {found:?} has such a range"))
            }
        }
    }

    fn take_contiguous(&mut self) -> Result<(), Wrong> {
        let request = self.request();
        let (pages, align) = (1 + self.random.below(3000), Order(self.random.below(12) as u8));
        self.now("alloc_contiguous", format_args!("{pages}, {align}, {request:?}"));
        match self.allocator.alloc_contiguous(PageCount(pages), align, request) {
            Ok(range) => {
                let is_as_asked =
                    range.pages().0 == pages && range.start.0.is_multiple_of(1 << align.0);
                holds(is_as_asked, || format!("{range} is not what was asked for"))?;
                let zone = self.naive.take_range(range)?;
                self.is_of_usable_zone(request, zone)
            }
            Err(nearpage::AllocError::NoRange { .. }) => {
                let zones = self.usable_zones(request);
                let all = PfnRange::new(0, u64::MAX);
                let has_one =
                    |&&zone: &&usize| self.naive.has_free_range(zone, all, pages, 1 << align.0);
                let found = zones.iter().find(has_one);
                holds(found.is_none(), || format!("zone {found:?} has such a range"))
            }
            // The flags, or the node.
            Err(_) => Ok(()),
        }
    }

    fn usable_zones(&self, request: nearpage::Request) -> Vec<usize> {
        let zones = usable(self.allocator, &self.private, self.cpu(), request);
        zones.iter().map(|zone| zone.index().0 as usize).collect()
    }

    /// A CPU goes off or on, whichever it is not.
    fn switch_cpu(&mut self) -> Result<(), Wrong> {
        if self.cpus.is_empty() {
            return Ok(());
        }
        let cpu = self.random.one_of(&self.cpus);
        let told = match self.allocator.is_cpu_on(cpu) {
            true => {
                self.now("offline_cpu", format_args!("{cpu}"));
                self.allocator.offline_cpu(cpu).map(drop)
            }
            false => {
                self.now("online_cpu", format_args!("{cpu}"));
                self.allocator.online_cpu(cpu)
            }
        };
        told.map_err(|error| error.to_string())
    }
}
