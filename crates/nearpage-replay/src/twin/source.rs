//! The recorded load: what was allocated and freed when, by whom, and what became of it.

use std::collections::HashMap;

use nearpage::{CpuId, Gfp, NodeId, Order, Pfn};
use nearpage_trace::{BULK_PAGES_TOLD, Event, TraceEvent, read_trace};

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::events::BULK_PAGES_MOST;
use crate::start::Start;
use crate::strays::reclaimed_node;
use crate::survey::Survey;
use crate::watch::Watch;

/// A recorded load.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Length of the window.
    pub(super) span_ns: u64,
    /// Its CPUs, ascending: acts name them by their positions.
    pub(super) cpus: Vec<CpuId>,
    /// By time.
    pub(super) acts: Vec<Act>,
    /// Blocks that were allocated.
    pub(super) births: Vec<Birth>,
    /// Who did something.
    pub(super) tasks: Vec<Task>,
}

/// A task of the recording.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Task {
    pub(super) comm: Vec<u8>,
    pub(super) pid: u32,
    /// The node that it reclaims memory of.
    pub(super) reclaims: Option<NodeId>,
}

/// What a CPU did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    pub(super) task: u32,
    pub(super) what: What,
}

/// What was done. Frees of blocks whose allocation was recorded are [`Birth::end`].
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A block was allocated.
    Alloc { birth: u32 },
    /// Pages were allocated in bulk; those that are told are births from `first` on.
    Bulk { gfp: Gfp, node: Option<u32>, wanted: u64, got: u64, first: u32, told: u32 },
    /// A block was freed that had been allocated before.
    FreeOld { zone: usize, order: Order },
}

/// A block that was allocated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) at_ns: u64,
    pub(super) zone: usize,
    pub(super) order: Order,
    pub(super) migratetype: u8,
    pub(super) gfp: Gfp,
    /// When it was freed, after how long and by whom; `None` if it stayed.
    pub(super) end: Option<End>,
}

/// The end of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) after_ns: u64,
    pub(super) cpu: u32,
    pub(super) task: u32,
}

impl Source {
    /// Reads the window of a trace.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or has no block; [`ReplayError::Stopped`].
    pub(super) fn read(
        bundle: &Bundle,
        start: &Start,
        survey: &Survey,
        watch: &Watch<'_>,
    ) -> Result<Source, ReplayError> {
        let mut reader = Reader::new(start, survey);
        let mut window = survey.window();
        bundle.with_trace_text(watch, |name, text| {
            let counts = read_trace::<ReplayError>(name, text, |event| {
                if window.admits(&event.event) {
                    reader.note(event);
                }
                Ok(())
            })?;
            match reader.source.births.is_empty() {
                true => Err(ReplayError::NoBlocks { input: name.into(), offset: counts.bytes }),
                false => Ok(()),
            }
        })?;
        let mut source = reader.source;
        source.span_ns = (survey.end_ns - survey.begin_ns).max(1);
        // Lines out of order come a few microseconds late.
        source.acts.sort_by_key(|act| act.at_ns);
        Ok(source)
    }
}

struct Reader<'r> {
    source: Source,
    start: &'r Start,
    survey: &'r Survey,
    tasks: HashMap<Task, u32>,
    live: HashMap<Pfn, u32>,
    /// Bulk allocations that began, by CPU.
    bulks: HashMap<CpuId, (Gfp, Option<u32>, u64)>,
}

impl<'r> Reader<'r> {
    fn new(start: &'r Start, survey: &'r Survey) -> Reader<'r> {
        let mut cpus: Vec<CpuId> =
            start.topology.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        let source = Source { cpus, ..Source::default() };
        let (tasks, live, bulks) = (HashMap::new(), HashMap::new(), HashMap::new());
        Reader { source, start, survey, tasks, live, bulks }
    }

    fn note(&mut self, event: &TraceEvent<'_>) {
        let Ok(cpu) = self.source.cpus.binary_search(&event.cpu) else { return };
        let (cpu, at_ns) = (cpu as u32, event.time_ns.saturating_sub(self.survey.begin_ns));
        let task = match event.event {
            Event::Alloc { .. } | Event::Free { .. } | Event::BulkDone { .. } => self.task(event),
            _ => 0,
        };
        let what = match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                let Some(birth) = self.born(pfn, at_ns, order, migratetype, gfp) else { return };
                What::Alloc { birth }
            }
            Event::Bulk { gfp, node, wanted } => {
                self.bulks.insert(event.cpu, (gfp, node, wanted));
                return;
            }
            Event::BulkDone { got, pages } => {
                let Some((gfp, node, wanted)) = self.bulks.remove(&event.cpu) else { return };
                let told = got.min(BULK_PAGES_TOLD as u64) as usize;
                let first = self.source.births.len() as u32;
                for pfn in pages[..told].iter().filter_map(|page| self.survey.frame_of(*page)) {
                    self.born(pfn, at_ns, Order(0), 0, gfp);
                }
                let told = self.source.births.len() as u32 - first;
                What::Bulk { gfp, node, wanted, got: got.min(BULK_PAGES_MOST), first, told }
            }
            Event::Free { pfn, order } => match self.live.remove(&pfn) {
                Some(birth) => {
                    let birth = &mut self.source.births[birth as usize];
                    let after_ns = at_ns.saturating_sub(birth.at_ns);
                    birth.end = Some(End { after_ns, cpu, task });
                    return;
                }
                None => match self.start.map.zone_of(pfn) {
                    Some(zone) => What::FreeOld { zone, order },
                    None => return,
                },
            },
            _ => return,
        };
        self.source.acts.push(Act { at_ns, cpu, task, what });
    }

    fn born(
        &mut self,
        pfn: Pfn,
        at_ns: u64,
        order: Order,
        migratetype: u8,
        gfp: Gfp,
    ) -> Option<u32> {
        let zone = self.start.map.zone_of(pfn)?;
        let birth = self.source.births.len() as u32;
        self.source.births.push(Birth { at_ns, zone, order, migratetype, gfp, end: None });
        self.live.insert(pfn, birth);
        Some(birth)
    }

    fn task(&mut self, event: &TraceEvent<'_>) -> u32 {
        let reclaims = reclaimed_node(event.comm);
        let task = Task { comm: event.comm.to_vec(), pid: event.pid, reclaims };
        let next = self.tasks.len() as u32;
        *self.tasks.entry(task).or_insert_with_key(|task| {
            self.source.tasks.push(task.clone());
            next
        })
    }
}
