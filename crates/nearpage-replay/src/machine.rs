//! The core in a start state.

use std::collections::HashMap;

use nearpage::internals::Insertion;
use nearpage::rules::pagesets::{LISTS, list_index, list_order};
use nearpage::stats::{Pageset, Zone};
use nearpage::{
    BuildError, Config, CpuId, Marks, Migratetype, Node, NodeBuf, Order, PageAllocator, PageCount,
    Pfn, Topology, metadata_size,
};

use crate::drawn::Draw;
use crate::error::ReplayError;
use crate::kernel_state::{KernelState, KernelZone};
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
        let nodes: Vec<Node<'s>> = start.topology.nodes.iter().map(NodeBuf::as_node).collect();
        let mut metadata = Vec::new();
        {
            let topology = topology(input, start, &nodes)?;
            let config = config(start);
            for _ in 0..cores {
                let size = |node| metadata_size::<ReplayPlatform>(&topology, &config, node);
                let buffer = |node| {
                    let bytes = size(node).map_err(|error| build_error(input, error))?;
                    zeroes(input, bytes)
                };
                metadata.push(topology.indexes().map(buffer).collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(Memory { start, nodes, metadata })
    }

    /// The cores, in the start state, and what is held of their memory. The places of free blocks are drawn for those for
    /// which there is a draw.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn cores<'m>(
        &'m mut self,
        input: &str,
        draws: &[Option<Draw>],
    ) -> Result<Vec<(Core<'m>, Held)>, ReplayError>
    where
        's: 'm,
    {
        let Memory { start, nodes, metadata } = self;
        let topology = topology(input, start, nodes)?;
        let config = config(start);
        let mut cores = Vec::new();
        let draws = draws.iter().copied().chain(std::iter::repeat(None));
        for (buffers, draw) in metadata.iter_mut().zip(draws) {
            let mut buffers: Vec<&'m mut [u8]> =
                buffers.iter_mut().map(Vec::as_mut_slice).collect();
            let take = |node: nearpage::NodeIndex, _| std::mem::take(&mut buffers[node.0 as usize]);
            let core = PageAllocator::new(ReplayPlatform::default(), topology, config, take);
            let core = core.map_err(|error| build_error(input, error))?;
            for range in start.topology.nodes.iter().flat_map(|node| &node.memory) {
                core.online(*range).expect("memory of the topology, offline until now");
            }
            let held = arrange(&core, start, draw);
            cores.push((core, held));
        }
        Ok(cores)
    }
}

fn config(start: &Start) -> Config {
    Config::new().with_model(start.model).with_page_shift(start.page_shift)
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

fn topology<'a>(
    input: &str,
    start: &'a Start,
    nodes: &'a [Node<'a>],
) -> Result<Topology<'a>, ReplayError> {
    let topology = Topology::new(nodes, &start.topology.distances, start.topology.address_map);
    topology.map_err(|source| ReplayError::Topology { input: input.into(), source })
}

/// Brings a core whose memory is all free into the start state, with empty pagesets.
fn arrange(core: &Core<'_>, start: &Start, draw: Option<Draw>) -> Held {
    let mut held = Held::default();
    for (index, recorded) in start.zones.iter().enumerate() {
        let zone = core.zones()[index];
        let known = start.state.as_ref().map(|state| (&state.zones[index], &**state));
        if let Some((of, state)) = known {
            let taken = take_all(core, zone);
            let mut pool = put(core, zone, taken, known_layout(index, of, state));
            pool.index();
            held.zones.push(pool);
            core.set_reclaim_active(zone.index(), of.is_reclaimed);
        } else if recorded.is_all_free {
            held.zones.push(HeldZone { is_all_free: true, ..HeldZone::default() });
        } else {
            let ranges: Vec<_> = core.topology().ranges_in(zone.node(), zone.span()).collect();
            let taken = take_all(core, zone);
            let layout = lay_out(&ranges, &recorded.free, &recorded.pageblocks, draw);
            held.zones.push(put(core, zone, taken, layout));
        }
        let drawn = draw.map_or(0, |draw| draw.lead(index, recorded.untold_most()) as i64);
        let lead = known.map_or(drawn, |(of, _)| of.lead);
        let marks = lowered(recorded.marks, lead);
        core.set_marks(zone.index(), marks, recorded.reserve, start.boost_factor);
        for pageset in &recorded.pagesets {
            set_sizes(core, zone, pageset, start);
        }
    }
    held
}

