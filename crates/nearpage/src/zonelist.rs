//! Zonelists: for each node, which zones a request tries, in which order.
//!
//! Nearest node first, and within a node the highest kind first, so that the scarce low addresses go
//! last. A node has two lists: FALLBACK over all nodes, and NOFALLBACK (`__GFP_THISNODE`) over its own
//! zones, empty for a memoryless node.
//!
//! Nodes that are equally far would all be tried in the same order by everybody, and the first of them
//! would fill up first. So each node has a *load*: how often it came first among nodes of its distance in
//! the lists of the nodes before. Lists are made in ascending order of nodes, for all nodes
//! whether or not they have memory, and start from loads of zero. Hence the order of one node depends on
//! all nodes below it, and all lists are made anew when a node gains or loses its memory.
//!
//! Linux picks nodes one at a time by the lowest score,
//! `(distance + [below the local node] + [has CPUs]) * MAX_NUMNODES + load`. No load changes for a
//! node that is still to be picked and no load reaches `MAX_NUMNODES`, so this is the order by
//! (distance and terms, load, index): one sort, and right for any number of nodes.
//!
//! Source: `mm/page_alloc.c: build_all_zonelists, find_next_best_node`, 6.12.
//!
//! [`list`] is a list in memory, of which [`versions`] follow each other; [`cache`] remembers which of its zones were
//! full.

pub mod cache;
pub mod list;
pub mod versions;

use core::fmt;

use crate::topology::Topology;
use crate::units::{NodeIndex, ZoneKind};

/// What of a machine is there at the moment.
pub trait Online {
    /// Whether a zone has memory.
    fn is_populated(&self, node: NodeIndex, kind: ZoneKind) -> bool;

    /// Whether a node has CPUs.
    fn has_cpus(&self, node: NodeIndex) -> bool;

    /// Whether a node has memory in any zone.
    fn has_memory(&self, node: NodeIndex) -> bool {
        ZoneKind::ALL.into_iter().any(|kind| self.is_populated(node, kind))
    }
}

/// The machine with all its memory and all its CPUs.
impl Online for Topology<'_> {
    fn is_populated(&self, node: NodeIndex, kind: ZoneKind) -> bool {
        self.is_populated(node, kind)
    }

    fn has_cpus(&self, node: NodeIndex) -> bool {
        !self.node(node).cpus.is_empty()
    }
}

/// Whether nodes without CPUs are preferred to others that are equally far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuTerm {
    /// No: Linux on x86 at boot, where no CPU is known to its node yet when the lists are made.
    Ignored,
    /// Yes, since nobody is at home there: Linux after a rebuild, and nearpage.
    Counted,
}

/// How nodes are put in order.
#[derive(Clone, Copy, Debug)]
pub struct NodeOrder<'a, O> {
    /// Distances.
    pub topology: &'a Topology<'a>,
    /// Which nodes have memory and CPUs.
    pub online: &'a O,
    /// Whether CPUs matter.
    pub cpu_term: CpuTerm,
}

impl<O: Online> NodeOrder<'_, O> {
    /// Calls `each` with every node, ascending, and its fallback order. `loads` and `order` are
    /// scratch space.
    ///
    /// # Panics
    ///
    /// If `loads` or `order` has fewer entries than the topology has nodes.
    pub fn rebuild(
        &self,
        loads: &mut [u32],
        order: &mut [NodeIndex],
        mut each: impl FnMut(NodeIndex, &[NodeIndex]),
    ) {
        loads.fill(0);
        for local in self.topology.indexes() {
            each(local, self.fallback(local, loads, order));
        }
    }

    /// Writes the fallback order of one node to the front of `order` and returns it: the nodes that
    /// have memory, nearest first. `loads` are those that the orders of lower nodes left, or zeroes for
    /// a node that is added to a running machine.
    ///
    /// # Panics
    ///
    /// If `loads` or `order` has fewer entries than the topology has nodes.
    pub fn fallback<'o>(
        &self,
        local: NodeIndex,
        loads: &mut [u32],
        order: &'o mut [NodeIndex],
    ) -> &'o [NodeIndex] {
        let key = |node: NodeIndex| {
            (node != local, self.remoteness(local, node), loads[node.0 as usize], node)
        };
        let mut len = 0;
        // Each into its place: nodes are few, and a sort of the library's would be 7 KiB of code in every kernel.
        for node in self.topology.indexes().filter(|&node| self.online.has_memory(node)) {
            let place = order[..len].partition_point(|&before| key(before) < key(node));
            order.copy_within(place..len, place + 1);
            order[place] = node;
            len += 1;
        }
        let order = &order[..len];
        self.count_firsts(local, order, loads);
        order
    }

    /// The distance and the terms beside it.
    fn remoteness(&self, local: NodeIndex, node: NodeIndex) -> u16 {
        let penalised = self.cpu_term == CpuTerm::Counted && self.online.has_cpus(node);
        u16::from(self.topology.distance(local, node))
            + u16::from(node < local)
            + u16::from(penalised)
    }

    /// Adds to the load of each node that begins a run of equal distances. The local node's own
    /// distance begins the first run, with or without memory there.
    fn count_firsts(&self, local: NodeIndex, order: &[NodeIndex], loads: &mut [u32]) {
        let mut previous = self.topology.distance(local, local);
        for &node in order {
            let distance = self.topology.distance(local, node);
            if distance != previous {
                loads[node.0 as usize] += 1;
            }
            previous = distance;
        }
    }
}

