//! What is on the screen, and what keys change of it. Nothing here knows a terminal.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use crate::rows;
use crate::shown::{Pane, Shown};

/// What of it is visible.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    pane: Pane,
    /// Lines of the pane that are above the screen.
    scroll: usize,
    is_paused: bool,
    has_help: bool,
}

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Quit,
    Slower,
    Faster,
    Redraw,
}

const HELP: [&str; 9] = [
    "1 to 5, Tab    nodes, zones, blocks, pagesets, events",
    "up, down       one line; PgUp, PgDn ten; Home the first",
    "space          pauses and goes on",
    "+ -            a longer or shorter interval",
    "?              this",
    "q              ends",
    "",
    "Words at the bottom say what is wrong: the book's page on top",
    "explains each. zones: = is free, | are min, low and high.",
];

impl View {
    /// Whether samples are to be left as they are.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The pane on the screen.
    pub fn pane(&self) -> Pane {
        self.pane
    }

    /// Presses a key that is a character, as a user would; what ends or changes the interval is for [`run`](crate::run).
    pub fn press(&mut self, key: char) {
        self.key(KeyCode::Char(key));
    }

    /// Moves the pane one line up.
    pub fn scroll_down(&mut self) {
        self.key(KeyCode::Down);
    }

    pub(crate) fn key(&mut self, key: KeyCode) -> Asked {
        match key {
            KeyCode::Char('q') | KeyCode::Char('Q') => return Asked::Quit,
            KeyCode::Char('+') => return Asked::Slower,
            KeyCode::Char('-') => return Asked::Faster,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?') | KeyCode::Char('h') => self.has_help = !self.has_help,
            KeyCode::Esc => self.has_help = false,
            KeyCode::Char(digit @ '1'..='5') => self.open(digit as usize - '1' as usize),
            KeyCode::Tab => self.open((self.at() + 1) % Pane::ALL.len()),
            KeyCode::BackTab => self.open((self.at() + Pane::ALL.len() - 1) % Pane::ALL.len()),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        Asked::Redraw
    }

    fn at(&self) -> usize {
        Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0)
    }

    fn open(&mut self, at: usize) {
        (self.pane, self.scroll) = (Pane::ALL[at], 0);
    }

    /// Draws what is shown, on a screen of any size.
    pub fn draw(&self, frame: &mut Frame<'_>, shown: &Shown<'_>) {
        // Marks get what they need, up to a third.
        let height = frame.area().height;
        let marks = (shown.marks.len().max(1) as u16).min(height / 3);
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(marks),
        ]);
        let [head, body, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(shown)).style(reversed()), head);
        self.draw_pane(frame, body, shown);
        frame.render_widget(Paragraph::new(mark_lines(shown, marks)), foot);
        if self.has_help {
            draw_help(frame);
        }
    }

    fn head(&self, shown: &Shown<'_>) -> String {
        let panes = Pane::ALL.iter().enumerate().map(|(at, pane)| match *pane == self.pane {
            true => format!("[{} {}]", at + 1, pane.name()),
            false => format!(" {} {} ", at + 1, pane.name()),
        });
        let paused = if self.is_paused { "  paused" } else { "" };
        format!("{}{paused}  ? keys  {}", panes.collect::<String>(), printable(shown.source))
    }

    fn draw_pane(&self, frame: &mut Frame<'_>, area: Rect, shown: &Shown<'_>) {
        let (heading, rows) = rows::of(self.pane, shown);
        let room = usize::from(area.height.saturating_sub(1));
        // The last line stays on the screen, also when rows vanish.
        let first = self.scroll.min(rows.len().saturating_sub(room));
        let mut lines = vec![Line::styled(heading, Style::new().add_modifier(Modifier::BOLD))];
        lines.extend(rows.iter().skip(first).take(room).map(|row| Line::raw(printable(row))));
        if rows.is_empty() {
            lines.push(Line::raw("the kernel, or the copy, does not tell"));
        } else if let Some(below) = rows.len().checked_sub(first + room).filter(|&below| below > 0)
        {
            let at = lines.len() - 1;
            lines[at] = Line::raw(format!("and {} more below", below + 1));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn mark_lines(shown: &Shown<'_>, room: u16) -> Vec<Line<'static>> {
    if shown.marks.is_empty() {
        return vec![Line::raw("nothing is wrong")];
    }
    let room = usize::from(room);
    let mut lines: Vec<Line<'static>> = shown
        .marks
        .iter()
        .take(room)
        .map(|mark| {
            let place = match (mark.node, &mark.zone) {
                (Some(node), Some(zone)) => format!("node {node} {zone}: "),
                (Some(node), None) => format!("node {node}: "),
                _ => String::new(),
            };
            Line::raw(printable(&format!("! {} {place}{}", mark.word, mark.reason)))
        })
        .collect();
    if let Some(last) = lines.last_mut().filter(|_| shown.marks.len() > room) {
        *last = Line::raw(format!("! and {} more", shown.marks.len() - room + 1));
    }
    lines
}

/// What comes from files of a copy must not command the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

fn draw_help(frame: &mut Frame<'_>) {
    let screen = frame.area();
    let (width, height) = (64.min(screen.width), (HELP.len() as u16 + 2).min(screen.height));
    let area =
        Rect { x: (screen.width - width) / 2, y: (screen.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> =
        [""].into_iter().chain(HELP).map(|line| Line::raw(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).style(reversed()), area);
}
