//! Whole ranges: 512 pages that adjoin and are aligned, none of which anybody has been given. Whether they lie in a zone or
//! in a pageset makes no difference.

use std::ops::ControlFlow;

use nearpage::rules::pagesets::{LISTS, list_order};
use nearpage::{Migratetype, Order, Pfn};

use crate::machine::Core;

/// Pages of a range.
const PAGES: u64 = 1 << Order::PAGEBLOCK.0;

/// Which ranges of a core's memory are whole.
#[derive(Debug)]
pub(super) struct Whole {
    /// The ranges of each part of the memory of a zone: the number of the first, and where their counts begin.
    parts: Vec<Part>,
    /// By range, pages that somebody has.
    used: Vec<u16>,
    whole: u64,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    end: u64,
    at: usize,
}

impl Whole {
    /// Looks at what is free, in zones and in pagesets.
    pub(super) fn of(core: &Core<'_>) -> Whole {
        let mut whole = Whole { parts: Vec::new(), used: Vec::new(), whole: 0 };
        for zone in core.zones() {
            for range in core.topology().ranges_in(zone.node(), zone.span()) {
                // Ranges that reach out of a zone are no zone's to make whole.
                let (first, end) = (range.start.0.div_ceil(PAGES), range.end.0 / PAGES);
                if first < end {
                    whole.parts.push(Part { first, end, at: whole.used.len() });
                    whole.used.resize(whole.used.len() + (end - first) as usize, PAGES as u16);
                }
            }
        }
        whole.parts.sort_unstable_by_key(|part| part.first);
        for zone in core.zones() {
            for order in (0..=Order::MAX.0).map(Order) {
                for migratetype in Migratetype::ALL {
                    zone.for_each_free_block(order, migratetype, |pfn| {
                        whole.gave(pfn, order);
                        ControlFlow::Continue(())
                    });
                }
            }
        }
        for (.., pagesets) in core.cpus() {
            for pageset in pagesets {
                (0..LISTS).for_each(|list| {
                    pageset.for_each_block(list, |pfn| whole.gave(pfn, list_order(list)));
                });
            }
        }
        whole
    }

    /// How many ranges are whole.
    pub(super) fn count(&self) -> u64 {
        self.whole
    }

    /// Somebody was given a block.
    pub(super) fn took(&mut self, pfn: Pfn, order: Order) {
        self.change(pfn, order, |used, pages| used + pages);
    }

    /// A block came back.
    pub(super) fn gave(&mut self, pfn: Pfn, order: Order) {
        self.change(pfn, order, |used, pages| {
            used.checked_sub(pages).expect("no more comes back than was given")
        });
    }

    fn change(&mut self, pfn: Pfn, order: Order, change: impl Fn(u16, u16) -> u16) {
        let pages = order.pages().0.min(PAGES) as u16;
        for number in pfn.0 / PAGES..(pfn.0 + order.pages().0).div_ceil(PAGES) {
            let Some(at) = self.place(number) else { continue };
            let was_whole = self.used[at] == 0;
            self.used[at] = change(self.used[at], pages);
            match (was_whole, self.used[at] == 0) {
                (false, true) => self.whole += 1,
                (true, false) => self.whole -= 1,
                _ => {}
            }
        }
    }

    /// Where the count of a range is.
    fn place(&self, number: u64) -> Option<usize> {
        let after = self.parts.partition_point(|part| part.first <= number);
        let part = self.parts.get(after.checked_sub(1)?)?;
        (number < part.end).then(|| part.at + (number - part.first) as usize)
    }

    /// Whether a look at what is free tells the same. Pieces of orders that pagesets without owners do not have are not seen.
    #[cfg(test)]
    pub(super) fn is_as_in(&self, core: &Core<'_>) -> bool {
        if core.model().owners != nearpage::PageblockOwners::Nobody {
            return true;
        }
        let now = Whole::of(core);
        now.used == self.used && now.whole == self.whole
    }
}
