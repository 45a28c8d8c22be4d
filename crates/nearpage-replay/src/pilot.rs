//! What pagesets held at the start, told by the blocks that were allocated: a run that finds out.
//!
//! A recording says how many pages a pageset held at the start, not which. This run takes every block from the zone that
//! the kernel took it from, so each pageset sees what the kernel's saw. At first its lists hold the first-time blocks that
//! will be asked of them ([`first_seen`](crate::first_seen)), as far as the pages go; the rest lies in one of the lists.
//! Then:
//!
//! - A list that is empty although nothing shows that it was used up gets what it needs from the rest.
//! - Where the trace shows that a list was used up ([`signs`](crate::signs)), what is left in it joins the rest, and the
//!   list lives on refills from then on.
//!
//! So what drains took from the cold end of a list before its end counts as having been there.

mod known;

use std::collections::HashMap;

use nearpage::rules::pagesets::{LISTS, list_index, list_order};
use nearpage::{CpuId, Gfp, Order, Pfn, ZoneKind};
use nearpage_trace::{Event, TraceEvent, read_trace};

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::events::{Actor, BULK_PAGES_MOST, with_type};
use crate::findings::Findings;
use crate::machine::{Core, Memory, type_of_list};
use crate::policies::Policies;
use crate::run::{Near, Origin, Run};
use crate::start::Start;
use crate::strays::reclaimed_node;
use crate::survey::Survey;
use crate::watch::Watch;
use known::{Known, Next};

/// Passes that [`survey`] makes.
pub(crate) const PASSES: u64 = 2;

/// Looks through a trace, and finds what pagesets held at the start and which tasks have policies.
///
/// # Errors
///
/// The trace cannot be read, or the core cannot be made for the machine; [`ReplayError::Stopped`].
pub(crate) fn survey(
    bundle: &Bundle,
    start: &Start,
    watch: &Watch<'_>,
) -> Result<Survey, ReplayError> {
    let mut survey = Survey::of(bundle, start, watch)?;
    survey.findings = find(bundle, start, &survey, watch)?;
    Ok(survey)
}

fn find(
    bundle: &Bundle,
    start: &Start,
    survey: &Survey,
    watch: &Watch<'_>,
) -> Result<Findings, ReplayError> {
    let mut memory = Memory::new(bundle.name(), start, 1)?;
    let Some((core, held)) = memory.cores(bundle.name(), &[])?.pop() else {
        unreachable!("one core was asked for")
    };
    let mut pagesets = HashMap::new();
    for (zone, of) in start.zones.iter().enumerate() {
        for pageset in &of.pagesets {
            let lists = survey.first_seen().lists().iter();
            let own = lists.filter(|((cpu, at, _), _)| (*cpu, *at) == (pageset.cpu, zone));
            pagesets.insert((pageset.cpu, zone), Known::new(own, pageset));
        }
    }
    let run = Run::new(start, survey, core, held, None, |pageset, zone| {
        pagesets.get(&(pageset.cpu, zone)).map_or([0; LISTS], |known| known.pages)
    });
    let (bulk, policies) = (HashMap::new(), Policies::default());
    let mut pilot = Pilot { start, survey, run, pagesets, bulk, policies };
    let mut window = survey.window();
    bundle.with_trace_text(watch, |name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                pilot.note(event);
            }
            Ok(())
        })
    })?;
    let contents = pilot.pagesets.into_iter().map(|(key, known)| (key, known.content()));
    Ok(Findings { contents: contents.collect(), policies: pilot.policies.tasks() })
}

struct Pilot<'a, 'm> {
    start: &'a Start,
    survey: &'a Survey,
    run: Run<'m>,
    pagesets: HashMap<(CpuId, usize), Known>,
    bulk: HashMap<u32, (Gfp, Option<u32>)>,
    policies: Policies,
}

