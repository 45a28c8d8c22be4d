//! What is on the screen, and what keys and the mouse change of it. Nothing here knows a terminal.

mod overlay;

use ratatui::Frame;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::panes::{self, Chosen, first_group, mark_line};
use crate::shown::{Pane, Shown};
use crate::table::{Item, Table};
use crate::words::{clock, date, printable};
use overlay::Overlay;

/// What of it is visible.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    pane: Pane,
    chosen: Chosen,
    /// Whether `g` was pressed: until then, the machine's size decides.
    has_grouped: bool,
    /// Nodes of the last sample, for the keys that go through them.
    nodes: Vec<u32>,
    panes: usize,
    cursor: Cursor,
    is_paused: bool,
    overlay: Overlay,
    drawn: Drawn,
}

/// The row that is selected.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cursor {
    at: usize,
    item: Item,
    /// Rows above the screen.
    above: usize,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { at: 0, item: Item::Nothing, above: 0 }
    }
}

/// Where things were drawn last, for the mouse.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Drawn {
    rows: Rect,
    all: usize,
    tabs: Vec<(u16, u16)>,
}

/// What a key or a click asks of whoever has the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Asked {
    /// To end.
    Quit,
    /// A longer interval, or to play faster.
    Plus,
    /// A shorter interval, or to play slower.
    Minus,
    /// To draw anew.
    Redraw,
    /// To go this many samples back or forth, where a recording is played.
    Seek(i64),
    /// To go to the next moment at which something begins to be wrong, or to the one before.
    NextMark,
    /// The other way.
    LastMark,
    /// To read the placement of this process, also if it takes long.
    Process(u32),
    /// To read free blocks by type.
    Types,
    /// To give the terminal back and stop the process.
    Stop,
}

/// Samples of a long step and of a longer one.
const STEP: i64 = 10;
const LONG_STEP: i64 = 60;

impl View {
    /// Whether samples are to be left as they are.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The pane on the screen.
    pub fn pane(&self) -> Pane {
        self.pane
    }

    /// Presses a key that is a character.
    pub fn press(&mut self, key: char) -> Asked {
        self.key(KeyCode::Char(key))
    }

