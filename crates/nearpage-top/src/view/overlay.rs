//! What lies over a pane: the keys, or all that is known of a row.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use super::reversed;
use crate::details;
use crate::shown::Shown;
use crate::table::Item;
use crate::words::printable;

const HELP: [&str; 20] = [
    "1 to 7, Tab    a pane; a click on its name too",
    "up, down       selects a row; PgUp, PgDn, Home, End; the mouse too",
    "Enter          all that is known of the row; a second click too",
    "n N a          rows of the next node, of the one before, of all",
    "s              sorts: processes by memory, faults, id, name;",
    "               zones by what is free above low",
    "g              groups pagesets: each, by zone, by CPU",
    "space          pauses and goes on",
    "+ -            a longer or a shorter interval; plays faster, slower",
    "?              this; Esc closes",
    "q              ends",
    "",
    "A recording (--play):",
    "left, right    ten samples; with Shift or [ ] sixty; , . one",
    "{ }            the first and the last sample",
    "m M            the next thing that begins to be wrong, the last",
    "",
    "zones: = is free, | are min, low and high. The lines at the bottom",
    "say what is wrong: Enter on them in events tells more, and the",
    "book has a section for each word (Marks of nearpage top).",
];

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Overlay {
    over: Over,
    /// Lines above it.
    above: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Over {
    #[default]
    Nothing,
    Help,
    Details(Item),
}

impl Overlay {
    pub(super) fn help() -> Overlay {
        Overlay { over: Over::Help, above: 0 }
    }

    pub(super) fn details(item: Item) -> Overlay {
        Overlay { over: Over::Details(item), above: 0 }
    }

    /// The other, or none if it is the other.
    pub(super) fn toggled(&self, other: Overlay) -> Overlay {
        if self.over == other.over { Overlay::default() } else { other }
    }

    pub(super) fn is_open(&self) -> bool {
        self.over != Over::Nothing
    }

    pub(super) fn scroll(&mut self, lines: isize) {
        self.above = self.above.saturating_add_signed(lines);
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, shown: &Shown<'_>) {
        let lines: Vec<String> = match &self.over {
            Over::Nothing => return,
            Over::Help => HELP.map(String::from).into(),
            Over::Details(item) => details::of(shown, item),
        };
        let screen = frame.area();
        let widest = lines.iter().map(String::len).max().unwrap_or(0).max(40) as u16;
        let width = widest.saturating_add(2).min(screen.width);
        let height = (lines.len() as u16).saturating_add(2).min(screen.height);
        let area =
            Rect { x: (screen.width - width) / 2, y: (screen.height - height) / 2, width, height };
        let room = usize::from(height.saturating_sub(2)).max(1);
        self.above = self.above.min(lines.len().saturating_sub(room));
        let shown = lines.iter().skip(self.above).take(room);
        let shown = shown.map(|line| Line::raw(format!(" {}", printable(line))));
        frame.render_widget(Clear, area);
        let lines: Vec<Line<'_>> = [Line::raw("")].into_iter().chain(shown).collect();
        frame.render_widget(Paragraph::new(lines).style(reversed()), area);
    }
}
