//! Free pages by pageblock: what is free in a pageblock that is in pieces is in its map, whatever it could be merged to.
//!
//! Buddy lists of small blocks tie where a page lies to when it came back. Under these rules ([`Merging::ByPageblock`]) they
//! hold whole pageblocks only. A pageblock of which some pages are free has a map of them, and is listed by how much is
//! free. So
//!
//! * a request takes from the fullest pageblock of its type that has such a block: the others empty, and become whole;
//! * the last page that comes back makes a pageblock whole at once: there is nothing to merge, and nothing is put off;
//! * a pageblock passes between zone and CPU with all of its free pages, by a link and a word ([`Buddy::hand_over`],
//!   [`Buddy::take_back`]).
//!
//! Pageblocks that several zones share have no map of their own: their pages stay on the buddy's lists, which merge them.
//!
//! Types lend each other memory as before: first whole pageblocks, which mixes nothing; then a request takes over the
//! emptiest pageblock of another type, if half of it is free, or takes its block from there.
//!
//! This is nearpage's own.

use super::fallback::donors;
use super::loose::words_of;
use super::rules::Merging;
use super::state::{BlockRequest, Buddy, Fragmentation, Insertion, counted};
use crate::frame::{FreeMap, Migratetype, ZoneFrames, first_of};
use crate::pcp::passing::Passing;
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER, PageCount};

const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

/// What a CPU wants of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// It must be able to serve a block like this.
    pub request: BlockRequest,
    /// Pages that would do.
    pub pages: PageCount,
    /// The most pages that may go.
    pub room: PageCount,
    /// The most pageblocks that may go.
    pub pageblocks: u32,
}

impl Buddy {
    /// Whether what is free around frame `number` is in a map.
    #[inline]
    pub(super) fn has_map(&self, frames: ZoneFrames<'_>, number: u32) -> bool {
        self.merging == Merging::ByPageblock && !frames.is_pageblock_shared(number)
    }

    /// Gives pages of the pageblock at `first` back, so many, which has a map and is the zone's.
    ///
    /// # Panics
    /// If one of them is free already.
    pub(crate) fn free_in_map(
        &mut self,
        frames: ZoneFrames<'_>,
        first: u32,
        added: &FreeMap,
        pages: u32,
    ) {
        if pages == PAGES {
            debug_assert!(frames.free_in_pageblock(first).free() == 0, "freed twice");
            return self.free(frames, first, PAGEBLOCK_ORDER, Insertion::Usual);
        }
        let (block, of) = (frames.free_in_pageblock(first), frames.pageblock(first));
        if block.free() + pages == PAGES {
            return self.make_whole(frames, first, of, added);
        }
        self.partial.change(frames, first, of, |block| {
            let words = block.add_map(added, pages);
            match added.first_block(Order(0)) {
                Some(at) if pages == 1 => block.note_added(at),
                _ => block.note_largest(),
            }
            words
        });
        self.free_pages += counted(pages, of);
    }

    /// Gives `pages` adjoining pages of one pageblock back.
    pub(super) fn free_in_map_at(&mut self, frames: ZoneFrames<'_>, number: u32, pages: u32) {
        let first = first_of(number);
        let map = FreeMap::of(number - first..number - first + pages);
        self.free_in_map(frames, first, &map, pages);
    }

    /// Lists the pageblock at `first` as a block of its own: with the pages that come back, all of it is free.
    fn make_whole(&mut self, frames: ZoneFrames<'_>, first: u32, of: Migratetype, added: &FreeMap) {
        let block = frames.free_in_pageblock(first);
        let free = block.free();
        self.partial.unlist(frames, first, of);
        let words = block.clear(added);
        block.note_largest();
        self.charge(words + 1);
        self.free_pages -= counted(free, of);
        self.free(frames, first, PAGEBLOCK_ORDER, Insertion::Usual);
    }

