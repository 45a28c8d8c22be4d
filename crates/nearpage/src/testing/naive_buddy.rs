//! The buddy as one would explain it: lists are vectors, everything is searched for.
//!
//! It knows neither frames nor laziness nor big steps, and works in PFNs. Whatever it does,
//! [`Buddy`](crate::buddy::Buddy) must do, block for block.

use core::ops::Range;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

use crate::buddy::{
    BlockRequest, FallbackModel, FallbackRules, Fragmentation, HeldMovable, Insertion,
};
use crate::frame::Migratetype::{self, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};

/// The naive model of one zone. Orders are numbers, blocks are their first PFN.
#[derive(Debug)]
pub struct NaiveBuddy {
    rules: FallbackRules,
    /// The PFNs from the first to the last of the zone, holes included.
    pub span: Range<u64>,
    /// Free blocks by order and type, head first.
    pub lists: [[Vec<u64>; Migratetype::COUNT]; 11],
    /// Types of pageblocks by PFN / 512; movable where nothing is said.
    pub pageblocks: BTreeMap<u64, Migratetype>,
    /// Order and type of the blocks in use, for the claim rule.
    pub in_use: BTreeMap<u64, (u8, Migratetype)>,
    /// Pieces of pageblocks that were asked of another type.
    pub claims_tried: u32,
    /// Blocks linked and unlinked so far, and types of pageblocks changed.
    pub operations: u64,
}

impl NaiveBuddy {
    /// A zone without memory.
    pub fn new(rules: FallbackRules, start: u64) -> NaiveBuddy {
        NaiveBuddy {
            rules,
            span: start..start,
            lists: Default::default(),
            pageblocks: BTreeMap::new(),
            in_use: BTreeMap::new(),
            claims_tried: 0,
            operations: 0,
        }
    }

    /// Hands memory over.
    pub fn online(&mut self, range: Range<u64>) {
        self.span.end = self.span.end.max(range.end);
        let mut pfn = range.start;
        while pfn < range.end {
            let fits =
                |&order: &u8| pfn.is_multiple_of(1 << order) && pfn + (1 << order) <= range.end;
            let order = (0..=10).rev().find(fits).expect("one page always fits");
            self.free(pfn, order, Insertion::Tail);
            pfn += 1 << order;
        }
    }

    /// Frees one block.
    pub fn free(&mut self, pfn: u64, order: u8, placement: Insertion) {
        let isolated = [pfn, pfn + 512].iter().any(|&half| self.pageblock(half) == Isolate);
        if order == 10 && (isolated || self.rules.model == FallbackModel::Linux6_12) {
            self.free(pfn, 9, placement);
            self.free(pfn + 512, 9, placement);
            return;
        }
        let ours = self.pageblock(pfn);
        let (mut pfn, mut order) = (pfn, order);
        while order < 10 {
            let buddy = pfn ^ 1 << order;
            let theirs = self.pageblock(buddy);
            let may_join = order < 9
                || theirs == ours && ours != Isolate
                || theirs.is_mergeable() && ours.is_mergeable();
            if !may_join || !self.remove(buddy, order) {
                break;
            }
            if order == 9 && self.rules.model == FallbackModel::Linux6_12 {
                self.set_type(buddy, ours);
            }
            pfn = pfn.min(buddy);
            order += 1;
        }
        let parent = pfn & !(1 << order);
        let near = order < 9 && self.list_of(parent ^ 2 << order, order + 1).is_some();
        let at_tail = near || placement == Insertion::Tail;
        let at = if at_tail { self.lists[order as usize][ours.index()].len() } else { 0 };
        self.link(pfn, order, ours, at);
    }

    /// Takes blocks one at a time, as `rmqueue_bulk` does.
    pub fn take(&mut self, request: BlockRequest, blocks: u32) -> Vec<u64> {
        let mut stealing = false;
        (0..blocks).map_while(|_| self.take_one(request, &mut stealing)).collect()
    }