    /// Takes a key, a click, or another size of the terminal.
    pub fn handle(&mut self, event: &Event) -> Asked {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => Asked::Redraw,
            Event::Key(key) => {
                let is_long = key.modifiers.contains(KeyModifiers::SHIFT);
                match key.code {
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        Asked::Quit
                    }
                    KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        Asked::Stop
                    }
                    KeyCode::Left if is_long => Asked::Seek(-LONG_STEP),
                    KeyCode::Right if is_long => Asked::Seek(LONG_STEP),
                    code => self.key(code),
                }
            }
            Event::Mouse(mouse) => {
                let at = Position { x: mouse.column, y: mouse.row };
                match mouse.kind {
                    MouseEventKind::ScrollDown => self.move_by(3),
                    MouseEventKind::ScrollUp => self.move_by(-3),
                    MouseEventKind::Down(MouseButton::Left) => return self.click(at),
                    _ => {}
                }
                Asked::Redraw
            }
            // Another size is drawn like another sample.
            _ => Asked::Redraw,
        }
    }

    fn key(&mut self, key: KeyCode) -> Asked {
        match key {
            KeyCode::Char('q' | 'Q') => return Asked::Quit,
            KeyCode::Char('+') => return Asked::Plus,
            KeyCode::Char('-') => return Asked::Minus,
            KeyCode::Left => return Asked::Seek(-STEP),
            KeyCode::Right => return Asked::Seek(STEP),
            KeyCode::Char(',') => return Asked::Seek(-1),
            KeyCode::Char('.') => return Asked::Seek(1),
            KeyCode::Char('[') => return Asked::Seek(-LONG_STEP),
            KeyCode::Char(']') => return Asked::Seek(LONG_STEP),
            KeyCode::Char('{') => return Asked::Seek(i64::MIN),
            KeyCode::Char('}') => return Asked::Seek(i64::MAX),
            KeyCode::Char('m') => return Asked::NextMark,
            KeyCode::Char('M') => return Asked::LastMark,
            KeyCode::Enter => return self.open_details(),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.overlay = self.overlay.toggled(Overlay::help()),
            KeyCode::Esc => self.overlay = Overlay::default(),
            KeyCode::Char(digit @ '1'..='7') => self.open(digit as usize - '1' as usize),
            KeyCode::Tab => self.open((self.at() + 1) % self.panes.max(1)),
            KeyCode::BackTab => {
                let panes = self.panes.max(1);
                self.open((self.at() + panes - 1) % panes);
            }
            KeyCode::Char('n') => self.choose_node(1),
            KeyCode::Char('N') => self.choose_node(self.nodes.len()),
            KeyCode::Char('a') => self.chosen.node = None,
            KeyCode::Char('s') => self.chosen.order = self.chosen.order.wrapping_add(1),
            KeyCode::Char('g') => {
                (self.chosen.group, self.has_grouped) = (self.chosen.group.wrapping_add(1), true);
            }
            KeyCode::Up => self.move_by(-1),
            KeyCode::Down => self.move_by(1),
            KeyCode::PageUp => self.move_by(-self.page()),
            KeyCode::PageDown => self.move_by(self.page()),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            _ => {}
        }
        Asked::Redraw
    }

    fn page(&self) -> isize {
        isize::from(self.drawn.rows.height.max(2) as i16) - 1
    }

    fn at(&self) -> usize {
        Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0)
    }

    fn open(&mut self, at: usize) {
        if at < self.panes.max(1) && Pane::ALL[at] != self.pane {
            (self.pane, self.cursor) = (Pane::ALL[at], Cursor::default());
            (self.chosen.order, self.chosen.group, self.has_grouped) = (0, 0, false);
        }
        self.overlay = Overlay::default();
    }

    /// All nodes and none are a ring: `by` steps on.
    fn choose_node(&mut self, by: usize) {
        let at =
            self.chosen.node.and_then(|node| self.nodes.iter().position(|other| *other == node));
        let next = (at.map_or(0, |at| at + 1) + by) % (self.nodes.len() + 1);
        self.chosen.node = next.checked_sub(1).map(|at| self.nodes[at]);
        self.cursor = Cursor::default();
    }

    fn move_by(&mut self, rows: isize) {
        if self.overlay.is_open() {
            self.overlay.scroll(rows);
            return;
        }
        self.cursor.at = self.cursor.at.saturating_add_signed(rows);
        // It is another row, and not the one that moved.
        self.cursor.item = Item::Nothing;
    }

    fn click(&mut self, at: Position) -> Asked {
        if self.overlay.is_open() {
            self.overlay = Overlay::default();
            return Asked::Redraw;
        }
        if at.y == 0 {
            let tab =
                self.drawn.tabs.iter().position(|(begin, end)| (*begin..*end).contains(&at.x));
            tab.into_iter().for_each(|tab| self.open(tab));
        } else if self.drawn.rows.contains(at) {
            let row = self.cursor.above + usize::from(at.y - self.drawn.rows.y);
            if row < self.drawn.all {
                if row == self.cursor.at {
                    return self.open_details();
                }
                (self.cursor.at, self.cursor.item) = (row, Item::Nothing);
            }
        }
        Asked::Redraw
    }

    fn open_details(&mut self) -> Asked {
        if self.overlay.is_open() {
            self.overlay = Overlay::default();
            return Asked::Redraw;
        }
        let item = self.cursor.item.clone();
        let asked = match item {
            Item::Process(pid) => Asked::Process(pid),
            Item::Blocks(..) => Asked::Types,
            _ => Asked::Redraw,
        };
        self.overlay = Overlay::details(item);
        asked
    }

    /// Draws what is shown, on a screen of any size.
    pub fn draw(&mut self, frame: &mut Frame<'_>, shown: &Shown<'_>) {
        let area = frame.area();
        self.follow(shown, area.width);
        // Marks get what they need, up to a third; the line of status goes first where there is no room.
        let marks = (shown.marks.len().max(1) as u16).min(area.height / 3);
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(u16::from(area.height >= 8)),
            Constraint::Min(1),
            Constraint::Length(marks),
        ]);
        let [head, status, body, foot] = areas.areas(area);
        frame.render_widget(Paragraph::new(self.head(shown)).style(reversed()), head);
        frame.render_widget(Paragraph::new(self.status(shown)), status);
        self.draw_pane(frame, body, shown);
        frame.render_widget(Paragraph::new(mark_lines(shown, marks)), foot);
        self.overlay.draw(frame, shown);
    }

    /// Nodes and panes that came or went.
    fn follow(&mut self, shown: &Shown<'_>, width: u16) {
        self.nodes.clear();
        self.nodes.extend(shown.now.nodes.iter().map(|node| node.node));
        if self.chosen.node.is_some_and(|node| !self.nodes.contains(&node)) {
            self.chosen.node = None;
        }
        self.panes = shown.panes().len();
        if self.at() >= self.panes {
            self.open(0);
        }
        if !self.has_grouped {
            self.chosen.group = first_group(shown);
        }
        self.chosen.width = usize::from(width);
    }

    fn head(&mut self, shown: &Shown<'_>) -> String {
        let mut head = String::new();
        self.drawn.tabs.clear();
        for (at, pane) in shown.panes().iter().enumerate() {
            let begin = head.len() as u16;
            head += &match *pane == self.pane {
                true => format!("[{} {}]", at + 1, pane.name()),
                false => format!(" {} {} ", at + 1, pane.name()),
            };
            self.drawn.tabs.push((begin, head.len() as u16));
        }
        // Seven panes and this are as wide as a terminal of 80 columns.
        head += if head.ends_with(']') { " ? keys" } else { "? keys" };
        head
    }

    fn status(&self, shown: &Shown<'_>) -> String {
        let (day, second) = (date(shown.now.time_ms), clock(shown.now.time_ms));
        let mut words = vec![format!("{day} {second} UTC")];
        if self.is_paused {
            words.push("paused".into());
        }
        if !shown.status.is_empty() {
            words.push(printable(shown.status));
        }
        words.extend(self.chosen.node.map(|node| format!("node {node} only")));
        let choice = panes::choice(self.pane, shown, self.chosen);
        words.extend(Some(choice).filter(|choice| !choice.is_empty()));
        words.extend(match shown.now.unreadable.len() {
            0 => None,
            1 => Some("1 file not readable".into()),
            files => Some(format!("{files} files not readable")),
        });
        words.push(printable(shown.source));
        words.join("  ")
    }

    fn draw_pane(&mut self, frame: &mut Frame<'_>, area: Rect, shown: &Shown<'_>) {
        let table = panes::table(self.pane, shown, self.chosen);
        let room = usize::from(area.height.saturating_sub(1));
        self.place_cursor(&table, room);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled(table.heading.clone(), bold)];
        let first = self.cursor.above;
        for at in (first..table.rows).take(room) {
            let style = if at == self.cursor.at { reversed() } else { Style::new() };
            lines.push(Line::styled(printable(&(table.line)(at)), style));
        }
        if table.rows == 0 {
            lines.push(Line::raw(match shown.now.unreadable.first() {
                Some(why) => printable(why),
                None => "the kernel, or the copy, does not tell".into(),
            }));
        }
        let below = table.rows.saturating_sub(first + room);
        if below > 0 && lines.len() > 1 {
            let last = lines.len() - 1;
            // The selected row is never behind this.
            if first + last - 1 != self.cursor.at {
                lines[last] = Line::raw(format!("and {} more below", below + 1));
            }
        }
        self.drawn.all = table.rows;
        self.drawn.rows = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// The selected row stays on the screen and what it was, also when rows come, go, and change places.
    fn place_cursor(&mut self, table: &Table<'_>, room: usize) {
        let cursor = &mut self.cursor;
        if let Some(at) = table.find(&cursor.item, cursor.at) {
            cursor.at = at;
        }
        cursor.at = cursor.at.min(table.rows.saturating_sub(1));
        cursor.item = if table.rows == 0 { Item::Nothing } else { (table.item)(cursor.at) };
        // A line below the selected row says what follows.
        let follows = usize::from(room > 2 && cursor.at + 1 < table.rows);
        let above = cursor.above.min(cursor.at).max((cursor.at + 1 + follows).saturating_sub(room));
        cursor.above = above.min(table.rows.saturating_sub(room.max(1)));
    }
}

pub(crate) fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn mark_lines(shown: &Shown<'_>, room: u16) -> Vec<Line<'static>> {
    if shown.marks.is_empty() {
        return vec![Line::raw(match shown.now.zones.is_empty() {
            true => "not known what is wrong: there are no zones",
            false => "nothing is wrong",
        })];
    }
    let room = usize::from(room);
    let marks = shown.marks.iter().take(room);
    let mut lines: Vec<Line<'static>> =
        marks.map(|mark| Line::raw(printable(&mark_line(shown, mark)))).collect();
    if let Some(last) = lines.last_mut().filter(|_| shown.marks.len() > room) {
        *last = Line::raw(format!("! and {} more", shown.marks.len() - room + 1));
    }
    lines
}
