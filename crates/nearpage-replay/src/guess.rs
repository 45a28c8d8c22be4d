//! What is in the pagesets at the start: what is likely, and what is drawn.

use nearpage::rules::pagesets::{LISTS, list_index, list_order};
use nearpage::{CpuId, Migratetype, Order, PageCount};

use crate::drawn::Draw;
use crate::findings::Content;

/// A run's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guess {
    /// What is likely.
    Likely,
    /// One of those that the trace leaves open.
    Drawn(Draw),
}

/// What is known of a pageset at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clues {
    /// Pages in it, as recorded.
    pub count: PageCount,
    /// What the blocks that were allocated tell.
    pub content: Content,
    /// Whose it is, and the position of its zone.
    pub of: (CpuId, usize),
}

impl Guess {
    /// What is drawn for the run, if something is.
    pub fn draw(self) -> Option<Draw> {
        if let Guess::Drawn(draw) = self { Some(draw) } else { None }
    }

    /// How many pages of each list the pageset holds.
    pub fn pages(self, clues: &Clues) -> [u64; LISTS] {
        let pages = match self {
            Guess::Likely => clues.content.pages,
            Guess::Drawn(draw) => draw.pages(clues.of.0, clues.of.1, &clues.content),
        };
        within(clues.count, pages)
    }
}

fn single(migratetype: Migratetype) -> usize {
    list_index(Order(0), migratetype).expect("pagesets keep single pages")
}

/// As much of some lists as a pageset of `count` pages has room for: in a part of the recorded zone it has fewer.
fn within(count: PageCount, lists: [u64; LISTS]) -> [u64; LISTS] {
    let mut left = count.0;
    let mut pages = [0; LISTS];
    for (index, slot) in pages.iter_mut().enumerate() {
        let order = list_order(index);
        *slot = lists[index].min(left) >> order.0 << order.0;
        left -= *slot;
    }
    pages[single(Migratetype::Unmovable)] += left;
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_all_pages() {
        let movable = single(Migratetype::Movable);
        let mut clues =
            Clues { count: PageCount(2000), content: Content::default(), of: (CpuId(0), 0) };
        (clues.content.pages[movable], clues.content.open[movable]) = (700, [700, 700]);
        let starts = [Guess::Likely, Guess::Drawn(Draw::new(1))].map(|guess| guess.pages(&clues));
        assert!(starts.iter().all(|pages| pages.iter().sum::<u64>() == 2000));
        assert_eq!(starts.map(|pages| pages[movable]), [700, 700]);
    }
}
