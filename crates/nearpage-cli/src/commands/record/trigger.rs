//! What ends a recording that keeps what happened last: a mark of `nearpage top`.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use nearpage_machine::FolderTree;
use nearpage_watch::{Mark, Sample, Sampler, WORDS, marks};

/// All words.
const ANY: &str = "any";
/// What zoneinfo of a large machine may take of each look, on average.
const BUDGET: Duration = Duration::from_millis(5);

/// The words that are accepted.
pub(super) fn words() -> PossibleValuesParser {
    PossibleValuesParser::new(WORDS.iter().map(|word| word.word).chain([ANY]))
}

/// Looks for marks.
pub(super) struct Trigger<'w> {
    words: &'w [String],
    sampler: Sampler,
    before: Option<(Sample, Vec<Mark>)>,
    /// The one that was found.
    pub(super) mark: Option<Mark>,
}

impl<'w> Trigger<'w> {
    pub(super) fn new(words: &'w [String]) -> Trigger<'w> {
        let sampler = Sampler::new(Box::new(FolderTree::new("/"))).with_budget(BUDGET);
        Trigger { words, sampler, before: None, mark: None }
    }

    /// Whether there is a mark that was not there at the look before, for the first time. Those of the first look were there before.
    pub(super) fn fires(&mut self) -> bool {
        if self.mark.is_some() {
            return false;
        }
        let sample = self.sampler.sample();
        let found = marks(self.before.as_ref().map(|(sample, _)| sample), &sample);
        if let Some((_, known)) = &self.before {
            self.mark = fresh(self.words, known, &found).cloned();
        }
        self.before = Some((sample, found));
        self.mark.is_some()
    }
}

/// The first mark with one of the words that is not known, whatever its figures are.
fn fresh<'m>(words: &[String], known: &[Mark], found: &'m [Mark]) -> Option<&'m Mark> {
    let place = |mark: &Mark| (mark.word, mark.node, mark.zone.clone());
    found.iter().find(|mark| {
        words.iter().any(|word| word == mark.word || word == ANY)
            && !known.iter().any(|other| place(other) == place(mark))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_ends_a_recording_where_it_is_new() {
        let mark =
            |word, node, reason: &str| Mark { word, node, zone: None, reason: reason.to_owned() };
        let words = ["killed", "refusing"].map(str::to_owned);
        let known = [mark("refusing", Some(0), "7 pages free")];
        let found = [
            mark("stalled", None, "3 a second"),
            mark("refusing", Some(0), "6 pages free"),
            mark("refusing", Some(1), "5 pages free"),
        ];
        assert_eq!(fresh(&words, &known, &found), Some(&found[2]));
        assert_eq!(fresh(&words, &known, &found[..2]), None);
        assert_eq!(fresh(&[ANY.to_owned()], &known, &found), Some(&found[0]));
    }
}
