//! The page of a what-if: the answer first, what changes, the time of the load, a slider over what was swept.

use maud::{Markup, html};
use nearpage_machine::size;
use nearpage_replay::{Point, Sweep, Timeline};
use serde::Serialize;

use super::charts::{Scatter, Series, Shade, scatter};
use super::page::{Cell, Origin, data, page, points_table, table};
use super::timeline;

/// What the page shows. What is empty is left out.
#[derive(Debug, Default)]
pub struct WhatIfPage<'a> {
    /// The answer, a sentence each.
    pub answer: Vec<String>,
    /// What changes, a line each.
    pub changes: Vec<String>,
    /// Figures side by side.
    pub figures: Vec<FigureTable>,
    /// The load over its time.
    pub timeline: Option<&'a Timeline>,
    /// What was swept.
    pub sweep: Option<&'a Sweep>,
    /// What the model leaves out, a sentence each.
    pub leaves_out: Vec<String>,
}

/// Figures side by side.
#[derive(Clone, Debug, Default)]
pub struct FigureTable {
    /// Its heading.
    pub title: String,
    /// What the figures are of, a line each.
    pub notes: Vec<String>,
    /// What the columns are; the first has the names of the rows.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<FigureRow>,
    /// Log2 of the bytes of a page, if it is known: then counts of pages have their bytes beside them.
    pub page_shift: Option<u32>,
}

/// A row of figures.
#[derive(Clone, Debug, Default)]
pub struct FigureRow {
    /// What the figures are.
    pub name: String,
    /// Whether they count pages.
    pub are_pages: bool,
    /// The figures; of each pair behind the first ones, the second is a ratio.
    pub cells: Vec<String>,
}

/// The page.
pub fn page_of(title: &str, what_if: &WhatIfPage<'_>, origin: &Origin) -> String {
    let body = html! {
        @if !what_if.answer.is_empty() {
            section.answer { h2 { "Answer" } @for sentence in &what_if.answer { p { (sentence) } } }
        }
        @if let Some(sweep) = what_if.sweep { (swept(sweep)) }
        @for figures in &what_if.figures { (figure_table(figures)) }
        @if !what_if.changes.is_empty() {
            h2 { "What changes" }
            ul { @for change in &what_if.changes { li { (change) } } }
        }
        @if let Some(timeline) = what_if.timeline.filter(|timeline| !timeline.runs.is_empty()) {
            h2 { "Over the time of the load" }
            (timeline::plots(timeline))
        }
        @if !what_if.leaves_out.is_empty() {
            h2 { "What the model leaves out" }
            ul { @for sentence in &what_if.leaves_out { li { (sentence) } } }
        }
    };
    page(title, origin, body)
}

fn figure_table(figures: &FigureTable) -> Markup {
    let cells = |row: &FigureRow| -> Vec<Cell> {
        let shift = figures.page_shift.filter(|_| row.are_pages);
        let bytes = |text: &str| {
            let pages = text.parse::<u64>().ok().filter(|pages| *pages > 0)?;
            Some(size::format(pages.checked_shl(shift?)?))
        };
        let cell = |text: &String| match bytes(text) {
            Some(bytes) => Cell::number(format!("{text} ({bytes})")),
            None => Cell::number(&**text),
        };
        [Cell::from(&*row.name)].into_iter().chain(row.cells.iter().map(cell)).collect()
    };
    html! {
        h2 { (figures.title) }
        @for note in &figures.notes { p.faint { (note) } }
        (table(&figures.columns, &figures.rows.iter().map(cells).collect::<Vec<_>>()))
    }
}

/// A figure of a point: its name in JSON, in words, and its unit where that is not a count.
#[derive(Clone, Copy, Serialize)]
struct Figure {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
}

const fn figure(key: &'static str, name: &'static str, unit: &'static str) -> Figure {
    Figure { key, name, unit }
}

const HOLDS: &str = "lock_acquisitions";
const LONGEST: &str = "most_pages_per_hold";

const FIGURES: [Figure; 8] = [
    figure(HOLDS, "zone-lock holds", ""),
    figure(LONGEST, "pages in the longest hold", ""),
    figure("kept_pages_mean", "pages kept, mean over time", ""),
    figure("refills", "refills", ""),
    figure("drains", "drains", ""),
    figure("drain_pages", "pages given back", ""),
    figure("cached_bytes", "in pagesets at the end, bytes", "bytes"),
    figure("model_ms", "model time, ms", ""),
];

/// What the page's script has: the points as in the JSON of the sweep.
#[derive(Serialize)]
struct SweepData<'a> {
    points: &'a [Point],
    /// What is now on each machine.
    now: &'a [Point],
    figures: [Figure; FIGURES.len()],
}

/// The sweep: a slider for each thing that varies, its front, and all points.
fn swept(sweep: &Sweep) -> Markup {
    let points = &sweep.points;
    html! {
        section.sweep { (data("sweep", &SweepData { points, now: &sweep.now, figures: FIGURES })) }
        div.plots { (scatter(&drawn(points), Some([HOLDS, LONGEST]))) }
        h2 { "All " (points.len()) " combinations" }
        p.faint {
            "* the front: no other on its machine has as few lock holds, pages per hold and pages kept. Model time by " (sweep.costs) "."
        }
        (table_of(&sweep.now, points))
        @for note in &sweep.notes { p { (note) } }
    }
}

