//! The machine as its firmware tells it: CPUs, nodes, which memory is whose, distances.

use core::fmt;
use core::ops::Range;

use nearpage::{CpuId, NodeId, Topology};

use crate::boot::spans::{LeftOut, Spans};

/// Most nodes of a [`Machine`].
pub const NODES_MAX: usize = 64;
/// Most CPUs of a [`Machine`].
pub const CPUS_MAX: usize = 1024;
/// Most ranges of memory that belong to nodes.
pub const AREAS_MAX: usize = 256;
/// Most notes that are kept; of more, their number is.
pub const NOTES_MAX: usize = 16;

/// The distance between two nodes of which the firmware says nothing. `include/linux/topology.h: REMOTE_DISTANCE`.
const REMOTE_DISTANCE: u8 = 20;
/// In the tag of an area: memory may be plugged in there.
const HOTPLUG: u32 = 1 << 31;

/// A CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// How the hardware knows it: the id of its local APIC, the affinity fields of its MPIDR, its hart.
    pub hardware_id: u64,
    /// Its number in the tables of processors (ACPI's UID).
    pub uid: u32,
    /// Its node.
    pub node: NodeId,
    /// Whether the firmware said which node that is.
    pub is_placed: bool,
}

/// What a firmware said that was not taken, or had to be guessed. The boot goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Note {
    /// SRAT places a CPU that no other table has.
    UnknownCpu {
        /// Its hardware id or UID.
        id: u64,
    },
    /// No table places a CPU: it is taken to be of the first node.
    UnplacedCpu {
        /// The CPU.
        cpu: CpuId,
    },
    /// The table of distances was not taken, since one of them is absurd.
    Distance {
        /// From this node.
        from: NodeId,
        /// To this one.
        to: NodeId,
        /// What it says.
        distance: u8,
    },
    /// A devicetree's map of distances does not end with a whole entry; those that are whole were taken.
    DistanceMap {
        /// Its bytes.
        bytes: usize,
    },
    /// There is no table of distances, and there are several nodes.
    NoDistances,
    /// Memory of no node was given to the first.
    UnplacedMemory {
        /// Bytes from here.
        start: u64,
        /// To here.
        end: u64,
    },
    /// Memory is not used: a memory map has more ranges than there is room for, or is wrong.
    MemoryLeftOut(LeftOut),
    /// Memory that may be plugged in is not used: with metadata from the boot on, it would take what is there.
    PluggableLeftOut {
        /// Its bytes.
        bytes: u64,
    },
    /// A table was not read: its sum is not 0, or it is too short.
    BadTable {
        /// Its four letters.
        table: [u8; 4],
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnknownCpu { id } => write!(f, "SRAT places CPU {id:#x}, which is not there"),
            Self::UnplacedCpu { cpu } => write!(f, "CPU {cpu} is of no node; the first is taken"),
            Self::Distance { from, to, distance } => write!(
                f,
                "distances not taken: {distance} from node {from} to {to}; 10 to itself, 11 to 255 to others is accepted"
            ),
            Self::DistanceMap { bytes } => {
                write!(f, "a distance-matrix of {bytes} bytes; entries of 12 bytes each are read")
            }
            Self::NoDistances => f.write_str("no distances; all nodes are taken to be equally far"),
            Self::UnplacedMemory { start, end } => {
                write!(f, "memory {start:#x}..{end:#x} is of no node; the first is taken")
            }
            Self::MemoryLeftOut(left_out) => left_out.fmt(f),
            Self::PluggableLeftOut { bytes } => write!(
                f,
                "{} KiB that may be plugged in are too many for this memory, and not used",
                bytes >> 10
            ),
            Self::BadTable { table } => {
                let name = core::str::from_utf8(&table).unwrap_or("????");
                write!(f, "table {name} was not read: its sum or its length is wrong")
            }
        }
    }
}

/// Why a firmware's description cannot be used. The machine has one node then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FirmwareError {
    /// A table ends before what it must have.
    Short {
        /// Its name.
        table: &'static str,
        /// Bytes that are there.
        bytes: usize,
    },
    /// An entry of a table reaches out of it, or has less than its kind must have.
    Entry {
        /// The table.
        table: &'static str,
        /// Where the entry begins.
        offset: usize,
        /// What it says that its length is.
        length: usize,
    },
    /// A table is not what its address is said to be of.
    Signature {
        /// The name of what was looked for.
        table: &'static str,
    },
    /// The bytes of a table do not add up to 0.
    Sum {
        /// The table.
        table: &'static str,
    },
    /// Two nodes have the same memory.
    Overlap {
        /// Where.
        start: u64,
        /// One node.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
    /// A range of memory is empty, or wraps around.
    Range {
        /// Where it starts.
        start: u64,
        /// Its bytes.
        length: u64,
    },
    /// There are more of something than [`Machine`] has room for.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there is room for.
        most: usize,
    },
    /// A devicetree is deeper, or of a version, that is not read.
    Unreadable {
        /// Why.
        why: &'static str,
    },
}

