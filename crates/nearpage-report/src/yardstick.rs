//! The page of a bound: holds over the memory that is kept, both on logarithmic axes. The bound is a line for each K, each
//! set of rules a point.

use maud::html;
use nearpage_replay::BoundPoint;
use nearpage_replay::bound::Class;

use super::charts::{self, Scatter, Series, Shade};
use super::page::{Origin, page};

/// A set of rules in the plot.
#[derive(Clone, Copy, Debug)]
pub struct RulePoint<'a> {
    /// Its name.
    pub name: &'a str,
    /// Mean pages for each CPU.
    pub kept: f64,
    /// Holds.
    pub holds: u64,
}

/// The page of a bundle; `text` is what a terminal shows.
pub fn page_of(
    bundle: &str,
    rules: &[RulePoint<'_>],
    points: &[BoundPoint],
    text: &str,
    origin: &Origin,
) -> String {
    let plot = |class: Class| {
        let title = format!("Holds over pages kept a CPU; bound of the class {}", class.name());
        let axes = ["pages kept, each CPU", "holds"];
        charts::scatter(&Scatter { title, axes, series: series(rules, points, class) }, None)
    };
    let body = html! {
        div.plots { @for class in Class::ALL { (plot(class)) } }
        h2 { "In figures" }
        div.scroll tabindex="0" { pre { (text) } }
    };
    page(&format!("How few holds would do: {bundle}"), origin, body)
}

fn series(rules: &[RulePoint<'_>], points: &[BoundPoint], class: Class) -> Vec<Series> {
    let of_class = || points.iter().filter(|point| point.class == class);
    let mut sizes: Vec<u64> = of_class().map(|point| point.k).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let place = |at: usize, of: usize| (at * 255 / of.max(2).saturating_sub(1)) as u8;
    let bounds = sizes.iter().enumerate().map(|(at, &k)| {
        let points = of_class().filter(|point| point.k == k);
        let mut points: Vec<_> = points.map(|at| (at.h as f64, at.fewest as f64)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series {
            name: format!("bound, {k} pages a hold"),
            shade: Shade::Bound(place(at, sizes.len())),
            points,
        }
    });
    let count = rules.len();
    let rules = rules.iter().enumerate().map(|(at, rule)| Series {
        name: rule.name.into(),
        shade: Shade::Graded(place(at, count)),
        points: vec![(rule.kept, rule.holds as f64)],
    });
    bounds.chain(rules).collect()
}
