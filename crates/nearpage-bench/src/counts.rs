//! What nearpage has counted meanwhile: how often zone locks were taken, and for how much at a time.

use nearpage_linux::Memory;
use serde::Serialize;

/// Counts of one memory since it was made: the first round, which does not count for times, is in them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Counts {
    /// Whose.
    pub allocator: &'static str,
    /// Times that a zone's lock was taken to move pages, per 1000 pages allocated.
    pub lock_acquisitions_per_1000_pages: f64,
    /// Most pages that moved in one hold.
    pub most_pages_per_hold: u64,
}

impl Counts {
    /// Reads the counters; `None` if nothing was allocated.
    pub fn of(allocator: &'static str, memory: &Memory) -> Option<Self> {
        Self::parse(allocator, &memory.vmstat())
    }

    fn parse(allocator: &'static str, vmstat: &str) -> Option<Self> {
        let counters = || vmstat.lines().filter_map(|line| line.split_once(' '));
        let sum = |is_wanted: &dyn Fn(&str) -> bool| {
            let wanted = counters().filter(|(name, _)| is_wanted(name));
            wanted.filter_map(|(_, value)| value.parse::<u64>().ok()).sum::<u64>()
        };
        let pages = sum(&|name| name.starts_with("pgalloc_"));
        let acquisitions = sum(&|name| name == "zone_lock_acquisitions");
        (pages > 0).then(|| Self {
            allocator,
            lock_acquisitions_per_1000_pages: 1000.0 * acquisitions as f64 / pages as f64,
            most_pages_per_hold: sum(&|name| name == "zone_lock_most_pages"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearpage::Model;

    #[test]
    fn counts_are_per_page_of_all_zones() {
        let vmstat = "nr_free_pages 7\npgalloc_normal 1500\npgalloc_movable 500\npgfree 9\n\
                      zone_lock_acquisitions 3\nzone_lock_most_pages 64\n";
        let expected = Counts {
            allocator: "nearpage",
            lock_acquisitions_per_1000_pages: 1.5,
            most_pages_per_hold: 64,
        };
        assert_eq!(Counts::parse("nearpage", vmstat), Some(expected));
        assert_eq!(Counts::parse("nearpage", "pgalloc_normal 0\n"), None);
    }

    /// The counters keep the names that are looked for here.
    #[test]
    fn a_memory_has_these_counters() {
        let builder = Memory::builder().bytes_per_node(32 << 20).model(Model::LINUX_6_18);
        let memory = builder.build().unwrap();
        assert_eq!(Counts::of("nearpage", &memory), None);
        drop(memory.alloc_pages(16).unwrap());
        let counts = Counts::of("nearpage", &memory).unwrap();
        // Order 4 goes to the zone and back.
        assert_eq!(counts.lock_acquisitions_per_1000_pages, 2.0 * 1000.0 / 16.0);
        assert_eq!(counts.most_pages_per_hold, 16);
    }
}
