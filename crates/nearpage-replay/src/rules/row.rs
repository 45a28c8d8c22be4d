//! What a set of rules came to in a pass over a bundle.

use nearpage::Model;
use serde::Serialize;

use super::measure::Figures;
use crate::bound::{Class, Limits};
use crate::run::{Causes, Pass};
use crate::yardstick::{COMPARED_AT, fewest_of, mean_of_cpu, ratio};

/// What a set of rules came to in a pass over a bundle.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct RuleRow {
    /// The name of the bundle.
    pub bundle: String,
    /// The name of the rules.
    pub model: &'static str,
    /// Holds of zone locks and takes of another CPU's pagesets.
    pub holds: u64,
    /// The same, by cause.
    pub holds_by_cause: Causes,
    /// Those of them that are takes of another CPU's pagesets.
    pub foreign_takes: u64,
    /// Blocks linked and unlinked under them, and words written there for blocks.
    pub operations: u64,
    /// The most of one hold.
    pub longest_hold_operations: u64,
    /// Pages in the pagesets of all CPUs, the mean over time.
    pub kept_pages_mean: f64,
    /// The most after any request.
    pub kept_pages_max: u64,
    /// Aligned ranges of 512 pages of which nobody has any, the mean over time.
    pub whole_mean: f64,
    /// How many they were at the end.
    pub whole_end: u64,
    /// Requests for blocks of order 9 that were served.
    pub order_9_served: u64,
    /// Pages from another node than the CPU's.
    pub remote_pages: u64,
    /// Requests that were refused; of those in bulk, the pages.
    pub failed: u64,
    /// Requests without a right to reserves that were served from below `min`.
    pub served_below_min: u64,
    /// (holds + 32) / (fewest + 32).
    pub bound_ratio: f64,
    /// The fewest holds of the pooled class, each of [`COMPARED_AT`] pages at most, with the mean that the rules keep for each
    /// CPU.
    pub fewest: u64,
    /// Pages from another zone than the preferred one, since that was below its watermark.
    pub watermark_fallbacks: u64,
    /// Frees that were skipped since nobody had the block.
    pub skipped_frees: u64,
    /// CPUs with pagesets.
    pub cpus: u64,
}

impl RuleRow {
    pub(super) fn of(bundle: &str, model: &Model, pass: &Pass) -> RuleRow {
        let figures = Figures::of(pass);
        let kept = mean_of_cpu(figures.kept_pages_mean, figures.cpus);
        let limits = Limits { kept, moved: COMPARED_AT };
        let fewest = fewest_of(model, &pass.asked, Class::Pooled, limits, false).fewest;
        RuleRow {
            bundle: bundle.into(),
            model: model.name,
            bound_ratio: ratio(figures.holds, fewest),
            fewest,
            holds: figures.holds,
            holds_by_cause: figures.holds_by_cause,
            foreign_takes: figures.foreign_takes,
            operations: figures.operations,
            longest_hold_operations: figures.longest_hold_operations,
            kept_pages_mean: figures.kept_pages_mean,
            kept_pages_max: figures.kept_pages_max,
            whole_mean: figures.whole_mean,
            whole_end: figures.whole_end,
            order_9_served: figures.order_9_served,
            remote_pages: figures.remote_pages,
            failed: figures.failed,
            served_below_min: figures.served_below_min,
            watermark_fallbacks: figures.watermark_fallbacks,
            skipped_frees: figures.skipped_frees,
            cpus: figures.cpus,
        }
    }
}
