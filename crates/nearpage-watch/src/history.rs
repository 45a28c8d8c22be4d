//! Since when something is wrong, and what began and ended.

use std::collections::VecDeque;

use crate::marks::Mark;

/// Changes that are remembered.
const CHANGES_MOST: usize = 1000;
/// What was not true for less than this is taken to have gone on: a zone at its mark crosses it each second.
const LULL_MS: u64 = 3000;

/// Marks over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    open: Vec<Open>,
    changes: VecDeque<Change>,
    last_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Open {
    mark: Mark,
    since_ms: u64,
    seen_ms: u64,
}

/// A mark began to be true, or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The mark, with its first reason, or the last.
    pub mark: Mark,
    /// How long it was true, if it ended.
    pub lasted_ms: Option<u64>,
}

fn is_same(one: &Mark, other: &Mark) -> bool {
    (one.word, one.node, &one.zone) == (other.word, other.node, &other.zone)
}

impl History {
    /// Takes the marks of a moment. A moment before the last one, as after a seek, begins a new history.
    pub fn follow(&mut self, time_ms: u64, marks: &[Mark]) {
        if time_ms < self.last_ms {
            *self = History::default();
        }
        self.last_ms = time_ms;
        for mark in marks {
            match self.open.iter_mut().find(|open| is_same(&open.mark, mark)) {
                Some(open) => (open.mark, open.seen_ms) = (mark.clone(), time_ms),
                None => {
                    self.open.push(Open {
                        mark: mark.clone(),
                        since_ms: time_ms,
                        seen_ms: time_ms,
                    });
                    self.remember(Change { time_ms, mark: mark.clone(), lasted_ms: None });
                }
            }
        }
        let (open, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| time_ms.saturating_sub(open.seen_ms) <= LULL_MS);
        self.open = open;
        for Open { mark, since_ms, seen_ms } in ended {
            let lasted_ms = Some(seen_ms.saturating_sub(since_ms));
            self.remember(Change { time_ms: seen_ms, mark, lasted_ms });
        }
    }

    fn remember(&mut self, change: Change) {
        if self.changes.len() == CHANGES_MOST {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// How long a mark has been true.
    pub fn age_ms(&self, mark: &Mark) -> u64 {
        let open = self.open.iter().find(|open| is_same(&open.mark, mark));
        open.map_or(0, |open| self.last_ms.saturating_sub(open.since_ms))
    }

    /// The last thousand changes, oldest first.
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.changes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(word: &'static str, reason: &str) -> Mark {
        Mark { word, node: Some(1), zone: None, reason: reason.into() }
    }

    #[test]
    fn marks_have_an_age_and_an_end() {
        let mut history = History::default();
        history.follow(1000, &[mark("spilled", "first")]);
        history.follow(2000, &[mark("spilled", "second")]);
        // A second without it is a lull.
        history.follow(3000, &[]);
        history.follow(41_000, &[mark("spilled", "third"), mark("boosted", "x")]);
        assert_eq!(history.age_ms(&mark("spilled", "any")), 40_000);
        assert_eq!(history.age_ms(&mark("boosted", "any")), 0);
        history.follow(50_000, &[]);
        let told: Vec<_> = history
            .changes()
            .map(|change| (change.time_ms, change.mark.word, change.lasted_ms))
            .collect();
        assert_eq!(
            told,
            [
                (1000, "spilled", None),
                (41_000, "boosted", None),
                (41_000, "spilled", Some(40_000)),
                (41_000, "boosted", Some(0))
            ]
        );
        assert_eq!(history.age_ms(&mark("spilled", "any")), 0);
        history.follow(40_000, &[]);
        assert_eq!(history, History { last_ms: 40_000, ..History::default() });
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut history = History::default();
        for turn in 0..5000 {
            history.follow(turn * 10_000, &[mark("stalled", "")]);
            history.follow(turn * 10_000 + 5000, &[]);
        }
        assert_eq!(history.changes().count(), CHANGES_MOST);
    }
}
