//! Reports out of a kernel's log, explained: a section each.

use std::collections::BTreeMap;

use maud::{Markup, html};
use nearpage_explain::{Explanation, Figure, Helps, Rule, ZoneVerdict};

use crate::page::{Cell, Origin, page, table};

/// Sections of a page. What comes after is counted.
const SECTIONS_MOST: usize = 100;

/// A page that grows with each explanation, up to a hundred; all are counted by rule.
#[derive(Debug, Default)]
pub struct ExplainPage {
    source: String,
    sections: Vec<Markup>,
    by_rule: BTreeMap<String, u64>,
}

impl ExplainPage {
    /// The page of a log, which has this name.
    pub fn new(source: &str) -> ExplainPage {
        ExplainPage { source: source.into(), ..ExplainPage::default() }
    }

    /// Adds an explanation.
    pub fn add(&mut self, explanation: &Explanation) {
        *self.by_rule.entry(explanation.verdict.rule.name().into()).or_default() += 1;
        if self.sections.len() < SECTIONS_MOST {
            self.sections.push(section(explanation));
        }
    }

    /// The page, as HTML.
    pub fn finish(self, origin: &Origin) -> String {
        let all: u64 = self.by_rule.values().sum();
        let rows: Vec<Vec<Cell>> = self
            .by_rule
            .iter()
            .map(|(rule, count)| vec![rule.as_str().into(), Cell::number(count.to_string())])
            .collect();
        let body = html! {
            p { (all) " reports in " (self.source) ", the first " (self.sections.len()) " below." }
            (table(&["refused by", "reports"], &rows))
            @for section in &self.sections { (section) }
        };
        page("Why memory was refused", origin, body)
    }
}

fn section(explanation: &Explanation) -> Markup {
    let Explanation { report, verdict, remedies, unknown } = explanation;
    let order = report.order.map_or("none".into(), |order| order.to_string());
    let is_asked = verdict.rule != Rule::AreaTooLarge;
    let rows: Vec<_> = verdict.zones.iter().take(64).map(|zone| row(zone, is_asked)).collect();
    html! {
        section {
            h2 {
                "line " (report.first_line) ": " (report.kind.name())
                @if !report.whose().is_empty() { " of " (report.whose()) }
            }
            p {
                "Order " (order) ", " (report.mode.gfp) "; down to " (verdict.rights) "; zones up to " (verdict.highest_zone)
                @if let Some(kernel) = &report.kernel { "; Linux " (kernel) }
            }
            p {
                b { (verdict.rule.name()) }
                @if let (Some(node), Some(zone)) = (verdict.node, &verdict.zone) { " in " (zone) " of node " (node) }
                @if let Some(confinement) = &verdict.confined_by { ", confined by " (confinement.by.name()) }
                @if let Some(victim) = &report.victim { "; " (victim.name) " was ended" }
            }
            (table(&["node", "zone", "says", "free", "needed", "min", "reserve"], &rows))
            @if !remedies.is_empty() {
                ul {
                    @for remedy in remedies {
                        li { b { (helps(remedy.helps)) } " " (remedy.text) }
                    }
                }
            }
            @for text in unknown { p { (text) } }
        }
    }
}

fn helps(helps: Helps) -> &'static str {
    match helps {
        Helps::Yes => "would help:",
        Helps::No => "would not help:",
        Helps::Unknown => "may help:",
    }
}

fn row(zone: &ZoneVerdict, is_asked: bool) -> Vec<Cell> {
    let says = match zone.excluded {
        _ if !is_asked => "not asked".into(),
        Some(by) => format!("not asked ({})", by.name()),
        None => zone.at_min.rule.name().into(),
    };
    let number = |pages: Figure| Cell::number(pages.to_string());
    let zone_name = Cell::from(zone.zone.as_str());
    vec![
        Cell::number(zone.node.to_string()),
        zone_name,
        Cell::from(says.as_str()),
        number(zone.at_min.free),
        number(zone.at_min.needed),
        number(zone.at_min.mark),
        number(zone.reserve),
    ]
}
