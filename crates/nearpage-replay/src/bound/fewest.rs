//! The fewest holds that any rule needs which knows the future.
//!
//! # The relaxation
//!
//! A *store* keeps pages between its users and a zone. After each step of its users it keeps 0 to `kept` pages. A *hold* of
//! the zone's lock moves up to `moved` pages into the store or out of it, and any number of holds may accompany a step:
//!
//! ```text
//! level[i] = level[i - 1] + step[i] + move[i],   0 <= level[i] <= kept,   |move[i]| <= moved * holds[i]
//! ```
//!
//! A step is the pages that were freed into the store, less those that were allocated from it. [`fewest_holds`] is the
//! least sum of `holds`, over all choices of moves. A rule that keeps at most `kept` pages after each of its calls and
//! moves at most `moved` of them in a hold is one such choice, so it cannot need fewer.
//!
//! # Why the answer is exact
//!
//! Let `R(n)` be the levels that a store can have now after at most `n` holds so far.
//!
//! - `R(n - 1)` lies in `R(n)`: nobody has to use a hold.
//! - Each `R(n)` is an interval. It is one at the start. A step moves all of them alike. A level after the step and `n`
//!   holds is one of `R(n)`, moved, or one within `moved` of a level after the step and `n - 1` holds. If there are any of
//!   the second, `R(n - 1)` is not empty, and its moved copy lies in both parts: they overlap. Cutting off what is below 0
//!   or above `kept` leaves an interval.
//! - The fewest holds are the least `n` with levels in `R(n)`.
//!
//! So the two ends of each interval say everything, and each end goes its own way. Of the lower ends `lo(n)`, those that
//! are not 0 fall by `moved` at least from one to the next, since the last hold may have moved so many. A step of `s` pages
//! makes them
//!
//! ```text
//! lo'(n) = max(0, min(lo(n) + s, lo'(n - 1) - moved))
//! ```
//!
//! which is `lo(n) + s` for those that were not 0: one addition moves them all. Those that were 0 stay 0 unless pages are
//! freed; then they follow the last of the others, by `moved` or more each, down to 0. Upper ends do the same, seen from `kept`
//! down, with `-s`. `R(n)` is empty, and the next takes its place, if its lower end is above `kept` or its upper one below 0.
//!
//! A step adds up to `s / moved + 1` ends, and each is taken away once: a trace takes time in proportion to its steps, and to
//! the holds that would move all its pages.

use std::collections::VecDeque;

/// How much a store may keep, and how much a hold may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Pages that it may keep after each step (H).
    pub kept: u64,
    /// Pages that a hold may move (K), 1 at least.
    pub moved: u64,
}

/// What happens to the pages of a store, but for the holds that a rule chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Pages freed into the store, less those allocated from it.
    Pages(i64),
    /// Something outside of the rules emptied or filled it, with holds that are counted elsewhere: it has any level after it.
    Reset,
}

/// Lower ends of intervals, of 0 holds more than the fewest, of 1 and so on, seen from the level 0; beyond those that are
/// here they are 0. Upper ends are kept as lower ones, seen from the highest level down.
#[derive(Clone, Debug, Default)]
struct Ends {
    /// Each less by `moved` at least than the one before it, all above `-offset`.
    ends: VecDeque<i128>,
    /// What is to be added to them.
    offset: i128,
}

impl Ends {
    /// From `first` on, each by `moved` less.
    fn falling(first: i128, moved: i128) -> Ends {
        let mut ends = Ends::default();
        ends.extend(first, moved);
        ends
    }

    fn extend(&mut self, first: i128, moved: i128) {
        let mut end = first;
        while end > 0 {
            self.ends.push_back(end - self.offset);
            end -= moved;
        }
    }

    /// All levels move by `pages`.
    fn shift(&mut self, pages: i128, moved: i128) {
        self.offset += pages;
        if pages > 0 {
            let last = self.ends.back().map(|end| end + self.offset);
            self.extend(last.map_or(pages, |last| pages.min(last - moved)), moved);
        }
        while self.ends.pop_back_if(|end| *end + self.offset <= 0).is_some() {}
    }

    fn first(&self) -> i128 {
        self.ends.front().map_or(0, |end| end + self.offset)
    }
}

/// The fewest holds for the steps so far, step by step; see the module.
#[derive(Clone, Debug)]
pub struct FewestHolds {
    kept: i128,
    moved: i128,
    fewest: u64,
    lower: Ends,
    upper: Ends,
}

impl FewestHolds {
    /// Before the first step. The store starts at level `start`, or, with `None`, at the best one. What a store starts with
    /// beyond what it may keep is a step: holds have to take it away.
    ///
    /// # Panics
    ///
    /// If a hold may move nothing.
    pub fn new(start: Option<u64>, limits: Limits) -> FewestHolds {
        assert!(limits.moved > 0, "a hold moves pages");
        let (kept, moved) = (i128::from(limits.kept), i128::from(limits.moved));
        let (lower, upper) = (Ends::default(), Ends::default());
        let mut holds = FewestHolds { kept, moved, fewest: 0, lower, upper };
        if let Some(start) = start.map(i128::from) {
            let at = start.min(kept);
            holds.lower = Ends::falling(at, moved);
            holds.upper = Ends::falling(kept - at, moved);
            holds.shift(start - at);
        }
        holds
    }

