//! What is in the pagesets at the start: the guess, and the bounds.

use nearpage::rules::pagesets::{LISTS, list_index, list_order};
use nearpage::{Migratetype, Order, PageCount};

/// A run's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guess {
    /// What is likely.
    Likely,
    /// All pages are single and movable: A.
    AllMovable,
    /// All pages are single and unmovable: B.
    AllUnmovable,
    /// Each list holds what is asked of it later, as far as the pages go: the fewest refills. A and B do not bound those:
    /// huge pages that lie in a pageset are in neither.
    AllAsked,
}

/// What a CPU took of each list of a pageset during the window, at most, beyond what it had given back by then: pages.
pub type Demand = [u64; LISTS];

/// What is known of a pageset at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clues {
    /// Pages in it, as recorded.
    pub count: PageCount,
    /// What was asked of its lists later.
    pub demand: Demand,
    /// Pages of each list, as far as the blocks that were allocated tell.
    pub likely: [u64; LISTS],
}

impl Guess {
    /// The runs of a replay; the first one is the prediction.
    pub const ALL: [Guess; 4] =
        [Guess::Likely, Guess::AllMovable, Guess::AllUnmovable, Guess::AllAsked];

    /// How many pages of each list the pageset holds.
    pub fn pages(self, clues: &Clues) -> [u64; LISTS] {
        let mut pages = [0; LISTS];
        match self {
            Guess::Likely => return likely(clues),
            Guess::AllAsked => return asked(clues),
            Guess::AllMovable => pages[single(Migratetype::Movable)] = clues.count.0,
            Guess::AllUnmovable => pages[single(Migratetype::Unmovable)] = clues.count.0,
        }
        pages
    }
}

fn single(migratetype: Migratetype) -> usize {
    list_index(Order(0), migratetype).expect("pagesets keep single pages")
}

/// The lists that ask for least first, so that most of them have all they ask for.
fn asked(clues: &Clues) -> [u64; LISTS] {
    let mut by_demand: Vec<usize> = (0..LISTS).collect();
    by_demand.sort_by_key(|&index| clues.demand[index]);
    let mut left = clues.count.0;
    let mut pages = [0; LISTS];
    for index in by_demand {
        let order = list_order(index);
        pages[index] = clues.demand[index].min(left) >> order.0 << order.0;
        left -= pages[index];
    }
    pages[single(Migratetype::Unmovable)] += left;
    pages
}

/// What is likely, as far as the pageset has so many pages: in a part of the recorded zone it has fewer.
fn likely(clues: &Clues) -> [u64; LISTS] {
    let mut left = clues.count.0;
    let mut pages = [0; LISTS];
    for (index, slot) in pages.iter_mut().enumerate() {
        let order = list_order(index);
        *slot = clues.likely[index].min(left) >> order.0 << order.0;
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
        let huge = LISTS - 1;
        let mut clues = Clues {
            count: PageCount(2000),
            demand: [0; LISTS],
            likely: [0; LISTS],
        };
        (clues.demand[movable], clues.demand[huge]) = (1500, 1024);
        clues.likely[movable] = 700;
        let starts = Guess::ALL.map(|guess| guess.pages(&clues));
        assert!(starts.iter().all(|pages| pages.iter().sum::<u64>() == 2000));
        // What the frames tell; all; none; what the huge pages, which ask for less, leave.
        assert_eq!(starts.map(|pages| pages[movable]), [700, 2000, 0, 976]);
        assert_eq!(starts.map(|pages| pages[huge]), [0, 0, 0, 1024]);
    }
}
