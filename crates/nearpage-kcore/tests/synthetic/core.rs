//! A kernel that is drawn, and its core.
//!
//! ```text
//! physical 0       image: page tables, variables, structures, BTF, symbols      0xffffffff80000000
//! physical 2 MiB   descriptors of 4096 frames                                    0xffffea0000000000
//! ```

use std::collections::BTreeMap;

use nearpage_kcore::{FreeArea, NodeState, PagesetState, State, ZoneState};

use super::rng::Rng;
use super::types::{Member, Types};

const IMAGE: u64 = 0xffff_ffff_8000_0000;
const IMAGE_BYTES: usize = 1 << 20;
const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
const VMEMMAP_AT: u64 = 2 << 20;
const FRAMES: u64 = 4096;
const ZONE_FRAMES: u64 = 1024;
const LISTS: u64 = 14;
const ORDERS: usize = 11;

/// What was drawn.
#[derive(Debug)]
pub struct Drawn {
    /// The core.
    pub file: Vec<u8>,
    /// What a reader should find.
    pub state: State,
    /// Places of the file that have something: where, and how many bytes.
    pub used: Vec<(usize, usize)>,
    /// Where in the file the first two frames of a list of a pageset have their links.
    pub list: (usize, usize),
}

/// Members by name: where they are in a structure of so many bytes.
struct Layout {
    at: BTreeMap<String, u64>,
    bytes: u64,
}

/// The kernel under way.
struct Core<'r> {
    rng: &'r mut Rng,
    image: Vec<u8>,
    next: usize,
    vmemmap: Vec<u8>,
    page_bytes: u64,
    lru: u64,
    types: Types,
    symbols: BTreeMap<&'static str, u64>,
    info: Vec<String>,
    used: Vec<(usize, usize)>,
}

impl Core<'_> {
    fn reserve(&mut self, bytes: u64, align: u64) -> u64 {
        self.next = self.next.next_multiple_of(align as usize);
        let at = self.next;
        self.next += bytes as usize;
        assert!(self.next <= IMAGE_BYTES, "the image is too small for what is drawn");
        self.used.push((at, bytes.max(1) as usize));
        IMAGE + at as u64
    }

    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.reserve(bytes.len() as u64, 8);
        self.write(at, bytes);
        at
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (memory, at) = match at >= IMAGE {
            true => (&mut self.image, at - IMAGE),
            false => (&mut self.vmemmap, at - VMEMMAP),
        };
        memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, value: i64) {
        self.write(at, &value.to_le_bytes());
    }

    fn int(&mut self, at: u64, value: i64) {
        self.write(at, &(value as i32).to_le_bytes());
    }

    fn is_so(&mut self) -> bool {
        self.rng.below(2) == 0
    }

    fn some(&mut self) -> i64 {
        self.rng.below(1000) as i64
    }

    /// A structure whose members (name, type, bytes) lie in any order, with gaps.
    fn structure(&mut self, name: &str, mut members: Vec<(&str, u32, u64)>) -> Layout {
        let mut placed: Vec<Member<'_>> = Vec::new();
        let mut bytes = 8 * self.rng.below(4);
        while !members.is_empty() {
            let (name, of, size) =
                members.swap_remove(self.rng.below(members.len() as u64) as usize);
            placed.push((name, of, bytes));
            bytes = (bytes + size).next_multiple_of(8) + 8 * self.rng.below(3);
        }
        self.types.structure(name, bytes.max(8), &placed);
        let at = placed.iter().map(|(name, _, offset)| ((*name).to_owned(), *offset)).collect();
        Layout { at, bytes: bytes.max(8) }
    }

    /// The link of a frame.
    fn link(&self, frame: u64) -> u64 {
        VMEMMAP + frame * self.page_bytes + self.lru
    }

    /// A circle of a head and frames.
    fn list(&mut self, head: u64, frames: &[u64]) {
        let links: Vec<u64> =
            std::iter::once(head).chain(frames.iter().map(|&frame| self.link(frame))).collect();
        for (index, &link) in links.iter().enumerate() {
            let next = links[(index + 1) % links.len()];
            let back = links[(index + links.len() - 1) % links.len()];
            self.word(link, next as i64);
            self.word(link + 8, back as i64);
        }
    }

    /// Up to so many blocks of a zone that nobody has, in any order.
    fn blocks(&mut self, most: u64, order: u8, next: &mut u64, end: u64) -> Vec<u64> {
        let mut blocks = Vec::new();
        for _ in 0..self.rng.below(most + 1) {
            let block = next.next_multiple_of(1 << order);
            if block + (1 << order) > end {
                break;
            }
            *next = block + (1 << order);
            let at = self.rng.below(blocks.len() as u64 + 1) as usize;
            blocks.insert(at, block);
        }
        blocks
    }
}

