//! What the kernel's own log says, and what only the trace tells of placement.

use nearpage_trace::Event;

use crate::events::Actor;
use crate::flow::{Bursts, Flow, Lengths};

/// What a trace tells of the kernel.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Refills and drains, by zone.
    pub(crate) flows: Vec<Flow>,
    /// The same, of pagesets whose state is known by then.
    pub(crate) known_flows: Vec<Flow>,
    bursts: Bursts,
    known_bursts: Bursts,
    /// Events of fallback to another type.
    pub(crate) extfrag: u64,
    /// Whether the window has any event of refills or drains. A recording may lack both kinds.
    pub(crate) has_flow_events: bool,
    /// Whether the trace has any event of the three kinds that are predicted.
    pub(crate) has_kernel_events: bool,
    /// Allocations from each zone, those in bulk that are told included.
    pub(crate) allocs: Vec<u64>,
    /// Pages from each zone, those in bulk that are told included.
    pub(crate) pages: Vec<u64>,
    /// Pages from a zone that the request did not prefer, by zone.
    pub(crate) fallback_pages: Vec<u64>,
    /// Pages from another node than the CPU's.
    pub(crate) remote_pages: u64,
    /// Pages freed.
    pub(crate) freed_pages: u64,
    /// Pages allocated in bulk, as far as the trace tells.
    pub(crate) bulk_pages: u64,
    /// Blocks outside of all zones.
    pub(crate) foreign_frames: u64,
    /// Events on CPUs that `before` does not have.
    pub(crate) foreign_cpus: u64,
}

impl Recorded {
    /// Nothing yet, of so many zones.
    pub(crate) fn new(zones: usize) -> Recorded {
        Recorded {
            flows: vec![Flow::default(); zones],
            known_flows: vec![Flow::default(); zones],
            bursts: Bursts::default(),
            known_bursts: Bursts::default(),
            extfrag: 0,
            has_flow_events: false,
            has_kernel_events: false,
            allocs: vec![0; zones],
            pages: vec![0; zones],
            fallback_pages: vec![0; zones],
            remote_pages: 0,
            freed_pages: 0,
            bulk_pages: 0,
            foreign_frames: 0,
            foreign_cpus: 0,
        }
    }

    /// An allocation ends the run of lines on its CPU.
    pub(crate) fn note_alloc(&mut self, actor: Actor) {
        self.bursts.close(actor.cpu, &mut self.flows);
        self.known_bursts.close(actor.cpu, &mut self.known_flows);
    }

    /// A line of the kernel's log about a block of `zone`; `is_known` says whether the state of the CPU's pageset no
    /// longer depends on the start.
    pub(crate) fn note_log(
        &mut self,
        actor: Actor,
        event: &Event<'_>,
        zone: Option<usize>,
        is_known: bool,
    ) {
        let who = (actor.cpu, actor.pid);
        match (*event, zone) {
            (Event::ZoneLocked { order, percpu_refill: true, .. }, Some(zone)) => {
                let pages = order.pages().0;
                self.bursts.refill(who, order, zone, pages, &mut self.flows);
                if is_known {
                    self.known_bursts.refill(who, order, zone, pages, &mut self.known_flows);
                }
            }
            (Event::ZoneLocked { .. }, Some(_)) => self.note_alloc(actor),
            (Event::PcpuDrain { order, .. }, Some(zone)) => {
                let pages = order.pages().0;
                self.bursts.drain(who, zone, pages, &mut self.flows);
                if is_known {
                    self.known_bursts.drain(who, zone, pages, &mut self.known_flows);
                }
            }
            (Event::Extfrag { .. }, _) => self.extfrag += 1,
            (Event::ZoneLocked { .. } | Event::PcpuDrain { .. }, None) => {}
            _ => return,
        }
        self.has_flow_events |= !matches!(event, Event::Extfrag { .. });
        self.has_kernel_events = true;
    }

    /// Ends all runs of lines.
    pub(crate) fn finish(&mut self) {
        self.bursts.close_all(&mut self.flows);
        self.known_bursts.close_all(&mut self.known_flows);
    }

    /// Runs of refills and drains, by the pages that they moved.
    pub(crate) fn lengths(&self) -> &Lengths {
        &self.bursts.lengths
    }

    /// Refills and drains of all zones.
    pub(crate) fn flow(&self) -> Flow {
        self.flows.iter().fold(Flow::default(), |sum, flow| sum.plus(*flow))
    }
}
