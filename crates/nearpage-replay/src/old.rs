//! What is left in a pageset of the pages that it started with.

use nearpage::rules::pagesets::{LISTS, list_order};

use crate::machine::CorePageset;

/// The lists of a pageset that may still hold pages of the start. They go when a list is found empty; and drains take
/// the coldest pages first, which they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldLists {
    /// One bit each.
    pub lists: u16,
    /// Blocks at the start.
    started: [u64; LISTS],
    /// Blocks that refills brought.
    refilled: [u64; LISTS],
}

impl OldLists {
    /// Lists that start with so many pages; only those in `counted` are counted.
    pub fn new(pages: &[u64; LISTS], counted: u16) -> OldLists {
        let mut old = OldLists::default();
        for (index, pages) in pages.iter().enumerate() {
            old.started[index] = pages >> list_order(index).0;
            if old.started[index] > 0 {
                old.lists |= 1 << index & counted;
            }
        }
        old
    }

    /// Notes that pages moved: into the list `refilled`, so many, which was empty; or to the zone.
    pub fn note(&mut self, pageset: &CorePageset<'_>, refilled: Option<(usize, u64)>) {
        if let Some((list, pages)) = refilled {
            self.refilled[list] += pages >> list_order(list).0;
            self.lists &= !(1 << list);
        }
        for index in 0..LISTS {
            if self.lists >> index & 1 == 1 {
                let counts = pageset.list_counts(index);
                let came = self.started[index] + self.refilled[index] + counts.pushes;
                let drained = came.saturating_sub(counts.pops + u64::from(counts.count));
                if counts.count == 0 || drained >= self.started[index] {
                    self.lists &= !(1 << index);
                }
            }
        }
    }
}
