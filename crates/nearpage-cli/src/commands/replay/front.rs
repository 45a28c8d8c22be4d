//! The front of a sweep as text: what no other combination beats, in a sentence for each machine and as a plot.

use std::collections::{BTreeMap, BTreeSet};

use nearpage_machine::shown;
use nearpage_replay::{Point, Sweep};

use crate::commands::beside::{Front, beside};

/// The points of each machine; of the recorded one without a name.
fn by_machine(sweep: &Sweep) -> BTreeMap<Option<&str>, Vec<&Point>> {
    let mut all = BTreeMap::<_, Vec<&Point>>::new();
    for point in &sweep.points {
        all.entry(point.machine.as_deref()).or_default().push(point);
    }
    all
}

/// A sentence for each machine: what one combination comes to beside now; of several how many are on its front, and the best in each of
/// the three.
pub(in crate::commands) fn sentences(sweep: &Sweep) -> Vec<String> {
    let names = Names::of(sweep);
    let of_machine = |(machine, points): (Option<&str>, Vec<&Point>)| {
        let now = sweep.now.iter().find(|now| now.machine.as_deref() == machine);
        let on = machine.map_or(String::new(), |name| format!("on {}: ", shown(name)));
        let said = match (&*points, now) {
            ([one], Some(now)) => beside(&Front::of_point(one), &Front::of_point(now)),
            _ => of_front(&names, &points, now),
        };
        format!("{on}{said}.")
    };
    by_machine(sweep).into_iter().map(of_machine).collect()
}

