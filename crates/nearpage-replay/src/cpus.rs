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
    /// Where the first copy of each recorded CPU plays.
    first: BTreeMap<CpuId, CpuId>,
    /// Recorded CPUs that do anything.
    actors: Vec<CpuId>,
    further: Further,
}

/// Where further copies of a trace play: on CPUs that would be idle.
#[derive(Clone, Debug)]
enum Further {
    /// Each copy has the CPUs behind those of the copy before.
    InTurns { cpus: Vec<CpuId>, places: HashMap<CpuId, usize>, apart: usize },
    /// Each copy has nodes of its own, and its CPUs stay together; when all nodes play, others of their CPUs.
    OnNodes(Nodes),
}

/// Nodes with CPUs: those that play the first copy, and then the others. A node has CPUs that play it first.
#[derive(Clone, Debug)]
struct Nodes {
    cpus: Vec<Vec<CpuId>>,
    /// How many of them play the first copy, and the most CPUs that do so in one.
    used: usize,
    width: usize,
    /// Node and place of each CPU.
    seats: HashMap<CpuId, [usize; 2]>,
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
        let mut recorded: Vec<CpuId> = from.concat();
        recorded.sort_unstable();
        let cpus = match rule {
            CpuRule::RoundRobin => in_turns(&to),
            CpuRule::Socket | CpuRule::Comm => to.concat(),
        };
        let first = recorded.iter().enumerate().map(|(index, &cpu)| match rule {
            CpuRule::Socket => (cpu, socket(cpu, &from, &to)),
            CpuRule::Comm | CpuRule::RoundRobin => (cpu, cpus[index % cpus.len()]),
        });
        let first: BTreeMap<CpuId, CpuId> = first.collect();
        let played = each_once(actors.iter().filter_map(|cpu| first.get(cpu)).copied());
        let further = match rule {
            CpuRule::Socket => Further::OnNodes(Nodes::new(&to, &played)),
            CpuRule::Comm => {
                Further::InTurns { cpus, places: HashMap::new(), apart: recorded.len() }
            }
            CpuRule::RoundRobin => {
                let apart = played.len();
                let cpus = each_once(played.into_iter().chain(cpus));
                let places = cpus.iter().enumerate().map(|(at, &cpu)| (cpu, at)).collect();
                Further::InTurns { cpus, places, apart }
            }
        };
        CpuMap { rule, first, actors: actors.iter().copied().collect(), further }
    }

    /// The CPU that plays `cpu` in a copy of the trace; `pid` is the task that runs.
    pub(crate) fn cpu(&self, cpu: CpuId, pid: u32, copy: u32) -> CpuId {
        let first = self.first.get(&cpu).copied();
        let copy = copy as usize;
        match &self.further {
            Further::InTurns { cpus, places, apart } => {
                let base = match self.rule {
                    CpuRule::Comm => pid as usize,
                    _ => first.and_then(|first| places.get(&first)).copied().unwrap_or(0),
                };
                cpus[(base + copy * apart) % cpus.len()]
            }
            Further::OnNodes(nodes) => {
                let first = first.unwrap_or(nodes.cpus[0][0]);
                if copy == 0 { first } else { nodes.of_copy(first, copy) }
            }
        }
    }

    /// How many CPUs there are.
    fn count(&self) -> usize {
        match &self.further {
            Further::InTurns { cpus, .. } => cpus.len(),
            Further::OnNodes(nodes) => nodes.cpus.iter().map(Vec::len).sum(),
        }
    }

    /// The map in words, of so many copies.
    pub(crate) fn describe(&self, copies: u32) -> String {
        /// Further ones are told by their number.
        const SHOWN: u32 = 3;
        if self.rule == CpuRule::Comm {
            return format!("each task on CPU number (pid mod {})", self.count());
        }
        let mut text = self.pairs(0);
        for copy in 1..copies.min(SHOWN) {
            text += &format!("; copy {}: {}", copy + 1, self.pairs(copy));
        }
        if copies > SHOWN {
            let all = self.count();
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

impl Nodes {
    /// `played` are the CPUs of the first copy, each once.
    fn new(nodes: &[Vec<CpuId>], played: &[CpuId]) -> Nodes {
        let own = |cpus: &Vec<CpuId>| -> Vec<CpuId> {
            played.iter().filter(|cpu| cpus.contains(cpu)).copied().collect()
        };
        let (used, idle): (Vec<_>, Vec<_>) = nodes.iter().partition(|cpus| !own(cpus).is_empty());
        let width = used.iter().map(|cpus| own(cpus).len()).max().unwrap_or(1);
        let in_order =
            |cpus: &&Vec<CpuId>| each_once(own(cpus).into_iter().chain(cpus.iter().copied()));
        let cpus: Vec<Vec<CpuId>> = used.iter().chain(&idle).map(in_order).collect();
        let seat = |(node, cpus): (usize, &Vec<CpuId>)| {
            cpus.iter().enumerate().map(|(at, &cpu)| (cpu, [node, at])).collect::<Vec<_>>()
        };
        let seats = cpus.iter().enumerate().flat_map(seat).collect();
        Nodes { cpus, used: used.len().max(1), width, seats }
    }

    /// Where a further copy of what plays on a CPU does.
    fn of_copy(&self, first: CpuId, copy: usize) -> CpuId {
        let [node, place] = self.seats.get(&first).copied().unwrap_or_default();
        let node = node + copy * self.used;
        let cpus = &self.cpus[node % self.cpus.len()];
        cpus[(place + node / self.cpus.len() * self.width) % cpus.len()]
    }
}

fn each_once(cpus: impl Iterator<Item = CpuId>) -> Vec<CpuId> {
    let mut seen = BTreeSet::new();
    cpus.filter(|cpu| seen.insert(*cpu)).collect()
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
        assert_eq!([cpus(0), cpus(1), cpus(2), cpus(3)], [[0, 5], [1, 4], [2, 6], [3, 7]]);
        assert_eq!(cpus(4), cpus(0));
        let told = "0->0 5->5; copy 2: 0->1 5->4; copy 3: 0->2 5->6; and so on to copy 9, around the 8 CPUs";
        assert_eq!(map.describe(9), told);
    }

    /// Two nodes of a recording are two nodes in each copy, as long as there are some.
    #[test]
    fn copies_have_nodes_of_their_own() {
        let from = machine(&[&[0, 1], &[2, 3]]);
        let to = machine(&[&[0, 1, 2], &[3, 4, 5], &[6, 7, 8], &[9, 10, 11], &[12, 13, 14]]);
        let map = CpuMap::new(CpuRule::Socket, &from, &to, &those(&[0, 1, 2, 3]));
        let cpus = |copy| [0, 1, 2, 3].map(|cpu| map.cpu(CpuId(cpu), 0, copy).0);
        let expected = [[0, 1, 3, 4], [6, 7, 9, 10], [12, 13, 2, 0]];
        assert_eq!([cpus(0), cpus(1), cpus(2)], expected);
    }
}
