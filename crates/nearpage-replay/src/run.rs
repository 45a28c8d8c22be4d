//! One run: the core of a start state, event by event.

use std::collections::VecDeque;

use nearpage::rules::pagesets::{list_index, list_order};
use nearpage::rules::watermarks::AllocFlags;
use nearpage::{
    CpuId, Fallbacks, Gfp, Migratetype, NodeId, Order, PageCount, Pfn, Request, ZoneKind,
};

use super::blocks::{Blocks, CoreBlock};
use super::guess::{Clues, Guess};
use super::machine::{Core, CoreZone, Held, fill_pageset};
use super::old::OldLists;
use super::recorded::{Bursts, Flow};
use super::start::{Start, StartPageset};
use super::strays::{Kind, Strays};
use super::survey::Survey;
use super::ticks::Ticks;
use super::zones::ZoneMap;

/// Where the zone of an allocation comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZoneChoice {
    /// The core's own: node of the CPU, flags, watermarks.
    #[default]
    Model,
    /// The recorded page's.
    Recorded,
}

/// What an allocation is near to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Near {
    /// The CPU that asks.
    Cpu,
    /// A node: the flags of the request say that it must be this one.
    Node(NodeId),
    /// Exactly this zone, by its position: where the recorded block was.
    Zone(usize),
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
    /// Allocations that the core refused below its marks. As the kernel gave the block, perhaps after reclaim of its own,
    /// the core gives one with the right to everything, if it has any.
    pub refused_allocs: u64,
    /// Pages allocated in bulk.
    pub bulk_pages: u64,
}

/// What a kernel or a run came to as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Totals {
    /// Times that a zone's lock was taken to move pages, if that is known.
    pub lock_acquisitions: Option<u64>,
    /// Most pages that moved in one hold, if that is known.
    pub most_pages_per_hold: Option<u64>,
    /// Trips of pagesets to their zones for pages, as a kernel's log tells them: runs of lines.
    pub refills: u64,
    /// Pages of those.
    pub refill_pages: u64,
    /// Trips of pagesets to their zones with pages, likewise: a run may be many holds of the lock.
    pub drains: u64,
    /// Pages of those.
    pub drain_pages: u64,
    /// Pages handed out, by the node that gave them.
    pub pages_by_node: Vec<(NodeId, u64)>,
    /// Pages from another zone than the preferred one, by reason.
    pub reasons: Fallbacks,
    /// Bytes in pagesets at the end.
    pub cached_bytes: u64,
    /// Pages from another node than the CPU's.
    pub remote_pages: u64,
    /// Blocks allocated and freed.
    pub operations: u64,
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
    /// Pages from another node than the CPU's.
    pub remote_pages: u64,
    /// Which zone a frame of the core is of.
    map: ZoneMap,
    /// The same, of pagesets whose state is known by then ([`set_known`](Self::set_known)).
    pub known_flows: Vec<Flow>,
    bursts: Bursts,
    known_bursts: Bursts,
    /// By CPU and zone: whether the state of the pageset no longer depends on the start.
    known: Vec<bool>,
    /// By CPU and zone: what is left of the start.
    old: Vec<OldLists>,
    held: Held,
    blocks: Blocks,
    strays: Strays,
    ticks: Ticks,
    /// Nodes on which background reclaim works.
    reclaiming: Vec<Reclaim>,
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

