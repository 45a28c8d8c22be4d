//! A program that ran under nearpage's malloc: plots over its time, and tables of what its memory did.

use maud::{Markup, html};

use crate::charts::{self, Lines};
use crate::page::{Cell, Origin, page, table};

/// A table of the page.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    /// What it shows.
    pub title: String,
    /// A sentence that says how to read it.
    pub note: String,
    /// Names of columns.
    pub header: Vec<String>,
    /// Its rows: texts as they are shown. What is a number stands to the right.
    pub rows: Vec<Vec<String>>,
}

/// A page about a program.
///
/// ```
/// use nearpage_report::run::{RunPage, RunTable};
/// use nearpage_report::Origin;
///
/// let mut page = RunPage::new("sort: exit code 0");
/// page.add_table(RunTable {
///     title: "Pages by node".into(),
///     header: vec!["node".into(), "pages".into()],
///     rows: vec![vec!["0".into(), "1200".into()]],
///     ..RunTable::default()
/// });
/// let origin = Origin { command: "nearpage run -- sort".into(), seed: "none".into() };
/// assert!(page.finish(&origin).contains("1200"));
/// ```
#[derive(Debug, Default)]
pub struct RunPage {
    title: String,
    sentences: Vec<String>,
    plots: Vec<Lines>,
    tables: Vec<RunTable>,
}

impl RunPage {
    /// An empty page.
    pub fn new(title: &str) -> RunPage {
        RunPage { title: title.into(), ..RunPage::default() }
    }

    /// Adds a sentence at its start.
    pub fn add_sentence(&mut self, sentence: impl Into<String>) {
        self.sentences.push(sentence.into());
    }

    /// Adds a plot; one without a line that has two points is left out.
    pub fn add_plot(&mut self, mut plot: Lines) {
        plot.series.retain(|series| series.points.len() > 1);
        if !plot.series.is_empty() {
            self.plots.push(plot);
        }
    }

    /// Adds a table; one without rows is left out.
    pub fn add_table(&mut self, table: RunTable) {
        if !table.rows.is_empty() {
            self.tables.push(table);
        }
    }

    /// The page, as HTML.
    pub fn finish(&self, origin: &Origin) -> String {
        let body = html! {
            @for sentence in &self.sentences { p { (sentence) } }
            @if !self.plots.is_empty() {
                section {
                    h2 { "Over time" }
                    div.plots { @for plot in &self.plots { (charts::lines(plot)) } }
                }
            }
            @for table in &self.tables { (section(table)) }
        };
        page(&self.title, origin, body)
    }
}

fn section(of: &RunTable) -> Markup {
    let rows: Vec<Vec<Cell>> =
        of.rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    html! {
        section {
            h2 { (of.title) }
            @if !of.note.is_empty() { p { (of.note) } }
            (table(&of.header, &rows))
        }
    }
}

fn cell(text: &str) -> Cell {
    if text.parse::<f64>().is_ok() { Cell::number(text) } else { Cell::from(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::{Series, Shade};

    #[test]
    fn what_is_empty_is_left_out_and_names_are_escaped() {
        let mut page = RunPage::new("<sh>");
        page.add_sentence("a & b");
        page.add_table(RunTable { title: "nothing".into(), ..RunTable::default() });
        let series = |points: Vec<(f64, f64)>| Series {
            name: "resident".into(),
            shade: Shade::Model,
            points,
        };
        let plot =
            |series| Lines { title: "Memory, MiB".into(), moments: "s", series: vec![series] };
        page.add_plot(plot(series(vec![(0.0, 1.0)])));
        let origin = Origin { command: "nearpage run".into(), seed: "none".into() };
        let text = page.finish(&origin);
        assert!(text.contains("&lt;sh&gt;") && text.contains("a &amp; b"), "{text}");
        assert!(!text.contains("nothing") && !text.contains("<svg"), "{text}");
        page.add_plot(plot(series(vec![(0.0, 1.0), (1.0, 3.0)])));
        let text = page.finish(&origin);
        assert!(text.contains("<svg") && text.contains("Memory, MiB"), "{text}");
    }
}
