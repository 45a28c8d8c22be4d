//! What is in the pagesets at the start: the guess, and the two bounds.

use nearpage::frame::Migratetype;
use nearpage::pcp::{LISTS, list_index, list_order};
use nearpage::units::{Order, PageCount};

/// A run's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guess {
    /// What is likely.
    Likely,
    /// All pages are single and movable: A.
    AllMovable,
    /// All pages are single and unmovable: B.
    AllUnmovable,
}

/// What a CPU took of each list of a pageset during the window, at most, beyond what it had given back by then: pages.
pub type Demand = [u64; LISTS];

/// What is known of a pageset at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clues {
    /// Pages in it, as recorded.
    pub count: PageCount,
    /// Its batch.
    pub batch: PageCount,
    /// What was asked of its lists later.
    pub demand: Demand,
    /// Pages of each list, where the frames that were allocated tell.
    pub old: [Option<u64>; LISTS],
}

impl Guess {
    /// The runs of a replay; the first one is the prediction.
    pub const ALL: [Guess; 3] = [Guess::Likely, Guess::AllMovable, Guess::AllUnmovable];

    /// How many pages of each list the pageset holds.
    pub fn pages(self, clues: &Clues) -> [u64; LISTS] {
        let mut pages = [0; LISTS];
        match self {
            Guess::Likely => return likely(clues),
            Guess::AllMovable => pages[single(Migratetype::Movable)] = clues.count.0,
            Guess::AllUnmovable => pages[single(Migratetype::Unmovable)] = clues.count.0,
        }
        pages
    }
}

fn single(migratetype: Migratetype) -> usize {
    list_index(Order(0), migratetype).expect("pagesets keep single pages")
}

/// What the frames tell; of the other lists that are used, a batch, as far as it is used: lists that are asked for are
/// soon down to what their last refill left. The rest is unmovable: a CPU's pageset is filled by what is freed there
/// and not asked for again, and unmovable pages are asked for least.
fn likely(clues: &Clues) -> [u64; LISTS] {
    let mut pages = [0; LISTS];
    let mut left = clues.count.0;
    let mut add = |index: usize, wanted: u64| {
        let order = list_order(index);
        let share = wanted.min(left) >> order.0 << order.0;
        pages[index] += share;
        left -= share;
        share
    };
    let told = std::array::from_fn(|index| add(index, clues.old[index].unwrap_or(0)));
    let told: [u64; LISTS] = told;
    for (index, &used) in clues.demand.iter().enumerate() {
        add(index, used.min(clues.batch.0).saturating_sub(told[index]));
    }
    pages[single(Migratetype::Unmovable)] += left;
    pages
}
