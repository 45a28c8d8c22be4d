//! What moves between pagesets and zones, counted as a kernel's log would be.

use nearpage::rules::pagesets::{LISTS, list_order};
use nearpage::{CpuId, Order};

use crate::events::Actor;
use crate::flow::{Bursts, Flow, Lengths};
use crate::machine::{Core, CoreZone};
use crate::old::OldLists;

/// Refills and drains of a run.
#[derive(Debug)]
pub(crate) struct Moves {
    /// By zone.
    pub(crate) flows: Vec<Flow>,
    /// The same, of pagesets whose state is known by then ([`set_known`](Self::set_known)).
    pub(crate) known_flows: Vec<Flow>,
    bursts: Bursts,
    known_bursts: Bursts,
    /// By zone: holds of its lock when its pagesets were last looked at.
    holds_seen: Vec<u64>,
    /// By CPU and zone.
    pagesets: Vec<Seen>,
}

/// A pageset as it was last looked at.
#[derive(Clone, Debug, Default)]
struct Seen {
    refills: u64,
    refilled_pages: u64,
    drains: u64,
    drained_pages: u64,
    /// Whether its state no longer depends on the start.
    is_known: bool,
    /// What is left of the start.
    old: OldLists,
}

/// Holds of a zone's lock that moved pages, or what there is in their place.
fn holds<'m>(core: &Core<'m>, zone: &CoreZone<'m>) -> u64 {
    zone.holds().acquisitions + core.shared_writes(zone).unwrap_or(0)
}

impl Moves {
    /// For CPUs whose numbers are below `cpu_limit`. Nothing has moved yet.
    pub(crate) fn new(core: &Core<'_>, cpu_limit: usize) -> Moves {
        let zones = core.zones().len();
        Moves {
            flows: vec![Flow::default(); zones],
            known_flows: vec![Flow::default(); zones],
            bursts: Bursts::default(),
            known_bursts: Bursts::default(),
            holds_seen: core.zones().iter().map(|zone| holds(core, zone)).collect(),
            pagesets: vec![Seen::default(); cpu_limit * zones],
        }
    }

    /// A pageset starts with so many pages in each list, of which those in `busy` are much used.
    pub(crate) fn set_start(&mut self, cpu: CpuId, zone: usize, pages: &[u64; LISTS], busy: u16) {
        self.pageset_mut(cpu, zone).old = OldLists::new(pages, busy);
    }

    /// Counts what moved since the last look. `list` is the list that was asked for pages.
    pub(crate) fn note(&mut self, core: &Core<'_>, actor: Actor, list: Option<usize>) {
        for (zone, core_zone) in core.zones().iter().enumerate() {
            let holds = holds(core, core_zone);
            if self.holds_seen[zone] != holds {
                self.holds_seen[zone] = holds;
                self.note_zone(core, actor, zone, list);
            }
        }
    }

    fn note_zone(&mut self, core: &Core<'_>, actor: Actor, zone: usize, list: Option<usize>) {
        let Some(pagesets) = core.pagesets(actor.cpu) else { return };
        let counts = pagesets[zone].counts();
        let seen = &mut self.pagesets[actor.cpu.0 as usize * self.flows.len() + zone];
        let trip = |count: u64, seen: &mut u64| count - std::mem::replace(seen, count);
        let refills = trip(counts.refills, &mut seen.refills);
        let refilled_pages = trip(counts.refilled_pages.0, &mut seen.refilled_pages);
        let drains = trip(counts.drains, &mut seen.drains);
        let drained_pages = trip(counts.drained_pages.0, &mut seen.drained_pages);
        let who = (actor.cpu, actor.pid);
        if drains > 0 {
            self.bursts.drain(who, zone, drained_pages, &mut self.flows);
            if seen.is_known {
                self.known_bursts.drain(who, zone, drained_pages, &mut self.known_flows);
            }
        }
        if refills > 0 {
            let order = list.map_or(Order(0), list_order);
            self.bursts.refill(who, order, zone, refilled_pages, &mut self.flows);
            if seen.is_known {
                self.known_bursts.refill(who, order, zone, refilled_pages, &mut self.known_flows);
            }
        }
        let refilled = list.filter(|_| refills > 0).map(|list| (list, refilled_pages));
        seen.old.note(&pagesets[zone], refilled);
    }

    /// Runs that ended, by the pages that they moved.
    pub(crate) fn lengths(&self) -> &Lengths {
        &self.bursts.lengths
    }

    /// Ends the run of lines that is under way on a CPU.
    pub(crate) fn close(&mut self, cpu: CpuId) {
        self.bursts.close(cpu, &mut self.flows);
        self.known_bursts.close(cpu, &mut self.known_flows);
    }

    /// Ends all runs of lines.
    pub(crate) fn close_all(&mut self) {
        self.bursts.close_all(&mut self.flows);
        self.known_bursts.close_all(&mut self.known_flows);
    }

    /// Whether a list of a pageset that is much used may still hold pages of the start.
    pub(crate) fn has_old_lists(&self, cpu: CpuId, zone: usize) -> bool {
        self.pagesets[cpu.0 as usize * self.flows.len() + zone].old.lists != 0
    }

    /// Says that the state of a pageset no longer depends on the start.
    pub(crate) fn set_known(&mut self, cpu: CpuId, zone: usize) {
        self.pageset_mut(cpu, zone).is_known = true;
    }

    fn pageset_mut(&mut self, cpu: CpuId, zone: usize) -> &mut Seen {
        &mut self.pagesets[cpu.0 as usize * self.flows.len() + zone]
    }
}
