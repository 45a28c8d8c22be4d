//! A flattened devicetree: memory, CPUs, their nodes (`numa-node-id`) and the distances (`distance-map`).
//!
//! All offsets are checked against the bytes that are there, and the walk goes forward, token by token, to a bounded depth.
//! Source: Devicetree Specification 0.4, chapter 5; `Documentation/devicetree/bindings/numa.txt` for the names, and the schema
//! `chosen.yaml` for what `/chosen` says of memory.

use nearpage::NodeId;

use super::bytes::{be32, be64};
use super::machine::{FirmwareError, Machine, Note};
use crate::boot::{EarlyError, EarlyMemory};

const MAGIC: u32 = 0xd00d_feed;
/// The version that is read, and that newer ones can be read as.
const VERSION: u32 = 16;
/// Nodes in nodes at most.
const DEPTH_MAX: usize = 32;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROP: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// Why a devicetree could not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DevicetreeError {
    /// It cannot be read, or says what cannot be.
    Firmware(FirmwareError),
    /// Its memory cannot be used.
    Memory(EarlyError),
}

impl core::fmt::Display for DevicetreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Firmware(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DevicetreeError {}

impl From<FirmwareError> for DevicetreeError {
    fn from(error: FirmwareError) -> Self {
        Self::Firmware(error)
    }
}

impl From<EarlyError> for DevicetreeError {
    fn from(error: EarlyError) -> Self {
        Self::Memory(error)
    }
}

/// Bytes of the devicetree that begins here, for who has no more than its address: `header` is its first 8 bytes.
pub fn size(header: &[u8]) -> Option<usize> {
    (be32(header, 0)? == MAGIC).then_some(be32(header, 4)? as usize)
}

/// Reads memory and its reservations into `memory`; CPUs, nodes and distances into `machine`. Reserved are the entries in front
/// of the tree, `/reserved-memory`, and of `/chosen` the initial disk, the headers of a crashed kernel, and what lies outside
/// `linux,usable-memory-range`. The devicetree itself, and the kernel, are for the caller to reserve. Of memory in more ranges than there is room for, the largest are kept ([`EarlyMemory::left_out`]).
///
/// # Errors
/// [`DevicetreeError`]. The machine has all CPUs that were found, and one node then. If the tree says what cannot be, all of
/// it was read: memory and its reservations are there. If the tree itself cannot be read ([`FirmwareError::Short`],
/// [`Entry`](FirmwareError::Entry), [`Signature`](FirmwareError::Signature), [`Unreadable`](FirmwareError::Unreadable)), what lies
/// behind that place is unknown, reservations too.
pub fn read<const RANGES: usize>(
    blob: &[u8],
    machine: &mut Machine,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<(), DevicetreeError> {
    let read = Blob::new(blob).map_err(DevicetreeError::from).and_then(|blob| {
        // All of it is read, whatever is wrong with a part: what is reserved may come last.
        blob.reservations(memory).and(blob.chosen(memory)).and(blob.walk(machine, memory))
    });
    if read.is_err() {
        machine.forget_nodes();
    }
    read
}

/// The command line that the boot was given, without the byte that ends it; empty if there is none, or if the devicetree cannot
/// be read.
pub fn command_line(blob: &[u8]) -> &[u8] {
    let found = Blob::new(blob).ok().and_then(|blob| blob.property(b"bootargs"));
    found.map_or(&[], |value| value.strip_suffix(&[0]).unwrap_or(value))
}

/// Where the initial disk is that the boot was given (`linux,initrd-start` and `-end`), from its first byte to behind its last.
pub fn initial_disk(blob: &[u8]) -> Option<core::ops::Range<u64>> {
    Blob::new(blob).ok()?.initial_disk()
}

struct Blob<'a> {
    all: &'a [u8],
    structure: &'a [u8],
    strings: &'a [u8],
}

/// What a node has said of itself so far.
#[derive(Clone, Copy, Default)]
struct Node<'a> {
    name: &'a [u8],
    /// Cells of addresses and of sizes of its children.
    cells: [u32; 2],
    device_type: &'a [u8],
    reg: Option<&'a [u8]>,
    numa_node: Option<u32>,
    distances: Option<&'a [u8]>,
    is_off: bool,
}

const TABLE: &str = "devicetree";

impl<'a> Blob<'a> {
    fn new(blob: &'a [u8]) -> Result<Self, FirmwareError> {
        let short = FirmwareError::Short { table: TABLE, bytes: blob.len() };
        let field = |index: usize| be32(blob, index * 4).map(|value| value as usize).ok_or(short);
        if field(0)? != MAGIC as usize {
            return Err(FirmwareError::Signature { table: TABLE });
        }
        if field(6)? > VERSION as usize || field(5)? < VERSION as usize {
            return Err(FirmwareError::Unreadable { why: "it is not of a version like 17" });
        }
        let all = blob.get(..field(1)?).ok_or(short)?;
        let from = |start: usize| all.get(start..).ok_or(short);
        let strings = from(field(3)?)?;
        let strings = strings.get(..field(8)?).ok_or(short)?;
        Ok(Self { all, structure: from(field(2)?)?, strings })
    }

