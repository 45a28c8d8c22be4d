//! Memory of free pages goes back to the kernel; addresses and frames stay.
//!
//! A trim borrows free pages from a zone, some that adjoin at a time and from the highest section down. It empties them by
//! `madvise(MADV_DONTNEED)` without a lock, and gives them back. So a request misses at most one pageblock while a trim runs. The
//! memory cannot shrink while a trim has pages: they would seem to be in use.
//!
//! Under nearpage's own rules pages go back one by one, and never twice: the words of their frames say behind which of them
//! there is something. Where a node's memory is of huge pages, and under Linux's rules, only pageblocks go back.
//!
//! **What pays.** A page that goes back costs part of a system call, and a fault when it is next used. So the background
//! thread takes pages only that were free already in an earlier turn; and it takes no more than a fiftieth of its CPU's time.

use std::time::Duration;

use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::Platform;
use nearpage::{Lending, NodeId, Order, PageAllocator, PageCount, Pfn, PfnRange, ZoneIndex};

use crate::ffi::thread_time;
use crate::frame::FRAME_SHIFT;
use crate::growth::Growth;
use crate::huge::{HugePages, HugePagesByNode};
use crate::region::{Region, page_size};

/// Pieces that are given back between two looks at the clock.
const PIECES_PER_LOOK: u32 = 16;

/// A turn of giving memory back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// Only pages that were free in an earlier turn than the one with this number.
    pub number: Option<u32>,
    /// Only pages of this node.
    pub node: Option<NodeId>,
    /// The most pages to give back; without a number, zones are trimmed down to their high marks.
    pub most: Option<PageCount>,
    /// The most CPU time for it.
    pub time: Option<Duration>,
    /// The section to begin with: where the last turn ran out of time.
    pub from: usize,
}

impl Turn {
    /// All that is free above the high marks.
    pub const ALL: Self = Self { number: None, node: None, most: None, time: None, from: 0 };
}

/// What a turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Trimmed {
    /// Pages that were in use since the kernel last got them, and that it has now.
    pub pages: PageCount,
    /// Where to begin the next turn: not at the beginning if there was no time for all.
    pub next: usize,
}

/// What a trim needs of a memory.
pub(crate) struct Trims<'a> {
    pub region: &'a Region,
    pub growth: &'a Growth,
    pub huge_pages: &'a HugePagesByNode,
}

impl Trims<'_> {
    /// Does a turn.
    pub fn turn<P: Platform>(&self, allocator: &PageAllocator<'static, P>, turn: &Turn) -> Trimmed {
        let node = turn.node.and_then(|node| allocator.topology().index_of(node));
        let zones =
            allocator.zones().iter().filter(|zone| node.is_none_or(|node| zone.node() == node));
        let sections: Vec<(ZoneIndex, PfnRange)> =
            zones.flat_map(|zone| sections_down(zone).map(|range| (zone.index(), range))).collect();
        let mut trimmed = Trimmed::default();
        let start = turn.time.map(|_| thread_time());
        for step in 0..sections.len() {
            let at = (turn.from + step) % sections.len();
            if !self.section(allocator, sections[at], turn, start, &mut trimmed) {
                trimmed.next = at;
                break;
            }
            if is_over(turn, start) && step + 1 < sections.len() {
                trimmed.next = (at + 1) % sections.len();
                break;
            }
        }
        trimmed
    }

    /// Trims a section; returns whether it came to its end, or false if there is no more time or need.
    fn section<P: Platform>(
        &self,
        allocator: &PageAllocator<'static, P>,
        (index, range): (ZoneIndex, PfnRange),
        turn: &Turn,
        start: Option<Duration>,
        trimmed: &mut Trimmed,
    ) -> bool {
        let zone = allocator.zones()[index.0 as usize];
        let node = allocator.topology().nodes()[zone.node().0 as usize].id;
        let lending = Lending { unit: self.unit(node), turn: turn.number };
        let kept = match turn.most {
            Some(_) => PageCount(0),
            None => zone.marks().high + Order::MAX.pages(),
        };
        let (mut from, mut pieces) = (range.start, 0);
        // What went back stays free: so much is to go that was not free before.
        let mut left = zone.free_pages().saturating_sub(kept);
        while left > PageCount(0) && zone.free_pages() > kept {
            if turn.most.is_some_and(|most| trimmed.pages >= most) {
                return false;
            }
            let _stays_online = self.growth.keep();
            let rest = PfnRange { start: from, end: range.end };
            let Some(lent) = allocator.lend_free_pages(index, rest, lending) else { break };
            let pages = lent.range().pages();
            let bytes = pages.to_bytes(FRAME_SHIFT) as usize;
            if self.region.discard(self.region.address(lent.range().start), bytes).is_ok() {
                trimmed.pages += lent.touched();
            }
            from = lent.range().end;
            left = left.saturating_sub(pages);
            drop(lent);
            pieces += 1;
            if pieces % PIECES_PER_LOOK == 0 && is_over(turn, start) {
                return false;
            }
        }
        true
    }

    /// The pieces in which memory of a node goes back: pages of the kernel's.
    fn unit(&self, node: NodeId) -> Order {
        match self.huge_pages.of(node) {
            HugePages::AsConfigured | HugePages::Never => {
                Order((page_size() >> FRAME_SHIFT).ilog2() as u8)
            }
            HugePages::Advised | HugePages::Explicit => Order::PAGEBLOCK,
        }
    }
}

