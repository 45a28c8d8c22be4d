//! Nodes and CPUs, with more checks than [`read_machine`] has.

use nearpage_machine::FileTree;
use nearpage_machine::sysfs::{SysfsError, TextFile};
use nearpage_machine::{Machine, read_machine};

use nearpage_machine::idlist::format as list;

use crate::reader::Reader;

const NODES: &str = "sys/devices/system/node";
const CPUS_ONLINE: &str = "sys/devices/system/cpu/online";
/// Lists that are never empty. An empty one is refused, and the folders are read in its place.
const LISTS: [&str; 4] = [
    "sys/devices/system/node/online",
    "sys/devices/system/node/possible",
    CPUS_ONLINE,
    "sys/devices/system/cpu/possible",
];

/// The origin of a tree: messages about an empty tree differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// A copy of /sys and /proc.
    Copy,
    /// The machine that runs this.
    ThisMachine,
}

/// The machine, as far as it can be understood.
pub(crate) fn read(reader: &mut Reader<'_>, of: Of) -> Option<Machine> {
    for path in LISTS {
        reader.file(path, not_empty);
    }
    let machine = reader.ask(|tree| {
        read_machine(tree).map_err(|error| match error {
            SysfsError::NoMachine { .. } if of == Of::ThisMachine => SysfsError::NoSysfs,
            other => other,
        })
    })?;
    if cpus(&machine).is_empty() {
        let folder = format!("{NODES}/node{}", machine.nodes[0].id);
        reader.file(&format!("{folder}/cpulist"), no_cpu);
        reader.file(&format!("{folder}/cpumap"), no_cpu);
    }
    Some(machine)
}

/// Files of /proc in which a kernel always writes something.
const NEVER_EMPTY: [&str; 4] =
    ["proc/meminfo", "proc/self/status", "proc/version", "proc/zoneinfo"];

/// Files of single rules, and the names of their checks.
const OF_RULES: [(&str, &str); 8] = [
    ("proc/sys/kernel/numa_balancing", "kernel.numa_balancing"),
    ("proc/sys/vm/zone_reclaim_mode", "vm.zone_reclaim_mode"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "transparent_hugepage/enabled"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "transparent_hugepage/defrag"),
    ("proc/sys/vm/overcommit_memory", "vm.overcommit_memory"),
    ("proc/sys/vm/percpu_pagelist_high_fraction", "vm.percpu_pagelist_high_fraction"),
    ("proc/sys/vm/max_map_count", "vm.max_map_count"),
    ("proc/self/status", "CPUs and nodes allowed"),
];

/// The files that a copy lacks, with the rules that cannot be judged for it. This machine has what its kernel has.
pub(crate) fn unjudged(tree: &dyn FileTree) -> Vec<(&'static str, &'static str)> {
    let is_absent = |path: &str| tree.read(path).is_ok_and(|file| file.is_none());
    OF_RULES.into_iter().filter(|(path, _)| is_absent(path)).collect()
}

/// The files that every machine should have and this one lacks.
pub(crate) fn missing(tree: &dyn FileTree, of: Of, machine: Option<&Machine>) -> Vec<String> {
    let mut missing = Vec::new();
    if tree.names("proc").is_ok_and(|names| names.is_empty()) {
        let expected = match of {
            Of::Copy => "missing, expected a copy of /proc with sys and self/status",
            Of::ThisMachine => "empty, expected proc to be mounted there",
        };
        missing.push(format!("{}: {expected}", tree.display("proc")));
    }
    for path in NEVER_EMPTY {
        if tree.read(path).is_ok_and(|file| file.is_some_and(|text| text.is_empty())) {
            missing.push(format!(
                "{}: empty, as tar leaves files that it takes from /proc itself, expected a copy of its text",
                tree.display(path)
            ));
        }
    }
    let nodes = machine.map_or(&[][..], |machine| &machine.nodes);
    let unknown = nodes.iter().filter(|node| node.memory_bytes.is_none()).map(|node| node.id.0);
    let unknown: Vec<u32> = unknown.collect();
    if !unknown.is_empty() {
        let has_nodes = tree.names(NODES).is_ok_and(|names| !names.is_empty());
        let of_nodes = format!("{NODES}/node[{}]/meminfo", list(&unknown));
        let file = tree.display(if has_nodes { &of_nodes } else { "proc/meminfo" });
        missing.push(format!("{file}: no MemTotal, expected a size in kB"));
    }
    missing
}

/// The CPUs of all nodes, ascending.
pub(super) fn cpus(machine: &Machine) -> Vec<u32> {
    let cpus = machine.nodes.iter().flat_map(|node| &node.cpus);
    let mut cpus: Vec<u32> = cpus.map(|cpu| cpu.0).collect();
    cpus.sort_unstable();
    cpus
}

