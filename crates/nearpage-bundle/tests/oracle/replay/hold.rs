//! What the module does to bring a zone near one of its marks: it takes blocks and keeps them.
//!
//! It asks for large blocks first. A request that finds no block of its order fails at the high mark, whatever is free,
//! and the zone counts as below that mark until a drain finds otherwise. So how much of the zone was in smaller blocks
//! decides whether pagesets grow afterwards, and it is recorded only by captures of other times.

use nearpage::{Order, Pfn};

use super::HERE;
use crate::lab::{CoreZone, Lab};
use crate::layout::Layout;
use crate::machine::Zone;

/// The orders of the blocks that the module asks for.
const ORDERS: [Order; 4] = [Order(9), Order(6), Order(3), Order(0)];

/// Takes blocks of a zone until less than two more than `goal` pages are free, order by order.
pub fn take(lab: &Lab<'_, '_>, zone: &CoreZone<'_>, goal: u64) -> Vec<(Pfn, Order)> {
    let node = lab.name(zone).node;
    let mut held = Vec::new();
    for order in ORDERS {
        while zone.free_pages().0 > goal + two(order)
            && let Some(pfn) = lab.alloc(order, HERE, node)
        {
            if !core::ptr::addr_eq(lab.zone_of(pfn), zone) {
                lab.free(pfn, order);
                break;
            }
            held.push((pfn, order));
        }
    }
    held
}

/// Pages in small blocks with which [`take`] finds no large one any more before it reaches its goal.
pub fn shortage(goal: u64) -> u64 {
    goal + two(ORDERS[0]) + 1
}

fn two(order: Order) -> u64 {
    2 * order.pages().0
}

/// Free pages of a zone of which `small` are in blocks below a pageblock, `foreign` of them of another type; or in one
/// piece, if the zone has no room for that.
pub fn layout(zone: &Zone, pages: u64, foreign: u64, small: u64) -> Layout {
    let fragments = foreign.min(pages);
    let rest = small.saturating_sub(fragments).min(pages - fragments);
    let whole = pages - fragments - rest;
    let layout = Layout::Fragmented { whole, fragments, rest, limit: Order::PAGEBLOCK };
    let is_whole = small == 0 && foreign == 0;
    match !is_whole && layout.ranges(zone.span).is_ok() {
        true => layout,
        false => Layout::Whole(pages),
    }
}
