//! What is not understood, with the nearest word that would be.

use nearpage_machine::idlist::excerpt;

use super::names::{ENV, NUMA, PREFIX, RSEQ, STATS};
use crate::warning::VariableWarning;

/// How alike two words must be, from 0 to 1, for one to be taken for a slip of the other.
const LIKENESS_MIN: f64 = 0.7;

/// A variable that nothing reads.
pub(super) fn unknown_variable(name: &str) -> VariableWarning {
    // Compared without the prefix, which makes any two of them alike.
    let rest = name.trim_start_matches(PREFIX);
    let known = [ENV, NUMA, RSEQ, STATS].map(|known| (known.trim_start_matches(PREFIX), known));
    VariableWarning {
        variable: excerpt(name),
        found: None,
        nearest: nearest(rest, known),
        expected: "NEARPAGE_ENV, NEARPAGE_NUMA, NEARPAGE_RSEQ or NEARPAGE_STATS",
    }
}

/// A value, or an item of it, that means nothing.
pub(super) fn misread_value(
    variable: &str,
    found: &str,
    expected: &'static str,
) -> VariableWarning {
    let found = Some(excerpt(found));
    VariableWarning { variable: variable.into(), found, nearest: None, expected }
}

/// A value that is none of some words.
pub(super) fn misread_word<const N: usize>(
    variable: &str,
    found: &str,
    known: [&'static str; N],
    expected: &'static str,
) -> VariableWarning {
    let nearest = nearest(found, known.map(|word| (word, word)));
    VariableWarning { nearest, ..misread_value(variable, found, expected) }
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
