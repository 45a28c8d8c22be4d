//! Tables that are right, tables that are wrong, and tables that are noise.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use nearpage::testing::random::Random;
use nearpage::{CpuId, NodeId};

use super::acpi::{self, read_hmat, read_madt, read_slit, read_srat};
use super::{FirmwareError, Machine, Note, Physical, devicetree};
use crate::boot::EarlyMemory;
use crate::fuzz::fuzz;

/// A table with a header, whose bytes add up to 0.
fn table(letters: &[u8; 4], rest: &[u8]) -> Vec<u8> {
    let mut bytes = letters.to_vec();
    bytes.extend((36 + rest.len() as u32).to_le_bytes());
    bytes.resize(36, 0);
    bytes.extend(rest);
    sum_up(&mut bytes, 9);
    bytes
}

fn sum_up(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    bytes[at] = bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_sub(byte));
}

fn madt(apic_ids: &[u8]) -> Vec<u8> {
    let mut rest = vec![0; 8];
    for &id in apic_ids {
        rest.extend([0, 8, id, id, 1, 0, 0, 0]);
    }
    // One that is not enabled.
    rest.extend([0, 8, 99, 99, 0, 0, 0, 0]);
    table(b"APIC", &rest)
}

fn cpu_affinity(apic_id: u8, node: u8) -> Vec<u8> {
    let mut entry = vec![0, 16, node, apic_id, 1, 0, 0, 0];
    entry.resize(16, 0);
    entry
}

fn memory_affinity(node: u32, start: u64, length: u64, flags: u32) -> Vec<u8> {
    let mut entry = vec![1, 40];
    entry.extend(node.to_le_bytes());
    entry.resize(8, 0);
    entry.extend(start.to_le_bytes());
    entry.extend(length.to_le_bytes());
    entry.resize(28, 0);
    entry.extend(flags.to_le_bytes());
    entry.resize(40, 0);
    entry
}

fn srat(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut rest = vec![0; 12];
    entries.iter().for_each(|entry| rest.extend(entry));
    table(b"SRAT", &rest)
}

fn slit(count: u64, distances: &[u8]) -> Vec<u8> {
    let mut rest = count.to_le_bytes().to_vec();
    rest.extend(distances);
    table(b"SLIT", &rest)
}

fn hmat(initiators: &[u32], targets: &[u32], latencies: &[u16]) -> Vec<u8> {
    let mut entry = vec![1, 0, 0, 0];
    let length = 32 + 4 * (initiators.len() + targets.len()) + 2 * latencies.len();
    entry.extend((length as u32).to_le_bytes());
    // Memory itself, latency of accesses.
    entry.extend([0, 0, 0, 0]);
    entry.extend((initiators.len() as u32).to_le_bytes());
    entry.extend((targets.len() as u32).to_le_bytes());
    entry.resize(32, 0);
    initiators.iter().chain(targets).for_each(|node| entry.extend(node.to_le_bytes()));
    latencies.iter().for_each(|latency| entry.extend(latency.to_le_bytes()));
    let mut rest = vec![0; 4];
    rest.extend(entry);
    table(b"HMAT", &rest)
}

/// Memory with tables in it.
struct Tables(Vec<u8>);

const BASE: u64 = 0x1000;

impl Physical for Tables {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        self.0.get(start..start.checked_add(length)?)
    }
}

impl Tables {
    /// A root pointer at the beginning, its table, and these.
    fn new(tables: &[Vec<u8>]) -> Self {
        let mut memory = vec![0_u8; 64];
        let mut addresses = Vec::new();
        for table in tables {
            addresses.extend((BASE + memory.len() as u64).to_le_bytes());
            memory.extend(table);
        }
        let root = table(b"XSDT", &addresses);
        let at = BASE + memory.len() as u64;
        memory.extend(root);
        memory[..8].copy_from_slice(b"RSD PTR ");
        memory[15] = 2;
        memory[24..32].copy_from_slice(&at.to_le_bytes());
        sum_up(&mut memory[..20], 8);
        sum_up(&mut memory[..36], 32);
        Self(memory)
    }
}

