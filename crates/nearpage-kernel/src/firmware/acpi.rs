//! Tables of ACPI that say what the machine is: MADT, SRAT, SLIT and HMAT.
//!
//! All lengths are checked against the bytes that are there, and every loop goes forward: a table that was made to mislead
//! gives an error or a note. Source: ACPI Specification 6.5, 5.2.12 (MADT), 5.2.16 (SRAT), 5.2.17 (SLIT), 5.2.28 (HMAT).

use nearpage::NodeId;

use super::Physical;
use super::bytes::{array, le16, le32, le64};
use super::machine::{FirmwareError, Machine, Note};

/// Bytes of the header of every table.
const HEADER: usize = 36;
/// The largest table that is read.
const TABLE_MAX: usize = 4 << 20;
/// The most tables that are looked at.
const TABLES_MAX: usize = 512;

/// Reads all that ACPI says of CPUs, nodes and distances. What is there already stays if ACPI says nothing of it.
///
/// # Errors
/// [`FirmwareError`] if the tables cannot be used. The machine has all CPUs that were found, and one node then.
pub fn read(
    memory: &(impl Physical + ?Sized),
    rsdp: u64,
    machine: &mut Machine,
) -> Result<(), FirmwareError> {
    let read = read_tables(memory, rsdp, machine);
    if read.is_err() {
        machine.forget_nodes();
    }
    read
}

fn read_tables(
    memory: &(impl Physical + ?Sized),
    rsdp: u64,
    machine: &mut Machine,
) -> Result<(), FirmwareError> {
    let tables = Tables::find(memory, rsdp)?;
    if let Some(madt) = tables.table(b"APIC", machine) {
        read_madt(madt, machine)?;
    }
    if let Some(srat) = tables.table(b"SRAT", machine) {
        read_srat(srat, machine)?;
    }
    if machine.nodes().len() < 2 {
        return Ok(());
    }
    if let Some(slit) = tables.table(b"SLIT", machine) {
        read_slit(slit, machine)?;
    }
    if !machine.has_distances()
        && let Some(hmat) = tables.table(b"HMAT", machine)
    {
        read_hmat(hmat, machine)?;
    }
    if !machine.has_distances() {
        machine.note(Note::NoDistances);
    }
    Ok(())
}

/// The root table, found and checked.
struct Tables<'a, M: ?Sized> {
    memory: &'a M,
    root: &'a [u8],
    /// Bytes of an address in it.
    entry: usize,
}

impl<'a, M: Physical + ?Sized> Tables<'a, M> {
    fn find(memory: &'a M, rsdp: u64) -> Result<Self, FirmwareError> {
        let missing = FirmwareError::Signature { table: "RSDP" };
        let pointer = memory.bytes(rsdp, 20).ok_or(missing)?;
        if !pointer.starts_with(b"RSD PTR ") {
            return Err(missing);
        }
        if !adds_up(pointer) {
            return Err(FirmwareError::Sum { table: "RSDP" });
        }
        let xsdt = match pointer[15] {
            0 | 1 => None,
            _ => memory.bytes(rsdp, 36).filter(|all| adds_up(all)).and_then(|all| le64(all, 24)),
        };
        let (address, name, entry) = match xsdt.filter(|&address| address != 0) {
            Some(address) => (address, "XSDT", 8),
            None => (u64::from(le32(pointer, 16).unwrap_or(0)), "RSDT", 4),
        };
        let root = table_at(memory, address).ok_or(FirmwareError::Signature { table: name })?;
        if !root.starts_with(name.as_bytes()) {
            return Err(FirmwareError::Signature { table: name });
        }
        if !adds_up(root) {
            return Err(FirmwareError::Sum { table: name });
        }
        Ok(Self { memory, root: &root[HEADER..], entry })
    }

    /// The first table with these letters that can be read.
    fn table(&self, letters: &[u8; 4], machine: &mut Machine) -> Option<&'a [u8]> {
        for entry in self.root.chunks_exact(self.entry).take(TABLES_MAX) {
            let address = match self.entry {
                8 => le64(entry, 0)?,
                _ => u64::from(le32(entry, 0)?),
            };
            let Some(header) = self.memory.bytes(address, HEADER) else { continue };
            if !header.starts_with(letters) {
                continue;
            }
            match table_at(self.memory, address).filter(|table| adds_up(table)) {
                Some(table) => return Some(table),
                None => machine.note(Note::BadTable { table: *letters }),
            }
        }
        None
    }
}