/// Where the free blocks of a zone lie, as the kernel's state tells; all other memory is held, in blocks as large as can be.
fn known_layout(index: usize, zone: &KernelZone, state: &KernelState) -> Layout {
    let mut layout = Layout::default();
    for order in (0..=Order::MAX.0).map(Order) {
        for migratetype in Migratetype::ALL {
            let blocks = state.free(index, migratetype, order).into_iter();
            // One within a pageblock is of the pageblock's type: kernels before 6.10 have others in their lists, too.
            let of = |start| match order < Order::PAGEBLOCK {
                true => zone.type_of(start),
                false => migratetype,
            };
            layout.free.extend(blocks.map(|start| Block { start, order, migratetype: of(start) }));
        }
    }
    let mut free: Vec<(u64, u64)> = layout
        .free
        .iter()
        .map(|block| (block.start, block.start + block.order.pages().0))
        .collect();
    free.sort_unstable();
    let mut free = free.into_iter().peekable();
    for range in &zone.memory {
        let mut at = range.start.0;
        while at < range.end.0 {
            while free.next_if(|(_, end)| *end <= at).is_some() {}
            let (next, behind) = match free.peek() {
                Some(&(start, end)) if start < range.end.0 => (start, end),
                _ => (range.end.0, range.end.0),
            };
            while at < next {
                let aligned = at.trailing_zeros().min(u32::from(Order::MAX.0));
                let order = Order(aligned.min((next - at).ilog2()) as u8);
                layout.held.push(Block { start: at, order, migratetype: zone.type_of(at) });
                at += order.pages().0;
            }
            at = at.max(behind);
        }
    }
    layout
}

/// Puts the blocks into a pageset that the kernel's state has there, and sets its tuning. Gives the pages of each list.
pub fn fill_known(
    core: &Core<'_>,
    held: &mut Held,
    index: usize,
    cpu: CpuId,
    state: &KernelState,
) -> [u64; LISTS] {
    let zone = core.zones()[index];
    let known = state.zones[index].pageset(cpu);
    let (Some(known), Some(pageset)) = (known, pageset(core, zone, cpu)) else { return [0; LISTS] };
    let mut pages = [0; LISTS];
    for (list, pages) in pages.iter_mut().enumerate() {
        let order = list_order(list);
        for pfn in state.cached(index, cpu, list).into_iter().map(Pfn) {
            let Some(block) = held.zones[index].take_at(core, pfn, order) else { continue };
            let cached = core.cache_block(cpu, block, order, type_of_list(list));
            *pages += u64::from(cached.expect("a held block is allocated")) << order.0;
        }
    }
    let mut tuning = pageset.tuning();
    let fields = &known.fields;
    let small = |value: Option<i64>| u8::try_from(value.unwrap_or(0)).unwrap_or(0);
    if core.model().pcp.tunes_high {
        tuning.alloc_factor = small(fields.alloc_factor);
        tuning.free_count = PageCount(fields.free_count.unwrap_or(0).max(0) as u64);
    }
    tuning.free_factor = small(fields.free_factor);
    tuning.prev_free_high = fields.flags.unwrap_or(0) & PREVIOUS_FREE_WAS_HIGH != 0;
    tuning.expire = small(fields.expire);
    core.set_tuning(cpu, zone.index(), tuning);
    pages
}

/// A bit of a pageset's flags: the last free was of order 1 to 3. `include/linux/mmzone.h: PCPF_PREV_FREE_HIGH_ORDER`, 6.12.
const PREVIOUS_FREE_WAS_HIGH: i64 = 1;

/// Watermarks for a counter that is `lead` pages ahead of the free lists.
fn lowered(marks: Marks, lead: i64) -> Marks {
    let mark = |mark: PageCount| PageCount(mark.0.saturating_add_signed(-lead));
    let Marks { min, low, high, promo } = marks;
    Marks { min: mark(min), low: mark(low), high: mark(high), promo: mark(promo) }
}

/// Blocks that were taken from a zone, by their first frames.
type Taken = HashMap<Pfn, Order>;

