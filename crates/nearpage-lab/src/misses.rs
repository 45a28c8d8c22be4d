//! What the model is known not to reach.

use serde::Deserialize;

use crate::report::{Report, Verdict};

/// The list, as the book quotes it (results/scenarios.md).
const LIST: &str = include_str!("known-misses.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    miss: Vec<Miss>,
}

/// Figures of one column that miss for one reason.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Miss {
    /// The scenario.
    pub scenario: String,
    /// The column.
    pub column: String,
    /// Rows, with the model's figure.
    pub rows: Vec<(String, f64)>,
    /// The best explanation.
    pub reason: String,
}

/// A figure may be worse than listed by this part of the reference: the list has few digits.
const ROUNDING: f64 = 0.01;

/// All known misses.
///
/// # Panics
/// If the list that is built in is wrong; a test reads it.
pub fn all() -> Vec<Miss> {
    let list: List = toml::from_str(LIST).expect("the list of known misses is checked by a test");
    list.miss
}

/// Marks figures that are off by no more than is listed.
pub fn judge(report: &mut Report) {
    for miss in all().iter().filter(|miss| miss.scenario == report.name) {
        for row in report.rows.iter_mut().filter(|row| row.verdict == Verdict::Off) {
            let Some((_, listed)) =
                miss.rows.iter().find(|(name, _)| row.column == miss.column && *name == row.row)
            else {
                continue;
            };
            let most = (listed - row.reference).abs() + ROUNDING * row.reference.abs().max(1.0);
            if (row.model - row.reference).abs() <= most {
                row.verdict = Verdict::KnownMiss;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Tolerance;

    #[test]
    fn worse_than_listed_is_no_known_miss() {
        let misses = all();
        assert!(misses.iter().all(|miss| !miss.reason.is_empty() && !miss.rows.is_empty()));
        let first = &misses[0];
        let (name, listed) = &first.rows[0];
        for (model, verdict) in
            [(*listed, Verdict::KnownMiss), (listed * 100.0 + 1e6, Verdict::Off)]
        {
            let mut report = Report::new(&first.scenario, "");
            let reference = listed + 50.0;
            report.row(name, &first.column, reference, model, Tolerance::Absolute(0.0));
            judge(&mut report);
            assert_eq!(report.rows[0].verdict, verdict);
        }
    }
}
