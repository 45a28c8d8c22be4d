//! Means over bundles.

use nearpage::Model;
use serde::Serialize;

use super::REFERENCE;
use super::figure::{Figure, Kind};
use super::row::RuleRow;

/// Bundles with fewer holds than this under the reference enter the means together.
const HOLDS_LEAST: u64 = 100;
/// Added to both sides of a ratio, so that small counts say nothing.
const DAMPING: f64 = 32.0;

/// A figure of a set of rules over all bundles: as a ratio to the reference's, but for the longest hold, which is a size, and
/// the bound, to which the ratio is.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Mean {
    /// The name of the rules.
    pub model: &'static str,
    /// The figure.
    pub figure: Figure,
    /// Over the bundles, those with few holds as one.
    pub geometric_mean: f64,
    /// The worst of them; of figures that must hold in each bundle, also of those with few holds.
    pub worst: f64,
    /// Where it is; several bundles if it is those with few holds.
    pub worst_bundle: String,
    /// The sum over all bundles.
    pub sum: f64,
    /// That of the reference.
    pub reference_sum: f64,
}

/// A row of a set of rules beside that of the reference.
pub(super) type Pair<'a> = (&'a RuleRow, &'a RuleRow);

/// The rows of a set of rules, each beside the reference's.
pub(super) fn pairs<'a>(rows: &'a [RuleRow], model: &'static str) -> Vec<Pair<'a>> {
    let of_reference = |row: &RuleRow| {
        let is_it = |other: &&RuleRow| other.bundle == row.bundle && other.model == REFERENCE.name;
        rows.iter().find(is_it)
    };
    let rows = rows.iter().filter(|row| row.model == model);
    rows.filter_map(|row| Some((row, of_reference(row)?))).collect()
}

/// (n + 32) / (reference + 32).
pub(super) fn ratio(n: f64, reference: f64) -> f64 {
    (n + DAMPING) / (reference + DAMPING)
}

/// For each set of rules a mean of each figure; nothing if there are no bundles.
pub(super) fn of_all(rows: &[RuleRow], rules: &[Model]) -> Vec<Mean> {
    let of_model = |model: Model| {
        let pairs = pairs(rows, model.name);
        Figure::ALL.into_iter().filter_map(move |figure| mean(model.name, figure, &pairs))
    };
    rules.iter().copied().flat_map(of_model).collect()
}

fn mean(model: &'static str, figure: Figure, pairs: &[Pair<'_>]) -> Option<Mean> {
    let (few, many): (Vec<Pair<'_>>, Vec<Pair<'_>>) =
        pairs.iter().partition(|(_, reference)| reference.holds < HOLDS_LEAST);
    let names = |pairs: &[Pair<'_>]| {
        pairs.iter().map(|(row, _)| row.bundle.as_str()).collect::<Vec<&str>>().join(" + ")
    };
    let single = |pair: &Pair<'_>| (together(figure, &[*pair]), names(&[*pair]));
    let mut entries: Vec<(f64, String)> = many.iter().map(single).collect();
    entries.extend((!few.is_empty()).then(|| (together(figure, &few), names(&few))));
    let logs: f64 = entries.iter().map(|(value, _)| value.ln()).sum();
    let geometric_mean = (logs / entries.len() as f64).exp();
    if figure.is_of_each() {
        entries = pairs.iter().map(single).collect();
    }
    let is_worse = |one: f64, other: f64| match figure.kind() {
        Kind::More => one < other,
        _ => one > other,
    };
    let worst = entries.into_iter().reduce(|worst, other| match is_worse(other.0, worst.0) {
        true => other,
        false => worst,
    });
    let (worst, worst_bundle) = worst?;
    let sums = pairs.iter().fold((0.0, 0.0), |sums, (row, reference)| {
        (sums.0 + figure.of(row), sums.1 + figure.of(reference))
    });
    Some(Mean {
        model,
        figure,
        geometric_mean,
        worst,
        worst_bundle,
        sum: sums.0,
        reference_sum: sums.1,
    })
}

/// What a figure of some bundles comes to, as if they were one.
fn together(figure: Figure, pairs: &[Pair<'_>]) -> f64 {
    let sum = |of: &dyn Fn(&Pair<'_>) -> f64| pairs.iter().map(of).sum::<f64>();
    match figure.kind() {
        Kind::Size => {
            // A hold of nothing has no logarithm.
            pairs.iter().map(|(row, _)| figure.of(row)).fold(1.0, f64::max)
        }
        Kind::ToBound => {
            ratio(sum(&|(row, _)| row.holds as f64), sum(&|(row, _)| row.fewest as f64))
        }
        Kind::Less | Kind::More => {
            ratio(sum(&|(row, _)| figure.of(row)), sum(&|(_, of)| figure.of(of)))
        }
    }
}
