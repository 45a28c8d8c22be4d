//! Giving blocks back.
//!
//! Invariant: no free block below the order of a pageblock has a free buddy of its own order.
//!
//! While the pages of one aligned block come back one after the other, the lists change only by what
//! lies inside that block, and all of that is gone again when it is whole. So adjoining blocks can be
//! freed as the largest aligned blocks that they make up, in the same order, and each list is the
//! same to the last place. Pageblocks are not exceeded: their types may differ.

use super::state::{Buddy, Insertion, counted_pages, frame_count};
use crate::frame::{FrameState, ListEnd, Migratetype, SectionFrames, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, Pfn};

/// How far ahead of the block that is freed a batch loads frames into the cache. In random order this
/// saves a sixth of the time.
const LOAD_AHEAD: usize = 16;

impl Buddy {
    /// Gives a block back: merges it and lists it under the type of its pageblock. By their words, its
    /// frames are heads of nothing; none is part of a free block.
    ///
    /// # Panics
    /// If the block is not aligned to its order, its order is above [`MAX_ORDER`], its first frame is
    /// the head of a free block, or no section covers it.
    pub fn free(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        order: Order,
        placement: Insertion,
    ) {
        assert!(order <= MAX_ORDER);
        let halves = [number, number + frame_count(PAGEBLOCK_ORDER)];
        if order > PAGEBLOCK_ORDER && self.must_cut(frames, halves) {
            for half in halves {
                self.free(frames, half, PAGEBLOCK_ORDER, placement);
            }
        } else {
            self.merge(frames, number, order, placement);
        }
    }

    /// Gives `blocks` adjoining blocks of order `of` back, in the fewest steps. The lists are then the same as if each
    /// block had been freed alone, in ascending order.
    ///
    /// # Panics
    /// As [`free`](Self::free), and if the order is above [`PAGEBLOCK_ORDER`].
    pub fn free_run(&mut self, frames: ZoneFrames<'_>, first: u32, of: Order, blocks: u32) {
        let end = first + (blocks << of.0);
        let mut at = first;
        while at < end {
            let order = largest_block(frames.pfn(at), end - at, PAGEBLOCK_ORDER);
            self.free(frames, at, order, Insertion::Usual);
            self.charge(2 * ((1 << (order.0 - of.0)) - 1));
            at += frame_count(order);
        }
    }

    /// Gives blocks of one order back, in the order of `numbers`. The lists are then the same as if
    /// each had been [freed](Self::free) alone; but blocks that adjoin the one before, upward or
    /// downward, cost nearly nothing.
    ///
    /// # Panics
    /// As [`free`](Self::free), and if the order is above [`PAGEBLOCK_ORDER`].
    pub fn free_batch(&mut self, frames: ZoneFrames<'_>, numbers: &[u32], order: Order) {
        assert!(order <= PAGEBLOCK_ORDER);
        let mut rest = numbers;
        while let Some(&first) = rest.first() {
            let run = run_length(rest, frame_count(order));
            if run == 1 {
                if let Some(&ahead) = rest.get(LOAD_AHEAD) {
                    core::hint::black_box(frames.frame(ahead).word());
                }
                self.free(frames, first, order, Insertion::Usual);
            } else {
                self.free_numbers(frames, &rest[..run], order);
            }
            rest = &rest[run..];
        }
    }

    /// Gives back blocks that adjoin, all upward or all downward; at least one.
    pub(super) fn free_numbers(&mut self, frames: ZoneFrames<'_>, numbers: &[u32], order: Order) {
        let step = frame_count(order);
        let (first, blocks) = (numbers[0], numbers.len() as u32);
        if first <= numbers[numbers.len() - 1] {
            self.free_run(frames, first, order, blocks);
        } else {
            self.free_run_downward(frames, first + step, order, blocks);
        }
    }

    /// Gives the `blocks` blocks of order `of` below `end` back as if each had been freed alone, in descending order.
    fn free_run_downward(&mut self, frames: ZoneFrames<'_>, end: u32, of: Order, blocks: u32) {
        let first = end - (blocks << of.0);
        let mut end = end;
        while first < end {
            let order = largest_block(frames.pfn(end), end - first, PAGEBLOCK_ORDER);
            end -= frame_count(order);
            self.free(frames, end, order, Insertion::Usual);
            self.charge(2 * ((1 << (order.0 - of.0)) - 1));
        }
    }

    /// Whether a block of two pageblocks is freed as two, because they may differ in type: always in
    /// 6.12 (`mm/page_alloc.c: split_large_buddy`). 6.1 frees it whole, as what its first pageblock
    /// is; it isolates only both at once, so that pages that count and others never make up one block.
    fn must_cut(&self, frames: ZoneFrames<'_>, halves: [u32; 2]) -> bool {
        self.rules.lists_follow_pageblocks()
            || halves.iter().any(|&half| frames.pageblock(half) == Migratetype::Isolate)
    }

