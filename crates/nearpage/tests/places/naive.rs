//! The model: the pages of a machine, each absent, free or held, and how many of them each zone has.
//!
//! Which page is handed out, and what a CPU keeps, it does not know.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use nearpage::platform::Platform;
use nearpage::stats::Zone;
use nearpage::{Order, PageAllocator, Pfn, PfnRange};

/// What is wrong, in words.
pub type Wrong = String;

/// Pages of a pageblock.
pub const PAGEBLOCK: u64 = 512;

/// `Ok` if something holds, else what is wrong.
pub fn holds(it: bool, otherwise: impl FnOnce() -> Wrong) -> Result<(), Wrong> {
    if it { Ok(()) } else { Err(otherwise()) }
}

/// A page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// It is not online.
    Absent,
    /// It is in nobody's hands.
    Free,
    /// It is in the caller's hands, as part of a block.
    Held,
    /// It is in the caller's hands, as part of a range that is freed as such.
    InRange,
}

/// Numbers of a zone.
#[derive(Clone, Copy, Default, Debug)]
pub struct Numbers {
    /// Pages that are online.
    pub online: u64,
    /// Pages in the caller's hands.
    pub held: u64,
}

/// The pages.
pub struct Naive {
    /// Memory of the topology, ascending, with the number of its zone.
    memory: Vec<(PfnRange, usize)>,
    /// By pageblock.
    pages: BTreeMap<u64, [Page; PAGEBLOCK as usize]>,
    /// By zone.
    pub zones: Vec<Numbers>,
    /// Blocks in the caller's hands.
    blocks: HashMap<Pfn, Order>,
    /// The same by order.
    pub held: [Vec<Pfn>; 11],
    /// Ranges in the caller's hands.
    pub ranges: Vec<PfnRange>,
}

