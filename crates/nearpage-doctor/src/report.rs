//! All findings as a document for programs. New keys may be added; a change of meaning gets a new `schema`.

use serde::Serialize;

use crate::facts::Facts;
use crate::finding::{Finding, Level};
use crate::rules::findings;

const SCHEMA: u32 = 1;

/// The findings about a machine, to be shown or serialized.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    schema: u32,
    /// Where the machine was read, as a path or a name.
    pub source: String,
    /// How many findings are problems.
    pub problems: usize,
    /// All findings, in the order of the rules.
    pub findings: Vec<Finding>,
    /// The capture, if the source is a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
}

impl Report {
    /// The report of the facts about a machine that was read from `source`.
    pub fn new(source: impl Into<String>, facts: &Facts) -> Report {
        let findings = findings(facts);
        Report {
            schema: SCHEMA,
            source: source.into(),
            problems: findings.iter().filter(|finding| finding.level == Level::Problem).count(),
            findings,
            capture: None,
        }
    }

    /// The same report, of the capture `name` of a recording.
    pub fn of_capture(self, name: impl Into<String>) -> Report {
        Report { capture: Some(name.into()), ..self }
    }
}
