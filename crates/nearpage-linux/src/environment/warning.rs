//! What is not understood, with the nearest word that would be.

use std::fmt;

use super::{ENV, NUMA, PREFIX, RSEQ};
use nearpage_machine::idlist::excerpt;

/// How alike two words must be, from 0 to 1, for one to be taken for a slip of the other.
const LIKENESS_MIN: f64 = 0.7;

/// Something in the environment that is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// The variable.
    pub variable: String,
    /// The value, or an item of it; `None` if there is no such variable.
    pub found: Option<String>,
    /// What may have been meant.
    pub nearest: Option<&'static str>,
    /// What would be accepted.
    pub expected: &'static str,
}

impl Warning {
    /// A variable that nothing reads.
    pub(super) fn unknown_variable(name: &str) -> Warning {
        // Compared without the prefix, which makes any two of them alike.
        let rest = name.trim_start_matches(PREFIX);
        let known = [ENV, NUMA, RSEQ].map(|known| (known.trim_start_matches(PREFIX), known));
        Warning {
            variable: excerpt(name),
            found: None,
            nearest: nearest(rest, known),
            expected: "NEARPAGE_ENV, NEARPAGE_NUMA or NEARPAGE_RSEQ",
        }
    }

    /// A value, or an item of it, that means nothing.
    pub(super) fn value(variable: &str, found: &str, expected: &'static str) -> Warning {
        let found = Some(excerpt(found));
        Warning { variable: variable.into(), found, nearest: None, expected }
    }

    /// A value that is none of some words.
    pub(super) fn word<const N: usize>(
        variable: &str,
        found: &str,
        known: [&'static str; N],
        expected: &'static str,
    ) -> Warning {
        let nearest = nearest(found, known.map(|word| (word, word)));
        Warning { nearest, ..Self::value(variable, found, expected) }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}: found {found:?}", self.variable)?,
            None => write!(f, "{}: there is no such variable", self.variable)?,
        }
        if let Some(nearest) = self.nearest {
            write!(f, " (did you mean {nearest}?)")?;
        }
        write!(f, ", expected {}", self.expected)
    }
}

/// Of `known` words and what they stand for: what the word stands for that `found` resembles most.
pub(super) fn nearest(
    found: &str,
    known: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Option<&'static str> {
    let found = found.to_lowercase();
    let rated = known
        .into_iter()
        .map(|(word, meaning)| (strsim::jaro(&found, &word.to_lowercase()), meaning));
    let best = rated.max_by(|left, right| left.0.total_cmp(&right.0));
    best.filter(|(likeness, _)| *likeness > LIKENESS_MIN).map(|(_, meaning)| meaning)
}
