//! Which nodes and CPUs are online, which CPUs and how much memory a node has, and the distances.

use std::collections::BTreeMap;

use nearpage::{CpuId, NodeId, Topology};

use super::error::SysfsError;
use super::meminfo::{self, Meminfo};
use super::source::{Source, unless_hidden};
use crate::idlist;
use crate::machine::{MachineNode, Note, default_distance};

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";
/// The online CPUs, ascending; `None` if unknown.
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

/// The CPUs that may come online, ascending; `None` if unknown.
pub(super) fn possible_cpus(source: &Source<'_>) -> Result<Option<Vec<u32>>, SysfsError> {
    unless_hidden(source.read(&format!("{CPUS}/possible"))?).map(|list| list.ids()).transpose()
}

/// The nodes that may come online, ascending; if unknown, the online ones.
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
    notes: &mut Vec<Note>,
) -> Result<Vec<MachineNode>, SysfsError> {
    let ids = match unless_hidden(source.read(&format!("{NODES}/online"))?) {
        Some(list) => list.ids()?,
        None => source.numbered(NODES, "node")?,
    };
    if ids.is_empty() {
        return Ok(vec![whole_machine(source, online_cpus)?]);
    }
    let (mut nodes, mut hidden) = (Vec::with_capacity(ids.len()), Vec::new());
    for id in ids.into_iter().map(NodeId) {
        let cpus = read_cpus(source, id, possible_cpus)?;
        if cpus.is_none() {
            hidden.push(id);
        }
        nodes.push(read_node(source, id, cpus.unwrap_or_default(), online_cpus)?);
    }
    settle_hidden(source, &mut nodes, &hidden, online_cpus, notes)?;
    Ok(nodes)
}

/// Assigns CPUs to nodes whose lists are hidden. The only node of a machine gets all online CPUs. One of several nodes
/// gets none, and then another node must have some.
fn settle_hidden(
    source: &Source<'_>,
    nodes: &mut [MachineNode],
    hidden: &[NodeId],
    online_cpus: Option<&[u32]>,
    notes: &mut Vec<Note>,
) -> Result<(), SysfsError> {
    let Some(&first) = hidden.first() else { return Ok(()) };
    match (nodes, online_cpus) {
        ([only], Some(online)) => only.cpus = online.iter().copied().map(CpuId).collect(),
        (nodes, _) if nodes.iter().all(|node| node.cpus.is_empty()) => {
            return Err(SysfsError::CpuListsHidden { file: source.display(&cpu_list(first)) });
        }
        _ => notes.extend(hidden.iter().map(|&node| Note::CpusUnknown { node })),
    }
    Ok(())
}

fn whole_machine(
    source: &Source<'_>,
    online_cpus: Option<&[u32]>,
) -> Result<MachineNode, SysfsError> {
    let Some(cpus) = online_cpus else {
        return Err(SysfsError::NoMachine { root: source.display("") });
    };
    let memory = read_meminfo(source, "proc/meminfo", None)?;
    let cpus = cpus.iter().copied().map(CpuId).collect();
    Ok(MachineNode::new(NodeId(0), cpus, memory.total, memory.free))
}

fn read_node(
    source: &Source<'_>,
    id: NodeId,
    mut cpus: Vec<u32>,
    online_cpus: Option<&[u32]>,
) -> Result<MachineNode, SysfsError> {
    // Some kernels keep offline CPUs in the list, and a CPU may come online between two reads.
    cpus.retain(|cpu| online_cpus.is_none_or(|online| online.binary_search(cpu).is_ok()));
    let memory = read_meminfo(source, &format!("{NODES}/node{id}/meminfo"), Some(id))?;
    let cpus = cpus.into_iter().map(CpuId).collect();
    Ok(MachineNode::new(id, cpus, memory.total, memory.free))
}

