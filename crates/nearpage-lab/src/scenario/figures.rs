//! Figures with bounds.

use std::fmt::Display;

use nearpage_machine::size;
use toml::Spanned;

use super::wrong::{Checked, wrong};

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

/// The most of anything that is counted: a scenario that somebody sent is no work without an end.
const COUNT_MOST: u64 = 1 << 32;

/// A count of which there is at least one.
pub(super) fn at_least_one<N>(key: &str, value: &Spanned<N>) -> Checked<N>
where
    N: Copy + Display + TryInto<u64>,
{
    let n = *value.get_ref();
    match n.try_into() {
        Ok(1..=COUNT_MOST) => Ok(n),
        _ => wrong(value.span(), format!("{key} is {n}; accepted: 1 to {COUNT_MOST}")),
    }
}

/// A count that may be 0.
pub(super) fn at_most(key: &str, value: &Spanned<u64>) -> Checked<u64> {
    match *value.get_ref() {
        n @ 0..=COUNT_MOST => Ok(n),
        n => wrong(value.span(), format!("{key} is {n}; accepted: 0 to {COUNT_MOST}")),
    }
}

/// A number of threads, one a CPU.
pub(super) fn threads_of(threads: &Spanned<usize>, cpus: usize) -> Checked<usize> {
    match *threads.get_ref() {
        0 => wrong(
            threads.span(),
            format!("threads is 0; accepted: 1 to {cpus}, the CPUs of the machine"),
        ),
        n if n > cpus => {
            wrong(threads.span(), format!("threads is {n}; the machine has {cpus} CPUs"))
        }
        n => Ok(n),
    }
}

/// A size of memory.
pub(super) fn bytes_of(key: &str, text: &Spanned<String>) -> Checked<u64> {
    match size::parse(text.get_ref()) {
        Some(bytes) => Ok(bytes),
        None => wrong(
            text.span(),
            format!("{key} is {:?}; accepted: {}", text.get_ref(), size::EXPECTED),
        ),
    }
}
