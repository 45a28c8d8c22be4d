//! Where the free blocks of a zone lie at the start. A recording tells how many there are of each order and type,
//! and how many pageblocks there are of each type; any places that agree with that will do.
//!
//! A block that is not free as a whole has at most one free half: two would be one free block. So blocks are placed
//! from the highest order down, each as half of a block that is not free, of its own type; its other half is the next
//! place for smaller ones. Whatever the recorded machine looked like, there is room.

use nearpage::{Migratetype, Order, PfnRange};

use crate::drawn::Draw;

/// Free blocks by type and order.
pub type Blocks = [[u64; Order::COUNT]; Migratetype::COUNT];

/// A block of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its first frame.
    pub start: u64,
    /// Its order.
    pub order: Order,
    /// The type of its pageblock.
    pub migratetype: Migratetype,
}

/// The blocks of a zone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// The free ones.
    pub free: Vec<Block>,
    /// The others: all that is in somebody's hands, or in a pageset.
    pub held: Vec<Block>,
    /// Pages that the recording has free and for which there was no place.
    pub left_out: u64,
}

/// Lays out the free blocks of a zone whose memory is `ranges`, with so many pageblocks of each type; in drawn places if
/// there is a draw.
pub fn lay_out(
    ranges: &[PfnRange],
    free: &Blocks,
    pageblocks: &[u64; Migratetype::COUNT],
    draw: Option<Draw>,
) -> Layout {
    let mut plan = Plan { ranges, layout: Layout::default(), places: Default::default(), draw };
    let halves = plan.place_largest(free);
    plan.place_pageblocks(halves, free, pageblocks);
    for migratetype in Migratetype::ALL {
        for order in (0..Order::PAGEBLOCK.0).rev().map(Order) {
            for _ in 0..free[migratetype.index()][order.0 as usize] {
                plan.place(order, migratetype);
            }
        }
    }
    plan.keep_the_rest();
    plan.layout
}

/// Blocks that are not free as a whole, by order.
type Places = [Vec<u64>; Order::PAGEBLOCK.0 as usize + 1];

struct Plan<'a> {
    ranges: &'a [PfnRange],
    layout: Layout,
    places: [Places; Migratetype::COUNT],
    draw: Option<Draw>,
}

