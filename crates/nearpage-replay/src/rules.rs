//! Rules compared: what each set of rules comes to on each bundle, against Linux 6.18, and what rules must reach.
//!
//! # What is counted
//!
//! - A **hold** is each time that a zone's lock is taken ([`Zone::work`](nearpage::stats::Zone::work)), and each time that a CPU
//!   takes another one's pagesets ([`taken_by_others`](nearpage::PageAllocator::taken_by_others)).
//! - An **operation** is a block linked or unlinked under a hold, or a word written there for a block. Linux's rules are
//!   charged what block-by-block refills and drains do.
//! - **Kept** are pages in pagesets.
//! - **Whole** are aligned ranges of 512 pages of which nobody has any, wherever they lie.
//!
//! # Two passes
//!
//! A trace is played twice over one core. Time goes on. What is live at the end of the first pass stays live; pages that no
//! frame names are freed then, each by the CPU that it was allocated on. In the second pass a free of a frame that is live
//! frees its block; an allocation frees first what its frames are still live as; a free of what nobody has is skipped. So
//! every set of rules starts the second pass from a state of its own, and nothing depends on what the pagesets held at the
//! start of the trace. Figures are those of the second pass; the first is shown apart.
//!
//! # Ratios and means
//!
//! A ratio of counts is (n + 32) / (reference + 32). Bundles with fewer than 100 holds under the reference enter the means
//! together, by the sum of their counts. What must hold in each bundle must hold in those too.

mod figure;
mod kept;
mod means;
mod measure;
mod musts;
mod passes;
mod row;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nearpage::Model;
use nearpage_machine::work::Observer;
use serde::Serialize;

use crate::error::ReplayError;
use crate::replay::Replay;
use crate::report::OPEN_LOOP;
use crate::share::{Part, Share};
use crate::survey::Survey;
use crate::watch::Watch;
use passes::{Play, play_twice};

pub use figure::Figure;
pub use means::Mean;
pub use measure::{Figures, Prepared};
pub use musts::{Goal, Must, Verdict};
pub use row::RuleRow;

/// The rules that others are compared with.
pub const REFERENCE: Model = Model::LINUX_6_18;

/// Sets of rules, compared over some bundles. Its serialization is the JSON of `nearpage replay rules`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct RuleComparison {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// The rules that the others are compared with.
    pub reference: &'static str,
    /// For each bundle a row of the reference, and then of each other set of rules: the second pass.
    pub rows: Vec<RuleRow>,
    /// For each set of rules a mean of each figure.
    pub means: Vec<Mean>,
    /// For each set of rules but the reference, what it must reach and whether it does.
    pub musts: Vec<Verdict>,
    /// As `rows`, of the first pass.
    pub first_pass: Vec<RuleRow>,
    /// What an open loop means.
    pub open_loop: &'static str,
}

/// Compares sets of rules with [`REFERENCE`] over some bundles, on `threads` threads.
///
/// The observer is told bytes of the packed traces, of all passes over them.
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use nearpage::Model;
/// use nearpage_machine::work::Unwatched;
/// use nearpage_replay::{Replay, rules::compare_rules};
///
/// let bundles = [Replay::shipped()];
/// let compared = compare_rules(&bundles, &[Model::NEARPAGE], NonZeroUsize::MIN, &Unwatched)?;
/// let [linux, nearpage] = &compared.rows[..] else { panic!("a row for each set of rules") };
/// println!("{} holds under linux-6.18, {} under nearpage", linux.holds, nearpage.holds);
/// # Ok::<(), nearpage_replay::ReplayError>(())
/// ```
///
/// # Errors
///
/// The first bundle that cannot be replayed; [`ReplayError::Stopped`].
pub fn compare_rules(
    bundles: &[Replay],
    models: &[Model],
    threads: NonZeroUsize,
    observer: &dyn Observer,
) -> Result<RuleComparison, ReplayError> {
    let mut rules = vec![REFERENCE];
    for model in models {
        if !rules.iter().any(|known| known.name == model.name) {
            rules.push(*model);
        }
    }
    let names = names(bundles);
    let passes = 1 + 2 * rules.len() as u64;
    let bytes = |replay: &Replay| replay.bundle().pass_bytes() * passes;
    let share = Share::new(observer, bundles.iter().map(bytes).sum());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(replay) = bundles.get(at) else { return };
            let rows = rows_of(replay, &names[at], &rules, &share.part());
            if rows.is_err() {
                // Nothing is made of the others any more.
                next.store(bundles.len(), Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, rows));
        }
    };
    std::thread::scope(|scope| {
        // This thread is one of them: there may be no other.
        for _ in 1..threads.get().min(bundles.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    let (mut first_pass, mut rows) = (Vec::new(), Vec::new());
    for (_, of_bundle) in results {
        for [first, second] in of_bundle? {
            first_pass.push(first);
            rows.push(second);
        }
    }
    let means = means::of_all(&rows, &rules);
    let musts = musts::of_all(&rows, &means, &rules[1..]);
    Ok(RuleComparison {
        schema: 1,
        reference: REFERENCE.name,
        rows,
        means,
        musts,
        first_pass,
        open_loop: OPEN_LOOP,
    })
}

/// The rows of a bundle: for each set of rules, the first pass and the second.
fn rows_of(
    replay: &Replay,
    name: &str,
    rules: &[Model],
    part: &Part<'_, '_>,
) -> Result<Vec<[RuleRow; 2]>, ReplayError> {
    let (bundle, start) = (replay.bundle(), replay.start());
    let watch = Watch::new(part, bundle.pass_bytes(), 1 + 2 * rules.len() as u64);
    let survey = Survey::of(bundle, start, &watch)?;
    let of_model = |model: &Model| {
        let passes = play_twice(bundle, &survey, start, &Play::of(*model), None, &watch)?;
        Ok(passes.map(|pass| RuleRow::of(name, model, &pass)))
    };
    rules.iter().map(of_model).collect()
}

/// A name for each bundle: that of its file without the ending, or all of its path where others have the same.
fn names(bundles: &[Replay]) -> Vec<String> {
    let full = bundles.iter().map(|replay| replay.bundle().name());
    let short: Vec<&str> = full.clone().map(short_name).collect();
    let is_alone = |name: &str| short.iter().filter(|other| **other == name).count() == 1;
    let names = full.zip(&short).map(|(full, short)| if is_alone(short) { *short } else { full });
    names.map(str::to_owned).collect()
}

fn short_name(name: &str) -> &str {
    let file = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name);
    file.split_once(".tar").map_or(file, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_named_by_their_files() {
        let name_of = |path: &str, short: &str| assert_eq!(short_name(path), short);
        name_of("../bundles/h-cargo", "h-cargo");
        name_of("h-cargo/", "h-cargo");
        name_of("bundles/q612-n2-mixed.tar.zst", "q612-n2-mixed");
        name_of("standard input", "standard input");
        let twice = [Replay::shipped(), Replay::shipped()];
        assert_eq!(names(&twice[..1]), ["q612-n2-mixed"]);
        assert_eq!(names(&twice), ["q612-n2-mixed.tar.zst"; 2]);
    }
}