    /// Gives a pageblock that has a map another type, which `set` writes; it is not whole. Returns its free pages.
    pub(super) fn retype_map(
        &mut self,
        frames: ZoneFrames<'_>,
        first: u32,
        migratetype: Migratetype,
        set: impl FnOnce(),
    ) -> PageCount {
        let block = frames.free_in_pageblock(first);
        if block.owner().is_some() {
            // What is free there is the CPU's, until it brings it back.
            self.note_type(frames, first, set);
            return PageCount(0);
        }
        let (before, free) = (frames.pageblock(first), block.free());
        self.partial.unlist(frames, first, before);
        self.note_type(frames, first, set);
        self.partial.list(frames, first, migratetype);
        self.free_pages = self.free_pages + counted(free, migratetype) - counted(free, before);
        PageCount(free.into())
    }

    /// Takes a block below the order of a pageblock.
    pub(super) fn alloc_from_maps(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
    ) -> Option<u32> {
        let mut number = None;
        self.take_from_maps(frames, request, 1, 1, &mut |first, _| number = Some(first));
        number
    }

    /// Takes up to `blocks` blocks below the order of a pageblock: `sink(first, n)` gets adjoining ones, at most
    /// `max_runs` times. Returns how many.
    pub(super) fn take_from_maps(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
        blocks: u32,
        max_runs: u32,
        sink: &mut dyn FnMut(u32, u32),
    ) -> u32 {
        let (order, mut taken, mut runs) = (request.order, 0, 0);
        while taken < blocks && runs < max_runs {
            let Some(first) = self.find_in_maps(frames, request) else { break };
            let of = frames.pageblock(first);
            self.partial.change(frames, first, of, |block| {
                let mut words = 0;
                while taken < blocks && runs < max_runs {
                    let run = match order {
                        Order(0) => block.take_run(blocks - taken),
                        _ => block.take_block(order),
                    };
                    let Some(run) = run else { break };
                    let count = (run.end - run.start) >> order.0;
                    sink(first + run.start, count);
                    (taken, runs) = (taken + count, runs + 1);
                    words += words_of(run.start, run.end - run.start);
                }
                block.note_largest();
                words
            });
        }
        self.free_pages -= order.pages_in(taken).0;
        // Who may have none gets none from there either.
        let lacks_all = taken == 0 && blocks.min(max_runs) > 0;
        if lacks_all { self.alloc_from_shared(frames, request, sink) } else { taken }
    }

    /// Takes a block below the order of a pageblock from those that are reserved.
    pub(super) fn alloc_from_reserved_maps(
        &mut self,
        frames: ZoneFrames<'_>,
        order: Order,
    ) -> Option<u32> {
        let of = Migratetype::HighAtomic;
        let first = self.partial.fullest(of, order).or_else(|| {
            let first = self.pop_whole_of(frames, of)?;
            self.open(frames, first, of);
            Some(first)
        })?;
        let mut number = None;
        self.partial.change(frames, first, of, |block| {
            number = block.take_block(order).map(|block| first + block.start);
            block.note_largest();
            1
        });
        self.free_pages -= order.pages().0;
        number
    }

    /// Takes a block from a pageblock that zones share.
    fn alloc_from_shared(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
        sink: &mut dyn FnMut(u32, u32),
    ) -> u32 {
        let below_a_pageblock = (1 << PAGEBLOCK_ORDER.0) - 1;
        if (self.lists.orders(Migratetype::Movable) & below_a_pageblock) >> request.order.0 == 0 {
            return 0;
        }
        let block = self.pop_smallest(frames, request.order, Migratetype::Movable);
        let Some(block) = block else { return 0 };
        self.put_rest_back(frames, &block, request.order.pages().0 as u32);
        sink(block.number, 1);
        1
    }

