//! Nodes and distances as a reader finds them, each with its place, until all of them can be checked.

use std::collections::BTreeMap;

use nearpage::{CpuId, NodeId, Topology};

use super::PAGE_BYTES;
use super::error::{DescriptionError, Place, Problem};
use crate::idlist;
use crate::sysfs::{Machine, MachineNode, Note};

/// The distance between nodes that nobody gave: `include/linux/topology.h: REMOTE_DISTANCE`.
const REMOTE_DISTANCE: u8 = 20;

/// The most nodes that a machine may have: `MAX_NUMNODES` of Linux with the largest `CONFIG_NODES_SHIFT`, 10.
/// The core would take more, but no machine has them, and distances and fallback orders grow with the square.
pub const NODES_MAX: usize = 1024;

/// A machine that is being read.
#[derive(Debug, Default)]
pub struct Draft {
    nodes: BTreeMap<NodeId, DraftNode>,
    /// The node that a CPU was given to.
    owners: BTreeMap<CpuId, NodeId>,
    /// Each distance, and which of `places` it stands at.
    distances: BTreeMap<(NodeId, NodeId), (u64, usize)>,
    /// Where distances stand. A row of them has one place: a place is long, and there are up to a million distances.
    places: Vec<Place>,
}

/// A node that is being read.
#[derive(Debug, Default)]
struct DraftNode {
    cpus: Option<Vec<CpuId>>,
    memory_bytes: Option<Option<u64>>,
    free_bytes: Option<Option<u64>>,
}

impl DraftNode {
    /// Checks that no more memory is free than there is, once both are known: either may come first.
    fn check_free(&self, node: NodeId) -> Result<(), Problem> {
        match (self.free_bytes.flatten(), self.memory_bytes.flatten()) {
            (Some(free), Some(size)) if free > size => {
                Err(Problem::FreeExceedsSize { node, free, size })
            }
            _ => Ok(()),
        }
    }
}

impl Draft {
    /// Makes sure that there is a node `id`.
    ///
    /// # Errors
    ///
    /// One node more than [`NODES_MAX`].
    pub fn add_node(&mut self, id: NodeId, place: &Place) -> Result<(), DescriptionError> {
        self.node(id, place).map(|_| ())
    }

    /// The node `id`, which is added if it is not there.
    fn node(&mut self, id: NodeId, place: &Place) -> Result<&mut DraftNode, DescriptionError> {
        if self.nodes.len() == NODES_MAX && !self.contains(id) {
            return Err(Problem::TooManyNodes.at(place));
        }
        Ok(self.nodes.entry(id).or_default())
    }

    /// Gives a node its CPUs.
    ///
    /// # Errors
    ///
    /// A CPU that some node has, or a node that has been given CPUs; too many nodes.
    pub fn set_cpus(
        &mut self,
        id: NodeId,
        ids: Vec<u32>,
        place: &Place,
    ) -> Result<(), DescriptionError> {
        let mut cpus: Vec<CpuId> = ids.into_iter().map(CpuId).collect();
        for &cpu in &cpus {
            if let Some(first) = self.owners.insert(cpu, id) {
                return Err(Problem::CpuTaken { cpu, first }.at(place));
            }
        }
        cpus.sort_unstable();
        let node = self.node(id, place)?;
        set_once(&mut node.cpus, cpus, format!("the list of CPUs of node {id}"), place)
    }

    /// Gives a node its memory; `None` if the text says that it is not known.
    ///
    /// # Errors
    ///
    /// A node that has been given memory, or less than is free of it; too many nodes.
    pub fn set_memory(
        &mut self,
        id: NodeId,
        bytes: Option<u64>,
        place: &Place,
    ) -> Result<(), DescriptionError> {
        let node = self.node(id, place)?;
        set_once(&mut node.memory_bytes, bytes, format!("the size of node {id}"), place)?;
        node.check_free(id).map_err(|problem| problem.at(place))
    }

    /// Tells how much of a node's memory is free; `None` if the text says that it is not known.
    ///
    /// # Errors
    ///
    /// A node whose free memory has been told, or more of it than the node has; too many nodes.
    pub fn set_free(
        &mut self,
        id: NodeId,
        bytes: Option<u64>,
        place: &Place,
    ) -> Result<(), DescriptionError> {
        let node = self.node(id, place)?;
        set_once(&mut node.free_bytes, bytes, format!("the free memory of node {id}"), place)?;
        node.check_free(id).map_err(|problem| problem.at(place))
    }