impl Layout {
    fn of(&self, base: u64, name: &str) -> u64 {
        base + self.at[name]
    }

    fn find(&self, base: u64, name: &str) -> Option<u64> {
        self.at.get(name).map(|offset| base + offset)
    }
}

struct Ints {
    int: u32,
    long: u32,
    ulong: u32,
    byte: u32,
    pointer: u32,
}

struct Shapes {
    zone: Layout,
    pageset: Layout,
    stat: Layout,
    area: Layout,
    zones_at: u64,
    node_bytes: u64,
    types: u64,
    counters: Vec<String>,
    events: Vec<String>,
    page_usage: Layout,
    section: Layout,
    online: u64,
    isolate: Option<u64>,
    width: u64,
    migratetypes: Vec<String>,
}

/// Draws a kernel.
pub fn draw(rng: &mut Rng) -> Drawn {
    let page_bytes = [64, 80][rng.below(2) as usize];
    let lru = 8 * rng.below(4);
    let mut core = Core {
        rng,
        image: vec![0; IMAGE_BYTES],
        next: 4096,
        vmemmap: vec![0; (FRAMES * page_bytes) as usize],
        page_bytes,
        lru,
        types: Types::new(),
        symbols: BTreeMap::new(),
        info: Vec::new(),
        used: Vec::new(),
    };
    tables(&mut core);
    let shapes = shapes(&mut core);
    let (state, list) = state(&mut core, &shapes);
    let bytes = std::mem::take(&mut core.types).finish();
    let begin = core.put(&bytes);
    core.symbols.insert("__start_BTF", begin);
    core.symbols.insert("__stop_BTF", begin + bytes.len() as u64);
    symbols(&mut core);
    let file = file(&mut core);
    let header = file.len() - IMAGE_BYTES - core.vmemmap.len();
    let mut used: Vec<(usize, usize)> = vec![(0, header)];
    used.extend(core.used.iter().map(|(at, bytes)| (header + at, *bytes)));
    used.push((header + IMAGE_BYTES, core.vmemmap.len()));
    let place = |link: u64| header + IMAGE_BYTES + (link - VMEMMAP) as usize;
    Drawn { file, state, used, list: (place(core.link(list.0)), place(core.link(list.1))) }
}

fn tables(core: &mut Core<'_>) {
    let tables = core.reserve(5 * 4096, 4096);
    let physical = |index: u64| (tables - IMAGE + 4096 * index) as i64;
    let entries = [
        (0, 511, physical(1) | 3),
        (1, 510, physical(2) | 3),
        (2, 0, 0x83),
        (0, VMEMMAP >> 39 & 511, physical(3) | 3),
        (3, 0, physical(4) | 3),
        (4, 0, VMEMMAP_AT as i64 | 0x83),
    ];
    for (table, index, entry) in entries {
        core.word(tables + 4096 * table + 8 * index, entry);
    }
    core.symbols.insert("swapper_pg_dir", tables);
}