/// Four CPUs, two nodes with memory, one without, one without CPUs that may get memory.
fn right() -> Vec<Vec<u8>> {
    let srat = srat(&[
        cpu_affinity(0, 0),
        cpu_affinity(2, 0),
        cpu_affinity(4, 1),
        cpu_affinity(6, 7),
        memory_affinity(0, 0, 0xa_0000, 1),
        memory_affinity(0, 0x10_0000, 0x3ff0_0000, 1),
        memory_affinity(7, 0x4000_0000, 0x4000_0000, 1),
        memory_affinity(9, 0x1_0000_0000, 0x4000_0000, 3),
        memory_affinity(3, 0x9_0000_0000, 0x4000_0000, 0),
    ]);
    let mut distances = vec![20; 100];
    for node in 0..10 {
        distances[node * 11] = 10;
    }
    distances[10 + 7] = 15;
    vec![madt(&[0, 2, 4, 6]), srat, slit(10, &distances)]
}

#[test]
fn what_acpi_says_is_read() {
    let mut machine = Machine::new();
    acpi::read(&Tables::new(&right()), BASE, &mut machine).expect("it is right");
    assert_eq!(machine.nodes(), [0, 1, 7, 9].map(NodeId), "3 is not enabled");
    let nodes: Vec<_> = machine.cpus().iter().map(|cpu| (cpu.hardware_id, cpu.node.0)).collect();
    assert_eq!(nodes, [(0, 0), (2, 0), (4, 1), (6, 7)]);
    assert_eq!(machine.cpu(4), Some(CpuId(2)));
    let areas: Vec<_> = machine.areas().map(|(range, node, _)| (range.start, node.0)).collect();
    assert_eq!(areas, [(0, 0), (0x10_0000, 0), (0x4000_0000, 7), (0x1_0000_0000, 9)]);
    assert!(machine.areas().last().is_some_and(|(.., may_be_plugged)| may_be_plugged));
    assert_eq!(machine.distance(NodeId(1), NodeId(7)), 15, "distances need not be symmetric");
    assert_eq!(machine.distance(NodeId(7), NodeId(1)), 20);
    assert_eq!(machine.note_count(), 0);
}

#[test]
fn latencies_stand_in_for_distances() {
    let mut tables = right();
    tables[2] = hmat(&[0, 1, 7], &[0, 7, 9], &[100, 210, 400, 300, 150, 600, 220, 110, 0xffff]);
    let mut machine = Machine::new();
    acpi::read(&Tables::new(&tables), BASE, &mut machine).expect("it is right");
    let far = |from, to| machine.distance(NodeId(from), NodeId(to));
    assert_eq!((far(0, 7), far(0, 9), far(1, 0), far(7, 0)), (21, 40, 20, 20));
    assert_eq!(far(7, 9), 20, "nothing is known");
    assert_eq!(machine.note_count(), 0);
}

#[test]
fn what_does_not_fit_is_noted_and_the_boot_goes_on() {
    let noted = |tables: &[Vec<u8>]| {
        let mut machine = Machine::new();
        acpi::read(&Tables::new(tables), BASE, &mut machine).expect("it can be used");
        machine.notes().collect::<Vec<_>>()
    };
    let [madt_right, srat_right, slit_right] = <[_; 3]>::try_from(right()).expect("three");
    let fewer = madt(&[0, 2, 4]);
    assert_eq!(
        noted(&[fewer, srat_right.clone(), slit_right.clone()]),
        [Note::UnknownCpu { id: 6 }]
    );
    let more = madt(&[0, 2, 4, 6, 8]);
    assert_eq!(
        noted(&[more, srat_right.clone(), slit_right]),
        [Note::UnplacedCpu { cpu: CpuId(4) }]
    );
    assert_eq!(noted(&[madt_right.clone(), srat_right.clone()]), [Note::NoDistances]);
    let zeros = slit(10, &[0; 100]);
    let [wrong, _] = <[Note; 2]>::try_from(noted(&[madt_right.clone(), srat_right.clone(), zeros]))
        .expect("and no distances");
    assert!(wrong.to_string().starts_with("distances not taken: 0 from node 0 to 0"), "{wrong}");
    let mut broken = srat_right;
    broken[40] ^= 1;
    assert_eq!(noted(&[madt_right, broken]), [Note::BadTable { table: *b"SRAT" }]);
}

