//! The zone's counter of free pages as the kernel's watermark checks read it: each CPU adds up its own
//! changes, and passes them on when they are more than a threshold (`mm/vmstat.c: __mod_zone_page_state`).
//! The core counts exactly, so a counter that shows less is the same as marks that are higher.
//!
//! What was left to pass on at the start is not recorded. The CPU under test passes its changes on when the module resets
//! its pageset, so it has little; what the others have stays: with 24 CPUs it may be more than 1000 pages, either way.

use nearpage::{Marks, PageCount};

/// By how much the counter differs from what is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// Changes that the CPU under test has not passed on: pages freed, or less than 0.
    own: i64,
    /// Those of all other CPUs, which do nothing meanwhile.
    others: i64,
    /// The most that a CPU keeps.
    threshold: i64,
    /// Whether a refill is passed on as one change, as before the free lists counted themselves (6.10);
    /// drains were always counted block by block.
    refills_at_once: bool,
}

impl Counter {
    /// The counter at a start where nothing is left to pass on.
    pub fn new(threshold: u64, refills_at_once: bool) -> Self {
        Self { threshold: threshold as i64, refills_at_once, ..Self::default() }
    }

    /// What this CPU may have left to pass on at the start, least first.
    pub fn starts(self) -> impl Iterator<Item = Self> {
        let both_ways = (0..=self.threshold).flat_map(|own| [own, -own]).skip(1);
        both_ways.map(move |own| Self { own, ..self })
    }

    /// The counter with so many pages that the other CPUs have left to pass on.
    pub fn with_others(self, others: i64) -> Self {
        Self { others, ..self }
    }

    /// The most that `cpus` other CPUs have left to pass on.
    pub const fn most_of_others(self, cpus: usize) -> i64 {
        self.threshold * cpus as i64
    }

    /// Pages that were taken from the zone one by one.
    pub fn refill(&mut self, pages: u64) {
        if self.refills_at_once {
            self.change(-(pages as i64));
        } else {
            (0..pages).for_each(|_| self.change(-1));
        }
    }

    /// Pages that went back one by one.
    pub fn drain(&mut self, pages: u64) {
        (0..pages).for_each(|_| self.change(1));
    }

    fn change(&mut self, pages: i64) {
        self.own += pages;
        if self.own.abs() > self.threshold {
            self.own = 0;
        }
    }

    /// The marks that an exact count would have to be compared with.
    pub fn marks(self, marks: Marks) -> Marks {
        let lag = self.own + self.others;
        let raise = |mark: PageCount| PageCount(mark.0.saturating_add_signed(lag));
        let Marks { min, low, high, promo } = marks;
        Marks { min: raise(min), low: raise(low), high: raise(high), promo: raise(promo) }
    }
}

/// By how much more or less the counter might have been off, for all that was checked to come out the same.
#[derive(Clone, Copy, Debug)]
pub struct Leeway {
    less: i64,
    more: i64,
}

impl Leeway {
    /// Nothing was checked.
    pub const ALL: Self = Self { less: i64::MAX, more: i64::MAX };

    /// Notes a check of so many free pages against marks, whichever of them it takes.
    pub fn check(&mut self, free: u64, marks: Marks, reserve: PageCount) {
        for mark in [marks.min, marks.low, marks.high] {
            let above = free.cast_signed() - (mark.0 + reserve.0).cast_signed();
            if above > 0 {
                self.more = self.more.min(above - 1);
            } else {
                self.less = self.less.min(-above);
            }
        }
    }
}

/// A search for what the other CPUs have left to pass on: values that would do the same as one that was tried are
/// left out.
pub struct Search {
    most: i64,
    tried: std::ops::Range<i64>,
}

impl Search {
    /// From nothing to the `most`, both ways.
    pub fn up_to(most: i64) -> Self {
        Self { most, tried: 0..0 }
    }

    /// The next value to try, least first.
    pub fn next(&self) -> Option<i64> {
        let (less, more) = (self.tried.start.saturating_sub(1), self.tried.end);
        let is_more_near = more <= less.saturating_neg();
        let next = if self.tried.is_empty() || is_more_near { [more, less] } else { [less, more] };
        next.into_iter().find(|value| (-self.most..=self.most).contains(value))
    }

    /// Notes that a value did not do, nor would others as far as there is leeway.
    pub fn failed(&mut self, value: i64, leeway: Leeway) {
        let tried =
            value.saturating_sub(leeway.less)..value.saturating_add(leeway.more).saturating_add(1);
        self.tried = match self.tried.is_empty() {
            true => tried,
            false => self.tried.start.min(tried.start)..self.tried.end.max(tried.end),
        };
    }
}

mod tests {
    use super::*;

    #[test]
    fn a_search_skips_what_would_do_the_same() {
        let pages = PageCount;
        let marks = Marks { min: pages(10), low: pages(20), high: pages(30), promo: pages(30) };
        let mut leeway = Leeway::ALL;
        leeway.check(25, marks, pages(1));
        // Above 11 and 21, not above 31.
        assert_eq!((leeway.less, leeway.more), (6, 3));
        leeway.check(34, marks, pages(1));
        assert_eq!((leeway.less, leeway.more), (6, 2));
        let mut search = Search::up_to(9);
        let mut tried = Vec::new();
        while let Some(value) = search.next() {
            tried.push(value);
            search.failed(value, leeway);
        }
        assert_eq!(tried, [0, 3, 6, -7, 9]);
        assert_eq!(Search::up_to(0).next(), Some(0));
    }
}
