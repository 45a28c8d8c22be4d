//! What rules must reach, and what they should.

use std::fmt;

use nearpage::Model;
use serde::{Serialize, Serializer};

use super::REFERENCE;
use super::figure::Figure;
use super::means::{Mean, Pair, pairs};
use super::row::RuleRow;

/// Pages by which a bundle may exceed the reference where the sum must not: what one hold moves at most.
const PAGES_MORE: f64 = 2016.0;

/// What must hold of a figure, and what is aimed at.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rule {
    /// The mean, and perhaps the worst bundle, are at most so much.
    Mean { most: f64, worst: Option<f64>, goal: f64 },
    /// Each bundle is at most so much.
    Each { most: f64, goal: f64 },
    /// Each bundle has no fewer ranges than the reference, less a hundredth or two a CPU. The goal is of the mean of those
    /// bundles where memory is short.
    Ranges { goal: f64 },
    /// Each bundle has no less than the reference.
    NoLess,
    /// The sum over all bundles is not above that of the reference, nor any bundle by more than [`PAGES_MORE`].
    NoMoreInSum,
    /// Each bundle has no more than the reference, but for what that served from below `min`.
    NoMore,
}

/// What each figure must reach.
const RULES: [(Figure, Rule); 10] = [
    (Figure::Holds, Rule::Mean { most: 0.6, worst: Some(1.0), goal: 0.4 }),
    (Figure::Operations, Rule::Mean { most: 0.25, worst: Some(0.8), goal: 0.1 }),
    (Figure::LongestHoldOperations, Rule::Each { most: 256.0, goal: 64.0 }),
    (Figure::KeptPagesMean, Rule::Mean { most: 0.5, worst: Some(1.0), goal: 0.35 }),
    (Figure::BoundRatio, Rule::Mean { most: 6.0, worst: None, goal: 3.0 }),
    (Figure::WholeMean, Rule::Ranges { goal: 1.2 }),
    (Figure::WholeEnd, Rule::Ranges { goal: 1.2 }),
    (Figure::Order9Served, Rule::NoLess),
    (Figure::RemotePages, Rule::NoMoreInSum),
    (Figure::Failed, Rule::NoMore),
];

/// What a set of rules must reach in a figure, and whether it does.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The name of the rules.
    pub model: &'static str,
    /// The figure.
    pub figure: Figure,
    /// What must hold.
    #[serde(serialize_with = "as_text")]
    pub must: Must,
    /// What is aimed at.
    #[serde(serialize_with = "as_text")]
    pub goal: Goal,
    /// Whether what must hold does.
    pub is_met: bool,
    /// Whether what is aimed at is reached; `None` if no bundle tells.
    pub reaches_goal: Option<bool>,
    /// What the goal is about, if it is another figure than the mean: the mean over bundles where memory is short.
    pub where_short: Option<f64>,
    /// The bundles in which what must hold in each does not.
    pub missed_in: Vec<String>,
}

/// What must hold; displayed in words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Must(Rule);

/// What is aimed at; displayed in words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal(Rule);

fn as_text<S: Serializer>(text: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(text)
}

impl fmt::Display for Must {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = REFERENCE.name;
        match self.0 {
            Rule::Mean { most, worst: None, .. } => write!(f, "mean <= {most}"),
            Rule::Mean { most, worst: Some(worst), .. } => {
                write!(f, "mean <= {most}, worst <= {worst:.1}")
            }
            Rule::Each { most, .. } => write!(f, "each <= {most}"),
            Rule::Ranges { .. } => write!(f, "each >= {reference} - max(1 %, 2 x CPUs)"),
            Rule::NoLess => write!(f, "each >= {reference}"),
            Rule::NoMoreInSum => write!(f, "sum <= {reference}, each <= it + {PAGES_MORE}"),
            Rule::NoMore => write!(f, "each <= {reference} + its below min"),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Rule::Mean { goal, .. } | Rule::Each { goal, .. } => write!(f, "{goal}"),
            Rule::Ranges { goal } => write!(f, "{goal} where short"),
            Rule::NoLess => write!(f, "never fewer"),
            Rule::NoMoreInSum | Rule::NoMore => write!(f, "never more"),
        }
    }
}