/// A zone on a zonelist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneRef {
    /// The node.
    pub node: NodeIndex,
    /// The kind of the node's zone.
    pub kind: ZoneKind,
}

/// The FALLBACK list of the node with this fallback order.
pub fn fallback_zones<O: Online>(order: &[NodeIndex], online: &O) -> impl Iterator<Item = ZoneRef> {
    order.iter().flat_map(|&node| nofallback_zones(node, online))
}

/// The NOFALLBACK list of a node: its own zones, highest kind first. Device zones are on no list.
pub fn nofallback_zones<O: Online>(node: NodeIndex, online: &O) -> impl Iterator<Item = ZoneRef> {
    const KINDS: [ZoneKind; 4] =
        [ZoneKind::Movable, ZoneKind::Normal, ZoneKind::Dma32, ZoneKind::Dma];
    let populated = move |kind: &ZoneKind| online.is_populated(node, *kind);
    KINDS.into_iter().filter(populated).map(move |kind| ZoneRef { node, kind })
}

/// The node whose memory is local to the CPUs of the node with this fallback order: the first with
/// memory that any request may use, so the node itself unless it is memoryless. `None` if no node has
/// such memory.
/// `mm/page_alloc.c: local_memory_node`; `numa_mem_id()` of a CPU.
pub fn effective_node<O: Online>(order: &[NodeIndex], online: &O) -> Option<NodeIndex> {
    let usable = |zone: &ZoneRef| zone.kind <= ZoneKind::Normal;
    fallback_zones(order, online).find(usable).map(|zone| zone.node)
}

/// Which node a CPU of a memoryless node calls its own when it asks for memory (`numa_mem_id()`). Its
/// zonelists are the same either way, but what allocates by node differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemorylessCpu {
    /// The memoryless node: Linux on x86, which is built without `CONFIG_HAVE_MEMORYLESS_NODES`.
    OwnNode,
    /// The nearest node with memory ([`effective_node`]).
    NearestMemory,
}

/// Whether the printed order of a memoryless node begins with the node itself. Its list is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemorylessLine {
    /// Yes: Linux 6.1.
    WithSelf,
    /// No: Linux 6.12.
    WithoutSelf,
}

/// The nodes that the kernel logs for a node with this fallback order.
pub fn logged_order(
    local: NodeIndex,
    order: &[NodeIndex],
    memoryless: MemorylessLine,
) -> impl Iterator<Item = NodeIndex> {
    let with_self = memoryless == MemorylessLine::WithSelf && order.first() != Some(&local);
    with_self.then_some(local).into_iter().chain(order.iter().copied())
}