#[test]
fn what_cannot_be_used_leaves_one_node() {
    let refused = |entries: &[Vec<u8>]| {
        let mut machine = Machine::new();
        let tables = Tables::new(&[madt(&[0, 2]), srat(entries)]);
        let error = acpi::read(&tables, BASE, &mut machine).expect_err("it cannot be used");
        assert_eq!((machine.nodes().len(), machine.cpus().len()), (0, 2));
        error
    };
    let overlap =
        [memory_affinity(0, 0, 0x2000_0000, 1), memory_affinity(1, 0x1000_0000, 0x2000_0000, 1)];
    let (first, second) = (NodeId(0), NodeId(1));
    assert_eq!(refused(&overlap), FirmwareError::Overlap { start: 0x1000_0000, first, second });
    let wraps = [memory_affinity(0, u64::MAX - 0xfff, 0x2000, 1)];
    let range = FirmwareError::Range { start: u64::MAX - 0xfff, length: 0x2000 };
    assert_eq!(refused(&wraps), range);
    let endless = [vec![1, 0, 0, 0]];
    assert_eq!(refused(&endless), FirmwareError::Entry { table: "SRAT", offset: 48, length: 0 });
    let cut = [memory_affinity(0, 0, 1, 1)[..30].to_vec()];
    assert_eq!(refused(&cut), FirmwareError::Entry { table: "SRAT", offset: 48, length: 40 });
    assert!(refused(&[cpu_affinity(0, 0)[..9].to_vec()]).to_string().contains("0x30"));
    let nodes: Vec<_> =
        (0..65).map(|node| memory_affinity(node, u64::from(node) << 30, 1 << 30, 1)).collect();
    assert_eq!(refused(&nodes), FirmwareError::TooMany { what: "nodes", most: 64 });
}

#[test]
fn a_short_slit_is_refused_by_its_length() {
    for count in [11, 1 << 32, u64::MAX] {
        let mut machine = Machine::new();
        machine.place_memory(0, 1, NodeId(0), false).expect("room");
        let short = read_slit(&slit(count, &[10; 100]), &mut machine);
        assert_eq!(short, Err(FirmwareError::Short { table: "SLIT", bytes: 144 }));
    }
}

#[test]
fn there_may_be_no_tables_at_all() {
    let mut machine = Machine::new();
    let missing = FirmwareError::Signature { table: "RSDP" };
    assert_eq!(acpi::read(&Tables(Vec::new()), 0, &mut machine), Err(missing));
    assert_eq!(acpi::read(&Tables(vec![0; 64]), BASE, &mut machine), Err(missing));
    assert_eq!(acpi::read(&Tables::new(&[]), BASE, &mut machine), Ok(()));
}

/// A reader of a table.
type Reader = fn(&[u8], &mut Machine) -> Result<(), FirmwareError>;

