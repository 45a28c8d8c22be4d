//! Ranges that are larger than the largest order, or at a given place: for devices, pages of 1 GiB, areas that a kernel keeps.
//!
//! A range is emptied as one that goes offline is (`offline.rs`): its pageblocks are isolated, pagesets are drained, and if all
//! of it is free then it is handed out, in blocks. It is in whole pageblocks of one zone; what is not wanted of the last one can
//! be freed at once ([`free_range`](PageAllocator::free_range)).

use super::allocator::PageAllocator;
use super::online_map::{PAGEBLOCK_FRAMES, by_pageblock};
use super::request::Request;
use super::state::State;
use crate::error::{AllocError, OfflineError};
use crate::frame::Migratetype;
use crate::host::{Lock, Platform};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange};
use crate::zone::{Zone, ZoneEvents};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Allocates a given range, in whole pageblocks. It is handed out as blocks as large as they can be, unmovable ones; the
    /// whole or any part is freed by [`free_range`](Self::free_range).
    ///
    /// What is in use is not moved away. A memory in which kernel data lies everywhere has no such range: allocate early, or
    /// keep a Movable zone. Watermarks and limits do not refuse it; limits count it.
    ///
    /// # Errors
    /// [`OfflineError`], with the first page that is in use; nothing is changed then.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{NodeIndex, PfnRange};
    /// # TestMachine::new().node(0, 8192, &[0]).run(|pages| {
    /// let start = pages.topology().node(NodeIndex(0)).memory[0].start.0;
    /// let range = PfnRange::new(start + 2048, start + 6144);
    /// pages.alloc_range(range).unwrap();
    /// assert!(pages.alloc_range(range).is_err());
    /// pages.free_range(range).unwrap();
    /// # });
    /// ```
    pub fn alloc_range(&self, range: PfnRange) -> Result<(), OfflineError> {
        self.take_range(&mut self.state.lock(), range)
    }

    /// Allocates `pages` pages one behind the other, of any number (0 is taken for 1), the first of them aligned to `align`, which
    /// may be above [`Order::MAX`], near a node as the request's order 0 would be: of [`Request`] the order is not looked at. They
    /// are freed by [`free_range`](Self::free_range).
    ///
    /// Watermarks and limits are for requests of a block: a range may be the last free memory there is, and what it takes is counted
    /// by limits and not refused.
    ///
    /// # Errors
    /// [`AllocError::NoRange`] if no zone that the request may use has them; what is in use is not moved away. As for any
    /// allocation, if the request cannot be met by any zone.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{Gfp, Order, PageCount, Request};
    /// # TestMachine::new().node(0, 8192, &[0]).run(|pages| {
    /// let request = Request::new(Order(0), Gfp::KERNEL);
    /// let range = pages.alloc_contiguous(PageCount(2500), Order(9), request).unwrap();
    /// pages.free_range(range).unwrap();
    /// let told = pages.alloc_contiguous(PageCount(9000), Order(9), request).unwrap_err().to_string();
    /// assert_eq!(told, "no 9000 pages in one piece, aligned to order 9, for GFP_KERNEL preferring node 0");
    /// # });
    /// ```
    pub fn alloc_contiguous(
        &self,
        pages: PageCount,
        align: Order,
        request: Request,
    ) -> Result<PfnRange, AllocError> {
        let request = Request { order: MAX_ORDER, ..request };
        let wanted = self.wanted(request)?;
        let no_range = AllocError::NoRange {
            node: self.topology.node(wanted.node).id,
            pages,
            align,
            gfp: request.gfp,
        };
        // What no word holds, no memory has either.
        let whole = pages.0.max(1).checked_next_multiple_of(PAGEBLOCK_FRAMES).map(PageCount);
        let (Some(whole), Some(align_pages)) = (whole, 1_u64.checked_shl(align.0.into())) else {
            return Err(no_range);
        };
        let step = PAGEBLOCK_FRAMES.max(align_pages);
        let mut state = self.state.lock();
        for zone in self.zonelist(&wanted) {
            for memory in self.topology.ranges_in(zone.node(), zone.span()) {
                let mut start = Pfn(memory.start.0.next_multiple_of(step));
                while start.0.checked_add(whole.0).is_some_and(|end| end <= memory.end.0) {
                    let range = PfnRange { start, end: start + whole };
                    match self.first_in_use(range) {
                        Some(held) => start = Pfn((held.0 + 1).next_multiple_of(step)),
                        None if self.take_range(&mut state, range).is_ok() => {
                            drop(state);
                            let end = start + PageCount(pages.0.max(1));
                            let rest = PfnRange { start: end, end: range.end };
                            // It was just taken, so that nobody can refuse it.
                            let _ = self.free_range(rest);
                            return Ok(PfnRange { start, end });
                        }
                        None => start = Pfn(start.0 + step),
                    }
                }
            }
        }
        Err(no_range)
    }

    fn take_range(&self, _state: &mut State<'m>, range: PfnRange) -> Result<(), OfflineError> {
        self.isolate_and_empty(core::iter::once(range))?;
        self.each_hold(core::iter::once(range), |zone, part| self.hand_out_part(zone, part));
        Ok(())
    }

    /// Hands a part of a range out that is isolated and free, in one hold of its zone's lock.
    fn hand_out_part(&self, zone: &'m Zone<'m, P>, part: PfnRange) {
        let (frames, mut guard) = (*zone.frames(), zone.lock());
        let numbers = frames.number(part.start)..frames.number(part.end);
        match zone.maps() {
            Some(_) => {
                zone.take_out(numbers);
                zone.captured_are_out(part.pages().0);
            }
            None => guard.buddy().take_out(frames, numbers),
        }
        by_pageblock(part).for_each(|of| self.disown(&mut guard, frames.number(of.start)));
        let mut at = part.start;
        let mut blocks = 0;
        while at < part.end {
            let fits = |&order: &Order| at.is_aligned(order) && (at + order.pages()) <= part.end;
            let order = (0..=MAX_ORDER.0).rev().map(Order).find(fits).unwrap_or(Order(0));
            let word = frames.allocated(order, Migratetype::Unmovable);
            frames.word(frames.number(at)).set(word);
            at += order.pages();
            blocks += 1;
        }
        let events = zone.events();
        ZoneEvents::add(&events.direct_allocs, blocks);
        ZoneEvents::add(&events.direct_alloc_pages, part.pages().0);
        guard.note_taken(part.pages().0);
    }

    /// The last page of the last block of a range that is in somebody's hands, or that is not online, as of a moment ago.
    fn first_in_use(&self, range: PfnRange) -> Option<Pfn> {
        let mut at = range.start;
        let mut held = None;
        while at < range.end {
            let pageblock = Pfn(at.0 - at.0 % PAGEBLOCK_FRAMES);
            if at == pageblock && !self.is_online(at) {
                held = Some(at);
                at += PAGEBLOCK_ORDER.pages();
                continue;
            }
            let Some(word) = self.frame(at).map(|frame| frame.word()) else { return Some(at) };
            let order = word.order();
            if word.without_lock().is_allocated(order) {
                held = Some(at + order.pages() - PageCount(1));
            }
            at += if word.is_free(order, word.zone()) { order.pages() } else { PageCount(1) };
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::{Config, Limits};
    use crate::error::LimitOf;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::NodeId;

    fn each_model(run: impl Fn(&PageAllocator<'_, crate::testing::plain::PlainPlatform>)) {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            let machine = TestMachine::new().node(0, 8192, &[0]).node(1, 8192, &[1]);
            machine.config(config).run(&run);
        }
    }

    #[test]
    fn more_than_the_largest_order() {
        each_model(|allocator| {
            let page = allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
            let request = Request::new(Order(0), Gfp::KERNEL);
            let range = allocator.alloc_contiguous(PageCount(3000), Order(10), request).unwrap();
            assert_eq!(range.pages(), PageCount(3000));
            assert!(range.start.is_aligned(Order(10)) && !range.contains(page));
            // What the last pageblock has behind it went back.
            assert_eq!(allocator.check().unwrap().allocated, PageCount(3001));
            allocator
                .free_range(PfnRange { start: range.start + PageCount(7), end: range.end })
                .unwrap();
            allocator
                .free_range(PfnRange { start: range.start, end: range.start + PageCount(7) })
                .unwrap();
            allocator.free(page, Order(0)).unwrap();
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
        });
    }

    #[test]
    fn it_comes_from_another_node_or_not_at_all() {
        each_model(|allocator| {
            let on = |node, gfp| Request::new(Order(0), gfp).on(NodeId(node));
            let near = on(0, Gfp::KERNEL);
            let first = allocator.alloc_contiguous(PageCount(6000), Order(9), near).unwrap();
            let second = allocator.alloc_contiguous(PageCount(6000), Order(9), near).unwrap();
            let node = |range: PfnRange| allocator.topology().node_of_pfn(range.start).unwrap().0;
            assert_eq!((node(first), node(second)), (0, 1));
            let strict = on(0, Gfp::KERNEL | Gfp::THISNODE);
            assert!(allocator.alloc_contiguous(PageCount(6000), Order(9), strict).is_err());
            [first, second].into_iter().for_each(|range| allocator.free_range(range).unwrap());
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
        });
    }

    #[test]
    fn pages_in_use_are_told_and_nothing_is_changed() {
        each_model(|allocator| {
            let pages: Vec<Pfn> = (0..3)
                .map(|_| allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap())
                .collect();
            let start = Pfn(pages[0].0 - pages[0].0 % 1024);
            let range = PfnRange { start, end: start + PageCount(1024) };
            let refused = allocator.alloc_range(range).unwrap_err();
            assert!(matches!(refused, OfflineError::InUse { .. }), "{refused}");
            assert_eq!(allocator.check().unwrap().allocated, PageCount(3));
            pages.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
            allocator.alloc_range(range).unwrap();
            let blocks: Vec<_> =
                (0..4).map(|_| allocator.alloc(Request::new(Order(9), Gfp::KERNEL))).collect();
            assert!(blocks.iter().flatten().all(|&block| !range.contains(block)));
            blocks.into_iter().flatten().for_each(|block| allocator.free(block, Order(9)).unwrap());
            assert_eq!(allocator.check().unwrap().allocated, PageCount(1024));
            allocator.free_range(range).unwrap();
            let half = PfnRange { start, end: start + PageCount(100) };
            assert!(matches!(
                allocator.alloc_range(half),
                Err(OfflineError::PartOfPageblock { .. })
            ));
        });
    }

    #[test]
    fn what_no_memory_has_is_told_and_nothing_is_changed() {
        each_model(|allocator| {
            let request = Request::new(Order(0), Gfp::KERNEL).on(NodeId(1));
            let (node, gfp) = (NodeId(1), Gfp::KERNEL);
            for (pages, align) in [(8193, 0), (1, 40), (1, 63), (1, 64), (1, 255), (u64::MAX, 0)] {
                let (pages, align) = (PageCount(pages), Order(align));
                let refused = allocator.alloc_contiguous(pages, align, request);
                assert_eq!(refused, Err(AllocError::NoRange { node, pages, align, gfp }));
            }
            for (start, end) in [(u64::MAX - 511, u64::MAX), (0, u64::MAX), (u64::MAX, u64::MAX)] {
                let range = PfnRange::new(start, end);
                assert!(allocator.alloc_range(range).is_err());
                assert!(allocator.offline(range).is_err());
                assert!(allocator.online(range).is_err());
            }
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
            // Orders above the largest of a block are alignments too.
            let range = allocator.alloc_contiguous(PageCount(1), Order(12), request).unwrap();
            assert!(range.start.is_aligned(Order(12)) && range.pages() == PageCount(1));
            allocator.free_range(range).unwrap();
        });
    }

    #[test]
    fn ledgers_count_it() {
        TestMachine::new().node(0, 8192, &[0]).run(|allocator| {
            let limits = Limits { hard_bytes: Some(8000 << 12), ..Limits::default() };
            allocator.set_limits(LimitOf::Allocator, limits).unwrap();
            let before = allocator.counted_in_use(LimitOf::Allocator).unwrap();
            let request = Request::new(Order(0), Gfp::KERNEL);
            let range = allocator.alloc_contiguous(PageCount(1024), Order(0), request).unwrap();
            let after = allocator.counted_in_use(LimitOf::Allocator).unwrap();
            assert_eq!(after.0 - before.0, 1024);
            allocator.free_range(range).unwrap();
            allocator.drain_all().unwrap();
            assert_eq!(allocator.counted_in_use(LimitOf::Allocator), Some(before));
        });
    }
}
