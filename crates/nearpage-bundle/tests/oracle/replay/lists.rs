//! The core's free lists in the words of the recordings.

use nearpage::frame::Migratetype;
use nearpage::units::{MAX_ORDER, Order, Pfn};

use crate::lab::CoreZone;
use crate::text::lists::{List, Lists, Position};

/// Numbers of blocks of the highest order, as they are met.
#[derive(Default)]
pub struct Numbers(Vec<u64>);

impl Numbers {
    /// The position of a frame. Its block has a number from now on.
    pub fn position(&mut self, pfn: Pfn) -> Position {
        let block = pfn.0 >> MAX_ORDER.0;
        let known = self.0.iter().position(|&met| met == block);
        let number = known.unwrap_or_else(|| {
            self.0.push(block);
            self.0.len() - 1
        });
        Position { block: number as u64, offset: pfn.0 % MAX_ORDER.pages().0 }
    }
}

/// The lists of a type below the highest order, the first `shown` blocks of each.
pub fn lists(
    zone: &CoreZone<'_>,
    migratetype: Migratetype,
    shown: usize,
    numbers: &mut Numbers,
) -> Lists {
    let frames = *zone.frames();
    let mut guard = zone.lock();
    let mut lists = Lists::new();
    for order in 0..MAX_ORDER.0 {
        let blocks = guard.buddy().blocks(Order(order), migratetype) as usize;
        if blocks == 0 {
            continue;
        }
        let first = guard.buddy().list(frames, Order(order), migratetype).take(shown);
        let first = first.map(|number| numbers.position(frames.pfn(number))).collect();
        lists.insert(order, List { first, blocks });
    }
    lists
}
