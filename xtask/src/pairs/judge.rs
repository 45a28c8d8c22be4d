//! Verdicts: of some recordings of A, predictions from each of them, and some recordings of B.
//!
//! Two rows of figures *differ* if they do not overlap: the most of one is below the least of the other. Of five and five that come from the
//! same that happens in 1 of 126 cases. So chance, which is in the recordings of both settings, tells no difference.

/// Figures of a recording, in the order of [`FIGURES`].
#[derive(Clone, Debug)]
pub struct Figures {
    /// What its kernel logged.
    pub recorded: Vec<f64>,
    /// What the model comes to under the recorded setting.
    pub now: Vec<f64>,
    /// What it predicts under the other one.
    pub then: Vec<f64>,
}

/// Names of figures: of the totals of `nearpage whatif --json`, and as tables say them.
pub const FIGURES: [(&str, &str); 7] = [
    ("refills", "refills"),
    ("refill_pages", "pages refilled"),
    ("drains", "drains"),
    ("drain_pages", "pages drained"),
    ("longest_run_pages", "longest run, pages"),
    ("cached_bytes", "pages kept at the end"),
    ("remote_pages", "pages of other nodes"),
];

/// Below so much in the medians of A and of B, and in the prediction, a figure says nothing.
const FEW: f64 = 10.0;

/// The least, the median and the most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Range {
    /// Of some figures.
    fn of(figures: impl IntoIterator<Item = f64>) -> Range {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let median = f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]);
        Range { least: sorted[0], median, most: sorted[last] }
    }

    /// 1 if it lies above another, -1 below, 0 if they overlap.
    fn beside(self, other: Range) -> i8 {
        i8::from(self.least > other.most) - i8::from(self.most < other.least)
    }
}

/// What was said of a change, and what was so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// B differs from A in the direction that was predicted.
    Right,
    /// Neither B nor the prediction differs from A.
    RightlyNone,
    /// B differs, the prediction does not.
    Missed,
    /// The prediction differs, B does not.
    False,
    /// They differ from A in opposite directions.
    Opposite,
}

impl Verdict {
    /// As tables have it.
    pub const fn words(self) -> &'static str {
        match self {
            Verdict::Right => "right",
            Verdict::RightlyNone => "no change, right",
            Verdict::Missed => "missed",
            Verdict::False => "false",
            Verdict::Opposite => "opposite",
        }
    }
}

/// A figure of a pair.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its place in [`FIGURES`].
    pub figure: usize,
    pub a: Range,
    pub b: Range,
    /// The median of predictions; the range has room for the model's error on A, too.
    pub predicted: Range,
    pub verdict: Verdict,
    /// What the model comes to on B's own traces: what it gets wrong there is no matter of how loads differ.
    pub own: Range,
    /// Whether the prediction's range and that of B's recordings overlap.
    pub is_within: bool,
}

impl Judged {
    /// As factors, how far from B are the prediction, the model on B's own traces, and A; and how far recordings of the same setting are
    /// from each other.
    pub fn factors(&self) -> [f64; 4] {
        let factor = |one: f64, other: f64| ((one + 1.0) / (other + 1.0)).ln().abs().exp();
        let Judged { a, b, predicted, own, .. } = self;
        [
            factor(predicted.median, b.median),
            factor(own.median, b.median),
            factor(a.median, b.median),
            factor(b.most, b.least).max(factor(a.most, a.least)),
        ]
    }
}

/// All figures that say something.
pub fn all(a: &[Figures], b: &[Figures]) -> Vec<Judged> {
    (0..FIGURES.len()).filter_map(|figure| one(a, b, figure)).collect()
}

fn one(a: &[Figures], b: &[Figures], figure: usize) -> Option<Judged> {
    let recorded = |of: &[Figures]| Range::of(of.iter().map(|of| of.recorded[figure]));
    let (before, after) = (recorded(a), recorded(b));
    let mut predicted = Range::of(a.iter().map(|of| of.then[figure]));
    if [before, after, predicted].iter().all(|range| range.median < FEW) {
        return None;
    }
    // The model's error on A may stay in B, or not.
    for of in a.iter().filter(|of| of.now[figure] > 0.0) {
        let corrected = of.then[figure] * of.recorded[figure] / of.now[figure];
        predicted.least = predicted.least.min(corrected);
        predicted.most = predicted.most.max(corrected);
    }
    let verdict = match (predicted.beside(before), after.beside(before)) {
        (0, 0) => Verdict::RightlyNone,
        (0, _) => Verdict::Missed,
        (_, 0) => Verdict::False,
        (said, was) if said == was => Verdict::Right,
        _ => Verdict::Opposite,
    };
    let is_within = predicted.beside(after) == 0;
    let own = Range::of(b.iter().map(|of| of.now[figure]));
    Some(Judged { figure, a: before, b: after, predicted, verdict, own, is_within })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rows: &[[f64; 3]]) -> Vec<Figures> {
        let of = |&[recorded, now, then]: &[f64; 3]| {
            let all = |figure: f64| vec![figure; FIGURES.len()];
            Figures { recorded: all(recorded), now: all(now), then: all(then) }
        };
        rows.iter().map(of).collect()
    }

    fn verdict(a: &[[f64; 3]], b: [f64; 3]) -> (Verdict, bool) {
        let judged = one(&figures(a), &figures(&b.map(|of| [of, 0.0, 0.0])), 0).unwrap();
        (judged.verdict, judged.is_within)
    }

    #[test]
    fn what_overlaps_does_not_differ() {
        let a = [[100.0, 100.0, 50.0], [110.0, 110.0, 55.0], [120.0, 120.0, 60.0]];
        assert_eq!(verdict(&a, [52.0, 58.0, 70.0]), (Verdict::Right, true));
        assert_eq!(verdict(&a, [80.0, 85.0, 90.0]), (Verdict::Right, false));
        assert_eq!(verdict(&a, [95.0, 105.0, 130.0]), (Verdict::False, false));
        assert_eq!(verdict(&a, [130.0, 131.0, 140.0]), (Verdict::Opposite, false));
        let same = [[100.0, 100.0, 100.0], [110.0, 110.0, 112.0]];
        assert_eq!(verdict(&same, [104.0, 105.0, 109.0]), (Verdict::RightlyNone, true));
        assert_eq!(verdict(&same, [20.0, 21.0, 22.0]), (Verdict::Missed, false));
    }

    #[test]
    fn the_error_on_a_is_in_the_range() {
        // Of A the model says twice what was logged: B may be what it says, or half of that.
        let a = figures(&[[100.0, 200.0, 400.0], [102.0, 204.0, 410.0]]);
        let judged = one(&a, &figures(&[[210.0, 0.0, 0.0], [190.0, 0.0, 0.0]]), 0).unwrap();
        let Range { least, median, most } = judged.predicted;
        assert_eq!([least, median, most], [200.0, 405.0, 410.0]);
        assert!(judged.is_within);
        let few = figures(&[[3.0, 4.0, 9.0]]);
        assert!(one(&few, &few, 0).is_none());
    }
}
