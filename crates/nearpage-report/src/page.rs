//! The frame of a page: head, style sheet, origin, tables.

use std::ffi::OsString;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use nearpage_machine::escaped;

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
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    dl.origin {
                        dt { "command" } dd { code { (origin.command) } }
                        dt { "seed" } dd { (origin.seed) }
                        dt { "made by" } dd { "nearpage " (env!("CARGO_PKG_VERSION")) }
                    }
                }
                main { (body) }
            }
        }
    };
    // Nothing in the page's source commands a terminal that shows it.
    escaped(&page.into_string()).into_owned()
}

/// A table in a box of its own, which scrolls if the page is narrow.
pub(super) fn table<H: AsRef<str>>(header: &[H], rows: &[Vec<Cell>]) -> Markup {
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
                    @for row in rows {
                        tr { @for cell in row { td class=[cell.class] { (cell.text) } } }
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

const STYLE: &str = include_str!("report.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_given_to_a_shell_again() {
        let words = ["/some/where/nearpage", "lab", "my file.toml", "--seed", "7"];
        let origin = Origin::new(words.map(OsString::from), "7".into());
        assert_eq!(origin.command, "nearpage lab 'my file.toml' --seed 7");
    }

    #[test]
    fn cells_are_escaped() {
        let table = table(&["<h>"], &[vec![Cell::from("<script>&")]]).into_string();
        assert!(table.contains("&lt;script&gt;&amp;") && table.contains("&lt;h&gt;"), "{table}");
    }
}
