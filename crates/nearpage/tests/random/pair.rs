//! An allocator and its model in step: one random operation after the other on both, each answer compared.

mod hotplug;
mod moved;
mod placed;
mod upkeep;
mod wrong;

use std::fmt;

use nearpage::testing::generate::{RandomMachine, any_size};
use nearpage::testing::naive_allocator::NaiveAllocator;
use nearpage::testing::random::Random;
use nearpage::{
    AllocError, CpuId, Gfp, Migratetype, NodeId, Order, PageAllocator, Pfn, PfnRange, Reason,
    Request, ZoneKind,
};

use self::moved::Moved;
use self::placed::Prepared;
use crate::compare::{self, Difference, same};
use crate::habits::Habits;
use crate::host::Host;
use crate::run::{Plan, Planted, Tally, Thoroughness};

/// Most pages of one bulk operation.
const BULK_MAX: u64 = 1400;
/// Blocks freed lately that a double free may pick.
const FREED_MAX: usize = 64;

/// The two, and what is in the caller's hands.
pub struct Pair<'a, 'm> {
    machine: &'a RandomMachine,
    allocator: &'a PageAllocator<'m, Host>,
    naive: NaiveAllocator,
    random: Random,
    habits: Habits,
    cpus: Vec<CpuId>,
    cpu: CpuId,
    /// Blocks in the caller's hands, by order.
    held: [Vec<Pfn>; 11],
    /// Blocks freed lately.
    freed: Vec<(Pfn, Order)>,
    /// Policies and cpusets in use now.
    placements: Vec<Prepared>,
    /// Pages that came from elsewhere.
    moved: Moved,
    /// Memory that is still to come.
    later: Vec<PfnRange>,
    /// Whether more is allocated than freed now.
    filling: bool,
    /// The operation at hand in words, if somebody wants to know.
    narrative: Option<String>,
    tally: Tally,
    planted: Planted,
}

impl<'a, 'm> Pair<'a, 'm> {
    /// Both sides of a machine none of whose memory is online.
    pub fn new(
        machine: &'a RandomMachine,
        allocator: &'a PageAllocator<'m, Host>,
        naive: NaiveAllocator,
        mut random: Random,
    ) -> Self {
        let nodes = &machine.topology.nodes;
        let habits = Habits::new(&mut random);
        Self {
            machine,
            allocator,
            naive,
            random,
            habits,
            cpus: nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect(),
            cpu: CpuId(0),
            held: Default::default(),
            freed: vec![],
            placements: vec![],
            moved: Moved::default(),
            later: machine.later.clone(),
            filling: true,
            narrative: None,
            tally: Tally::default(),
            planted: Planted::Nothing,
        }
    }

    /// Brings the first memory online, does the operations, and gives everything back.
    pub fn run(mut self, plan: Plan) -> Result<Tally, Difference> {
        self.planted = plan.planted;
        self.narrative = (plan.thoroughness == Thoroughness::EachOperation).then(String::new);
        self.do_operations(plan).map_err(|difference| {
            let at = self.tally.operations;
            let operation = self.narrative.as_deref().unwrap_or("an operation");
            format!("operation {at}: {operation}: {difference}")
        })?;
        Ok(self.tally)
    }

    fn do_operations(&mut self, plan: Plan) -> Result<(), Difference> {
        for &range in &self.machine.boot {
            self.online(range)?;
        }
        self.prepare_placements();
        if self.habits.ballast {
            self.take_ballast()?;
        }
        let walk_every = self.walk_every();
        let each = plan.thoroughness == Thoroughness::EachOperation;
        while self.tally.operations < plan.operations {
            let at = self.tally.operations;
            self.step()?;
            if each || at.is_multiple_of(64) {
                compare::same_counters(self.allocator, &self.naive, &self.cpus)?;
            }
            if each || at.is_multiple_of(walk_every) {
                compare::same_lists(self.allocator, &self.naive, &self.cpus)?;
            }
            if at.is_multiple_of(walk_every) {
                compare::checked(self.allocator, &self.naive)?;
            }
        }
        self.give_everything_back()
    }

    /// Operations between two looks at all lists and frames: so many that their time is small beside that
    /// of the operations.
    fn walk_every(&self) -> u64 {
        let nodes = self.machine.topology.nodes.iter();
        let pages: u64 = nodes.flat_map(|node| &node.memory).map(|range| range.pages().0).sum();
        let lists = 14 * self.cpus.len() as u64 * self.naive.zones().len() as u64;
        ((pages + lists) / 16).clamp(300, 10_000)
    }