    /// The first property of a name, of whichever node.
    fn property(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let mut at = 0;
        loop {
            let token = be32(self.structure, at)?;
            at += 4;
            match token {
                BEGIN_NODE => at = aligned(at + c_string(self.structure, at)?.len() + 1),
                PROP => {
                    let end = (at + 8).checked_add(be32(self.structure, at)? as usize)?;
                    let value = self.structure.get(at + 8..end)?;
                    let name = be32(self.structure, at + 4)? as usize;
                    if c_string(self.strings, name)? == wanted {
                        return Some(value);
                    }
                    at = aligned(end);
                }
                END_NODE | NOP => {}
                _ => return None,
            }
        }
    }

    /// The reservations in front of the tree.
    fn reservations<const RANGES: usize>(
        &self,
        memory: &mut EarlyMemory<RANGES>,
    ) -> Result<(), DevicetreeError> {
        let mut at = be32(self.all, 16).unwrap_or(0) as usize;
        let mut told = Ok(());
        while let (Some(start), Some(length)) = (be64(self.all, at), be64(self.all, at + 8)) {
            if (start, length) == (0, 0) {
                break;
            }
            told = told.and(reserve(memory, start, length));
            at += 16;
        }
        told
    }

    fn initial_disk(&self) -> Option<core::ops::Range<u64>> {
        // An address has as many cells as there are bytes for.
        let address = |name| self.property(name).and_then(|it| number(it, it.len() as u32 / 4));
        let disk = address(b"linux,initrd-start")?..address(b"linux,initrd-end")?;
        (!disk.is_empty()).then_some(disk)
    }

    /// What `/chosen` says of memory: the initial disk, the headers of a kernel that crashed, and where this one may look at all.
    fn chosen<const RANGES: usize>(
        &self,
        memory: &mut EarlyMemory<RANGES>,
    ) -> Result<(), DevicetreeError> {
        let mut told = Ok(());
        if let Some(disk) = self.initial_disk() {
            told = told.and(reserve(memory, disk.start, disk.end - disk.start));
        }
        // The first of each is that of the root: properties of a node come before its children.
        let root = |name, cells| self.property(name).and_then(|it| be32(it, 0)).unwrap_or(cells);
        let cells = [root(b"#address-cells", 2), root(b"#size-cells", 1)];
        for (start, length) in pairs(self.property(b"linux,elfcorehdr").unwrap_or(&[]), cells) {
            told = told.and(reserve(memory, start, length));
        }
        // What is above the last end is looked for anew for each: they come in any order.
        let usable = self.property(b"linux,usable-memory-range").unwrap_or(&[]);
        let ranges =
            || pairs(usable, cells).map(|(start, length)| start..start.saturating_add(length));
        let mut outside = 0;
        while ranges().next().is_some() && outside < u64::MAX {
            let around = ranges().filter(|range| range.end > outside);
            let next = around.min_by_key(|range| range.start).unwrap_or(u64::MAX..u64::MAX);
            let gap = next.start.saturating_sub(outside);
            told = told.and(reserve(memory, outside, gap));
            outside = next.end;
        }
        told
    }

    fn walk<const RANGES: usize>(
        &self,
        machine: &mut Machine,
        memory: &mut EarlyMemory<RANGES>,
    ) -> Result<(), DevicetreeError> {
        let mut path: [Node<'a>; DEPTH_MAX] = [Node::default(); DEPTH_MAX];
        let (mut depth, mut at) = (0, 0);
        let (mut distances, mut told) = (None, Ok(()));
        loop {
            let wrong = FirmwareError::Entry { table: TABLE, offset: at, length: 0 };
            let token = be32(self.structure, at).ok_or(wrong)?;
            at += 4;
            match token {
                BEGIN_NODE => {
                    let name = c_string(self.structure, at).ok_or(wrong)?;
                    at = aligned(at + name.len() + 1);
                    let too_deep = FirmwareError::Unreadable { why: "it is too deep" };
                    *path.get_mut(depth).ok_or(too_deep)? =
                        Node { name, cells: [2, 1], ..Node::default() };
                    depth += 1;
                }
                PROP => {
                    let length = be32(self.structure, at).ok_or(wrong)? as usize;
                    let name = be32(self.structure, at + 4).ok_or(wrong)? as usize;
                    let end = (at + 8).checked_add(length).ok_or(wrong)?;
                    let value = self.structure.get(at + 8..end).ok_or(wrong)?;
                    let name = c_string(self.strings, name).ok_or(wrong)?;
                    let node = depth.checked_sub(1).ok_or(wrong)?;
                    path[node].note(name, value);
                    at = aligned(end);
                }
                END_NODE => {
                    depth = depth.checked_sub(1).ok_or(wrong)?;
                    let (above, node) = (&path[..depth], path[depth]);
                    distances = distances.or(node.distances);
                    told = told.and(take_node(above, &node, machine, memory));
                }
                NOP => {}
                END => break,
                _ => return Err(wrong.into()),
            }
        }
        place(machine, distances);
        told
    }
}

/// What comes after all nodes are known.
fn place(machine: &mut Machine, distances: Option<&[u8]>) {
    machine.place_rest();
    let distances = distances.unwrap_or_default();
    if !distances.len().is_multiple_of(12) {
        machine.note(Note::DistanceMap { bytes: distances.len() });
    }
    for entry in distances.chunks_exact(12) {
        let number = |index: usize| be32(entry, index * 4).unwrap_or(0);
        let distance = number(2).min(u32::from(u8::MAX)) as u8;
        let (from, to) = (NodeId(number(0)), NodeId(number(1)));
        // 0 is no distance: the map says something, and it is wrong.
        if distance == 0 {
            machine.forget_distances();
            return machine.note(Note::Distance { from, to, distance });
        }
        machine.set_distance(from, to, distance);
    }
    // An entry of one direction stands for both, unless the other is there.
    for at in 0..machine.nodes().len() {
        for to in 0..machine.nodes().len() {
            let (from, to) = (machine.nodes()[at], machine.nodes()[to]);
            if let Some(known) = machine.known_distance(from, to)
                && machine.known_distance(to, from).is_none()
            {
                machine.set_distance(to, from, known);
            }
        }
    }
    machine.check_distances();
}

impl<'a> Node<'a> {
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"#address-cells" => self.cells[0] = be32(value, 0).unwrap_or(2),
            b"#size-cells" => self.cells[1] = be32(value, 0).unwrap_or(1),
            b"device_type" => self.device_type = value.strip_suffix(&[0]).unwrap_or(value),
            b"reg" => self.reg = Some(value),
            b"numa-node-id" => self.numa_node = be32(value, 0),
            b"distance-matrix" => self.distances = Some(value),
            b"status" => self.is_off = !value.starts_with(b"ok"),
            _ => {}
        }
    }
}

