//! One run: the core of a start state, event by event.

use std::collections::VecDeque;

use nearpage::alloc::Request;
use nearpage::frame::Migratetype;
use nearpage::gfp::Gfp;
use nearpage::pcp::{Storage, list_index, list_order};
use nearpage::units::{CpuId, NodeId, Order, PageCount, Pfn, ZoneKind};
use nearpage::watermark::AllocFlags;

use super::blocks::{Blocks, CoreBlock};
use super::guess::Guess;
use super::machine::{Core, CorePageset, CoreStorage, CoreZone, Held, fill_pageset};
use super::recorded::{Bursts, Flow};
use super::start::Start;
use super::survey::Survey;
use super::ticks::Ticks;

/// Where the zone of an allocation comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZoneChoice {
    /// The core's own: node of the CPU, flags, watermarks.
    #[default]
    Model,
    /// The recorded page's.
    Recorded,
}

/// What a run could not do as the trace says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunCounts {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Blocks freed that were allocated before the window, or by something without an event.
    pub unknown_frees: u64,
    /// Frees of a block of which the core had none left.
    pub lost_frees: u64,
    /// Frees of a piece of a block.
    pub split_frees: u64,
    /// Allocations of a block that the trace had not freed.
    pub realloc_of_live: u64,
    /// Allocations that the core refused.
    pub refused_allocs: u64,
    /// Pages allocated in bulk.
    pub bulk_pages: u64,
}

/// A core that is driven by a trace.
pub struct Run<'m> {
    /// The core.
    pub core: Core<'m>,
    /// What did not go as recorded.
    pub counts: RunCounts,
    /// Refills and drains by zone, as a kernel's log would be counted.
    pub flows: Vec<Flow>,
    /// Pages from a zone that the request did not prefer, by zone.
    pub fallback_pages: Vec<u64>,
    /// The same, of pagesets whose state is known by then ([`set_known`](Self::set_known)).
    pub known_flows: Vec<Flow>,
    bursts: Bursts,
    known_bursts: Bursts,
    /// By CPU and zone: whether the state of the pageset no longer depends on the start.
    known: Vec<bool>,
    /// By CPU and zone: the lists that have been filled since the start without a break.
    filled: Vec<u16>,
    held: Held,
    blocks: Blocks,
    ticks: Ticks,
    /// Zones on which background reclaim works.
    reclaiming: Vec<(NodeId, ZoneKind)>,
    /// Pages of bulk allocations whose frames are not told, oldest first, by zone.
    untold: Vec<VecDeque<Pfn>>,
    /// How many there were, by zone.
    pub untold_allocs: Vec<u64>,
    /// Refills and drains of each zone's pagesets that were counted so far: acquisitions of its lock.
    holds_seen: Vec<u64>,
    seen: Vec<Seen>,
    /// Blocks through each pageset at its last turn.
    uses: Vec<u64>,
}

/// What a pageset's events were when they were last looked at.
#[derive(Clone, Copy, Default)]
struct Seen {
    refills: u64,
    refilled_pages: u64,
    drains: u64,
    drained_pages: u64,
}

/// Who does something, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actor {
    /// The CPU.
    pub cpu: CpuId,
    /// The task.
    pub pid: u32,
    /// The time.
    pub now_ns: u64,
}

/// A task that nobody else is: the kernel's own once-a-second work.
const UPKEEP: u32 = u32::MAX;

