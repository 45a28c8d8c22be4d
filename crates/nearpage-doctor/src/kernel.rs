//! Settings of the kernel: `Documentation/admin-guide/sysctl/vm.rst`, `kernel.rst` and
//! `mm/transhuge.rst`, 6.12.

use crate::facts::Facts;
use crate::finding::Finding;

/// A rule about one setting; `None` if the setting is unknown.
type Rule = fn(&Facts) -> Option<Finding>;

pub(super) const RULES: [Rule; 7] = [
    numa_balancing,
    zone_reclaim_mode,
    huge_pages,
    huge_page_defrag,
    overcommit,
    pagesets,
    max_map_count,
];

/// The kernel's default for `vm.max_map_count`.
const MAX_MAP_COUNT_DEFAULT: u64 = 65530;

fn numa_balancing(facts: &Facts) -> Option<Finding> {
    let check = "kernel.numa_balancing";
    let value = facts.numa_balancing?;
    Some(match value {
        0 => Finding::good(check, value, "pages stay on the node that they were allocated on"),
        _ if !facts.has_many_nodes() => {
            Finding::good(check, value, "there is one node, so nothing to move pages between")
        }
        _ if value & 1 == 0 => Finding::note(
            check,
            value,
            "hot pages of slow nodes are moved to fast ones, so a pool that placed them itself loses its \
             placement",
        )
        .advise("bind such pools strictly, or `sysctl kernel.numa_balancing=0`"),
        _ => Finding::problem(
            check,
            value,
            "the kernel unmaps pages to see who uses them, and moves them: faults of up to milliseconds in \
             memory that is not bound, and placement by an allocator undone",
        )
        .advise("`sysctl kernel.numa_balancing=0`; memory that mbind bound is left alone"),
    })
}

fn zone_reclaim_mode(facts: &Facts) -> Option<Finding> {
    let check = "vm.zone_reclaim_mode";
    let value = facts.zone_reclaim_mode?;
    Some(match value {
        0 => Finding::good(check, value, "a full node falls back to the next one without a wait"),
        _ if !facts.has_many_nodes() => {
            Finding::good(check, value, "there is one node, so no other to stay away from")
        }
        _ => Finding::problem(
            check,
            value,
            "a fault on a full node reclaims there first, although others have free memory: stalls while \
             memory is brought in",
        )
        .advise("`sysctl vm.zone_reclaim_mode=0`"),
    })
}

fn huge_pages(facts: &Facts) -> Option<Finding> {
    let check = "transparent_hugepage/enabled";
    let value = facts.huge_pages.as_deref()?;
    Some(match value {
        "madvise" => {
            Finding::good(check, value, "huge pages where a program asks for them, and nowhere else")
        }
        "never" => Finding::note(
            check,
            value,
            "a large pool has only small pages: more misses of the TLB, and first touches take longer",
        )
        .advise("`echo madvise` into it, or ask for explicit huge pages (vm.nr_hugepages)"),
        _ => Finding::note(
            check,
            value,
            "the first touch of a page may bring 2 MiB, and memory given back in smaller pieces may come \
             back as a whole: the footprint is larger than what is used",
        )
        .advise("`echo madvise` into it, and ask where huge pages help"),
    })
}

fn huge_page_defrag(facts: &Facts) -> Option<Finding> {
    let check = "transparent_hugepage/defrag";
    let value = facts.huge_page_defrag.as_deref()?;
    Some(match value {
        "always" => Finding::problem(
            check,
            value,
            "a first touch waits until the kernel has made a huge page by reclaim and compaction: stalls of \
             milliseconds",
        )
        .advise("`echo madvise` into it, or `defer+madvise`"),
        _ => Finding::good(check, value, "programs that did not ask for huge pages do not wait for them"),
    })
}

fn overcommit(facts: &Facts) -> Option<Finding> {
    let check = "vm.overcommit_memory";
    let value = facts.overcommit_memory?;
    Some(match value {
        2 => Finding::note(
            check,
            value,
            "memory counts against the commit limit when it is brought online, touched or not; addresses \
             that are only reserved do not",
        )
        .advise("bring memory online in steps, or raise vm.overcommit_ratio"),
        _ => Finding::good(check, value, "memory that is not touched costs nothing"),
    })
}

