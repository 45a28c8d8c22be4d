//! What processes asked for and gave back, first to last: a load without its times, for machines with other CPUs.

use std::collections::HashMap;

use nearpage::{CpuId, Order, Pfn};

use super::event::{Event, TraceEvent};

/// So many blocks of an order, allocated or freed one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// Whether they are allocated.
    pub allocates: bool,
    /// How many.
    pub count: u32,
    /// Their order.
    pub order: Order,
}

/// Collects them, event by event.
///
/// ```
/// use nearpage_trace::processes::Processes;
/// use nearpage_trace::{TraceError, read_trace};
///
/// let text = "a-7 [0] d..1. 1.000000: mm_page_alloc: page=1 pfn=0x8 order=0 migratetype=1 gfp_flags=GFP_KERNEL\n\
///             b-8 [1] d..1. 1.000001: mm_page_free: page=1 pfn=0x8 order=0\n";
/// let mut processes = Processes::default();
/// read_trace::<TraceError>("text", text.as_bytes(), |event| Ok(processes.note(event)))?;
/// let load = processes.finish();
/// assert_eq!((load.processes.len(), load.processes[0].len()), (1, 2));
/// assert_eq!(load.moved_percent(), 100);
/// # Ok::<(), TraceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// By the number of the task, in the order of their first allocation.
    places: HashMap<u32, usize>,
    all: Vec<Process>,
    live: HashMap<Pfn, Live>,
    /// Of the first event and the last.
    times_ns: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    does: Vec<Blocks>,
    freed: u64,
    freed_elsewhere: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    process: usize,
    order: Order,
    cpu: CpuId,
}

/// What all processes of a trace did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Load {
    /// Each that allocated something: its allocations, and the frees of its blocks, whoever freed them.
    pub processes: Vec<Vec<Blocks>>,
    /// Those most of whose blocks another CPU freed than had allocated them.
    pub moved: usize,
    /// Pages that were allocated.
    pub pages: u64,
    /// From the first event to the last, in nanoseconds.
    pub span_ns: u64,
}

impl Load {
    /// Of a hundred processes, those whose blocks another CPU freed.
    pub fn moved_percent(&self) -> u32 {
        let count = self.processes.len().max(1);
        (100 * self.moved / count) as u32
    }
}

impl Processes {
    /// Adds an event. Blocks that were allocated before the trace belong to nobody.
    pub fn note(&mut self, event: &TraceEvent<'_>) {
        let (first, last) = self.times_ns.unwrap_or((event.time_ns, event.time_ns));
        self.times_ns = Some((first.min(event.time_ns), last.max(event.time_ns)));
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, .. } => {
                let next = self.all.len();
                let process = *self.places.entry(event.pid).or_insert(next);
                if process == next {
                    self.all.push(Process::default());
                }
                self.all[process].add(true, order);
                self.live.insert(pfn, Live { process, order, cpu: event.cpu });
            }
            Event::Free { pfn, .. } => {
                let Some(Live { process, order, cpu }) = self.live.remove(&pfn) else { return };
                let process = &mut self.all[process];
                process.add(false, order);
                process.freed += 1;
                process.freed_elsewhere += u64::from(cpu != event.cpu);
            }
            _ => {}
        }
    }

    /// What all of them did.
    pub fn finish(self) -> Load {
        let span_ns = self.times_ns.map_or(0, |(first, last)| last - first);
        let has_moved = |process: &&Process| 2 * process.freed_elsewhere > process.freed;
        let moved = self.all.iter().filter(has_moved).count();
        let processes: Vec<Vec<Blocks>> = self.all.into_iter().map(|of| of.does).collect();
        let allocated = processes.iter().flatten().filter(|of| of.allocates);
        let pages = allocated.map(|of| u64::from(of.count) << of.order.0).sum();
        Load { processes, moved, pages, span_ns }
    }
}

impl Process {
    fn add(&mut self, allocates: bool, order: Order) {
        match self.does.last_mut() {
            Some(last) if last.allocates == allocates && last.order == order => last.count += 1,
            _ => self.does.push(Blocks { allocates, count: 1, order }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceError, read_trace};

    #[test]
    fn blocks_belong_to_who_allocated_them() {
        let alloc = |who: &str, cpu: u32, pfn: u64, order: u8| {
            format!(
                "{who} [{cpu}] d..1. 1.0: mm_page_alloc: page=1 pfn={pfn:#x} order={order} migratetype=1 gfp_flags=0\n"
            )
        };
        let free = |who: &str, cpu: u32, pfn: u64, order: u8| {
            format!("{who} [{cpu}] d..1. 1.0: mm_page_free: page=1 pfn={pfn:#x} order={order}\n")
        };
        let text = [
            free("x-1", 0, 9, 0),
            alloc("a-7", 0, 1, 0),
            alloc("a-7", 0, 2, 0),
            alloc("b-8", 1, 8, 3),
            free("a-7", 0, 1, 0),
            free("b-8", 1, 2, 0),
            free("a-7", 0, 8, 3),
            alloc("a-7", 0, 2, 0),
        ];
        let mut processes = Processes::default();
        let each = |event: &TraceEvent<'_>| {
            processes.note(event);
            Ok::<(), TraceError>(())
        };
        read_trace("t", text.concat().as_bytes(), each).unwrap();
        let load = processes.finish();
        let blocks = |allocates, count, order| Blocks { allocates, count, order: Order(order) };
        assert_eq!(
            load.processes,
            [
                vec![blocks(true, 2, 0), blocks(false, 2, 0), blocks(true, 1, 0)],
                vec![blocks(true, 1, 3), blocks(false, 1, 3)]
            ]
        );
        // Half of the first one's blocks were freed elsewhere, which is not most; all of the second one's.
        assert_eq!((load.moved, load.moved_percent(), load.pages), (1, 50, 11));
    }
}