impl Pilot<'_, '_> {
    fn note(&mut self, event: &TraceEvent<'_>) {
        let actor = Actor::of(event);
        if self.run.core.topology().node_of_cpu(actor.cpu).is_none() {
            return;
        }
        self.run.note_time(event, actor.cpu, actor.now_ns);
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                let gfp = with_type(gfp, migratetype);
                let zone = self.start.map.zone_of(pfn);
                self.expect(actor.cpu, pfn, order, gfp, 0);
                if let Some(zone) = zone.filter(|_| !gfp.contains(Gfp::THISNODE)) {
                    let kind = gfp.zone_kind().unwrap_or(ZoneKind::Normal);
                    self.policies.note(&self.run.core, actor, kind, zone);
                }
                self.run.alloc(actor, pfn, order, gfp, zone.map_or(Near::Cpu, Near::Zone));
            }
            Event::Free { pfn, order } => {
                let pass = reclaimed_node(event.comm)
                    .and_then(|node| Some((node, self.survey.end_of_pass(node, actor.now_ns)?)));
                if let Some((node, end_ns)) = pass {
                    self.run.note_reclaimer(node, actor.now_ns, end_ns);
                }
                let zone = self.start.map.zone_of(pfn);
                let migratetype = self.survey.type_of(pfn);
                self.run.free(actor, pfn, order, Origin { zone, migratetype });
            }
            Event::Bulk { gfp, node, .. } => {
                self.bulk.insert(actor.pid, (gfp, node));
            }
            Event::BulkDone { got, pages } => {
                self.note_bulk(actor, got.min(BULK_PAGES_MOST), &pages);
            }
            _ => {}
        }
    }

    fn note_bulk(&mut self, actor: Actor, got: u64, descriptors: &[u64]) {
        let (gfp, node) = self.bulk.remove(&actor.pid).unwrap_or((Gfp::KERNEL, None));
        let told = got.min(descriptors.len() as u64) as usize;
        let frames = descriptors[..told].iter().filter_map(|&page| self.survey.frame_of(page));
        let frames: Vec<Pfn> = frames.collect();
        for (before, &pfn) in frames.iter().enumerate() {
            self.expect(actor.cpu, pfn, Order(0), gfp, before as u64);
        }
        let untold = got - frames.len() as u64;
        self.run.alloc_bulk(actor, gfp, node, &frames, untold);
    }

    /// A block is about to be taken from a list, after `before` others at once.
    fn expect(&mut self, cpu: CpuId, pfn: Pfn, order: Order, gfp: Gfp, before: u64) {
        let list = gfp.migratetype().and_then(|of| list_index(order, of));
        let (Some(zone), Some(list)) = (self.start.map.zone_of(pfn), list) else { return };
        let Some(known) = self.pagesets.get_mut(&(cpu, zone)) else { return };
        let core = &self.run.core;
        let seen = &mut known.lists[list];
        if seen.is_ended {
            return;
        }
        match seen.note(pfn.0, order, || free_blocks(core, zone, list)) {
            Next::Refilled => self.end(cpu, zone, list, before),
            Next::Old if self.counts(cpu, zone)[list] <= before => self.supply(cpu, zone, list),
            Next::Old => {}
        }
    }

    /// Blocks on each list of a pageset.
    fn counts(&self, cpu: CpuId, zone: usize) -> [u64; LISTS] {
        let Some(pagesets) = self.run.core.pagesets(cpu) else { return [0; LISTS] };
        std::array::from_fn(|list| pagesets[zone].list_counts(list).count.into())
    }

    /// Gives a list a block of the rest, if there is one.
    fn supply(&mut self, cpu: CpuId, zone: usize, list: usize) {
        let counts = self.counts(cpu, zone);
        let pages = list_order(list).pages().0;
        let Some(known) = self.pagesets.get_mut(&(cpu, zone)) else { return };
        let Some((donor, _)) = known.donor(list, &counts).filter(|(_, spare)| *spare >= pages)
        else {
            return;
        };
        let taken = self.run.take_cold(zone, cpu, donor, pages);
        if taken < pages {
            self.run.add_cold(zone, cpu, donor, taken);
            return;
        }
        self.run.add_cold(zone, cpu, list, 1);
        known.pages[donor] -= pages;
        known.pages[list] += pages;
    }

    /// What was in a list at the start is used up, but for `kept` blocks. What is left of it in the run joins the rest.
    fn end(&mut self, cpu: CpuId, zone: usize, list: usize, kept: u64) {
        let left = self.counts(cpu, zone)[list].saturating_sub(kept);
        let Some(known) = self.pagesets.get_mut(&(cpu, zone)) else { return };
        let rest = known.end(list, left);
        if rest != list {
            let taken = self.run.take_cold(zone, cpu, list, left);
            self.run.add_cold(zone, cpu, rest, taken << list_order(list).0);
        }
    }
}

/// Free blocks of each order that a list would be refilled from.
fn free_blocks(core: &Core<'_>, zone: usize, list: usize) -> [u64; Order::COUNT] {
    let (zone, of) = (core.zones()[zone], type_of_list(list));
    std::array::from_fn(|order| zone.free_blocks(Order(order as u8), of).into())
}