    fn take_one(&mut self, request: BlockRequest, stealing: &mut bool) -> Option<u64> {
        let (order, ours) = (request.order.0, request.migratetype);
        if !*stealing {
            if let Some(pfn) = self.split_smallest(order, &[ours]) {
                return Some(pfn);
            }
            let found = match self.rules.model {
                FallbackModel::Linux6_12 => self.claim(request),
                FallbackModel::Linux6_1 => self.take_over(request),
            };
            if found {
                return self.split_smallest(order, &[ours]);
            }
        }
        let may_steal = self.rules.model == FallbackModel::Linux6_12
            && request.fragmentation == Fragmentation::Allowed;
        let pfn = if may_steal { self.split_smallest(order, donors(ours)) } else { None };
        *stealing |= pfn.is_some();
        pfn
    }

    /// Takes the first block of the lowest order that any of `types` has.
    fn split_smallest(&mut self, order: u8, types: &[Migratetype]) -> Option<u64> {
        let (mut high, from) =
            (order..=10).find_map(|high| Some((high, self.first_of(high, types)?)))?;
        let pfn = self.unlink(high, from, 0);
        while high > order {
            high -= 1;
            self.link(pfn + (1 << high), high, from, 0);
        }
        Some(pfn)
    }

    fn claim(&mut self, request: BlockRequest) -> bool {
        let ours = request.migratetype;
        for order in (lowest(request)..=10).rev() {
            let Some(donor) = self.first_of(order, donors(ours)) else { continue };
            if order < 4 && ours == Movable {
                return false;
            }
            let pfn = self.lists[order as usize][donor.index()][0];
            if order >= 9 {
                self.move_whole(pfn, order, ours);
                return true;
            }
            self.claims_tried += 1;
            if self.is_inside(pfn) && self.agrees(pfn, ours) {
                self.set_type(pfn, ours);
                self.move_free_blocks(pfn, ours);
                return true;
            }
        }
        false
    }

    fn take_over(&mut self, request: BlockRequest) -> bool {
        let ours = request.migratetype;
        let found = |order: u8| Some((order, self.first_of(order, donors(ours))?));
        let Some(mut from) = (lowest(request)..=10).rev().find_map(found) else { return false };
        let whole = from.0 >= 4 || ours != Movable;
        if !whole {
            from = (request.order.0..=10).find_map(found).expect("the one just found, if no other");
        }
        let (order, donor) = from;
        let pfn = self.lists[order as usize][donor.index()][0];
        let reserved = self.pageblock(pfn) == HighAtomic;
        if !reserved && order >= 9 {
            self.move_whole(pfn, order, ours);
            return true;
        }
        if !reserved {
            self.claims_tried += 1;
        }
        if reserved || !whole || !self.is_inside(pfn) {
            self.remove(pfn, order);
            self.link_last(pfn, order, ours);
        } else {
            let agrees = self.agrees(pfn, ours);
            self.move_free_blocks(pfn, ours);
            if agrees {
                self.set_type(pfn, ours);
            }
        }
        true
    }

    /// Moves the free blocks of a pageblock, or cuts the one that covers it.
    pub fn retype(&mut self, pfn: u64, ours: Migratetype) -> Option<u64> {
        if !self.is_inside(pfn) {
            return None;
        }
        let covering = pfn & !1023;
        let is_covered = self.remove(covering, 10);
        self.set_type(pfn, ours);
        if !is_covered {
            return Some(self.move_free_blocks(pfn, ours));
        }
        let half = pfn & !511;
        self.free(half ^ 512, 9, Insertion::Usual);
        self.free(half, 9, Insertion::Usual);
        Some(512)
    }

    fn move_whole(&mut self, pfn: u64, order: u8, ours: Migratetype) {
        self.remove(pfn, order);
        for pageblock in pfn / 512..(pfn + (1 << order)) / 512 {
            self.set_type(pageblock * 512, ours);
        }
        self.link_last(pfn, order, ours);
    }

    fn move_free_blocks(&mut self, pfn: u64, ours: Migratetype) -> u64 {
        let mut moved = 0;
        for (pfn, order) in self.free_blocks_in_pageblock(pfn) {
            self.remove(pfn, order);
            self.link_last(pfn, order, ours);
            moved += 1 << order;
        }
        moved
    }

