//! Random operations, each looked at.

use std::collections::BTreeSet;
use std::fmt;

use nearpage::testing::generate::{EXTRAS, RandomMachine, any_size};
use nearpage::testing::random::Random;
use nearpage::{
    AllocError, CpuId, FreeError, Gfp, Migratetype, NodeId, Order, PageAllocator, PageCount, Pfn,
    PfnRange, Request, ZoneIndex,
};

use crate::host::Host;
use crate::naive::{Naive, Page, Wrong, free_in_whole_pageblocks, holds};
use crate::requests::{Before, refusal_is_right, usable};
use crate::run::{Plan, Planted, Tally};

/// Most pages of one bulk operation.
const BULK_MAX: u64 = 1400;

/// Orders asked for, with equal weights.
const ORDERS: [&[u8]; 6] = [
    &[0],
    &[0, 0, 0, 0, 0, 0, 1, 2, 3],
    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    &[0, 0, 0, 9, 9, 10],
    &[0, 4, 5, 6, 7, 8],
];

const KINDS: [Gfp; 11] = [
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::ATOMIC,
    Gfp::NOWAIT,
    Gfp::KERNEL.union(Gfp::DMA32),
    Gfp::KERNEL.union(Gfp::DMA),
    Gfp::TRANSHUGE,
];

/// What the operations of a run have in common: runs differ more than operations within a run do.
struct Habits {
    orders: &'static [u8],
    kinds: Vec<Gfp>,
    /// Frees, of 100, of any block; others are of the block taken last.
    free_any_percent: u64,
    /// Rare operations come in so many.
    rare_every: u64,
    /// Nanoseconds that each operation takes.
    tick_ns: u64,
}

impl Habits {
    fn new(random: &mut Random) -> Self {
        let kinds = 1 + random.below(KINDS.len() as u64);
        Self {
            orders: random.one_of(&ORDERS),
            kinds: (0..kinds).map(|_| random.one_of(&KINDS)).collect(),
            free_any_percent: random.one_of(&[0, 50, 100]),
            rare_every: random.one_of(&[10, 40, 200]),
            tick_ns: random.one_of(&[0, 1000, 100_000, 1_000_000, 10_000_000]),
        }
    }
}

/// A machine and its model.
pub struct Play<'a, 'm> {
    pub(super) machine: &'a RandomMachine,
    pub(super) allocator: &'a PageAllocator<'m, Host>,
    pub(super) naive: Naive,
    pub(super) random: Random,
    plan: Plan,
    habits: Habits,
    pub(super) cpus: Vec<CpuId>,
    cpu: CpuId,
    /// Memory that is still to come.
    pub(super) later: Vec<PfnRange>,
    /// Nodes that only requests that name them reach.
    pub(super) private: BTreeSet<NodeId>,
    filling: bool,
    is_planted: bool,
    operation: String,
    tally: Tally,
}

impl<'a, 'm> Play<'a, 'm> {
    /// A machine none of whose memory is online.
    pub fn new(
        machine: &'a RandomMachine,
        allocator: &'a PageAllocator<'m, Host>,
        mut random: Random,
        plan: Plan,
    ) -> Self {
        let nodes = &machine.topology.nodes;
        Self {
            machine,
            allocator,
            naive: Naive::new(allocator),
            habits: Habits::new(&mut random),
            random,
            plan,
            cpus: nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect(),
            cpu: CpuId(0),
            later: machine.later.clone(),
            private: BTreeSet::new(),
            filling: true,
            is_planted: false,
            operation: String::new(),
            tally: Tally::new(),
        }
    }

    /// Brings the first memory online, does the operations, and gives everything back.
    pub fn run(mut self) -> Result<Tally, Wrong> {
        for at in 0..=self.plan.operations {
            let done = match at {
                0 => self.begin(),
                _ if at == self.plan.operations => self.end(),
                _ => self.step().and_then(|()| self.look(at)),
            };
            let CpuId(cpu) = self.cpu;
            done.map_err(|wrong| {
                format!("operation {at}, CPU {cpu}: {}: {wrong}", self.operation)
            })?;
        }
        Ok(self.tally)
    }