impl Plan<'_> {
    fn is_whole(&self, start: u64, order: Order) -> bool {
        let end = start + order.pages().0;
        self.ranges.iter().any(|range| range.start.0 <= start && end <= range.end.0)
    }

    fn has_memory(&self, start: u64, order: Order) -> bool {
        let block = PfnRange::new(start, start + order.pages().0);
        self.ranges.iter().any(|range| !range.intersection(block).is_empty())
    }

    /// Places the free blocks of the highest order, at the top of the zone; returns the pageblocks that are left, in
    /// pairs.
    fn place_largest(&mut self, free: &Blocks) -> Vec<[u64; 2]> {
        let size = Order::MAX.pages().0;
        let mut starts: Vec<u64> = Vec::new();
        for range in self.ranges {
            starts.extend((range.start.0 / size..range.end.0.div_ceil(size)).map(|at| at * size));
        }
        starts.sort_unstable();
        starts.dedup();
        self.draw.iter().for_each(|draw| draw.shuffle(&mut starts));
        for migratetype in Migratetype::ALL {
            for _ in 0..free[migratetype.index()][Order::MAX.0 as usize] {
                match starts.iter().rposition(|&start| self.is_whole(start, Order::MAX)) {
                    Some(at) => {
                        let start = starts.remove(at);
                        self.layout.free.push(Block { start, order: Order::MAX, migratetype });
                    }
                    None => self.layout.left_out += size,
                }
            }
        }
        starts.into_iter().map(|start| [start, start + size / 2]).collect()
    }

    /// Places the free pageblocks, and gives each of the others a type.
    fn place_pageblocks(
        &mut self,
        pairs: Vec<[u64; 2]>,
        free: &Blocks,
        pageblocks: &[u64; Migratetype::COUNT],
    ) {
        let at = Order::PAGEBLOCK.0 as usize;
        let mut left = pageblocks.map(|count| count as i64);
        for block in &self.layout.free {
            left[block.migratetype.index()] -= 2;
        }
        let mut wanted = free.map(|blocks| blocks[at]);
        let mut pairs = pairs.into_iter().rev();
        let mut rest: Vec<u64> = Vec::new();
        for migratetype in Migratetype::ALL {
            while wanted[migratetype.index()] > 0 {
                let Some(pair) = pairs.next() else { break };
                let Some(half) =
                    (0..2).rev().find(|&half| self.is_whole(pair[half], Order::PAGEBLOCK))
                else {
                    rest.extend(pair);
                    continue;
                };
                let (start, order) = (pair[half], Order::PAGEBLOCK);
                self.layout.free.push(Block { start, order, migratetype });
                wanted[migratetype.index()] -= 1;
                left[migratetype.index()] -= 1;
                rest.push(pair[1 - half]);
            }
        }
        self.layout.left_out += wanted.iter().sum::<u64>() * Order::PAGEBLOCK.pages().0;
        rest.extend(pairs.flatten());
        rest.retain(|&start| self.has_memory(start, Order::PAGEBLOCK));
        self.type_pageblocks(rest, left);
    }

    /// Whole pageblocks get the types first that have free blocks to be placed there; what no type claims is movable.
    fn type_pageblocks(&mut self, mut starts: Vec<u64>, left: [i64; Migratetype::COUNT]) {
        starts.sort_unstable();
        self.draw.iter().for_each(|draw| draw.shuffle(&mut starts));
        starts.sort_by_key(|&start| self.is_whole(start, Order::PAGEBLOCK));
        for migratetype in Migratetype::ALL.into_iter().filter(|&of| of != Migratetype::Movable) {
            for _ in 0..left[migratetype.index()].max(0) {
                let Some(start) = starts.pop() else { break };
                self.places[migratetype.index()][Order::PAGEBLOCK.0 as usize].push(start);
            }
        }
        self.places[Migratetype::Movable.index()][Order::PAGEBLOCK.0 as usize].extend(starts);
    }

    /// Places a free block as half of a larger one that is not free.
    fn place(&mut self, order: Order, migratetype: Migratetype) {
        let size = order.pages().0;
        let mut from = order.0 as usize + 1;
        loop {
            let places = &self.places[migratetype.index()];
            let Some(found) = (from..places.len()).find(|&order| !places[order].is_empty()) else {
                self.layout.left_out += size;
                return;
            };
            let Some(mut start) = self.places[migratetype.index()][found].pop() else { return };
            for above in (order.0 as usize + 1..found).rev() {
                self.places[migratetype.index()][above].push(start);
                start += 1 << above;
            }
            let halves = [start, start + size];
            match (0..2).rev().find(|&half| self.is_whole(halves[half], order)) {
                Some(half) => {
                    self.layout.free.push(Block { start: halves[half], order, migratetype });
                    self.places[migratetype.index()][order.0 as usize].push(halves[1 - half]);
                    return;
                }
                // A piece of the zone's edge: it holds no such block. Its place is kept for smaller ones.
                None => {
                    self.places[migratetype.index()][order.0 as usize].extend(halves);
                    from = order.0 as usize + 1;
                }
            }
        }
    }

    /// All that is left is held, in blocks that have memory as a whole.
    fn keep_the_rest(&mut self) {
        for migratetype in Migratetype::ALL {
            let places = std::mem::take(&mut self.places[migratetype.index()]);
            for (order, starts) in places.into_iter().enumerate() {
                for start in starts {
                    self.keep(start, Order(order as u8), migratetype);
                }
            }
        }
    }

    fn keep(&mut self, start: u64, order: Order, migratetype: Migratetype) {
        if self.is_whole(start, order) {
            self.layout.held.push(Block { start, order, migratetype });
        } else if self.has_memory(start, order) {
            let half = Order(order.0 - 1);
            self.keep(start, half, migratetype);
            self.keep(start + half.pages().0, half, migratetype);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(blocks: &[Block]) -> u64 {
        blocks.iter().map(|block| block.order.pages().0).sum()
    }

    fn check(ranges: &[PfnRange], free: &Blocks, layout: &Layout) {
        assert_eq!(layout.left_out, 0);
        let mut counted: Blocks = Default::default();
        for block in &layout.free {
            assert_eq!(block.start % block.order.pages().0, 0);
            counted[block.migratetype.index()][block.order.0 as usize] += 1;
            // Its buddy is not free as a whole.
            let buddy = block.start ^ block.order.pages().0;
            assert!(
                block.order == Order::MAX
                    || !layout
                        .free
                        .iter()
                        .any(|other| (other.start, other.order) == (buddy, block.order))
            );
        }
        assert_eq!(&counted, free);
        let mut frames: Vec<u64> = layout
            .free
            .iter()
            .chain(&layout.held)
            .flat_map(|block| block.start..block.start + block.order.pages().0)
            .collect();
        frames.sort_unstable();
        let expected: Vec<u64> =
            ranges.iter().flat_map(|range| range.start.0..range.end.0).collect();
        assert_eq!(frames, expected, "each frame once");
    }

    #[test]
    fn a_recorded_zone_finds_room() {
        // Node 0, zone DMA of a recorded 6.18.
        let mut free: Blocks = Default::default();
        free[Migratetype::Unmovable.index()][8] = 1;
        free[Migratetype::Movable.index()][9] = 1;
        free[Migratetype::Movable.index()][10] = 3;
        let ranges = [PfnRange::new(1, 4096)];
        let layout = lay_out(&ranges, &free, &[1, 7, 0, 0, 0], None);
        check(&ranges, &free, &layout);
        assert_eq!(pages(&layout.held), 4095 - 3840);
    }

    #[test]
    fn any_mixture_that_can_be_finds_room() {
        let seed = 7;
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            // Pageblocks, each cut at random into free and held: a state that can be.
            let mut free: Blocks = Default::default();
            let mut pageblocks = [0; Migratetype::COUNT];
            let count = random.u64(1..20) * 2;
            for _ in 0..count {
                let migratetype = random.usize(..3);
                pageblocks[migratetype] += 1;
                for order in (0..9).rev() {
                    free[migratetype][order] += u64::from(random.bool());
                }
            }
            let ranges = [PfnRange::new(0, count * 512)];
            let draw = random.bool().then(|| Draw::new(random.u64(..)));
            let layout = lay_out(&ranges, &free, &pageblocks, draw);
            check(&ranges, &free, &layout);
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        let mut free: Blocks = Default::default();
        free[1][10] = 3;
        let layout = lay_out(&[PfnRange::new(0, 2048)], &free, &[0, 4, 0, 0, 0], None);
        assert_eq!((layout.left_out, pages(&layout.free)), (1024, 2048));
    }
}