impl Rule {
    /// Whether a bundle is as each must be.
    fn admits(self, figure: Figure, (row, reference): Pair<'_>) -> bool {
        let (own, other) = (figure.of(row), figure.of(reference));
        match self {
            Rule::Mean { .. } => true,
            Rule::Each { most, .. } => own <= most,
            Rule::Ranges { .. } => own >= other - f64::max(other * 0.01, 2.0 * row.cpus as f64),
            Rule::NoLess => own >= other,
            Rule::NoMoreInSum => own <= other + PAGES_MORE,
            Rule::NoMore => own <= other + reference.served_below_min as f64,
        }
    }

    /// Whether all bundles together are as they must be.
    fn admits_mean(self, mean: &Mean) -> bool {
        match self {
            Rule::Mean { most, worst, .. } => {
                mean.geometric_mean <= most && worst.is_none_or(|worst| mean.worst <= worst)
            }
            Rule::NoMoreInSum => mean.sum <= mean.reference_sum,
            _ => true,
        }
    }
}

/// What each set of rules reaches; nothing if there are no bundles.
pub(super) fn of_all(rows: &[RuleRow], means: &[Mean], rules: &[Model]) -> Vec<Verdict> {
    let of_model = |model: Model| {
        let pairs = pairs(rows, model.name);
        RULES.into_iter().filter_map(move |(figure, rule)| {
            let mean = means.iter().find(|of| of.model == model.name && of.figure == figure)?;
            Some(verdict(mean, rule, &pairs))
        })
    };
    rules.iter().copied().flat_map(of_model).collect()
}