/// What a kernel prints while it boots: one line each, of at most 120 bytes, whatever the figures.
#[test]
fn messages_fit_a_serial_line() {
    use crate::boot::{EarlyError, LeftOut, linux::LinuxBootError, pvh::PvhError};
    const MOST: NodeId = NodeId(u32::MAX);
    let (start, length) = (u64::MAX, u64::MAX);
    let table = "root pointer";
    let firmware = [
        FirmwareError::Short { table, bytes: usize::MAX },
        FirmwareError::Entry { table, offset: usize::MAX, length: usize::MAX },
        FirmwareError::Signature { table },
        FirmwareError::Sum { table },
        FirmwareError::Overlap { start, first: MOST, second: MOST },
        FirmwareError::Range { start, length },
        FirmwareError::TooMany { what: "ranges of memory", most: usize::MAX },
    ];
    let early = [
        EarlyError::Range { start, length },
        EarlyError::TooMany { most: usize::MAX },
        EarlyError::NoMemory,
        EarlyError::NoRoom { bytes: u64::MAX },
    ];
    let notes = [
        Note::UnknownCpu { id: u64::MAX },
        Note::UnplacedCpu { cpu: CpuId(u32::MAX) },
        Note::Distance { from: NodeId(9999), to: NodeId(9999), distance: 255 },
        Note::NoDistances,
        Note::DistanceMap { bytes: usize::MAX },
        Note::PluggableLeftOut { bytes: u64::MAX },
        Note::UnplacedMemory { start, end: start },
        Note::MemoryLeftOut(LeftOut { ranges: u32::MAX, bytes: u64::MAX }),
        Note::BadTable { table: *b"SLIT" },
    ];
    let pvh = [
        PvhError::NoStartInfo { address: start },
        PvhError::NoMemoryMap,
        PvhError::TooManyEntries { entries: u32::MAX },
    ];
    let linux = [
        LinuxBootError::NoZeroPage { address: start },
        LinuxBootError::Version { version: u16::MAX },
        LinuxBootError::TooManyEntries { entries: u8::MAX },
    ];
    let lines = (firmware.iter().map(|it| it.to_string()))
        .chain(early.iter().map(|it| it.to_string()))
        .chain(notes.iter().map(|it| it.to_string()))
        .chain(pvh.iter().map(|it| it.to_string()))
        .chain(linux.iter().map(|it| it.to_string()));
    for line in lines {
        assert!(line.len() <= 120 && line.is_ascii() && !line.contains('\n'), "{line}");
    }
}

/// Noise, and tables of which some bytes are changed: 10^6 inputs in a round. Nothing panics, and nothing loops.
#[test]
fn noise() {
    fuzz(8 * INPUTS + INPUTS / 2, noise_of);
}

const INPUTS: u64 = 125_000;

fn noise_of(random: &mut Random) {
    let mut machine = Machine::new();
    let readers: [Reader; 4] = [read_madt, read_srat, read_slit, read_hmat];
    let templates = [
        madt(&[0, 1]),
        srat(&[cpu_affinity(0, 0), memory_affinity(1, 0, 4096, 3)]),
        slit(2, &[10, 20, 20, 10]),
        hmat(&[0], &[0, 1], &[1, 2]),
    ];
    let blob = tree();
    let mut accepted = 0;
    for _ in 0..INPUTS {
        // Some of what was read before is there, so that nodes and CPUs meet.
        if random.below(50) == 0 {
            machine.forget_nodes();
        }
        for (read, template) in readers.iter().zip(&templates) {
            let mut bytes = template.clone();
            disturb(&mut bytes, random);
            accepted += u64::from(read(&bytes, &mut machine).is_ok());
            let length = random.below(80) as usize;
            let noise: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            let _ = read(&noise, &mut machine);
        }
    }
    assert!(accepted > INPUTS, "most changes are harmless");
    for _ in 0..INPUTS / 2 {
        let mut bytes = blob.clone();
        disturb(&mut bytes, random);
        let mut memory = EarlyMemory::<16>::new();
        let _ = devicetree::read(&bytes, &mut machine, &mut memory);
        let _ = (devicetree::command_line(&bytes), devicetree::initial_disk(&bytes));
        machine.forget_nodes();
    }
}

fn disturb(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.one_of(&[0, 1, 2, 0x7f, 0x80, 0xff, random.0 as u8]);
    }
    if random.below(4) == 0 {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
}

/// Writes a devicetree.
#[derive(Default)]
struct Writer {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    fn word(&mut self, word: u32) {
        self.structure.extend(word.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.structure.extend(text.bytes().chain([0]));
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
    }

    /// Reserves a MiB for the firmware, at an address below 4 GiB.
    fn reserve_mib(&mut self, address: u32) {
        self.begin("reserved-memory");
        self.cells("#address-cells", &[2]);
        self.cells("#size-cells", &[2]);
        self.begin("firmware");
        self.cells("reg", &[0, address, 0, 0x10_0000]);
        self.end();
        self.end();
    }

    fn begin(&mut self, name: &str) {
        self.word(1);
        self.text(name);
    }

    fn end(&mut self) {
        self.word(2);
    }

    fn property(&mut self, name: &str, value: &[u8]) {
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        self.word(3);
        self.word(value.len() as u32);
        self.word(at);
        self.structure.extend(value);
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
    }

