//! Prefault: memory that is online gets its pages now, in parallel, each node's by threads on that node. What goes
//! offline meanwhile is passed over.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nearpage::{CpuId, NodeId, PageCount, Pfn, PfnRange};
use nearpage_machine::work::{Observer, Stopped};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::frame::FRAME_SHIFT;
use crate::memory::Memory;

/// Bytes that a thread populates at once: the observer hears of each such piece.
const PIECE_BYTES: u64 = 16 << 20;

/// Why not all memory has its pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefaultError {
    /// The kernel refused: `EINVAL` before Linux 5.14, `ENOMEM` where a node has no more memory and binding is strict,
    /// `EAGAIN` if no more threads can be started.
    #[error("memory could not be given its pages: {0}")]
    Refused(#[from] io::Error),
    /// The observer stopped it. What has its pages keeps them.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Memory {
    /// Gives all memory that is online its pages now; returns bytes. Up to `threads` threads work for each node, and run
    /// there. The observer hears of bytes.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use nearpage_linux::Memory;
    /// use nearpage_machine::work::Unwatched;
    ///
    /// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
    /// let bytes = memory.prefault(NonZeroUsize::MIN, &Unwatched)?;
    /// assert_eq!(bytes, 16 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PrefaultError`].
    pub fn prefault(
        &self,
        threads: NonZeroUsize,
        observer: &dyn Observer,
    ) -> Result<u64, PrefaultError> {
        let online = |&(node, range): &(NodeId, PfnRange)| {
            (node, PfnRange { end: range.start + self.online_pages(range), ..range })
        };
        let ranges = self.node_ranges.iter().map(online).filter(|(_, range)| !range.is_empty());
        Prefault::new(self, ranges, observer).run(threads)
    }
}

/// A prefault of a memory.
struct Prefault<'a> {
    memory: &'a Memory,
    shares: Vec<Share>,
    observer: &'a dyn Observer,
    all_bytes: u64,
    done_bytes: AtomicU64,
    is_over: AtomicBool,
}

/// A node's memory that is online, and who works on it.
struct Share {
    range: PfnRange,
    cpus: Vec<CpuId>,
    next: AtomicU64,
}

impl<'a> Prefault<'a> {
    fn new(
        memory: &'a Memory,
        ranges: impl Iterator<Item = (NodeId, PfnRange)>,
        observer: &'a dyn Observer,
    ) -> Self {
        let cpus_of = |id| {
            let node = memory.topology().nodes().iter().find(|node| node.id == id);
            node.map_or(Vec::new(), |node| node.cpus.to_vec())
        };
        let share = |(node, range)| Share { range, cpus: cpus_of(node), next: AtomicU64::new(0) };
        let shares: Vec<Share> = ranges.map(share).collect();
        let all_bytes = shares.iter().map(Share::bytes).sum();
        let (done_bytes, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { memory, shares, observer, all_bytes, done_bytes, is_over }
    }

    /// By `threads` threads a node, or one for each piece where there are fewer pieces.
    fn run(&self, threads: NonZeroUsize) -> Result<u64, PrefaultError> {
        let most = threads.get() as u64;
        let of_share = |share| (0..Share::pieces(share).min(most)).map(move |_| share);
        std::thread::scope(|scope| {
            let start = |share| {
                std::thread::Builder::new().spawn_scoped(scope, move || self.populate(share))
            };
            let started = self.shares.iter().flat_map(of_share).map(start);
            let workers = started.collect::<io::Result<Vec<_>>>();
            // Without one of its threads it fails, so the others need not go on.
            self.is_over.fetch_or(workers.is_err(), Ordering::Relaxed);
            let ends = workers?.into_iter().map(|worker| match worker.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // All are waited for; the first error is told.
            ends.fold(Ok(()), Result::and)
        })?;
        Ok(self.all_bytes)
    }

    /// Gives a node's memory its pages, together with others.
    fn populate(&self, share: &Share) -> Result<(), PrefaultError> {
        share.go_there();
        let result = self.populate_pieces(share);
        self.is_over.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    }

    fn populate_pieces(&self, share: &Share) -> Result<(), PrefaultError> {
        while !self.is_over.load(Ordering::Relaxed) {
            let at = share.next.fetch_add(PIECE_BYTES, Ordering::Relaxed);
            if at >= share.bytes() {
                break;
            }
            let bytes = PIECE_BYTES.min(share.bytes() - at);
            let start = share.range.start + frames(at);
            self.populate_piece(share, PfnRange { start, end: start + frames(bytes) })?;
            let done = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.observer.step(done, self.all_bytes)?;
        }
        Ok(())
    }

    fn populate_piece(&self, share: &Share, piece: PfnRange) -> io::Result<()> {
        let memory = self.memory;
        let _stays_online = memory.growth.keep();
        // A node's range is online from its start on.
        let online: Pfn = share.range.start + memory.online_pages(share.range);
        let end = piece.end.min(online);
        if end <= piece.start {
            return Ok(());
        }
        let bytes = PfnRange { end, ..piece }.pages().to_bytes(FRAME_SHIFT);
        memory.region.populate(memory.address(piece.start), bytes as usize)
    }
}

impl Share {
    fn bytes(&self) -> u64 {
        self.range.pages().to_bytes(FRAME_SHIFT)
    }

    fn pieces(&self) -> u64 {
        self.bytes().div_ceil(PIECE_BYTES)
    }

    /// Runs on the node, where it is the kernel's and we may. Bound memory goes to its node from anywhere;
    /// this saves the way, and places what is not bound.
    fn go_there(&self) {
        let mut set = CpuSet::new();
        let ids = self.cpus.iter().map(|cpu| cpu.0 as usize);
        ids.filter(|&id| id < CpuSet::MAX_CPU).for_each(|id| set.set(id));
        // Without a CPU of the node that this thread may use it stays where it is.
        let _ = sched_setaffinity(None, &set);
    }
}

fn frames(bytes: u64) -> PageCount {
    PageCount(bytes >> FRAME_SHIFT)
}
