//! The findings as JSON. Keys only ever get more; a change of meaning gets a new `schema`.

use serde::Serialize;

use super::Report;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    source: &'a str,
    problems: usize,
    findings: Vec<Finding<'a>>,
}

#[derive(Serialize)]
struct Finding<'a> {
    check: &'a str,
    level: &'a str,
    found: &'a str,
    meaning: &'a str,
    advice: Option<&'a str>,
}

impl<'a> From<&'a nearpage_doctor::Finding> for Finding<'a> {
    fn from(finding: &'a nearpage_doctor::Finding) -> Self {
        Self {
            check: finding.check,
            level: finding.level.name(),
            found: &finding.found,
            meaning: &finding.meaning,
            advice: finding.advice.as_deref(),
        }
    }
}

/// The whole document, with a newline at its end.
pub(super) fn format(report: &Report) -> String {
    let document = Document {
        schema: SCHEMA,
        source: &report.source,
        problems: report.problems(),
        findings: report.findings.iter().map(Finding::from).collect(),
    };
    let text = serde_json::to_string_pretty(&document);
    text.expect("plain numbers and strings can be written") + "\n"
}