/// All points by machine and rules, and the front of each as a line. Axes are powers, so 0 is drawn as 1.
fn drawn(points: &[Point]) -> Scatter {
    let place = |point: &Point| {
        let at = |count: Option<u64>| count.unwrap_or(0).max(1) as f64;
        (at(point.lock_acquisitions), at(point.most_pages_per_hold))
    };
    let has_machines = has_machines(points);
    let group = |point: &Point| {
        let machine = point.machine.as_deref().filter(|_| has_machines).unwrap_or("");
        format!("{} {machine}", point.rules).trim_end().to_owned()
    };
    let mut groups: Vec<String> = points.iter().map(group).collect();
    groups.sort_unstable();
    groups.dedup();
    let last = groups.len().saturating_sub(1).max(1);
    let mut series = Vec::new();
    for (at, name) in groups.into_iter().enumerate() {
        let shade = Shade::Graded((at * 255 / last).min(255) as u8);
        let of_group = || points.iter().filter(|point| group(point) == name);
        let mut front: Vec<_> = of_group().filter(|point| point.is_best).map(place).collect();
        front.sort_by(|one, other| one.0.total_cmp(&other.0));
        series.push(Series { name: String::new(), shade, points: front });
        series.extend(of_group().enumerate().map(|(at, point)| {
            let name = if at == 0 { name.clone() } else { String::new() };
            Series { name, shade, points: vec![place(point)] }
        }));
    }
    Scatter {
        title: "Pages in the longest hold, by holds of zone locks; lines: the fronts; 0 as 1"
            .into(),
        axes: ["holds", "pages in the longest"],
        series,
    }
}

/// Whether points are of several machines.
fn has_machines(points: &[Point]) -> bool {
    points.iter().any(|point| point.machine != points[0].machine)
}

fn table_of(now: &[Point], points: &[Point]) -> Markup {
    let has_machines = has_machines(points);
    let machine = has_machines.then_some("machine");
    let names = [""].into_iter().chain(machine).chain(["rules", "settings"]);
    let columns: Vec<&str> = names.chain(FIGURES.map(|figure| figure.name)).collect();
    // What is now stands last: a row has the place of its point.
    let rows = points.iter().chain(now).enumerate().map(|(at, point)| {
        let text = |text: &str| Cell::from(text);
        let machine = point.machine.as_deref().unwrap_or("recorded");
        let value = serde_json::to_value(point).unwrap_or_default();
        let number = |figure: Figure| match &value[figure.key] {
            serde_json::Value::Number(number) => Cell::number(shortened(number)),
            _ => Cell::number("unknown"),
        };
        let own = [text(point.rules), text(&point.settings.join(" "))];
        let mark = match point.is_best {
            _ if at >= points.len() => "now",
            true => "*",
            false => "",
        };
        [text(mark)]
            .into_iter()
            .chain(has_machines.then(|| text(machine)))
            .chain(own)
            .chain(FIGURES.map(number))
            .collect()
    });
    points_table(&columns, &rows.collect::<Vec<_>>())
}

/// Whole numbers whole, others with three digits.
fn shortened(number: &serde_json::Number) -> String {
    match number.as_u64() {
        Some(count) => count.to_string(),
        None => format!("{:.3}", number.as_f64().unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use nearpage_machine::work::Unwatched;
    use nearpage_replay::{Combinations, Replay};
    use serde_json::Value;

    use super::*;

    /// What the page's script shows comes from the points of the JSON, unchanged.
    #[test]
    fn sliders_have_the_points_of_the_json() {
        let over = ["pcp.batch_scale_max=0,5".parse().unwrap()];
        let combinations = Combinations::of(&over).unwrap();
        let sweep = Replay::shipped().sweep(&combinations, NonZeroUsize::MIN, &Unwatched).unwrap();
        let origin = Origin { command: String::new(), seed: String::new() };
        let what_if = WhatIfPage { sweep: Some(&sweep), ..WhatIfPage::default() };
        let page = page_of("t", &what_if, &origin);
        let head = "<script type=\"application/json\" data-of=\"sweep\">";
        let text = page.split_once(head).unwrap().1.split_once("</script>").unwrap().0;
        let shown: Value = serde_json::from_str(text).unwrap();
        let json = serde_json::to_value(&sweep).unwrap();
        let points = serde_json::to_string(&sweep.points).unwrap();
        assert!(text.contains(&format!("\"points\":{points}")), "{text}");
        let keys = shown["figures"].as_array().unwrap().iter().map(|figure| &figure["key"]);
        assert!(keys.clone().count() > 5);
        for key in keys {
            assert!(!json["points"][0][key.as_str().unwrap()].is_null(), "{key}");
        }
        assert_eq!(page.matches("<tr data-point=").count(), 3);
        assert_eq!(page.matches("<td>now</td>").count(), 1);
        let now = serde_json::to_string(&sweep.now).unwrap();
        assert!(text.contains(&format!("\"now\":{now}")), "{text}");
    }

    #[test]
    fn counts_of_pages_have_their_bytes_beside_them() {
        let row = |name: &str, are_pages| FigureRow {
            name: name.into(),
            are_pages,
            cells: vec!["512".into(), "-".into(), "0.50".into()],
        };
        let columns = ["quantity", "recorded", "now", "ratio"].map(String::from).to_vec();
        let rows = vec![row("pages kept", true), row("holds", false)];
        let figures = FigureTable { columns, rows, page_shift: Some(12), ..Default::default() };
        let shown = figure_table(&figures).into_string();
        assert_eq!(shown.matches("512 (2 MiB)").count(), 1, "{shown}");
        assert_eq!(shown.matches("0.50").count(), 2);
    }
}
