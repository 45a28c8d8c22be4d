//! The core's free lists in the words of the recordings.

use nearpage::{Migratetype, Order, Pfn};
use std::ops::ControlFlow;

use crate::lab::CoreZone;
use crate::text::lists::{List, Lists, Position};

/// Numbers of blocks of the highest order, as they are met.
#[derive(Default)]
pub struct Numbers(Vec<u64>);

impl Numbers {
    /// The position of a frame. Its block has a number from now on.
    pub fn position(&mut self, pfn: Pfn) -> Position {
        let block = pfn.0 >> Order::MAX.0;
        let known = self.0.iter().position(|&met| met == block);
        let number = known.unwrap_or_else(|| {
            self.0.push(block);
            self.0.len() - 1
        });
        Position { block: number as u64, offset: pfn.0 % Order::MAX.pages().0 }
    }
}

/// The lists of a type below the highest order, the first `shown` blocks of each.
pub fn lists(
    zone: &CoreZone<'_>,
    migratetype: Migratetype,
    shown: usize,
    numbers: &mut Numbers,
) -> Lists {
    let mut lists = Lists::new();
    for order in 0..Order::MAX.0 {
        let blocks = zone.free_blocks(Order(order), migratetype) as usize;
        if blocks == 0 {
            continue;
        }
        let mut first = Vec::new();
        zone.for_each_free_block(Order(order), migratetype, |pfn| {
            if first.len() == shown {
                return ControlFlow::Break(());
            }
            first.push(numbers.position(pfn));
            ControlFlow::Continue(())
        });
        lists.insert(order, List { first, blocks });
    }
    lists
}