    /// Most of the memory in large blocks, so that the rest runs out soon.
    fn take_ballast(&mut self) -> Result<(), Difference> {
        for order in [10, 9, 7] {
            let gfp = self.random.one_of(&[Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL, Gfp::RECLAIMABLE]);
            while self.alloc(Request::new(Order(order), gfp))? {}
        }
        for order in [10, 9, 7] {
            let blocks = self.held[order].len() as u64 / 16 + 1;
            for _ in 0..self.random.below(blocks) + 1 {
                self.free_any(Order(order as u8))?;
            }
        }
        Ok(())
    }

    fn give_everything_back(&mut self) -> Result<(), Difference> {
        for order in 0..11 {
            while !self.held[order].is_empty() {
                self.free_any(Order(order as u8))?;
            }
        }
        self.drain_all()?;
        self.reasons_add_up()?;
        compare::same_counters(self.allocator, &self.naive, &self.cpus)?;
        compare::same_lists(self.allocator, &self.naive, &self.cpus)?;
        compare::checked(self.allocator, &self.naive)?;
        for zone in self.allocator.zones() {
            same("free pages when all are given back", zone.free_pages(), zone.managed())?;
        }
        for node in self.allocator.topology().indexes() {
            let counts = self.naive.scan_counts(node);
            self.tally.add_count("zones skipped by a hint", counts.zones_skipped);
            self.tally.add_count("second passes of a scan", counts.second_passes);
            self.tally.add_count("zonelist caches zapped", counts.zaps);
        }
        let indexes = || self.allocator.topology().indexes();
        for (from, to) in indexes().flat_map(|from| indexes().map(move |to| (from, to))) {
            let fallbacks = self.naive.fallbacks(from, to);
            for reason in Reason::ALL {
                self.tally.add_count(reason.name(), fallbacks.pages(reason).0);
            }
        }
        let calls = self.naive.calls;
        self.tally.add_count("compactions", calls.compactions.iter().sum());
        self.tally.add_count("reclaims of one node", calls.node_reclaims);
        self.tally.add_count("direct reclaims", calls.reclaims);
        self.tally.add_count("last resorts", calls.out_of_memory);
        for owners in self.naive.zones().iter().map(|zone| &zone.owners) {
            self.tally.add_count("pageblocks that a CPU took whole", owners.claimed);
            self.tally.add_count("pieces of owned pageblocks taken back", owners.recovered);
            self.tally.add_count("blocks freed to another CPU that owns them", owners.sent_home);
        }
        for pageset in self.cpus.iter().flat_map(|&cpu| self.naive.pagesets(cpu)) {
            self.tally.add_count("refills of pagesets", pageset.refills.0);
            self.tally.add_count("drains of pagesets", pageset.drains.0);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Difference> {
        self.choose_cpu();
        self.pass(self.habits.tick_ns);
        if self.one_in(2000) {
            self.filling = !self.filling;
        }
        let rare = self.random.below(self.habits.rare_every);
        if rare < 19 {
            return self.rare(rare);
        }
        if self.random.below(100) < self.habits.wrong_percent {
            return self.free_wrongly();
        }
        let allocs_of_four = if self.filling { 3 } else { 1 };
        let allocates = self.random.below(4) < allocs_of_four;
        let is_bulk = self.random.below(100) < self.habits.bulk_percent;
        match (allocates, is_bulk) {
            (true, true) => self.alloc_bulk(),
            (true, false) => self.alloc_any(),
            (false, true) => self.free_bulk(),
            (false, false) => self.free_something(),
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn narrate(&mut self, operation: fmt::Arguments<'_>) {
        if let Some(narrative) = &mut self.narrative {
            *narrative = format!("CPU {}: {operation}", self.cpu);
        }
    }

    /// Counts an operation and folds its answer.
    fn done(&mut self, name: &'static str, answer: u64) {
        self.tally.operations += 1;
        self.tally.count(name);
        self.tally.fold(answer);
    }

    fn choose_cpu(&mut self) {
        if !self.one_in(8) {
            return;
        }
        let is_known = !self.cpus.is_empty() && !self.one_in(12);
        self.cpu = if is_known {
            self.random.one_of(&self.cpus)
        } else {
            let last = self.cpus.last().map_or(0, |cpu| cpu.0);
            let cpu = self.random.one_of(&[0, last / 2, last + 1, 5000, u32::MAX]);
            CpuId(cpu)
        };
        self.allocator.platform().run_on(self.cpu);
    }

    fn alloc_any(&mut self) -> Result<(), Difference> {
        let mut request = self.request();
        request.order = self.habits.order(&mut self.random);
        if self.one_in(500) {
            request.order = Order(11 + self.random.below(245) as u8);
        }
        if self.one_in(50) && self.may_insist(request) {
            request.gfp = request.gfp.union(Gfp::NOFAIL);
            self.tally.count("requests that may not fail");
        }
        let is_placed = self.random.below(100) < self.habits.placed_percent;
        let got = if is_placed { self.alloc_placed(request)? } else { self.alloc(request)? };
        if !got && self.one_in(16) {
            self.filling = false;
        }
        Ok(())
    }

    /// Whether the request gets a block if it goes on until it does: the last resort opens all that is free.
    fn may_insist(&self, request: Request) -> bool {
        let Request { order, gfp, .. } = request;
        // A private node gives nothing, a policy may leave out what is free.
        if self.habits.placed_percent > 0 {
            return false;
        }
        let gives_up = [Gfp::NORETRY, Gfp::RETRY_MAYFAIL, Gfp::THISNODE];
        let (Some(kind), Some(_)) = (gfp.zone_kind(), gfp.migratetype()) else { return false };
        if order > Order(3) || kind < ZoneKind::Normal || gives_up.iter().any(|&f| gfp.contains(f))
        {
            return false;
        }
        let types = &Migratetype::ALL[..Migratetype::PCP_COUNT];
        let orders = (order.0..=10).map(Order);
        let mut lists = orders.flat_map(|order| types.iter().map(move |&of| (order, of)));
        lists.any(|(order, of)| {
            let zones = self.naive.zones().iter().filter(|zone| zone.kind <= kind);
            zones.into_iter().any(|zone| zone.list(order, of).next().is_some())
        })
    }

    /// Order 0, anything else random.
    fn request(&mut self) -> Request {
        let node = match self.random.below(100) {
            0 => Some(NodeId(self.random.below(5000) as u32)),
            1..40 => Some(self.random.one_of(&self.node_ids())),
            _ => None,
        };
        Request { order: Order(0), gfp: self.habits.gfp(&mut self.random), node }
    }

    fn node_ids(&self) -> Vec<NodeId> {
        self.machine.topology.nodes.iter().map(|node| node.id).collect()
    }

    /// Returns whether there was a block.
    fn alloc(&mut self, request: Request) -> Result<bool, Difference> {
        self.narrate(format_args!("alloc({request:?})"));
        let got = self.allocator.alloc(request);
        same("answer", got, self.naive.alloc(self.cpu, request))?;
        if let Ok(first) = got {
            self.note_moved(request, first);
        }
        self.allocated("alloc", request, got);
        Ok(got.is_ok())
    }

    fn allocated(
        &mut self,
        operation: &'static str,
        request: Request,
        got: Result<Pfn, AllocError>,
    ) {
        match got {
            Ok(pfn) => {
                self.done(operation, pfn.0);
                self.tally.pages += request.order.pages().0;
                self.held[request.order.0 as usize].push(pfn);
            }
            Err(error) => self.failed(operation, error),
        }
    }

    fn allocated_bulk(&mut self, operation: &'static str, got: Result<Vec<Pfn>, AllocError>) {
        match got {
            Ok(pages) => {
                let answer = pages.iter().fold(0, |sum: u64, pfn| sum.wrapping_mul(31) + pfn.0);
                self.done(operation, answer);
                self.tally.pages += pages.len() as u64;
                self.held[0].extend(pages);
            }
            Err(error) => self.failed(operation, error),
        }
    }

    fn failed(&mut self, operation: &'static str, error: AllocError) {
        let (name, answer) = match error {
            AllocError::OrderTooLarge { .. } => ("OrderTooLarge (alloc)", 1),
            AllocError::BulkOrder { .. } => ("BulkOrder", 6),
            AllocError::BadFlags { .. } => ("BadFlags", 2),
            AllocError::UnknownNode { .. } => ("UnknownNode", 3),
            AllocError::MemorylessNode { .. } => ("MemorylessNode", 4),
            AllocError::SizeOverflow { .. } | AllocError::TooManyPages { .. } => {
                ("SizeOverflow", 5)
            }
            AllocError::UnknownCpu { .. } => ("UnknownCpu", 6),
            AllocError::EmptyNodeSet { .. } => ("EmptyNodeSet", 7),
            AllocError::LimitReached { pages, .. } => ("LimitReached", pages.0),
            AllocError::OutOfMemory { free, .. } => ("OutOfMemory", free.0),
            other => panic!("an error without a name: {other}"),
        };
        self.tally.count(name);
        self.done(operation, answer);
    }

    fn alloc_bulk(&mut self) -> Result<(), Difference> {
        let mut request = self.request();
        if self.one_in(200) {
            request.order = Order(self.random.below(12) as u8);
        }
        if self.random.below(100) < self.habits.placed_percent {
            return self.alloc_bulk_placed(request);
        }
        let count = if self.one_in(50) { 0 } else { any_size(&mut self.random, 1, BULK_MAX) };
        self.narrate(format_args!("alloc_bulk({request:?}, {count})"));
        let mut out = vec![Pfn(0); count as usize];
        let got = self.allocator.alloc_bulk(request, &mut out).map(|count| out[..count].to_vec());
        let expected = self.naive.alloc_bulk(self.cpu, request, count as usize);
        same("answer", &got, &expected)?;
        for &page in got.iter().flatten() {
            self.note_moved(request, page);
        }
        self.allocated_bulk("alloc_bulk", got);
        Ok(())
    }

    /// A block from the caller's hands: one taken lately, or any.
    fn pick_held(&mut self, order: Order) -> Option<Pfn> {
        let is_any = self.random.below(100) < self.habits.free_any_percent;
        let held = &mut self.held[order.0 as usize];
        if held.is_empty() {
            return None;
        }
        let any = self.random.below(held.len() as u64) as usize;
        if is_any { Some(held.swap_remove(any)) } else { held.pop() }
    }

    fn free_something(&mut self) -> Result<(), Difference> {
        let first = self.habits.order(&mut self.random).0 as usize;
        let order = (first..11).chain(0..first).find(|&order| !self.held[order].is_empty());
        match order {
            Some(order) => self.free_any(Order(order as u8)),
            None => {
                self.filling = true;
                Ok(())
            }
        }
    }

    fn free_any(&mut self, order: Order) -> Result<(), Difference> {
        let Some(pfn) = self.pick_held(order) else { return Ok(()) };
        self.narrate(format_args!("free({pfn}, order {order})"));
        same("answer", self.allocator.free(pfn, order), self.naive.free(self.cpu, pfn, order))?;
        self.note_freed(pfn, order);
        self.done("free", 0);
        Ok(())
    }

    fn note_freed(&mut self, pfn: Pfn, order: Order) {
        if self.freed.len() == FREED_MAX {
            let at = self.random.below(FREED_MAX as u64) as usize;
            self.freed.swap_remove(at);
        }
        self.freed.push((pfn, order));
    }

    fn free_bulk(&mut self) -> Result<(), Difference> {
        let count = any_size(&mut self.random, 1, BULK_MAX);
        let mut pages: Vec<Pfn> = (0..count).map_while(|_| self.pick_held(Order(0))).collect();
        match self.random.below(4) {
            0 => pages.sort_unstable(),
            1 => pages.reverse(),
            _ => {}
        }
        let freed = pages.clone();
        let wrong_pages = if self.one_in(20) { 1 + self.random.below(3) } else { 0 };
        for _ in 0..wrong_pages {
            let wrong = self.wrong_page(&freed);
            let at = self.random.below(pages.len() as u64 + 1) as usize;
            pages.splice(at..at, wrong);
        }
        self.narrate(format_args!("free_bulk({pages:?})"));
        let got = self.allocator.free_bulk(&pages);
        let expected = self.naive.free_bulk(self.cpu, &pages);
        compare::same_bulk_free(got, expected)?;
        if expected.is_err() {
            self.tally.count("pages refused in bulk");
        }
        for pfn in freed {
            self.note_freed(pfn, Order(0));
        }
        self.done("free_bulk", count);
        Ok(())
    }
}