fn verdict(mean: &Mean, rule: Rule, pairs: &[Pair<'_>]) -> Verdict {
    let Mean { model, figure, .. } = *mean;
    let missed = pairs.iter().filter(|pair| !rule.admits(figure, **pair));
    let missed_in: Vec<String> = missed.map(|(row, _)| row.bundle.clone()).collect();
    let each = |is_so: fn(f64, f64) -> bool| {
        pairs.iter().all(|(row, reference)| is_so(figure.of(row), figure.of(reference)))
    };
    let where_short = match rule {
        Rule::Ranges { .. } => mean_where_short(figure, pairs),
        _ => None,
    };
    let reaches_goal = match rule {
        Rule::Mean { goal, .. } => Some(mean.geometric_mean <= goal),
        Rule::Each { goal, .. } => Some(mean.worst <= goal),
        Rule::Ranges { goal } => where_short.map(|mean| mean >= goal),
        Rule::NoLess => Some(each(|own, other| own >= other)),
        Rule::NoMoreInSum | Rule::NoMore => Some(each(|own, other| own <= other)),
    };
    Verdict {
        model,
        figure,
        must: Must(rule),
        goal: Goal(rule),
        is_met: missed_in.is_empty() && rule.admits_mean(mean),
        reaches_goal,
        where_short,
        missed_in,
    }
}

/// The geometric mean of the ratios of bundles where memory is short: the reference turns requests away from zones below their
/// watermarks.
fn mean_where_short(figure: Figure, pairs: &[Pair<'_>]) -> Option<f64> {
    let short = pairs.iter().filter(|(_, reference)| reference.watermark_fallbacks > 0);
    let ratios = short.map(|(row, of)| super::means::ratio(figure.of(row), figure.of(of)).ln());
    let logs: Vec<f64> = ratios.collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::super::means;
    use super::*;

    fn row(bundle: &str, model: &'static str, holds: u64) -> RuleRow {
        RuleRow {
            bundle: bundle.into(),
            model,
            holds,
            holds_by_cause: Default::default(),
            foreign_takes: 0,
            operations: 1000,
            longest_hold_operations: 100,
            kept_pages_mean: 1000.0,
            kept_pages_max: 2000,
            whole_mean: 1000.0,
            whole_end: 1000,
            order_9_served: 10,
            remote_pages: 500,
            failed: 5,
            served_below_min: 0,
            bound_ratio: (holds + 32) as f64 / 132.0,
            fewest: 100,
            watermark_fallbacks: 0,
            skipped_frees: 0,
            cpus: 2,
        }
    }

    const MODEL: Model = Model::NEARPAGE;

    /// What becomes of rules whose rows are changed, over three bundles, of which the last has few holds.
    fn judged(change: impl Fn(&mut RuleRow)) -> (Vec<Mean>, Vec<Verdict>) {
        let mut rows = Vec::new();
        for (bundle, holds) in [("a", 1000), ("b", 5000), ("few", 20)] {
            rows.push(row(bundle, REFERENCE.name, holds));
            let mut own = row(bundle, MODEL.name, holds / 2);
            (own.operations, own.kept_pages_mean) = (200, 400.0);
            change(&mut own);
            rows.push(own);
        }
        let means = means::of_all(&rows, &[REFERENCE, MODEL]);
        let musts = of_all(&rows, &means, &[MODEL]);
        (means, musts)
    }

    fn missed(change: impl Fn(&mut RuleRow)) -> Vec<Figure> {
        let (_, musts) = judged(change);
        musts.iter().filter(|must| !must.is_met).map(|must| must.figure).collect()
    }

    #[test]
    fn each_must_can_be_missed() {
        assert_eq!(missed(|_| {}), []);
        let only = |row: &RuleRow, bundle: &str| row.bundle == bundle;
        assert_eq!(missed(|row| row.holds *= 2), [Figure::Holds]);
        assert_eq!(missed(|row| row.operations = 1000), [Figure::Operations]);
        assert_eq!(missed(|row| row.kept_pages_mean = 900.0), [Figure::KeptPagesMean]);
        assert_eq!(missed(|row| row.fewest = 10), [Figure::BoundRatio]);
        let in_few = |change: fn(&mut RuleRow)| {
            missed(|row| {
                if only(row, "few") {
                    change(row)
                }
            })
        };
        assert_eq!(in_few(|row| row.holds *= 20), [Figure::Holds]);
        assert_eq!(
            in_few(|row| row.longest_hold_operations = 257),
            [Figure::LongestHoldOperations]
        );
        assert_eq!(in_few(|row| row.whole_mean = 989.0), [Figure::WholeMean]);
        assert_eq!(in_few(|row| row.whole_mean = 990.0), [], "a hundredth");
        assert_eq!(in_few(|row| row.whole_end = 989), [Figure::WholeEnd]);
        assert_eq!(in_few(|row| row.order_9_served = 9), [Figure::Order9Served]);
        assert_eq!(in_few(|row| row.remote_pages += 1), [Figure::RemotePages], "the sum");
        let moved = |row: &mut RuleRow| match row.bundle.as_str() {
            "a" => row.remote_pages = 2517,
            _ => row.remote_pages = 0,
        };
        assert_eq!(missed(moved), [Figure::RemotePages], "a bundle");
        assert_eq!(in_few(|row| row.failed = 6), [Figure::Failed]);
    }

    #[test]
    fn what_the_reference_served_below_min_may_fail() {
        let mut rows = vec![row("a", REFERENCE.name, 1000), row("a", MODEL.name, 100)];
        (rows[0].served_below_min, rows[1].failed) = (3, 8);
        let is_met = |rows: &[RuleRow]| {
            let means = means::of_all(rows, &[REFERENCE, MODEL]);
            let musts = of_all(rows, &means, &[MODEL]);
            musts.iter().find(|must| must.figure == Figure::Failed).unwrap().is_met
        };
        assert!(is_met(&rows));
        rows[1].failed = 9;
        assert!(!is_met(&rows));
    }

    #[test]
    fn bundles_with_few_holds_enter_by_their_sum() {
        let (means, _) = judged(|_| {});
        let holds = means.iter().find(|of| of.model == MODEL.name && of.figure == Figure::Holds);
        let holds = holds.unwrap();
        let ratios = [532.0 / 1032.0, 2532.0 / 5032.0, 42.0 / 52.0_f64];
        let expected = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / 3.0).exp();
        assert!((holds.geometric_mean - expected).abs() < 1e-12);
        assert_eq!((holds.worst, holds.worst_bundle.as_str()), (42.0 / 52.0, "few"));
        assert_eq!((holds.sum, holds.reference_sum), (3010.0, 6020.0));
        assert!(means::of_all(&[], &[MODEL]).is_empty() && of_all(&[], &[], &[MODEL]).is_empty());
    }

    #[test]
    fn goals_are_told_apart_from_musts() {
        let (_, musts) = judged(|row| row.holds /= 2);
        let of = |figure| musts.iter().find(|must| must.figure == figure).unwrap();
        assert_eq!(of(Figure::Holds).reaches_goal, Some(true));
        assert_eq!(of(Figure::Operations).reaches_goal, Some(false));
        assert_eq!(of(Figure::WholeMean).reaches_goal, None, "memory is short nowhere");
        let texts = musts.iter().map(|must| (must.must.to_string(), must.goal.to_string()));
        let texts: Vec<(String, String)> = texts.collect();
        assert_eq!(texts[0], ("mean <= 0.6, worst <= 1.0".into(), "0.4".into()));
        assert_eq!(texts[4], ("mean <= 6".into(), "3".into()));
    }
}