    fn agrees(&self, pfn: u64, ours: Migratetype) -> bool {
        let free: u64 = self.free_blocks_in_pageblock(pfn).iter().map(|block| 1 << block.1).sum();
        let pageblock = pfn & !511..(pfn & !511) + 512;
        let held = self.in_use.range(pageblock).map(|(_, &held)| held);
        let movable: u64 = match self.rules.held {
            HeldMovable::ByWord => {
                held.filter(|held| held.1 == Movable).map(|held| 1 << held.0).sum()
            }
            HeldMovable::Never => 0,
        };
        let alike = match (ours, self.pageblock(pfn)) {
            (Movable, _) => movable,
            (_, Movable) => 512 - free - movable,
            _ => 0,
        };
        free + alike >= 256
    }

    /// First PFN and order of the free blocks that begin in a pageblock, ascending.
    fn free_blocks_in_pageblock(&self, pfn: u64) -> Vec<(u64, u8)> {
        let mut found = Vec::new();
        for (order, types) in self.lists.iter().enumerate() {
            let inside = types.iter().flatten().filter(|&&it| it / 512 == pfn / 512);
            found.extend(inside.map(|&pfn| (pfn, order as u8)));
        }
        found.sort_unstable();
        found
    }

    /// The type of a pageblock.
    pub fn pageblock(&self, pfn: u64) -> Migratetype {
        self.pageblocks.get(&(pfn / 512)).copied().unwrap_or(Movable)
    }

    /// Pages that count as free.
    pub fn free_pages(&self) -> u64 {
        let counted = |types: &[Vec<u64>; 5]| types[..Isolate.index()].iter().map(Vec::len).sum();
        let blocks = self.lists.iter().map(counted);
        blocks.enumerate().map(|(order, blocks): (_, usize)| (blocks as u64) << order).sum()
    }

    fn is_inside(&self, pfn: u64) -> bool {
        let first = pfn & !511;
        self.span.start <= first && first + 512 <= self.span.end
    }

    fn first_of(&self, order: u8, types: &[Migratetype]) -> Option<Migratetype> {
        types.iter().copied().find(|of| !self.lists[order as usize][of.index()].is_empty())
    }

    /// The list that a free block is on, and its place there.
    fn list_of(&self, pfn: u64, order: u8) -> Option<(usize, usize)> {
        let lists = self.lists[order as usize].iter().enumerate();
        lists.filter_map(|(of, list)| Some((of, list.iter().position(|&it| it == pfn)?))).next()
    }

    fn remove(&mut self, pfn: u64, order: u8) -> bool {
        let found = self.list_of(pfn, order);
        if let Some((of, at)) = found {
            self.unlink(order, Migratetype::ALL[of], at);
        }
        found.is_some()
    }

    fn link_last(&mut self, pfn: u64, order: u8, of: Migratetype) {
        let last = self.lists[order as usize][of.index()].len();
        self.link(pfn, order, of, last);
    }

    fn link(&mut self, pfn: u64, order: u8, of: Migratetype, at: usize) {
        self.operations += 1;
        self.lists[order as usize][of.index()].insert(at, pfn);
    }

    fn unlink(&mut self, order: u8, of: Migratetype, at: usize) -> u64 {
        self.operations += 1;
        self.lists[order as usize][of.index()].remove(at)
    }

    fn set_type(&mut self, pfn: u64, of: Migratetype) {
        self.operations += u64::from(self.pageblock(pfn) != of);
        self.pageblocks.insert(pfn / 512, of);
    }
}

fn donors(ours: Migratetype) -> &'static [Migratetype] {
    match ours {
        Unmovable => &[Reclaimable, Movable],
        Movable => &[Reclaimable, Unmovable],
        Reclaimable => &[Unmovable, Movable],
        HighAtomic | Isolate => &[],
    }
}

fn lowest(request: BlockRequest) -> u8 {
    match request.fragmentation {
        Fragmentation::Allowed => request.order.0,
        Fragmentation::Avoided => request.order.0.max(9),
    }
}
