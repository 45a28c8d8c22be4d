//! What a change comes to beside what is now, in a sentence: holds of zone locks, the longest of them, pages kept.

use nearpage_replay::{Point, Totals};

/// What an answer compares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front {
    pub(super) holds: Option<u64>,
    /// Pages in the longest hold.
    pub(super) longest: Option<u64>,
    /// Pages in pagesets, the mean over time.
    pub(super) kept: Option<f64>,
}

impl Front {
    pub(super) fn of(totals: &Totals) -> Front {
        Front {
            holds: totals.lock_acquisitions,
            longest: totals.most_pages_per_hold,
            kept: totals.kept_pages_mean,
        }
    }

    pub(super) fn of_point(point: &Point) -> Front {
        Front {
            holds: point.lock_acquisitions,
            longest: point.most_pages_per_hold,
            kept: point.kept_pages_mean,
        }
    }
}

/// A sentence without its end.
pub(super) fn beside(then: &Front, now: &Front) -> String {
    let count = |of: Option<u64>| of.map_or("-".into(), |count| count.to_string());
    let ratio = |then: Option<f64>, now: Option<f64>| {
        then.zip(now).filter(|(_, now)| *now > 0.0).map(|(then, now)| then / now)
    };
    let of_counts = |then: Option<u64>, now: Option<u64>| {
        ratio(then.map(|count| count as f64), now.map(|count| count as f64))
    };
    let holds = match of_counts(then.holds, now.holds) {
        None if now.holds == Some(0) => "holds of zone locks where there were none".into(),
        ratio => times(ratio, "as many holds of zone locks"),
    };
    let longest = match of_counts(then.longest, now.longest) {
        None => "the longest unknown".into(),
        Some(ratio) if is_one(ratio) => "the longest as long".into(),
        Some(0.0) => "none moves pages".into(),
        Some(ratio) if ratio < 1.0 => format!("the longest {} times shorter", short(1.0 / ratio)),
        Some(ratio) => format!("the longest {} times as long", short(ratio)),
    };
    let kept = match ratio(then.kept, now.kept) {
        None => "kept pages unknown".into(),
        Some(ratio) if is_one(ratio) => "as much kept in pagesets".into(),
        Some(ratio) if ratio < 1.0 => {
            format!("{:.0} % less kept in pagesets", 100.0 * (1.0 - ratio))
        }
        Some(ratio) => format!("{:.0} % more kept in pagesets", 100.0 * (ratio - 1.0)),
    };
    format!(
        "{holds} ({} for {}), {longest} ({} pages for {}), {kept}",
        count(then.holds),
        count(now.holds),
        count(then.longest),
        count(now.longest),
    )
}

fn is_one(ratio: f64) -> bool {
    (0.995..1.005).contains(&ratio)
}

fn times(ratio: Option<f64>, what: &str) -> String {
    match ratio {
        None => format!("an unknown number of times {what}"),
        Some(ratio) if is_one(ratio) => what.into(),
        Some(ratio) => format!("{} times {what}", short(ratio)),
    }
}

/// Two digits that say something.
pub(super) fn short(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 10.0 => format!("{ratio:.0}"),
        ratio if ratio >= 2.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}