    /// Says what is done now.
    pub(super) fn now(&mut self, name: &'static str, details: fmt::Arguments<'_>) {
        *self.tally.entry(name).or_default() += 1;
        self.operation = format!("{name}({details})");
    }

    fn begin(&mut self) -> Result<(), Wrong> {
        if self.plan.planted == Planted::LostBlock {
            self.allocator.platform().lose_a_block_in_drain(3);
        }
        for range in self.machine.boot.clone() {
            self.online(range)?;
        }
        self.counters()
    }

    fn step(&mut self) -> Result<(), Wrong> {
        if self.one_in(8) {
            self.choose_cpu();
        }
        let now_ns = &self.allocator.platform().now_ns;
        now_ns.set(now_ns.get() + self.habits.tick_ns);
        self.filling ^= self.one_in(400);
        if self.one_in(self.habits.rare_every) {
            return self.rare();
        }
        let frees_of_four = if self.filling { 1 } else { 3 };
        match (self.random.below(4) < frees_of_four, self.random.below(20)) {
            (false, 0) => self.alloc_bulk(),
            (false, _) => self.alloc(),
            (true, 0 | 1) => self.free_bulk(),
            (true, 2) => self.free_wrongly(),
            (true, 3) => self.free_part(),
            (true, _) => self.free(),
        }
    }

    /// Looks at counters now and then, and has the walker look at everything.
    fn look(&mut self, at: u64) -> Result<(), Wrong> {
        if self.plan.thorough || at.is_multiple_of(16) {
            self.counters()?;
        }
        if self.plan.thorough && self.machine_is_small() || at.is_multiple_of(1000) {
            self.walk()?;
        }
        if at >= self.plan.operations / 2 && !self.is_planted {
            self.is_planted = self.plant()?;
        }
        Ok(())
    }

    fn machine_is_small(&self) -> bool {
        self.naive.zones.iter().map(|zone| zone.online).sum::<u64>() < 1 << 16
    }

