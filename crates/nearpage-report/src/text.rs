//! A page of plots and sections of text.

use maud::html;

use super::charts::{Scatter, scatter};
use super::page::{Origin, page};

/// The page: each section has a heading, and lines that keep their columns; plots come first.
pub fn text_page(
    title: &str,
    origin: &Origin,
    sections: &[(&str, String)],
    plots: &[Scatter],
) -> String {
    let body = html! {
        @for plot in plots { (scatter(&plot.title, plot.axes, &plot.series)) }
        @for (heading, lines) in sections {
            h2 { (heading) }
            div.scroll tabindex="0" { pre { (lines) } }
        }
    };
    page(title, origin, body)
}