fn shapes(core: &mut Core<'_>) -> Shapes {
    let ints = Ints {
        int: core.types.int("int", 4, true),
        long: core.types.int("long int", 8, true),
        ulong: core.types.int("long unsigned int", 8, false),
        byte: core.types.int("s8", 1, true),
        pointer: core.types.pointer(),
    };
    let head = core.types.structure(
        "list_head",
        16,
        &[("next", ints.pointer, 0), ("prev", ints.pointer, 8)],
    );
    let single = core.types.structure("llist_head", 8, &[("first", ints.pointer, 0)]);
    let inner = core.types.structure("", 16, &[("lru", head, 0)]);
    let (page_bytes, lru) = (core.page_bytes, core.lru);
    core.types.structure("page", page_bytes, &[("flags", ints.ulong, 32), ("", inner, lru)]);
    let counter = core.types.structure("", 8, &[("counter", ints.long, 0)]);
    let atomic = core.types.typedef("atomic_long_t", counter);
    let types = 4 + core.rng.below(3);
    let lists = core.types.array(head, types as u32);
    let area = core
        .structure("free_area", vec![("free_list", lists, 16 * types), ("nr_free", ints.ulong, 8)]);
    // The structure has the last id.
    let area_id = core.types.structure("unused", 8, &[]) - 1;
    let areas = core.types.array(area_id, ORDERS as u32);
    let counters: Vec<String> = (0..3 + core.rng.below(8)).map(|at| format!("NR_{at}")).collect();
    let events: Vec<String> = (0..1 + core.rng.below(6)).map(|at| format!("NUMA_{at}")).collect();
    let enumeration = |core: &mut Core<'_>, name: &str, names: &[String], end: &str| {
        let mut values: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(0..).collect();
        values.push((end, names.len() as u64));
        core.types.enumeration(name, &values);
    };
    enumeration(core, "zone_stat_item", &counters, "NR_VM_ZONE_STAT_ITEMS");
    enumeration(core, "numa_stat_item", &events, "NR_VM_NUMA_EVENT_ITEMS");
    let marks = core.types.array(ints.ulong, 4);
    let reserve = core.types.array(ints.long, 3);
    let stats = core.types.array(atomic, counters.len() as u32);
    let numa = core.types.array(atomic, events.len() as u32);
    let mut members = vec![
        ("_watermark", marks, 32),
        ("watermark_boost", ints.ulong, 8),
        ("nr_reserved_highatomic", ints.ulong, 8),
        ("lowmem_reserve", reserve, 24),
        ("per_cpu_pageset", ints.pointer, 8),
        ("per_cpu_zonestats", ints.pointer, 8),
        ("zone_start_pfn", ints.ulong, 8),
        ("managed_pages", atomic, 8),
        ("spanned_pages", ints.ulong, 8),
        ("present_pages", ints.ulong, 8),
        ("name", ints.pointer, 8),
        ("free_area", areas, area.bytes * ORDERS as u64),
        ("vm_stat", stats, 8 * counters.len() as u64),
        ("vm_numa_event", numa, 8 * events.len() as u64),
    ];
    if core.is_so() {
        members.push(("nr_free_highatomic", ints.ulong, 8));
    }
    if core.is_so() {
        members.push(("trylock_free_pages", single, 8));
    }
    let zone = core.structure("zone", members);
    let zone_id = core.types.structure("unused", 8, &[]) - 1;
    let zones = core.types.array(zone_id, 3);
    let node = core
        .structure("pglist_data", vec![("node_zones", zones, 3 * zone.bytes), ("x", ints.int, 4)]);
    let cpu_lists = core.types.array(head, LISTS as u32);
    let mut members = vec![
        ("count", ints.int, 4),
        ("high", ints.int, 4),
        ("batch", ints.int, 4),
        ("lists", cpu_lists, 16 * LISTS),
    ];
    for (name, of, bytes) in [
        ("high_min", ints.int, 4),
        ("high_max", ints.int, 4),
        ("flags", ints.byte, 1),
        ("alloc_factor", ints.byte, 1),
        ("expire", ints.byte, 1),
        ("free_count", ints.int, 4),
    ] {
        if core.is_so() {
            members.push((name, of, bytes));
        }
    }
    let pageset = core.structure("per_cpu_pages", members);
    let diffs = core.types.array(ints.byte, counters.len() as u32);
    let numa = core.types.array(ints.ulong, events.len() as u32);
    let stat = core.structure(
        "per_cpu_zonestat",
        vec![
            ("vm_stat_diff", diffs, counters.len() as u64),
            ("stat_threshold", ints.byte, 1),
            ("vm_numa_event", numa, 8 * events.len() as u64),
        ],
    );
    let section = core.structure(
        "mem_section",
        vec![("section_mem_map", ints.ulong, 8), ("usage", ints.pointer, 8)],
    );
    let none = core.types.array(ints.ulong, 0);
    let page_usage = core
        .structure("mem_section_usage", vec![("map", ints.ulong, 8), ("pageblock_flags", none, 0)]);
    let words = core.types.array(ints.ulong, 1);
    core.types.structure("cpumask", 8, &[("bits", words, 0)]);
    let online = core.rng.below(5);
    core.types.enumeration("node_states", &[("N_POSSIBLE", 7), ("N_ONLINE", online)]);
    let isolate = core.is_so().then_some(types - 1);
    let mut names = vec![
        ("MIGRATE_UNMOVABLE", 0),
        ("MIGRATE_MOVABLE", 1),
        ("MIGRATE_RECLAIMABLE", 2),
        ("MIGRATE_HIGHATOMIC", 3),
    ];
    let mut migratetypes: Vec<String> =
        ["Unmovable", "Movable", "Reclaimable", "HighAtomic"].map(String::from).into();
    for value in 4..types {
        match isolate {
            Some(own) if own == value => {
                names.push(("MIGRATE_ISOLATE", value));
                migratetypes.push("Isolate".into());
            }
            _ => migratetypes.push("?".into()),
        }
    }
    names.push(("MIGRATE_TYPES", types));
    core.types.enumeration("migratetype", &names);
    let isolate = isolate.filter(|&own| own >= 4);
    let bits: &[(&str, u64)] = match isolate {
        Some(_) => &[("PB_migrate_isolate", 4), ("__NR_PAGEBLOCK_BITS", 5)],
        None => &[("NR_PAGEBLOCK_BITS", 4)],
    };
    core.types.enumeration("pageblock_bits", bits);
    core.info.push(format!("SIZE(zone)={}\nSIZE(page)={}", zone.bytes, core.page_bytes));
    Shapes {
        zones_at: node.at["node_zones"],
        node_bytes: node.bytes,
        zone,
        pageset,
        stat,
        area,
        types,
        counters,
        events,
        page_usage,
        section,
        online,
        isolate,
        width: if isolate.is_some() { 8 } else { 4 },
        migratetypes,
    }
}

