//! One run: the core of a start state, event by event.

mod moves;
mod reclaim;
mod stand_ins;
mod tally;
mod upkeep;
mod whole;

use nearpage::rules::pagesets::{LISTS, list_index};
use nearpage::{
    CpuId, Fallbacks, Gfp, NodeId, NodeIndex, Order, PageCount, Pfn, Reason, Request, ZoneKind,
};
use nearpage_trace::{Event, TraceEvent};

use crate::blocks::CoreBlock;
use crate::bound::Asked;
use crate::drawn::Draw;
use crate::events::Actor;
use crate::flow::{Flow, Lengths};
use crate::machine::{
    Core, CoreZone, Held, add_cold, fill_known, fill_pageset, set_doubled, set_expire, take_cold,
};
use crate::start::{Start, StartPageset};
use crate::survey::Survey;
use crate::ticks::Ticks;
use crate::totals::{Costs, Totals};
use crate::zones::ZoneMap;
use moves::Moves;
use reclaim::Reclaims;
use stand_ins::{Found, StandIns};
use tally::{Act, Tallied, Tally};
use upkeep::Upkeep;

pub(crate) use stand_ins::Origin;
pub use tally::Causes;

/// What an allocation is near to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Near {
    /// The CPU that asks.
    Cpu,
    /// A node: the flags of the request say that it must be this one.
    Node(NodeId),
    /// Exactly this zone, by its position: where the recorded block was.
    Zone(usize),
}

/// What a run could not do as the trace says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RunCounts {
    /// Blocks allocated.
    pub(crate) allocs: u64,
    /// Blocks freed.
    pub(crate) frees: u64,
    /// Blocks freed that were allocated before the window, or by something without an event.
    pub(crate) unknown_frees: u64,
    /// Of those, ones of blocks that the kernel's state has as free: they were allocated without an event.
    pub(crate) untold_takes: u64,
    /// Allocations of blocks that the kernel's state has as in use: they were freed without an event.
    pub(crate) untold_frees: u64,
    /// Blocks that are the very ones that the kernel gave.
    pub(crate) same_frames: u64,
    /// Frees of a block of which the core had none left.
    pub(crate) lost_frees: u64,
    /// Frees of a piece of a block.
    pub(crate) split_frees: u64,
    /// Allocations of a block that the trace had not freed.
    pub(crate) realloc_of_live: u64,
    /// Allocations that the core refused below its marks. As the kernel gave the block, perhaps after reclaim of its own,
    /// the core gives one with the right to everything, if it has any.
    pub(crate) refused_allocs: u64,
    /// Pages allocated in bulk.
    pub(crate) bulk_pages: u64,
    /// Blocks of order 9 that were given at once.
    pub(crate) order_9_served: u64,
    /// Requests without a right to reserves that were served from below `min`; of those in bulk, the pages.
    pub(crate) served_below_min: u64,
    /// In a second pass, frees of what nobody had.
    pub(crate) skipped_frees: u64,
}

/// What a pass over a trace came to.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Holds, memory kept, whole ranges.
    pub(crate) tallied: Tallied,
    /// Blocks and requests.
    pub(crate) counts: RunCounts,
    /// Pages from another node than the CPU's.
    pub(crate) remote_pages: u64,
    /// Pages from another zone than the preferred one, since that was below its watermark.
    pub(crate) watermark_fallbacks: u64,
    /// What the core was asked for; nothing if that was not kept.
    pub(crate) asked: Asked,
}

/// A core that is driven by a trace.
pub(crate) struct Run<'m> {
    /// The core.
    pub(crate) core: Core<'m>,
    /// What did not go as recorded.
    pub(crate) counts: RunCounts,
    /// Pages from a zone that the request did not prefer, by zone.
    pub(crate) fallback_pages: Vec<u64>,
    /// Pages from another node than the CPU's.
    remote_pages: u64,
    moves: Moves,
    stand_ins: StandIns,
    upkeep: Upkeep,
    reclaims: Reclaims,
    /// How long background reclaim works behind a page that it frees; `None`: as long as the trace shows.
    reclaim_ns: Option<u64>,
    tally: Tally,
    /// Writes to shared words by which the start was arranged.
    writes_before: u64,
    /// The time of the window's last event.
    end_ns: u64,
    /// Pages that the passes before had from other zones for a watermark.
    watermarks_seen: u64,
    /// Whether the trace was played before: what is live then was not freed at its end.
    is_again: bool,
}

