//! Memory of free blocks goes back to the kernel; addresses and frames stay.
//!
//! A trim takes free blocks of a pageblock or more from a zone, one at a time and from the highest address down. It
//! empties each by `madvise(MADV_DONTNEED)` without a lock, and puts it back at the tail of its list. So a request misses at
//! most one block while a trim runs, and a trim holds a zone's lock only while it looks through a section. The memory cannot
//! shrink while a trim has a block: the block would seem to be in use.

use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::Platform;
use nearpage::stats::Zone;
use nearpage::{Order, PageAllocator, PageCount, Pfn, PfnRange};

use crate::frame::FRAME_SHIFT;
use crate::growth::Growth;
use crate::region::Region;

/// Trims a zone down to its high mark; returns the pages whose memory went back.
pub(crate) fn trim_zone<P: Platform>(
    allocator: &PageAllocator<'static, P>,
    zone: &Zone<'static, P>,
    region: &Region,
    growth: &Growth,
) -> PageCount {
    let kept = zone.marks().high + Order::MAX.pages();
    let to_trim = zone.free_pages().saturating_sub(kept);
    let section = PageCount(SECTION_FRAMES as u64);
    let mut trimmed = PageCount(0);
    // What is online is the start of the zone: a zone may be able to become a hundred times as large.
    let end = zone.span().end.min(zone.span().start + zone.managed());
    let sections = zone.span().start.section()..end.0.div_ceil(section.0);
    for start in sections.rev().map(|number| Pfn(number * section.0)) {
        let mut at = start;
        while trimmed < to_trim && zone.free_pages() > kept {
            let _stays_online = growth.keep();
            let range = PfnRange { start: at, end: start + section };
            let Some(block) = allocator.lend_free_block(zone.index(), range) else { break };
            let (pfn, pages) = (block.pfn(), block.order().pages());
            let bytes = pages.to_bytes(FRAME_SHIFT) as usize;
            if region.discard(region.address(pfn), bytes).is_ok() {
                trimmed += pages;
            }
            at = pfn + pages;
        }
    }
    trimmed
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
