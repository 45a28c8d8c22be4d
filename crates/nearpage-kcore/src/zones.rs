//! Nodes and zones, read by the kernel's own description of its types.

use std::cell::RefCell;

use rustix::time::{ClockId, clock_gettime};

use crate::error::KcoreError;
use crate::kernel::Kernel;
use crate::lists::{Descriptors, Frames, List, Walked};
use crate::pageblocks;
use crate::state::{FreeArea, Limits, NodeState, PagesetState, State, ZoneState};

/// Nodes and CPUs that a kernel may have, and kinds of zones.
const NODES_MAX: u64 = 1 << 14;
const CPUS_MAX: u64 = 1 << 16;
const ZONES_MAX: u64 = 16;
/// CPUs times nodes: each has a pageset for each zone of a node.
const PAGESETS_MAX: usize = 1 << 18;
/// How often a pageset that changes meanwhile is read.
const TRIES: u32 = 3;
/// Sentences in [`State::told`]; the last says that there are more.
const TOLD_MAX: usize = 100;

/// Settings: their names below `/proc/sys/vm`, the kernel's variables, and the bytes of a number.
const SETTINGS: [(&str, &str); 7] = [
    ("min_free_kbytes", "min_free_kbytes"),
    ("watermark_boost_factor", "watermark_boost_factor"),
    ("watermark_scale_factor", "watermark_scale_factor"),
    ("percpu_pagelist_high_fraction", "percpu_pagelist_high_fraction"),
    ("zone_reclaim_mode", "node_reclaim_mode"),
    ("defrag_mode", "defrag_mode"),
    ("user_min_free_kbytes", "user_min_free_kbytes"),
];

/// Members of a pageset that a kernel may lack.
type PagesetField = fn(&mut PagesetState) -> &mut Option<i64>;
const PAGESET_FIELDS: [(&str, PagesetField); 7] = [
    ("high_min", |of| &mut of.high_min),
    ("high_max", |of| &mut of.high_max),
    ("alloc_factor", |of| &mut of.alloc_factor),
    ("free_count", |of| &mut of.free_count),
    ("free_factor", |of| &mut of.free_factor),
    ("flags", |of| &mut of.flags),
    ("expire", |of| &mut of.expire),
];

impl Kernel {
    /// Reads its page allocator.
    ///
    /// What cannot be read of a zone (a hole of the image, a list that changes) is told in [`State::told`].
    ///
    /// # Errors
    ///
    /// The kernel's description of itself lacks what is needed, or its nodes cannot be read.
    pub fn state(&self) -> Result<State, KcoreError> {
        self.state_within(Limits::NONE)
    }

    /// As [`state`](Self::state), as far as the limits go: [`State::cut`] says if they ended it.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state).
    pub fn state_within(&self, limits: Limits) -> Result<State, KcoreError> {
        let reader = Reader::new(self, limits)?;
        let mut told = Told::default();
        let mut nodes = Vec::new();
        for &(id, at) in &reader.nodes {
            nodes.push(reader.node(id, at, &mut told)?);
        }
        let mut settings = Vec::new();
        for (name, variable) in SETTINGS {
            if let Some(value) = self.variable(variable, 4)? {
                settings.push((name.to_owned(), vec![i64::from(value as u32 as i32)]));
            }
        }
        let reserve = self.symbols.get("sysctl_lowmem_reserve_ratio");
        if let (Some(at), Some(zone)) = (reserve, nodes.iter().flat_map(|node| &node.zones).next())
        {
            let ratios = (0..zone.lowmem_reserve.len() as u64).map(|index| {
                self.memory.number("lowmem_reserve_ratio", at.wrapping_add(4 * index), 4)
            });
            let ratios: Result<Vec<u64>, _> = ratios.collect();
            let ratios = ratios?.into_iter().map(|ratio| i64::from(ratio as u32 as i32));
            settings.push(("lowmem_reserve_ratio".into(), ratios.collect()));
        }
        Ok(State {
            release: self.release().to_owned(),
            cpus: reader.cpus.iter().map(|cpu| cpu.id).collect(),
            nodes,
            migratetypes: pageblocks::names(&self.btf),
            settings,
            told: told.0,
            cut: reader.descriptors.ended(),
        })
    }

    /// Now, if this is the running kernel.
    fn now_ns(&self) -> Option<u64> {
        self.is_running.then(|| {
            let now = clock_gettime(ClockId::Monotonic);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        })
    }
}