/// Writes the line that the kernel logs for a node with this fallback order, by node ids:
/// `Fallback order for Node 0: 0 2 1 `, with a space and a newline at its end.
///
/// # Errors
///
/// Those of `out`.
pub fn write_fallback_order(
    out: &mut impl fmt::Write,
    topology: &Topology<'_>,
    local: NodeIndex,
    order: &[NodeIndex],
    memoryless: MemorylessLine,
) -> fmt::Result {
    let id = |node: NodeIndex| topology.node(node).id;
    write!(out, "Fallback order for Node {}: ", id(local))?;
    for node in logged_order(local, order, memoryless) {
        write!(out, "{} ", id(node))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use std_alloc::string::String;
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::topology::{AddressMap, NodeBuf, TopologyBuf};
    use crate::units::{CpuId, NodeId, Pfn, PfnRange};

    /// A machine with one page and one CPU on every node.
    fn machine(count: usize, distance: impl Fn(usize, usize) -> u8) -> TopologyBuf {
        let node = |at: usize| NodeBuf {
            id: NodeId(at as u32),
            memory: vec![PfnRange::new(at as u64, at as u64 + 1)],
            cpus: vec![CpuId(at as u32)],
            movable_from: None,
        };
        let entry =
            |at| if at / count == at % count { 10 } else { distance(at / count, at % count) };
        TopologyBuf {
            nodes: (0..count).map(node).collect(),
            distances: (0..count * count).map(entry).collect(),
            address_map: AddressMap::Flat,
        }
    }

    /// Calls `each` with the fallback order of every node.
    fn rebuild(
        machine: &TopologyBuf,
        cpu_term: CpuTerm,
        mut each: impl FnMut(&Topology<'_>, NodeIndex, &[NodeIndex]),
    ) {
        let run = |topology: &Topology<'_>| {
            // A rebuild starts from zeroes, whatever was left there.
            let mut loads = vec![9; topology.len()];
            let mut order = vec![NodeIndex(0); topology.len()];
            NodeOrder { topology, online: topology, cpu_term }.rebuild(
                &mut loads,
                &mut order,
                |local, order| each(topology, local, order),
            );
        };
        machine.with(run).unwrap();
    }

    fn orders(machine: &TopologyBuf, cpu_term: CpuTerm) -> Vec<Vec<u16>> {
        let mut orders = Vec::new();
        rebuild(machine, cpu_term, |_, _, order| {
            orders.push(order.iter().map(|node| node.0).collect());
        });
        orders
    }

    fn lines(machine: &TopologyBuf, memoryless: MemorylessLine) -> String {
        let mut out = String::new();
        rebuild(machine, CpuTerm::Ignored, |topology, local, order| {
            write_fallback_order(&mut out, topology, local, order, memoryless).unwrap();
        });
        out
    }

    #[test]
    fn orders_are_as_recorded() {
        // Vector A: three equal nodes.
        let equal = machine(3, |_, _| 20);
        let expected = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
        assert_eq!(orders(&equal, CpuTerm::Ignored), expected);
        // Vector F: ring, hierarchy, eight equal nodes, six nodes in pairs.
        let ring = machine(4, |a, b| if a.abs_diff(b) == 2 { 30 } else { 20 });
        let expected = [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]];
        assert_eq!(orders(&ring, CpuTerm::Ignored), expected);
        let hierarchy = machine(4, |a, b| if a / 2 == b / 2 { 12 } else { 32 });
        let expected = [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]];
        assert_eq!(orders(&hierarchy, CpuTerm::Ignored), expected);
        let rotation = |node: u16| (0..8).map(|step| (node + step) % 8).collect::<Vec<_>>();
        let expected: Vec<_> = (0..8).map(rotation).collect();
        assert_eq!(orders(&machine(8, |_, _| 20), CpuTerm::Ignored), expected);
        let pairs = machine(6, |a, b| [11, 21, 31][(a / 2).abs_diff(b / 2)]);
        let expected = [
            [0, 1, 2, 3, 4, 5],
            [1, 0, 3, 2, 5, 4],
            [2, 3, 4, 5, 0, 1],
            [3, 2, 5, 4, 0, 1],
            [4, 5, 2, 3, 0, 1],
            [5, 4, 3, 2, 1, 0],
        ];
        assert_eq!(orders(&pairs, CpuTerm::Ignored), expected);
    }

    #[test]
    fn nodes_without_cpus_come_first_after_a_rebuild() {
        // 6.12.117, four equal nodes, node 3 without CPUs added at run time.
        let mut machine = machine(4, |_, _| 20);
        machine.nodes[3].cpus.clear();
        let boot = [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]];
        assert_eq!(orders(&machine, CpuTerm::Ignored), boot);
        let rebuilt = [[0, 3, 1, 2], [1, 3, 2, 0], [2, 3, 0, 1], [3, 0, 1, 2]];
        assert_eq!(orders(&machine, CpuTerm::Counted), rebuilt);
    }

    /// Vector D: node 1 has a CPU and no memory.
    fn memoryless() -> TopologyBuf {
        let distances = vec![10, 20, 40, 20, 10, 15, 40, 15, 10];
        let mut machine = TopologyBuf { distances, ..machine(3, |_, _| 10) };
        machine.nodes[1].memory.clear();
        machine
    }

    #[test]
    fn lines_are_as_logged() {
        let own = "Fallback order for Node 0: 0 2 \nFallback order for Node 1: 2 0 \n\
                   Fallback order for Node 2: 2 0 \n";
        assert_eq!(lines(&memoryless(), MemorylessLine::WithoutSelf), own);
        let older = own.replace("1: 2 0", "1: 1 2 0");
        assert_eq!(lines(&memoryless(), MemorylessLine::WithSelf), older);
        // Lines name ids, not indexes.
        let mut sparse = memoryless();
        sparse.nodes[2].id = NodeId(252);
        assert!(
            lines(&sparse, MemorylessLine::WithoutSelf)
                .ends_with("Fallback order for Node 252: 252 0 \n")
        );
    }

    #[test]
    fn zones_go_from_highest_to_lowest_within_a_node() {
        let mut machine = memoryless();
        machine.address_map = AddressMap::X86;
        machine.nodes[0].memory = vec![PfnRange::new(1, 0x18_0000)];
        machine.nodes[0].movable_from = Some(Pfn(0x17_0000));
        machine.nodes[2].memory = vec![PfnRange::new(0x18_0000, 0x20_0000)];
        machine.nodes[2].movable_from = Some(Pfn(0));
        let check = |topology: &Topology<'_>| {
            let name = |zone: ZoneRef| (zone.node.0, zone.kind.name());
            let order = [NodeIndex(2), NodeIndex(0)];
            let list: Vec<_> = fallback_zones(&order, topology).map(name).collect();
            let own = [(0, "Movable"), (0, "Normal"), (0, "DMA32"), (0, "DMA")];
            assert_eq!(list[0], (2, "Movable"));
            assert_eq!(list[1..], own);
            let nofallback = |node| nofallback_zones(NodeIndex(node), topology).map(name);
            assert_eq!(nofallback(0).collect::<Vec<_>>(), own);
            assert_eq!(nofallback(1).count(), 0);
            // Node 2 has Movable memory only: not every request may use it.
            assert_eq!(effective_node(&order, topology), Some(NodeIndex(0)));
            assert_eq!(effective_node(&order[..1], topology), None);
        };
        machine.with(check).unwrap();
    }

    #[test]
    fn loads_never_outweigh_distances() {
        // Every node's nearest is the last one: its load passes 1024, Linux's weight of a distance.
        let count = 1500;
        let machine = machine(count, |a, b| if a == count - 1 || b == count - 1 { 15 } else { 16 });
        let orders = orders(&machine, CpuTerm::Counted);
        for (local, order) in orders.iter().enumerate().take(count - 1) {
            assert_eq!(usize::from(order[1]), count - 1, "node {local}");
        }
    }

    /// Linux's procedure as the facts state it: pick the lowest score, again and again.
    fn naive_orders(machine: &TopologyBuf, cpu_term: CpuTerm) -> Vec<Vec<u16>> {
        let count = machine.nodes.len();
        let distance = |a: usize, b: usize| u64::from(machine.distances[a * count + b]);
        let has_memory = |node: usize| !machine.nodes[node].memory.is_empty();
        let mut loads = vec![0u64; count];
        let mut orders = Vec::new();
        for local in 0..count {
            let (mut order, mut previous) = (Vec::new(), local);
            loop {
                let unused = |node: &usize| has_memory(*node) && !order.contains(&(*node as u16));
                let score = |&node: &usize| {
                    let cpus = cpu_term == CpuTerm::Counted && !machine.nodes[node].cpus.is_empty();
                    let near = distance(local, node) + u64::from(node < local) + u64::from(cpus);
                    (node != local, near * 1024 + loads[node])
                };
                let Some(pick) = (0..count).filter(unused).min_by_key(score) else { break };
                if distance(local, pick) != distance(local, previous) {
                    loads[pick] += 1;
                }
                order.push(pick as u16);
                previous = pick;
            }
            orders.push(order);
        }
        orders
    }

    prop_compose! {
        fn any_machine()(count in 1usize..24)(
            count in Just(count),
            distances in prop::collection::vec(10u8..14, count * count),
            nodes in prop::collection::vec((any::<bool>(), any::<bool>()), count),
        ) -> TopologyBuf {
            let mut machine = machine(count, |a, b| distances[a * count + b]);
            for (node, (memory, cpus)) in machine.nodes.iter_mut().zip(nodes) {
                if !memory {
                    node.memory.clear();
                }
                if !cpus {
                    node.cpus.clear();
                }
            }
            machine
        }
    }

    proptest! {
        #[test]
        fn sorting_is_the_same_as_picking(machine in any_machine()) {
            for cpu_term in [CpuTerm::Ignored, CpuTerm::Counted] {
                prop_assert_eq!(orders(&machine, cpu_term), naive_orders(&machine, cpu_term));
            }
        }
    }
}
