//! Counting comparisons: by what was compared, with what a recording cannot answer under its reason.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

/// Differences that are shown in full.
const SHOWN: usize = 12;

/// What the replays of one kind of experiment found.
#[derive(Default)]
pub struct Tally {
    /// Recordings that have this kind.
    pub recordings: u64,
    compared: BTreeMap<&'static str, Score>,
    unanswered: BTreeMap<String, u64>,
    differences: Vec<String>,
    place: String,
}

#[derive(Clone, Copy, Default)]
struct Score {
    equal: u64,
    all: u64,
}

impl Tally {
    /// Says what is compared from here on, for the messages of differences.
    pub fn at(&mut self, place: impl Into<String>) {
        self.place = place.into();
    }

    /// Compares what the kernel answered with what the core did.
    pub fn compare<T: PartialEq + Debug>(&mut self, what: &'static str, kernel: T, core: T) {
        let score = self.compared.entry(what).or_default();
        score.all += 1;
        if kernel == core {
            score.equal += 1;
        } else {
            let place = &self.place;
            self.differences
                .push(format!("{place}: {what}\n    kernel {kernel:?}\n    core   {core:?}"));
        }
    }

    /// Compares two numbers that may differ by `bound`.
    pub fn compare_within(&mut self, what: &'static str, kernel: u64, core: u64, bound: u64) {
        let core = if kernel.abs_diff(core) <= bound { kernel } else { core };
        self.compare(what, kernel, core);
    }

    /// Counts what the recording cannot answer.
    pub fn unanswered(&mut self, reason: impl Into<String>) {
        *self.unanswered.entry(reason.into()).or_default() += 1;
    }

    /// Something in a recording that nobody could read: a difference.
    pub fn unreadable(&mut self, error: &str) {
        self.compared.entry("read").or_default().all += 1;
        self.differences.push(format!("{}: {error}", self.place));
    }

    /// Takes over what another one counted.
    pub fn add(&mut self, other: Tally) {
        self.recordings += other.recordings;
        for (what, Score { equal, all }) in other.compared {
            let score = self.compared.entry(what).or_default();
            (score.equal, score.all) = (score.equal + equal, score.all + all);
        }
        for (reason, times) in other.unanswered {
            *self.unanswered.entry(reason).or_default() += times;
        }
        self.differences.extend(other.differences);
    }

    /// Comparisons so far.
    pub fn comparisons(&self) -> u64 {
        self.compared.values().map(|score| score.all).sum()
    }

    /// Comparisons that came out different.
    pub fn differences(&self) -> usize {
        self.differences.len()
    }

    /// The first differences, in words.
    pub fn first_differences(&self) -> String {
        self.differences[..self.differences.len().min(SHOWN)].join("\n  ")
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recordings, compared, unanswered, .. } = self;
        let all = self.comparisons();
        write!(f, "{all} comparisons in {recordings} recordings")?;
        for (what, Score { equal, all }) in compared {
            write!(f, "\n    {equal:>7} of {all:>7}  {what}")?;
        }
        for (reason, times) in unanswered {
            write!(f, "\n    {times:>7} without an answer: {reason}")?;
        }
        Ok(())
    }
}