fn table_at<M: Physical + ?Sized>(memory: &M, address: u64) -> Option<&[u8]> {
    let length = le32(memory.bytes(address, HEADER)?, 4)? as usize;
    if (HEADER..=TABLE_MAX).contains(&length) { memory.bytes(address, length) } else { None }
}

fn adds_up(bytes: &[u8]) -> bool {
    bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)) == 0
}

/// Calls `each` with the kind and the bytes of each entry of a table whose entries begin with a kind and a length of a byte.
fn each_entry(
    table: &[u8],
    name: &'static str,
    first: usize,
    mut each: impl FnMut(u8, &[u8]) -> Option<Result<(), FirmwareError>>,
) -> Result<(), FirmwareError> {
    let mut offset = first;
    if table.len() < first {
        return Err(FirmwareError::Short { table: name, bytes: table.len() });
    }
    while offset < table.len() {
        let length = table.get(offset + 1).map_or(0, |&length| usize::from(length));
        let wrong = FirmwareError::Entry { table: name, offset, length };
        // An entry has its kind and its length at least, so that this goes forward.
        let entry = table.get(offset..offset + length).filter(|entry| entry.len() >= 2);
        let entry = entry.ok_or(wrong)?;
        each(entry[0], entry).ok_or(wrong)??;
        offset += length;
    }
    Ok(())
}

/// Reads the CPUs of a MADT: those that are enabled.
///
/// # Errors
/// [`FirmwareError`] of an entry, or too many CPUs.
pub fn read_madt(table: &[u8], machine: &mut Machine) -> Result<(), FirmwareError> {
    const ENABLED: u32 = 1;
    each_entry(table, "MADT", 44, |kind, entry| {
        let (flags, id, uid) = match kind {
            // Processor local APIC.
            0 => (le32(entry, 4)?, u64::from(*entry.get(3)?), u32::from(entry[2])),
            // Processor local x2APIC.
            9 => (le32(entry, 8)?, u64::from(le32(entry, 4)?), le32(entry, 12)?),
            // GIC CPU interface: the MPIDR.
            11 => (le32(entry, 12)?, le64(entry, 68)?, le32(entry, 8)?),
            _ => return Some(Ok(())),
        };
        if flags & ENABLED == 0 {
            return Some(Ok(()));
        }
        Some(machine.add_cpu(id, uid).map(drop))
    })
}

/// Reads which CPUs and which memory are of which node from an SRAT. CPUs that are not known yet are noted.
///
/// # Errors
/// [`FirmwareError`] of an entry, or of ranges that overlap.
pub fn read_srat(table: &[u8], machine: &mut Machine) -> Result<(), FirmwareError> {
    const ENABLED: u32 = 1;
    const HOT_PLUGGABLE: u32 = 2;
    each_entry(table, "SRAT", 48, |kind, entry| {
        let (flags, node, cpu) = match kind {
            // Processor local APIC: the domain's lowest byte stands apart.
            0 => {
                let high: [u8; 3] = array(entry, 9)?;
                let node = u32::from_le_bytes([entry[2], high[0], high[1], high[2]]);
                let id = u64::from(*entry.get(3)?);
                (le32(entry, 4)?, node, (id, machine.cpu(id)))
            }
            1 => {
                let (start, length) = (le64(entry, 8)?, le64(entry, 16)?);
                let (flags, node) = (le32(entry, 28)?, NodeId(le32(entry, 2)?));
                if flags & ENABLED == 0 || length == 0 {
                    return Some(Ok(()));
                }
                let may_be_plugged = flags & HOT_PLUGGABLE != 0;
                return Some(machine.place_memory(start, length, node, may_be_plugged));
            }
            // Processor local x2APIC.
            2 => {
                let id = u64::from(le32(entry, 8)?);
                (le32(entry, 12)?, le32(entry, 4)?, (id, machine.cpu(id)))
            }
            // GICC: by UID.
            3 => {
                let uid = le32(entry, 6)?;
                let at = machine.cpus().iter().position(|cpu| cpu.uid == uid);
                let cpu = at.map(|at| nearpage::CpuId(at as u32));
                (le32(entry, 10)?, le32(entry, 2)?, (u64::from(uid), cpu))
            }
            _ => return Some(Ok(())),
        };
        if flags & ENABLED == 0 {
            return Some(Ok(()));
        }
        match cpu {
            (_, Some(cpu)) => Some(machine.place_cpu(cpu, NodeId(node))),
            (id, None) => {
                machine.note(Note::UnknownCpu { id });
                Some(Ok(()))
            }
        }
    })?;
    machine.place_rest();
    Ok(())
}

