//! The figures that rules are compared by.

use serde::Serialize;

use super::row::RuleRow;

/// A figure that rules are compared by; named as in the rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Figure {
    /// [`RuleRow::holds`].
    Holds,
    /// [`RuleRow::operations`].
    Operations,
    /// [`RuleRow::longest_hold_operations`].
    LongestHoldOperations,
    /// [`RuleRow::kept_pages_mean`].
    KeptPagesMean,
    /// [`RuleRow::bound_ratio`].
    BoundRatio,
    /// [`RuleRow::whole_mean`].
    WholeMean,
    /// [`RuleRow::whole_end`].
    WholeEnd,
    /// [`RuleRow::order_9_served`].
    #[serde(rename = "order_9_served")]
    Order9Served,
    /// [`RuleRow::remote_pages`].
    RemotePages,
    /// [`RuleRow::failed`].
    Failed,
}

/// How the figures of bundles make up one, and which of two is worse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A ratio to the reference's, of which more is worse.
    Less,
    /// A ratio to the reference's, of which less is worse.
    More,
    /// A ratio to the bound, whatever the reference's is.
    ToBound,
    /// A size by itself, of which more is worse.
    Size,
}

impl Figure {
    /// All figures, in the order of tables.
    pub const ALL: [Figure; 10] = [
        Figure::Holds,
        Figure::Operations,
        Figure::LongestHoldOperations,
        Figure::KeptPagesMean,
        Figure::BoundRatio,
        Figure::WholeMean,
        Figure::WholeEnd,
        Figure::Order9Served,
        Figure::RemotePages,
        Figure::Failed,
    ];

    /// As JSON names it.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Holds => "holds",
            Figure::Operations => "operations",
            Figure::LongestHoldOperations => "longest_hold_operations",
            Figure::KeptPagesMean => "kept_pages_mean",
            Figure::BoundRatio => "bound_ratio",
            Figure::WholeMean => "whole_mean",
            Figure::WholeEnd => "whole_end",
            Figure::Order9Served => "order_9_served",
            Figure::RemotePages => "remote_pages",
            Figure::Failed => "failed",
        }
    }

    /// What a row has of it.
    pub fn of(self, row: &RuleRow) -> f64 {
        match self {
            Figure::Holds => row.holds as f64,
            Figure::Operations => row.operations as f64,
            Figure::LongestHoldOperations => row.longest_hold_operations as f64,
            Figure::KeptPagesMean => row.kept_pages_mean,
            Figure::BoundRatio => row.bound_ratio,
            Figure::WholeMean => row.whole_mean,
            Figure::WholeEnd => row.whole_end as f64,
            Figure::Order9Served => row.order_9_served as f64,
            Figure::RemotePages => row.remote_pages as f64,
            Figure::Failed => row.failed as f64,
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Figure::LongestHoldOperations => Kind::Size,
            Figure::BoundRatio => Kind::ToBound,
            Figure::WholeMean | Figure::WholeEnd | Figure::Order9Served => Kind::More,
            _ => Kind::Less,
        }
    }

    /// Whether a bundle with few holds counts by itself where the worst is looked for: what must hold in each bundle does.
    pub(super) fn is_of_each(self) -> bool {
        !matches!(
            self,
            Figure::Holds | Figure::Operations | Figure::KeptPagesMean | Figure::BoundRatio
        )
    }
}
