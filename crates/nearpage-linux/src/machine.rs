//! The machine that a memory is made for: nodes, the CPUs that are near them, and which have memory.
//!
//! It is the whole machine as the kernel describes it, not this process's share. A cpuset or an affinity mask restricts
//! where threads run now, and may change while they run. Offline CPUs are left out. So is the size of each node: a memory
//! has sizes of its own.

use nearpage::{CpuId, NodeId};

use nearpage_machine::{Machine, MachineNode};

/// A node of the machine that a memory is made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostNode {
    /// The node's id. Emulated nodes may have any ids.
    pub id: NodeId,
    /// Its CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// Whether a memory has a part on this node.
    pub has_memory: bool,
}

/// The machine that a memory is made for.
///
/// ```
/// use nearpage::{CpuId, NodeId};
/// use nearpage_linux::{HostMachine, HostNode, Memory};
///
/// // Two emulated nodes; the CPUs of this machine are on the first.
/// let near = HostNode { id: NodeId(0), cpus: (0..256).map(CpuId).collect(), has_memory: true };
/// let far = HostNode { id: NodeId(1), cpus: Vec::new(), has_memory: true };
/// let machine =
///     HostMachine { nodes: vec![near, far], distances: vec![10, 20, 20, 10], emulated: true };
/// let memory = Memory::builder().machine(machine).bytes_per_node(16 << 20).build()?;
/// assert_eq!(memory.alloc_pages(1)?.node(), NodeId(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostMachine {
    /// Nodes, ascending by id.
    pub nodes: Vec<HostNode>,
    /// Distances, row by row in the order of `nodes`.
    pub distances: Vec<u8>,
    /// Whether the nodes are emulated: the kernel does not know them, so memory is not bound to them.
    pub emulated: bool,
}

impl HostMachine {
    /// A machine of emulated nodes.
    pub fn emulated(machine: &Machine) -> HostMachine {
        HostMachine { emulated: true, ..HostMachine::from(machine) }
    }

    /// The CPUs of all nodes, ascending.
    pub fn cpus(&self) -> Vec<CpuId> {
        let mut cpus: Vec<CpuId> =
            self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }
}

impl From<&Machine> for HostMachine {
    /// A node of unknown size has no memory. If all sizes are unknown (a sandbox may hide them), every node has memory: the
    /// process itself must lie somewhere.
    fn from(machine: &Machine) -> HostMachine {
        let tells_no_size = machine.nodes.iter().all(|node| node.memory_bytes.is_none());
        let host_node = |node: &MachineNode| HostNode {
            id: node.id,
            cpus: node.cpus.clone(),
            has_memory: tells_no_size || node.memory_bytes.is_some_and(|bytes| bytes > 0),
        };
        HostMachine {
            nodes: machine.nodes.iter().map(host_node).collect(),
            distances: machine.distances.clone(),
            emulated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use nearpage_machine::MemoryTree;
    use nearpage_machine::{read_machine, read_this_machine};

    const NODES: &str = "sys/devices/system/node";

    /// Nodes 0 and 8; CPUs 0-15 are possible, and 3 and 8-15 are offline.
    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new("box");
        tree.insert("sys/devices/system/cpu/possible", "0-15\n");
        tree.insert("sys/devices/system/cpu/online", "0-2,4-7\n");
        tree.insert(format!("{NODES}/online"), "0,8\n");
        for (node, cpus, distances) in [(0, "0-3", "10 21"), (8, "4-11", "31 10")] {
            tree.insert(format!("{NODES}/node{node}/cpulist"), cpus);
            tree.insert(format!("{NODES}/node{node}/distance"), distances);
        }
        tree
    }

    fn host(tree: &MemoryTree) -> HostMachine {
        HostMachine::from(&read_machine(tree).unwrap())
    }

    #[test]
    fn offline_cpus_are_left_out_and_memoryless_nodes_stay() {
        let mut tree = tree();
        tree.insert(format!("{NODES}/node0/meminfo"), "Node 0 MemTotal: 0 kB\n");
        tree.insert(format!("{NODES}/node8/meminfo"), "Node 8 MemTotal: 4096 kB\n");
        let expected = HostMachine {
            nodes: vec![
                HostNode { id: NodeId(0), cpus: [0, 1, 2].map(CpuId).into(), has_memory: false },
                HostNode { id: NodeId(8), cpus: [4, 5, 6, 7].map(CpuId).into(), has_memory: true },
            ],
            distances: vec![10, 21, 31, 10],
            emulated: false,
        };
        assert_eq!(host(&tree), expected);
        assert_eq!(host(&tree).cpus(), [0, 1, 2, 4, 5, 6, 7].map(CpuId));
    }

    #[test]
    fn unknown_memory_is_none_unless_all_is_unknown() {
        let mut tree = tree();
        let has_memory = |tree: &MemoryTree| -> Vec<bool> {
            host(tree).nodes.iter().map(|node| node.has_memory).collect()
        };
        assert_eq!(has_memory(&tree), [true, true]);
        tree.insert(format!("{NODES}/node8/meminfo"), "Node 8 MemTotal: 4096 kB\n");
        assert_eq!(has_memory(&tree), [false, true]);
        tree.insert(format!("{NODES}/node8/meminfo"), "Node 8 MemTotal: 0 kB\n");
        assert_eq!(has_memory(&tree), [false, false]);
    }

    #[test]
    fn emulated_machines_differ_in_nothing_else() {
        let machine = read_machine(&tree()).unwrap();
        let emulated = HostMachine::emulated(&machine);
        assert!(emulated.emulated);
        assert_eq!(HostMachine { emulated: false, ..emulated }, HostMachine::from(&machine));
    }

    /// Leaves the calling thread one of the CPUs that it may use.
    fn pin_to_one_cpu() {
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
    }

    /// A cpuset looks to a process like an affinity mask that it cannot widen.
    #[test]
    fn cpus_that_this_thread_may_not_use_stay() {
        let read = || HostMachine::from(&read_this_machine().unwrap());
        let whole = read();
        let restricted = thread::spawn(move || {
            pin_to_one_cpu();
            assert_eq!(thread::available_parallelism().unwrap().get(), 1);
            read()
        });
        assert_eq!(restricted.join().unwrap(), whole);
    }
}
