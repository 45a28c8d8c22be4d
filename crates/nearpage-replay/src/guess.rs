//! What is in the pagesets at the start: the guess, and the bounds.

use nearpage::rules::pagesets::{LISTS, list_index, list_order};
use nearpage::{CpuId, Migratetype, Order, PageCount};

use crate::drawn::Draw;
use crate::findings::Content;

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
    /// One of those that the trace leaves open.
    Drawn(Draw),
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
    /// What the blocks that were allocated tell.
    pub content: Content,
    /// Whose it is, and the position of its zone.
    pub of: (CpuId, usize),
}

impl Guess {
    /// The runs of a replay that are always made; the first one is the prediction.
    pub const ALL: [Guess; 4] =
        [Guess::Likely, Guess::AllMovable, Guess::AllUnmovable, Guess::AllAsked];

    /// What is drawn for the run, if something is.
    pub fn draw(self) -> Option<Draw> {
        if let Guess::Drawn(draw) = self { Some(draw) } else { None }
    }

    /// How many pages of each list the pageset holds.
    pub fn pages(self, clues: &Clues) -> [u64; LISTS] {
        let mut pages = [0; LISTS];
        match self {
            Guess::Likely => return within(clues.count, clues.content.pages),
            Guess::Drawn(draw) => {
                let (cpu, zone) = clues.of;
                return within(clues.count, draw.pages(cpu, zone, &clues.content));
            }
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
        let huge = LISTS - 1;
        let mut clues = Clues {
            count: PageCount(2000),
            demand: [0; LISTS],
            content: Content::default(),
            of: (CpuId(0), 0),
        };
        (clues.demand[movable], clues.demand[huge]) = (1500, 1024);
        clues.content.pages[movable] = 700;
        let starts = Guess::ALL.map(|guess| guess.pages(&clues));
        assert!(starts.iter().all(|pages| pages.iter().sum::<u64>() == 2000));
        // What the frames tell; all; none; what the huge pages, which ask for less, leave.
        assert_eq!(starts.map(|pages| pages[movable]), [700, 2000, 0, 976]);
        assert_eq!(starts.map(|pages| pages[huge]), [0, 0, 0, 1024]);
    }
}