impl fmt::Display for FirmwareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short { table, bytes } => write!(f, "{table} ends after {bytes} bytes"),
            Self::Entry { table, offset, length } => {
                write!(f, "{table}: the entry at {offset:#x} has a length of {length}")
            }
            Self::Signature { table } => write!(f, "there is no {table} at its address"),
            Self::Sum { table } => write!(f, "the bytes of {table} do not add up to 0"),
            Self::Overlap { start, first, second } => {
                write!(f, "memory at {start:#x} is of node {first} and of node {second}")
            }
            Self::Range { start, length } => {
                write!(f, "a range of {length:#x} bytes at {start:#x} is empty or wraps around")
            }
            Self::TooMany { what, most } => write!(f, "more than {most} {what}"),
            Self::Unreadable { why } => write!(f, "the devicetree is not read: {why}"),
        }
    }
}

impl core::error::Error for FirmwareError {}

/// A machine of at most [`NODES_MAX`] nodes and [`CPUS_MAX`] CPUs: some 40 KiB, best in a `static`.
///
/// It has one node, 0, until a firmware says otherwise.
#[derive(Clone, Debug)]
pub struct Machine {
    cpus: [Cpu; CPUS_MAX],
    cpu_count: usize,
    /// Ascending.
    nodes: [NodeId; NODES_MAX],
    node_count: usize,
    areas: Spans<AREAS_MAX>,
    /// By position of the nodes; 0 where nothing is said.
    distances: [[u8; NODES_MAX]; NODES_MAX],
    /// Not `Option`s: a machine of which nothing is known is all zeroes, so that a static one takes no bytes of a kernel's image.
    notes: [Note; NOTES_MAX],
    note_count: usize,
}

const NOBODY: Cpu = Cpu { hardware_id: 0, uid: 0, node: NodeId(0), is_placed: false };

impl Machine {
    /// A machine of which nothing is known.
    pub const fn new() -> Self {
        Self {
            cpus: [NOBODY; CPUS_MAX],
            cpu_count: 0,
            nodes: [NodeId(0); NODES_MAX],
            node_count: 0,
            areas: Spans::new(),
            distances: [[0; NODES_MAX]; NODES_MAX],
            notes: [Note::UnknownCpu { id: 0 }; NOTES_MAX],
            note_count: 0,
        }
    }