/// Refuses ids that stand at a line and column of a file, if there are any.
pub(super) fn refuse(
    (file, line, column): (&TextFile, usize, usize),
    ids: &[u32],
    expected: &str,
) -> Result<(), SysfsError> {
    if ids.is_empty() { Ok(()) } else { Err(file.syntax(line, column, &list(ids), expected)) }
}

fn not_empty(file: &TextFile) -> Result<(), SysfsError> {
    match file.ids()?.is_empty() {
        true => Err(file.syntax(1, 1, file.text.trim(), "at least one id, such as 0 or 0-3")),
        false => Ok(()),
    }
}

fn no_cpu(file: &TextFile) -> Result<(), SysfsError> {
    Err(file.syntax(1, 1, file.text.trim(), "an online CPU on this node or on another"))
}

/// Ids for a message.
pub(super) fn shown(ids: &[u32]) -> String {
    if ids.is_empty() { "none".into() } else { list(ids) }
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;

    use super::*;

    /// Nodes 0 and 1 with CPUs 0-1 and 2-3.
    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new("box");
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            let folder = format!("{NODES}/node{node}");
            tree.insert(format!("{folder}/cpulist"), cpus);
            tree.insert(format!("{folder}/meminfo"), format!("Node {node} MemTotal: 4096 kB"));
        }
        tree.insert("proc/meminfo", "\n");
        tree
    }

    /// What is refused of the tree, and the machine.
    fn refused(tree: &MemoryTree) -> (Vec<String>, Option<Machine>) {
        let mut reader = Reader::new(tree);
        let machine = read(&mut reader, Of::Copy);
        (reader.refused().iter().map(ToString::to_string).collect(), machine)
    }

    #[test]
    fn lists_of_nothing_are_refused_and_the_folders_tell() {
        assert_eq!(refused(&tree()).0, [""; 0]);
        for path in LISTS {
            let mut tree = tree();
            tree.insert(path, "\n");
            let expected =
                format!("box: {path}:1:1: found \"\", expected at least one id, such as 0 or 0-3");
            let (refused, machine) = refused(&tree);
            assert_eq!(refused, [expected]);
            assert_eq!(cpus(&machine.unwrap()), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn every_online_cpu_is_on_a_node() {
        let mut tree = tree();
        tree.insert(CPUS_ONLINE, "0-1,3-5\n");
        let (refused, machine) = refused(&tree);
        assert_eq!(refused, [""; 0]);
        assert_eq!(cpus(&machine.unwrap()), [0, 1, 3, 4, 5]);
    }

    #[test]
    fn an_empty_machine_is_no_copy() {
        let tree = MemoryTree::new("/");
        let told = |of| {
            let mut reader = Reader::new(&tree);
            assert_eq!(read(&mut reader, of), None);
            let missing = missing(&tree, of, None);
            let refused = reader.refused().iter().map(ToString::to_string).collect::<Vec<_>>();
            [refused, missing].concat().join("; ")
        };
        assert!(
            told(Of::Copy).contains("a copy of /sys and /proc; /: proc: missing, expected a copy")
        );
        assert_eq!(
            told(Of::ThisMachine),
            "this machine: /sys has no devices/system/node and no devices/system/cpu, expected sysfs to be \
             mounted there; /: proc: empty, expected proc to be mounted there"
        );
    }

    #[test]
    fn some_node_has_a_cpu() {
        let mut tree = tree();
        for node in 0..2 {
            tree.insert(format!("{NODES}/node{node}/cpulist"), "\n");
        }
        let expected = "found \"\", expected an online CPU on this node or on another";
        assert_eq!(refused(&tree).0, [format!("box: {NODES}/node0/cpulist:1:1: {expected}")]);
    }

    #[test]
    fn what_a_copy_lacks_is_named() {
        let absent = |tree: &MemoryTree| missing(tree, Of::Copy, refused(tree).1.as_ref());
        assert_eq!(absent(&tree()), [""; 0]);
        let mut tree = MemoryTree::new("box");
        tree.insert(format!("{NODES}/node0/cpulist"), "0");
        tree.insert(format!("{NODES}/node0/meminfo"), "nothing");
        let expected = [
            "box: proc: missing, expected a copy of /proc with sys and self/status",
            "box: sys/devices/system/node/node[0]/meminfo: no MemTotal, expected a size in kB",
        ];
        assert_eq!(absent(&tree), expected);
        let mut tree = MemoryTree::new("box");
        tree.insert(CPUS_ONLINE, "0");
        tree.insert("proc/meminfo", "nothing");
        let expected = "box: proc/meminfo: no MemTotal, expected a size in kB";
        assert_eq!(absent(&tree), [expected]);
    }
}
