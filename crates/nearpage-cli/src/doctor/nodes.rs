//! The machine's nodes, and which of them and of its CPUs the process may use.

use nearpage::units::CpuId;
use nearpage_linux::sysfs::MachineNode;

use super::{Facts, Finding, list};

pub(super) fn findings(facts: &Facts) -> impl Iterator<Item = Finding> {
    [binding(facts), memoryless(facts), private(facts)].into_iter().flatten()
}

fn has_memory(node: &MachineNode) -> bool {
    node.memory_bytes.is_some_and(|bytes| bytes > 0)
}

fn ids<'a>(nodes: impl Iterator<Item = &'a MachineNode>) -> Vec<u32> {
    nodes.map(|node| node.id.0).collect()
}

/// Whether the process may use memory where it may run.
fn binding(facts: &Facts) -> Option<Finding> {
    let check = "cpus and memory allowed";
    let allowed = facts.allowed.as_ref()?;
    let found = format!("CPUs {}, nodes {}", list(&allowed.cpus), list(&allowed.nodes));
    let runs_on = |node: &&MachineNode| allowed.cpus.iter().any(|&cpu| node.has_cpu(CpuId(cpu)));
    let is_allowed = |node: &&MachineNode| allowed.nodes.contains(&node.id.0);
    let nodes = || facts.machine.nodes.iter().filter(|node| has_memory(node));
    let denied = ids(nodes().filter(runs_on).filter(|node| !is_allowed(node)));
    let far =
        ids(nodes().filter(is_allowed).filter(|node| !runs_on(node) && !node.cpus.is_empty()));
    Some(match (denied.as_slice(), far.as_slice()) {
        ([], []) => Finding::good(check, found, "who runs here may have memory of its own node"),
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
    })
}

fn memoryless(facts: &Facts) -> Option<Finding> {
    let memoryless = ids(facts.machine.nodes.iter().filter(|node| node.memory_bytes == Some(0)));
    (!memoryless.is_empty()).then(|| {
        Finding::note(
            "memoryless nodes",
            list(&memoryless),
            "their CPUs take pages of the nearest node with memory, and `numa_hit` counts there",
        )
        .advise("prefer no node instead of that one; `nearpage topo` shows where their memory comes from")
    })
}

fn private(facts: &Facts) -> Option<Finding> {
    let cpuless =
        ids(facts.machine.nodes.iter().filter(|node| node.cpus.is_empty() && has_memory(node)));
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
    use nearpage_linux::tree::MemoryTree;

    use super::super::{Allowed, Level};
    use super::*;

    /// CPUs 0-1 on node 0, CPUs 2-3 on node 1, memory without CPUs on node 2, CPU 4 alone on node 8.
    fn facts(cpus: &[u32], nodes: &[u32]) -> Facts {
        let mut tree = MemoryTree::new("box");
        for (node, cpus, kilobytes) in
            [(0, "0-1", 4096), (1, "2-3", 4096), (2, "", 4096), (8, "4", 0)]
        {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.insert(format!("{folder}/cpulist"), cpus);
            let meminfo = format!("Node {node} MemTotal: {kilobytes} kB");
            tree.insert(format!("{folder}/meminfo"), meminfo);
        }
        let allowed = Some(Allowed { cpus: cpus.into(), nodes: nodes.into() });
        Facts { allowed, ..Facts::read(&tree).unwrap() }
    }

    #[test]
    fn memory_is_to_be_where_threads_are() {
        let level = |cpus: &[u32], nodes: &[u32]| binding(&facts(cpus, nodes)).unwrap().level;
        assert_eq!(level(&[0, 1, 2, 3, 4], &[0, 1, 2]), Level::Good);
        assert_eq!(level(&[0, 1], &[0, 2]), Level::Good);
        assert_eq!(level(&[0, 1], &[0, 1]), Level::Note);
        assert_eq!(level(&[0, 1, 2], &[0]), Level::Problem);
        let apart = binding(&facts(&[2], &[0])).unwrap();
        assert_eq!(apart.found, "CPUs 2, nodes 0");
        assert!(apart.meaning.starts_with("threads run on node 1 and"), "{}", apart.meaning);
    }

    #[test]
    fn odd_nodes_are_named() {
        let facts = facts(&[0], &[0]);
        assert_eq!(memoryless(&facts).unwrap().found, "8");
        assert_eq!(private(&facts).unwrap().found, "2");
    }
}
