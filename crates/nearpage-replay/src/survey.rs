//! The first pass over a trace: what there is.

use std::collections::{BTreeSet, HashMap};

use nearpage::rules::pagesets::{LISTS, list_index};
use nearpage::{CpuId, Gfp, Migratetype, NodeId, Order, Pfn};

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::findings::Findings;
use crate::first_seen::FirstSeen;
use crate::guess::Clues;
use crate::identity::Evidence;
use crate::kernel_state::Moment;
use crate::source::Source;
use crate::start::{Start, StartPageset};
use crate::strays::reclaimed_node;
use crate::ticks;
use crate::watch::Watch;
use nearpage_trace::{Event, TraceEvent, read_trace};

/// What a trace has, found in the first pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// The marker with which the window begins.
    window_begin: Option<&'static [u8]>,
    /// Whether the trace tells when CPUs do their once-a-second work.
    pub(crate) has_upkeep: bool,
    /// Whether it has the markers between which `before` and `after` were read.
    pub(crate) has_window: bool,
    /// Whether the window ends before the trace does: otherwise nothing tells what `after` is the end of.
    pub(crate) is_whole: bool,
    /// The time of the window's first event.
    pub(crate) begin_ns: u64,
    /// The time of its last one.
    pub(crate) end_ns: u64,
    /// How much time without an event has no turns of CPUs.
    pub(crate) unticked_ns: u64,
    /// The types that were asked for, by pageblock of the recorded machine.
    types: HashMap<u64, [u32; 3]>,
    /// By CPU and zone, blocks that went through each list, in either direction.
    uses: HashMap<(CpuId, usize), [u64; LISTS]>,
    /// Blocks that lists gave for the first time.
    first_seen: FirstSeen,
    /// What a pilot run found.
    pub(crate) findings: Findings,
    /// Whether the trace or its recorder tells of lost events.
    has_losses: bool,
    /// What tells where the trace comes from.
    evidence: Evidence,
    /// CPUs of the machine that allocate or free in the window.
    pub(crate) actors: BTreeSet<CpuId>,
    /// Whether the window has events of objects.
    pub(crate) has_objects: bool,
    /// Where page descriptors lie, if the trace has their addresses.
    descriptors: Option<u64>,
    /// When background reclaim freed blocks, by node: begin and end of each pass.
    passes: HashMap<NodeId, Vec<[u64; 2]>>,
}

/// Background reclaim that frees nothing for so long rests: its blocks come microseconds apart, in batches a few
/// milliseconds apart at most, and when it rests it sleeps for a tenth of a second unless it is woken
/// (`mm/vmscan.c: kswapd_try_to_sleep`, 6.12).
const REST_NS: u64 = 30_000_000;

/// Bytes of a page descriptor on 64-bit machines.
const DESCRIPTOR_BYTES: u64 = 64;

/// A part of a trace between two markers.
pub(crate) struct Window {
    /// The marker with which it begins; `None`: it is the whole trace.
    begin: Option<&'static [u8]>,
    is_open: bool,
    is_over: bool,
}

impl Window {
    /// The window of a replay from such a start.
    pub(crate) fn of(start: &Start) -> Window {
        let begin = match start.state {
            Some(_) => Moment::Before.end(),
            None => b"nearpage: before begin",
        };
        Window { begin: Some(begin), is_open: false, is_over: false }
    }

    /// Whether an event is inside.
    pub(crate) fn admits(&mut self, event: &Event<'_>) -> bool {
        if let Event::Marker(text) = event {
            if self.begin.is_some_and(|begin| text.starts_with(begin)) {
                self.is_open = true;
            } else if text.starts_with(b"nearpage: after begin") && self.is_open {
                self.is_open = false;
                self.is_over = true;
            }
        }
        self.begin.is_none() || self.is_open
    }
}

fn is_of_pages(event: &Event<'_>) -> bool {
    matches!(event, Event::Alloc { .. } | Event::Free { .. } | Event::BulkDone { .. })
}

impl Survey {
    /// Looks through the trace of a bundle.
    ///
    /// # Errors
    ///
    /// The trace cannot be read; [`ReplayError::Stopped`].
    pub(crate) fn of(
        bundle: &Bundle,
        start: &Start,
        watch: &Watch<'_>,
    ) -> Result<Survey, ReplayError> {
        Survey::of_trace(bundle.source(), start, bundle.recording().lost_events, watch)
    }

