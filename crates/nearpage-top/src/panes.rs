//! The table of each pane.

mod events;
mod memory;
mod pagesets;
mod processes;
mod program;

pub(crate) use events::{mark_line, mark_text};
pub(crate) use memory::{available, distances};
pub(crate) use pagesets::{first_group, traffic_of};
pub(crate) use processes::why_not;

use crate::shown::{Pane, Shown};
use crate::table::Table;

/// What the user chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chosen {
    /// Rows of this node only.
    pub(crate) node: Option<u32>,
    /// How often `s` was pressed.
    pub(crate) order: usize,
    /// How often `g` was pressed.
    pub(crate) group: usize,
    /// Columns of the screen.
    pub(crate) width: usize,
}

impl Chosen {
    fn has(&self, node: u32) -> bool {
        self.node.is_none_or(|chosen| chosen == node)
    }

    /// One of some choices, which take turns.
    fn turn<T: Copy>(turns: usize, choices: &[T]) -> T {
        choices[turns % choices.len()]
    }
}

/// The table of a pane.
pub(crate) fn table<'a>(pane: Pane, shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    match pane {
        Pane::Nodes => memory::nodes(shown, chosen),
        Pane::Zones => memory::zones(shown, chosen),
        Pane::Blocks => memory::blocks(shown, chosen),
        Pane::Pagesets => pagesets::table(shown, chosen),
        Pane::Processes => processes::table(shown, chosen),
        Pane::Events => events::table(shown, chosen),
        Pane::Program => program::table(shown),
    }
}

/// What is chosen, in words for the line of status.
pub(crate) fn choice(pane: Pane, shown: &Shown<'_>, chosen: Chosen) -> String {
    match pane {
        Pane::Zones => memory::choice(chosen),
        Pane::Pagesets => pagesets::choice(shown, chosen),
        Pane::Processes => processes::choice(shown, chosen),
        _ => String::new(),
    }
}
