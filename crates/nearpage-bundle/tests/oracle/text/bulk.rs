//! `bulk`: many pages at once.

use crate::fields::{Line, lines};
use crate::text::pcp::{State, Target};

/// One line of the text.
pub enum Entry {
    /// The pageset was drained, and its tuning forgot.
    Reset(State),
    /// A request into an empty array. The pages go back afterwards.
    Bulk { pages: u64, got: u64, after: State },
    /// A request into an array that has entries already. The pages go back afterwards.
    Holes { slots: u64, filled: u64, returned: u64, after: State },
    /// A request near the low mark.
    Low(Low),
}

/// A request near the low mark, for the zone's own node only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Low {
    /// Free pages of the zone before, as the watermark check reads them.
    pub free_before: u64,
    /// Pages asked for.
    pub pages: u64,
    /// Pages given.
    pub got: u64,
    /// Of those, from the zone.
    pub in_zone: u64,
    /// Free pages of the zone after.
    pub free_after: u64,
    /// Pages in the pageset after.
    pub cached: u64,
}

/// Reads a text: the zone under test, and what was done. `None`: the node of the CPU has no memory.
pub fn read(text: &str) -> Result<Option<(Target, Vec<Entry>)>, String> {
    let mut lines = lines(text);
    let Some(first) = lines.next() else { return Ok(None) };
    let target = Target::of(first)?;
    Ok(Some((target, lines.map(entry).collect::<Result<_, _>>()?)))
}

fn entry(line: Line<'_>) -> Result<Entry, String> {
    match line.word() {
        "RESET" => Ok(Entry::Reset(State::of(line)?)),
        "BULK" => Ok(Entry::Bulk {
            pages: line.number("n")?,
            got: line.number("got")?,
            after: State::of(line)?,
        }),
        "BULK_HOLES" => Ok(Entry::Holes {
            slots: line.number("n")?,
            filled: line.number("filled")?,
            returned: line.number("returned")?,
            after: State::of(line)?,
        }),
        "BULK_LOW" => Ok(Entry::Low(Low {
            free_before: line.number("free_before")?,
            pages: line.number("n")?,
            got: line.number("got")?,
            in_zone: line.number("in_zone")?,
            // The number after it has the differences of CPUs added, the one before it has not.
            free_after: line.number("free_after")? + line.number("free_before")?
                - line.number("exact_before")?,
            cached: line.number("pcp_after")?,
        })),
        _ => line.unknown(),
    }
}
