//! Reports out of a kernel's log, explained: a section each.

use std::collections::BTreeMap;

use maud::{Markup, html};
use nearpage_explain::{Explanation, Paragraph};

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
    html! {
        section {
            h2 { (explanation.head()) }
            @for Paragraph { label, lines } in explanation.paragraphs() {
                h3 { (label) }
                ul { @for line in lines { li { (line) } } }
            }
        }
    }
}
