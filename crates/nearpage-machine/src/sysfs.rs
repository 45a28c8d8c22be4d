//! What /sys and /proc say about a machine: nodes, CPUs, distances, memory, caches, settings.
//!
//! Any [`FileTree`] will do: this machine, a copied folder, an archive. Nodes may have any ids, no
//! memory or no CPU. Offline CPUs are left out. A kernel without NUMA, or a container without the
//! folder of nodes, is one node 0 with all CPUs and all memory. Zones, caches and settings may be
//! missing. A file that cannot be understood is an error that names file, line and column.
//!
//! ```
//! use nearpage_machine::{MemoryTree, read_machine};
//!
//! let mut tree = MemoryTree::new("box");
//! tree.insert("sys/devices/system/node/node0/cpulist", "0-3\n");
//! tree.insert("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 4096 kB\n");
//! let machine = read_machine(&tree)?;
//! assert_eq!(machine.nodes[0].cpus.len(), 4);
//! # Ok::<(), nearpage_machine::SysfsError>(())
//! ```

mod cache;
mod error;
mod meminfo;
mod nodes;
mod settings;
mod source;
pub mod zoneinfo;
mod zones;

pub use error::SysfsError;
pub use source::{Source, TextFile, words};

use nearpage::CpuId;

use crate::beneath::page_bytes;
use crate::machine::{Machine, settle_free};
use crate::tree::{FileTree, FolderTree};

/// Reads this machine.
///
/// # Errors
///
/// As [`read_machine`].
pub fn read_this_machine() -> Result<Machine, SysfsError> {
    read(&FolderTree::new("/"), page_bytes()).map_err(|error| match error {
        SysfsError::NoMachine { .. } => SysfsError::NoSysfs,
        other => other,
    })
}

/// Reads the machine that a tree of files describes.
///
/// # Errors
///
/// [`SysfsError`] if a file cannot be read or understood or was cut off, if two nodes have the same CPU or a node has an
/// impossible one, or if the tree has neither nodes nor CPUs. Files of a running kernel may disagree, because it changes
/// between two reads: such disagreements are [notes](crate::Note).
pub fn read_machine(tree: &dyn FileTree) -> Result<Machine, SysfsError> {
    read(tree, None)
}