    /// The pageblock, by its first frame, from which a request is served; it has a map.
    fn find_in_maps(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> Option<u32> {
        let BlockRequest { order, migratetype, fragmentation } = request;
        if let Some(first) = self.partial.fullest(migratetype, order) {
            return Some(first);
        }
        if let Some(first) = self.pop_whole(frames, migratetype) {
            self.open(frames, first, migratetype);
            return Some(first);
        }
        if fragmentation == Fragmentation::Avoided {
            return None;
        }
        let mut donors = donors(migratetype).iter();
        let first = donors.find_map(|&of| self.partial.emptiest(of, order))?;
        self.claims_tried += 1;
        self.fallbacks += 1;
        if frames.free_in_pageblock(first).free() >= PAGES / 2 {
            let set = || frames.set_pageblock(first, migratetype);
            self.retype_map(frames, first, migratetype, set);
        }
        Some(first)
    }

    /// Takes a whole pageblock, first of its own type, from the lists, and makes it one of `migratetype`.
    pub(super) fn pop_whole(
        &mut self,
        frames: ZoneFrames<'_>,
        migratetype: Migratetype,
    ) -> Option<u32> {
        let mut types = core::iter::once(&migratetype).chain(donors(migratetype));
        let first = types.find_map(|&of| self.pop_whole_of(frames, of))?;
        self.note_type(frames, first, || frames.set_pageblock(first, migratetype));
        Some(first)
    }

    /// Takes a whole pageblock of one type from the lists.
    fn pop_whole_of(&mut self, frames: ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let block = self.pop_smallest(frames, PAGEBLOCK_ORDER, of)?;
        self.put_rest_back(frames, &block, PAGES);
        Some(block.number)
    }

    /// Lists a whole pageblock of type `of` that was just taken by its map: all of it is free.
    fn open(&mut self, frames: ZoneFrames<'_>, first: u32, of: Migratetype) {
        let block = frames.free_in_pageblock(first);
        let words = block.add(0..PAGES);
        block.note_largest();
        self.charge(words + 1);
        self.free_pages += u64::from(PAGES);
        self.partial.list(frames, first, of);
    }

    /// Hands pageblocks over to a CPU, with all that is free in them: those of the type that have pieces, the fullest first, and
    /// only if there is none, whole ones. Returns the pages.
    pub(crate) fn hand_over(
        &mut self,
        frames: ZoneFrames<'_>,
        wish: Wish,
        cpu: CpuId,
        passing: &mut Passing,
    ) -> PageCount {
        let BlockRequest { order, migratetype, .. } = wish.request;
        let fits = |pages: u64, more: u32| pages + u64::from(more) <= wish.room.0;
        let (mut pages, mut given) = (0, 0);
        // Once there is a block for the request, any page will do.
        let mut wanted = order;
        while wanted < PAGEBLOCK_ORDER
            && pages < wish.pages.0
            && given < wish.pageblocks
            && let Some(first) = self.partial.fullest(migratetype, wanted)
            && fits(pages, frames.free_in_pageblock(first).free())
        {
            pages += self.give_away(frames, first, cpu).0;
            passing.push(&frames, first);
            (given, wanted) = (given + 1, Order(0));
        }
        let has_pieces = given > 0;
        while !has_pieces
            && pages < wish.pages.0
            && given < wish.pageblocks
            && fits(pages, PAGES)
            && let Some(first) = self.pop_whole(frames, migratetype)
        {
            self.pass_to(frames, first, cpu);
            passing.push(&frames, first);
            (pages, given) = (pages + u64::from(PAGES), given + 1);
        }
        PageCount(pages)
    }

    /// Takes a pageblock back from the CPU that owns it, with all that is free in it. Returns the pages.
    pub(crate) fn take_back(&mut self, frames: ZoneFrames<'_>, first: u32) -> PageCount {
        let (block, of) = (frames.free_in_pageblock(first), frames.pageblock(first));
        block.set_owner(None);
        self.charge(1);
        let free = block.free();
        if free == 0 {
            self.free(frames, first, PAGEBLOCK_ORDER, Insertion::Usual);
            return PAGEBLOCK_ORDER.pages();
        }
        block.note_largest();
        self.free_pages += counted(free, of);
        self.partial.list(frames, first, of);
        PageCount(free.into())
    }

    /// Makes a CPU the owner of a pageblock that is the zone's, with all that is free in it. Returns the pages.
    pub(crate) fn give_away(
        &mut self,
        frames: ZoneFrames<'_>,
        first: u32,
        cpu: CpuId,
    ) -> PageCount {
        let block = frames.free_in_pageblock(first);
        let free = u64::from(block.free());
        self.partial.unlist(frames, first, frames.pageblock(first));
        self.free_pages -= free;
        self.pass_to(frames, first, cpu);
        PageCount(free)
    }

    /// Makes a CPU the owner: a word, and a link on that CPU's list.
    fn pass_to(&mut self, frames: ZoneFrames<'_>, first: u32, cpu: CpuId) {
        frames.free_in_pageblock(first).set_owner(Some(cpu));
        self.charge(2);
    }
}

#[cfg(test)]
mod tests;