/// Turns of the once-a-second work after which a pageset of another node's zone gives back its first batch, if nothing is
/// drawn. What it gives back counts as use, so once begun, that goes on until it is empty: one that holds pages is on its
/// way. It takes three turns; this is the middle.
const EXPIRE: u8 = 2;
/// A task that nobody else is: the kernel's own once-a-second work.
const UPKEEP: u32 = u32::MAX;

impl<'m> Run<'m> {
    /// A core in its start state. `fill` says how many pages each list of a pageset holds, from what is recorded of it and
    /// the position of its recorded zone; `draw` draws what else is open.
    pub(crate) fn new(
        start: &Start,
        survey: &Survey,
        core: Core<'m>,
        mut held: Held,
        draw: Option<Draw>,
        fill: impl Fn(&StartPageset, usize) -> [u64; LISTS],
    ) -> Run<'m> {
        let zones = start.zones.len();
        let cpus: Vec<CpuId> = core.cpus().map(|(cpu, ..)| cpu).collect();
        let cpu_limit = cpus.iter().map(|cpu| cpu.0 as usize + 1).max().unwrap_or(0);
        // What fills the pagesets at the start is no refill: it happens before the first look at the core.
        let mut starts = Vec::new();
        for (index, zone) in start.zones.iter().enumerate() {
            for pageset in zone.pagesets.iter().filter(|pageset| cpus.contains(&pageset.cpu)) {
                if let Some(state) = &start.state {
                    let pages = fill_known(&core, &mut held, index, pageset.cpu, state);
                    starts.push((pageset.cpu, index, pages));
                    continue;
                }
                let pages = fill(pageset, zone.recorded);
                fill_pageset(&core, &mut held, index, pageset.cpu, &pages);
                starts.push((pageset.cpu, index, pages));
                if pageset.count.0 > 0 {
                    let expire = draw.map_or(EXPIRE, |draw| draw.expire(pageset.cpu, index));
                    set_expire(&core, index, pageset.cpu, expire);
                }
                if let Some(draw) = draw {
                    set_doubled(&core, index, pageset.cpu, draw.doubled(pageset.cpu, index));
                }
            }
        }
        let mut moves = Moves::new(&core, cpu_limit);
        // A recorded kernel is one whose trace may tell when it does its once-a-second work.
        let is_recorded = start.zones.iter().all(|zone| !zone.is_all_free);
        let ticks =
            (!is_recorded || !survey.has_upkeep).then(|| Ticks::new(cpus, survey.begin_ns, draw));
        let mut upkeep = Upkeep::new(ticks, &core, cpu_limit);
        for (cpu, zone, pages) in &starts {
            let busy = match &start.state {
                // Nothing of the start is unknown.
                Some(state) => {
                    let known = state.zones[*zone].pageset(*cpu);
                    if known.is_some_and(|pageset| pageset.is_used) {
                        upkeep.set_used(*cpu, *zone);
                    }
                    0
                }
                None => survey.busy_lists(*cpu, start.zones[*zone].recorded),
            };
            moves.set_start(*cpu, *zone, pages, busy);
        }
        Run {
            counts: RunCounts::default(),
            fallback_pages: vec![0; zones],
            remote_pages: 0,
            moves,
            stand_ins: StandIns::new(&core, held),
            upkeep,
            reclaim_ns: draw.and_then(Draw::reclaim_ns),
            reclaims: Reclaims::default(),
            tally: Tally::new(&core, survey.begin_ns),
            writes_before: core.totals().shared_writes.unwrap_or(0),
            end_ns: survey.end_ns,
            core,
            watermarks_seen: 0,
            is_again: false,
        }
    }

    /// Ends a pass over the trace, of which [`keep_asked`](Self::keep_asked) or [`keep_whole`](Self::keep_whole) was said at
    /// the beginning, and begins another one. What is live stays so; pages that no frame names are freed, each by the CPU that it was allocated on. From then
    /// on, an allocation frees first what its frames were still live as, and frees of what nobody has are skipped.
    pub(crate) fn end_pass(&mut self, now_ns: u64) -> Pass {
        while let Some((pfn, cpu)) = self.stand_ins.take_untold() {
            let actor = Actor { cpu, pid: UPKEEP, now_ns };
            self.free_block(actor, CoreBlock { pfn, order: Order(0) });
        }
        #[cfg(test)]
        assert!(self.tally.is_exact(&self.core), "what is free is what nobody was given");
        let watermarks = self.reasons().pages(Reason::Watermark).0;
        let keeps_asked = self.tally.asked.is_some();
        let pass = Pass {
            tallied: self.tally.tallied(&self.core),
            counts: std::mem::take(&mut self.counts),
            remote_pages: std::mem::take(&mut self.remote_pages),
            watermark_fallbacks: watermarks
                - std::mem::replace(&mut self.watermarks_seen, watermarks),
            asked: self.tally.asked.take().unwrap_or_default(),
        };
        self.tally.restart(&self.core);
        if keeps_asked {
            self.tally.keep_asked(&self.core);
        }
        self.is_again = true;
        pass
    }

    /// Frees what stands for frames of the recorded block at `pfn`, which is allocated anew.
    fn free_live(&mut self, actor: Actor, pfn: Pfn, order: Order) {
        while let Some(live) = self.stand_ins.take_within(pfn, order) {
            self.counts.realloc_of_live += 1;
            self.free_block(actor, live);
        }
    }

    /// Time goes on to that of an event: the once-a-second work of CPUs is done that is due. Only an allocation or a free
    /// tells that its CPU is awake: what else is logged is predicted.
    pub(crate) fn note_time(&mut self, event: &TraceEvent<'_>, cpu: CpuId, now_ns: u64) {
        let is_told = matches!(
            event.event,
            Event::Alloc { .. } | Event::Free { .. } | Event::Bulk { .. } | Event::BulkDone { .. }
        );
        let awake = is_told.then_some(cpu);
        if matches!(event.event, Event::Upkeep) && self.upkeep.is_told() {
            self.upkeep.run(&self.core, cpu, now_ns);
            self.note_upkeep(Actor { cpu, pid: event.pid, now_ns });
        }
        while let Some((cpu, now_ns)) = self.upkeep.run_due(&self.core, awake, now_ns) {
            self.note_upkeep(Actor { cpu, pid: UPKEEP, now_ns });
        }
    }

    fn note_upkeep(&mut self, actor: Actor) {
        self.moves.note(&self.core, actor, None);
        self.tally.note(&self.core, actor, Act::Upkeep);
    }

    /// Allocates the block that stands for the one at `pfn`.
    pub(crate) fn alloc(&mut self, actor: Actor, pfn: Pfn, order: Order, gfp: Gfp, near: Near) {
        if self.is_again {
            self.free_live(actor, pfn, order);
        }
        if let Some(live) = self.stand_ins.remove(pfn) {
            self.counts.realloc_of_live += 1;
            self.free_block(actor, live);
        }
        if !self.is_again
            && let Some(held) = self.stand_ins.take_held(&self.core, pfn, order)
        {
            self.counts.untold_frees += 1;
            self.free_block(actor, held);
        }
        self.core.platform().play(actor.cpu, actor.now_ns);
        let request = self.request(order, gfp, near);
        let at_once = self.core.alloc(request);
        self.note_served(at_once.as_ref().ok().copied(), request);
        let given = at_once.or_else(|_| {
            self.counts.refused_allocs += 1;
            let gfp = request.gfp.difference(Gfp::NOMEMALLOC).union(Gfp::MEMALLOC);
            self.core.alloc(Request { gfp, ..request })
        });
        let list = gfp.migratetype().and_then(|migratetype| list_index(order, migratetype));
        if let Ok(given) = given {
            self.counts.allocs += 1;
            self.counts.same_frames += u64::from(given == pfn);
            if let Some(asked) = &mut self.tally.asked {
                asked.note(actor.cpu, list, -(order.pages().0 as i64));
            }
            self.note_fallback(actor, given, request);
            self.stand_ins.insert(pfn, CoreBlock { pfn: given, order });
        }
        self.moves.note(&self.core, actor, list);
        self.moves.close(actor.cpu);
        self.tally.note(&self.core, actor, Act::Alloc(order));
        if let Ok(given) = given {
            self.tally.took(given, order);
        }
        self.reclaims.begin_asked(&self.core);
    }

    /// Counts what the rules gave without a right to everything.
    fn note_served(&mut self, given: Option<Pfn>, request: Request) {
        let Some(zone) = given.and_then(|given| self.stand_ins.zone_of_core(given)) else { return };
        self.counts.order_9_served += u64::from(request.order == Order::PAGEBLOCK);
        let is_below = pages_below_min(&self.core, zone, request.gfp) > 0;
        self.counts.served_below_min += u64::from(is_below);
    }

    fn request(&self, order: Order, gfp: Gfp, near: Near) -> Request {
        // A request that never gives up would never come back if the core has less memory than the kernel had.
        let gfp = gfp.difference(Gfp::NOFAIL);
        match near {
            Near::Cpu => Request::new(order, gfp.difference(Gfp::THISNODE)),
            Near::Node(node) => Request::new(order, gfp).on(node),
            Near::Zone(zone) => {
                let zone = self.core.zones()[zone];
                let kind = match zone.kind() {
                    ZoneKind::Dma => Gfp::DMA,
                    ZoneKind::Dma32 => Gfp::DMA32,
                    ZoneKind::Normal | ZoneKind::Device => Gfp(0),
                    ZoneKind::Movable => Gfp::HIGHMEM.union(Gfp::MOVABLE),
                };
                let kinds = Gfp::DMA.union(Gfp::DMA32).union(Gfp::HIGHMEM);
                // With the right to everything: the kernel has found room there.
                let rights = Gfp::THISNODE.union(Gfp::MEMALLOC);
                let gfp = gfp.difference(kinds.union(Gfp::NOMEMALLOC)).union(kind).union(rights);
                Request::new(order, gfp).on(self.core.topology().node(zone.node()).id)
            }
        }
    }

    fn note_fallback(&mut self, actor: Actor, given: Pfn, request: Request) {
        let Some(zone) = self.stand_ins.zone_of_core(given) else { return };
        let Some(kind) = request.gfp.zone_kind() else { return };
        let home = self.core.topology().node_of_cpu(actor.cpu);
        if home != Some(self.core.zones()[zone].node()) {
            self.remote_pages += request.order.pages().0;
        }
        let node = match request.node {
            Some(id) => self.core.topology().index_of(id),
            None => self.core.topology().node_of_cpu(actor.cpu),
        };
        let preferred = node.and_then(|node| preferred(&self.core, node, kind));
        if preferred.is_some_and(|preferred| preferred != zone) {
            self.fallback_pages[zone] += request.order.pages().0;
        }
    }

    /// Frees the block that stands for the one at `pfn`. Of one that is not known, `origin` says where it was.
    pub(crate) fn free(&mut self, actor: Actor, pfn: Pfn, order: Order, origin: Origin) {
        if self.is_again && !self.stand_ins.knows(pfn) {
            self.counts.skipped_frees += 1;
            return;
        }
        self.counts.frees += 1;
        let (found, block) = self.stand_ins.take(&self.core, pfn, order, origin);
        match found {
            Found::Piece => self.counts.split_frees += 1,
            Found::Unknown => self.counts.unknown_frees += 1,
            Found::Untold | Found::Taken => {
                self.counts.unknown_frees += 1;
                self.counts.untold_takes += 1;
            }
            Found::Whole | Found::Nowhere => {}
        }
        self.core.platform().play(actor.cpu, actor.now_ns);
        if let (Found::Taken, Some(block)) = (found, block) {
            self.tally.took(block.pfn, block.order);
        }
        match block {
            Some(block) => self.free_block(actor, block),
            None => self.counts.lost_frees += 1,
        }
    }

    fn free_block(&mut self, actor: Actor, block: CoreBlock) {
        self.core.platform().play(actor.cpu, actor.now_ns);
        let CoreBlock { pfn, order } = block;
        if self.tally.asked.is_some() {
            let zone = self.stand_ins.zone_of_core(pfn).map(|zone| self.core.zones()[zone]);
            let list = zone.and_then(|zone| list_index(order, zone.pageblock_type(pfn)));
            let pages = order.pages().0 as i64;
            self.tally.asked.iter_mut().for_each(|asked| asked.note(actor.cpu, list, pages));
        }
        self.core.free(pfn, order).expect("the block was handed out or held");
        self.moves.note(&self.core, actor, None);
        self.tally.note(&self.core, actor, Act::Free(order));
        self.tally.gave(pfn, order);
        if self.reclaims.end_balanced(&self.core, actor.now_ns) {
            self.tally.note(&self.core, actor, Act::Upkeep);
        }
    }

    /// Allocates single pages in bulk, for recorded ones at `pfns`, and `untold` more.
    pub(crate) fn alloc_bulk(
        &mut self,
        actor: Actor,
        gfp: Gfp,
        node: Option<u32>,
        pfns: &[Pfn],
        untold: u64,
    ) {
        if self.is_again {
            pfns.iter().for_each(|&pfn| self.free_live(actor, pfn, Order(0)));
        }
        self.core.platform().play(actor.cpu, actor.now_ns);
        let wanted = pfns.len() + untold as usize;
        let mut pages = vec![Pfn(0); wanted];
        let request = Request::new(Order(0), gfp.difference(Gfp::NOFAIL));
        let request = match node.map(NodeId) {
            Some(node) if self.core.topology().index_of(node).is_some() => request.on(node),
            _ => request,
        };
        let mut got = 0;
        // The kernel's caller asks again for what is missing.
        while got < wanted {
            match self.core.alloc_bulk(request, &mut pages[got..]) {
                Ok(more) if more > 0 => got += more,
                _ => break,
            }
        }
        let list = gfp.migratetype().and_then(|migratetype| list_index(Order(0), migratetype));
        if let Some(asked) = &mut self.tally.asked {
            asked.note(actor.cpu, list, -(got as i64));
        }
        self.moves.note(&self.core, actor, list);
        self.tally.note(&self.core, actor, Act::Alloc(Order(0)));
        pages[..got].iter().for_each(|&page| self.tally.took(page, Order(0)));
        if let Some(zone) = pages[..got].last().and_then(|&page| self.stand_ins.zone_of_core(page))
        {
            let below = pages_below_min(&self.core, zone, request.gfp);
            self.counts.served_below_min += below.min(got as u64);
        }
        self.counts.bulk_pages += got as u64;
        self.counts.refused_allocs += (wanted - got) as u64;
        for (at, &page) in pages[..got].iter().enumerate() {
            let block = CoreBlock { pfn: page, order: Order(0) };
            match pfns.get(at) {
                Some(&pfn) => {
                    if let Some(live) = self.stand_ins.insert(pfn, block) {
                        self.counts.realloc_of_live += 1;
                        self.free_block(actor, live);
                    }
                }
                None => self.stand_ins.keep_untold(page, actor.cpu),
            }
        }
        self.reclaims.begin_asked(&self.core);
    }

    /// The kernel's reclaim is seen to work on a node until some time.
    pub(crate) fn note_reclaimer(&mut self, node: NodeId, now_ns: u64, until_ns: u64) {
        let until_ns = self.reclaim_ns.map_or(until_ns, |behind| now_ns + behind);
        self.reclaims.note_seen(&self.core, node, until_ns);
    }

    /// Notes whether the block that stands for the one at `pfn`, recorded in `zone`, lies elsewhere.
    pub(crate) fn note_place(&mut self, pfn: Pfn, zone: Option<usize>) {
        self.stand_ins.note_place(&self.core, pfn, zone);
    }

    /// Lets a block of its recorded zone stand for the one at `pfn`, if there is one. `places` tells the zones of
    /// recorded frames.
    pub(crate) fn bring_home(&mut self, pfn: Pfn, order: Order, places: &ZoneMap) {
        self.stand_ins.bring_home(&self.core, pfn, order, places);
    }

    /// Whether a list of a pageset that is much used may still hold pages of the start.
    pub(crate) fn has_old_lists(&self, cpu: CpuId, zone: usize) -> bool {
        self.moves.has_old_lists(cpu, zone)
    }

    /// Says that the state of a pageset no longer depends on the start.
    pub(crate) fn set_known(&mut self, cpu: CpuId, zone: usize) {
        self.moves.set_known(cpu, zone);
    }

    /// Puts so many blocks under those of a list of a pageset. Returns how many there were.
    pub(crate) fn add_cold(&mut self, zone: usize, cpu: CpuId, list: usize, blocks: u64) -> u64 {
        add_cold(&self.core, &mut self.stand_ins.held, zone, cpu, list, blocks)
    }

    /// Takes up to so many blocks from under those of a list of a pageset. Returns how many there were.
    pub(crate) fn take_cold(&mut self, zone: usize, cpu: CpuId, list: usize, blocks: u64) -> u64 {
        take_cold(&self.core, &mut self.stand_ins.held, zone, cpu, list, blocks)
    }

    /// Keeps which ranges are whole from now on.
    pub(crate) fn keep_whole(&mut self) {
        self.tally.keep_whole(&self.core);
    }

    /// Keeps what the core is asked for from now on, for [`take_asked`](Self::take_asked).
    pub(crate) fn keep_asked(&mut self) {
        self.tally.keep_asked(&self.core);
    }

    /// What the core was asked for, if it was kept.
    pub(crate) fn take_asked(&mut self) -> Option<Asked> {
        self.tally.asked.take()
    }

    /// Holds of zone locks that moved pages, and pages from another node than the CPU's, until now.
    pub(crate) fn so_far(&self) -> [u64; 2] {
        let stats = self.core.totals();
        let writes = stats.shared_writes.map_or(0, |writes| writes - self.writes_before);
        [stats.lock_acquisitions + writes, self.remote_pages]
    }

    /// Holds that moved pages, of each zone, and writes to its shared words, until now.
    pub(crate) fn holds_by_zone(&self) -> Vec<u64> {
        let writes = |zone| self.core.shared_writes(zone).unwrap_or(0);
        let zones = self.core.zones().iter();
        zones.map(|zone| zone.holds().acquisitions + writes(zone)).collect()
    }

    /// Holds of zone locks, by what caused them.
    pub(crate) fn causes(&self) -> &Causes {
        &self.tally.causes
    }

    /// Ends the run: runs of lines that are under way are counted, and what is kept is kept until the end of the trace.
    pub(crate) fn finish(&mut self) {
        self.moves.close_all();
        self.tally.pass_to(self.end_ns);
    }

    /// Refills and drains by zone, as a kernel's log would be counted.
    pub(crate) fn flows(&self) -> &[Flow] {
        &self.moves.flows
    }

    /// The same, of pagesets whose state was known by then.
    pub(crate) fn known_flows(&self) -> &[Flow] {
        &self.moves.known_flows
    }

    /// How long the runs of refills and drains are.
    pub(crate) fn lengths(&self) -> &Lengths {
        self.moves.lengths()
    }

    /// Allocations in bulk whose frames are not told, by zone.
    pub(crate) fn untold_allocs(&self) -> &[u64] {
        &self.stand_ins.untold_allocs
    }

    /// Pages of the recording's free lists for which there was no place, over all zones.
    pub(crate) fn left_out_pages(&self) -> u64 {
        self.stand_ins.left_out_pages()
    }

    /// How often a block of another type was taken, over all zones: each time, Linux logs an event.
    pub(crate) fn extfrag(&self) -> u64 {
        self.core.zones().iter().map(|zone| zone.type_fallbacks()).sum()
    }

    /// The zone that a CPU's requests prefer, by its position.
    pub(crate) fn home(&self, cpu: CpuId) -> Option<usize> {
        let node = self.core.topology().node_of_cpu(cpu)?;
        preferred(&self.core, node, ZoneKind::Movable)
    }

    /// The zone of the block that stands for the one at `pfn`, by its position.
    pub(crate) fn zone_of_block(&self, pfn: Pfn) -> Option<usize> {
        self.stand_ins.zone_of(pfn)
    }

    /// Pages of a CPU's pageset for a zone, and its limit.
    pub(crate) fn pageset(&self, cpu: CpuId, zone: usize) -> Option<(PageCount, PageCount)> {
        let pageset = &self.core.pagesets(cpu)?[zone];
        Some((pageset.count(), pageset.tuning().high))
    }

    /// Pages from another zone than the preferred one, by reason.
    pub(crate) fn reasons(&self) -> Fallbacks {
        let nodes = || self.core.topology().indexes();
        let pairs = nodes().flat_map(|from| nodes().map(move |to| (from, to)));
        pairs.map(|(from, to)| self.core.fallbacks(from, to)).sum()
    }

    /// What the run came to, for comparison with other machines and rules, after [`finish`](Self::finish).
    pub(crate) fn totals(&self) -> Totals {
        let stats = self.core.totals();
        let writes = stats.shared_writes.map_or(0, |writes| writes - self.writes_before);
        let topology = self.core.topology();
        let flow = self.flows().iter().fold(Flow::default(), |sum, flow| sum.plus(*flow));
        let reasons = self.reasons();
        let by_reason = |reason: Reason| (reason.name(), reasons.pages(reason).0);
        let by_node =
            |node: NodeIndex| (topology.node(node).id.0, self.core.node_stats(node).pgalloc.0);
        let kept = self.tally.kept();
        let mut totals = Totals {
            kept_pages_mean: Some(kept.mean),
            kept_pages_most: Some(kept.most),
            kept_pages_most_of_cpu: Some(kept.most_of_cpu),
            kept_pages_end: Some(kept.at_end),
            longest_hold_ns: Some(self.longest_hold_ns()),
            cpus: Some(self.tally.cpus()),
            lock_acquisitions: Some(stats.lock_acquisitions + writes),
            most_pages_per_hold: Some(stats.most_pages_per_hold.0),
            refills: flow.refills,
            refill_pages: flow.refill_pages,
            drains: flow.drains,
            drain_pages: flow.drain_pages,
            longest_run_pages: self.lengths().longest(),
            pages_by_node: topology.indexes().map(by_node).collect(),
            pages_by_reason: Reason::ALL.into_iter().map(by_reason).collect(),
            cached_bytes: stats.cached_pages.to_bytes(self.core.page_shift()),
            remote_pages: self.remote_pages,
            model_ms: None,
        };
        let operations = self.counts.allocs + self.counts.frees + self.counts.bulk_pages;
        totals.model_ms = Some(Costs::BENCH.milliseconds(operations, &totals));
        totals
    }

    /// If most pages moved in a hold that returned them, no other took longer: to return a page costs more than to take it.
    fn longest_hold_ns(&self) -> f64 {
        let longest = |zone: &CoreZone<'_>| {
            let holds = zone.holds();
            Costs::BENCH.longest_hold(holds.most_pages.0, holds.most_returned.0)
        };
        let used = self.core.zones().iter().filter(|zone| zone.holds().acquisitions > 0);
        used.map(|zone| longest(zone)).fold(0.0, f64::max)
    }
}

/// How many free pages a zone lacks of those that a request without rights must leave, if it has none: `min` without a boost, and
/// the reserve for requests of its kind.
fn pages_below_min(core: &Core<'_>, zone: usize, gfp: Gfp) -> u64 {
    let has_rights = gfp.contains(Gfp::HIGH)
        || !gfp.contains(Gfp::NOMEMALLOC)
            && (gfp.contains(Gfp::MEMALLOC) || !gfp.contains(Gfp::DIRECT_RECLAIM));
    let Some(kind) = gfp.zone_kind().filter(|_| !has_rights) else { return 0 };
    let zone = core.zones()[zone];
    let min = zone.marks().min.0.saturating_sub(zone.boost().0);
    let floor = min + zone.reserve(kind).0 + zone.kept_back().0;
    floor.saturating_sub(zone.free_pages().0)
}

/// The zone that requests near a node prefer.
pub(crate) fn preferred(core: &Core<'_>, node: NodeIndex, kind: ZoneKind) -> Option<usize> {
    core.fallback_zones(node).find(|zone| zone.kind() <= kind).map(|zone| zone.index().0 as usize)
}