    /// The next step.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Pages(pages) => self.shift(pages.into()),
            Step::Reset => {
                self.lower.ends.clear();
                self.upper.ends.clear();
            }
        }
    }

    fn shift(&mut self, pages: i128) {
        self.lower.shift(pages, self.moved);
        self.upper.shift(-pages, self.moved);
        while self.lower.first() > self.kept || self.upper.first() > self.kept {
            self.fewest += 1;
            self.lower.ends.pop_front();
            self.upper.ends.pop_front();
        }
    }

    /// The fewest holds for the steps so far.
    pub fn holds(&self) -> u64 {
        self.fewest
    }
}

/// The fewest holds for these steps; see the module. The store starts at level `start`, or, with `None`, at the best one.
///
/// ```
/// use nearpage_replay::bound::{Limits, Step, fewest_holds};
///
/// // Ten pages are taken and come back, twice. A store of eight pages lacks two of them each time, and has no room for two
/// // when they come back; each time one hold helps. A store of ten pages needs one hold, before all others.
/// let steps = [-10, 10, -10, 10].map(Step::Pages);
/// assert_eq!(fewest_holds(Some(8), steps, Limits { kept: 8, moved: 4 }), 4);
/// assert_eq!(fewest_holds(Some(8), steps, Limits { kept: 10, moved: 4 }), 1);
/// ```
///
/// # Panics
///
/// If a hold may move nothing.
pub fn fewest_holds(
    start: Option<u64>,
    steps: impl IntoIterator<Item = Step>,
    limits: Limits,
) -> u64 {
    let mut holds = FewestHolds::new(start, limits);
    steps.into_iter().for_each(|step| holds.step(step));
    holds.holds()
}

/// The fewest pages that a store must be allowed to keep so that `holds` are enough, if no more than `most` are needed.
/// More memory never needs more holds, so the search halves.
pub fn least_kept<I: IntoIterator<Item = Step>>(
    steps: impl Fn() -> I,
    moved: u64,
    holds: u64,
    most: u64,
) -> Option<u64> {
    let is_enough = |kept| fewest_holds(None, steps(), Limits { kept, moved }) <= holds;
    if !is_enough(most) {
        return None;
    }
    let (mut too_few, mut enough) = (None, most);
    while enough > too_few.map_or(0, |pages: u64| pages + 1) {
        let middle = too_few.map_or(0, |pages: u64| pages + 1).midpoint(enough);
        match is_enough(middle) {
            true => enough = middle,
            false => too_few = Some(middle),
        }
    }
    Some(enough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::naive::naive;

    fn random_steps(random: &mut fastrand::Rng) -> Vec<Step> {
        let size = [1, 4, 20][random.usize(0..3)];
        let step = |random: &mut fastrand::Rng| match random.u8(0..20) {
            0 => Step::Reset,
            _ => Step::Pages(random.i64(-size..=size)),
        };
        (0..random.usize(0..24)).map(|_| step(random)).collect()
    }

    /// `NEARPAGE_SEED=n` replays one trace.
    #[test]
    fn the_fewest_are_those_of_brute_force() {
        let only = std::env::var("NEARPAGE_SEED").ok().map(|seed| seed.parse().unwrap());
        for seed in only.map_or(0..100_000, |seed: u64| seed..seed + 1) {
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = Limits { kept: random.u64(0..16), moved: random.u64(1..10) };
            let start = random.bool().then(|| random.u64(0..=limits.kept));
            let steps = random_steps(&mut random);
            let mut holds = FewestHolds::new(start, limits);
            for &step in &steps {
                holds.step(step);
                // What is kept between two steps.
                let most = limits.kept.div_ceil(limits.moved) as usize;
                let ends = holds.lower.ends.len().max(holds.upper.ends.len());
                assert!(ends <= most + 1, "NEARPAGE_SEED={seed}");
            }
            let fewest = fewest_holds(start, steps.iter().copied(), limits);
            assert_eq!(fewest, holds.holds());
            assert_eq!(
                fewest,
                naive(start, &steps, limits),
                "NEARPAGE_SEED={seed}: {limits:?}, from {start:?}, {steps:?}"
            );
        }
    }

    #[test]
    fn the_least_memory_is_where_more_holds_begin() {
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (moved, holds) = (random.u64(1..10), random.u64(0..6));
            let steps = random_steps(&mut random);
            let least = least_kept(|| steps.iter().copied(), moved, holds, 40);
            let is_enough = |kept| naive(None, &steps, Limits { kept, moved }) <= holds;
            assert_eq!(least, (0..=40).find(|&kept| is_enough(kept)), "seed {seed}");
        }
    }

    #[test]
    fn extreme_limits_are_answered() {
        let steps = || [-5, i64::MAX, 5, i64::MIN].map(Step::Pages);
        let limits = Limits { kept: u64::MAX, moved: u64::MAX };
        assert!(fewest_holds(None, steps(), limits) <= 16);
        assert_eq!(fewest_holds(None, [], Limits { kept: 0, moved: 1 }), 0);
        assert_eq!(fewest_holds(None, [Step::Pages(-3)], Limits { kept: 0, moved: 1 }), 3);
    }
}
