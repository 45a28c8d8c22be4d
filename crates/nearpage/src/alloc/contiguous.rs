//! Ranges at a given place, or larger than the largest order: for devices, pages of 1 GiB, areas that a kernel keeps.
//!
//! A range is emptied as one that goes offline is (`offline.rs`): its pageblocks are isolated, pagesets are drained, and if all
//! of it is free then it is handed out, in blocks. What is free beside it in its first and last pageblock is free again
//! afterwards.
//!
//! **No lock is held for longer than a few pageblocks take**, whatever the size of the range and of the machine: that of the
//! settings for one pageblock at a time, so that memory does not go offline meanwhile. What keeps two ranges apart is that a
//! pageblock is isolated for one of them. The other finds it in use, and so does memory that is to go offline; nobody
//! waits. A search reads words of frames, and takes no lock before it has found a range that looks free.

use super::RuleSet;
use super::allocator::PageAllocator;
use super::offline::{end_isolation, isolate};
use super::online_map::{PAGEBLOCK_FRAMES, by_pageblock};
use super::request::Request;
use crate::error::{AllocError, OfflineError, RangeError};
use crate::frame::Migratetype;
use crate::host::{Lock, Platform};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange};
use crate::zone::{Zone, ZoneEvents, ZoneRules};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Allocates given pages of one zone. They are handed out as blocks as large as they can be, up to a pageblock, unmovable
    /// ones; all or any part of them is freed by [`free_range`](Self::free_range).
    ///
    /// What is in use is not moved away. A memory in which kernel data lies everywhere has no large range: allocate early, or
    /// keep a Movable zone. Watermarks and limits do not refuse it; limits count it. It never waits for another CPU.
    ///
    /// # Errors
    /// [`RangeError`], with the first page that is not to be had; nothing is changed then.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{NodeIndex, PageCount, PfnRange};
    /// # TestMachine::new().node(0, 8192, &[0]).run(|pages| {
    /// let start = pages.topology().node(NodeIndex(0)).memory[0].start + PageCount(2049);
    /// pages.alloc_at(start, PageCount(3)).unwrap();
    /// let told = pages.alloc_at(start + PageCount(2), PageCount(9)).unwrap_err().to_string();
    /// assert_eq!(told, format!("a range of pages: 1 of them are in use, the first is frame {}", start + PageCount(2)));
    /// pages.free_range(PfnRange { start, end: start + PageCount(3) }).unwrap();
    /// # });
    /// ```
    pub fn alloc_at(&self, start: Pfn, pages: PageCount) -> Result<(), RangeError> {
        let end = start.0.checked_add(pages.0).filter(|&end| end > start.0);
        let Some(end) = end.map(Pfn) else { return Err(RangeError::Empty { start, pages }) };
        let range = PfnRange { start, end };
        if let Some(first) = self.online.first_offline(range) {
            return Err(RangeError::NotOnline { first });
        }
        let of_start = PfnRange { start, end: start + PageCount(1) };
        let Some((zone, _)) = self.parts(of_start).next() else {
            return Err(RangeError::NotOnline { first: start });
        };
        let others = self.parts(range).filter(|(other, _)| *other != zone);
        let other = others.map(|(_, part)| part.start).min();
        let frames = self.zones[zone].frames();
        let is_shared = |part: &PfnRange| frames.is_pageblock_shared(frames.number(part.start));
        let until = PfnRange { start, end: other.unwrap_or(end) };
        match by_pageblock(until).find(is_shared).map(|part| part.start).or(other) {
            Some(first) => Err(RangeError::OtherZone { first }),
            None => self.take_range(self.zones[zone], range),
        }
    }

    /// Allocates `pages` pages one behind the other, the first of them aligned to `align`, from anywhere in a range of frames,
    /// which may reach over holes and zones: the lowest of one zone that are free. Otherwise as [`alloc_at`](Self::alloc_at).
    ///
    /// # Errors
    /// [`RangeError::NoRoom`] if the range has none that are free.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{NodeIndex, Order, PageCount};
    /// # TestMachine::new().node(0, 8192, &[0]).run(|pages| {
    /// let low = pages.topology().node(NodeIndex(0)).memory[0];
    /// let range = pages.alloc_within(low, PageCount(5), Order(3)).unwrap();
    /// assert!(low.contains(range.start) && range.start.is_aligned(Order(3)));
    /// pages.free_range(range).unwrap();
    /// # });
    /// ```
    pub fn alloc_within(
        &self,
        range: PfnRange,
        pages: PageCount,
        align: Order,
    ) -> Result<PfnRange, RangeError> {
        let no_room = RangeError::NoRoom { range, pages, align };
        let step = 1_u64.checked_shl(align.0.into()).filter(|_| pages.0 > 0).ok_or(no_room)?;
        let mut parts = self.parts(range);
        parts
            .find_map(|(zone, part)| self.find_range(self.zones[zone], part, pages, step))
            .ok_or(no_room)
    }

    /// Allocates `pages` pages one behind the other, of any number (0 is taken for 1), the first of them aligned to `align`, which
    /// may be above [`Order::MAX`], near a node as the request's order 0 would be: of [`Request`] the order is not looked at. They
    /// are freed by [`free_range`](Self::free_range). A range that begins with a pageblock is preferred.
    ///
    /// Watermarks and limits are for requests of a block: a range may be the last free memory there is, and what it takes is counted
    /// by limits and not refused. It never waits for another CPU.
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
        let node = self.topology.node(wanted.node).id;
        let no_range = AllocError::NoRange { node, pages, align, gfp: request.gfp };
        // What no word holds, no memory has either.
        let Some(align) = 1_u64.checked_shl(align.0.into()) else { return Err(no_range) };
        let pages = PageCount(pages.0.max(1));
        let find = |step: u64| {
            let mut zones = self.zonelist(&wanted);
            zones.find_map(|zone| {
                let mut memory = self.topology.ranges_in(zone.node(), zone.span());
                memory.find_map(|part| self.find_range(zone, part, pages, step))
            })
        };
        let found = find(align.max(PAGEBLOCK_FRAMES));
        found.or_else(|| if align < PAGEBLOCK_FRAMES { find(align) } else { None }).ok_or(no_range)
    }

    /// Takes the first free range that begins with a multiple of `step`, of a range of one zone's memory.
    fn find_range(
        &self,
        zone: &'m Zone<'m, P>,
        memory: PfnRange,
        pages: PageCount,
        step: u64,
    ) -> Option<PfnRange> {
        let memory = without_shared(zone, memory);
        let mut from = memory.start;
        loop {
            let start = Pfn(from.0.checked_next_multiple_of(step)?);
            let end = Pfn(start.0.checked_add(pages.0)?);
            if end > memory.end {
                return None;
            }
            let range = PfnRange { start, end };
            let held = match self.last_in_use(zone, range) {
                Some(held) => held,
                None => match self.take_range(zone, range) {
                    Ok(()) => return Some(range),
                    Err(RangeError::InUse { first, .. } | RangeError::NotOnline { first }) => first,
                    Err(_) => start,
                },
            };
            from = held + PageCount(1);
        }
    }

    /// Takes a range of one zone that shares no pageblock with another zone.
    fn take_range(&self, zone: &'m Zone<'m, P>, range: PfnRange) -> Result<(), RangeError> {
        self.isolate_each(zone, range)?;
        let emptied = self.empty(core::iter::once(range));
        if emptied.is_ok() {
            by_pageblock(range).for_each(|part| self.hand_out_part(zone, part));
        }
        self.end_isolation_of_each(zone, range);
        emptied.map(|_| ()).map_err(|error| match error {
            OfflineError::InUse { pages, first, undrained } => {
                RangeError::InUse { pages, first, undrained }
            }
            _ => RangeError::NotOnline { first: range.start },
        })
    }

    /// Isolates the pageblocks of a range, each in a hold of the settings' lock of its own, or none of them.
    fn isolate_each(&self, zone: &'m Zone<'m, P>, range: PfnRange) -> Result<(), RangeError> {
        for part in by_pageblock(range) {
            // Memory cannot go meanwhile, and once a pageblock is isolated it stays.
            let mut state = self.state.lock();
            state.ranges += u32::from(part.start == range.start);
            let refused = match self.online.first_offline(part) {
                Some(first) => Some(RangeError::NotOnline { first }),
                None if isolate(zone, part).is_ok() => None,
                None => Some(RangeError::InUse {
                    pages: part.pages(),
                    first: part.start,
                    undrained: None,
                }),
            };
            drop(state);
            if let Some(error) = refused {
                self.end_isolation_of_each(zone, PfnRange { start: range.start, end: part.start });
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends what [`isolate_each`](Self::isolate_each) began.
    fn end_isolation_of_each(&self, zone: &'m Zone<'m, P>, range: PfnRange) {
        by_pageblock(range).for_each(|part| end_isolation(zone, part));
        self.state.lock().ranges -= 1;
    }

    /// Hands a pageblock of a range out, or a part of one, that is isolated and free, in one hold of its zone's lock.
    fn hand_out_part(&self, zone: &'m Zone<'m, P>, part: PfnRange) {
        let (frames, mut guard) = (*zone.frames(), zone.lock());
        let numbers = frames.number(part.start)..frames.number(part.end);
        P::Rules::take_isolated(self, &mut guard, numbers);
        let mut at = part.start;
        let mut blocks = 0;
        while at < part.end {
            let fits = |&order: &Order| at.is_aligned(order) && (at + order.pages()) <= part.end;
            let order = (0..=PAGEBLOCK_ORDER.0).rev().map(Order).find(fits).unwrap_or(Order(0));
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

    /// The last page of a range of a zone's memory that is in somebody's hands, or that is not online, as of a moment ago: a search
    /// goes on behind it.
    fn last_in_use(&self, zone: &'m Zone<'m, P>, range: PfnRange) -> Option<Pfn> {
        by_pageblock(range).rev().find_map(|part| self.last_in_use_of(zone, part))
    }

    /// Of a part of one pageblock.
    fn last_in_use_of(&self, zone: &'m Zone<'m, P>, part: PfnRange) -> Option<Pfn> {
        let (frames, first) = (zone.frames(), zone.frames().number(part.start));
        if frames.pageblock(first) == Migratetype::Isolate {
            // Somebody is about to take it, or it goes offline.
            return Some(Pfn(part.end.0 - 1));
        }
        let offline = self.online.last_offline(part);
        if offline.is_none() && P::Rules::is_whole(zone, first) {
            return None;
        }
        let head = block_around(zone, part.start).map(|block| block.end);
        let mut held_to = head.max(offline.map(|page| page + PageCount(1)));
        let mut at = held_to.unwrap_or(part.start);
        while at < part.end {
            let word = frames.word(frames.number(at)).get().without_lock();
            let order = word.order();
            if word.is_allocated(order) {
                at += order.pages();
                held_to = Some(at);
            } else {
                let is_free = word.is_free(order, word.zone());
                at += if is_free { order.pages() } else { PageCount(1) };
            }
        }
        held_to.map(|end| Pfn(end.min(part.end).0 - 1))
    }
}

/// The allocated block whose head lies before a page, and which has it.
fn block_around<P: Platform>(zone: &Zone<'_, P>, page: Pfn) -> Option<PfnRange> {
    let frames = zone.frames();
    // A head that is allocated is exact, and no allocated head lies inside a block.
    (1..=MAX_ORDER.0).map(Order).find_map(|order| {
        let start = Pfn(page.0 & !(order.pages().0 - 1));
        // A block lies in one section, as the page does.
        let word = frames.word(frames.number(page) - (page.0 - start.0) as u32).get();
        let is_it = start < page && word.without_lock().is_allocated(order);
        is_it.then_some(PfnRange { start, end: start + order.pages() })
    })
}

/// A range of a zone's memory without the pageblocks at its ends that other zones have memory of.
fn without_shared<P: Platform>(zone: &Zone<'_, P>, memory: PfnRange) -> PfnRange {
    let frames = zone.frames();
    let is_shared = |pfn: Pfn| frames.is_pageblock_shared(frames.number(pfn));
    let PfnRange { mut start, mut end } = memory;
    if start < end && is_shared(start) {
        start = Pfn((start.0 + 1).next_multiple_of(PAGEBLOCK_FRAMES));
    }
    if start < end && is_shared(Pfn(end.0 - 1)) {
        end = Pfn((end.0 - 1) / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES);
    }
    PfnRange { start, end: end.max(start) }
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
    use crate::testing::random::Random;
    use crate::topology::{AddressMap, NodeBuf, TopologyBuf};
    use crate::units::{CpuId, NodeId, NodeIndex};

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
            let refused = allocator.alloc_at(start, PageCount(1024)).unwrap_err();
            assert!(matches!(refused, RangeError::InUse { .. }), "{refused}");
            assert_eq!(allocator.check().unwrap().allocated, PageCount(3));
            pages.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
            allocator.alloc_at(start, PageCount(1024)).unwrap();
            let blocks: Vec<_> =
                (0..4).map(|_| allocator.alloc(Request::new(Order(9), Gfp::KERNEL))).collect();
            assert!(blocks.iter().flatten().all(|&block| !range.contains(block)));
            blocks.into_iter().flatten().for_each(|block| allocator.free(block, Order(9)).unwrap());
            assert_eq!(allocator.check().unwrap().allocated, PageCount(1024));
            allocator.free_range(range).unwrap();
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
                let (start, pages) = (range.start, PageCount(end.wrapping_sub(range.start.0)));
                assert!(allocator.alloc_at(start, pages).is_err());
                assert!(allocator.alloc_within(range, PageCount(1 << 40), Order(0)).is_err());
                assert!(allocator.offline(range).is_err());
                assert!(allocator.online(range).is_err());
            }
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
            let memory = PfnRange::new(0, u64::MAX);
            for (pages, align) in [(0, 0), (8193, 0), (1, 64), (1, 63), (u64::MAX, 0)] {
                let (pages, align) = (PageCount(pages), Order(align));
                let refused = RangeError::NoRoom { range: memory, pages, align };
                assert_eq!(allocator.alloc_within(memory, pages, align), Err(refused));
            }
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

    /// Holes, other zones, pageblocks that zones share: each is told with its first frame.
    #[test]
    fn what_is_no_part_of_one_zone_is_told() {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            // The nodes share a pageblock.
            let nodes = [(0, 0, 4196), (1, 4196, 8192)].map(|(id, start, end)| NodeBuf {
                id: NodeId(id),
                memory: std_alloc::vec![PfnRange::new(start, end)],
                cpus: std_alloc::vec![CpuId(id)],
                movable_from: None,
            });
            let distances = std_alloc::vec![10, 20, 20, 10];
            let nodes = Vec::from(nodes);
            let machine = TopologyBuf { nodes, distances, address_map: AddressMap::Flat };
            TestMachine::from(machine).config(config).run(|allocator| {
                let [near, far] =
                    [0, 1].map(|at| allocator.topology().node(NodeIndex(at)).memory[0]);
                assert_eq!(near.end, far.start);
                let at = |start: u64, pages| allocator.alloc_at(Pfn(start), PageCount(pages));
                let (end, shared) = (near.end.0, Pfn(near.end.0 - 100));
                assert_eq!(at(end - 99, 1), Err(RangeError::OtherZone { first: Pfn(end - 99) }));
                assert_eq!(at(shared.0 - 9, 10), Err(RangeError::OtherZone { first: shared }));
                let first = far.start;
                assert_eq!(at(far.start.0, 1), Err(RangeError::OtherZone { first }));
                assert_eq!(at(far.end.0 - 1, 2), Err(RangeError::NotOnline { first: far.end }));
                let (start, pages) = (Pfn(7), PageCount(0));
                assert_eq!(at(7, 0), Err(RangeError::Empty { start, pages }));
                let memory = PfnRange { start: near.start, end: far.end };
                // All of the first zone but the pageblock, to the page, and then of the second.
                let range = allocator.alloc_within(memory, PageCount(4095), Order(0)).unwrap();
                assert_eq!(range.start, near.start);
                let range = allocator.alloc_within(memory, PageCount(2), Order(0)).unwrap();
                assert_eq!(range.start.0, (end + 412).next_multiple_of(512));
                assert_eq!(at(shared.0 - 1, 1), Ok(()));
                assert_eq!(allocator.check().unwrap().allocated, PageCount(4098));
            });
        }
    }

    /// Ranges at any place and of any number, beside blocks of any order, under each kind of rules: pages are those of a naive map,
    /// and the walker finds each in one place.
    #[test]
    fn any_range_among_any_blocks() {
        const PAGES: u64 = 8192;
        for model in [Model::NEARPAGE, Model::LINUX_6_1, Model::LINUX_6_12, Model::RFC_2026_OWNED] {
            let config = Config { model, ..Config::default() };
            // A failure names the model; the seed is always this one.
            let mut random = Random(0xa110c);
            let machine = TestMachine::new().node(0, PAGES, &[0]).config(config);
            machine.run(|allocator| {
                let start = allocator.topology().node(NodeIndex(0)).memory[0].start;
                let mut held = std_alloc::vec![false; PAGES as usize];
                let mut ranges: Vec<PfnRange> = Vec::new();
                for turn in 0..3000 {
                    let first = random.below(PAGES);
                    let most = [9, 700, 3000][random.below(3) as usize];
                    let pages = 1 + random.below(most);
                    let wanted = first..(first + pages).min(PAGES);
                    let is_free = |part: core::ops::Range<u64>| {
                        !held[part.start as usize..part.end as usize].contains(&true)
                    };
                    let taken = match random.below(4) {
                        0 => {
                            let order = Order(random.below(7) as u8);
                            let block = allocator.alloc(Request::new(order, Gfp::KERNEL)).ok();
                            block.map(|first| PfnRange { start: first, end: first + order.pages() })
                        }
                        1 => {
                            let range = PfnRange::new(start.0 + wanted.start, start.0 + wanted.end);
                            let told = allocator.alloc_at(range.start, range.pages());
                            assert_eq!(told.is_ok(), is_free(wanted), "{}: {told:?}", model.name);
                            told.ok().map(|()| range)
                        }
                        2 => {
                            let align = 1_u64 << random.below(11);
                            let within = PfnRange::new(start.0 + wanted.start, start.0 + PAGES);
                            let few = 1 + pages % 600;
                            let order = Order(align.ilog2() as u8);
                            let told = allocator.alloc_within(within, PageCount(few), order);
                            let steps = (wanted.start.next_multiple_of(align)..PAGES)
                                .step_by(align as usize);
                            let expected = steps
                                .filter(|at| at + few <= PAGES)
                                .find(|&at| is_free(at..at + few))
                                .map(|at| PfnRange::new(start.0 + at, start.0 + at + few));
                            assert_eq!(told.ok(), expected, "{}", model.name);
                            expected
                        }
                        _ => {
                            if !ranges.is_empty() {
                                let at = random.below(ranges.len() as u64) as usize;
                                let gone = ranges.swap_remove(at);
                                allocator.free_range(gone).expect(model.name);
                                (gone.start.0..gone.end.0)
                                    .for_each(|pfn| held[(pfn - start.0) as usize] = false);
                            }
                            None
                        }
                    };
                    if let Some(range) = taken {
                        for pfn in range.start.0..range.end.0 {
                            assert!(!core::mem::replace(&mut held[(pfn - start.0) as usize], true));
                        }
                        ranges.push(range);
                    }
                    if turn % 50 == 0 {
                        let all = held.iter().filter(|&&held| held).count() as u64;
                        let checked = allocator
                            .check()
                            .unwrap_or_else(|error| panic!("{}: {error}", model.name));
                        assert_eq!(checked.allocated, PageCount(all), "{}", model.name);
                    }
                }
                ranges.into_iter().for_each(|range| allocator.free_range(range).unwrap());
                allocator.drain_all().unwrap();
                assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
                assert_eq!(allocator.zones()[0].free_pages(), PageCount(PAGES), "{}", model.name);
            });
        }
    }
}
