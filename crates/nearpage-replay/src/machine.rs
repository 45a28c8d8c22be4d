//! The core in a start state.

use nearpage::alloc::{BuildError, Config, PageAllocator, metadata_size};
use nearpage::buddy::{BlockRequest, Fragmentation, Placement};
use nearpage::frame::{FrameState, Migratetype};
use nearpage::pcp::pageset::Pageset;
use nearpage::pcp::{LISTS, list_index, list_order};
use nearpage::platform::Platform;
use nearpage::topology::{Node, NodeBuf, Topology};
use nearpage::units::{CpuId, MAX_ORDER, ORDERS, Order, PAGEBLOCK_ORDER, Pfn};
use nearpage::zone::Zone;

use crate::error::ReplayError;
use crate::layout::{Block, Layout, lay_out};
use crate::platform::ReplayPlatform;
use crate::start::{Start, StartPageset};

/// The core of a replay.
pub type Core<'m> = PageAllocator<'m, ReplayPlatform>;
/// A zone of it.
pub type CoreZone<'m> = Zone<'m, ReplayPlatform>;

/// A pageset of it.
pub type CorePageset<'m> = Pageset<'m, ReplayPlatform>;

/// Memory for some cores of one machine.
pub struct Memory<'s> {
    start: &'s Start,
    nodes: Vec<Node<'s>>,
    metadata: Vec<Vec<Vec<u8>>>,
}

impl<'s> Memory<'s> {
    /// Memory for `cores` cores.
    ///
    /// # Errors
    ///
    /// The core cannot be made for such a machine.
    pub fn new(input: &str, start: &'s Start, cores: usize) -> Result<Memory<'s>, ReplayError> {
        let nodes: Vec<Node<'s>> = start.topology.nodes.iter().map(borrow).collect();
        let mut metadata = Vec::new();
        {
            let topology = topology(input, start, &nodes)?;
            for _ in 0..cores {
                let size = |node| metadata_size::<ReplayPlatform>(&topology, node);
                let buffer = |node| {
                    let bytes = size(node).map_err(|error| build_error(input, error))?;
                    zeroes(input, bytes)
                };
                metadata.push(topology.indexes().map(buffer).collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(Memory { start, nodes, metadata })
    }

    /// The cores, in the start state, and what is held of their memory.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn cores<'m>(&'m mut self, input: &str) -> Result<Vec<(Core<'m>, Held)>, ReplayError>
    where
        's: 'm,
    {
        let Memory { start, nodes, metadata } = self;
        let topology = topology(input, start, nodes)?;
        let config = Config {
            model: start.model,
            page_shift: start.page_shift,
            settings: Config::default().settings,
        };
        let mut cores = Vec::new();
        for buffers in metadata {
            let mut buffers: Vec<&'m mut [u8]> =
                buffers.iter_mut().map(Vec::as_mut_slice).collect();
            let take =
                |node: nearpage::units::NodeIndex, _| std::mem::take(&mut buffers[node.0 as usize]);
            let core = PageAllocator::new(ReplayPlatform::default(), topology, config, take);
            let core = core.map_err(|error| build_error(input, error))?;
            for range in start.topology.nodes.iter().flat_map(|node| &node.memory) {
                core.online(*range).expect("memory of the topology, offline until now");
            }
            let held = arrange(&core, start);
            cores.push((core, held));
        }
        Ok(cores)
    }
}

/// Zeroes for metadata; sizes that cannot be had are an error of the recording.
fn zeroes(input: &str, bytes: usize) -> Result<Vec<u8>, ReplayError> {
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(bytes).is_err() {
        return Err(ReplayError::Incomplete {
            input: input.into(),
            what: format!("a node of its machine needs {} MiB of metadata", bytes >> 20),
            expected: "a machine whose metadata fit into the memory of this one",
        });
    }
    drop(probe);
    Ok(vec![0; bytes])
}

fn build_error(input: &str, source: BuildError) -> ReplayError {
    ReplayError::Build { input: input.into(), source }
}

fn borrow(node: &NodeBuf) -> Node<'_> {
    let NodeBuf { id, memory, cpus, movable_from } = node;
    Node { id: *id, memory, cpus, movable_from: *movable_from }
}

fn topology<'a>(
    input: &str,
    start: &'a Start,
    nodes: &'a [Node<'a>],
) -> Result<Topology<'a>, ReplayError> {
    let topology = Topology::new(nodes, &start.topology.distances, start.topology.address_map);
    topology.map_err(|source| ReplayError::Topology { input: input.into(), source })
}

/// Brings a core whose memory is all free into the start state, with empty pagesets.
fn arrange(core: &Core<'_>, start: &Start) -> Held {
    let mut held = Held::default();
    for (index, recorded) in start.zones.iter().enumerate() {
        let zone = core.zones()[index];
        if recorded.is_all_free {
            held.zones.push(HeldZone::default());
        } else {
            let ranges: Vec<_> = core.topology().ranges(zone.node(), zone.kind()).collect();
            take_all(zone);
            let layout = lay_out(&ranges, &recorded.free, &recorded.pageblocks);
            held.zones.push(put(zone, layout));
        }
        zone.set_marks(recorded.marks, recorded.reserve, start.boost_factor);
        for pageset in &recorded.pagesets {
            set_sizes(core, zone, pageset, start);
        }
    }
    held
}

