//! Published tables, and which columns each kind of workload has.

use serde::Deserialize;
use toml::Spanned;

use super::wrong::{Checked, wrong};

/// A published table. Its first columns, the keys, say which run a row is about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows of figures.
    pub rows: Vec<Vec<f64>>,
}

impl Reference {
    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// The columns of a kind of workload.
pub(super) struct Columns {
    /// In this order, before all others.
    keys: &'static [&'static str],
    /// Any of these.
    figures: &'static [&'static str],
}

pub(super) const HOG: Columns = Columns {
    keys: &["memory_gb", "threads"],
    figures: &["sys_before", "real_before", "sys_after", "real_after", "percent"],
};
pub(super) const MESSAGES: Columns = Columns {
    keys: &["workload", "patch"],
    figures: &["score", "zone_lock_percent", "free_high_per_page"],
};
pub(super) const LIFETIMES: Columns = Columns {
    keys: &["patch"],
    figures: &["build_time", "zone_lock_percent", "free_high", "alloc_zone"],
};
pub(super) const CONTENTION: Columns = Columns {
    keys: &["variant"],
    figures: &[
        "zone_lock_percent",
        "zone_lock_percent_most",
        "score",
        "refill_us",
        "refills_below_262us_percent",
        "refills_262us_percent",
        "refills_524us_percent",
        "refills_1ms_percent",
        "refills_2ms_percent",
        "refills_4ms_percent",
        "refills_2_to_32us_percent_least",
    ],
};
pub(super) const SLAB: Columns =
    Columns { keys: &["machine", "before_s", "after_s"], figures: &[] };
pub(super) const LOCKS: Columns = Columns { keys: &["tables", "throughput_percent"], figures: &[] };

impl Columns {
    pub(super) fn check(&self, table: Spanned<Reference>) -> Checked<Reference> {
        let span = table.span();
        let table = table.into_inner();
        let Reference { columns, rows } = &table;
        let begins_right = columns.len() >= self.keys.len()
            && self.keys.iter().zip(columns).all(|(key, column)| key == column);
        let mut others = columns.iter().skip(self.keys.len());
        if !begins_right || others.any(|column| !self.figures.contains(&column.as_str())) {
            let (keys, figures) = (self.keys.join(", "), self.figures.join(", "));
            let further =
                if figures.is_empty() { String::new() } else { format!(", then any of {figures}") };
            return wrong(span, format!("reference.columns: accepted: {keys}{further}"));
        }
        if let Some(at) = rows.iter().position(|row| row.len() != columns.len()) {
            let (got, want) = (rows[at].len(), columns.len());
            return wrong(
                span,
                format!("reference.rows: row {} has {got} figures, not {want}", at + 1),
            );
        }
        if let Some(at) = rows.iter().position(|row| !row.iter().all(|figure| figure.is_finite())) {
            return wrong(span, format!("reference.rows: row {} has what is no number", at + 1));
        }
        Ok(table)
    }
}
