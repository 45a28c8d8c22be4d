//! The frame of a page: head, style sheet, origin, tables.

use std::ffi::OsString;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use nearpage_machine::escaped;
use serde::Serialize;

/// Where the figures of a page come from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The command that makes them again, as a shell takes it.
    pub command: String,
    /// What was random, and by which seed.
    pub seed: String,
}

impl Origin {
    /// Of the arguments of this process, the program's own name being the first.
    pub fn new(arguments: impl IntoIterator<Item = OsString>, seed: String) -> Origin {
        let arguments = arguments.into_iter().skip(1);
        let words: Vec<String> =
            arguments.map(|word| word.to_string_lossy().into_owned()).collect();
        let words = ["nearpage"].into_iter().chain(words.iter().map(String::as_str));
        // An argument of a process has no NUL, all that cannot be quoted.
        let command = shlex::try_join(words).unwrap_or_default();
        Origin { command, seed }
    }
}

/// A whole page.
pub(super) fn page(title: &str, origin: &Origin, body: Markup) -> String {
    let body = html! {
        header {
            h1 { (title) }
            dl.origin {
                dt { "command" } dd { code { (origin.command) } }
                dt { "seed" } dd { (origin.seed) }
                dt { "made by" } dd { "nearpage " (env!("CARGO_PKG_VERSION")) }
            }
        }
        main { (body) }
    };
    framed(title, "", &body.into_string())
}

/// A whole page around a body of its own, which is HTML, as are `style`'s rules CSS: who gives them has escaped what is a stranger's.
/// Tables of the body sort. The page asks nobody for anything, and runs no script but its own: the rest is data.
///
/// ```
/// let page = nearpage_report::framed("Two", ".few { color: red; }", "<p class=\"few\">2</p>");
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>Two</title>"));
/// ```
pub fn framed(title: &str, style: &str, body: &str) -> String {
    // Only lines are drawn anew.
    let has_lines = body.contains("<figure class=\"lines\"");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(PLOTS_STYLE)) (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                (PreEscaped(body))
                @if has_lines { script { (PreEscaped(PLOTS)) } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Nothing in the page's source commands a terminal that shows it.
    escaped(&page.into_string()).into_owned()
}

/// What the page's script reads, by its kind.
pub(super) fn data(kind: &str, value: &impl Serialize) -> Markup {
    // Nothing in it ends the element.
    let text = serde_json::to_string(value).unwrap_or_default().replace('<', "\\u003c");
    html! { script type="application/json" data-of=(kind) { (PreEscaped(text)) } }
}

/// A table in a box of its own, which scrolls if the page is narrow. The page's script sorts its rows.
pub(super) fn table<H: AsRef<str>>(header: &[H], rows: &[Vec<Cell>]) -> Markup {
    rows_under(header, rows, false)
}

/// The same, of the points of a sweep, which the page's script finds by their numbers.
pub(super) fn points_table<H: AsRef<str>>(header: &[H], rows: &[Vec<Cell>]) -> Markup {
    rows_under(header, rows, true)
}

fn rows_under<H: AsRef<str>>(header: &[H], rows: &[Vec<Cell>], are_points: bool) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead {
                    tr {
                        @for (at, name) in header.iter().enumerate() {
                            th class=[class_of_column(rows, at)] { (name.as_ref()) }
                        }
                    }
                }
                tbody {
                    @for (at, row) in rows.iter().enumerate() {
                        tr data-point=[are_points.then_some(at)] { @for cell in row { td class=[cell.class] { (cell.text) } } }
                    }
                }
            }
        }
    }
}

/// A heading stands where its figures do.
fn class_of_column(rows: &[Vec<Cell>], at: usize) -> Option<&'static str> {
    let class = rows.first().and_then(|row| row.get(at)).and_then(|cell| cell.class);
    class.filter(|class| *class == NUMBER)
}

const NUMBER: &str = "number";

/// A cell of a table.
pub(super) struct Cell {
    text: String,
    class: Option<&'static str>,
}

impl Cell {
    /// Marked by a class of the style sheet: `good`, `known`, `bad`.
    pub(super) fn marked(text: impl Into<String>, class: &'static str) -> Cell {
        Cell { text: text.into(), class: Some(class) }
    }

    /// A number: to the right.
    pub(super) fn number(text: impl Into<String>) -> Cell {
        Cell::marked(text, NUMBER)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell { text: text.into(), class: None }
    }
}

/// Figures as tables have them: whole from 100 on.
pub(super) fn figure(value: f64) -> String {
    if value.abs() >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

const STYLE: &str = include_str!("script/report.css");
const SCRIPT: &str = include_str!("script/report.js");
/// uPlot 1.6.32: plots of many points in 50 KB, under the MIT license.
const PLOTS: &str = include_str!("script/uPlot.iife.min.js");
const PLOTS_STYLE: &str = include_str!("script/uPlot.min.css");
/// The two scripts, by their hashes.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src \
     'sha256-GcjUxq2Ikpp59K5J1vcWFWbf0Lo9FcxJXpdPeH63jx8=' 'sha256-HAsLySNgClfZF+XMz1gXaqFYi6QrP6Ulv4ofOAW77xs='";

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_command_can_be_given_to_a_shell_again() {
        let words = ["/some/where/nearpage", "lab", "my file.toml", "--seed", "7"];
        let origin = Origin::new(words.map(OsString::from), "7".into());
        assert_eq!(origin.command, "nearpage lab 'my file.toml' --seed 7");
    }

    /// A script that changes needs its new hash here.
    #[test]
    fn the_policy_has_the_scripts_of_the_page() {
        let origin = Origin { command: String::new(), seed: String::new() };
        let page = page("t", &origin, html! { figure.lines {} });
        let scripts: Vec<&str> = page.split("<script>").skip(1).collect();
        assert_eq!(scripts.len(), 2);
        for script in scripts {
            let text = script.split_once("</script>").unwrap().0;
            let hash = BASE64_STANDARD.encode(Sha256::digest(text));
            assert!(POLICY.contains(&format!("'sha256-{hash}'")), "{hash}: {}", &text[..60]);
        }
    }

    #[test]
    fn data_ends_no_element() {
        let text = data("lines", &["</script><script>alert(1)</script>"]).into_string();
        assert_eq!(text.matches('<').count(), 2, "{text}");
        let inside = text.split_once('>').unwrap().1.rsplit_once("</").unwrap().0;
        let read: Vec<String> = serde_json::from_str(inside).unwrap();
        assert_eq!(read, ["</script><script>alert(1)</script>"]);
    }

    #[test]
    fn cells_are_escaped() {
        let table = table(&["<h>"], &[vec![Cell::from("<script>&")]]).into_string();
        assert!(table.contains("&lt;script&gt;&amp;") && table.contains("&lt;h&gt;"), "{table}");
    }
}