    /// Sets the distance from one node to another. [`finish`](Self::finish) checks it.
    ///
    /// # Errors
    ///
    /// A distance that was set before.
    pub fn set_distance(
        &mut self,
        from: NodeId,
        to: NodeId,
        distance: u64,
        place: &Place,
    ) -> Result<(), DescriptionError> {
        if self.places.last() != Some(place) {
            self.places.push(place.clone());
        }
        match self.distances.insert((from, to), (distance, self.places.len() - 1)) {
            Some(_) => {
                let what = format!("the distance from node {from} to node {to}");
                Err(Problem::Repeated { what }.at(place))
            }
            None => Ok(()),
        }
    }

    /// The nodes so far, ascending.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// Whether there is a node `id` so far.
    pub fn contains(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Checks everything and makes a machine of it. A distance that was not given is that of the other
    /// direction, or else 20. `input` is the place of what no line is to blame for, and `expected` is what
    /// the text should have said if it describes no node.
    ///
    /// # Errors
    ///
    /// No node, or a distance that is out of range or names an unknown node.
    pub fn finish(
        self,
        input: &Place,
        expected: &'static str,
    ) -> Result<Machine, DescriptionError> {
        if self.nodes.is_empty() {
            return Err(Problem::NoNodes { expected }.at(input));
        }
        let distances = self.check_distances()?;
        let notes = self.notes();
        let nodes: Vec<MachineNode> = self.nodes.into_iter().map(finish_node).collect();
        Ok(Machine { notes, ..Machine::new(nodes, distances, PAGE_BYTES) })
    }

    fn check_distances(&self) -> Result<Vec<u8>, DescriptionError> {
        let count = self.nodes.len();
        let positions: BTreeMap<NodeId, usize> = self.ids().zip(0..).collect();
        let position = |node: NodeId, place: &Place| {
            positions.get(&node).copied().ok_or_else(|| {
                let ids: Vec<u32> = self.ids().map(|id| id.0).collect();
                Problem::UnknownNode { node, known: idlist::format(&ids) }.at(place)
            })
        };
        let local = |entry| {
            if entry / count == entry % count { Topology::LOCAL_DISTANCE } else { REMOTE_DISTANCE }
        };
        let mut distances: Vec<u8> = (0..count * count).map(local).collect();
        let mut given = Vec::with_capacity(self.distances.len());
        for (&(from, to), &(distance, place)) in &self.distances {
            let place = &self.places[place];
            let entry = (position(from, place)?, position(to, place)?);
            let distance =
                check_distance(from, to, distance).map_err(|problem| problem.at(place))?;
            given.push((entry, distance));
        }
        // First as the other direction, so that one that was given itself is written over it.
        for &((from, to), distance) in &given {
            distances[to * count + from] = distance;
        }
        for &((from, to), distance) in &given {
            distances[from * count + to] = distance;
        }
        Ok(distances)
    }

    fn notes(&self) -> Vec<Note> {
        let of_node = |(&node, draft): (&NodeId, &DraftNode)| {
            let cpus = draft.cpus.is_none().then_some(Note::CpusUnknown { node });
            let memory = draft.memory_bytes.flatten().is_none();
            cpus.into_iter().chain(memory.then_some(Note::MemoryUnknown { node }))
        };
        self.nodes.iter().flat_map(of_node).collect()
    }
}

/// Fills a slot, or says that it was filled before.
fn set_once<T>(
    slot: &mut Option<T>,
    value: T,
    what: String,
    place: &Place,
) -> Result<(), DescriptionError> {
    match slot.replace(value) {
        Some(_) => Err(Problem::Repeated { what }.at(place)),
        None => Ok(()),
    }
}

fn check_distance(from: NodeId, to: NodeId, distance: u64) -> Result<u8, Problem> {
    let written = distance.to_string();
    match u8::try_from(distance) {
        Ok(Topology::LOCAL_DISTANCE) if from == to => Ok(Topology::LOCAL_DISTANCE),
        _ if from == to => Err(Problem::LocalDistance { node: from, distance: written }),
        Ok(distance) if distance >= Topology::LOCAL_DISTANCE => Ok(distance),
        _ => Err(Problem::Distance { from, to, distance: written }),
    }
}

fn finish_node((id, node): (NodeId, DraftNode)) -> MachineNode {
    let (memory, free) = (node.memory_bytes.flatten(), node.free_bytes.flatten());
    MachineNode::new(id, node.cpus.unwrap_or_default(), memory, free)
}