    /// The model goes wrong, if it is to; returns whether it could.
    fn plant(&mut self) -> Result<bool, Wrong> {
        let some = |naive: &Naive| naive.held.iter().position(|blocks| !blocks.is_empty());
        match self.plan.planted {
            Planted::ForgottenBlock => {
                let Some(order) = some(&self.naive) else { return Ok(false) };
                let first = self.naive.pick(order, None).expect("one is held");
                self.naive.give(first, Order(order as u8));
            }
            Planted::HeldTwice => {
                let memory = self.machine.boot.iter();
                let mut pages = memory.flat_map(|range| range.start.0..range.end.0).map(Pfn);
                let free = pages.find(|&pfn| self.naive.page(pfn) == Page::Free);
                let Some(free) = free else { return Ok(false) };
                self.naive.take(free, Order(0))?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Each page of a zone is free, with a CPU, or with the caller; what is out is what is not free.
    fn counters(&self) -> Result<(), Wrong> {
        for (zone, numbers) in self.allocator.zones().iter().zip(&self.naive.zones) {
            let number = zone.index().0;
            let managed = zone.managed().0;
            holds(managed == numbers.online, || format!("zone {number} manages {managed}"))?;
            let of_zone = |&cpu: &CpuId| {
                let pagesets = self.allocator.pagesets(cpu).expect("a known CPU");
                pagesets[number as usize].count().0
            };
            let kept: u64 = self.cpus.iter().map(of_zone).sum();
            let free = zone.free_pages().0;
            holds(free + kept + numbers.held == managed, || {
                format!("zone {number}: {free} free, {kept} kept, of {managed} pages: {numbers:?}")
            })?;
        }
        for &cpu in self.cpus.iter().filter(|&&cpu| !self.allocator.is_cpu_on(cpu)) {
            let pagesets = self.allocator.pagesets(cpu).expect("a known CPU");
            let is_empty = pagesets.iter().all(|pageset| pageset.count() == PageCount(0));
            holds(is_empty, || format!("CPU {cpu} is off and keeps pages"))?;
        }
        Ok(())
    }

    fn held(&self) -> u64 {
        self.naive.zones.iter().map(|zone| zone.held).sum()
    }

    fn walk(&self) -> Result<(), Wrong> {
        let found = self.allocator.check().map_err(|error| format!("the walker: {error}"))?;
        let held = self.held();
        holds(found.allocated.0 == held, || format!("the walker: {found:?}, {held} are held"))
    }

    /// Everything is given back: nothing is lost, and all is whole.
    fn end(&mut self) -> Result<(), Wrong> {
        for order in 0..11 {
            while let Some(first) = self.naive.pick(order, None) {
                self.free_block(first, Order(order as u8))?;
            }
        }
        while let Some(&range) = self.naive.ranges.last() {
            self.free_of_range(range)?;
        }
        self.allocator.drain_all().map_err(|error| error.to_string())?;
        self.counters()?;
        self.walk()?;
        self.now("end", format_args!(""));
        for (number, zone) in self.allocator.zones().iter().enumerate() {
            self.unreserve(ZoneIndex(number as u16));
            let (free, managed) = (zone.free_pages().0, zone.managed().0);
            holds(free == managed, || format!("zone {number}: {free} of {managed} are free"))?;
            let kept = (zone.kept_back().0, zone.reserved_pages().0);
            holds(kept == (0, 0), || format!("zone {number} keeps {kept:?} back"))?;
            let whole = free_in_whole_pageblocks(zone) / crate::naive::PAGEBLOCK;
            let expected = self.naive.whole_pageblocks(number);
            holds(whole == expected, || {
                format!("zone {number}: {whole} pageblocks of {expected} are whole")
            })?;
        }
        self.walk()
    }

    fn unreserve(&self, zone: ZoneIndex) {
        let span = self.allocator.zones()[zone.0 as usize].span();
        for pfn in (span.start.0..span.end.0).step_by(crate::naive::PAGEBLOCK as usize).map(Pfn) {
            let is_known = self.naive.zone_of(pfn) == Some(zone.0 as usize);
            let of = |pfn| self.allocator.zones()[zone.0 as usize].pageblock_type(pfn);
            if is_known && of(pfn) == Migratetype::HighAtomic {
                self.allocator.retype_pageblock(zone, pfn, Migratetype::Movable);
            }
        }
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.random.one_in(n)
    }

    pub(super) fn cpu(&self) -> CpuId {
        self.cpu
    }

    fn choose_cpu(&mut self) {
        let is_known = !self.cpus.is_empty() && !self.one_in(12);
        self.cpu = match is_known {
            true => self.random.one_of(&self.cpus),
            false => CpuId(self.random.one_of(&[0, 1, 5000, u32::MAX])),
        };
        self.allocator.platform().run_on(self.cpu);
    }

    /// Of single pages.
    pub(super) fn request(&mut self) -> Request {
        let ids: Vec<NodeId> = self.machine.topology.nodes.iter().map(|node| node.id).collect();
        let node = match self.random.below(100) {
            0 => Some(NodeId(self.random.below(5000) as u32)),
            1..40 => Some(self.random.one_of(&ids)),
            _ => None,
        };
        let mut gfp = self.random.one_of(&self.habits.kinds);
        if self.one_in(10) {
            gfp |= self.random.one_of(&EXTRAS);
        }
        Request { order: Order(0), gfp, node }
    }

    fn alloc(&mut self) -> Result<(), Wrong> {
        let mut request = self.request();
        request.order = Order(self.random.one_of(self.habits.orders));
        if self.one_in(300) {
            request.order = Order(11 + self.random.below(245) as u8);
        }
        self.now("alloc", format_args!("{request:?}"));
        let before = Before::new(self.allocator, request, false, self.plan.planted);
        match self.allocator.alloc(request) {
            Ok(first) => self.taken(request, first)?,
            Err(error) => self.refused(request, error)?,
        }
        before.map_or(Ok(()), |before| before.check(self.allocator))
    }

    /// A block was handed out.
    fn taken(&mut self, request: Request, first: Pfn) -> Result<(), Wrong> {
        let zone = self.naive.take(first, request.order)?;
        self.is_of_usable_zone(request, zone)
    }

    pub(super) fn is_of_usable_zone(&self, request: Request, zone: usize) -> Result<(), Wrong> {
        let zones = usable(self.allocator, &self.private, self.cpu, request);
        let may = zones.iter().any(|usable| usable.index().0 as usize == zone);
        holds(may, || format!("zone {zone} is not for this request"))
    }

    fn refused(&mut self, request: Request, error: AllocError) -> Result<(), Wrong> {
        self.filling &= !self.one_in(16);
        let (gfp, topology) = (request.gfp, self.allocator.topology());
        let zones = usable(self.allocator, &self.private, self.cpu, request);
        let is_right = match error {
            AllocError::OutOfMemory { .. } | AllocError::LimitReached { .. } => {
                *self.tally.entry("requests that nobody had pages for").or_default() += 1;
                return refusal_is_right(self.allocator, &zones, request)
                    .map_err(|wrong| format!("{error}: {wrong}"));
            }
            AllocError::OrderTooLarge { .. } => request.order > Order::MAX,
            AllocError::BadFlags { .. } => gfp.zone_kind().is_none() || gfp.migratetype().is_none(),
            AllocError::UnknownNode { node } => topology.index_of(node).is_none(),
            AllocError::MemorylessNode { .. } => gfp.contains(Gfp::THISNODE) && zones.is_empty(),
            _ => false,
        };
        holds(is_right, || format!("refused: {error}"))
    }

    fn alloc_bulk(&mut self) -> Result<(), Wrong> {
        let request = self.request();
        let count = any_size(&mut self.random, 1, BULK_MAX) as usize;
        self.now("alloc_bulk", format_args!("{request:?}, {count}"));
        let before = Before::new(self.allocator, request, true, self.plan.planted);
        let mut out = vec![Pfn(u64::MAX); count];
        match self.allocator.alloc_bulk(request, &mut out) {
            Ok(got) => {
                holds(got > 0, || "no page and no error".to_owned())?;
                out[..got].iter().try_for_each(|&page| self.taken(request, page))?;
            }
            Err(error) => self.refused(request, error)?,
        }
        before.map_or(Ok(()), |before| before.check(self.allocator))
    }

    /// A block from the caller's hands: the one taken last, or any.
    fn pick(&mut self) -> Option<(Pfn, Order)> {
        let first = self.random.one_of(self.habits.orders) as usize;
        let order =
            (first..11).chain(0..first).find(|&order| !self.naive.held[order].is_empty())?;
        Some((self.pick_of(order)?, Order(order as u8)))
    }

    fn pick_of(&mut self, order: usize) -> Option<Pfn> {
        let is_any = self.random.below(100) < self.habits.free_any_percent;
        let any = is_any.then(|| self.random.below(1 << 40));
        self.naive.pick(order, any)
    }

    fn free(&mut self) -> Result<(), Wrong> {
        let Some((first, order)) = self.pick() else {
            self.filling = true;
            return Ok(());
        };
        if order > Order(0) && self.one_in(10) {
            let into = Order(self.random.below(u64::from(order.0) + 1) as u8);
            self.now("split", format_args!("{first}, {order}, {into}"));
            self.naive.split(first, order, into);
            return self.allocator.split(first, order, into).map_err(|error| error.to_string());
        }
        self.free_block(first, order)
    }

    fn free_block(&mut self, first: Pfn, order: Order) -> Result<(), Wrong> {
        self.now("free", format_args!("{first}, {order}"));
        self.naive.give(first, order);
        self.allocator.free(first, order).map_err(|error| error.to_string())
    }

    /// Part of a block, or of a range.
    fn free_part(&mut self) -> Result<(), Wrong> {
        let order = self.random.below(11) as usize;
        if self.naive.ranges.is_empty() || self.one_in(4) {
            let Some(first) = self.pick_of(order) else { return Ok(()) };
            self.naive.loosen(first, Order(order as u8));
        }
        let (last, any) = (self.naive.ranges.len() - 1, self.random.below(1 << 40) as usize);
        self.naive.ranges.swap(last, any % (last + 1));
        let range = self.naive.ranges[last];
        let pages = range.pages().0;
        let from = if self.one_in(2) { 0 } else { self.random.below(pages) };
        let count = if self.one_in(2) { pages - from } else { 1 + self.random.below(pages - from) };
        let start = range.start + PageCount(from);
        self.free_of_range(PfnRange { start, end: start + PageCount(count) })
    }

    /// Part of the last one of the ranges.
    fn free_of_range(&mut self, part: PfnRange) -> Result<(), Wrong> {
        self.now("free_range", format_args!("{part}"));
        self.naive.give_part(part);
        self.allocator.free_range(part).map_err(|error| error.to_string())
    }

    fn free_bulk(&mut self) -> Result<(), Wrong> {
        let count = any_size(&mut self.random, 1, BULK_MAX);
        let mut pages: Vec<Pfn> = (0..count).map_while(|_| self.pick_of(0)).collect();
        match self.random.below(4) {
            0 => pages.sort_unstable(),
            1 => pages.reverse(),
            _ => {}
        }
        for &page in &pages {
            self.naive.give(page, Order(0));
        }
        let right = pages.len();
        for _ in 0..if self.one_in(10) { 1 + self.random.below(3) } else { 0 } {
            // Freed in the same call, or never the caller's.
            let wrong = match self.one_in(2) && !pages.is_empty() {
                true => self.random.one_of(&pages),
                false => self.any_frame(),
            };
            if self.naive.may_free(wrong, Order(0)) == Some(false) {
                let at = self.random.below(pages.len() as u64 + 1) as usize;
                pages.insert(at, wrong);
            }
        }
        self.now("free_bulk", format_args!("{pages:?}"));
        let refused = pages.len() - right;
        match self.allocator.free_bulk(&pages) {
            Ok(()) => holds(refused == 0, || format!("{refused} wrong pages were freed")),
            Err(error) => {
                let told = (error.freed, error.refused);
                holds(told == (right, refused) && refused > 0, || format!("refused: {error}"))
            }
        }
    }

    /// A free that must be refused and change nothing, if it is wrong.
    fn free_wrongly(&mut self) -> Result<(), Wrong> {
        let order = Order(self.random.below(11) as u8);
        let held = self.naive.held[order.0 as usize].last().copied().unwrap_or(Pfn(1));
        let (pfn, order) = match self.random.below(6) {
            0 => (Pfn(self.random.one_of(&[u64::MAX, 1 << 40, 0])), order),
            1 => (held, Order(self.random.below(256) as u8)),
            2 => (held, Order(self.random.below(11) as u8)),
            3 => (Pfn(held.0 ^ 1), order),
            4 => (Pfn(held.0 + order.pages().0 / 2), Order(order.0.saturating_sub(1))),
            _ => (self.any_frame(), Order(order.0 % 4)),
        };
        if self.naive.may_free(pfn, order) != Some(false) {
            return Ok(());
        }
        self.now("wrong free", format_args!("{pfn}, order {}", order.0));
        let free = |play: &Self| -> Vec<_> {
            play.allocator.zones().iter().map(|zone| zone.free_pages()).collect()
        };
        let before = free(self);
        let told: Result<(), FreeError> = self.allocator.free(pfn, order);
        holds(told.is_err(), || "it was freed".to_owned())?;
        holds(free(self) == before, || "a free that was refused changed something".to_owned())
    }

    /// A frame of the topology's memory or near it.
    pub(super) fn any_frame(&mut self) -> Pfn {
        let nodes = &self.machine.topology.nodes;
        let ranges: Vec<PfnRange> = nodes.iter().flat_map(|node| node.memory.clone()).collect();
        let range = self.random.one_of(&ranges);
        Pfn(range.start.0.saturating_sub(2) + self.random.below(range.pages().0 + 4))
    }
}