    /// The CPUs, in the order in which they were told: a CPU's number ([`CpuId`]) is its position.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus[..self.cpu_count]
    }

    /// The number of a CPU.
    pub fn cpu(&self, hardware_id: u64) -> Option<CpuId> {
        let at = self.cpus().iter().position(|cpu| cpu.hardware_id == hardware_id)?;
        Some(CpuId(at as u32))
    }

    /// The nodes, ascending; empty if no firmware named any.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes[..self.node_count]
    }

    /// Memory by node, ascending, in bytes; whether it may be plugged in later.
    pub fn areas(&self) -> impl Iterator<Item = (Range<u64>, NodeId, bool)> + '_ {
        let area = |span: &crate::boot::spans::Span| {
            (span.start..span.end, NodeId(span.tag & !HOTPLUG), span.tag & HOTPLUG != 0)
        };
        self.areas.as_slice().iter().map(area)
    }

    /// The distance between two nodes: 10 to itself, and 20 where nothing is known.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        let known = match (self.position(from), self.position(to)) {
            (Some(from), Some(to)) => self.distances[from][to],
            _ => 0,
        };
        match known {
            0 if from == to => Topology::LOCAL_DISTANCE,
            0 => REMOTE_DISTANCE,
            known => known,
        }
    }

    /// The distance between two nodes, as the firmware told it.
    pub(crate) fn known_distance(&self, from: NodeId, to: NodeId) -> Option<u8> {
        let known = self.distances[self.position(from)?][self.position(to)?];
        (known != 0).then_some(known)
    }

    /// What was not taken as the firmware told it, the first [`NOTES_MAX`] of it.
    pub fn notes(&self) -> impl Iterator<Item = Note> + '_ {
        self.notes.iter().take(self.note_count).copied()
    }

    /// How often something was not taken.
    pub fn note_count(&self) -> usize {
        self.note_count
    }

    /// Adds a CPU, and returns its number.
    ///
    /// # Errors
    /// [`FirmwareError::TooMany`].
    pub fn add_cpu(&mut self, hardware_id: u64, uid: u32) -> Result<CpuId, FirmwareError> {
        if let Some(known) = self.cpu(hardware_id) {
            return Ok(known);
        }
        let too_many = FirmwareError::TooMany { what: "CPUs", most: CPUS_MAX };
        let place = self.cpus.get_mut(self.cpu_count).ok_or(too_many)?;
        *place = Cpu { hardware_id, uid, ..NOBODY };
        self.cpu_count += 1;
        Ok(CpuId(self.cpu_count as u32 - 1))
    }

    /// Places a CPU on a node.
    ///
    /// # Errors
    /// [`FirmwareError::TooMany`] nodes.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn place_cpu(&mut self, cpu: CpuId, node: NodeId) -> Result<(), FirmwareError> {
        self.add_node(node)?;
        let cpu = &mut self.cpus[..self.cpu_count][cpu.0 as usize];
        (cpu.node, cpu.is_placed) = (node, true);
        Ok(())
    }

    /// Gives memory to a node: bytes `start..start + length`.
    ///
    /// # Errors
    /// [`FirmwareError::Range`], [`FirmwareError::Overlap`] with another node's, [`FirmwareError::TooMany`].
    pub fn place_memory(
        &mut self,
        start: u64,
        length: u64,
        node: NodeId,
        may_be_plugged: bool,
    ) -> Result<(), FirmwareError> {
        let end = start.checked_add(length).filter(|&end| end > start);
        let range = start..end.ok_or(FirmwareError::Range { start, length })?;
        self.add_node(node)?;
        for other in self.areas.parts(range.clone()) {
            let first = NodeId(other.tag & !HOTPLUG);
            if first != node {
                return Err(FirmwareError::Overlap { start: other.start, first, second: node });
            }
        }
        let tag = node.0 | if may_be_plugged { HOTPLUG } else { 0 };
        let too_many = FirmwareError::TooMany { what: "ranges of memory", most: AREAS_MAX };
        self.areas.add(range, tag).map_err(|_| too_many)
    }

    /// Sets the distance between two nodes; one between others is of no use, and forgotten.
    pub fn set_distance(&mut self, from: NodeId, to: NodeId, distance: u8) {
        if let (Some(from), Some(to)) = (self.position(from), self.position(to)) {
            self.distances[from][to] = distance;
        }
    }

    /// Takes the distances if all of them make sense; otherwise all nodes are equally far, and a note says why.
    pub fn check_distances(&mut self) {
        for from in 0..self.node_count {
            for to in 0..self.node_count {
                let distance = self.distances[from][to];
                let is_right = match from == to {
                    true => distance == 0 || distance == Topology::LOCAL_DISTANCE,
                    false => distance == 0 || distance > Topology::LOCAL_DISTANCE,
                };
                if !is_right {
                    let (from, to) = (self.nodes[from], self.nodes[to]);
                    self.forget_distances();
                    return self.note(Note::Distance { from, to, distance });
                }
            }
        }
    }

    /// From now on, nothing is known of distances.
    pub fn forget_distances(&mut self) {
        self.distances = [[0; NODES_MAX]; NODES_MAX];
    }

    /// Whether any distance between two nodes is known.
    pub fn has_distances(&self) -> bool {
        let rows = self.distances[..self.node_count].iter().enumerate();
        rows.flat_map(|(from, row)| row.iter().enumerate().map(move |(to, far)| (from, to, far)))
            .any(|(from, to, &far)| from != to && far != 0)
    }

    /// One node with all CPUs and all memory: what a machine is whose firmware cannot be used.
    pub fn forget_nodes(&mut self) {
        self.node_count = 0;
        self.areas = Spans::new();
        self.forget_distances();
        for cpu in &mut self.cpus[..self.cpu_count] {
            (cpu.node, cpu.is_placed) = (NodeId(0), false);
        }
    }

    /// Places the CPUs that no table placed, and notes them.
    pub(crate) fn place_rest(&mut self) {
        let Some(&first) = self.nodes().first() else { return };
        for at in 0..self.cpu_count {
            if !self.cpus[at].is_placed {
                self.cpus[at].node = first;
                self.note(Note::UnplacedCpu { cpu: CpuId(at as u32) });
            }
        }
    }

    /// The same for CPUs that a kernel added by hand, or a table after those that place: of a node that is none.
    pub(crate) fn place_strays(&mut self) {
        let Some(&first) = self.nodes().first() else { return };
        for at in 0..self.cpu_count {
            if self.position(self.cpus[at].node).is_none() {
                self.cpus[at].node = first;
                self.note(Note::UnplacedCpu { cpu: CpuId(at as u32) });
            }
        }
    }

    /// The parts of a range that no table places.
    pub(crate) fn unplaced(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.areas.gaps(range)
    }

    pub(crate) fn note(&mut self, note: Note) {
        if let Some(place) = self.notes.get_mut(self.note_count) {
            *place = note;
        }
        self.note_count += 1;
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.nodes().binary_search(&node).ok()
    }

    fn add_node(&mut self, node: NodeId) -> Result<(), FirmwareError> {
        let Err(at) = self.nodes().binary_search(&node) else { return Ok(()) };
        if node.0 & HOTPLUG != 0 {
            return Err(FirmwareError::TooMany {
                what: "proximity domains",
                most: HOTPLUG as usize,
            });
        }
        if self.node_count == NODES_MAX {
            return Err(FirmwareError::TooMany { what: "nodes", most: NODES_MAX });
        }
        self.nodes.copy_within(at..self.node_count, at + 1);
        self.nodes[at] = node;
        self.node_count += 1;
        // Distances move with their nodes.
        for row in &mut self.distances {
            row.copy_within(at..NODES_MAX - 1, at + 1);
            row[at] = 0;
        }
        self.distances.copy_within(at..NODES_MAX - 1, at + 1);
        self.distances[at] = [0; NODES_MAX];
        Ok(())
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}