/// Per-CPU memory: the same place in a chunk of each CPU.
struct PerCpu {
    base: u64,
    used: u64,
    chunks: Vec<(u32, u64)>,
}

impl PerCpu {
    const BYTES: u64 = 16 << 10;

    fn reserve(&mut self, bytes: u64) -> u64 {
        let at = self.used.next_multiple_of(8);
        self.used = at + bytes;
        assert!(self.used <= PerCpu::BYTES);
        self.base + at
    }
}

fn state(core: &mut Core<'_>, shapes: &Shapes) -> (State, (u64, u64)) {
    let cpus = [&[0][..], &[0, 1], &[1, 3]][core.rng.below(3) as usize];
    // Variables of CPUs have small addresses, or those of the image.
    let is_absolute = core.is_so();
    let base = if is_absolute { 0x1000 } else { core.reserve(PerCpu::BYTES, 4096) };
    let mut per_cpu = PerCpu { base, used: 0, chunks: Vec::new() };
    let offsets = core.reserve(8 * 8, 8);
    let mut mask = 0_i64;
    for &cpu in cpus {
        let chunk = core.reserve(PerCpu::BYTES, 4096);
        core.word(offsets + 8 * u64::from(cpu), chunk.wrapping_sub(base) as i64);
        per_cpu.chunks.push((cpu, chunk));
        mask |= 1 << cpu;
    }
    let online = core.put(&mask.to_le_bytes());
    core.symbols.insert("__cpu_online_mask", online);
    core.symbols.insert("__per_cpu_offset", offsets);
    let numa_node = per_cpu.reserve(4);
    core.symbols.insert("numa_node", numa_node);
    core.info.push(format!("ABSOLUTE={is_absolute}"));

    let ids = [&[0][..], &[0, 2]][core.rng.below(2) as usize];
    let node_of: Vec<u32> =
        cpus.iter().map(|_| ids[core.rng.below(ids.len() as u64) as usize]).collect();
    for (&node, (_, chunk)) in node_of.iter().zip(per_cpu.chunks.clone()) {
        core.int(chunk + (numa_node - base), node.into());
    }
    let states = core.reserve(8 * 8, 8);
    let nodes_mask: i64 = ids.iter().map(|id| 1 << id).sum();
    core.word(states + 8 * shapes.online, nodes_mask);
    core.symbols.insert("node_states", states);
    let node_data = core.reserve(8 * 4, 8);
    core.info
        .push(format!("SYMBOL(node_data)={node_data:x}\nLENGTH(node_data)=4\nSIZE(nodemask_t)=8"));
    // A row for each of three nodes, 10 to itself.
    let apart = |at| if at % 4 == 0 { 10 } else { 11 + core.rng.below(40) as u8 };
    let table: Vec<u8> = (0..9).map(apart).collect();
    let (table_at, count) = (core.put(&table), core.put(&3_u32.to_le_bytes()));
    let pointer = core.put(&table_at.to_le_bytes());
    core.symbols.insert("numa_distance", pointer);
    core.symbols.insert("numa_distance_cnt", count);

    let blocks = pageblocks(core, shapes);
    let mut nodes = Vec::new();
    let mut list = None;
    for (index, &id) in ids.iter().enumerate() {
        let at = core.reserve(shapes.node_bytes, 64);
        core.word(node_data + 8 * u64::from(id), at as i64);
        let mut zones = Vec::new();
        for (kind, name) in ["DMA32", "Normal", "Movable"].into_iter().enumerate() {
            let zone_at = at + shapes.zones_at + shapes.zone.bytes * kind as u64;
            let is_there = kind == 0 || (kind == 1 && core.is_so());
            let start = ZONE_FRAMES * (2 * index as u64 + kind as u64);
            let place = is_there.then_some(start);
            let zone = zone(core, shapes, &mut per_cpu, (zone_at, name, place), &blocks, &mut list);
            zones.push(zone);
        }
        let own = cpus.iter().zip(&node_of).filter(|(_, node)| **node == id).map(|(cpu, _)| *cpu);
        let distances = ids.iter().map(|to| u32::from(table[(id * 3 + to) as usize])).collect();
        nodes.push(NodeState { id, cpus: own.collect(), distances, zones });
    }
    let mut settings = Vec::new();
    for (name, variable, most) in [
        ("min_free_kbytes", "min_free_kbytes", 1 << 20),
        ("zone_reclaim_mode", "node_reclaim_mode", 8),
    ] {
        if core.is_so() {
            let value = core.rng.below(most) as i64;
            let at = core.put(&(value as u32).to_le_bytes());
            core.symbols.insert(variable, at);
            settings.push((name.to_owned(), vec![value]));
        }
    }
    let state = State {
        release: "9.8.7-drawn".into(),
        cpus: cpus.to_vec(),
        nodes,
        migratetypes: shapes.migratetypes.clone(),
        settings,
        told: Vec::new(),
        cut: None,
    };
    (state, list.expect("a list with two frames was drawn"))
}