/// Gives CPUs that are online and on no node's list to a node: the one that the CPU's folder names, else the only node whose list
/// is hidden or missing, else the first. A kernel counts a CPU there whose node has no memory left and is not online.
pub(super) fn settle_without_node(
    source: &Source<'_>,
    nodes: &mut [MachineNode],
    online_cpus: Option<&[u32]>,
    notes: &mut Vec<Note>,
) -> Result<(), SysfsError> {
    let has_node = |nodes: &[MachineNode], cpu| nodes.iter().any(|node| node.has_cpu(CpuId(cpu)));
    let online = online_cpus.unwrap_or_default().iter().copied();
    let homeless: Vec<u32> = online.filter(|&cpu| !has_node(nodes, cpu)).collect();
    let unknown: Vec<NodeId> = notes
        .iter()
        .filter_map(|note| match note {
            Note::CpusUnknown { node } => Some(*node),
            _ => None,
        })
        .collect();
    let rest = match unknown[..] {
        [] => nodes.first().map(|node| node.id),
        [only] => Some(only),
        // Any of them may have it.
        _ => None,
    };
    let mut given: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for cpu in homeless {
        let linked = source.numbered(&format!("{CPUS}/cpu{cpu}"), "node")?;
        let mut linked = linked.into_iter().map(NodeId);
        let linked = linked.find(|id| nodes.iter().any(|node| node.id == *id));
        if let Some(node) = linked.or(rest) {
            given.entry(node).or_default().push(cpu);
        }
    }
    for (id, cpus) in given {
        let node = nodes.iter_mut().find(|node| node.id == id).expect("it is one of them");
        node.cpus.extend(cpus.iter().copied().map(CpuId));
        node.cpus.sort_unstable();
        notes.retain(|note| *note != Note::CpusUnknown { node: id });
        notes.push(Note::CpusWithoutNode { cpus, node: id });
    }
    Ok(())
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
            if distances[position * count + index] != Topology::LOCAL_DISTANCE {
                let file = source.display(&cpu_list(node.id));
                return Err(SysfsError::CpuOnTwoNodes { file, cpu, first: first.id });
            }
            node.cpus.retain(|cpu| !first.has_cpu(*cpu));
            notes.push(Note::CpusShared { node: node.id, first: first.id });
        }
    }
    Ok(())
}

/// A node's CPUs, from its list, from the mask of an old kernel, or from the entries of its folder. `None` if list and
/// mask are hidden and the folder has no entry of a CPU. The possible CPUs never change while a kernel runs, so a node
/// with another CPU is an error.
fn read_cpus(
    source: &Source<'_>,
    node: NodeId,
    possible: Option<&[u32]>,
) -> Result<Option<Vec<u32>>, SysfsError> {
    let folder = format!("{NODES}/node{node}");
    let list = source.read(&cpu_list(node))?;
    let mut is_hidden = list.is_some();
    let (cpus, file) = match unless_hidden(list) {
        Some(list) => (list.ids()?, list),
        None => {
            let mask = source.read(&format!("{folder}/cpumap"))?;
            is_hidden |= mask.is_some();
            match unless_hidden(mask) {
                Some(mask) => (mask.mask()?, mask),
                None => {
                    let cpus = source.numbered(&folder, "cpu")?;
                    return match cpus.is_empty() {
                        // A copy may lack one file of a folder, but not the folder of a node that is online.
                        true if is_hidden || source.has_folder(&folder)? => Ok(None),
                        true => Err(SysfsError::NodeWithoutCpuList {
                            file: source.display(&cpu_list(node)),
                            node,
                        }),
                        false => Ok(Some(cpus)),
                    };
                }
            }
        }
    };
    let Some(possible) = possible else { return Ok(Some(cpus)) };
    let is_impossible = |cpu: &u32| possible.binary_search(cpu).is_err();
    let impossible: Vec<u32> = cpus.iter().copied().filter(is_impossible).collect();
    if !impossible.is_empty() {
        let expected = format!("CPUs that {CPUS}/possible has: {}", idlist::format(possible));
        return Err(file.syntax(1, 1, &idlist::format(&impossible), expected));
    }
    Ok(Some(cpus))
}

fn cpu_list(node: NodeId) -> String {
    format!("{NODES}/node{node}/cpulist")
}

fn read_meminfo(
    source: &Source<'_>,
    path: &str,
    node: Option<NodeId>,
) -> Result<Meminfo, SysfsError> {
    match source.read_if_allowed(path)? {
        Some(file) => meminfo::parse(&file, node),
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
        return Ok(vec![Topology::LOCAL_DISTANCE]);
    }
    let mut distances = Vec::with_capacity(nodes.len() * nodes.len());
    let mut assumed = Vec::new();
    for (row, node) in nodes.iter().enumerate() {
        match read_row(source, node.id, row, nodes.len())? {
            Some(values) => distances.extend(values),
            None => {
                assumed.push(node.id.0);
                distances.extend((0..nodes.len()).map(|column| default_distance(row, column)));
            }
        }
    }
    if !assumed.is_empty() {
        notes.push(Note::DistancesAssumed { nodes: assumed });
    }
    Ok(distances)
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
        if *value < Topology::LOCAL_DISTANCE || is_local && *value != Topology::LOCAL_DISTANCE {
            let expected =
                if is_local { "10, the distance of a node to itself" } else { "10 to 255" };
            return Err(file.syntax(1, place, word, expected));
        }
    }
    Ok(Some(values))
}
