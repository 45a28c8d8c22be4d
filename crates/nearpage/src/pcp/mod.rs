//! Per-CPU pagesets (PCP): each CPU keeps a few free pages of each zone, so that most allocations and
//! frees touch no shared line.
//!
//! A pageset has a list for each (order, migratetype) that it caches: orders 0 to 3 for the first three
//! migratetypes, and order 9 for movable and for other pages (facts: `include/linux/mmzone.h: enum
//! pcp_lists`, 6.12: 14 lists). Where a list's pages are kept, and how that is atomic with respect to
//! its CPU, is the [`storage`]; how many there may be is the [`tuning`]; both know nothing of each other.

pub mod pageset;
pub(crate) mod pieces;
pub mod serial;
pub mod sizes;
pub mod storage;
pub mod tuning;

pub use storage::{CountedList, Pop, Push, Storage};

use crate::frame::Migratetype;
use crate::units::Order;

/// Lists of a pageset.
pub const LISTS: usize = 14;
/// Order of the two lists of huge pages.
const HUGE_ORDER: Order = Order(9);
/// Under nearpage's own rules a pageset has one more list: of single pages that came back and were not handed out lately.
pub(crate) const COLD: usize = LISTS;
/// All lists; those of Linux's rules leave the last one empty.
pub(crate) const ALL_LISTS: usize = LISTS + 1;

/// The list for blocks of `order` and `migratetype`, or `None` if pagesets don't cache them.
/// Pages of a HIGHATOMIC pageblock use the movable list, pages of an ISOLATE one no list.
#[inline(always)]
pub const fn list_index(order: Order, migratetype: Migratetype) -> Option<usize> {
    let migratetype = match migratetype {
        Migratetype::HighAtomic => Migratetype::Movable,
        Migratetype::Isolate => return None,
        other => other,
    };
    match order.0 {
        0..=3 => Some(order.0 as usize * Migratetype::PCP_COUNT + migratetype.index()),
        9 => Some(12 + matches!(migratetype, Migratetype::Movable) as usize),
        _ => None,
    }
}

/// The order of the blocks on list `index`.
#[inline]
pub const fn list_order(index: usize) -> Order {
    match index {
        0..12 => Order((index / Migratetype::PCP_COUNT) as u8),
        12 | 13 => HUGE_ORDER,
        _ => Order(0),
    }
}

/// A type whose blocks list `index` takes: its only one, where it is not the list of all huge pages that are not movable.
#[inline]
pub const fn list_type(index: usize) -> Migratetype {
    match index {
        0..12 => Migratetype::ALL[index % Migratetype::PCP_COUNT],
        12 => Migratetype::Unmovable,
        _ => Migratetype::Movable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_blocks_of_its_order_and_type() {
        for index in 0..LISTS {
            assert_eq!(list_index(list_order(index), list_type(index)), Some(index));
        }
        assert_eq!(list_order(COLD), Order(0));
    }

    #[test]
    fn each_list_has_one_order() {
        let mut seen = [0; LISTS];
        for order in (0..=10).map(Order) {
            for migratetype in Migratetype::ALL {
                if let Some(index) = list_index(order, migratetype) {
                    assert_eq!(list_order(index), order);
                    seen[index] += 1;
                }
            }
        }
        // Movable lists serve HIGHATOMIC pages too; at order 9 unmovable and reclaimable share a list.
        assert_eq!(seen, [1, 2, 1, 1, 2, 1, 1, 2, 1, 1, 2, 1, 2, 2]);
        assert_eq!(list_index(Order(4), Migratetype::Movable), None);
        assert_eq!(list_index(Order(0), Migratetype::Isolate), None);
    }
}
