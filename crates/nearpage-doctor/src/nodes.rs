//! The machine's nodes, and the nodes and CPUs that the process may use.

use nearpage::CpuId;
use nearpage_machine::{Machine, MachineNode, Note};

use nearpage_machine::idlist::format as list;

use crate::allowed::Allowed;
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let Some(machine) = &facts.machine else { return Vec::new() };
    let allowed = facts.allowed.as_ref();
    let binding = allowed.map(|allowed| binding(&machine.nodes, allowed));
    let others = [without_node(machine), memoryless(&machine.nodes), private(&machine.nodes)];
    binding.into_iter().chain(others.into_iter().flatten()).collect()
}

fn has_memory(node: &MachineNode) -> bool {
    node.memory_bytes.is_some_and(|bytes| bytes > 0)
}

fn ids<'a>(nodes: impl Iterator<Item = &'a MachineNode>) -> Vec<u32> {
    nodes.map(|node| node.id.0).collect()
}

/// Whether the process may use memory where it may run. A node whose size is unknown may have memory.
fn binding(nodes: &[MachineNode], allowed: &Allowed) -> Finding {
    let check = "cpus and memory allowed";
    let found = format!("CPUs {}, nodes {}", list(&allowed.cpus), list(&allowed.nodes));
    let runs_on = |node: &&MachineNode| allowed.cpus.iter().any(|&cpu| node.has_cpu(CpuId(cpu)));
    let is_allowed = |node: &&MachineNode| allowed.nodes.contains(&node.id.0);
    let nodes = || nodes.iter().filter(|node| node.memory_bytes != Some(0));
    let denied = ids(nodes().filter(runs_on).filter(|node| !is_allowed(node)));
    let far =
        ids(nodes().filter(is_allowed).filter(|node| !runs_on(node) && !node.cpus.is_empty()));
    match (denied.as_slice(), far.as_slice()) {
        ([], []) => Finding::good(
            check,
            found,
            "each CPU that this process may use has memory of its own node",
        ),
        ([], far) => Finding::note(
            check,
            found,
            format!(
                "no CPU of node {} may be used: memory there is far for all threads",
                list(far)
            ),
        )
        .advise(
            "bind memory as CPUs are bound (`numactl --membind`, cpuset.mems), or widen the CPUs",
        ),
        (denied, _) => Finding::problem(
            check,
            found,
            format!(
                "threads run on node {} and may not use its memory: every page of theirs is far",
                list(denied)
            ),
        )
        .advise("bind memory as CPUs are bound (`numactl --membind`, cpuset.mems)"),
    }
}

/// CPUs that run and are on no node's list.
fn without_node(machine: &Machine) -> Option<Finding> {
    let given = machine.notes.iter().filter_map(|note| match note {
        Note::CpusWithoutNode { cpus, .. } => Some(cpus.iter().copied()),
        _ => None,
    });
    let cpus: Vec<u32> = given.flatten().collect();
    (!cpus.is_empty()).then(|| {
        Finding::problem(
            "CPUs without a node",
            list(&cpus),
            "no node's list has them: their node is not online, as where its memory failed or was left out (mem=, numa=off \
             for one), or the copy lacks its list",
        )
        .advise("compare MemTotal with what is built in; look for the node in the firmware's log (`dmesg | grep -i srat`)")
    })
}

fn memoryless(nodes: &[MachineNode]) -> Option<Finding> {
    let memoryless = ids(nodes.iter().filter(|node| node.memory_bytes == Some(0)));
    (!memoryless.is_empty()).then(|| {
        Finding::note(
            "memoryless nodes",
            list(&memoryless),
            "their CPUs take pages of the nearest node with memory, and `numa_hit` counts there",
        )
        .advise("prefer no node instead of that one; `nearpage topo` shows where their memory comes from")
    })
}

fn private(nodes: &[MachineNode]) -> Option<Finding> {
    let cpuless = ids(nodes.iter().filter(|node| node.cpus.is_empty() && has_memory(node)));
    (!cpuless.is_empty()).then(|| {
        Finding::note(
            "nodes without CPUs",
            list(&cpuless),
            "memory of a device, of an expander (CXL), or of a node whose CPUs are offline: usually slower, \
             and requests for any memory fall back to it",
        )
        .advise("keep it out with `MemoryBuilder::bytes_on(node, 0)`, or bind to it who should have it")
    })
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;

    use super::*;
    use crate::finding::Level;

    /// CPUs 0-1 on node 0, CPUs 2-3 on node 1, memory without CPUs on node 2, CPU 4 alone on node 8.
    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new("box");
        for (node, cpus, kilobytes) in
            [(0, "0-1", 4096), (1, "2-3", 4096), (2, "", 4096), (8, "4", 0)]
        {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.insert(format!("{folder}/cpulist"), cpus);
            let meminfo = format!("Node {node} MemTotal: {kilobytes} kB");
            tree.insert(format!("{folder}/meminfo"), meminfo);
        }
        tree
    }

    fn nodes(tree: &MemoryTree) -> Vec<MachineNode> {
        Facts::read(tree).machine.unwrap().nodes
    }

    fn judged(tree: &MemoryTree, cpus: &[u32], allowed: &[u32]) -> Finding {
        binding(&nodes(tree), &Allowed { cpus: cpus.into(), nodes: allowed.into() })
    }

    #[test]
    fn memory_is_to_be_where_threads_are() {
        let level = |cpus: &[u32], nodes: &[u32]| judged(&tree(), cpus, nodes).level;
        assert_eq!(level(&[0, 1, 2, 3, 4], &[0, 1, 2]), Level::Good);
        assert_eq!(level(&[0, 1], &[0, 2]), Level::Good);
        assert_eq!(level(&[0, 1], &[0, 1]), Level::Note);
        assert_eq!(level(&[0, 1, 2], &[0]), Level::Problem);
        let apart = judged(&tree(), &[2], &[0]);
        assert_eq!(apart.found, "CPUs 2, nodes 0");
        assert!(apart.meaning.starts_with("threads run on node 1 and"), "{}", apart.meaning);
    }

    #[test]
    fn a_node_of_unknown_size_may_have_memory() {
        let mut tree = tree();
        assert_eq!(judged(&tree, &[0, 4], &[0]).level, Level::Good);
        tree.insert("sys/devices/system/node/node8/meminfo", "");
        assert_eq!(judged(&tree, &[0, 4], &[0]).level, Level::Problem);
    }

    #[test]
    fn odd_nodes_are_named() {
        let nodes = nodes(&tree());
        assert_eq!(memoryless(&nodes).unwrap().found, "8");
        assert_eq!(private(&nodes).unwrap().found, "2");
    }
}