/// Sections of 1024 frames with two pageblocks each.
fn pageblocks(core: &mut Core<'_>, shapes: &Shapes) -> Vec<Option<u8>> {
    let table = core.reserve(4096, 8);
    let roots = core.put(&table.to_le_bytes());
    core.info.push(format!(
        "SYMBOL(mem_section)={roots:x}\nLENGTH(mem_section)=1\nNUMBER(SECTION_SIZE_BITS)=22"
    ));
    let mut types = Vec::new();
    for section in 0..FRAMES / 1024 {
        if core.rng.below(8) == 0 {
            types.extend([None, None]);
            continue;
        }
        let usage = core.reserve(shapes.page_usage.bytes + 8, 8);
        core.word(shapes.section.of(table + section * shapes.section.bytes, "usage"), usage as i64);
        let mut flags = 0;
        for block in 0..2 {
            let kind = core.rng.below(4) as i64;
            flags |= kind << (shapes.width * block);
            let isolated = shapes.isolate.filter(|_| core.rng.below(4) == 0);
            if isolated.is_some() {
                flags |= 16 << (shapes.width * block);
            }
            types.push(Some(isolated.map_or(kind as u8, |kind| kind as u8)));
        }
        core.word(shapes.page_usage.of(usage, "pageblock_flags"), flags);
    }
    types
}