    /// Looks through a trace whose recorder tells of so many lost events.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn of_trace(
        source: &Source,
        start: &Start,
        recorder_lost_events: u64,
        watch: &Watch<'_>,
    ) -> Result<Survey, ReplayError> {
        let mut survey = Survey::default();
        let mut cpus = start.topology.nodes.iter().flat_map(|node| &node.cpus).collect::<Vec<_>>();
        cpus.sort_unstable();
        let mut bases: Vec<u64> = Vec::new();
        let mut first_ns = None;
        let mut window = Window::of(start);
        survey.window_begin = window.begin;
        source.with_trace_text(watch, |name, text| {
            let counts = read_trace::<ReplayError>(name, text, |event| {
                first_ns.get_or_insert(event.time_ns);
                let was_open = window.is_open;
                if window.admits(&event.event) && !was_open {
                    survey.has_window = true;
                    (survey.begin_ns, survey.end_ns) = (event.time_ns, event.time_ns);
                    survey.uses.clear();
                    survey.first_seen.clear();
                    survey.actors.clear();
                    survey.evidence.begin_window();
                }
                survey.evidence.note_marker(&event.event);
                survey.has_upkeep |= matches!(event.event, Event::Upkeep);
                if !window.is_over {
                    let has_cpu = cpus.binary_search(&&event.cpu).is_ok();
                    if has_cpu && is_of_pages(&event.event) {
                        survey.actors.insert(event.cpu);
                    }
                    survey.note_block(start, event, has_cpu);
                    survey.evidence.note_counted(&event.event);
                    if let Event::Free { .. } = event.event
                        && let Some(node) = reclaimed_node(event.comm)
                    {
                        survey.note_reclaim(node, event.time_ns);
                    }
                }
                if !window.is_over {
                    if survey.has_window {
                        survey.unticked_ns += ticks::left_out_ns(survey.end_ns, event.time_ns);
                    }
                    survey.end_ns = event.time_ns;
                    survey.has_objects |= matches!(event.event, Event::ObjectAlloc { .. });
                }
                if let Event::Alloc { pfn: Some(pfn), page, migratetype, .. } = event.event {
                    survey.note_type(pfn, migratetype);
                    if bases.len() < 8 {
                        bases.push(page.wrapping_sub(pfn.0 * DESCRIPTOR_BYTES));
                    }
                    // Hashed addresses have no common base.
                    survey.descriptors =
                        bases.first().copied().filter(|base| bases.iter().all(|of| of == base));
                }
                Ok(())
            })?;
            survey.is_whole = !survey.has_window || window.is_over;
            let losses = [counts.lost_events, counts.lost_lines, recorder_lost_events];
            survey.has_losses = losses.iter().any(|&count| count > 0) || counts.sampling.is_some();
            survey.evidence.check_machine(name, counts.bytes, source.kinship())?;
            match survey.is_whole || survey.has_losses {
                true => Ok(()),
                false => Err(ReplayError::CutOff { input: name.into(), offset: counts.bytes }),
            }
        })?;
        if !survey.has_window {
            survey.begin_ns = first_ns.unwrap_or(0);
        }
        survey.first_seen.finish();
        Ok(survey)
    }

    /// The window of the trace, or the whole trace if it has no markers.
    pub(crate) fn window(&self) -> Window {
        let begin = self.window_begin.filter(|_| self.has_window);
        Window { begin, is_open: false, is_over: false }
    }

    /// Whether the trace may be a part of a recording: it lacks a marker, or lost events.
    pub(crate) fn is_part(&self) -> bool {
        !self.has_window || !self.is_whole || self.has_losses
    }

    /// Refuses a trace that is of another recording than the captures beside it: see [`Evidence::check_recording`].
    ///
    /// # Errors
    ///
    /// The trace is of another recording.
    pub(crate) fn check_recording(
        &self,
        input: &str,
        samples: u64,
        counted: Option<u64>,
    ) -> Result<(), ReplayError> {
        self.evidence.check_recording(input, samples, counted, self.is_part())
    }

    fn note_reclaim(&mut self, node: NodeId, now_ns: u64) {
        let passes = self.passes.entry(node).or_default();
        match passes.last_mut() {
            Some([_, end]) if now_ns < *end + REST_NS => *end = now_ns.max(*end),
            _ => passes.push([now_ns, now_ns]),
        }
    }

    /// When the pass of a node's background reclaim ends that is under way at a time.
    pub(crate) fn end_of_pass(&self, node: NodeId, now_ns: u64) -> Option<u64> {
        let passes = self.passes.get(&node)?;
        let after = passes.partition_point(|[begin, _]| *begin <= now_ns);
        let [_, end] = passes.get(after.checked_sub(1)?)?;
        (now_ns <= *end).then_some(*end)
    }

    fn note_type(&mut self, pfn: Pfn, migratetype: u8) {
        let seen = self.types.entry(pfn.0 >> Order::PAGEBLOCK.0).or_default();
        if let Some(count) = seen.get_mut(migratetype as usize) {
            *count = count.saturating_add(1);
        }
    }

    fn note_block(&mut self, start: &Start, event: &TraceEvent<'_>, has_cpu: bool) {
        let (pfn, order, migratetype, sign) = match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                (pfn, order, Migratetype::ALL[migratetype.min(2) as usize], 1)
            }
            Event::Free { pfn, order } => (pfn, order, self.type_of(pfn), -1),
            Event::BulkDone { got, pages } => {
                let told = got.min(pages.len() as u64) as usize;
                for page in &pages[..told] {
                    let Some(pfn) = self.frame_of(*page) else { continue };
                    self.note_page_of_bulk(start, event.cpu, pfn);
                }
                return;
            }
            _ => return,
        };
        let zone = start.map.zone_of(pfn);
        self.evidence.note_block(event, zone.is_some(), has_cpu);
        let Some(zone) = zone else { return };
        let list = list_index(order, migratetype);
        match (sign, list) {
            (1, Some(list)) => {
                let most = start.zones[zone].pageset(event.cpu).map_or(0, |of| of.count.0);
                self.first_seen.note_alloc((event.cpu, zone, list), pfn, most);
            }
            (1, None) => self.first_seen.note_direct(pfn, order.pages().0),
            _ => self.first_seen.note_free(event.cpu, pfn, order.pages().0),
        }
        let Some(list) = list else { return };
        self.uses.entry((event.cpu, zone)).or_default()[list] += 1;
    }

    /// What is allocated in bulk is for the kernel itself: thread stacks, buffers.
    fn note_page_of_bulk(&mut self, start: &Start, cpu: CpuId, pfn: Pfn) {
        let Some(zone) = start.map.zone_of(pfn) else { return };
        let list = list_index(Order(0), Migratetype::Unmovable);
        let list = list.expect("pagesets keep single pages");
        let most = start.zones[zone].pageset(cpu).map_or(0, |of| of.count.0);
        self.first_seen.note_alloc((cpu, zone, list), pfn, most);
    }

    /// Whether a request asked for the node that its block is of: it had to be of that node, or its task has a policy.
    pub(crate) fn is_placed(&self, pid: u32, gfp: Gfp) -> bool {
        gfp.contains(Gfp::THISNODE) || self.findings.policies.contains(&pid)
    }

    /// The blocks that lists gave for the first time.
    pub(crate) fn first_seen(&self) -> &FirstSeen {
        &self.first_seen
    }

    /// What is known of a pageset of the recorded zone at this position.
    pub(crate) fn clues(&self, pageset: &StartPageset, zone: usize) -> Clues {
        let StartPageset { cpu, count, .. } = *pageset;
        let content = self.findings.contents.get(&(cpu, zone)).copied().unwrap_or_default();
        Clues { count, content, of: (cpu, zone) }
    }

    /// The lists of a pageset through which at least a sixteenth of its blocks go, one bit each.
    pub(crate) fn busy_lists(&self, cpu: CpuId, zone: usize) -> u16 {
        let Some(lists) = self.uses.get(&(cpu, zone)) else { return 0 };
        let all: u64 = lists.iter().sum();
        let busy = lists.iter().enumerate().filter(|(_, blocks)| **blocks * 16 >= all.max(1));
        busy.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The type of the pageblock of a frame, as far as others of it tell: the one that most were asked for.
    pub(crate) fn type_of(&self, pfn: Pfn) -> Migratetype {
        let seen = self.types.get(&(pfn.0 >> Order::PAGEBLOCK.0));
        let most = seen.and_then(|seen| (0..seen.len()).max_by_key(|&at| (seen[at], at == 1)));
        Migratetype::ALL[most.unwrap_or(Migratetype::Movable.index())]
    }

    /// The frame of a descriptor.
    pub(crate) fn frame_of(&self, descriptor: u64) -> Option<Pfn> {
        let offset = descriptor.checked_sub(self.descriptors?).filter(|_| descriptor != 0)?;
        (offset % DESCRIPTOR_BYTES == 0).then_some(Pfn(offset / DESCRIPTOR_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_reclaim_end_with_their_last_block() {
        let mut survey = Survey::default();
        let node = NodeId(3);
        // Two passes; a line out of order belongs to the one that is under way.
        for ms in [100, 101, 110, 105, 120, 200, 229] {
            survey.note_reclaim(node, ms * 1_000_000);
        }
        let end = |ms: u64| survey.end_of_pass(node, ms * 1_000_000).map(|ns| ns / 1_000_000);
        assert_eq!(
            [99, 100, 115, 120, 121].map(end),
            [None, Some(120), Some(120), Some(120), None]
        );
        assert_eq!([199, 200, 229, 230].map(end), [None, Some(229), Some(229), None]);
        assert_eq!(survey.end_of_pass(NodeId(0), 0), None);
    }
}