    fn cells(&mut self, name: &str, cells: &[u32]) {
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.property(name, &bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        self.word(9);
        let reserved: Vec<u8> =
            [0x4800_0000_u64, 0x1000, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        let structure = 40 + reserved.len();
        let strings = structure + self.structure.len();
        let total = strings + self.strings.len();
        let header = [
            0xd00d_feed,
            total,
            structure,
            strings,
            40,
            17,
            16,
            0,
            self.strings.len(),
            self.structure.len(),
        ];
        let header = header.iter().flat_map(|&word| (word as u32).to_be_bytes());
        header.chain(reserved).chain(self.structure).chain(self.strings).collect()
    }
}

/// Two nodes with memory, three CPUs, and one distance.
fn tree() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.begin("");
    writer.cells("#address-cells", &[2]);
    writer.cells("#size-cells", &[2]);
    for (node, start) in [(0, 0x4000_0000), (1, 0x5000_0000)] {
        writer.begin("memory");
        writer.property("device_type", b"memory\0");
        writer.cells("reg", &[0, start, 0, 0x1000_0000]);
        writer.cells("numa-node-id", &[node]);
        writer.end();
    }
    writer.begin("cpus");
    writer.cells("#address-cells", &[1]);
    writer.cells("#size-cells", &[0]);
    for (cpu, node) in [(0, 0), (1, 1), (2, 5)] {
        writer.begin("cpu");
        writer.property("device_type", b"cpu\0");
        writer.cells("reg", &[cpu]);
        writer.cells("numa-node-id", &[node]);
        writer.end();
    }
    writer.end();
    writer.begin("chosen");
    writer.property("bootargs", b"seed=7\0");
    writer.end();
    writer.begin("distance-map");
    writer.property("compatible", b"numa-distance-map-v1\0");
    writer.cells("distance-matrix", &[0, 0, 10, 0, 1, 15, 1, 0, 25, 0, 5, 40]);
    writer.end();
    writer.reserve_mib(0x5f00_0000);
    writer.end();
    writer.finish()
}

#[test]
fn what_a_devicetree_says_is_read() {
    let (mut machine, mut memory) = (Machine::new(), EarlyMemory::<16>::new());
    devicetree::read(&tree(), &mut machine, &mut memory).expect("it is right");
    assert_eq!(machine.nodes(), [0, 1, 5].map(NodeId));
    assert_eq!(machine.cpus().iter().map(|cpu| cpu.node.0).collect::<Vec<_>>(), [0, 1, 5]);
    let far = |from, to| machine.distance(NodeId(from), NodeId(to));
    assert_eq!((far(0, 1), far(1, 0), far(0, 5), far(5, 0), far(1, 5)), (15, 25, 40, 40, 20));
    assert_eq!(devicetree::command_line(&tree()), b"seed=7");
    assert_eq!(devicetree::command_line(&[1; 64]), b"");
    assert!(memory.ranges().eq(core::iter::once(0x4000_0000..0x6000_0000)));
    assert_eq!(memory.free_bytes(), 0x2000_0000 - 0x1000 - 0x10_0000);
}

/// Whatever `/chosen` says is in use, or not to be used, is not handed out.
#[test]
fn what_is_chosen_is_reserved() {
    const MIB: u64 = 1 << 20;
    // `cells`: how many an address and a size have.
    let tree = |cells: usize, chosen: &[(&str, Vec<u64>)]| {
        let wide = |value: &u64| match cells {
            1 => vec![*value as u32],
            _ => vec![(value >> 32) as u32, *value as u32],
        };
        tree_with(&[cells as u32; 2], |writer| {
            writer.begin("memory");
            writer.property("device_type", b"memory\0");
            let reg: Vec<u32> = [0x4000_0000, 0x1000_0000].iter().flat_map(wide).collect();
            writer.cells("reg", &reg);
            writer.end();
            writer.begin("chosen");
            for (name, values) in chosen {
                writer.cells(name, &values.iter().flat_map(wide).collect::<Vec<u32>>());
            }
            writer.end();
        })
    };
    // MiB that are handed out, and the lowest and highest of them.
    let free = |blob: &[u8]| {
        let (mut machine, mut memory) = (Machine::new(), EarlyMemory::<16>::new());
        devicetree::read(blob, &mut machine, &mut memory).expect("it is right");
        let mut all: Vec<u64> =
            core::iter::from_fn(|| memory.alloc(MIB, MIB).ok()).map(|at| at / MIB).collect();
        all.sort();
        all
    };
    let (first, last) = (0x400_u64, 0x4ff);
    let without = |taken: &[u64]| -> Vec<u64> {
        // Reserved in the tree, and in front of it.
        (first..=last).filter(|mib| ![0x410, 0x480].contains(mib) && !taken.contains(mib)).collect()
    };
    for cells in [1, 2] {
        let disk = |from: u64, to: u64| {
            [("linux,initrd-start", vec![from * MIB]), ("linux,initrd-end", vec![to * MIB - 5])]
        };
        let blob = tree(cells, &disk(0x420, 0x423));
        assert_eq!(free(&blob), without(&[0x420, 0x421, 0x422]));
        assert_eq!(devicetree::initial_disk(&blob), Some(0x420 * MIB..0x423 * MIB - 5));
        // One that ends before it begins is none.
        let blob = tree(cells, &disk(0x423, 0x420));
        assert_eq!((free(&blob), devicetree::initial_disk(&blob)), (without(&[]), None));
        let blob = tree(cells, &[("linux,elfcorehdr", vec![0x430 * MIB, 2 * MIB])]);
        assert_eq!(free(&blob), without(&[0x430, 0x431]));
        // The ranges come in any order.
        let ranges = vec![0x450 * MIB, 2 * MIB, 0x440 * MIB, 3 * MIB];
        let blob = tree(cells, &[("linux,usable-memory-range", ranges)]);
        assert_eq!(free(&blob), [0x440, 0x441, 0x442, 0x450, 0x451]);
    }
}

/// A tree of two nodes with memory, and what is reserved behind them: `change` writes what comes between.
fn tree_with(cells: &[u32], change: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.begin("");
    writer.cells("#address-cells", &cells[..1]);
    writer.cells("#size-cells", &cells[1..]);
    change(&mut writer);
    writer.begin("cpus");
    writer.cells("#address-cells", &[1]);
    writer.begin("cpu");
    writer.property("device_type", b"cpu\0");
    writer.cells("reg", &[3]);
    writer.end();
    writer.end();
    writer.reserve_mib(0x4100_0000);
    writer.end();
    writer.finish()
}

/// What is wrong with a part of the tree does not hide the rest: who goes on with one node has all memory, and none that is taken.
#[test]
fn what_is_reserved_behind_a_wrong_part_is_reserved() {
    let memory_node = |writer: &mut Writer, reg: &[u32], node: u32| {
        writer.begin("memory");
        writer.property("device_type", b"memory\0");
        writer.cells("reg", reg);
        writer.cells("numa-node-id", &[node]);
        writer.end();
    };
    let right = [0, 0x4000_0000, 0, 0x1000_0000];
    let read = |blob: &[u8]| {
        let (mut machine, mut memory) = (Machine::new(), EarlyMemory::<16>::new());
        let told = devicetree::read(blob, &mut machine, &mut memory);
        assert_eq!((machine.nodes().len(), machine.cpus().len()), (0, 1));
        // Whatever else is there: what is reserved never is.
        while let Ok(piece) = memory.alloc(0x10_0000, 0x10_0000) {
            assert_ne!(piece, 0x4100_0000);
        }
        (told.expect_err("it is wrong").to_string(), memory)
    };
    let of = |memory: &EarlyMemory<16>| memory.ranges().map(|it| it.end - it.start).sum::<u64>();
    let (told, memory) = read(&tree_with(&[2, 2], |writer| {
        memory_node(writer, &right, 0);
        memory_node(writer, &[0, 0x4800_0000, 0, 0x1000_0000], 1);
    }));
    assert_eq!(told, "memory at 0x48000000 is of node 0 and of node 1");
    assert_eq!(of(&memory), 0x1800_0000);
    let (told, memory) = read(&tree_with(&[2, 2], |writer| {
        memory_node(writer, &[u32::MAX, 0xffff_f000, 0, 0x2000], 0);
        memory_node(writer, &right, 0);
    }));
    assert_eq!(told, "a range of 0x2000 bytes at 0xfffffffffffff000 is empty or wraps around");
    assert_eq!((of(&memory), memory.left_out().ranges), (0x1000_0000, 1));
    let (told, memory) = read(&tree_with(&[2, 2], |writer| {
        memory_node(writer, &[&right[..], &[0, 0]].concat(), 0);
    }));
    assert!(told.contains("not in whole entries") && told.len() <= 120, "{told}");
    assert_eq!(of(&memory), 0x1000_0000);
    for cells in [[3, 2], [2, 0], [u32::MAX; 2]] {
        let (told, _) = read(&tree_with(&cells, |writer| {
            memory_node(writer, &[&[0], &right[..]].concat(), 0);
        }));
        assert!(told.contains("one or two cells"), "{told}");
    }
}

#[test]
fn distances_of_a_devicetree_that_are_wrong_are_told() {
    let read = |matrix: &[u8]| {
        let blob = tree_with(&[2, 2], |writer| {
            for (node, start) in [(0, 0x4000_0000), (1, 0x5000_0000)] {
                writer.begin("memory");
                writer.property("device_type", b"memory\0");
                writer.cells("reg", &[0, start, 0, 0x1000_0000]);
                writer.cells("numa-node-id", &[node]);
                writer.end();
            }
            writer.begin("distance-map");
            writer.property("distance-matrix", matrix);
            writer.end();
        });
        let mut machine = Machine::new();
        devicetree::read(&blob, &mut machine, &mut EarlyMemory::<16>::new()).expect("it is right");
        let is_distance =
            |note: &Note| matches!(note, Note::Distance { .. } | Note::DistanceMap { .. });
        let notes: Vec<_> = machine.notes().filter(is_distance).collect();
        (machine.distance(NodeId(0), NodeId(1)), notes)
    };
    let entry = |distance| [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, distance];
    let (from, to) = (NodeId(0), NodeId(1));
    assert_eq!(read(&entry(33)), (33, vec![]));
    assert_eq!(read(&entry(0)), (20, vec![Note::Distance { from, to, distance: 0 }]));
    assert_eq!(read(&entry(9)), (20, vec![Note::Distance { from, to, distance: 9 }]));
    let cut = [&entry(33)[..], &[0; 7]].concat();
    assert_eq!(read(&cut), (33, vec![Note::DistanceMap { bytes: 19 }]));
}

/// An entry of no bytes ends nothing: what comes behind it is reserved.
#[test]
fn reservations_end_with_two_zeroes() {
    let mut blob = tree();
    let list = blob.len() as u32;
    let words = [0x4800_0000_u64, 0, 0x4900_0000, 0x1000, 0, 0];
    blob.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    let total = blob.len() as u32;
    blob[4..8].copy_from_slice(&total.to_be_bytes());
    blob[16..20].copy_from_slice(&list.to_be_bytes());
    let (mut machine, mut memory) = (Machine::new(), EarlyMemory::<16>::new());
    devicetree::read(&blob, &mut machine, &mut memory).expect("it is right");
    while let Ok(piece) = memory.alloc(0x10_0000, 0x10_0000) {
        assert_ne!(piece, 0x4900_0000);
    }
}

#[test]
fn a_devicetree_that_is_none_is_refused() {
    let read = |blob: &[u8]| {
        devicetree::read(blob, &mut Machine::new(), &mut EarlyMemory::<16>::new())
            .map_err(|error| error.to_string())
    };
    let right = tree();
    assert!(read(&right[..30]).is_err_and(|error| error.contains("ends after 30 bytes")));
    assert!(read(&right[..right.len() - 1]).is_err());
    let mut version = right.clone();
    version[27] = 18;
    assert!(read(&version).is_err_and(|error| error.contains("version")));
    assert!(read(&[0; 100]).is_err_and(|error| error.contains("no devicetree")));
}
