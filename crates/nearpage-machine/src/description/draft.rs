//! Nodes and distances as a reader finds them, each with its place, until all of them can be checked.

use std::collections::BTreeMap;

use nearpage::{CpuId, NodeId, Topology};

use super::error::{DescriptionError, DescriptionProblem as Problem, Place};
use crate::idlist;
use crate::machine::{
    Machine, MachineNode, NODES_MAX, Note, PAGE_BYTES_DEFAULT, default_distance, settle_free,
};

/// A machine that is being read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    nodes: BTreeMap<NodeId, DraftNode>,
    /// The node of each CPU so far.
    owners: BTreeMap<CpuId, NodeId>,
    /// Each distance, and the index of its place in `places`.
    distances: BTreeMap<(NodeId, NodeId), (u64, usize)>,
    /// The places of distances. A row shares one place, because a place is long and a machine has up to a million
    /// distances.
    places: Vec<Place>,
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
    ///
    /// # Errors
    ///
    /// One node more than [`NODES_MAX`].
    pub(crate) fn add_node(&mut self, id: NodeId, place: &Place) -> Result<(), DescriptionError> {
        self.node(id, place).map(|_| ())
    }

    /// The node `id`, which is added if it is not there.
    fn node(&mut self, id: NodeId, place: &Place) -> Result<&mut DraftNode, DescriptionError> {
        if self.nodes.len() == NODES_MAX && !self.contains(id) {
            return Err(Problem::TooManyNodes.at(place));
        }
        Ok(self.nodes.entry(id).or_default())
    }

    /// Sets a node's CPUs.
    ///
    /// # Errors
    ///
    /// A CPU that has a node already, a node that has its CPUs already, or too many nodes.
    pub(crate) fn set_cpus(
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

    /// Sets a node's memory; `None` if the text calls it unknown.
    ///
    /// # Errors
    ///
    /// A node that has its memory already, or too many nodes.
    pub(crate) fn set_memory(
        &mut self,
        id: NodeId,
        bytes: Option<u64>,
        place: &Place,
    ) -> Result<(), DescriptionError> {
        let node = self.node(id, place)?;
        set_once(&mut node.memory_bytes, bytes, format!("the size of node {id}"), place)
    }

    /// Sets a node's free memory; `None` if the text calls it unknown.
    ///
    /// # Errors
    ///
    /// A node that has its free memory already, or too many nodes.
    pub(crate) fn set_free(
        &mut self,
        id: NodeId,
        bytes: Option<u64>,
        place: &Place,
    ) -> Result<(), DescriptionError> {
        let node = self.node(id, place)?;
        set_once(&mut node.free_bytes, bytes, format!("the free memory of node {id}"), place)
    }

    /// Sets the distance from one node to another. [`finish`](Self::finish) checks it.
    ///
    /// # Errors
    ///
    /// A distance that was set before.
    pub(crate) fn set_distance(
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
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// Whether there is a node `id` so far.
    pub(crate) fn contains(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Checks the whole draft and returns the machine. A distance without a value is that of the other direction, or
    /// else 20. Errors that belong to no line name `input` as their place. `expected` says what a text should contain
    /// that describes no node.
    ///
    /// # Errors
    ///
    /// No node, or a distance that is out of range or names an unknown node.
    pub(crate) fn finish(
        self,
        input: &Place,
        expected: &'static str,
    ) -> Result<Machine, DescriptionError> {
        if self.nodes.is_empty() {
            return Err(Problem::NoNodes { expected }.at(input));
        }
        let distances = self.check_distances()?;
        let mut notes = self.notes();
        let mut nodes: Vec<MachineNode> = self.nodes.into_iter().map(finish_node).collect();
        settle_free(&mut nodes, &mut notes);
        // Descriptions do not tell the size of a page.
        Ok(Machine { notes, ..Machine::new(nodes, distances, PAGE_BYTES_DEFAULT) })
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
        let entries = 0..count * count;
        let mut distances: Vec<u8> =
            entries.map(|entry| default_distance(entry / count, entry % count)).collect();
        let mut given = Vec::with_capacity(self.distances.len());
        for (&(from, to), &(distance, place)) in &self.distances {
            let place = &self.places[place];
            let entry = (position(from, place)?, position(to, place)?);
            let distance =
                check_distance(from, to, distance).map_err(|problem| problem.at(place))?;
            given.push((entry, distance));
        }
        // The other direction first: a distance that has its own value overwrites it.
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

/// Fills a slot once; a second value is an error.
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