fn zone(
    core: &mut Core<'_>,
    shapes: &Shapes,
    per_cpu: &mut PerCpu,
    (at, name, place): (u64, &str, Option<u64>),
    blocks: &[Option<u8>],
    list: &mut Option<(u64, u64)>,
) -> ZoneState {
    let layout = &shapes.zone;
    let text = core.put(format!("{name}\0").as_bytes());
    core.word(layout.of(at, "name"), text as i64);
    let mut zone = ZoneState {
        name: name.into(),
        watermarks: (0..4).map(|_| core.some() as u64).collect(),
        watermark_boost: core.some() as u64,
        reserved_highatomic: Some(core.some() as u64),
        free_highatomic: layout.find(at, "nr_free_highatomic").map(|_| core.some() as u64),
        lowmem_reserve: (0..3).map(|_| core.some()).collect(),
        counters: shapes.counters.iter().map(|name| (name.clone(), core.some() - 500)).collect(),
        ..ZoneState::default()
    };
    if let Some(start) = place {
        zone.start_pfn = start;
        (zone.spanned_pages, zone.present_pages, zone.managed_pages) =
            (ZONE_FRAMES, ZONE_FRAMES, 1000);
    }
    let rows = [
        ("_watermark", zone.watermarks.iter().map(|&mark| mark as i64).collect()),
        ("lowmem_reserve", zone.lowmem_reserve.clone()),
        ("vm_stat", zone.counters.iter().map(|(_, value)| *value).collect::<Vec<_>>()),
    ];
    for (name, values) in rows {
        for (index, value) in values.into_iter().enumerate() {
            core.word(layout.of(at, name) + 8 * index as u64, value);
        }
    }
    for (name, value) in [
        ("watermark_boost", Some(zone.watermark_boost)),
        ("nr_reserved_highatomic", zone.reserved_highatomic),
        ("nr_free_highatomic", zone.free_highatomic),
        ("zone_start_pfn", Some(zone.start_pfn)),
        ("spanned_pages", Some(zone.spanned_pages)),
        ("present_pages", Some(zone.present_pages)),
        ("managed_pages", Some(zone.managed_pages)),
    ] {
        if let (Some(place), Some(value)) = (layout.find(at, name), value) {
            core.word(place, value as i64);
        }
    }
    let Some(start) = place else { return zone };
    let (mut next, end) = (start, start + ZONE_FRAMES);
    for order in 0..ORDERS {
        let area_at = layout.of(at, "free_area") + shapes.area.bytes * order as u64;
        let mut area = FreeArea::default();
        for kind in 0..shapes.types {
            let most = if order < 5 { 3 } else { 0 };
            let frames = core.blocks(most, order as u8, &mut next, start + ZONE_FRAMES / 2);
            core.list(shapes.area.of(area_at, "free_list") + 16 * kind, &frames);
            area.free_blocks += frames.len() as u64;
            area.lists.push(frames);
        }
        core.word(shapes.area.of(area_at, "nr_free"), area.free_blocks as i64);
        zone.free.push(area);
    }
    if let Some(head) = layout.find(at, "trylock_free_pages") {
        let frames = core.blocks(3, 0, &mut next, end);
        let mut from = head;
        for &frame in &frames {
            core.word(from, core.link(frame) as i64);
            from = core.link(frame);
        }
        core.word(from, 0);
        zone.trylock_free = Some(frames);
    }
    let pageset_at = per_cpu.reserve(shapes.pageset.bytes);
    let stat_at = per_cpu.reserve(shapes.stat.bytes);
    core.word(layout.of(at, "per_cpu_pageset"), pageset_at as i64);
    core.word(layout.of(at, "per_cpu_zonestats"), stat_at as i64);
    let mut events: Vec<i64> = shapes.events.iter().map(|_| core.some()).collect();
    for (index, value) in events.iter().enumerate() {
        core.word(layout.of(at, "vm_numa_event") + 8 * index as u64, *value);
    }
    for (cpu, chunk) in per_cpu.chunks.clone() {
        let own = chunk + (pageset_at - per_cpu.base);
        let stats = chunk + (stat_at - per_cpu.base);
        let mut pageset = PagesetState { cpu, ..PagesetState::default() };
        for index in 0..LISTS {
            let order = PagesetState::order_of_list(index as usize);
            let most = if order > 3 { 0 } else { 6 };
            let frames = core.blocks(most, order, &mut next, end);
            if let ([first, second, ..], None) = (&frames[..], &*list) {
                *list = Some((*first, *second));
            }
            core.list(shapes.pageset.of(own, "lists") + 16 * index, &frames);
            pageset.lists.push(frames);
        }
        pageset.count = pageset.pages() as i64;
        (pageset.high, pageset.batch) = (core.some(), core.some());
        for (name, value) in
            [("count", pageset.count), ("high", pageset.high), ("batch", pageset.batch)]
        {
            core.int(shapes.pageset.of(own, name), value);
        }
        let optional = |core: &mut Core<'_>, name: &str, most: u64| {
            let place = shapes.pageset.find(own, name)?;
            let value = core.rng.below(most) as i64;
            match most {
                100 => core.write(place, &[value as u8]),
                _ => core.int(place, value),
            }
            Some(value)
        };
        pageset.high_min = optional(core, "high_min", 5000);
        pageset.high_max = optional(core, "high_max", 5000);
        pageset.flags = optional(core, "flags", 100);
        pageset.alloc_factor = optional(core, "alloc_factor", 100);
        pageset.expire = optional(core, "expire", 100);
        pageset.free_count = optional(core, "free_count", 5000);
        for (index, name) in shapes.counters.iter().enumerate() {
            let value = core.rng.below(256) as i64 - 128;
            core.write(shapes.stat.of(stats, "vm_stat_diff") + index as u64, &[value as u8]);
            pageset.differences.push((name.clone(), value));
        }
        let threshold = core.rng.below(126) as i64;
        core.write(shapes.stat.of(stats, "stat_threshold"), &[threshold as u8]);
        pageset.stat_threshold = Some(threshold);
        for (index, sum) in events.iter_mut().enumerate() {
            let value = core.some();
            core.word(shapes.stat.of(stats, "vm_numa_event") + 8 * index as u64, value);
            *sum += value;
        }
        zone.pagesets.push(pageset);
    }
    zone.numa_events = shapes.events.iter().cloned().zip(events).collect();
    zone.pageblocks = blocks[(start / 512) as usize..(end / 512) as usize].to_vec();
    zone
}