/// Reads the distances of a SLIT, if all of them make sense. Those of domains that are no nodes are left out.
///
/// # Errors
/// [`FirmwareError::Short`] if it has less than it says.
pub fn read_slit(table: &[u8], machine: &mut Machine) -> Result<(), FirmwareError> {
    let short = FirmwareError::Short { table: "SLIT", bytes: table.len() };
    let count = le64(table, HEADER).and_then(|count| usize::try_from(count).ok()).ok_or(short)?;
    let entries = count.checked_mul(count).ok_or(short)?;
    let end = entries.checked_add(HEADER + 8).ok_or(short)?;
    let matrix = table.get(HEADER + 8..end).ok_or(short)?;
    for at in 0..machine.nodes().len() {
        for to in 0..machine.nodes().len() {
            let (from, to) = (machine.nodes()[at], machine.nodes()[to]);
            let (row, column) = (from.0 as usize, to.0 as usize);
            if row < count && column < count {
                let distance = matrix[row * count + column];
                // 0 is no distance: the table says something, and it is wrong.
                if distance == 0 {
                    machine.forget_distances();
                    machine.note(Note::Distance { from, to, distance });
                    return Ok(());
                }
                machine.set_distance(from, to, distance);
            }
        }
    }
    machine.check_distances();
    Ok(())
}

/// Makes distances of the latencies of an HMAT, where there are any: as many times 10 as a node is slower than an initiator's
/// nearest memory. Bandwidths and caches are passed over.
///
/// # Errors
/// [`FirmwareError`] of an entry.
pub fn read_hmat(table: &[u8], machine: &mut Machine) -> Result<(), FirmwareError> {
    const FIRST: usize = 40;
    let mut offset = FIRST;
    if table.len() < FIRST {
        return Err(FirmwareError::Short { table: "HMAT", bytes: table.len() });
    }
    while offset < table.len() {
        let length = le32(table, offset + 4).unwrap_or(0) as usize;
        let wrong = FirmwareError::Entry { table: "HMAT", offset, length };
        let end = offset.checked_add(length).ok_or(wrong)?;
        let entry = table.get(offset..end).filter(|entry| entry.len() >= 8).ok_or(wrong)?;
        let kind = le16(entry, 0).ok_or(wrong)?;
        if kind == 1 {
            latencies(entry, machine).ok_or(wrong)?;
        }
        offset = end;
    }
    machine.check_distances();
    Ok(())
}

/// Latencies of memory itself to be read, or to be accessed at all.
fn latencies(entry: &[u8], machine: &mut Machine) -> Option<()> {
    const NO_VALUE: u16 = u16::MAX;
    let (hierarchy, data) = (entry.get(8)? & 0xf, *entry.get(9)?);
    if hierarchy != 0 || data > 1 || machine.has_distances() {
        return Some(());
    }
    let (initiators, targets) = (le32(entry, 12)? as usize, le32(entry, 16)? as usize);
    let first_target = 32_usize.checked_add(initiators.checked_mul(4)?)?;
    let first = first_target.checked_add(targets.checked_mul(4)?)?;
    let entries = initiators.checked_mul(targets)?;
    entry.get(first..first.checked_add(entries.checked_mul(2)?)?)?;
    for row in 0..initiators {
        let from = NodeId(le32(entry, 32 + row * 4)?);
        let latency = |column: usize| le16(entry, first + (row * targets + column) * 2);
        let known = |&latency: &u16| latency != 0 && latency != NO_VALUE;
        let Some(near) = (0..targets).filter_map(latency).filter(known).min() else { continue };
        for column in 0..targets {
            let to = NodeId(le32(entry, first_target + column * 4)?);
            if let Some(far) = latency(column).filter(known)
                && from != to
            {
                let times = u32::from(far) * 10 / u32::from(near);
                machine.set_distance(from, to, times.clamp(11, 254) as u8);
            }
        }
    }
    Some(())
}