fn take_all(core: &Core<'_>, zone: &CoreZone<'_>) -> Taken {
    let mut taken = Taken::new();
    for order in (0..=Order::MAX.0).rev().map(Order) {
        while let Some(pfn) = core.take_from_zone(zone.index(), order, Migratetype::Movable) {
            taken.insert(pfn, order);
        }
    }
    taken
}

/// Makes blocks free and others held, in a zone of which nothing is free: all of it was `taken`.
fn put(core: &Core<'_>, zone: &CoreZone<'_>, mut taken: Taken, layout: Layout) -> HeldZone {
    let Layout { free, held, left_out } = layout;
    for block in free.iter().chain(&held) {
        for at in (0..block.order.pages().0).step_by(1 << Order::PAGEBLOCK.0) {
            let pfn = Pfn(block.start + at);
            if zone.pageblock_type(pfn) != block.migratetype {
                core.retype_pageblock(zone.index(), pfn, block.migratetype);
            }
        }
        cut_out(core, &mut taken, Pfn(block.start), block.order);
    }
    for block in &free {
        let freed = core.return_to_zone(Pfn(block.start), block.order, Insertion::Tail);
        freed.expect("the block was cut out of what was taken");
    }
    let mut pool = HeldZone { left_out, ..HeldZone::default() };
    for Block { start, order, migratetype } in held {
        let retyped = core.retype_block(Pfn(start), order, migratetype);
        retyped.expect("the block was cut out of what was taken");
        pool.blocks[migratetype.index()][order.0 as usize].push(Pfn(start));
    }
    pool
}

/// Splits the block that was taken and has this one in it, so that this one is a block of its own.
fn cut_out(core: &Core<'_>, taken: &mut Taken, pfn: Pfn, order: Order) {
    let head_of = |order: Order| Pfn(pfn.0 - pfn.0 % order.pages().0);
    let mut orders = (order.0..=Order::MAX.0).map(Order);
    let from = orders.find(|&order| taken.get(&head_of(order)) == Some(&order));
    let from = from.expect("all of the zone was taken");
    taken.remove(&head_of(from));
    for half in (order.0..from.0).rev().map(Order) {
        let whole = head_of(Order(half.0 + 1));
        let split = core.split_block(whole, Order(half.0 + 1), half);
        split.expect("a block that was taken");
        let own = head_of(half);
        let other = if own == whole { whole + half.pages() } else { whole };
        taken.insert(other, half);
    }
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
    core.set_tuning(recorded.cpu, zone.index(), tuning);
}

/// Says how often the refills of a CPU's pageset have doubled.
pub fn set_doubled(core: &Core<'_>, zone: usize, cpu: CpuId, times: u8) {
    let zone = core.zones()[zone];
    let Some(pageset) = pageset(core, zone, cpu) else { return };
    let mut tuning = pageset.tuning();
    if core.model().pcp.tunes_high {
        tuning.alloc_factor = times;
        core.set_tuning(cpu, zone.index(), tuning);
    }
}

/// Says after how many turns of the once-a-second work a CPU's pageset gives back a batch, if it is for another node's zone.
pub fn set_expire(core: &Core<'_>, zone: usize, cpu: CpuId, turns: u8) {
    let zone = core.zones()[zone];
    let Some(pageset) = pageset(core, zone, cpu) else { return };
    if core.topology().node_of_cpu(cpu) == Some(zone.node()) {
        return;
    }
    let mut tuning = pageset.tuning();
    tuning.expire = turns;
    core.set_tuning(cpu, zone.index(), tuning);
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
    if core.pagesets(cpu).is_none() {
        return;
    }
    for (index, &pages) in pages.iter().enumerate() {
        let order = list_order(index);
        add_cold(core, held, zone, cpu, index, pages >> order.0);
    }
}

/// Puts so many blocks under those of a list of a pageset. Returns how many there were.
pub fn add_cold(
    core: &Core<'_>,
    held: &mut Held,
    zone: usize,
    cpu: CpuId,
    list: usize,
    blocks: u64,
) -> u64 {
    let (order, migratetype) = (list_order(list), type_of_list(list));
    for done in 0..blocks {
        let Some(pfn) = held.zones[zone].take(core, order, migratetype) else { return done };
        let cached = core.cache_block(cpu, pfn, order, migratetype);
        cached.expect("a held block is allocated");
    }
    blocks
}