fn of_front(names: &Names<'_>, points: &[&Point], now: Option<&Point>) -> String {
    let best = points.iter().filter(|point| point.is_best);
    let least = |read: fn(&Point) -> f64, unit: &str| {
        let least = points.iter().min_by(|one, other| read(one).total_cmp(&read(other)))?;
        let now = now.map(|now| format!("now {:.0}", read(now)));
        let name = Some(names.name(least, false)).filter(|name| !name.is_empty());
        let beside = now.into_iter().chain(name).collect::<Vec<_>>().join("; ");
        Some(format!("{:.0} {unit} ({beside})", read(least)))
    };
    let all = [
        least(holds, "holds at least"),
        least(longest, "pages in the longest hold at least"),
        least(kept, "pages kept at least"),
        least(drained, "pages given back at least"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    let places =
        best.clone().map(|point| [holds(point), longest(point), kept(point)].map(f64::to_bits));
    let places = places.collect::<BTreeSet<_>>().len();
    let (best, count) = (best.count(), points.len());
    let alike = if places < best { format!(", {places} of them different") } else { String::new() };
    format!("{best} of {count} combinations are on the front{alike}; {}", all.join(", "))
}

/// How the points of a sweep are called: without what all are of.
pub(super) struct Names<'a> {
    /// Settings that all points have.
    pub(super) common: Vec<&'a str>,
    has_rules: bool,
}

impl<'a> Names<'a> {
    pub(super) fn of(sweep: &'a Sweep) -> Names<'a> {
        let has_rules = sweep.points.iter().any(|point| point.rules != sweep.model);
        let common = match &*sweep.points {
            [first, others @ ..] if !others.is_empty() => {
                let is_common = |set: &&String| others.iter().all(|of| of.settings.contains(*set));
                first.settings.iter().filter(is_common).map(String::as_str).collect()
            }
            _ => Vec::new(),
        };
        Names { common, has_rules }
    }

    /// A point's name: its machine if that is asked for, its rules if they differ, and its own settings.
    pub(super) fn name(&self, point: &Point, has_machine: bool) -> String {
        let machine = point.machine.as_ref().filter(|_| has_machine);
        let machine = machine.map(|name| shown(name).to_string());
        let rules = self.has_rules.then(|| point.rules.to_owned());
        let own = point.settings.iter().filter(|set| !self.common.contains(&set.as_str())).cloned();
        machine.into_iter().chain(rules).chain(own).collect::<Vec<_>>().join(" ")
    }
}

fn holds(point: &Point) -> f64 {
    point.lock_acquisitions.unwrap_or(0) as f64
}

fn longest(point: &Point) -> f64 {
    point.most_pages_per_hold.unwrap_or(0) as f64
}

fn drained(point: &Point) -> f64 {
    point.drain_pages as f64
}

fn kept(point: &Point) -> f64 {
    point.kept_pages_mean.unwrap_or(0.0)
}

/// Columns and rows of a plot.
const COLUMNS: usize = 60;
const ROWS: usize = 10;

/// A plot for each machine: pages in the longest hold over holds, both in powers. Nothing where there is one point.
pub(in crate::commands) fn plots(sweep: &Sweep) -> Vec<String> {
    let of_machine = |(machine, points): (Option<&str>, Vec<&Point>)| {
        if points.len() < 2 {
            return Vec::new();
        }
        let on = machine.map_or(String::new(), |name| format!(", {}", shown(name)));
        let mut lines = vec![format!("pages in the longest hold{on}")];
        let place = |point: &&Point| (holds(point), longest(point), point.is_best);
        lines.extend(plot(&points.iter().map(place).collect::<Vec<_>>()));
        lines
    };
    let mut lines: Vec<String> = by_machine(sweep).into_iter().flat_map(of_machine).collect();
    if !lines.is_empty() {
        lines.push("* on the front, . beaten; both axes in powers".into());
    }
    lines
}

fn plot(points: &[(f64, f64, bool)]) -> Vec<String> {
    let across = Axis::of(points.iter().map(|(x, ..)| *x), COLUMNS);
    let up = Axis::of(points.iter().map(|(_, y, _)| *y), ROWS);
    let mut grid = vec![vec![' '; COLUMNS]; ROWS];
    // The front is drawn over what it beats.
    for best in [false, true] {
        for (x, y, _) in points.iter().filter(|(.., is_best)| *is_best == best) {
            grid[ROWS - 1 - up.cell(*y)][across.cell(*x)] = if best { '*' } else { '.' };
        }
    }
    let label = |row: usize| match row {
        0 => format!("{:.0}", up.most),
        row if row == ROWS - 1 => format!("{:.0}", up.least),
        _ => String::new(),
    };
    let mut lines: Vec<String> = (0..ROWS)
        .map(|row| {
            let line: String = grid[row].iter().collect();
            format!("{:>8} |{}", label(row), line.trim_end())
        })
        .collect();
    lines.push(format!("{:>8} +{}", "", "-".repeat(COLUMNS)));
    let (left, right) = (format!("{:.0}", across.least), format!("{:.0}", across.most));
    let width = COLUMNS.saturating_sub(left.len());
    lines.push(format!("{:>8}  {left}{right:>width$} holds of zone locks", ""));
    lines
}

/// From the least value to the most, in so many cells.
struct Axis {
    least: f64,
    most: f64,
    cells: usize,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, cells: usize) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        Axis { least, most: values.fold(0.0, f64::max), cells }
    }

    fn cell(&self, value: f64) -> usize {
        let power = |value: f64| value.max(1.0).log2();
        let span = power(self.most) - power(self.least);
        if span <= 0.0 {
            return 0;
        }
        let share = (power(value) - power(self.least)) / span;
        (share * (self.cells - 1) as f64).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_the_front_at_its_places() {
        let lines = plot(&[(100.0, 1000.0, true), (1600.0, 10.0, true), (400.0, 1000.0, false)]);
        assert_eq!(lines.len(), ROWS + 2);
        assert!(lines[0].starts_with("    1000 |*"), "{}", lines[0]);
        // Half of the powers from 100 to 1600 is at 400.
        assert_eq!(lines[0].find('.'), Some(10 + 30), "{}", lines[0]);
        assert_eq!(lines[ROWS - 1].find('*'), Some(10 + COLUMNS - 1));
        assert!(lines[ROWS - 1].starts_with("      10 |"));
        assert!(lines[ROWS + 1].contains("100") && lines[ROWS + 1].contains("1600 holds"));
    }

    #[test]
    fn one_value_and_zeroes_have_a_place() {
        for points in [[(5.0, 0.0, true), (5.0, 0.0, true)], [(0.0, 7.0, true), (9.0, 7.0, false)]]
        {
            assert_eq!(plot(&points).len(), ROWS + 2);
        }
    }
}
