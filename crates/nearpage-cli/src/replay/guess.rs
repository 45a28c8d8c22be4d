//! What is in the pagesets at the start: the guess, and the two bounds.

use nearpage::frame::Migratetype;
use nearpage::pcp::{LISTS, list_index};
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

impl Guess {
    /// The runs of a replay; the first one is the prediction.
    pub const ALL: [Guess; 3] = [Guess::Likely, Guess::AllMovable, Guess::AllUnmovable];

    /// How many pages of each list a pageset of `count` pages holds.
    pub fn pages(self, count: PageCount) -> [u64; LISTS] {
        let mut pages = [0; LISTS];
        let migratetype = match self {
            Guess::Likely | Guess::AllMovable => Migratetype::Movable,
            Guess::AllUnmovable => Migratetype::Unmovable,
        };
        let list = list_index(Order(0), migratetype).expect("pagesets keep single pages");
        pages[list] = count.0;
        pages
    }
}