/// Takes up to so many blocks from under those of a list of a pageset. Returns how many there were.
pub fn take_cold(
    core: &Core<'_>,
    held: &mut Held,
    zone: usize,
    cpu: CpuId,
    list: usize,
    blocks: u64,
) -> u64 {
    let core_zone = core.zones()[zone];
    for done in 0..blocks {
        let Some(pfn) = core.uncache_block(cpu, core_zone.index(), list) else { return done };
        held.zones[zone].put(pfn, list_order(list), core_zone.pageblock_type(pfn));
    }
    blocks
}

/// The type of the blocks of a list, movable for those that keep several.
pub fn type_of_list(index: usize) -> Migratetype {
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
    blocks: [[Vec<Pfn>; Order::COUNT]; Migratetype::COUNT],
    /// By first frame the order and type of each, if blocks are taken by their frames; what else is in `blocks` counts no more.
    places: Option<HashMap<Pfn, (Order, Migratetype)>>,
    /// Free pages of the recording for which there was no place.
    pub left_out: u64,
    /// Whether nothing is known of the start, and all of it was free.
    pub is_all_free: bool,
}

impl HeldZone {
    /// Takes a held block out, as one that is allocated: of a pageblock of that type if there is any.
    pub fn take(&mut self, core: &Core<'_>, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        let others = Migratetype::ALL.into_iter().filter(|&of| of != migratetype);
        for of in std::iter::once(migratetype).chain(others) {
            if let Some(pfn) = self.take_of(core, order, of) {
                return Some(pfn);
            }
        }
        None
    }

    /// Takes back a block that is allocated, of a pageblock of that type.
    pub fn put(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype) {
        self.blocks[migratetype.index()][order.0 as usize].push(pfn);
        if let Some(places) = &mut self.places {
            places.insert(pfn, (order, migratetype));
        }
    }

    /// Whether blocks are taken by their frames.
    pub fn is_known(&self) -> bool {
        self.places.is_some()
    }

    /// From now on blocks are taken by their frames, too.
    fn index(&mut self) {
        let mut places = HashMap::new();
        for (of, orders) in Migratetype::ALL.into_iter().zip(&self.blocks) {
            for (order, blocks) in orders.iter().enumerate() {
                places.extend(blocks.iter().map(|&pfn| (pfn, (Order(order as u8), of))));
            }
        }
        self.places = Some(places);
    }

    /// Takes the block at a frame out, as one that is allocated. `None` if not all of it is held, or blocks are not taken by
    /// their frames.
    pub fn take_at(&mut self, core: &Core<'_>, pfn: Pfn, order: Order) -> Option<Pfn> {
        let places = self.places.as_mut()?;
        let (head, from, of) = (order.0..=Order::MAX.0).find_map(|size| {
            let head = Pfn(pfn.0 >> size << size);
            let (own, of) = *places.get(&head)?;
            (own.0 == size).then_some((head, own, of))
        })?;
        places.remove(&head);
        let mut whole = head;
        for half in (order.0..from.0).rev().map(Order) {
            let split = core.split_block(whole, Order(half.0 + 1), half);
            split.expect("a held block is allocated");
            let own = Pfn(pfn.0 >> half.0 << half.0);
            let other = if own == whole { whole + half.pages() } else { whole };
            self.put(other, half, of);
            whole = own;
        }
        Some(pfn)
    }

    fn take_of(&mut self, core: &Core<'_>, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        let (pfn, from) = (order.0..=Order::MAX.0).map(Order).find_map(|from| {
            let list = &mut self.blocks[migratetype.index()][from.0 as usize];
            loop {
                let pfn = list.pop()?;
                let places = self.places.as_mut();
                let Some(places) = places else { return Some((pfn, from)) };
                if places.get(&pfn) == Some(&(from, migratetype)) {
                    places.remove(&pfn);
                    return Some((pfn, from));
                }
            }
        })?;
        for half in (order.0..from.0).rev().map(Order) {
            let split = core.split_block(pfn, Order(half.0 + 1), half);
            split.expect("a held block is allocated");
            self.put(pfn + half.pages(), half, migratetype);
        }
        Some(pfn)
    }
}
