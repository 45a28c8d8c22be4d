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
//! - Let `f` be the least `n` with levels in `R(n)`. After `kept / moved` holds more, rounded up, each level can be reached
//!   from any: `R(n)` is all of 0 to `kept` from there on.
//!
//! So the intervals from `f` to `f + kept / moved` say everything, and a step changes each in constant time: a trace of `s`
//! steps takes time of `s * (kept / moved + 2)`.

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

/// An interval of levels; empty if `lo` is above `hi`.
#[derive(Clone, Copy, Debug)]
struct Levels {
    lo: i64,
    hi: i64,
}

impl Levels {
    fn widened(self, by: i64) -> Levels {
        Levels { lo: self.lo.saturating_sub(by), hi: self.hi.saturating_add(by) }
    }

    fn hull(self, other: Levels) -> Levels {
        Levels { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    fn within(self, kept: i64) -> Option<Levels> {
        let cut = Levels { lo: self.lo.max(0), hi: self.hi.min(kept) };
        (cut.lo <= cut.hi).then_some(cut)
    }
}

/// The fewest holds for the steps so far, step by step; see the module.
#[derive(Clone, Debug)]
pub struct FewestHolds {
    kept: i64,
    moved: i64,
    fewest: u64,
    /// R(fewest), R(fewest + 1) and so on; beyond them the store can have any level.
    reached: Vec<Levels>,
    /// What becomes of `reached` in a step.
    next: Vec<Levels>,
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
        let bounded = |pages: u64| i64::try_from(pages).unwrap_or(i64::MAX).min(i64::MAX / 4);
        let (kept, moved) = (bounded(limits.kept), bounded(limits.moved));
        let mut holds =
            FewestHolds { kept, moved, fewest: 0, reached: Vec::new(), next: Vec::new() };
        if let Some(start) = start.map(bounded) {
            let at = start.min(kept);
            holds.reached.extend(holds.around(Levels { lo: at, hi: at }));
            holds.step(Step::Pages(start - at));
        }
        holds
    }

    /// The intervals around `at` that one hold more reaches each, as far as they are not all levels.
    fn around(&self, at: Levels) -> Vec<Levels> {
        let mut intervals = Vec::new();
        let mut levels = at;
        while levels.lo > 0 || levels.hi < self.kept {
            intervals.push(levels);
            let wider = levels.widened(self.moved);
            levels = Levels { lo: wider.lo.max(0), hi: wider.hi.min(self.kept) };
        }
        intervals
    }

    /// The next step.
    pub fn step(&mut self, step: Step) {
        let Step::Pages(pages) = step else {
            self.reached.clear();
            return;
        };
        let all = Levels { lo: 0, hi: self.kept };
        let shifted = |levels: Levels| Levels {
            lo: levels.lo.saturating_add(pages),
            hi: levels.hi.saturating_add(pages),
        };
        // Of the entry before: the levels after the step, before those that the store may not have are cut off.
        let mut uncut: Option<Levels> = None;
        self.next.clear();
        for at in 0.. {
            let after = shifted(self.reached.get(at).copied().unwrap_or(all));
            let levels = uncut.map_or(after, |before| after.hull(before.widened(self.moved)));
            uncut = Some(levels);
            match levels.within(self.kept) {
                None => self.fewest += 1,
                Some(cut) if cut.lo == 0 && cut.hi == self.kept => break,
                Some(cut) => self.next.push(cut),
            }
        }
        std::mem::swap(&mut self.reached, &mut self.next);
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
                // What the time of a step is proportional to.
                let most = limits.kept.div_ceil(limits.moved) as usize;
                assert!(holds.reached.len() <= most, "NEARPAGE_SEED={seed}");
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