/// The table of symbols, in one of the ways of kernels, and VMCOREINFO's own.
fn symbols(core: &mut Core<'_>) {
    let is_absolute = core.info.iter().any(|line| line == "ABSOLUTE=true");
    core.info.retain(|line| !line.starts_with("ABSOLUTE"));
    let uts = core.reserve(4096, 8);
    core.write(uts + 16 + 130, b"9.8.7-drawn\0");
    let stext = core.reserve(8, 8);
    for (name, at) in [("init_uts_ns", uts), ("_stext", stext), ("prb", stext + 4)] {
        core.symbols.insert(name, at);
    }
    for name in ["init_uts_ns", "_stext", "prb", "swapper_pg_dir"] {
        let at = core.symbols[name];
        core.info.push(format!("SYMBOL({name})={at:x}"));
    }
    core.info.push(format!(
        "OFFSET(uts_namespace.name)=16\nSYMBOL(vmemmap)={VMEMMAP:x}\nNUMBER(phys_base)=0"
    ));
    let symbols: Vec<(&str, u64)> = core.symbols.iter().map(|(name, at)| (*name, *at)).collect();
    // Tokens are characters, but for one.
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for token in 0..=255_u8 {
        index.extend_from_slice(&(table.len() as u16).to_le_bytes());
        match token {
            200 => table.extend_from_slice(b"node_"),
            _ => table.push(token),
        }
        table.push(0);
    }
    let mut names = Vec::new();
    for (name, _) in &symbols {
        let mut tokens = vec![b'D'];
        match name.strip_prefix("node_") {
            Some(rest) => {
                tokens.push(200);
                tokens.extend_from_slice(rest.as_bytes());
            }
            None => tokens.extend_from_slice(name.as_bytes()),
        }
        names.push(tokens.len() as u8);
        names.extend(tokens);
    }
    // A name of more than 127 tokens has two bytes for its length.
    names.extend([0x80 | (200 & 0x7f) as u8, (200_u32 >> 7) as u8]);
    names.extend([b'x'; 200]);
    let count = symbols.len() as u32 + 1;
    let base = IMAGE;
    let way = if is_absolute { 1 } else { [0, 2, 3][core.rng.below(3) as usize] };
    let offsets_at = core.reserve(4 * u64::from(count), 8);
    for (position, &(_, at)) in symbols.iter().enumerate() {
        let place = offsets_at + 4 * position as u64;
        let offset = match way {
            0 | 2 => at.wrapping_sub(base) as i64,
            1 if at < IMAGE => at as i64,
            1 => -1 - (at - base) as i64,
            _ => at.wrapping_sub(place) as i64,
        };
        core.int(place, offset);
    }
    let places = [
        ("kallsyms_num_syms", core.put(&count.to_le_bytes())),
        ("kallsyms_names", core.put(&names)),
        ("kallsyms_token_table", core.put(&table)),
        ("kallsyms_token_index", core.put(&index)),
        ("kallsyms_offsets", offsets_at),
    ];
    for (name, at) in places {
        core.info.push(format!("SYMBOL({name})={at:x}"));
    }
    if way < 2 {
        let at = core.put(&base.to_le_bytes());
        core.info.push(format!("SYMBOL(kallsyms_relative_base)={at:x}"));
    }
}

