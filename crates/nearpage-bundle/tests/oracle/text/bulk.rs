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
    /// A request near the low mark, before which so many pages were to be left in the zone.
    Low { goal: u64, low: Low },
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
        "BULK_LOW" => {
            // What CPUs have not added to the counter yet is the same before and after.
            let free_before = line.counter("free_before")?;
            let taken = line.signed("exact_before")? - line.signed("free_after")?;
            let low = Low {
                free_before,
                pages: line.number("n")?,
                got: line.number("got")?,
                in_zone: line.number("in_zone")?,
                free_after: free_before.saturating_add_signed(-taken),
                cached: line.number("pcp_after")?,
            };
            Ok(Entry::Low { goal: line.counter("target")?, low })
        }
        _ => line.unknown(),
    }
}

mod tests {
    use super::*;

    #[test]
    fn counters_below_zero_read_as_nothing() {
        let low = |before: i64| {
            let counters = format!("free_before={before} exact_before=40 target=-3 free_after=10");
            match entry(Line(&format!("BULK_LOW n=9 in_zone=9 got=9 {counters} pcp_after=21"))) {
                Ok(Entry::Low { goal, low }) => [goal, low.free_before, low.free_after],
                _ => panic!("a request near the low mark"),
            }
        };
        assert_eq!(low(38), [0, 38, 8]);
        assert_eq!(low(-2), [0, 0, 0]);
    }
}
