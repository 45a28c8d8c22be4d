//! Which CPU of another machine plays a CPU of the recorded one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// By recorded CPU, its place among `cpus` for the first copy.
    fixed: BTreeMap<CpuId, usize>,
    /// All CPUs of the machine: those that play the first copy, and then the others.
    cpus: Vec<CpuId>,
    /// CPUs that play a copy: the next copy has the ones after them.
    apart: usize,
    /// Recorded CPUs that do anything.
    actors: Vec<CpuId>,
}

impl CpuMap {
    /// A map from one machine to another. `actors` are the recorded CPUs that do anything: copies leave no room for the others.
    pub(crate) fn new(
        rule: CpuRule,
        recorded: &TopologyBuf,
        machine: &TopologyBuf,
        actors: &BTreeSet<CpuId>,
    ) -> CpuMap {
        let by_node = |topology: &TopologyBuf| -> Vec<Vec<CpuId>> {
            let lists = topology.nodes.iter().map(|node| node.cpus.clone());
            lists.filter(|cpus| !cpus.is_empty()).collect()
        };
        let (from, to) = (by_node(recorded), by_node(machine));
        let all: Vec<CpuId> = match rule {
            CpuRule::RoundRobin => in_turns(&to),
            CpuRule::Socket | CpuRule::Comm => to.concat(),
        };
        let mut recorded: Vec<CpuId> = from.concat();
        recorded.sort_unstable();
        let target = |(index, &cpu): (usize, &CpuId)| match rule {
            CpuRule::Socket => (cpu, socket(cpu, &from, &to)),
            CpuRule::Comm | CpuRule::RoundRobin => (cpu, all[index % all.len()]),
        };
        let targets: Vec<(CpuId, CpuId)> = recorded.iter().enumerate().map(target).collect();
        // A task of a number has the CPU of that number.
        let in_order = rule == CpuRule::Comm;
        let first = targets.iter().filter(|(cpu, _)| actors.contains(cpu) && !in_order);
        let mut places = HashMap::new();
        let mut cpus = Vec::new();
        for &cpu in first.map(|(_, target)| target).chain(&all) {
            places.entry(cpu).or_insert_with(|| {
                cpus.push(cpu);
                cpus.len() - 1
            });
        }
        let apart = match in_order {
            true => recorded.len(),
            false => {
                let of_actors = targets.iter().filter(|(cpu, _)| actors.contains(cpu));
                of_actors.map(|(_, target)| target).collect::<BTreeSet<_>>().len()
            }
        };
        let fixed = targets.iter().map(|(cpu, target)| (*cpu, places[target])).collect();
        CpuMap { rule, fixed, cpus, apart, actors: actors.iter().copied().collect() }
    }

    /// The CPU that plays `cpu` in a copy of the trace; `pid` is the task that runs.
    pub(crate) fn cpu(&self, cpu: CpuId, pid: u32, copy: u32) -> CpuId {
        let base = match self.rule {
            CpuRule::Comm => pid as usize,
            CpuRule::Socket | CpuRule::RoundRobin => self.fixed.get(&cpu).copied().unwrap_or(0),
        };
        self.cpus[(base + copy as usize * self.apart) % self.cpus.len()]
    }

    /// The map in words, of so many copies.
    pub(crate) fn describe(&self, copies: u32) -> String {
        /// Further ones are told by their number.
        const SHOWN: u32 = 3;
        if self.rule == CpuRule::Comm {
            return format!("each task on CPU number (pid mod {})", self.cpus.len());
        }
        let mut text = self.pairs(0);
        for copy in 1..copies.min(SHOWN) {
            text += &format!("; copy {}: {}", copy + 1, self.pairs(copy));
        }
        if copies > SHOWN {
            let all = self.cpus.len();
            text += &format!("; and so on to copy {copies}, around the {all} CPUs");
        }
        text
    }

    /// Neighbours that go to neighbours are told together, if there are many.
    fn pairs(&self, copy: u32) -> String {
        let mut runs: Vec<(CpuId, CpuId, u32)> = Vec::new();
        for &cpu in &self.actors {
            let to = self.cpu(cpu, 0, copy);
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

fn socket(cpu: CpuId, from: &[Vec<CpuId>], to: &[Vec<CpuId>]) -> CpuId {
    let node = from.iter().position(|of| of.contains(&cpu)).unwrap_or(0);
    let place = from[node].iter().position(|&of| of == cpu).unwrap_or(0);
    let target = &to[node % to.len()];
    target[place % target.len()]
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

    fn those(cpus: &[u32]) -> BTreeSet<CpuId> {
        cpus.iter().copied().map(CpuId).collect()
    }

    #[test]
    fn cpus_go_where_the_rule_says() {
        let (from, to) =
            (machine(&[&[0, 1], &[2, 3]]), machine(&[&[0, 1, 2, 3], &[], &[4, 5, 6, 7]]));
        let actors = those(&[0, 1, 2, 3]);
        let cpus = |rule, copy| {
            let map = CpuMap::new(rule, &from, &to, &actors);
            [0, 1, 2, 3].map(|cpu| map.cpu(CpuId(cpu), 10 + cpu, copy).0)
        };
        assert_eq!(cpus(CpuRule::Socket, 0), [0, 1, 4, 5]);
        assert_eq!(cpus(CpuRule::Socket, 1), [2, 3, 6, 7]);
        assert_eq!(cpus(CpuRule::Socket, 2), cpus(CpuRule::Socket, 0));
        assert_eq!(cpus(CpuRule::RoundRobin, 0), [0, 4, 1, 5]);
        assert_eq!(cpus(CpuRule::RoundRobin, 1), [2, 6, 3, 7]);
        assert_eq!(cpus(CpuRule::Comm, 0), [2, 3, 4, 5]);
        let map = CpuMap::new(CpuRule::Socket, &from, &to, &actors);
        assert_eq!(map.describe(1), "0->0 1->1 2->4 3->5");
        assert_eq!(map.describe(2), "0->0 1->1 2->4 3->5; copy 2: 0->2 1->3 2->6 3->7");
    }

    #[test]
    fn a_copy_runs_on_cpus_that_would_be_idle() {
        let own = machine(&[&[0, 1, 2, 3], &[4, 5, 6, 7]]);
        let map = CpuMap::new(CpuRule::Socket, &own, &own, &those(&[0, 5]));
        let cpus = |copy| [0, 5].map(|cpu| map.cpu(CpuId(cpu), 0, copy).0);
        assert_eq!([cpus(0), cpus(1), cpus(2), cpus(3)], [[0, 5], [1, 2], [3, 4], [6, 7]]);
        assert_eq!(cpus(4), cpus(0));
        let told = "0->0 5->5; copy 2: 0->1 5->2; copy 3: 0->3 5->4; and so on to copy 9, around the 8 CPUs";
        assert_eq!(map.describe(9), told);
    }
}
