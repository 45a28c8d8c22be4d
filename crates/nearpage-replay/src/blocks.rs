//! Which block of the core stands for a block of the trace.

use std::collections::HashMap;

use nearpage::{Order, Pfn};

/// Frames of a chunk of the table.
const CHUNK: usize = 1 << Order::PAGEBLOCK.0;

/// A block of the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreBlock {
    /// Its first frame, in the core.
    pub pfn: Pfn,
    /// Its order.
    pub order: Order,
}

/// Blocks that are allocated now, by their first frame in the trace: as much memory as there are pageblocks in use.
#[derive(Debug, Default)]
pub struct Blocks {
    chunks: HashMap<u64, Box<[u64; CHUNK]>>,
}

impl Blocks {
    /// Notes a block; returns the one that was there before.
    pub fn insert(&mut self, pfn: Pfn, block: CoreBlock) -> Option<CoreBlock> {
        let chunk = self.chunks.entry(pfn.0 / CHUNK as u64).or_insert_with(|| Box::new([0; CHUNK]));
        decode(std::mem::replace(&mut chunk[pfn.0 as usize % CHUNK], encode(block)))
    }

    /// Takes the block that begins at a frame.
    pub fn remove(&mut self, pfn: Pfn) -> Option<CoreBlock> {
        let chunk = self.chunks.get_mut(&(pfn.0 / CHUNK as u64))?;
        decode(std::mem::take(&mut chunk[pfn.0 as usize % CHUNK]))
    }

    /// The block that begins at a frame.
    pub fn get(&self, pfn: Pfn) -> Option<CoreBlock> {
        decode(self.chunks.get(&(pfn.0 / CHUNK as u64))?[pfn.0 as usize % CHUNK])
    }

    /// The block that a frame lies in without being its first: its first frame, and the block.
    pub fn around(&self, pfn: Pfn) -> Option<(Pfn, CoreBlock)> {
        (1..=nearpage::Order::MAX.0).find_map(|order| {
            let head = Pfn(pfn.0 & !((1 << order) - 1));
            let block = self.get(head)?;
            (head.0 + block.order.pages().0 > pfn.0).then_some((head, block))
        })
    }
}

/// A frame and an order in one word; 0 is none.
fn encode(block: CoreBlock) -> u64 {
    (block.pfn.0 << 4 | u64::from(block.order.0)) + 1
}

fn decode(word: u64) -> Option<CoreBlock> {
    let word = word.checked_sub(1)?;
    Some(CoreBlock { pfn: Pfn(word >> 4), order: Order((word & 15) as u8) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_any_of_their_frames() {
        let mut blocks = Blocks::default();
        let block = CoreBlock { pfn: Pfn(4096), order: Order(3) };
        assert_eq!(blocks.insert(Pfn(0x1008), block), None);
        assert_eq!(blocks.get(Pfn(0x1008)), Some(block));
        assert_eq!(blocks.around(Pfn(0x100f)), Some((Pfn(0x1008), block)));
        assert_eq!(blocks.around(Pfn(0x1010)), None);
        assert_eq!(blocks.remove(Pfn(0x1008)), Some(block));
        assert_eq!(blocks.remove(Pfn(0x1008)), None);
    }

    #[test]
    fn the_first_frame_is_one_like_others() {
        let mut blocks = Blocks::default();
        let block = CoreBlock { pfn: Pfn(0), order: Order(0) };
        blocks.insert(Pfn(0), block);
        assert_eq!(blocks.get(Pfn(0)), Some(block));
    }
}
