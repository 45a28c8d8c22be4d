//! Which nodes and CPUs are online, which CPUs and how much memory a node has, and the distances.

use nearpage::{CpuId, NodeId};

use super::error::SysfsError;
use super::machine::{MachineNode, Note};
use super::meminfo::{self, Meminfo};
use super::source::{Source, unless_hidden};
use crate::idlist;

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";
/// The distance of a node to itself. `include/linux/topology.h: LOCAL_DISTANCE`.
const LOCAL_DISTANCE: u8 = 10;
/// The distance between nodes where firmware tells none. `include/linux/topology.h: REMOTE_DISTANCE`.
const REMOTE_DISTANCE: u8 = 20;

/// The online CPUs, ascending; `None` if the tree does not tell.
pub(super) fn online_cpus(source: &Source<'_>) -> Result<Option<Vec<u32>>, SysfsError> {
    if let Some(list) = unless_hidden(source.read(&format!("{CPUS}/online"))?) {
        return list.ids().map(Some);
    }
    // Old kernels have no list, and no `online` for a CPU that cannot go offline.
    let mut cpus = Vec::new();
    for cpu in source.numbered(CPUS, "cpu")? {
        let state = source.read(&format!("{CPUS}/cpu{cpu}/online"))?;
        if state.is_none_or(|file| file.text.trim() != "0") {
            cpus.push(cpu);
        }
    }
    Ok(if cpus.is_empty() { None } else { Some(cpus) })
}

/// The CPUs that may come online, ascending; `None` if the tree does not tell.
pub(super) fn possible_cpus(source: &Source<'_>) -> Result<Option<Vec<u32>>, SysfsError> {
    unless_hidden(source.read(&format!("{CPUS}/possible"))?).map(|list| list.ids()).transpose()
}

/// The nodes that may come online, ascending; the online ones where the tree does not tell.
pub(super) fn possible_nodes(
    source: &Source<'_>,
    online: &[MachineNode],
) -> Result<Vec<NodeId>, SysfsError> {
    match unless_hidden(source.read(&format!("{NODES}/possible"))?) {
        Some(list) => Ok(list.ids()?.into_iter().map(NodeId).collect()),
        None => Ok(online.iter().map(|node| node.id).collect()),
    }
}

/// The online nodes, ascending. Without a folder of nodes: one node 0 with everything.
pub(super) fn read(
    source: &Source<'_>,
    online_cpus: Option<&[u32]>,
    possible_cpus: Option<&[u32]>,
) -> Result<Vec<MachineNode>, SysfsError> {
    let ids = match unless_hidden(source.read(&format!("{NODES}/online"))?) {
        Some(list) => list.ids()?,
        None => source.numbered(NODES, "node")?,
    };
    if ids.is_empty() {
        return Ok(vec![whole_machine(source, online_cpus)?]);
    }
    let node = |id| read_node(source, NodeId(id), online_cpus, possible_cpus);
    ids.into_iter().map(node).collect()
}

fn whole_machine(
    source: &Source<'_>,
    online_cpus: Option<&[u32]>,
) -> Result<MachineNode, SysfsError> {
    let Some(cpus) = online_cpus else {
        return Err(SysfsError::NoMachine { root: source.display("") });
    };
    let memory = read_meminfo(source, "proc/meminfo")?;
    let cpus = cpus.iter().copied().map(CpuId).collect();
    Ok(MachineNode::new(NodeId(0), cpus, memory.total, memory.free))
}

fn read_node(
    source: &Source<'_>,
    id: NodeId,
    online_cpus: Option<&[u32]>,
    possible_cpus: Option<&[u32]>,
) -> Result<MachineNode, SysfsError> {
    let folder = format!("{NODES}/node{id}");
    let mut cpus = read_cpus(source, id, &folder, possible_cpus)?;
    // Some kernels keep offline CPUs in the list, and one may come online between two files.
    cpus.retain(|cpu| online_cpus.is_none_or(|online| online.binary_search(cpu).is_ok()));
    let memory = read_meminfo(source, &format!("{folder}/meminfo"))?;
    let cpus = cpus.into_iter().map(CpuId).collect();
    Ok(MachineNode::new(id, cpus, memory.total, memory.free))
}

