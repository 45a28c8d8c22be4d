//! A page of sections of text.

use maud::html;

use super::page::{Origin, page};

/// The page: each section has a heading, and lines that keep their columns.
pub fn text_page(title: &str, origin: &Origin, sections: &[(&str, String)]) -> String {
    let body = html! {
        @for (heading, lines) in sections {
            h2 { (heading) }
            div.scroll tabindex="0" { pre { (lines) } }
        }
    };
    page(title, origin, body)
}
