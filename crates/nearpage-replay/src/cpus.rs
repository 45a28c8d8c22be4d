//! Which CPU of another machine plays a CPU of the recorded one.

use std::collections::BTreeMap;

use nearpage::{CpuId, TopologyBuf};

/// Which CPU of another machine plays a CPU of the recorded one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum CpuRule {
    /// CPUs that share a node stay together: those of the n-th recorded node with CPUs go to the n-th one.
    #[default]
    Socket,
    /// Each task has a CPU of its own, by its number.
    Comm,
    /// One after the other over the nodes.
    RoundRobin,
}

/// The CPUs of a machine, and how recorded ones go to them.
#[derive(Clone, Debug)]
pub(crate) struct CpuMap {
    rule: CpuRule,
    /// By recorded CPU, for the first copy.
    fixed: BTreeMap<CpuId, usize>,
    /// All CPUs of the machine; for `round-robin` in turns over the nodes.
    cpus: Vec<CpuId>,
    recorded: usize,
}

impl CpuMap {
    /// A map from one machine to another.
    pub(crate) fn new(rule: CpuRule, recorded: &TopologyBuf, machine: &TopologyBuf) -> CpuMap {
        let by_node = |topology: &TopologyBuf| -> Vec<Vec<CpuId>> {
            let lists = topology.nodes.iter().map(|node| node.cpus.clone());
            lists.filter(|cpus| !cpus.is_empty()).collect()
        };
        let (from, to) = (by_node(recorded), by_node(machine));
        let cpus: Vec<CpuId> = match rule {
            CpuRule::RoundRobin => in_turns(&to),
            CpuRule::Socket | CpuRule::Comm => to.concat(),
        };
        let mut all: Vec<CpuId> = from.concat();
        all.sort_unstable();
        let mut fixed = BTreeMap::new();
        for (index, &cpu) in all.iter().enumerate() {
            let at = match rule {
                CpuRule::Socket => socket(cpu, &from, &to, &cpus),
                CpuRule::Comm | CpuRule::RoundRobin => index,
            };
            fixed.insert(cpu, at);
        }
        CpuMap { rule, fixed, cpus, recorded: all.len() }
    }

    /// The CPU that plays `cpu` in a copy of the trace; `pid` is the task that runs.
    pub(crate) fn cpu(&self, cpu: CpuId, pid: u32, copy: u32) -> CpuId {
        let base = match self.rule {
            CpuRule::Comm => pid as usize,
            CpuRule::Socket | CpuRule::RoundRobin => self.fixed.get(&cpu).copied().unwrap_or(0),
        };
        self.cpus[(base + copy as usize * self.recorded) % self.cpus.len()]
    }

    /// The map in words.
    pub(crate) fn describe(&self) -> String {
        if self.rule == CpuRule::Comm {
            return format!("each task on CPU number (pid mod {})", self.cpus.len());
        }
        // Neighbours that go to neighbours are told together, if there are many.
        let mut runs: Vec<(CpuId, CpuId, u32)> = Vec::new();
        for &cpu in self.fixed.keys() {
            let to = self.cpu(cpu, 0, 0);
            match runs.last_mut() {
                Some((from, first, count))
                    if (from.0 + *count, first.0 + *count) == (cpu.0, to.0) =>
                {
                    *count += 1;
                }
                _ => runs.push((cpu, to, 1)),
            }
        }
        let text = |(from, to, count): (CpuId, CpuId, u32)| match count {
            1 => vec![format!("{from}->{to}")],
            2 | 3 => (0..count).map(|at| format!("{}->{}", from.0 + at, to.0 + at)).collect(),
            _ => vec![format!("{from}-{}->{to}-{}", from.0 + count - 1, to.0 + count - 1)],
        };
        runs.into_iter().flat_map(text).collect::<Vec<_>>().join(" ")
    }
}

fn socket(cpu: CpuId, from: &[Vec<CpuId>], to: &[Vec<CpuId>], cpus: &[CpuId]) -> usize {
    let node = from.iter().position(|of| of.contains(&cpu)).unwrap_or(0);
    let place = from[node].iter().position(|&of| of == cpu).unwrap_or(0);
    let target = &to[node % to.len()];
    let target = target[place % target.len()];
    cpus.iter().position(|&of| of == target).unwrap_or(0)
}

fn in_turns(nodes: &[Vec<CpuId>]) -> Vec<CpuId> {
    let most = nodes.iter().map(Vec::len).max().unwrap_or(0);
    (0..most)
        .flat_map(|turn| nodes.iter().filter_map(move |cpus| cpus.get(turn)).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearpage::{AddressMap, NodeBuf, NodeId};

    fn machine(nodes: &[&[u32]]) -> TopologyBuf {
        let node = |(id, cpus): (usize, &&[u32])| NodeBuf {
            id: NodeId(id as u32),
            cpus: cpus.iter().copied().map(CpuId).collect(),
            ..NodeBuf::default()
        };
        let nodes = nodes.iter().enumerate().map(node).collect();
        TopologyBuf { nodes, distances: Vec::new(), address_map: AddressMap::Flat }
    }

    #[test]
    fn cpus_go_where_the_rule_says() {
        let (from, to) =
            (machine(&[&[0, 1], &[2, 3]]), machine(&[&[0, 1, 2, 3], &[], &[4, 5, 6, 7]]));
        let cpus = |rule, copy| {
            let map = CpuMap::new(rule, &from, &to);
            [0, 1, 2, 3].map(|cpu| map.cpu(CpuId(cpu), 10 + cpu, copy).0)
        };
        assert_eq!(cpus(CpuRule::Socket, 0), [0, 1, 4, 5]);
        assert_eq!(cpus(CpuRule::RoundRobin, 0), [0, 4, 1, 5]);
        assert_eq!(cpus(CpuRule::RoundRobin, 1), [2, 6, 3, 7]);
        assert_eq!(cpus(CpuRule::Comm, 0), [2, 3, 4, 5]);
        assert_eq!(CpuMap::new(CpuRule::Socket, &from, &to).describe(), "0->0 1->1 2->4 3->5");
    }
}