/// Leaves each CPU on one node. A kernel that emulates nodes (`numa=fake=`) lists the CPUs of the real
/// node on all its emulated ones, which are at distance 10: there the lowest node keeps them.
pub(super) fn settle_cpus(
    source: &Source<'_>,
    nodes: &mut [MachineNode],
    distances: &[u8],
    notes: &mut Vec<Note>,
) -> Result<(), SysfsError> {
    let count = nodes.len();
    for index in 1..count {
        let (before, rest) = nodes.split_at_mut(index);
        let node = &mut rest[0];
        for (position, first) in before.iter().enumerate() {
            let Some(&cpu) = node.cpus.iter().find(|cpu| first.has_cpu(**cpu)) else { continue };
            if distances[position * count + index] != LOCAL_DISTANCE {
                let file = source.display(&format!("{NODES}/node{}/cpulist", node.id));
                return Err(SysfsError::CpuOnTwoNodes { file, cpu, first: first.id });
            }
            node.cpus.retain(|cpu| !first.has_cpu(*cpu));
            notes.push(Note::CpusShared { node: node.id, first: first.id });
        }
    }
    Ok(())
}

/// A node's CPUs, from a list or, of old kernels, a mask. Which CPUs are possible does not change while a
/// kernel runs, so that a node never has others.
fn read_cpus(
    source: &Source<'_>,
    node: NodeId,
    folder: &str,
    possible: Option<&[u32]>,
) -> Result<Vec<u32>, SysfsError> {
    let (cpus, file) = match source.read(&format!("{folder}/cpulist"))? {
        Some(list) => (list.ids()?, list),
        None => match source.read(&format!("{folder}/cpumap"))? {
            Some(mask) => (mask.mask()?, mask),
            None => {
                let file = source.display(&format!("{folder}/cpulist"));
                return Err(SysfsError::NodeWithoutCpuList { file, node });
            }
        },
    };
    let Some(possible) = possible else { return Ok(cpus) };
    let is_impossible = |cpu: &u32| possible.binary_search(cpu).is_err();
    let impossible: Vec<u32> = cpus.iter().copied().filter(is_impossible).collect();
    if !impossible.is_empty() {
        let expected = format!("CPUs that {CPUS}/possible has: {}", idlist::format(possible));
        return Err(file.syntax(1, 1, &idlist::format(&impossible), expected));
    }
    Ok(cpus)
}

fn read_meminfo(source: &Source<'_>, path: &str) -> Result<Meminfo, SysfsError> {
    match source.read_if_allowed(path)? {
        Some(file) => meminfo::parse(&file),
        None => Ok(Meminfo::default()),
    }
}

/// The distances between `nodes`, row by row. The kernel lists them over online nodes only.
pub(super) fn distances(
    source: &Source<'_>,
    nodes: &[MachineNode],
    notes: &mut Vec<Note>,
) -> Result<Vec<u8>, SysfsError> {
    if nodes.len() == 1 {
        // Old kernels without NUMA print 0 for their only node.
        return Ok(vec![LOCAL_DISTANCE]);
    }
    let mut distances = Vec::with_capacity(nodes.len() * nodes.len());
    for (row, node) in nodes.iter().enumerate() {
        match read_row(source, node.id, row, nodes.len())? {
            Some(values) => distances.extend(values),
            None => {
                notes.push(Note::DistancesAssumed { node: node.id });
                distances.extend((0..nodes.len()).map(|column| default_distance(row, column)));
            }
        }
    }
    Ok(distances)
}

/// What the kernel assumes between two nodes where firmware tells nothing.
pub(super) fn default_distance(row: usize, column: usize) -> u8 {
    if row == column { LOCAL_DISTANCE } else { REMOTE_DISTANCE }
}

fn read_row(
    source: &Source<'_>,
    node: NodeId,
    row: usize,
    count: usize,
) -> Result<Option<Vec<u8>>, SysfsError> {
    let file = source.read_if_allowed(&format!("{NODES}/node{node}/distance"))?;
    let Some(file) = unless_hidden(file) else {
        return Ok(None);
    };
    let values: Vec<u8> = file.numbers("a distance from 10 to 255")?;
    if values.len() != count {
        let expected = format!("{count} distances, one for each online node");
        return Err(file.syntax(1, 1, file.text.trim_end(), expected));
    }
    for (column, (value, (place, word))) in
        values.iter().zip(super::source::words(&file.text)).enumerate()
    {
        let is_local = column == row;
        if *value < LOCAL_DISTANCE || is_local && *value != LOCAL_DISTANCE {
            let expected =
                if is_local { "10, the distance of a node to itself" } else { "10 to 255" };
            return Err(file.syntax(1, place, word, expected));
        }
    }
    Ok(Some(values))
}