fn take_node<const RANGES: usize>(
    above: &[Node<'_>],
    node: &Node<'_>,
    machine: &mut Machine,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<(), DevicetreeError> {
    let (Some(parent), Some(reg), false) = (above.last(), node.reg, node.is_off) else {
        return Ok(());
    };
    let mut told: Result<(), DevicetreeError> = Ok(());
    if node.device_type == b"cpu" && parent.name == b"cpus" {
        let why = "the reg of a CPU is no number of one or two cells";
        let id = number(reg, parent.cells[0]).ok_or(FirmwareError::Unreadable { why })?;
        let cpu = machine.add_cpu(id, 0)?;
        if let Some(numa) = node.numa_node {
            machine.place_cpu(cpu, NodeId(numa))?;
        }
    } else if node.device_type == b"memory" {
        told = told.and(check_pairs(reg, parent.cells).map_err(Into::into));
        for (start, length) in pairs(reg, parent.cells) {
            memory.add_map([(start, length, true)]);
            if let Some(numa) = node.numa_node {
                let placed = machine.place_memory(start, length, NodeId(numa), false);
                told = told.and(placed.map_err(Into::into));
            }
        }
    } else if parent.name == b"reserved-memory" {
        told = told.and(check_pairs(reg, parent.cells).map_err(Into::into));
        for (start, length) in pairs(reg, parent.cells) {
            told = told.and(reserve(memory, start, length));
        }
    }
    told
}

/// Takes a range out. One that wraps around is wrong, and goes up to the end of all addresses.
fn reserve<const RANGES: usize>(
    memory: &mut EarlyMemory<RANGES>,
    start: u64,
    length: u64,
) -> Result<(), DevicetreeError> {
    memory.reserve(start, length.min(u64::MAX - start))?;
    let wraps = start.checked_add(length).is_none();
    if wraps { Err(EarlyError::Range { start, length }.into()) } else { Ok(()) }
}

/// Whether all of a `reg` of memory can be read.
fn check_pairs(reg: &[u8], cells: [u32; 2]) -> Result<(), FirmwareError> {
    let why = "a reg of memory is not in whole entries of numbers of one or two cells";
    let is_read = match cells {
        [address @ 1..=2, size @ 1..=2] => reg.len().is_multiple_of((address + size) as usize * 4),
        _ => false,
    };
    if is_read { Ok(()) } else { Err(FirmwareError::Unreadable { why }) }
}

/// The pairs of addresses and sizes of a `reg`, without those of size 0.
fn pairs(reg: &[u8], cells: [u32; 2]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let [address, size] = cells.map(|cells| cells.min(4) as usize * 4);
    let pair = move |entry: &[u8]| {
        Some((number(entry, cells[0])?, number(entry.get(address..)?, cells[1])?))
    };
    // No entry is of no bytes, so that this ends.
    reg.chunks_exact((address + size).max(1)).filter_map(pair).filter(|pair| pair.1 > 0)
}

/// A number of one or two cells.
fn number(bytes: &[u8], cells: u32) -> Option<u64> {
    match cells {
        1 => be32(bytes, 0).map(u64::from),
        2 => be64(bytes, 0),
        _ => None,
    }
}

fn c_string(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let from = bytes.get(at..)?;
    let end = from.iter().position(|&byte| byte == 0)?;
    Some(&from[..end])
}

fn aligned(offset: usize) -> usize {
    offset.saturating_add(3) & !3
}