fn read(tree: &dyn FileTree, page_bytes: Option<u64>) -> Result<Machine, SysfsError> {
    let source = Source::new(tree);
    let mut notes = Vec::new();
    let online_cpus = nodes::online_cpus(&source)?;
    let possible_cpus = nodes::possible_cpus(&source)?;
    let mut nodes =
        nodes::read(&source, online_cpus.as_deref(), possible_cpus.as_deref(), &mut notes)?;
    let distances = nodes::distances(&source, &nodes, &mut notes)?;
    nodes::settle_cpus(&source, &mut nodes, &distances, &mut notes)?;
    nodes::settle_without_node(&source, &mut nodes, online_cpus.as_deref(), &mut notes)?;
    let zones = zones::read(&source, &mut notes)?;
    let page_bytes = page_bytes.unwrap_or_else(|| zones::page_bytes(&nodes, &zones));
    zones::attach_zones(&mut nodes, zones, page_bytes, &mut notes);
    settle_free(&mut nodes, &mut notes);
    let cpus: Vec<_> = nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
    let possible_cpus = possible_cpus.or(online_cpus).unwrap_or_default();
    Ok(Machine {
        possible_nodes: nodes::possible_nodes(&source, &nodes)?,
        possible_cpus: possible_cpus.into_iter().map(CpuId).collect(),
        last_level_caches: cache::read(&source, &cpus)?,
        settings: settings::read(&source)?,
        nodes,
        distances,
        page_bytes,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use nearpage::NodeId;
    use proptest::prelude::*;

    use super::*;
    use crate::machine::{LastLevelCache, Note};
    use crate::tree::MemoryTree;

    const NODES: &str = "sys/devices/system/node";

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        let mut tree = MemoryTree::new("box");
        for (path, content) in files {
            tree.insert(*path, *content);
        }
        tree
    }

    /// A node's folder: CPUs, distances, and memory in kB.
    fn add_node(tree: &mut MemoryTree, id: u32, cpus: &str, distances: &str, kilobytes: u64) {
        let meminfo = format!(
            "Node {id} MemTotal: {kilobytes} kB\nNode {id} MemFree: {} kB\n",
            kilobytes / 2
        );
        tree.insert(format!("{NODES}/node{id}/cpulist"), format!("{cpus}\n"));
        tree.insert(format!("{NODES}/node{id}/distance"), format!("{distances}\n"));
        tree.insert(format!("{NODES}/node{id}/meminfo"), meminfo);
    }

    /// Node 0 with memory, node 8 memoryless, node 252 without CPUs; CPU 5 is offline.
    fn sparse() -> MemoryTree {
        let mut tree = tree(&[
            ("sys/devices/system/node/online", "0,8,252\n"),
            ("sys/devices/system/node/possible", "0-255\n"),
            ("sys/devices/system/cpu/online", "0-4,6-7\n"),
            ("sys/devices/system/cpu/possible", "0-15\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/sys/vm/min_free_kbytes", "67584\n"),
            ("proc/sys/vm/lowmem_reserve_ratio", "256\t256\t32\t0\t0\n"),
        ]);
        add_node(&mut tree, 0, "0-3", "10 40 80", 1 << 20);
        add_node(&mut tree, 8, "4-7", "40 10 80", 0);
        add_node(&mut tree, 252, "", "80 80 10", 1 << 19);
        tree
    }

    fn message(tree: &MemoryTree) -> String {
        read_machine(tree).unwrap_err().to_string()
    }

    #[test]
    fn sparse_memoryless_and_cpuless_nodes() {
        let machine = read_machine(&sparse()).unwrap();
        let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id.0).collect();
        assert_eq!(ids, [0, 8, 252]);
        assert_eq!(machine.nodes[1].cpus, [4, 6, 7].map(CpuId));
        assert_eq!(machine.nodes[1].memory_bytes, Some(0));
        assert_eq!(machine.nodes[2].cpus, []);
        assert_eq!(machine.nodes[2].free_bytes, Some(1 << 28));
        assert_eq!(machine.distances, [10, 40, 80, 40, 10, 80, 80, 80, 10]);
        assert_eq!((machine.possible_nodes.len(), machine.possible_cpus.len()), (256, 16));
        assert_eq!(machine.settings.min_free_kbytes, Some(67584));
        assert_eq!(machine.settings.lowmem_reserve_ratio, Some(vec![256, 256, 32, 0, 0]));
        assert_eq!(machine.settings.transparent_hugepages, Some(true));
        assert_eq!(machine.notes, []);
    }

    /// As in containers that lay /dev/null over what they hide: the other files tell what they can.
    #[test]
    fn a_file_without_bytes_is_not_there() {
        for path in [
            "sys/devices/system/node/online",
            "sys/devices/system/node/possible",
            "sys/devices/system/cpu/online",
            "sys/devices/system/cpu/possible",
            "proc/sys/vm/min_free_kbytes",
        ] {
            let mut hidden = sparse();
            hidden.insert(path, "");
            let machine = read_machine(&hidden).unwrap();
            assert_eq!(machine.nodes.len(), 3, "{path}");
            assert_eq!(machine.nodes[0].cpus, [0, 1, 2, 3].map(CpuId), "{path}");
        }
        let mut hidden = sparse();
        hidden.insert("sys/devices/system/node/node8/distance", "");
        assert_ne!(read_machine(&hidden).unwrap().notes, []);
    }

    /// Hidden lists leave the entries of the nodes' folders; the only node has all CPUs; else some node must tell.
    #[test]
    fn hidden_lists_of_cpus_are_not_empty_ones() {
        let mut hidden = sparse();
        for node in [0, 8, 252] {
            hidden.insert(format!("{NODES}/node{node}/cpulist"), "");
        }
        assert_eq!(
            message(&hidden),
            "box: sys/devices/system/node/node0/cpulist: has no bytes, nor have the others of its kind, \
             expected a node with CPUs"
        );
        for (node, cpu) in [(0, 0), (0, 1), (8, 4), (8, 5)] {
            hidden.insert(format!("{NODES}/node{node}/cpu{cpu}/uevent"), "");
        }
        let machine = read_machine(&hidden).unwrap();
        assert_eq!(machine.nodes[0].cpus, [0, 1].map(CpuId));
        assert_eq!(machine.nodes[1].cpus, [CpuId(4)], "CPU 5 is offline");
        // Those of no list are the other's.
        let rest = Note::CpusWithoutNode { cpus: vec![2, 3, 6, 7], node: NodeId(252) };
        assert_eq!(machine.notes, [rest]);

        let mut only = tree(&[("sys/devices/system/cpu/online", "0-2\n")]);
        only.insert(format!("{NODES}/node0/cpulist"), "");
        assert_eq!(read_machine(&only).unwrap().nodes[0].cpus, [0, 1, 2].map(CpuId));
    }

    #[test]
    fn an_empty_zoneinfo_is_noted() {
        let mut tree = sparse();
        tree.insert("proc/zoneinfo", "");
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.notes, [Note::ZonesEmpty]);
        assert!(machine.nodes.iter().all(|node| node.zones.is_empty()));
    }

    #[test]
    fn a_kernel_without_numa_is_one_node() {
        let tree = tree(&[
            ("sys/devices/system/cpu/online", "0,2\n"),
            ("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1024 kB\n"),
        ]);
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes.len(), 1);
        assert_eq!(machine.nodes[0].cpus, [0, 2].map(CpuId));
        assert_eq!(machine.nodes[0].memory_bytes, Some(4 << 20));
        assert_eq!((machine.distances, machine.notes), (vec![10], vec![]));
    }

    #[test]
    fn old_kernels_have_masks_and_no_lists() {
        let tree = tree(&[
            ("sys/devices/system/node/node1/cpumap", "00000000,0000000c\n"),
            ("sys/devices/system/node/node0/cpumap", "00000000,00000003\n"),
            ("sys/devices/system/cpu/cpu0/uevent", ""),
            ("sys/devices/system/cpu/cpu1/online", "1\n"),
            ("sys/devices/system/cpu/cpu2/online", "0\n"),
            ("sys/devices/system/cpu/cpu3/online", "1\n"),
        ]);
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes[0].cpus, [0, 1].map(CpuId));
        assert_eq!(machine.nodes[1].cpus, [CpuId(3)]);
        assert_eq!(machine.distances, [10, 20, 20, 10]);
        let notes: Vec<String> = machine.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 3);
        assert_eq!(
            notes[0],
            "the distances of nodes 0-1 are unknown: taken as 10 to themselves, 20 to others"
        );
        assert_eq!(notes[2], "the memory of node 1 is unknown: taken as none");
    }

    #[test]
    fn pages_and_zones_come_from_zoneinfo() {
        let mut tree = sparse();
        tree.insert(
            "proc/zoneinfo",
            "Node 0, zone   Normal\n  pages free     8\n spanned 20000\n present 16400\n managed 16384\n  \
             start_pfn:           0\nNode 252, zone  Movable\n  pages free 1\n spanned 8192\n \
             present 8192\n managed 8192\n start_pfn: 65536\n",
        );
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.page_bytes, 64 << 10);
        assert_eq!(machine.nodes[0].zones.len(), 1);
        assert_eq!(machine.nodes[2].zones[0].start.0, 65536);
        tree.insert("sys/devices/system/node/node0/meminfo", "");
        assert_eq!(read_machine(&tree).unwrap().nodes[0].memory_bytes, Some(1 << 30));
    }

    #[test]
    fn emulated_nodes_list_the_cpus_of_the_real_one() {
        let mut tree = tree(&[("sys/devices/system/node/online", "0-2\n")]);
        add_node(&mut tree, 0, "0-1", "10 10 20", 4);
        add_node(&mut tree, 1, "0-1", "10 10 20", 4);
        add_node(&mut tree, 2, "2", "20 20 10", 4);
        let machine = read_machine(&tree).unwrap();
        let cpus: Vec<usize> = machine.nodes.iter().map(|node| node.cpus.len()).collect();
        assert_eq!(cpus, [2, 0, 1]);
        let notes: Vec<String> = machine.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["nodes 0 and 1 list the same CPUs: taken as node 0's"]);
    }

    #[test]
    fn last_level_caches_are_shared() {
        let mut tree = sparse();
        for cpu in 0..3 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            tree.insert(format!("{folder}/index0/size"), "32K\n");
            tree.insert(format!("{folder}/index3/type"), "Unified\n");
            tree.insert(format!("{folder}/index3/size"), "16384K\n");
            tree.insert(format!("{folder}/index3/shared_cpu_list"), "0-1\n");
        }
        tree.insert("sys/devices/system/cpu/cpu2/cache/index3/type", "Instruction\n");
        let caches = read_machine(&tree).unwrap().last_level_caches;
        let expected = LastLevelCache { bytes: 16 << 20, cpus: [0, 1].map(CpuId).to_vec() };
        assert_eq!(caches, [expected]);
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let mut tree = sparse();
        add_node(&mut tree, 8, "3-7", "40 10 80", 0);
        assert_eq!(
            message(&tree),
            "box: sys/devices/system/node/node8/cpulist: CPU 3 is already on node 0, \
             expected each CPU on one node"
        );
        add_node(&mut tree, 8, "4-x", "40 10 80", 0);
        assert_eq!(
            message(&tree),
            "box: sys/devices/system/node/node8/cpulist:1:1: found \"4-x\", \
             expected an id such as 0 or a range such as 0-3"
        );
        add_node(&mut tree, 8, "", "40 10", 0);
        assert!(message(&tree).ends_with(
            "node8/distance:1:1: found \"40 10\", expected 3 distances, one for each online node"
        ));
        add_node(&mut tree, 8, "", "9 10 80", 0);
        assert!(message(&tree).ends_with("distance:1:1: found \"9\", expected 10 to 255"));
        add_node(&mut tree, 8, "", "40 11 80", 0);
        assert!(message(&tree).ends_with(
            "distance:1:4: found \"11\", expected 10, the distance of a node to itself"
        ));
        add_node(&mut tree, 8, "", "40 10 256", 0);
        assert!(
            message(&tree)
                .ends_with("distance:1:7: found \"256\", expected a distance from 10 to 255")
        );
        tree.insert("sys/devices/system/node/online", "0,8,9,252");
        add_node(&mut tree, 8, "", "40 10 80", 0);
        assert_eq!(
            message(&tree),
            "box: sys/devices/system/node/node9/cpulist: missing, \
             expected the CPUs of node 9, which is online"
        );
        assert_eq!(
            message(&MemoryTree::new("empty")),
            "empty: has no sys/devices/system/node and no sys/devices/system/cpu, \
             expected the root of a copy of /sys and /proc"
        );
    }

    /// Half of a machine's memory is gone, and its node with it; its CPUs are online all the same.
    #[test]
    fn cpus_without_a_node_go_to_one() {
        let mut tree = tree(&[("sys/devices/system/cpu/online", "0-3\n")]);
        add_node(&mut tree, 0, "0-1", "10", 1 << 20);
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes[0].cpus, [0, 1, 2, 3].map(CpuId));
        assert_eq!(machine.notes, [Note::CpusWithoutNode { cpus: vec![2, 3], node: NodeId(0) }]);
        add_node(&mut tree, 0, "0-1", "10 21", 1 << 20);
        add_node(&mut tree, 1, "", "21 10", 1 << 20);
        tree.insert("sys/devices/system/cpu/cpu3/node1/uevent", "");
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes[1].cpus, [CpuId(3)], "its folder names the node");
        assert_eq!(machine.nodes[0].cpus, [0, 1, 2].map(CpuId));
    }

    /// A copy without one list of CPUs is read.
    #[test]
    fn one_missing_list_of_cpus_is_told() {
        let mut tree = tree(&[("sys/devices/system/cpu/online", "0-3\n")]);
        add_node(&mut tree, 0, "0-1", "10 21", 1 << 20);
        tree.insert(format!("{NODES}/node1/meminfo"), "Node 1 MemTotal: 4096 kB\n");
        tree.insert(format!("{NODES}/node1/distance"), "21 10\n");
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes[1].cpus, [2, 3].map(CpuId));
        assert_eq!(machine.notes, [Note::CpusWithoutNode { cpus: vec![2, 3], node: NodeId(1) }]);
    }

    #[test]
    fn cpus_that_can_never_be_there() {
        let mut tree = sparse();
        add_node(&mut tree, 8, "4-7,15-17,20", "40 10 80", 0);
        assert_eq!(
            message(&tree),
            "box: sys/devices/system/node/node8/cpulist:1:1: found \"16-17,20\", \
             expected CPUs that sys/devices/system/cpu/possible has: 0-15"
        );
        // CPU 15 may be on its way, or gone.
        add_node(&mut tree, 8, "4-7,15", "40 10 80", 0);
        assert_eq!(read_machine(&tree).unwrap().nodes[1].cpus, [4, 6, 7].map(CpuId));
    }

    /// Both change while they are read.
    #[test]
    fn more_free_than_there_is_is_noted() {
        let mut tree = sparse();
        let meminfo = "Node 252 MemTotal: 1024 kB\nNode 252 MemFree: 1028 kB\n";
        tree.insert("sys/devices/system/node/node252/meminfo", meminfo);
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes[2].free_bytes, Some(1 << 20));
        assert_eq!(
            machine.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["node 252 has 1028 kB free and a size of 1024 kB: taken as all free"]
        );
    }

    /// Memory may come and go between the two files: that is noted. A file that ends too early is refused.
    #[test]
    fn zones_without_some_of_the_memory() {
        let mut tree = sparse();
        let zone = |managed| {
            format!(
                "Node 0, zone Normal\n pages free 8\n spanned {managed}\n present {managed}\n \
                 managed {managed}\n start_pfn: 0\n"
            )
        };
        let notes = |tree: &MemoryTree| {
            let machine = read_machine(tree).unwrap();
            assert_eq!(machine.page_bytes, 4096);
            let has_zones = machine.nodes.iter().any(|node| !node.zones.is_empty());
            let notes: Vec<String> = machine.notes.iter().map(ToString::to_string).collect();
            (has_zones, notes)
        };
        tree.insert("proc/zoneinfo", zone(1 << 18));
        let of_252 = "proc/zoneinfo tells of 0 kB of node 252, which has 524288 kB: \
                      zones and addresses are taken as unknown";
        assert_eq!(notes(&tree), (false, vec![of_252.into()]));
        tree.insert("proc/zoneinfo", zone(100_000));
        let of_0 = "proc/zoneinfo tells of 400000 kB of node 0, which has 1048576 kB: \
                    zones and addresses are taken as unknown";
        assert_eq!(notes(&tree), (false, vec![of_0.into(), of_252.into()]));
        add_node(&mut tree, 252, "", "80 80 10", 0);
        for pages in [(1 << 18) - 9, 1 << 18, (1 << 18) + 9] {
            tree.insert("proc/zoneinfo", zone(pages));
            assert_eq!(notes(&tree), (true, vec![]));
        }
    }

    #[test]
    fn shares_of_a_machine() {
        let machine = read_machine(&sparse()).unwrap().split(NonZeroU16::new(3).unwrap());
        let cpus: Vec<usize> = machine.nodes.iter().map(|node| node.cpus.len()).collect();
        assert_eq!(cpus, [3, 2, 2]);
        assert_eq!(machine.nodes[1].cpus, [3, 4].map(CpuId));
        let bytes: u64 = machine.nodes.iter().filter_map(|node| node.memory_bytes).sum();
        assert_eq!(bytes, 3 << 29);
        assert_eq!(machine.distances, [10, 20, 20, 20, 10, 20, 20, 20, 10]);

        let fine = machine.split(NonZeroU16::new(10).unwrap());
        let cpus: Vec<usize> = fine.nodes.iter().map(|node| node.cpus.len()).collect();
        assert_eq!((cpus.len(), cpus.iter().sum::<usize>()), (10, 7));
        assert_eq!((cpus[0], cpus.iter().max()), (1, Some(&1)));
        assert_eq!(fine.nodes[9].id, NodeId(9));
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = read_this_machine().unwrap();
        assert!(machine.page_bytes.is_power_of_two());
        assert!(machine.nodes.iter().any(|node| !node.cpus.is_empty()));
        assert_eq!(machine.distances.len(), machine.nodes.len().pow(2));
    }

    proptest! {
        /// Any bytes in any of the files are read or refused.
        #[test]
        fn no_content_panics(
            content in "\\PC{0,60}|[0-9 ,\n-]{0,20}|(Node [0-9], zone Normal\n|(managed|present|start_pfn:|spanned|free) [0-9]{1,20}\n){0,12}",
            which in 0usize..9,
        ) {
            let mut tree = sparse();
            let paths = [
                "sys/devices/system/node/online",
                "sys/devices/system/node/node0/cpulist",
                "sys/devices/system/node/node8/distance",
                "sys/devices/system/node/node252/meminfo",
                "sys/devices/system/cpu/online",
                "sys/devices/system/cpu/cpu0/cache/index0/size",
                "proc/sys/vm/lowmem_reserve_ratio",
                "proc/sys/vm/min_free_kbytes",
                "proc/zoneinfo",
            ];
            tree.insert(paths[which], content);
            if let Ok(machine) = read_machine(&tree) {
                let nodes: usize =
                    machine.split(NonZeroU16::new(5).unwrap()).nodes.iter().map(|n| n.cpus.len()).sum();
                prop_assert_eq!(nodes, machine.nodes.iter().map(|n| n.cpus.len()).sum::<usize>());
            }
        }
    }
}