fn pagesets(facts: &Facts) -> Option<Finding> {
    let check = "vm.percpu_pagelist_high_fraction";
    let value = facts.percpu_pagelist_high_fraction?;
    Some(match value {
        0 => Finding::good(
            check,
            value,
            "the kernel's own pagesets have their usual size, and find it themselves since 6.7",
        ),
        _ => Finding::note(
            check,
            value,
            format!(
                "the kernel's pagesets hold up to 1/{value} of each zone, shared by its CPUs, and do not \
                 tune themselves: first touches are cheaper, idle caches larger"
            ),
        )
        .advise("`sysctl vm.percpu_pagelist_high_fraction=0` unless a measurement says otherwise"),
    })
}

fn max_map_count(facts: &Facts) -> Option<Finding> {
    let check = "vm.max_map_count";
    let value = facts.max_map_count?;
    Some(match value {
        MAX_MAP_COUNT_DEFAULT.. => {
            Finding::good(check, value, "room for a mapping of each range that is bound or advised")
        }
        _ => Finding::note(
            check,
            value,
            "each range with a binding or an advice of its own is a mapping: growing in small pieces may \
             be refused",
        )
        .advise(format!("`sysctl vm.max_map_count={MAX_MAP_COUNT_DEFAULT}`, the kernel's default")),
    })
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;

    use super::*;
    use crate::finding::Level::{self, Good, Note, Problem};

    fn facts(nodes: u32) -> Facts {
        let mut tree = MemoryTree::new("box");
        for node in 0..nodes {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.insert(format!("{folder}/cpulist"), node.to_string());
            tree.insert(format!("{folder}/meminfo"), format!("Node {node} MemTotal: 4096 kB"));
        }
        Facts::read(&tree)
    }

    /// The level of a rule on machines with one and with two nodes.
    fn levels(rule: Rule, set: impl Fn(&mut Facts)) -> [Level; 2] {
        [1, 2].map(|nodes| {
            let mut facts = facts(nodes);
            assert_eq!(rule(&facts), None, "what is unknown is not judged");
            set(&mut facts);
            rule(&facts).unwrap().level
        })
    }

    #[test]
    fn settings_between_nodes_matter_where_there_are_several() {
        let balancing =
            |value| levels(numa_balancing, move |facts| facts.numa_balancing = Some(value));
        assert_eq!(balancing(0), [Good, Good]);
        assert_eq!(balancing(1), [Good, Problem]);
        assert_eq!(balancing(2), [Good, Note]);
        assert_eq!(balancing(3), [Good, Problem]);
        let reclaim =
            |value| levels(zone_reclaim_mode, move |facts| facts.zone_reclaim_mode = Some(value));
        assert_eq!((reclaim(0), reclaim(1)), ([Good, Good], [Good, Problem]));
    }

    #[test]
    fn a_machine_that_cannot_be_read_may_have_several_nodes() {
        let facts = Facts { machine: None, numa_balancing: Some(1), ..facts(1) };
        assert_eq!(numa_balancing(&facts).unwrap().level, Problem);
    }

    #[test]
    fn the_other_settings_matter_everywhere() {
        let huge = |word: &str| levels(huge_pages, |facts| facts.huge_pages = Some(word.into()))[0];
        assert_eq!(["always", "madvise", "never"].map(huge), [Note, Good, Note]);
        let defrag = |word: &str| {
            levels(huge_page_defrag, |facts| facts.huge_page_defrag = Some(word.into()))[0]
        };
        assert_eq!(["always", "madvise", "defer+madvise"].map(defrag), [Problem, Good, Good]);
        let commit =
            |value| levels(overcommit, move |facts| facts.overcommit_memory = Some(value))[0];
        assert_eq!([0, 1, 2].map(commit), [Good, Good, Note]);
        let fraction = |value| {
            levels(pagesets, move |facts| {
                facts.percpu_pagelist_high_fraction = Some(value);
            })[0]
        };
        assert_eq!([0, 8].map(fraction), [Good, Note]);
        let maps = |value| levels(max_map_count, move |facts| facts.max_map_count = Some(value))[0];
        assert_eq!([1 << 20, 65530, 1000].map(maps), [Good, Good, Note]);
    }
}