fn take_all(zone: &CoreZone<'_>) {
    let mut guard = zone.lock();
    for order in (0..=MAX_ORDER.0).rev().map(Order) {
        let (migratetype, fragmentation) = (Migratetype::Movable, Fragmentation::Allowed);
        let request = BlockRequest { order, migratetype, fragmentation };
        while guard.buddy().alloc(*zone.frames(), request).is_some() {}
    }
}

/// Makes blocks free and others held, in a zone of which nothing is free.
fn put(zone: &CoreZone<'_>, layout: Layout) -> HeldZone {
    let frames = *zone.frames();
    let Layout { free, held, left_out } = layout;
    for block in free.iter().chain(&held) {
        let first = frames.number(Pfn(block.start));
        for at in (0..block.order.pages().0 as u32).step_by(1 << PAGEBLOCK_ORDER.0) {
            frames.set_pageblock(first + at, block.migratetype);
        }
    }
    let mut guard = zone.lock();
    for block in &free {
        let number = frames.number(Pfn(block.start));
        guard.buddy().free(frames, number, block.order, Placement::Tail);
    }
    drop(guard);
    let mut pool = HeldZone { left_out, ..HeldZone::default() };
    for Block { start, order, migratetype } in held {
        let number = frames.number(Pfn(start));
        frames.frame(number).set_word(frames.allocated(order, migratetype));
        pool.blocks[migratetype.index()][order.0 as usize].push(number);
    }
    pool
}

fn set_sizes(core: &Core<'_>, zone: &CoreZone<'_>, recorded: &StartPageset, start: &Start) {
    let Some(pageset) = pageset(core, zone, recorded.cpu) else { return };
    let rules = &core.model().pcp;
    let mut tuning = pageset.tuning();
    let sizes = recorded.sizes;
    tuning.resize(rules, sizes.high_min, sizes.high_max, sizes.batch);
    if rules.tunes_high {
        tuning.high = recorded.high;
    }
    if let Some((_, slice)) = start.cache_slices.iter().find(|(cpu, _)| *cpu == recorded.cpu) {
        tuning.set_cache_slice(rules, *slice);
    }
    pageset.set_settings(tuning);
}

/// A CPU's pageset for a zone.
pub fn pageset<'m>(
    core: &Core<'m>,
    zone: &CoreZone<'_>,
    cpu: CpuId,
) -> Option<&'m CorePageset<'m>> {
    core.pagesets(cpu)?.get(zone.index().0 as usize)
}

/// Puts pages into a pageset: so many of each list.
pub fn fill_pageset(
    core: &Core<'_>,
    held: &mut Held,
    zone: usize,
    cpu: CpuId,
    pages: &[u64; LISTS],
) {
    let core_zone = core.zones()[zone];
    let Some(pageset) = pageset(core, core_zone, cpu) else { return };
    let storage = core.platform().storage();
    let Some(on) = pageset.enter(storage) else { return };
    let frames = pageset.frames();
    for (index, &pages) in pages.iter().enumerate() {
        let order = list_order(index);
        for _ in 0..pages >> order.0 {
            let taken = held.zones[zone].take(core_zone, order, type_of_list(index));
            let Some(number) = taken else { break };
            frames.frame(number).set_word(frames.cached(order));
            pageset.append_run(storage, &on, index, number, 1);
        }
    }
}

fn type_of_list(index: usize) -> Migratetype {
    let serves = |of: &Migratetype| list_index(list_order(index), *of) == Some(index);
    Migratetype::ALL.into_iter().find(serves).unwrap_or(Migratetype::Movable)
}

/// What is not free, by zone: blocks that were allocated before the window.
#[derive(Debug, Default)]
pub struct Held {
    /// By the position of the zone.
    pub zones: Vec<HeldZone>,
}

/// What is not free of a zone, by type and order.
#[derive(Debug, Default)]
pub struct HeldZone {
    blocks: [[Vec<u32>; ORDERS]; Migratetype::COUNT],
    /// Free pages of the recording for which there was no place.
    pub left_out: u64,
}

impl HeldZone {
    /// Takes a held block out, as one that is allocated: of a pageblock of that type if there is any.
    pub fn take(
        &mut self,
        zone: &CoreZone<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<u32> {
        let others = Migratetype::ALL.into_iter().filter(|&of| of != migratetype);
        for of in std::iter::once(migratetype).chain(others) {
            if let Some(number) = self.take_of(zone, order, of) {
                return Some(number);
            }
        }
        None
    }

    fn take_of(
        &mut self,
        zone: &CoreZone<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<u32> {
        let frames = zone.frames();
        let lists = &mut self.blocks[migratetype.index()];
        let from = (order.0 as usize..ORDERS).find(|&order| !lists[order].is_empty())?;
        let number = lists[from].pop()?;
        for half in (order.0 as usize..from).rev() {
            let upper = number + (1 << half);
            frames.frame(upper).set_word(frames.allocated(Order(half as u8), migratetype));
            lists[half].push(upper);
        }
        let frame = frames.frame(number);
        debug_assert!(frame.word().state() == FrameState::Allocated);
        frame.set_word(frames.allocated(order, migratetype));
        Some(number)
    }
}