#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn tell(&mut self, what: impl FnOnce() -> String) {
        match self.0.len() {
            TOLD_MAX.. => {}
            last if last == TOLD_MAX - 1 => self.0.push("more of this kind".into()),
            _ => self.0.push(what()),
        }
    }
}

/// A pageset whose lists were walked. Its memory is used again: what takes new memory changes lists of a running kernel.
#[derive(Default)]
struct Read {
    state: PagesetState,
    frames: Vec<u64>,
    /// Of each list, where its frames end, and why there may be more.
    ends: Vec<(usize, Option<String>)>,
}

impl Read {
    /// The frames of each list, and why there may be more.
    fn lists(&self) -> impl Iterator<Item = (&[u64], &Option<String>)> {
        let mut begin = 0;
        self.ends
            .iter()
            .map(move |(end, cut)| (&self.frames[std::mem::replace(&mut begin, *end)..*end], cut))
    }

    /// Whether it is of one moment: it has what it counts, and is now what it was.
    fn is_one(&self, now: PagesetState) -> bool {
        let pages = self.lists().enumerate().map(|(index, (frames, _))| {
            (frames.len() as u64) << PagesetState::order_of_list(index)
        });
        self.lists().all(|(_, cut)| cut.is_none())
            && pages.sum::<u64>() == now.count as u64
            && self.state == now
    }
}

struct Cpu {
    id: u32,
    /// What is added to the address of a per-CPU variable.
    offset: u64,
}

struct Reader<'k> {
    kernel: &'k Kernel,
    descriptors: Descriptors,
    cpus: Vec<Cpu>,
    /// Nodes that are online: their numbers and their `struct pglist_data`.
    nodes: Vec<(u32, u64)>,
    node: u32,
    zone: u32,
    pageset: u32,
    /// Counters of zones, events and bits of zones, in the order of their numbers.
    counters: Vec<String>,
    events: Vec<String>,
    flags: Vec<String>,
    read: RefCell<Read>,
}

