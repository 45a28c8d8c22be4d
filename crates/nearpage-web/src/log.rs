//! A kernel's log: why it refused memory.

use std::io::{self, BufReader, Read};

use nearpage_explain::{Beside, Explanation, Paragraph, Reader, Unread};
use nearpage_machine::Packing;
use nearpage_report::explain::ExplainPage;
use serde::Serialize;

use crate::error::WebError;
use crate::kind::{Kind, unpacked};
use crate::question::Question;

/// As `nearpage explain --json` prints it.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    source: &'a str,
    reports: Vec<OfLog<'a, Explanation>>,
    unread: Vec<OfLog<'a, Unread>>,
    beside: Beside,
    seen_again: u64,
    lines: u64,
    error: Option<String>,
}

/// With the log that it is from.
#[derive(Serialize)]
struct OfLog<'a, T> {
    source: &'a str,
    #[serde(flatten)]
    inner: T,
}

/// What the page shows: each report in words.
#[derive(Serialize)]
struct View {
    reports: Vec<InWords>,
    /// Reports beyond those.
    more: usize,
}

#[derive(Serialize)]
struct InWords {
    head: String,
    paragraphs: Vec<(&'static str, Vec<String>)>,
}

/// Reports that the page shows, and that the document has.
const SHOWN_MOST: usize = 100;
const REPORTS_MOST: usize = 10_000;
const BUFFER_BYTES: usize = 256 << 10;

pub(crate) fn answer(
    question: &Question,
    content: &[u8],
) -> Result<(String, String, String), WebError> {
    let name = &*question.name;
    let failed = |error: io::Error| WebError::Log { name: name.into(), what: error.to_string() };
    let open = || -> Result<Box<dyn Read + '_>, WebError> {
        match Packing::of(content) {
            None | Some(Packing::Tar) => Ok(Box::new(content)),
            Some(packing) => unpacked(packing, content).map_err(failed),
        }
    };
    // Twice: a machine that is told behind a report helps, too.
    let mut beside = Beside::default();
    let _ = beside.add_from(BufReader::with_capacity(BUFFER_BYTES, open()?));
    let mut reader = Reader::new(BufReader::with_capacity(BUFFER_BYTES, open()?));
    let (mut page, mut error) = (ExplainPage::new(name), None);
    let mut reports: Vec<Explanation> = Vec::new();
    while let Some(report) = reader.next() {
        match report {
            Ok(report) => {
                let told = if beside.is_empty() { reader.beside() } else { &beside };
                let explanation = Explanation::with(report, told);
                page.add(&explanation);
                reports.push(explanation);
            }
            Err(read) => {
                error = Some(read);
                break;
            }
        }
        if reports.len() == REPORTS_MOST {
            break;
        }
    }
    if let (Some(error), true) = (&error, reports.is_empty()) {
        return Err(WebError::Log { name: name.into(), what: error.to_string() });
    }
    let in_words = |explanation: &Explanation| InWords {
        head: explanation.head(),
        paragraphs: explanation
            .paragraphs()
            .into_iter()
            .map(|Paragraph { label, lines }| (label, lines))
            .collect(),
    };
    let view = View {
        reports: reports.iter().take(SHOWN_MOST).map(in_words).collect(),
        more: reports.len().saturating_sub(SHOWN_MOST),
    };
    let of = |unread: &Unread| OfLog { source: name, inner: unread.clone() };
    let document = Document {
        schema: 2,
        source: name,
        unread: reader.unread().iter().map(of).collect(),
        lines: reader.lines(),
        beside: if beside.is_empty() { reader.beside().clone() } else { beside },
        seen_again: 0,
        error: error.map(|error| error.to_string()),
        reports: reports.into_iter().map(|inner| OfLog { source: name, inner }).collect(),
    };
    let document = serde_json::to_string_pretty(&document)? + "\n";
    Ok((document, page.finish(&question.origin(Kind::Log)), serde_json::to_string(&view)?))
}