/// Background reclaim at work.
#[derive(Clone, Copy)]
struct Reclaim {
    node: NodeId,
    /// The highest kind of zone that it works for.
    kind: ZoneKind,
    /// Until then it is at work even if the node is balanced: the trace says so.
    until_ns: u64,
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
        let mut old = vec![OldLists::default(); most * zones];
        for (index, zone) in start.zones.iter().enumerate() {
            for pageset in zone.pagesets.iter().filter(|pageset| cpus.contains(&pageset.cpu)) {
                let pages = guess.pages(&clues(survey, pageset, index));
                fill_pageset(&core, &mut held, index, pageset.cpu, &pages);
                let busy = survey.busy_lists(pageset.cpu, index);
                old[pageset.cpu.0 as usize * zones + index] = OldLists::new(&pages, busy);
            }
        }
        Run {
            counts: RunCounts::default(),
            flows: vec![Flow::default(); zones],
            fallback_pages: vec![0; zones],
            remote_pages: 0,
            map: core_map(&core),
            known_flows: vec![Flow::default(); zones],
            bursts: Bursts::default(),
            known_bursts: Bursts::default(),
            known: vec![false; most * zones],
            old,
            held,
            blocks: Blocks::default(),
            strays: Strays::default(),
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

    /// Allocates the block that stands for the one at `pfn`.
    pub fn alloc(&mut self, actor: Actor, pfn: Pfn, order: Order, gfp: Gfp, near: Near) {
        if let Some(live) = self.blocks.remove(pfn) {
            self.counts.realloc_of_live += 1;
            self.free_block(actor, live);
        }
        self.core.platform().play(actor.cpu, actor.now_ns);
        let request = self.request(order, gfp, near);
        let given = self.core.alloc(request).or_else(|_| {
            self.counts.refused_allocs += 1;
            let gfp = request.gfp.difference(Gfp::NOMEMALLOC).union(Gfp::MEMALLOC);
            self.core.alloc(Request { gfp, ..request })
        });
        if let Ok(given) = given {
            self.counts.allocs += 1;
            self.note_fallback(actor, given, request);
            self.blocks.insert(pfn, CoreBlock { pfn: given, order });
        }
        let list = gfp.migratetype().and_then(|migratetype| list_index(order, migratetype));
        self.note_moves(actor, list);
        self.bursts.close(actor.cpu, &mut self.flows);
        self.known_bursts.close(actor.cpu, &mut self.known_flows);
        self.note_reclaim();
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
        let Some(zone) = self.map.zone_of(given) else { return };
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
        if !self.strays.is_empty()
            && let Some(kind) = self.blocks.get(pfn).and_then(|block| self.kind(block))
        {
            self.strays.remove(kind, pfn);
        }
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
        self.note_balance(actor.now_ns);
    }

    /// Notes whether the block that stands for the one at `pfn`, recorded in `zone`, lies elsewhere.
    pub fn note_place(&mut self, pfn: Pfn, zone: Option<usize>) {
        if zone.is_some()
            && let Some(block) = self.blocks.get(pfn)
            && self.map.zone_of(block.pfn) != zone
            && let Some(kind) = self.kind(block)
        {
            self.strays.insert(kind, pfn);
        }
    }

    /// Lets a block of its recorded zone stand for the one at `pfn`, if there is one that stands for another: see
    /// [`Strays`]. `places` tells the zones of recorded frames.
    pub fn bring_home(&mut self, pfn: Pfn, order: Order, places: &ZoneMap) {
        let (Some(mine), Some(home)) = (self.blocks.get(pfn), places.zone_of(pfn)) else { return };
        let Some(kind) = self.kind(mine).filter(|kind| kind.0 != home && kind.1 == order) else {
            return;
        };
        while let Some(other) = self.strays.take((home, kind.1, kind.2)) {
            let block = self.blocks.get(other);
            let of_home = |block: &CoreBlock| {
                block.order == order && self.map.zone_of(block.pfn) == Some(home)
            };
            if let Some(block) = block.filter(of_home) {
                self.blocks.insert(pfn, block);
                self.blocks.insert(other, mine);
                self.strays.remove(kind, pfn);
                self.note_place(other, places.zone_of(other));
                return;
            }
        }
    }

    fn kind(&self, block: CoreBlock) -> Option<Kind> {
        let zone = self.map.zone_of(block.pfn)?;
        let migratetype = self.core.zones()[zone].pageblock_type(block.pfn);
        Some((zone, block.order, migratetype.index() as u8))
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
        let pfn = self.held.zones[zone].take(&self.core, order, migratetype)?;
        Some(CoreBlock { pfn, order })
    }

    /// Takes a piece of `order` at `pfn` out of the block that begins at `head`; the other pieces stay allocated.
    fn split(&mut self, head: Pfn, pfn: Pfn, block: CoreBlock, order: Order) -> Option<CoreBlock> {
        if order >= block.order {
            // Freed as more than it was allocated: what is known of it goes back.
            return Some(block);
        }
        let zone = self.core.zones()[self.map.zone_of(block.pfn)?];
        let split = self.core.split_block(block.pfn, block.order, order);
        split.expect("what stands for a live block is allocated");
        let mut freed = None;
        for at in (0..block.order.pages().0).step_by(1 << order.0) {
            let piece = CoreBlock { pfn: Pfn(block.pfn.0 + at), order };
            let retyped = self.core.retype_block(piece.pfn, order, zone.pageblock_type(piece.pfn));
            retyped.expect("a piece of an allocated block");
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
                    if let Some(zone) = self.map.zone_of(page) {
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
            let counts = pagesets[zone].counts();
            let now = Seen {
                refills: counts.refills,
                refilled_pages: counts.refilled_pages.0,
                drains: counts.drains,
                drained_pages: counts.drained_pages.0,
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
            let pages = now.refilled_pages - before.refilled_pages;
            let refilled = list.filter(|_| now.refills > before.refills).map(|list| (list, pages));
            self.old[at].note(&pagesets[zone], refilled);
        }
    }

    /// Background reclaim works on a node from when it is woken until the node is balanced.
    fn note_reclaim(&mut self) {
        while let Some((node, kind)) = self.core.platform().take_asked() {
            let Some(index) = self.core.topology().index_of(node) else { continue };
            if self.reclaiming.iter().any(|reclaim| reclaim.node == node)
                || self.core.is_balanced(index, Order(0), kind)
            {
                continue;
            }
            self.set_reclaim(node, kind, true);
            self.reclaiming.push(Reclaim { node, kind, until_ns: 0 });
        }
    }

    /// The kernel's reclaim is seen to work on a node until some time, whether the core would have woken it by now or not.
    /// While it does, pagesets of the node's zones are kept small: what it frees is to reach the free lists.
    pub fn note_reclaimer(&mut self, node: NodeId, until_ns: u64) {
        if let Some(reclaim) = self.reclaiming.iter_mut().find(|reclaim| reclaim.node == node) {
            reclaim.until_ns = until_ns;
        } else {
            let kind = ZoneKind::Movable;
            self.set_reclaim(node, kind, true);
            self.reclaiming.push(Reclaim { node, kind, until_ns });
        }
    }

    fn set_reclaim(&self, node: NodeId, kind: ZoneKind, active: bool) {
        let Some(index) = self.core.topology().index_of(node) else { return };
        for zone in self.core.zones() {
            if zone.node() == index && zone.kind() <= kind {
                self.core.set_reclaim_active(zone.index(), active);
                if !active {
                    self.core.lower_boost(zone.index(), zone.boost());
                }
            }
        }
    }

    fn note_balance(&mut self, now_ns: u64) {
        let mut at = 0;
        while let Some(&Reclaim { node, kind, until_ns }) = self.reclaiming.get(at) {
            let index = self.core.topology().index_of(node);
            let is_balanced =
                index.is_some_and(|index| self.core.is_balanced(index, Order(0), kind));
            if is_balanced && now_ns >= until_ns {
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

    /// Whether a list of a pageset that is much used may still hold pages of the start.
    pub fn has_old_lists(&self, cpu: CpuId, zone: usize) -> bool {
        self.old[cpu.0 as usize * self.flows.len() + zone].lists != 0
    }

    /// Says that the state of a pageset no longer depends on the start.
    pub fn set_known(&mut self, cpu: CpuId, zone: usize) {
        let zones = self.flows.len();
        self.known[cpu.0 as usize * zones + zone] = true;
    }

    /// How often a block of another type was taken, over all zones: each time, Linux logs an event.
    pub fn extfrag(&self) -> u64 {
        self.core.zones().iter().map(|zone| zone.type_fallbacks()).sum()
    }

    /// The zone of the block that stands for the one at `pfn`, by its position.
    pub fn zone_of_block(&self, pfn: Pfn) -> Option<usize> {
        self.map.zone_of(self.blocks.get(pfn)?.pfn)
    }

    /// Pages from another zone than the preferred one, by reason.
    pub fn reasons(&self) -> Fallbacks {
        let nodes = || self.core.topology().indexes();
        let pairs = nodes().flat_map(|from| nodes().map(move |to| (from, to)));
        pairs.map(|(from, to)| self.core.fallbacks(from, to)).sum()
    }

    /// What the run came to, for comparison with other machines and rules, after [`finish`](Self::finish).
    pub fn totals(&self) -> Totals {
        let stats = self.core.totals();
        let topology = self.core.topology();
        let flow = self.flows.iter().fold(Flow::default(), |sum, flow| sum.plus(*flow));
        let mut totals = Totals {
            lock_acquisitions: Some(stats.lock_acquisitions),
            most_pages_per_hold: Some(stats.most_pages_per_hold.0),
            refills: flow.refills,
            refill_pages: flow.refill_pages,
            drains: flow.drains,
            drain_pages: flow.drain_pages,
            cached_bytes: stats.cached_pages.to_bytes(self.core.page_shift()),
            remote_pages: self.remote_pages,
            reasons: self.reasons(),
            operations: self.counts.allocs + self.counts.frees + self.counts.bulk_pages,
            ..Totals::default()
        };
        for from in topology.indexes() {
            let pages = self.core.node_stats(from).pgalloc.0;
            totals.pages_by_node.push((topology.node(from).id, pages));
        }
        totals
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

/// What is known of a pageset at the start.
fn clues(survey: &Survey, pageset: &StartPageset, zone: usize) -> Clues {
    let StartPageset { cpu, count, sizes, .. } = *pageset;
    Clues {
        count,
        batch: sizes.batch,
        demand: survey.demand(cpu, zone),
        old: survey.old_pages(cpu, zone, count.0),
    }
}

/// Which zone a frame of a core is of.
fn core_map(core: &Core<'_>) -> ZoneMap {
    let mut parts = Vec::new();
    for (index, zone) in core.zones().iter().enumerate() {
        parts.extend(core.topology().ranges(zone.node(), zone.kind()).map(|range| (range, index)));
    }
    ZoneMap::of_parts(parts)
}

/// The zone that requests near a node prefer.
pub fn preferred(core: &Core<'_>, node: nearpage::NodeIndex, kind: ZoneKind) -> Option<usize> {
    core.fallback_zones(node).find(|zone| zone.kind() <= kind).map(|zone| zone.index().0 as usize)
}
