//! What a scenario came to.

use std::collections::BTreeMap;
use std::fmt;

use nearpage_sim::Samples;
use serde::Serialize;

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
        match *self {
            Self::Absolute(most) => write!(f, "{}", rounded(most)),
            Self::Relative(most) => write!(f, "{} %", rounded(100.0 * most)),
            Self::NearZero(most) => write!(f, "0 to {}", rounded(most)),
            Self::Between(least, most) => write!(f, "{} to {}", rounded(least), rounded(most)),
        }
    }
}

impl Row {
    /// How far the model is off: `-48 %`, or the difference where the reference is 0.
    pub fn deviation(&self) -> String {
        let difference = self.model - self.reference;
        match self.reference == 0.0 {
            true => format!("{difference:+.3}"),
            false => format!("{:+.0} %", 100.0 * difference / self.reference),
        }
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
    /// How far it may be off, in words: `50 %`, `0.2 to 0.8`.
    pub allowed: String,
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
        self.rows.push(Row { row, column, reference, model, verdict, allowed: near.to_string() });
    }

    /// Adds something that must hold.
    pub fn hold(&mut self, what: impl Into<String>, value: f64, ok: bool) {
        self.holds.push(Hold { what: what.into(), value: rounded(value), ok });
    }

    /// Adds a count.
    pub fn count(&mut self, name: impl Into<String>, value: f64) {
        self.counts.insert(name.into(), rounded(value));
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

/// To six significant digits: what follows is of no meaning.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
