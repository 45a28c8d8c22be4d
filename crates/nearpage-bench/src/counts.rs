//! What moving pages takes of what all CPUs share: holds of zone locks, and writes to shared words of a zone.

use nearpage_linux::Memory;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The line of `vmstat` that counts writes to words of a zone that all CPUs share: its counter, its index, its bits of whole
/// pageblocks. Rules that count none have no such line: then the figure is unknown.
const SHARED_WRITES: &str = "zone_shared_writes";
/// The line that counts how often a zone's lock was taken.
const ZONE_LOCKS: &str = "zone_lock_acquisitions";

/// A memory's own counts, from its beginning on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    pages: u64,
    zone_locks: u64,
    shared_writes: Option<u64>,
}

impl Counters {
    /// Reads the counters.
    pub fn of(memory: &Memory) -> Self {
        Self::parse(&memory.vmstat())
    }

    fn parse(vmstat: &str) -> Self {
        let counters = || {
            let pairs = vmstat.lines().filter_map(|line| line.split_once(' '));
            pairs.filter_map(|(name, value)| Some((name, value.parse::<u64>().ok()?)))
        };
        let count = |wanted| counters().find(|(name, _)| *name == wanted).map(|(_, count)| count);
        let moves = |name: &str| name.starts_with("pgalloc_") || name == "pgfree";
        Self {
            pages: counters().filter(|(name, _)| moves(name)).map(|(_, count)| count).sum(),
            zone_locks: count(ZONE_LOCKS).unwrap_or(0),
            shared_writes: count(SHARED_WRITES),
        }
    }

    /// What was counted since; `None` if no page moved.
    pub fn since(self, before: Self) -> Option<Moves> {
        let pages = self.pages - before.pages;
        (pages > 0).then(|| Moves {
            pages,
            zone_locks: self.zone_locks - before.zone_locks,
            shared_writes: self
                .shared_writes
                .zip(before.shared_writes)
                .map(|(now, then)| now - then),
        })
    }
}

/// What some pages took that moved, an allocation and a free each for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Moves {
    /// Pages that were allocated, and pages that were freed.
    pub pages: u64,
    /// Times that a zone's lock was taken.
    pub zone_locks: u64,
    /// Writes to words of a zone that all CPUs share; `None` if its rules do not count them.
    pub shared_writes: Option<u64>,
}

impl Moves {
    /// Holds of zone locks for 1000 pages.
    pub fn zone_locks_per_1000_pages(&self) -> f64 {
        self.per_1000_pages(self.zone_locks)
    }

    /// Writes to shared words for 1000 pages, if they are counted.
    pub fn shared_writes_per_1000_pages(&self) -> Option<f64> {
        self.shared_writes.map(|writes| self.per_1000_pages(writes))
    }

    fn per_1000_pages(&self, count: u64) -> f64 {
        1000.0 * count as f64 / self.pages as f64
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            zone_locks: self.zone_locks + other.zone_locks,
            shared_writes: self.shared_writes.zip(other.shared_writes).map(|(a, b)| a + b),
        }
    }
}

impl Serialize for Moves {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = |figure: f64| (figure * 1000.0).round() / 1000.0;
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("pages_moved", &self.pages)?;
        map.serialize_entry(
            "zone_locks_per_1000_pages",
            &rounded(self.zone_locks_per_1000_pages()),
        )?;
        map.serialize_entry(
            "shared_writes_per_1000_pages",
            &self.shared_writes_per_1000_pages().map(rounded),
        )?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearpage::Model;

    #[test]
    fn counts_are_of_all_zones_and_for_1000_pages() {
        let vmstat = "nr_free_pages 7\npgalloc_normal 1500\npgalloc_movable 500\npgfree 2000\n\
                      zone_lock_acquisitions 6\nzone_lock_most_pages 64\n";
        let none = Counters::parse("pgalloc_normal 0\n");
        let moves = Counters::parse(vmstat).since(none).unwrap();
        assert_eq!((moves.pages, moves.zone_locks_per_1000_pages()), (4000, 1.5));
        assert_eq!(moves.shared_writes_per_1000_pages(), None, "nobody counts them");
        assert_eq!(none.since(none), None);
    }

    #[test]
    fn writes_to_shared_words_are_counted_where_rules_count_them() {
        let of = |writes: u64, pages: u64| {
            Counters::parse(&format!("pgfree {pages}\n{SHARED_WRITES} {writes}\n"))
        };
        let moves = of(12, 3000).since(of(2, 1000)).unwrap();
        assert_eq!(moves.shared_writes_per_1000_pages(), Some(5.0));
        assert_eq!(moves.and(moves).shared_writes, Some(20));
        let unknown = Moves { shared_writes: None, ..moves };
        assert_eq!(moves.and(unknown).shared_writes, None);
        let json = serde_json::to_string(&[moves, unknown]).unwrap();
        let start = "{\"pages_moved\":2000,\"zone_locks_per_1000_pages\":0.0,";
        let key = "\"shared_writes_per_1000_pages\":";
        assert_eq!(json, format!("[{start}{key}5.0}},{start}{key}null}}]"));
    }

    /// The counters keep the names that are looked for here.
    #[test]
    fn a_memory_has_these_counters() {
        let builder = Memory::builder().bytes_per_node(32 << 20).model(Model::LINUX_6_18);
        let memory = builder.build().unwrap();
        let before = Counters::of(&memory);
        drop(memory.alloc_pages(16).unwrap());
        // Order 4 goes to the zone and back.
        let moves = Counters::of(&memory).since(before).unwrap();
        assert_eq!((moves.pages, moves.zone_locks), (32, 2));
    }
}
