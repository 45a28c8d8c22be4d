//! A report in words: a paragraph for each question.

use std::collections::HashMap;
use std::io::{self, Write};

use nearpage_explain::{
    Answer, Beside, CauseKind, Excluded, Explanation, Kind, Mark, Paragraph, Rule, Unread,
};

/// Kinds of reports that are told apart and shown; those beyond are counted.
const KINDS_MOST: usize = 4096;

/// What reports that are alike have in common: the same request, where it might look, and the same answer.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Alike {
    kind: Kind,
    process: String,
    request: (Option<u8>, Option<u64>),
    nodes: [Option<Vec<u32>>; 2],
    group: Option<String>,
    answer: (Rule, Answer, Mark),
    place: (Option<u32>, Option<String>),
    confined_by: Option<Excluded>,
    first_cause: Option<CauseKind>,
}

impl Alike {
    fn of(Explanation { report, verdict, causes, .. }: &Explanation) -> Alike {
        Alike {
            kind: report.kind,
            process: report.process.clone(),
            request: (report.order, report.mode.bits),
            nodes: [report.nodemask.clone(), report.mems_allowed.clone()],
            group: report.memcg.as_ref().and_then(|memcg| memcg.path.clone()),
            answer: (verdict.rule, verdict.answer, verdict.mark),
            place: (verdict.node, verdict.zone.clone()),
            confined_by: verdict.confined_by.as_ref().map(|confined| confined.by),
            first_cause: causes.first().map(|cause| cause.kind),
        }
    }
}

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
        let report = &explanation.report;
        self.reports += 1;
        let key = Alike::of(explanation);
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

    /// Ends a log; one of several has its name.
    pub(super) fn end(
        &self,
        output: &mut impl Write,
        lines: u64,
        unread: &[Unread],
        name: Option<&str>,
    ) -> io::Result<()> {
        for Unread { line, why } in unread {
            writeln!(output, "line {line}: what looks like a report cannot be read as one: {why}")?;
        }
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
        let of = name.map_or(String::new(), |name| format!(" of {name}"));
        let what = match self.reports == 0 && unread.is_empty() {
            true if lines == 0 => {
                ": it is empty; a log is wanted, such as that of dmesg or journalctl -k"
            }
            true => {
                ": none has what kernels say first, such as \"invoked oom-killer\" or \"page allocation failure\""
            }
            false => "",
        };
        writeln!(output, "{} {noun} in {lines} lines{of}{what}", self.reports)
    }
}

/// Ends all logs: which texts of the machine were read, and what stood in several logs.
pub(super) fn end(output: &mut impl Write, beside: &Beside, seen_again: u64) -> io::Result<()> {
    if seen_again > 0 {
        writeln!(output, "{seen_again} more that stood in a log before")?;
    }
    if !beside.is_empty() {
        let texts = beside.texts.iter().map(|(text, line)| format!("{text} (line {line})"));
        let texts: Vec<String> = texts.collect();
        writeln!(output, "beside reports: {}", texts.join(", "))?;
    }
    Ok(())
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
