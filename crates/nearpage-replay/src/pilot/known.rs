//! What is known so far of what a pageset held at the start.

use nearpage::rules::pagesets::{LISTS, list_index, list_order};
use nearpage::{Migratetype, Order};

use crate::findings::Content;
use crate::first_seen::{ListKey, Sequence};
use crate::signs::Signs;
use crate::start::StartPageset;

/// What is known of a pageset.
#[derive(Debug)]
pub struct Known {
    /// Pages of each list at the start, as far as is known by now.
    pub pages: [u64; LISTS],
    /// What its lists gave.
    pub lists: [Seen; LISTS],
    /// The list of single pages that the rest lies in.
    pub rest: usize,
}

/// What a list gave so far of what it held at the start.
#[derive(Debug, Default)]
pub struct Seen {
    frames: Vec<u64>,
    signs: Signs,
    /// The block that proves a refill, and the place before which it comes.
    proof: Option<(usize, u64)>,
    /// First-time blocks so far.
    pub next: usize,
    /// It held at least so many blocks.
    pub least: usize,
    /// It held at most so many, if a refill is likely at all.
    most: Option<usize>,
    /// As many as that if nothing tells.
    pub usual: usize,
    /// What pageset's count allows.
    held: usize,
    /// Whether what was there at the start is used up.
    pub is_ended: bool,
    /// A refill rather begins at this place than before it.
    awaited: usize,
    /// Whether a refill is plain to see there.
    is_plain: bool,
    /// First-time blocks in all.
    length: usize,
}

/// What the next block of a list tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The list is not used up. The block came back to it before, or was there at the start.
    Old,
    /// It comes from a refill: what was there at the start is used up.
    Refilled,
}

/// A refill is believed without a reason why there should be one that is so much likelier (the logarithm).
const STRONG: f64 = 6.0;
/// A refill that there should be is believed to begin where it is so much likelier.
const WEAK: f64 = 2.0;
/// Of two places that are alike within this, the first.
const ALIKE: f64 = 3.0;

impl Known {
    /// What the sequences of a pageset's lists tell before the trace is gone through. The lists hold what they surely
    /// held, then what is usual, then all that they give for the first time, as far as the pages go.
    pub fn new<'s>(
        sequences: impl Iterator<Item = &'s (ListKey, Sequence)>,
        pageset: &StartPageset,
    ) -> Known {
        let mut known = Known { pages: [0; LISTS], lists: Default::default(), rest: 0 };
        let mut wanted = Vec::new();
        for ((.., list), sequence) in sequences {
            let order = list_order(*list);
            known.lists[*list] = Seen::new(sequence, order, pageset);
            let length = sequence.proof().map_or(sequence.length, |(place, _)| place as u64);
            wanted.push((length << order.0, *list));
        }
        // Lists that ask for least come first, so that most of them have all.
        wanted.sort_unstable();
        let mut left = pageset.count.0;
        let shares: [fn(&Seen) -> usize; 3] =
            [|seen| seen.least, |seen| seen.usual, |_| usize::MAX];
        for share in shares {
            for &(pages, list) in &wanted {
                let order = list_order(list).0;
                let share = (share(&known.lists[list]) as u64).min(pages >> order) << order;
                let more = share.saturating_sub(known.pages[list]).min(left) >> order << order;
                known.pages[list] += more;
                left -= more;
            }
        }
        known.rest = known.place_of_rest();
        known.pages[known.rest] += left;
        known
    }

    /// A list of single pages that is not used up: what is asked for least first.
    fn place_of_rest(&self) -> usize {
        let types = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
        let single = |of| list_index(Order(0), of).expect("pagesets keep single pages");
        let lists = types.map(single);
        let found = lists.into_iter().find(|&list| !self.lists[list].is_ended);
        found.unwrap_or(lists[2])
    }

    /// The list that can spare most single pages for another: of those in `counts`, that are there now, those that it is
    /// not known to need.
    pub fn donor(&self, list: usize, counts: &[u64; LISTS]) -> Option<(usize, u64)> {
        let spare = |of: usize| {
            let seen = &self.lists[of];
            let needed = match of == self.rest {
                true => 0,
                false => seen.least.max(seen.usual).saturating_sub(seen.next) as u64,
            };
            counts[of].saturating_sub(needed).min(self.pages[of])
        };
        let singles = (0..LISTS).filter(|&of| of != list && list_order(of) == Order(0));
        singles.map(|of| (of, spare(of))).max_by_key(|(_, spare)| *spare)
    }

    /// Notes that a list is used up, of which `left` blocks are left in the run. They join the rest, in the list that is
    /// returned.
    pub fn end(&mut self, list: usize, left: u64) -> usize {
        self.lists[list].is_ended = true;
        if list == self.rest {
            self.rest = self.place_of_rest();
        }
        if list != self.rest {
            let order = list_order(list).0;
            let used = (self.lists[list].next as u64) << order;
            let old = (left << order).min(self.pages[list].saturating_sub(used));
            self.pages[list] -= old;
            self.pages[self.rest] += old;
        }
        self.rest
    }
}