impl Naive {
    /// A machine none of whose memory is online.
    pub fn new<P: Platform>(allocator: &PageAllocator<'_, P>) -> Self {
        let ranges = |zone: &Zone<'_, P>| {
            let number = zone.index().0 as usize;
            let ranges = allocator.topology().ranges_in(zone.node(), zone.span());
            ranges.map(move |range| (range, number)).collect::<Vec<_>>()
        };
        let mut memory: Vec<_> = allocator.zones().iter().flat_map(|zone| ranges(zone)).collect();
        memory.retain(|(range, _)| !range.is_empty());
        memory.sort();
        let zones = vec![Numbers::default(); allocator.zones().len()];
        let (pages, blocks) = (BTreeMap::new(), HashMap::new());
        Self { memory, pages, zones, blocks, held: Default::default(), ranges: vec![] }
    }

    /// A page of the machine, or none.
    pub fn page(&self, pfn: Pfn) -> Page {
        let pageblock = self.pages.get(&(pfn.0 / PAGEBLOCK));
        pageblock.map_or(Page::Absent, |pages| pages[(pfn.0 % PAGEBLOCK) as usize])
    }

    /// The number of the zone of a page of the topology.
    pub fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        let at = self.memory.partition_point(|(range, _)| range.end <= pfn);
        let (range, zone) = self.memory.get(at)?;
        range.contains(pfn).then_some(*zone)
    }

    fn set(&mut self, pfn: Pfn, to: Page) {
        let zone = self.memory_zone(pfn);
        let numbers = &mut self.zones[zone];
        let absent = [Page::Absent; PAGEBLOCK as usize];
        let page = self.pages.entry(pfn.0 / PAGEBLOCK).or_insert(absent);
        let page = &mut page[(pfn.0 % PAGEBLOCK) as usize];
        let is_held = |page: Page| u64::from(matches!(page, Page::Held | Page::InRange));
        let is_online = |page: Page| u64::from(page != Page::Absent);
        numbers.held = numbers.held + is_held(to) - is_held(*page);
        numbers.online = numbers.online + is_online(to) - is_online(*page);
        *page = to;
    }

    fn memory_zone(&self, pfn: Pfn) -> usize {
        self.zone_of(pfn).expect("a page of the topology")
    }

    /// The first page of a range that is not as it should be.
    pub fn first_but(&self, range: PfnRange, page: Page) -> Option<Pfn> {
        (range.start.0..range.end.0).map(Pfn).find(|&pfn| self.page(pfn) != page)
    }

    /// Pages of a range in the caller's hands.
    pub fn held_in(&self, range: PfnRange) -> u64 {
        let is_held = |&pfn: &u64| matches!(self.page(Pfn(pfn)), Page::Held | Page::InRange);
        (range.start.0..range.end.0).filter(is_held).count() as u64
    }

    /// All pages of a range become the same.
    pub fn fill(&mut self, range: PfnRange, page: Page) {
        (range.start.0..range.end.0).for_each(|pfn| self.set(Pfn(pfn), page));
    }

    /// A block is handed out; returns its zone.
    pub fn take(&mut self, first: Pfn, order: Order) -> Result<usize, Wrong> {
        holds(first.is_aligned(order), || format!("{first} is not aligned to order {order}"))?;
        let range = PfnRange { start: first, end: first + order.pages() };
        let zone = self.take_pages(range)?;
        self.fill(range, Page::Held);
        self.add_block(first, order);
        Ok(zone)
    }

    fn add_block(&mut self, first: Pfn, order: Order) {
        self.blocks.insert(first, order);
        self.held[order.0 as usize].push(first);
    }

    /// A range is handed out; returns its zone.
    pub fn take_range(&mut self, range: PfnRange) -> Result<usize, Wrong> {
        let zone = self.take_pages(range)?;
        self.fill(range, Page::InRange);
        self.ranges.push(range);
        Ok(zone)
    }

    fn take_pages(&self, range: PfnRange) -> Result<usize, Wrong> {
        if let Some(pfn) = self.first_but(range, Page::Free) {
            let page = self.page(pfn);
            return Err(format!("{range} was handed out, of which {pfn} is {page:?}"));
        }
        let zone = self.memory_zone(range.start);
        let end = Pfn(range.end.0 - 1);
        holds(self.memory_zone(end) == zone, || format!("{range} is of two zones"))?;
        Ok(zone)
    }

    /// Whether a free would be right; `None` if that cannot be told, of a part of a range.
    pub fn may_free(&self, pfn: Pfn, order: Order) -> Option<bool> {
        match self.page(pfn) {
            Page::InRange => None,
            _ => Some(self.blocks.get(&pfn) == Some(&order)),
        }
    }

    /// A block of the caller's choice leaves the lists of held ones: any, or the last one.
    pub fn pick(&mut self, order: usize, any: Option<u64>) -> Option<Pfn> {
        let held = &mut self.held[order];
        if held.is_empty() {
            return None;
        }
        match any {
            Some(number) => Some(held.swap_remove((number % held.len() as u64) as usize)),
            None => held.pop(),
        }
    }

    /// A block that was picked is free.
    pub fn give(&mut self, first: Pfn, order: Order) {
        assert_eq!(self.blocks.remove(&first), Some(order), "a block in the caller's hands");
        self.fill(PfnRange { start: first, end: first + order.pages() }, Page::Free);
    }

    /// A block that was picked is one of smaller blocks.
    pub fn split(&mut self, first: Pfn, order: Order, into: Order) {
        self.blocks.remove(&first);
        let parts = (first.0..first.0 + order.pages().0).step_by(into.pages().0 as usize);
        parts.for_each(|part| self.add_block(Pfn(part), into));
    }

    /// A block that was picked is a range, to be freed in parts.
    pub fn loosen(&mut self, first: Pfn, order: Order) {
        self.blocks.remove(&first);
        let range = PfnRange { start: first, end: first + order.pages() };
        self.fill(range, Page::InRange);
        self.ranges.push(range);
    }

    /// Part of the last one of the ranges is free; what is left is one or two of them.
    pub fn give_part(&mut self, part: PfnRange) {
        let range = self.ranges.pop().expect("a range in the caller's hands");
        self.fill(part, Page::Free);
        let rest = [
            PfnRange { start: range.start, end: part.start },
            PfnRange { start: part.end, end: range.end },
        ];
        self.ranges.extend(rest.into_iter().filter(|range| !range.is_empty()));
    }

    /// Whether a range may go offline or be handed out, as far as its bounds say.
    pub fn is_in_whole_pageblocks(&self, range: PfnRange) -> bool {
        let down = |pfn: u64| pfn - pfn % PAGEBLOCK;
        let up = |pfn: u64| pfn.next_multiple_of(PAGEBLOCK);
        let (start, end) = (range.start.0, range.end.0);
        let is_absent = |range: PfnRange| self.first_but(range, Page::Absent).is_none();
        let is_shared = |first: u64| self.is_shared(first);
        is_absent(PfnRange::new(down(start), start))
            && is_absent(PfnRange::new(end, up(end)))
            && !(down(start)..end).step_by(PAGEBLOCK as usize).any(is_shared)
    }

    /// Whether several zones have memory in a pageblock.
    pub fn is_shared(&self, first: u64) -> bool {
        let pageblock = PfnRange::new(first, first + PAGEBLOCK);
        let has_part = |(range, _): &&(PfnRange, usize)| !range.intersection(pageblock).is_empty();
        let mut zones = self.memory.iter().filter(has_part).map(|(_, zone)| *zone);
        let one = zones.next();
        zones.any(|zone| Some(zone) != one)
    }

    /// Pageblocks of a zone all of whose pages are online and of that zone.
    pub fn whole_pageblocks(&self, zone: usize) -> u64 {
        let is_whole = |&(&at, pages): &(&u64, &[Page; PAGEBLOCK as usize])| {
            !pages.contains(&Page::Absent)
                && self.zone_of(Pfn(at * PAGEBLOCK)) == Some(zone)
                && !self.is_shared(at * PAGEBLOCK)
        };
        self.pages.iter().filter(is_whole).count() as u64
    }

    /// Whether a range has pages, all of them free, in one zone, and in pageblocks that no other zone has memory of.
    pub fn is_free_in_one_zone(&self, range: PfnRange) -> bool {
        let zone = self.zone_of(range.start);
        let is_ours =
            |pfn: u64| self.page(Pfn(pfn)) == Page::Free && self.zone_of(Pfn(pfn)) == zone;
        let first = range.start.0 - range.start.0 % PAGEBLOCK;
        !range.is_empty()
            && (range.start.0..range.end.0).all(is_ours)
            && !(first..range.end.0).step_by(PAGEBLOCK as usize).any(|first| self.is_shared(first))
    }

    /// Whether a zone has so many adjoining free pages within a range, aligned to so many.
    pub fn has_free_range(&self, zone: usize, within: PfnRange, pages: u64, align: u64) -> bool {
        let of_zone = self.memory.iter().filter(|(_, of)| *of == zone);
        let mut parts = of_zone.map(|(memory, _)| memory.intersection(within));
        let has_one = |memory: PfnRange| {
            let mut start = memory.start.0.next_multiple_of(align);
            while start + pages <= memory.end.0 {
                let range = PfnRange::new(start, start + pages);
                match self.first_but(range, Page::Free) {
                    None if self.is_free_in_one_zone(range) => return true,
                    None => start += align,
                    Some(pfn) => start = (pfn.0 + 1).next_multiple_of(align),
                }
            }
            false
        };
        parts.any(has_one)
    }
}

/// Pages of a zone that are free as whole pageblocks, by the zone's own account.
pub fn free_in_whole_pageblocks<P: Platform>(zone: &Zone<'_, P>) -> u64 {
    let mut pages = 0;
    for order in [Order(9), Order(10)] {
        for of in nearpage::Migratetype::ALL {
            zone.for_each_free_block(order, of, |_| {
                pages += order.pages().0;
                ControlFlow::Continue(())
            });
        }
    }
    pages
}