impl<'m> Run<'m> {
    /// A core in its start state, with its pagesets filled.
    pub fn new(
        start: &Start,
        survey: &Survey,
        core: Core<'m>,
        held: Held,
        guess: Guess,
    ) -> Run<'m> {
        let zones = start.zones.len();
        let mut held = held;
        let cpus: Vec<CpuId> = core.cpus().map(|(cpu, ..)| cpu).collect();
        let most = cpus.iter().map(|cpu| cpu.0 as usize + 1).max().unwrap_or(0);
        let mut filled = vec![0; most * zones];
        for (index, zone) in start.zones.iter().enumerate() {
            for pageset in zone.pagesets.iter().filter(|pageset| cpus.contains(&pageset.cpu)) {
                let demand = survey.demand(pageset.cpu, index);
                let pages = guess.pages(pageset.count, pageset.sizes.batch, &demand);
                fill_pageset(&core, &mut held, index, pageset.cpu, &pages);
                for (list, _) in pages.iter().enumerate().filter(|(_, pages)| **pages > 0) {
                    filled[pageset.cpu.0 as usize * zones + index] |= 1_u16 << list;
                }
            }
        }
        Run {
            counts: RunCounts::default(),
            flows: vec![Flow::default(); zones],
            fallback_pages: vec![0; zones],
            known_flows: vec![Flow::default(); zones],
            bursts: Bursts::default(),
            known_bursts: Bursts::default(),
            known: vec![false; most * zones],
            filled,
            held,
            blocks: Blocks::default(),
            ticks: Ticks::new(cpus, survey.begin_ns),
            reclaiming: Vec::new(),
            untold: vec![VecDeque::new(); zones],
            untold_allocs: vec![0; zones],
            holds_seen: core.zones().iter().map(|zone| zone.holds().acquisitions).collect(),
            seen: vec![Seen::default(); most * zones],
            uses: vec![0; most * zones],
            core,
        }
    }

    /// A CPU is seen to run: its once-a-second work is done if it is due.
    pub fn note_running(&mut self, actor: Actor) {
        if self.ticks.take_due(actor.cpu, actor.now_ns) {
            self.core.platform().play(actor.cpu, actor.now_ns);
            self.core.decay_cpu(actor.cpu).expect("nobody else drains");
            self.expire_remote(actor.cpu);
            self.note_moves(Actor { pid: UPKEEP, ..actor }, None);
        }
    }

    /// Linux takes a pageset for used if the CPU changed a counter of its zone: free pages, or pages of a list of
    /// user memory. Here any page through it counts. `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
    fn expire_remote(&mut self, cpu: CpuId) {
        let Some(pagesets) = self.core.pagesets(cpu) else { return };
        let zones = self.flows.len();
        let uses = &mut self.uses[cpu.0 as usize * zones..][..zones];
        let now: Vec<u64> = pagesets
            .iter()
            .map(|pageset| {
                let totals = pageset.totals();
                totals.allocs.wrapping_add(totals.freed_pages)
            })
            .collect();
        let used = |zone: &CoreZone<'_>| {
            let zone = zone.index().0 as usize;
            now[zone] != uses[zone]
        };
        self.core.expire_remote(cpu, used).expect("nobody else drains");
        uses.copy_from_slice(&now);
    }

    /// Allocates the block that stands for the one at `pfn`. `zone` is that of the recorded one.
    pub fn alloc(
        &mut self,
        actor: Actor,
        pfn: Pfn,
        order: Order,
        gfp: Gfp,
        zone: Option<usize>,
        choice: ZoneChoice,
    ) {
        if let Some(live) = self.blocks.remove(pfn) {
            self.counts.realloc_of_live += 1;
            self.free_block(actor, live);
        }
        self.core.platform().play(actor.cpu, actor.now_ns);
        let request = self.request(order, gfp, zone, choice);
        match self.core.alloc(request) {
            Ok(given) => {
                self.counts.allocs += 1;
                self.note_fallback(actor, given, request);
                self.blocks.insert(pfn, CoreBlock { pfn: given, order });
            }
            Err(_) => self.counts.refused_allocs += 1,
        }
        let list = gfp.migratetype().and_then(|migratetype| list_index(order, migratetype));
        self.note_moves(actor, list);
        self.bursts.close(actor.cpu, &mut self.flows);
        self.known_bursts.close(actor.cpu, &mut self.known_flows);
        self.note_reclaim();
    }

    fn request(&self, order: Order, gfp: Gfp, zone: Option<usize>, choice: ZoneChoice) -> Request {
        // A request that never gives up would never come back if the core has less memory than the kernel had.
        let gfp = gfp.without(Gfp::NOFAIL);
        let request = Request::new(order, gfp);
        let Some(zone) = zone.map(|zone| self.core.zones()[zone]) else { return request };
        let node = self.core.topology().node(zone.node()).id;
        match choice {
            ZoneChoice::Recorded => {
                let kind = match zone.kind() {
                    ZoneKind::Dma => Gfp::DMA,
                    ZoneKind::Dma32 => Gfp::DMA32,
                    ZoneKind::Normal | ZoneKind::Device => Gfp(0),
                    ZoneKind::Movable => Gfp::HIGHMEM.or(Gfp::MOVABLE),
                };
                let kinds = Gfp::DMA.or(Gfp::DMA32).or(Gfp::HIGHMEM);
                let gfp = gfp.without(kinds).or(kind).or(Gfp::THISNODE).or(Gfp::MEMALLOC);
                Request::new(order, gfp.without(Gfp::NOMEMALLOC)).on(node)
            }
            // A page that had to be of one node tells which.
            ZoneChoice::Model if gfp.has(Gfp::THISNODE) => request.on(node),
            ZoneChoice::Model => request,
        }
    }

    fn note_fallback(&mut self, actor: Actor, given: Pfn, request: Request) {
        let Some(zone) = self.zone_of(given) else { return };
        let Some(kind) = request.gfp.zone_kind() else { return };
        let node = match request.node {
            Some(id) => self.core.topology().index_of(id),
            None => self.core.topology().node_of_cpu(actor.cpu),
        };
        let preferred = node.and_then(|node| preferred(&self.core, node, kind));
        if preferred.is_some_and(|preferred| preferred != zone) {
            self.fallback_pages[zone] += request.order.pages().0;
        }
    }

    fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        let zones = self.core.zones();
        let topology = self.core.topology();
        let holds = |zone: usize| {
            let zone = zones[zone];
            zone.span().contains(pfn)
                && topology.ranges(zone.node(), zone.kind()).any(|range| range.contains(pfn))
        };
        (0..zones.len()).find(|&zone| holds(zone))
    }

    /// Frees the block that stands for the one at `pfn`. Of a block that nobody knows, `zone` and `migratetype` say
    /// where it was.
    pub fn free(
        &mut self,
        actor: Actor,
        pfn: Pfn,
        order: Order,
        zone: Option<usize>,
        migratetype: Migratetype,
    ) {
        self.counts.frees += 1;
        let block = match self.blocks.remove(pfn) {
            Some(block) if block.order == order => Some(block),
            Some(block) => {
                self.counts.split_frees += 1;
                self.split(pfn, pfn, block, order)
            }
            None => match self.blocks.around(pfn) {
                Some((head, block)) => {
                    self.counts.split_frees += 1;
                    self.blocks.remove(head);
                    self.split(head, pfn, block, order)
                }
                None => zone.and_then(|zone| self.unknown(zone, order, migratetype)),
            },
        };
        self.core.platform().play(actor.cpu, actor.now_ns);
        match block {
            Some(block) => self.free_block(actor, block),
            None => self.counts.lost_frees += 1,
        }
    }

    fn free_block(&mut self, actor: Actor, block: CoreBlock) {
        self.core.platform().play(actor.cpu, actor.now_ns);
        self.core.free(block.pfn, block.order).expect("the block was handed out or held");
        self.note_moves(actor, None);
        self.note_balance();
    }

    /// A block that was allocated before the window.
    fn unknown(
        &mut self,
        zone: usize,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<CoreBlock> {
        self.counts.unknown_frees += 1;
        if order == Order(0)
            && let Some(pfn) = self.untold[zone].pop_front()
        {
            return Some(CoreBlock { pfn, order });
        }
        let core_zone = self.core.zones()[zone];
        let number = self.held.zones[zone].take(core_zone, order, migratetype)?;
        Some(CoreBlock { pfn: core_zone.frames().pfn(number), order })
    }

    /// Takes a piece of `order` at `pfn` out of the block that begins at `head`; the other pieces stay allocated.
    fn split(&mut self, head: Pfn, pfn: Pfn, block: CoreBlock, order: Order) -> Option<CoreBlock> {
        if order >= block.order {
            // Freed as more than it was allocated: what is known of it goes back.
            return Some(block);
        }
        let zone = self.core.zones()[self.zone_of(block.pfn)?];
        let frames = zone.frames();
        let mut freed = None;
        for at in (0..block.order.pages().0).step_by(1 << order.0) {
            let piece = CoreBlock { pfn: Pfn(block.pfn.0 + at), order };
            let frame = frames.frame(frames.number(piece.pfn));
            frame.set_word(frames.allocated(order, frames.pageblock(frames.number(piece.pfn))));
            if head.0 + at == pfn.0 {
                freed = Some(piece);
            } else {
                self.blocks.insert(Pfn(head.0 + at), piece);
            }
        }
        freed
    }

    /// Allocates single pages in bulk, for recorded ones at `pfns`, and `untold` more.
    pub fn alloc_bulk(
        &mut self,
        actor: Actor,
        gfp: Gfp,
        node: Option<u32>,
        pfns: &[Pfn],
        untold: u64,
    ) {
        self.core.platform().play(actor.cpu, actor.now_ns);
        let wanted = pfns.len() + untold as usize;
        let mut pages = vec![Pfn(0); wanted];
        let request = Request::new(Order(0), gfp.without(Gfp::NOFAIL));
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
        self.counts.bulk_pages += got as u64;
        self.counts.refused_allocs += (wanted - got) as u64;
        for (at, &page) in pages[..got].iter().enumerate() {
            let block = CoreBlock { pfn: page, order: Order(0) };
            match pfns.get(at) {
                Some(&pfn) => {
                    if let Some(live) = self.blocks.insert(pfn, block) {
                        self.counts.realloc_of_live += 1;
                        self.free_block(actor, live);
                    }
                }
                None => {
                    if let Some(zone) = self.zone_of(page) {
                        self.untold[zone].push_back(page);
                        self.untold_allocs[zone] += 1;
                    }
                }
            }
        }
        let list = gfp.migratetype().and_then(|migratetype| list_index(Order(0), migratetype));
        self.note_moves(actor, list);
        self.note_reclaim();
    }

    /// Counts the refills and drains since the last look as a kernel's log would be.
    fn note_moves(&mut self, actor: Actor, list: Option<usize>) {
        let order = list.map_or(Order(0), list_order);
        for (zone, core_zone) in self.core.zones().iter().enumerate() {
            let holds = core_zone.holds().acquisitions;
            if self.holds_seen[zone] == holds {
                continue;
            }
            self.holds_seen[zone] = holds;
            let zones = self.flows.len();
            let Some(pagesets) = self.core.pagesets(actor.cpu) else { continue };
            let events = pagesets[zone].events();
            let now = Seen {
                refills: events.refills.get(),
                refilled_pages: events.refilled_pages.get(),
                drains: events.drains.get(),
                drained_pages: events.drained_pages.get(),
            };
            let seen = &mut self.seen[actor.cpu.0 as usize * zones + zone];
            let before = std::mem::replace(seen, now);
            let at = actor.cpu.0 as usize * zones + zone;
            let who = (actor.cpu, actor.pid);
            if now.drains > before.drains {
                let pages = now.drained_pages - before.drained_pages;
                self.bursts.drain(who, zone, pages, &mut self.flows);
                if self.known[at] {
                    self.known_bursts.drain(who, zone, pages, &mut self.known_flows);
                }
            }
            if now.refills > before.refills {
                let pages = now.refilled_pages - before.refilled_pages;
                self.bursts.refill(who, order, zone, pages, &mut self.flows);
                if self.known[at] {
                    self.known_bursts.refill(who, order, zone, pages, &mut self.known_flows);
                }
            }
            let refilled = list.filter(|_| now.refills > before.refills);
            self.filled[at] &= still_filled(&pagesets[zone], refilled);
        }
    }

    /// Background reclaim works on a node from when it is woken until the node is balanced.
    fn note_reclaim(&mut self) {
        while let Some((node, kind)) = self.core.platform().take_asked() {
            let Some(index) = self.core.topology().index_of(node) else { continue };
            if self.reclaiming.iter().any(|(of, _)| *of == node)
                || self.core.is_balanced(index, Order(0), kind)
            {
                continue;
            }
            self.set_reclaim(node, kind, true);
            self.reclaiming.push((node, kind));
        }
    }

    fn set_reclaim(&self, node: NodeId, kind: ZoneKind, active: bool) {
        let Some(index) = self.core.topology().index_of(node) else { return };
        for zone in self.core.zones() {
            if zone.node() == index && zone.kind() <= kind {
                zone.set_reclaim_active(active);
                if !active {
                    zone.lower_boost(zone.boost());
                }
            }
        }
    }

    fn note_balance(&mut self) {
        let mut at = 0;
        while let Some(&(node, kind)) = self.reclaiming.get(at) {
            let index = self.core.topology().index_of(node);
            if index.is_some_and(|index| self.core.is_balanced(index, Order(0), kind)) {
                self.set_reclaim(node, kind, false);
                self.reclaiming.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Ends the run: bursts that are under way are counted.
    pub fn finish(&mut self) {
        self.bursts.close_all(&mut self.flows);
        self.known_bursts.close_all(&mut self.known_flows);
    }

    /// Whether a list of a pageset has had pages ever since the start.
    pub fn has_old_lists(&self, cpu: CpuId, zone: usize) -> bool {
        self.filled[cpu.0 as usize * self.flows.len() + zone] != 0
    }

    /// Says that the state of a pageset no longer depends on the start.
    pub fn set_known(&mut self, cpu: CpuId, zone: usize) {
        let zones = self.flows.len();
        self.known[cpu.0 as usize * zones + zone] = true;
    }

    /// Pages of a CPU's pageset for a zone, and its limit.
    pub fn pageset(&self, cpu: CpuId, zone: usize) -> Option<(PageCount, PageCount)> {
        let pageset = &self.core.pagesets(cpu)?[zone];
        Some((pageset.count(), pageset.tuning().high))
    }

    /// Pages of a zone that are held.
    pub fn held_pages(&self, zone: usize) -> PageCount {
        self.held.zones[zone].pages()
    }

    /// Pages of the recording's free lists for which there was no place, over all zones.
    pub fn left_out_pages(&self) -> u64 {
        self.held.zones.iter().map(|zone| zone.left_out).sum()
    }

    /// Whether a zone passes its high mark, for single pages.
    pub fn is_above_high(&self, zone: usize) -> bool {
        self.core.zones()[zone].passes(Order(0), AllocFlags::WMARK_HIGH, ZoneKind::Movable)
    }
}

/// The lists of a pageset that may have been filled all the time: `refilled` was empty, and a drain may have emptied
/// any.
fn still_filled(pageset: &CorePageset<'_>, refilled: Option<usize>) -> u16 {
    let mut filled = 0;
    for (index, list) in pageset.lists().iter().enumerate() {
        if Some(index) != refilled && CoreStorage::count(list) > 0 {
            filled |= 1 << index;
        }
    }
    filled
}

/// The zone that requests near a node prefer.
pub fn preferred(
    core: &Core<'_>,
    node: nearpage::units::NodeIndex,
    kind: ZoneKind,
) -> Option<usize> {
    core.fallback_zones(node).find(|zone| zone.kind() <= kind).map(|zone| zone.index().0 as usize)
}
