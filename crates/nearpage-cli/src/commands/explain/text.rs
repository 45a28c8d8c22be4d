//! A report in words: a paragraph for each question.

use std::collections::HashMap;
use std::io::{self, Write};

use nearpage_explain::{Explanation, Kind, Paragraph, Rule};

/// Kinds of reports that are told apart and shown; those beyond are counted.
const KINDS_MOST: usize = 4096;

/// What reports that are alike have in common.
type Alike = (Kind, String, Option<u8>, Option<u64>, Rule, Option<u32>, Option<String>);

/// What was shown so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    reports: u64,
    /// The line of the first, how many more, the line of the last.
    alike: HashMap<Alike, (u64, u64, u64)>,
    /// How many reports of other kinds there are, and the line of the first.
    beyond: Option<(u64, u64)>,
}

impl Log {
    /// Shows a report, or counts it if one like it was shown.
    pub(super) fn add(
        &mut self,
        output: &mut impl Write,
        explanation: &Explanation,
    ) -> io::Result<()> {
        let Explanation { report, verdict, .. } = explanation;
        self.reports += 1;
        let key = (
            report.kind,
            report.process.clone(),
            report.order,
            report.mode.bits,
            verdict.rule,
            verdict.node,
            verdict.zone.clone(),
        );
        if let Some((_, more, last)) = self.alike.get_mut(&key) {
            (*more, *last) = (*more + 1, report.first_line);
            return Ok(());
        }
        if self.alike.len() == KINDS_MOST {
            self.beyond.get_or_insert((0, report.first_line)).0 += 1;
            return Ok(());
        }
        self.alike.insert(key, (report.first_line, 0, report.first_line));
        write_one(output, explanation)
    }

    pub(super) fn end(&self, output: &mut impl Write, lines: u64) -> io::Result<()> {
        let mut repeated: Vec<_> = self.alike.values().filter(|(_, more, _)| *more > 0).collect();
        repeated.sort();
        for (first, more, last) in repeated {
            writeln!(output, "as at line {first}: {more} more, the last at line {last}")?;
        }
        if let Some((count, first)) = self.beyond {
            writeln!(
                output,
                "{count} more of other kinds than the {KINDS_MOST} that are shown, the first at line {first}; --json has each"
            )?;
        }
        let noun = if self.reports == 1 { "report" } else { "reports" };
        writeln!(output, "{} {noun} in {lines} lines", self.reports)
    }
}

fn write_one(output: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    writeln!(output, "{}", explanation.head())?;
    for Paragraph { label, lines } in explanation.paragraphs() {
        for (at, line) in lines.iter().enumerate() {
            writeln!(output, "  {:<11} {line}", if at == 0 { label } else { "" })?;
        }
    }
    writeln!(output)
}
