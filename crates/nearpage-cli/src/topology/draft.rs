//! Nodes and distances as a reader finds them, each with its place, until all of them can be checked.

use std::collections::BTreeMap;

use nearpage::topology::{LOCAL_DISTANCE, MAX_NODES};
use nearpage::units::{CpuId, NodeId};
use nearpage_linux::idlist;
use nearpage_linux::sysfs::{KernelSettings, Machine, MachineNode, Note};

use super::PAGE_BYTES;
use super::error::{InputError, Place, Problem};

/// The distance between nodes that nobody gave: `include/linux/topology.h: REMOTE_DISTANCE`.
const REMOTE_DISTANCE: u8 = 20;

/// A machine that is being read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    nodes: BTreeMap<NodeId, DraftNode>,
    /// The node that a CPU was given to.
    owners: BTreeMap<CpuId, NodeId>,
    distances: BTreeMap<(NodeId, NodeId), (u64, Place)>,
}

/// A node that is being read.
#[derive(Debug, Default)]
struct DraftNode {
    cpus: Option<Vec<CpuId>>,
    memory_bytes: Option<Option<u64>>,
    free_bytes: Option<Option<u64>>,
}

impl Draft {
    /// Makes sure that there is a node `id`.
    pub(super) fn add_node(&mut self, id: NodeId) {
        self.nodes.entry(id).or_default();
    }

    /// Gives a node its CPUs.
    pub(super) fn set_cpus(
        &mut self,
        id: NodeId,
        ids: Vec<u32>,
        place: &Place,
    ) -> Result<(), InputError> {
        let mut cpus: Vec<CpuId> = ids.into_iter().map(CpuId).collect();
        for &cpu in &cpus {
            if let Some(first) = self.owners.insert(cpu, id) {
                return Err(Problem::CpuTaken { cpu, first }.at(place));
            }
        }
        cpus.sort_unstable();
        let node = self.nodes.entry(id).or_default();
        set_once(&mut node.cpus, cpus, format!("the list of CPUs of node {id}"), place)
    }

    /// Gives a node its memory; `None` if it is known not to be known.
    pub(super) fn set_memory(
        &mut self,
        id: NodeId,
        bytes: Option<u64>,
        place: &Place,
    ) -> Result<(), InputError> {
        let node = self.nodes.entry(id).or_default();
        set_once(&mut node.memory_bytes, bytes, format!("the size of node {id}"), place)
    }

    /// Tells how much of a node's memory is free.
    pub(super) fn set_free(
        &mut self,
        id: NodeId,
        bytes: Option<u64>,
        place: &Place,
    ) -> Result<(), InputError> {
        let node = self.nodes.entry(id).or_default();
        set_once(&mut node.free_bytes, bytes, format!("the free memory of node {id}"), place)
    }

    /// Sets the distance from one node to another.
    pub(super) fn set_distance(
        &mut self,
        from: NodeId,
        to: NodeId,
        distance: u64,
        place: &Place,
    ) -> Result<(), InputError> {
        match self.distances.insert((from, to), (distance, place.clone())) {
            Some(_) => {
                let what = format!("the distance from node {from} to node {to}");
                Err(Problem::Repeated { what }.at(place))
            }
            None => Ok(()),
        }
    }

    /// The nodes so far, ascending.
    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// Checks everything and makes a machine of it. A distance that was not given is that of the other
    /// direction, or else 20. `input` is the place of what no line is to blame for.
    pub(super) fn finish(
        self,
        input: &Place,
        expected: &'static str,
    ) -> Result<Machine, InputError> {
        if self.nodes.is_empty() {
            return Err(Problem::NoNodes { expected }.at(input));
        }
        if self.nodes.len() > MAX_NODES {
            let found = format!("{} nodes", self.nodes.len());
            return Err(Problem::syntax(&found, format!("at most {MAX_NODES}")).at(input));
        }
        let distances = self.check_distances()?;
        let notes = self.notes();
        let nodes: Vec<MachineNode> = self.nodes.into_iter().map(finish_node).collect();
        Ok(Machine {
            possible_nodes: nodes.iter().map(|node| node.id).collect(),
            possible_cpus: self.owners.into_keys().collect(),
            nodes,
            distances,
            page_bytes: PAGE_BYTES,
            settings: KernelSettings::default(),
            last_level_caches: Vec::new(),
            notes,
        })
    }

    fn check_distances(&self) -> Result<Vec<u8>, InputError> {
        let count = self.nodes.len();
        let positions: BTreeMap<NodeId, usize> = self.ids().zip(0..).collect();
        let position = |node: NodeId, place: &Place| {
            positions.get(&node).copied().ok_or_else(|| {
                let ids: Vec<u32> = self.ids().map(|id| id.0).collect();
                Problem::UnknownNode { node, known: idlist::format(&ids) }.at(place)
            })
        };
        let local =
            |entry| if entry / count == entry % count { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        let mut distances: Vec<u8> = (0..count * count).map(local).collect();
        for (&(from, to), (distance, place)) in &self.distances {
            let entry = (position(from, place)?, position(to, place)?);
            let distance =
                check_distance(from, to, *distance).map_err(|problem| problem.at(place))?;
            distances[entry.0 * count + entry.1] = distance;
            if !self.distances.contains_key(&(to, from)) {
                distances[entry.1 * count + entry.0] = distance;
            }
        }
        Ok(distances)
    }

    fn notes(&self) -> Vec<Note> {
        let is_unknown = |node: &DraftNode| node.memory_bytes.flatten().is_none();
        let unknown = self.nodes.iter().filter(|(_, node)| is_unknown(node));
        unknown.map(|(&node, _)| Note::MemoryUnknown { node }).collect()
    }
}

/// Fills a slot, or says that it was filled before.
fn set_once<T>(
    slot: &mut Option<T>,
    value: T,
    what: String,
    place: &Place,
) -> Result<(), InputError> {
    match slot.replace(value) {
        Some(_) => Err(Problem::Repeated { what }.at(place)),
        None => Ok(()),
    }
}

fn check_distance(from: NodeId, to: NodeId, distance: u64) -> Result<u8, Problem> {
    let written = distance.to_string();
    match u8::try_from(distance) {
        Ok(LOCAL_DISTANCE) if from == to => Ok(LOCAL_DISTANCE),
        _ if from == to => Err(Problem::LocalDistance { node: from, distance: written }),
        Ok(distance) if distance >= LOCAL_DISTANCE => Ok(distance),
        _ => Err(Problem::Distance { from, to, distance: written }),
    }
}

fn finish_node((id, node): (NodeId, DraftNode)) -> MachineNode {
    MachineNode {
        id,
        cpus: node.cpus.unwrap_or_default(),
        memory_bytes: node.memory_bytes.flatten(),
        free_bytes: node.free_bytes.flatten(),
        zones: Vec::new(),
    }
}
