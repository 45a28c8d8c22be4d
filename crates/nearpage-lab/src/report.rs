//! What a scenario came to.

use std::collections::BTreeMap;
use std::fmt;

use nearpage_sim::Samples;
use serde::{Serialize, Serializer};

/// How a figure of the model compares with the reference's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// As near as it must be.
    #[serde(rename = "within")]
    Within,
    /// Not as near.
    #[serde(rename = "off by")]
    Off,
    /// Not as near, by no more than is listed, with the best explanation.
    #[serde(rename = "known-miss")]
    KnownMiss,
}

impl Verdict {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Off => "off by",
            Self::KnownMiss => "known-miss",
        }
    }
}

/// How near a figure must be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tolerance {
    /// So much, in the figure's own unit.
    Absolute(f64),
    /// Such a part of the reference.
    Relative(f64),
    /// No further from zero than so much, whatever the reference says.
    NearZero(f64),
    /// Between two bounds.
    Between(f64, f64),
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(most) => write!(f, "{}", rounded(*most)),
            Self::Relative(most) => write!(f, "{} %", rounded(most * 100.0)),
            Self::NearZero(most) => write!(f, "{} from zero", rounded(*most)),
            Self::Between(least, most) => write!(f, "{} to {}", rounded(*least), rounded(*most)),
        }
    }
}

impl Serialize for Tolerance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Tolerance {
    fn accepts(self, reference: f64, model: f64) -> bool {
        match self {
            Self::Absolute(most) => (model - reference).abs() <= most,
            Self::Relative(most) => (model - reference).abs() <= most * reference.abs(),
            Self::NearZero(most) => model.abs() <= most,
            Self::Between(least, most) => (least..=most).contains(&model),
        }
    }
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What the row of the table is about.
    pub row: String,
    /// The column.
    pub column: String,
    /// What the reference says.
    pub reference: f64,
    /// What the model says.
    pub model: f64,
    /// How they compare.
    pub verdict: Verdict,
    /// How near they must be.
    pub tolerance: Tolerance,
}

impl Row {
    /// The verdict with what the model is off by, and what is accepted.
    pub fn judgement(&self) -> String {
        let off = self.model - self.reference;
        let off = match self.tolerance {
            Tolerance::Relative(_) if self.reference != 0.0 => {
                format!("{:+.1} %", 100.0 * off / self.reference.abs())
            }
            _ => format!("{off:+.3}"),
        };
        let tolerance = self.tolerance;
        match self.verdict {
            Verdict::Within => format!("within {tolerance}: {off}"),
            Verdict::Off => format!("off by {off}; {tolerance} accepted"),
            Verdict::KnownMiss => format!("known miss by {off}; {tolerance} accepted"),
        }
    }
}

/// Something that must hold.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hold {
    /// What.
    pub what: String,
    /// The figure that decides.
    pub value: f64,
    /// Whether it holds.
    pub ok: bool,
}

/// What a scenario came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of this layout.
    pub schema: u32,
    /// The scenario.
    pub name: String,
    /// Figures beside the reference's.
    pub rows: Vec<Row>,
    /// What must hold.
    pub holds: Vec<Hold>,
    /// Counts, by name.
    pub counts: BTreeMap<String, f64>,
    /// Of a load by name: what it ran with.
    #[serde(flatten)]
    pub ran: Option<Ran>,
    /// One line about the scenario.
    #[serde(skip)]
    pub title: String,
    /// What was calibrated, what is not claimed, what had no effect.
    pub notes: Vec<String>,
    /// A table of counts: headings, and cells.
    #[serde(skip)]
    pub table: Table,
    /// Further tables of counts.
    #[serde(skip)]
    pub further: Vec<Table>,
    /// Some runs over their time, by name, if a page shows them.
    #[serde(skip)]
    pub sampled: Vec<(String, Samples)>,
}

/// What a load by name ran with.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Ran {
    /// The machine: where it comes from.
    pub machine: String,
    /// The name of the table of costs.
    pub costs: String,
    /// Seeds; counts are of the first.
    pub seeds: Vec<u64>,
    /// The least and the most by all seeds, of counts that differ.
    pub range: BTreeMap<String, [f64; 2]>,
}

/// A table of plain text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// Headings.
    pub header: Vec<String>,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
}

impl Report {
    /// An empty one.
    pub fn new(name: &str, title: &str) -> Self {
        Self {
            schema: 1,
            name: name.into(),
            title: title.into(),
            rows: Vec::new(),
            holds: Vec::new(),
            counts: BTreeMap::new(),
            ran: None,
            notes: Vec::new(),
            table: Table::default(),
            further: Vec::new(),
            sampled: Vec::new(),
        }
    }

    /// Adds a figure.
    pub fn row(&mut self, row: &str, column: &str, reference: f64, model: f64, near: Tolerance) {
        let verdict = if near.accepts(reference, model) { Verdict::Within } else { Verdict::Off };
        let (row, column, model) = (row.into(), column.into(), rounded(model));
        self.rows.push(Row { row, column, reference, model, verdict, tolerance: near });
    }

    /// Adds something that must hold.
    pub fn hold(&mut self, what: impl Into<String>, value: f64, ok: bool) {
        self.holds.push(Hold { what: what.into(), value: rounded(value), ok });
    }

    /// Adds a count.
    pub fn count(&mut self, name: impl Into<String>, value: f64) {
        let value = if value == value.trunc() { value } else { rounded(value) };
        self.counts.insert(name.into(), value);
    }

    /// Keeps the samples of runs and answers what else came out. `name` says what the run at a place is called.
    pub fn keep_samples<T>(
        &mut self,
        runs: Vec<(T, Option<Samples>)>,
        name: impl Fn(usize) -> String,
    ) -> Vec<T> {
        let mut outcomes = Vec::with_capacity(runs.len());
        for (at, (outcome, samples)) in runs.into_iter().enumerate() {
            self.sampled.extend(samples.map(|samples| (name(at), samples)));
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Whether something is off that is not listed, or does not hold.
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Off)
            || self.holds.iter().any(|hold| !hold.ok)
    }
}

/// To six significant digits, and to a tenth: what follows is of no meaning.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (5 - value.abs().log10().floor() as i32).max(1);
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_has_deviation_and_tolerance() {
        let mut report = Report::new("judged", "");
        report.row("seconds", "after", 10.0, 10.5, Tolerance::Relative(0.1));
        report.row("seconds", "after", 27.9, 14.4, Tolerance::Relative(0.1));
        report.row("percent", "saved", 12.0, 3.0, Tolerance::Absolute(5.0));
        report.row("locks", "after", 1.0, 1.04, Tolerance::Between(1.0, 1.107));
        let judged: Vec<String> = report.rows.iter().map(Row::judgement).collect();
        assert_eq!(
            judged,
            [
                "within 10 %: +5.0 %",
                "off by -48.4 %; 10 % accepted",
                "off by -9.000; 5 accepted",
                "within 1 to 1.107: +0.040",
            ]
        );
    }
}