    /// Frees a block as one. Inlined because a batch spends all its time here.
    #[inline(always)]
    fn merge(&mut self, frames: ZoneFrames<'_>, number: u32, order: Order, placement: Insertion) {
        let (home, mut at) = frames.section(number);
        assert!(at % frame_count(order) == 0, "a block is aligned to its order");
        assert!(home.frame(at).word().state() != FrameState::Free, "freed twice");
        let migratetype = home.pageblock(at);
        self.free_pages += counted_pages(order, migratetype);
        let mut order = order;
        while order < PAGEBLOCK_ORDER && self.absorb_buddy(frames, home, at, order) {
            at &= !frame_count(order);
            order.0 += 1;
        }
        if order == PAGEBLOCK_ORDER
            && self.join_types(frames, home, at, migratetype)
            && self.absorb_buddy(frames, home, at, order)
        {
            at &= !frame_count(order);
            order.0 += 1;
        }
        let end = match placement {
            Insertion::Usual if next_merge_is_near(frames, home, at, order) => ListEnd::Tail,
            Insertion::Usual => ListEnd::Head,
            Insertion::Tail => ListEnd::Tail,
        };
        self.lists.push(frames, home.number(at), home.frame(at), order, migratetype, end);
    }

    /// Takes the buddy of the block at `at` from its list if it is free as a whole.
    #[inline]
    fn absorb_buddy(
        &mut self,
        frames: ZoneFrames<'_>,
        home: SectionFrames<'_>,
        at: u32,
        order: Order,
    ) -> bool {
        let buddy = home.frame(at ^ frame_count(order));
        let word = buddy.word();
        let is_free = word.is_free(order, frames.zone());
        if is_free {
            self.lists.unlink(frames, buddy, order, word.migratetype());
        }
        is_free
    }

    /// Whether the pageblock at `at`, of `migratetype`, may merge with its buddy, as far as types go.
    /// In 6.12 a free buddy takes that type over; in 6.1 it keeps its own.
    fn join_types(
        &mut self,
        frames: ZoneFrames<'_>,
        home: SectionFrames<'_>,
        at: u32,
        migratetype: Migratetype,
    ) -> bool {
        let buddy = at ^ frame_count(PAGEBLOCK_ORDER);
        let theirs = home.pageblock(buddy);
        // Isolated ones stay apart: they go, or come back, one by one.
        let are_alike = theirs == migratetype && migratetype != Migratetype::Isolate;
        let joins = are_alike || theirs.is_mergeable() && migratetype.is_mergeable();
        if joins
            && self.rules.lists_follow_pageblocks()
            && home.frame(buddy).word().is_free(PAGEBLOCK_ORDER, frames.zone())
            && theirs != migratetype
        {
            self.charge(1);
            home.set_pageblock(buddy, migratetype);
        }
        joins
    }
}

/// Whether the parent's buddy is free, so that the parent will merge as soon as it is whole. Linux
/// does not ask where the parent would be of the highest order.
#[inline]
fn next_merge_is_near(
    frames: ZoneFrames<'_>,
    home: SectionFrames<'_>,
    at: u32,
    order: Order,
) -> bool {
    let above = Order(order.0 + 1);
    let parent = at & !frame_count(order);
    above < MAX_ORDER
        && home.frame(parent ^ frame_count(above)).word().is_free(above, frames.zone())
}

/// The largest block, of at most `most`, that may start or end at `pfn` and has at most `frames`
/// frames.
#[inline]
pub(super) fn largest_block(pfn: Pfn, frames: u32, most: Order) -> Order {
    let fits = frames.ilog2().min(pfn.0.trailing_zeros());
    Order(fits.min(most.0 as u32) as u8)
}

/// How many of the first numbers are `step` apart, all upward or all downward. At least one.
#[inline]
pub(super) fn run_length(numbers: &[u32], step: u32) -> usize {
    /// So many at a time are a few instructions.
    const PIECE: usize = 16;
    let distance = match *numbers {
        [first, second, ..] => second.wrapping_sub(first),
        _ => return 1,
    };
    if distance != step && distance != step.wrapping_neg() {
        return 1;
    }
    let expected = |at: usize| numbers[0].wrapping_add(distance.wrapping_mul(at as u32));
    let differs = |from: usize, piece: &[u32]| {
        piece.iter().enumerate().fold(0, |any, (at, number)| any | number ^ expected(from + at))
            != 0
    };
    let mut pieces = numbers.chunks(PIECE).enumerate();
    let whole = pieces.find(|(at, piece)| differs(at * PIECE, piece));
    let Some((at, piece)) = whole else { return numbers.len() };
    let from = at * PIECE;
    from + (0..piece.len()).take_while(|&at| piece[at] == expected(from + at)).count()
}

#[cfg(test)]
mod tests {
    use super::run_length;
    use std_alloc::vec::Vec;

    /// Runs of each length up to a few pieces, both ways, whatever comes after them.
    #[test]
    fn runs_end_where_the_distance_changes() {
        for (length, step) in (2..70).flat_map(|length| [(length, 1), (length, 8)]) {
            let up: Vec<u32> = (0..length).map(|at| 1000 + at * step).collect();
            let down: Vec<u32> = up.iter().rev().copied().collect();
            for run in [up, down] {
                assert_eq!(run_length(&run, step), length as usize);
                for other in [run[0], 0, u32::MAX, run[run.len() - 1]] {
                    let numbers: Vec<u32> = run.iter().copied().chain([other; 20]).collect();
                    assert_eq!(run_length(&numbers, step), length as usize);
                }
            }
        }
        assert_eq!(
            [&[][..], &[5], &[5, 7], &[5, 5], &[7, 5, 3]].map(|of| run_length(of, 1)),
            [1; 5]
        );
    }
}
