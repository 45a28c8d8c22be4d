//! Figures with bounds.

use toml::Spanned;

use super::{Checked, wrong};

/// A time in nanoseconds: at most a second, so that sums of many stay far from what a clock can count.
pub(super) fn time_ns(key: &str, value: &Spanned<f64>) -> Checked<f64> {
    match *value.get_ref() {
        ns if (0.0..=1e9).contains(&ns) => Ok(ns),
        ns => wrong(value.span(), format!("{key} is {ns}; accepted: 0 to 1e9, in nanoseconds")),
    }
}

/// The same; 0 if it is not there.
pub(super) fn time_ns_or_0(key: &str, value: Option<&Spanned<f64>>) -> Checked<f64> {
    value.map_or(Ok(0.0), |value| time_ns(key, value))
}

/// A share of time that CPUs wait: some, and never all.
pub(super) fn lock_percent(value: &Spanned<f64>) -> Checked<f64> {
    match *value.get_ref() {
        percent if percent > 0.0 && percent < 100.0 => Ok(percent),
        percent => wrong(
            value.span(),
            format!("zone_lock_percent is {percent}; accepted: more than 0 and less than 100"),
        ),
    }
}

/// A count of which there is at least one.
pub(super) fn at_least_one(key: &str, value: &Spanned<u64>) -> Checked<u64> {
    match *value.get_ref() {
        0 => wrong(value.span(), format!("{key} is 0; accepted: 1 or more")),
        n => Ok(n),
    }
}
