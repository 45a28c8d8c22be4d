//! Which node of another machine stands for a recorded one: who asked at home asks at home.

use std::collections::HashMap;

use nearpage::{CpuId, NodeId, TopologyBuf};

/// The nodes with memory of the recorded machine and of the one that plays.
pub(super) struct Homes {
    recorded: Nodes,
    played: Nodes,
}

/// The nodes of a machine that have memory, and which of them is nearest to each CPU.
struct Nodes {
    ids: Vec<NodeId>,
    /// Positions in `ids`.
    homes: HashMap<CpuId, usize>,
}

impl Homes {
    pub(super) fn new(recorded: &TopologyBuf, played: &TopologyBuf) -> Homes {
        Homes { recorded: Nodes::of(recorded), played: Nodes::of(played) }
    }

    /// The node that is as far behind the home of `plays`, counted in nodes with memory, as `node` is behind that of the
    /// recorded CPU. A node that the recorded machine lacks stands for itself.
    pub(super) fn stand_in(&self, node: NodeId, recorded: CpuId, plays: CpuId) -> NodeId {
        let Homes { recorded: from, played: to } = self;
        let Some(at) = from.ids.iter().position(|&id| id == node) else { return node };
        let behind = (at + from.ids.len() - from.home(recorded)) % from.ids.len();
        to.ids[(to.home(plays) + behind) % to.ids.len()]
    }
}

impl Nodes {
    fn of(topology: &TopologyBuf) -> Nodes {
        let all = &topology.nodes;
        let with_memory: Vec<usize> =
            (0..all.len()).filter(|&at| !all[at].memory.is_empty()).collect();
        let mut homes = HashMap::new();
        for (node, row) in all.iter().zip(topology.distances.chunks(all.len())) {
            let nearest = (0..with_memory.len()).min_by_key(|&at| row[with_memory[at]]);
            homes.extend(node.cpus.iter().map(|&cpu| (cpu, nearest.unwrap_or(0))));
        }
        Nodes { ids: with_memory.into_iter().map(|at| all[at].id).collect(), homes }
    }

    fn home(&self, cpu: CpuId) -> usize {
        self.homes.get(&cpu).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use nearpage::{AddressMap, NodeBuf, PfnRange};

    use super::*;
    use crate::CpuRule;
    use crate::cpus::CpuMap;

    /// So many nodes of two CPUs; those of `bare` have no memory.
    fn machine(count: u32, bare: &[u32]) -> TopologyBuf {
        let node = |id: u32| NodeBuf {
            id: NodeId(id),
            memory: match bare.contains(&id) {
                true => Vec::new(),
                false => vec![PfnRange::new(u64::from(id) << 18, u64::from(id + 1) << 18)],
            },
            cpus: vec![CpuId(2 * id), CpuId(2 * id + 1)],
            movable_from: None,
        };
        let apart = |from: u32, to: u32| 10 + 10 * from.abs_diff(to) as u8;
        TopologyBuf {
            nodes: (0..count).map(node).collect(),
            distances: (0..count * count).map(|at| apart(at / count, at % count)).collect(),
            address_map: AddressMap::Flat,
        }
    }

    /// Where a page of `node`, asked for on `cpu`, is asked for by a copy of the trace: the node of the CPU that plays, and the page's.
    fn asked(from: &TopologyBuf, to: &TopologyBuf, [node, cpu, copy]: [u32; 3]) -> [u32; 2] {
        let all = from.nodes.iter().flat_map(|node| &node.cpus).copied().collect();
        let plays = CpuMap::new(CpuRule::Socket, from, to, &all).cpu(CpuId(cpu), 0, copy);
        [plays.0 / 2, Homes::new(from, to).stand_in(NodeId(node), CpuId(cpu), plays).0]
    }

    #[test]
    fn each_copy_asks_at_its_own_home() {
        let (from, to) = (machine(2, &[]), machine(4, &[]));
        for (of, expected) in [
            ([0, 1, 0], [0, 0]),
            ([1, 2, 0], [1, 1]),
            ([1, 0, 0], [0, 1]),
            ([0, 1, 1], [2, 2]),
            ([1, 2, 1], [3, 3]),
            ([1, 0, 1], [2, 3]),
        ] {
            assert_eq!(asked(&from, &to, of), expected, "{of:?}");
        }
    }

    #[test]
    fn a_cpu_without_memory_of_its_own_has_the_nearest_as_its_home() {
        let (from, to) = (machine(2, &[]), machine(4, &[1, 2]));
        assert_eq!(asked(&from, &to, [1, 2, 0]), [1, 0]);
        assert_eq!(asked(&from, &to, [0, 0, 1]), [2, 3]);
        let from = machine(3, &[0]);
        assert_eq!(asked(&from, &to, [1, 0, 0]), [0, 0], "as near as it can be");
        assert_eq!(asked(&from, &to, [2, 0, 0]), [0, 3]);
    }
}
