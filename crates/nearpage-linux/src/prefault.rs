//! Prefault: memory that is online gets its pages now, in parallel, each node's by threads on that node. What goes
//! offline meanwhile is passed over.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use nearpage::units::{CpuId, NodeId, PageCount, Pfn, PfnRange};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::frame::FRAME_SHIFT;
use crate::memory::Memory;

/// Bytes that a thread populates at once: progress is told after each.
const PIECE_BYTES: u64 = 16 << 20;

/// How far a prefault is, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What has its pages.
    pub done: u64,
    /// What will have.
    pub total: u64,
}

impl Memory {
    /// Gives all memory that is online its pages now, each node's by `threads` threads that run there.
    /// `progress` is called after each piece of some MiB, by any of them. Returns bytes.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` before Linux 5.14, `ENOMEM` where a node has no more memory and binding
    /// is strict.
    pub fn prefault(
        &self,
        threads: NonZeroUsize,
        progress: impl Fn(Progress) + Sync,
    ) -> io::Result<u64> {
        let online = |&(node, range): &(NodeId, PfnRange)| {
            (node, PfnRange { end: range.start.plus(self.online_pages(range)), ..range })
        };
        let ranges = self.node_ranges.iter().map(online).filter(|(_, range)| !range.is_empty());
        prefault(self, ranges.collect(), threads, &progress)
    }
}

/// A node's memory that is online, and who works on it.
struct Share {
    node: NodeId,
    range: PfnRange,
    cpus: Vec<CpuId>,
    next: AtomicU64,
}

/// Populates these ranges with `threads` threads a node, or one for each piece where there are fewer pieces.
///
/// # Errors
/// The first refusal: `EINVAL` before Linux 5.14, `ENOMEM` where a node has no more memory, `EAGAIN` if no more
/// threads can be started.
fn prefault(
    memory: &Memory,
    ranges: Vec<(NodeId, PfnRange)>,
    threads: NonZeroUsize,
    progress: &(dyn Fn(Progress) + Sync),
) -> io::Result<u64> {
    let topology = memory.topology();
    let cpus =
        |id| topology.nodes().iter().find(|node| node.id == id).map(|node| node.cpus.to_vec());
    let share = |(node, range): (NodeId, PfnRange)| Share {
        node,
        range,
        cpus: cpus(node).unwrap_or_default(),
        next: AtomicU64::new(0),
    };
    let shares: Vec<Share> = ranges.into_iter().map(share).collect();
    let total = shares.iter().map(|share| share.range.pages().bytes(FRAME_SHIFT)).sum();
    let done = AtomicU64::new(0);
    let report = |bytes| {
        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        progress(Progress { done, total });
    };
    std::thread::scope(|scope| {
        let report = &report;
        let start = |share| {
            std::thread::Builder::new()
                .spawn_scoped(scope, move || Share::populate(share, memory, report))
        };
        let workers = shares
            .iter()
            .flat_map(|share| (0..share.pieces().min(threads.get() as u64)).map(move |_| share))
            .map(start)
            .collect::<io::Result<Vec<_>>>()?;
        let ends = workers.into_iter().map(|worker| match worker.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<Vec<_>>().into_iter().collect::<io::Result<()>>()
    })?;
    Ok(total)
}

fn frames(bytes: u64) -> PageCount {
    PageCount(bytes >> FRAME_SHIFT)
}

impl Share {
    fn pieces(&self) -> u64 {
        self.range.pages().bytes(FRAME_SHIFT).div_ceil(PIECE_BYTES)
    }

    fn populate(&self, memory: &Memory, report: &(dyn Fn(u64) + Sync)) -> io::Result<()> {
        self.go_there(memory);
        let total = self.range.pages().bytes(FRAME_SHIFT);
        loop {
            let at = self.next.fetch_add(PIECE_BYTES, Ordering::Relaxed);
            if at >= total {
                return Ok(());
            }
            let bytes = PIECE_BYTES.min(total - at);
            let start = Pfn(self.range.start.0 + (at >> FRAME_SHIFT));
            self.populate_piece(memory, PfnRange { start, end: start.plus(frames(bytes)) })?;
            report(bytes);
        }
    }

    fn populate_piece(&self, memory: &Memory, piece: PfnRange) -> io::Result<()> {
        let _stays_online = memory.growth.keep();
        // A node's range is online from its start on.
        let end = piece.end.min(self.range.start.plus(memory.online_pages(self.range)));
        if end <= piece.start {
            return Ok(());
        }
        let bytes = PfnRange { end, ..piece }.pages().bytes(FRAME_SHIFT);
        memory.region.populate(memory.address(piece.start), bytes as usize)
    }

    /// Runs on the node, where it is the kernel's and we may. Bound memory goes to its node from anywhere;
    /// this saves the way, and places what is not bound.
    fn go_there(&self, memory: &Memory) {
        debug_assert!(memory.topology().index_of(self.node).is_some());
        let mut set = CpuSet::new();
        let ids = self.cpus.iter().map(|cpu| cpu.0 as usize);
        ids.filter(|&id| id < CpuSet::MAX_CPU).for_each(|id| set.set(id));
        // Without a CPU of the node that this thread may use it stays where it is.
        let _ = sched_setaffinity(None, &set);
    }
}
