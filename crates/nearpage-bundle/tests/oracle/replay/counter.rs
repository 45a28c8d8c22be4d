//! The zone's counter of free pages as the kernel's watermark checks read it: each CPU adds up its own
//! changes, and passes them on when they are more than a threshold (`mm/vmstat.c: __mod_zone_page_state`).
//! The core counts exactly, so a counter that shows less is the same as marks that are higher.

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

    /// What this CPU, and another one if there are several, may have left to pass on at the start, least
    /// first.
    pub fn starts(self, cpus: usize) -> impl Iterator<Item = Self> {
        let both_ways = |most: i64| (0..=most).flat_map(|n| [n, -n]).skip(1);
        let others = both_ways(if cpus > 1 { self.threshold } else { 0 });
        others.flat_map(move |others| {
            both_ways(self.threshold).map(move |own| Self { own, others, ..self })
        })
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