impl Known {
    /// What it comes to, once the trace was gone through.
    pub fn content(&self) -> Content {
        let open = std::array::from_fn(|list| {
            let (seen, order) = (&self.lists[list], list_order(list).0);
            let [least, most] = seen.open();
            // What drains took is there in any case.
            let drained = self.pages[list].saturating_sub((seen.next as u64) << order);
            [least, most].map(|blocks| (blocks << order) + drained)
        });
        Content { pages: self.pages, open, rest: self.rest }
    }
}

impl Seen {
    /// How many first-time blocks may have been there at the start, at least and at most.
    fn open(&self) -> [u64; 2] {
        let [least, most] = match (self.is_plain, self.most) {
            (true, _) => [self.next; 2],
            (false, Some(most)) => [self.least, most.min(self.length)],
            (false, None) => [self.least, self.next],
        };
        [least.min(self.next) as u64, most.max(self.next) as u64]
    }

    fn new(sequence: &Sequence, order: Order, pageset: &StartPageset) -> Seen {
        let batch = pageset.sizes.batch.0 as usize;
        let held = (pageset.count.0 >> order.0) as usize;
        let proof = sequence.proof();
        let proven = proof.map_or(usize::MAX, |(place, _)| place);
        let old = sequence.old_at_least(proven.min(held));
        let least = old.unwrap_or(0);
        // What one refill leaves, at most.
        let hold = match order {
            Order(0) => batch << 5,
            _ => (batch >> order.0).max(2),
        };
        let length = sequence.length as usize;
        let is_untold = old.is_none() && order == Order(0);
        let is_refilled =
            proof.is_some() || is_untold || length > held || length > least.saturating_add(hold);
        let most = is_refilled.then(|| (least + hold).min(proven).min(held));
        let usual = match order {
            _ if old.is_some() => least,
            _ if proven <= hold => proven,
            Order(0) => batch,
            Order::PAGEBLOCK => 0,
            _ => hold.div_ceil(2),
        };
        let (frames, signs) = (sequence.frames.clone(), Signs::new(sequence, order));
        Seen { frames, signs, proof, least, most, usual, held, length, ..Seen::default() }
    }

    /// A block is taken from the list; `free` tells the blocks of each order that a refill would take from.
    pub fn note(
        &mut self,
        frame: u64,
        order: Order,
        free: impl FnOnce() -> [u64; Order::COUNT],
    ) -> Next {
        if self.is_ended {
            return Next::Old;
        }
        if self.proof == Some((self.next, frame)) {
            return Next::Refilled;
        }
        if self.frames.get(self.next) == Some(&frame) {
            if self.is_refilled(order, free) {
                return Next::Refilled;
            }
            self.next += 1;
        }
        Next::Old
    }

    /// Whether the next first-time block is the first of a refill.
    fn is_refilled(&mut self, order: Order, free: impl FnOnce() -> [u64; Order::COUNT]) -> bool {
        let place = self.next;
        if place < self.least {
            return false;
        }
        if place >= self.held || self.most.is_some_and(|most| place >= most) {
            return true;
        }
        if order == Order::PAGEBLOCK {
            // Free blocks of that size lie anywhere, so they have no signs.
            return self.most.is_some() && place >= self.usual;
        }
        if self.most.is_some() && place >= self.usual && self.signs.is_after_cut(place) {
            return true;
        }
        if place < self.awaited {
            return false;
        }
        let free = free();
        let value = self.signs.refill_at(place, &free);
        self.is_plain = value.is_some_and(|value| value > STRONG);
        let Some(most) = self.most else { return self.is_plain };
        let value = value.unwrap_or(f64::NEG_INFINITY);
        if value <= WEAK && place < self.usual {
            return false;
        }
        match self.signs.best_between(place + 1, most, &free) {
            Some((later, best)) if best > WEAK && value <= best - ALIKE => {
                self.awaited = later;
                false
            }
            _ => value > WEAK || !self.signs.goes_on(place),
        }
    }
}