fn is_over(turn: &Turn, start: Option<Duration>) -> bool {
    start.zip(turn.time).is_some_and(|(start, most)| thread_time().saturating_sub(start) >= most)
}

/// The sections of a zone that have something online, from the last one down.
fn sections_down<P: Platform>(
    zone: &nearpage::stats::Zone<'static, P>,
) -> impl Iterator<Item = PfnRange> + use<P> {
    const SECTION: u64 = SECTION_FRAMES as u64;
    // What is online is the start of the zone: a zone may be able to become a hundred times as large.
    let (start, end) = (zone.span().start, zone.span().end.min(zone.span().start + zone.managed()));
    let numbers = start.section()..end.0.div_ceil(SECTION);
    numbers.rev().map(move |number| {
        let first = Pfn(number * SECTION);
        PfnRange { start: first.max(start), end: (first + PageCount(SECTION)).min(end) }
    })
}

#[cfg(test)]
mod tests {
    use nearpage::NodeId;

    use super::*;
    use crate::{HostMachine, HostNode, Memory};

    fn memory(use_rseq: bool) -> Memory {
        let cpus = (0..256).map(nearpage::CpuId).collect();
        let node = HostNode { id: NodeId(4), cpus, has_memory: true };
        let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
        let builder = Memory::builder().machine(machine).use_rseq(use_rseq);
        builder.bytes_per_node(192 << 20).build().unwrap()
    }

    /// Pages of the memory that the kernel keeps.
    fn resident(memory: &Memory) -> u64 {
        memory.verify_placement(1 << 20).unwrap().nodes[0].1.placed()
    }

    #[test]
    fn what_is_free_above_the_high_mark_goes_back() {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            assert_eq!(memory.trim().0, 0, "nothing was touched");
            let mut kept = memory.alloc_pages(1).unwrap();
            kept[9] = 9;
            let mut blocks: Vec<_> =
                (0..40_000).map_while(|_| memory.alloc_pages(1).ok()).collect();
            blocks.iter_mut().for_each(|block| block[0] = 1);
            let filled = blocks.len() as u64;
            drop(blocks);
            assert!(resident(&memory) > filled);
            let trimmed = memory.trim().0;
            let high = memory.watermarks(NodeId(4)).high.0;
            let left = resident(&memory);
            assert!(left <= high + 3 * Order::MAX.pages().0, "{left} pages left, high is {high}");
            assert!(trimmed + left >= filled, "{trimmed} {left} {filled}");
            assert_eq!(kept[9], 9, "what is in use stays");
            let checked = memory.check().unwrap();
            assert_eq!((checked.allocated.0, checked.cached.0), (1, 0));
            // What went back comes again, empty.
            let blocks: Vec<_> = (0..30_000).map(|_| memory.alloc_pages(1).unwrap()).collect();
            assert!(blocks.iter().filter(|block| block[0] == 0).count() as u64 > trimmed / 2);
        }
    }

    #[test]
    fn memory_goes_offline_while_a_trim_runs() {
        let memory = memory(true);
        let section = 128 << 20;
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    memory.trim();
                }
            });
            let went = (0..300).try_for_each(|_| {
                memory.take_offline(NodeId(4), section)?;
                memory.bring_online(NodeId(4), section).map(|_| ())
            });
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            went.unwrap();
        });
    }

    #[test]
    fn trims_while_threads_allocate() {
        let memory = memory(true);
        std::thread::scope(|scope| {
            for stamp in 1..=3 {
                let memory = &memory;
                scope.spawn(move || {
                    for _ in 0..30 {
                        let mut blocks: Vec<_> =
                            (0..2000).filter_map(|_| memory.alloc_pages(1).ok()).collect();
                        blocks.iter_mut().for_each(|block| block.fill(stamp));
                        let is_ours = |block: &[u8]| block.iter().all(|&byte| byte == stamp);
                        assert!(blocks.iter().all(|block| is_ours(block)));
                    }
                });
            }
            for _ in 0..50 {
                memory.trim();
            }
        });
        memory.drain_all().unwrap();
        assert_eq!(memory.check().unwrap().free.0, (192 << 20) / 4096);
    }
}
