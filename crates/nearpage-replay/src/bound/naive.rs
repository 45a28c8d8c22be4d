//! Bounds by trying everything: for tests.

use super::fewest::{Limits, Step};

/// The fewest holds by trying every level after every step.
pub(super) fn naive(start: Option<u64>, steps: &[Step], limits: Limits) -> u64 {
    let Limits { kept, moved } = limits;
    let mut costs: Vec<Option<u64>> =
        (0..=kept).map(|level| start.is_none_or(|start| start == level).then_some(0)).collect();
    for step in steps {
        let least = costs.iter().flatten().min().copied();
        costs = match *step {
            Step::Reset => vec![least; kept as usize + 1],
            Step::Pages(pages) => {
                let cost = |after: u64| {
                    let from = |(before, cost): (usize, &Option<u64>)| {
                        let apart = (before as i64 + pages).abs_diff(after as i64);
                        cost.map(|cost| cost + apart.div_ceil(moved))
                    };
                    costs.iter().enumerate().filter_map(from).min()
                };
                (0..=kept).map(cost).collect()
            }
        };
    }
    costs.into_iter().flatten().min().unwrap()
}

/// The fewest refills of a list if pages can be drained for nothing, by trying every level after every step. The list starts
/// with as many pages as is best.
pub(super) fn naive_refills(steps: &[i64], limits: Limits) -> u64 {
    let Limits { kept, moved } = limits;
    let mut costs = vec![Some(0); kept as usize + 1];
    for step in steps {
        let cost = |after: u64| {
            let from = |(before, cost): (usize, &Option<u64>)| {
                let missing = (after as i64 - (before as i64 + step)).max(0) as u64;
                cost.map(|cost| cost + missing.div_ceil(moved))
            };
            costs.iter().enumerate().filter_map(from).min()
        };
        costs = (0..=kept).map(cost).collect();
    }
    costs.into_iter().flatten().min().unwrap()
}