impl<'k> Reader<'k> {
    fn new(kernel: &'k Kernel, limits: Limits) -> Result<Reader<'k>, KcoreError> {
        let btf = &kernel.btf;
        let mask_bytes = btf.structure("cpumask").and_then(|id| btf.size(id)).unwrap_or(8);
        let online = kernel.needed("__cpu_online_mask")?;
        let offsets = kernel.needed("__per_cpu_offset")?;
        let mut cpus = Vec::new();
        for id in kernel.bits("__cpu_online_mask", online, mask_bytes.min(CPUS_MAX / 8))? {
            let at = offsets.wrapping_add(8 * u64::from(id));
            cpus.push(Cpu { id, offset: kernel.memory.number("__per_cpu_offset", at, 8)? });
        }
        let nodes = kernel.online_nodes()?;
        if cpus.len() * nodes.len() > PAGESETS_MAX {
            let (cpus, nodes) = (cpus.len(), nodes.len());
            return Err(kernel.lacks(format!("{cpus} CPUs and {nodes} nodes are online")));
        }
        Ok(Reader {
            kernel,
            descriptors: Descriptors::of(kernel, limits)?,
            cpus,
            nodes,
            node: kernel.structure("pglist_data")?,
            zone: kernel.structure("zone")?,
            pageset: kernel.structure("per_cpu_pages")?,
            counters: names(kernel, "zone_stat_item", "NR_VM_ZONE_STAT_ITEMS"),
            events: names(kernel, "numa_stat_item", "NR_VM_NUMA_EVENT_ITEMS"),
            flags: flags(kernel),
            read: RefCell::default(),
        })
    }

    fn node(&self, id: u32, at: u64, told: &mut Told) -> Result<NodeState, KcoreError> {
        let kernel = self.kernel;
        let zones = kernel.btf.member(self.node, "node_zones");
        let zones =
            zones.ok_or_else(|| kernel.lacks("struct pglist_data has no node_zones".into()))?;
        let (_, count) = kernel.btf.array(zones.type_id).unwrap_or((0, 0));
        let size = kernel.btf.size(self.zone).unwrap_or(0);
        let mut read = Vec::new();
        for index in 0..count.min(ZONES_MAX) {
            let zone = at.wrapping_add(zones.offset + size * index);
            read.push(self.zone(id, zone, told)?);
        }
        let mut cpus = Vec::new();
        if let Some(variable) = kernel.symbols.get("numa_node") {
            for cpu in &self.cpus {
                let own =
                    kernel.memory.number("numa_node", variable.wrapping_add(cpu.offset), 4)?;
                cpus.extend((own == u64::from(id)).then_some(cpu.id));
            }
        } else {
            cpus.extend(self.cpus.iter().map(|cpu| cpu.id));
        }
        Ok(NodeState { id, cpus, distances: self.distances(id)?, zones: read })
    }

    fn distances(&self, from: u32) -> Result<Vec<u32>, KcoreError> {
        let kernel = self.kernel;
        let table = kernel.variable("numa_distance", 8)?.filter(|&table| table != 0);
        let count = kernel.variable("numa_distance_cnt", 4)?;
        let (Some(table), Some(count)) = (table, count) else { return Ok(Vec::new()) };
        let mut distances = Vec::new();
        for &(to, _) in &self.nodes {
            if u64::from(from.max(to)) >= count {
                return Ok(Vec::new());
            }
            let at = table.wrapping_add(u64::from(from) * count + u64::from(to));
            distances.push(kernel.memory.number("numa_distance", at, 1)? as u32);
        }
        Ok(distances)
    }

    fn zone(&self, node: u32, at: u64, told: &mut Told) -> Result<ZoneState, KcoreError> {
        let (kernel, zone) = (self.kernel, self.zone);
        let value = |name: &str| kernel.value(name, at, kernel.number(zone, name)?);
        let pages = |name: &str| value(name).map(|value| value as u64);
        let text = value("name")? as u64;
        let mut state = ZoneState {
            name: kernel.text("zone name", text)?,
            start_pfn: pages("zone_start_pfn")?,
            spanned_pages: pages("spanned_pages")?,
            present_pages: pages("present_pages")?,
            managed_pages: pages("managed_pages")?,
            watermark_boost: kernel.optional(zone, "watermark_boost", at)?.unwrap_or(0) as u64,
            reserved_highatomic: unsigned(kernel.optional(zone, "nr_reserved_highatomic", at)?),
            free_highatomic: unsigned(kernel.optional(zone, "nr_free_highatomic", at)?),
            ..ZoneState::default()
        };
        state.watermarks =
            self.row("_watermark", zone, at)?.iter().map(|&mark| mark as u64).collect();
        state.lowmem_reserve = self.row("lowmem_reserve", zone, at)?;
        state.counters = named(&self.counters, self.row("vm_stat", zone, at)?);
        let mut events = self.row("vm_numa_event", zone, at)?;
        if state.managed_pages == 0 {
            return Ok(state);
        }
        let name = format!("zone {} of node {node}", state.name);
        let end = state.start_pfn.saturating_add(state.spanned_pages);
        let frames = Frames { start: state.start_pfn, end };
        let mut cut = |what: &str, walked: Walked| {
            if let Some(why) = walked.cut {
                told.tell(|| format!("{name}: {what}: {why}"));
            }
            walked.frames
        };
        let bits = kernel.optional(zone, "flags", at)?.unwrap_or(0);
        let is_set = |(bit, _): &(usize, &String)| bits >> bit & 1 != 0;
        let set = self.flags.iter().enumerate().filter(is_set);
        state.flags = set.map(|(_, name)| name.clone()).collect();
        let begun_ns = kernel.now_ns();
        state.free = self.free(at, frames, &mut cut)?;
        state.free_read_ns = begun_ns.zip(kernel.now_ns()).map(<[u64; 2]>::from);
        if let Some(member) = kernel.btf.member(zone, "trylock_free_pages") {
            let (head, most) = (at.wrapping_add(member.offset), state.managed_pages);
            let list = List { what: "trylock_free_pages", head, frames, most };
            let walked = self.descriptors.walk_single(kernel, list);
            state.trylock_free = Some(cut("blocks freed by try-lock", walked));
        }
        let pagesets = value("per_cpu_pageset")? as u64;
        let stats = value("per_cpu_zonestats")? as u64;
        for cpu in &self.cpus {
            let place = pagesets.wrapping_add(cpu.offset);
            let mut pageset = self.pageset(cpu.id, place, frames, &mut cut)?;
            let place = stats.wrapping_add(cpu.offset);
            if let Some(id) = kernel.btf.structure("per_cpu_zonestat") {
                pageset.differences = named(&self.counters, self.row("vm_stat_diff", id, place)?);
                pageset.stat_threshold = kernel.optional(id, "stat_threshold", place)?;
                for (sum, own) in events.iter_mut().zip(self.row("vm_numa_event", id, place)?) {
                    *sum = sum.wrapping_add(own);
                }
            }
            state.pagesets.push(pageset);
        }
        state.numa_events = named(&self.events, events);
        match pageblocks::types(kernel, frames) {
            Ok(types) => state.pageblocks = types,
            Err(error) => told.tell(|| format!("{name}: types of pageblocks: {error}")),
        }
        self.check(&name, &state, told);
        Ok(state)
    }

    /// What does not fit together.
    fn check(&self, name: &str, state: &ZoneState, told: &mut Told) {
        for pageset in &state.pagesets {
            let pages = pageset.pages();
            if pages != pageset.count as u64 {
                let PagesetState { cpu, count, .. } = pageset;
                told.tell(|| {
                    format!("{name}: CPU {cpu} counts {count} pages, and its lists have {pages}")
                });
            }
        }
        for (order, area) in state.free.iter().enumerate() {
            let blocks = area.lists.iter().map(Vec::len).sum::<usize>() as u64;
            if blocks != area.free_blocks {
                let counted = area.free_blocks;
                told.tell(|| {
                    format!(
                        "{name}: {counted} free blocks of order {order}, and {blocks} in the lists"
                    )
                });
            }
        }
    }

    fn free(
        &self,
        zone: u64,
        frames: Frames,
        cut: &mut impl FnMut(&str, Walked) -> Vec<u64>,
    ) -> Result<Vec<FreeArea>, KcoreError> {
        let (kernel, btf) = (self.kernel, &self.kernel.btf);
        let lacks = || kernel.lacks("its BTF has no free_area with lists".into());
        let areas = btf.member(self.zone, "free_area").ok_or_else(lacks)?;
        let (area, orders) = btf.array(areas.type_id).ok_or_else(lacks)?;
        let lists = btf.member(area, "free_list").ok_or_else(lacks)?;
        let (head, types) = btf.array(lists.type_id).ok_or_else(lacks)?;
        let (area_bytes, head_bytes) = btf.size(area).zip(btf.size(head)).ok_or_else(lacks)?;
        let counted = kernel.number(area, "nr_free")?;
        let mut read = Vec::new();
        for order in 0..orders.min(32) {
            let at = zone.wrapping_add(areas.offset + area_bytes * order);
            let free_blocks = kernel.value("nr_free", at, counted)? as u64;
            let most = (frames.end - frames.start) >> order;
            let walk = |of: u64| {
                let head = at.wrapping_add(lists.offset + head_bytes * of);
                let list = List { what: "a free list", head, frames, most };
                let walked = self.descriptors.walk(kernel, list);
                cut(&format!("free list of order {order}, type {of}"), walked)
            };
            let lists = (0..types.min(32)).map(walk).collect();
            read.push(FreeArea { free_blocks, lists });
        }
        Ok(read)
    }

    /// A pageset; one that changes meanwhile is read anew.
    fn pageset(
        &self,
        cpu: u32,
        at: u64,
        frames: Frames,
        cut: &mut impl FnMut(&str, Walked) -> Vec<u64>,
    ) -> Result<PagesetState, KcoreError> {
        let mut read = self.read.borrow_mut();
        for _ in 0..TRIES {
            let begun_ns = self.kernel.now_ns();
            self.read_pageset(cpu, at, frames, &mut read)?;
            let ended_ns = self.kernel.now_ns();
            let is_one = !self.kernel.is_running || read.is_one(self.fields(cpu, at)?);
            read.state.read_ns = begun_ns.zip(ended_ns).map(<[u64; 2]>::from);
            if is_one {
                break;
            }
        }
        let lists = read.lists().enumerate().map(|(index, (frames, why))| {
            let walked = Walked { frames: frames.to_vec(), cut: why.clone() };
            cut(&format!("list {index} of CPU {cpu}"), walked)
        });
        Ok(PagesetState { lists: lists.collect(), ..read.state.clone() })
    }

    /// A pageset without its lists.
    fn fields(&self, cpu: u32, at: u64) -> Result<PagesetState, KcoreError> {
        let kernel = self.kernel;
        let value = |name: &str| kernel.value(name, at, kernel.number(self.pageset, name)?);
        let mut state = PagesetState {
            cpu,
            count: value("count")?,
            high: value("high")?,
            batch: value("batch")?,
            ..PagesetState::default()
        };
        for (name, field) in PAGESET_FIELDS {
            *field(&mut state) = kernel.optional(self.pageset, name, at)?;
        }
        Ok(state)
    }

    fn read_pageset(
        &self,
        cpu: u32,
        at: u64,
        frames: Frames,
        read: &mut Read,
    ) -> Result<(), KcoreError> {
        let (kernel, btf) = (self.kernel, &self.kernel.btf);
        read.frames.clear();
        read.ends.clear();
        read.state = self.fields(cpu, at)?;
        let lists = btf.member(self.pageset, "lists");
        let array = lists.and_then(|lists| btf.array(lists.type_id));
        let (Some(lists), Some((head, count))) = (lists, array) else {
            return Err(kernel.lacks("its BTF has no per_cpu_pages with lists".into()));
        };
        let head_bytes = btf.size(head).unwrap_or(16);
        for index in 0..count.min(64) {
            let head = at.wrapping_add(lists.offset + head_bytes * index);
            let most = frames.end - frames.start;
            let list = List { what: "a list of a pageset", head, frames, most };
            let cut = self.descriptors.walk_into(kernel, list, &mut read.frames);
            read.ends.push((read.frames.len(), cut));
        }
        Ok(())
    }

    /// An array of numbers; empty if the structure has none of that name.
    fn row(&self, name: &str, structure: u32, at: u64) -> Result<Vec<i64>, KcoreError> {
        let btf = &self.kernel.btf;
        let Some(member) = btf.member(structure, name) else { return Ok(Vec::new()) };
        let Some((element, count)) = btf.array(member.type_id) else { return Ok(Vec::new()) };
        let number = btf.number_of(element, 8).zip(btf.size(element));
        let Some((number, bytes)) = number else { return Ok(Vec::new()) };
        let value = |index: u64| {
            self.kernel.value(name, at.wrapping_add(member.offset + bytes * index), number)
        };
        (0..count.min(256)).map(value).collect()
    }
}

fn unsigned(value: Option<i64>) -> Option<u64> {
    value.map(|value| value as u64)
}

/// The names of an enumeration's values from 0 on, of those with the same value the last that is one thing.
fn names(kernel: &Kernel, enumeration: &str, end: &str) -> Vec<String> {
    let count = kernel.btf.value(enumeration, end).unwrap_or(0).min(256);
    let name = |wanted: u64| {
        let own = kernel.btf.values(enumeration).filter(|(_, value)| *value == wanted);
        own.last().map(|(name, _)| name.to_owned()).unwrap_or_default()
    };
    (0..count).map(name).collect()
}

/// The names of a zone's bits.
fn flags(kernel: &Kernel) -> Vec<String> {
    let mut names = vec![String::new(); 64];
    for (name, bit) in kernel.btf.values("zone_flags") {
        if let Some(slot) = names.get_mut(bit as usize) {
            name.clone_into(slot);
        }
    }
    names
}

fn named(names: &[String], values: Vec<i64>) -> Vec<(String, i64)> {
    names.iter().cloned().zip(values).collect()
}

impl Kernel {
    /// Nodes that are online, with their structures.
    fn online_nodes(&self) -> Result<Vec<(u32, u64)>, KcoreError> {
        let table = self.info.symbol("node_data").ok_or_else(|| {
            self.lacks(
                "VMCOREINFO has no SYMBOL(node_data): the kernel is built without NUMA".into(),
            )
        })?;
        let count = self.info.length("node_data").unwrap_or(1).min(NODES_MAX);
        let mask_bytes = self.info.size("nodemask_t").unwrap_or(8);
        let states = self.needed("node_states")?;
        let online = self.btf.value("node_states", "N_ONLINE").unwrap_or(1);
        let mask = states.wrapping_add(online.wrapping_mul(mask_bytes));
        let mut nodes = Vec::new();
        for id in self.bits("node_states", mask, mask_bytes.min(NODES_MAX / 8))? {
            if u64::from(id) < count {
                nodes.push((
                    id,
                    self.memory.number("node_data", table.wrapping_add(8 * u64::from(id)), 8)?,
                ));
            }
        }
        Ok(nodes)
    }

    /// The positions of the bits that are set.
    fn bits(&self, what: &str, at: u64, bytes: u64) -> Result<Vec<u32>, KcoreError> {
        let mut mask = vec![0; bytes as usize];
        self.memory.read(what, at, &mut mask)?;
        let is_set = |bit: &u32| mask[(bit / 8) as usize] >> (bit % 8) & 1 != 0;
        Ok((0..8 * bytes as u32).filter(is_set).collect())
    }

    /// A text with a zero behind it.
    fn text(&self, what: &str, at: u64) -> Result<String, KcoreError> {
        const BYTES_MAX: u64 = 64;
        let mut text = Vec::new();
        for index in 0..BYTES_MAX {
            match self.memory.number(what, at.wrapping_add(index), 1)? as u8 {
                0 => break,
                byte => text.push(byte),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