/// The core, with VMCOREINFO as a note of the file or in memory.
fn file(core: &mut Core<'_>) -> Vec<u8> {
    let text = format!("OSRELEASE=9.8.7-drawn\n{}\n", core.info.join("\n"));
    let mut note = Vec::new();
    for word in [11, text.len() as u32, 0] {
        note.extend_from_slice(&u32::to_le_bytes(word));
    }
    note.extend_from_slice(b"VMCOREINFO\0\0");
    note.extend_from_slice(text.as_bytes());
    note.resize(note.len().next_multiple_of(4), 0);
    if core.is_so() {
        // One of another kernel lies before it.
        let other = core.reserve(4096, 4096);
        let text = b"OSRELEASE=1.2.3\n";
        let mut stale = [11_u32, 16, 0].map(u32::to_le_bytes).concat();
        stale.extend_from_slice(b"VMCOREINFO\0\0");
        stale.extend_from_slice(text);
        core.write(other, &stale);
        let at = core.reserve(note.len() as u64, 4096);
        core.write(at, &note);
        note.clear();
    }
    let header = 64 + 3 * 56 + note.len();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [4_u16, 62] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 3, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    let image_at = header as u64;
    let segments = [
        (4_u32, 64 + 3 * 56, 0, note.len() as u64),
        (1, image_at, 0, IMAGE_BYTES as u64),
        (1, image_at + IMAGE_BYTES as u64, VMEMMAP_AT, core.vmemmap.len() as u64),
    ];
    for (kind, offset, address, bytes) in segments {
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&7_u32.to_le_bytes());
        for word in [offset, address, address, bytes, bytes, 0] {
            file.extend_from_slice(&word.to_le_bytes());
        }
    }
    file.extend(note);
    file.extend_from_slice(&core.image);
    file.extend_from_slice(&core.vmemmap);
    file
}
