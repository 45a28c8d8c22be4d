//! The allocator of a process that serves its figures.

use crate::shown::Shown;
use crate::table::{Item, Table};

pub(super) fn table<'a>(shown: &'a Shown<'a>) -> Table<'a> {
    let lines = shown.past.and_then(|past| past.program.as_deref()).unwrap_or_default();
    Table::of(
        "the process's own allocator",
        lines.iter().collect(),
        |line| (*line).clone(),
        |_| Item::Nothing,
    )
}
