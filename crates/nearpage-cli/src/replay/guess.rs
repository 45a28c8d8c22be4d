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

impl Guess {
    /// The runs of a replay; the first one is the prediction.
    pub const ALL: [Guess; 3] = [Guess::Likely, Guess::AllMovable, Guess::AllUnmovable];

    /// How many pages of each list a pageset of `count` pages holds.
    pub fn pages(self, count: PageCount, batch: PageCount, demand: &Demand) -> [u64; LISTS] {
        let mut pages = [0; LISTS];
        match self {
            Guess::Likely => return likely(count, batch, demand),
            Guess::AllMovable => pages[single(Migratetype::Movable)] = count.0,
            Guess::AllUnmovable => pages[single(Migratetype::Unmovable)] = count.0,
        }
        pages
    }
}

fn single(migratetype: Migratetype) -> usize {
    list_index(Order(0), migratetype).expect("pagesets keep single pages")
}

/// A batch of each list that is used, as far as it is used; the others are pages that nobody asks for. A CPU's
/// pageset is filled by what ended there, such as processes that exit, and lists that are asked for are soon down to
/// what their last refill left.
fn likely(count: PageCount, batch: PageCount, demand: &Demand) -> [u64; LISTS] {
    let mut pages = [0; LISTS];
    let mut left = count.0;
    for (index, &used) in demand.iter().enumerate() {
        let order = list_order(index);
        let share = used.min(batch.0).min(left) >> order.0 << order.0;
        pages[index] = share;
        left -= share;
    }
    pages[single(Migratetype::Unmovable)] += left;
    pages
}
