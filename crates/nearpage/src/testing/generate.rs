//! Random machines: small ones, so that memory runs out often, of every shape that a topology may have.
//!
//! Each machine has a style of its own (how many nodes, how large, how aligned, how far apart), drawn
//! before its parts are: machines of one style differ less than styles do, and a bug often needs a style
//! carried through ("swarm testing").

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::random::Random;
use crate::alloc::Config;
use crate::gfp::Gfp;
use crate::model::{Model, PageblockOwners};
use crate::pcp::tuning::{PcpRules, Series2023};
use crate::topology::{AddressMap, NodeBuf, TopologyBuf, ZoneInstances};
use crate::units::{CpuId, NodeId, PageCount, Pfn, PfnRange};
use crate::watermark::Settings;
use crate::zonelist::cache::CacheRule;

/// A machine with the rules and settings to run it under.
#[derive(Clone, Debug)]
pub struct RandomMachine {
    /// Nodes, memory, CPUs, distances. At least one node has memory.
    pub topology: TopologyBuf,
    /// Rules and settings.
    pub config: Config,
    /// Memory that is there from the start.
    pub boot: Vec<PfnRange>,
    /// The rest of the memory, in the order in which it comes.
    pub later: Vec<PfnRange>,
}

/// Flags that a request may have beside those of its kind.
pub const EXTRAS: [Gfp; 9] = [
    Gfp::THISNODE,
    Gfp::THISNODE,
    Gfp::NORETRY,
    Gfp::HIGH,
    Gfp::MEMALLOC,
    Gfp::NOMEMALLOC,
    Gfp::RETRY_MAYFAIL,
    Gfp::DMA32,
    Gfp::RECLAIMABLE,
];

/// Memory that comes next of what is to come `later`: all of a range, or its first part.
pub fn next_arrival(later: &mut Vec<PfnRange>, random: &mut Random) -> Option<PfnRange> {
    let range = later.pop()?;
    let cut = Pfn(range.start.0 + 1 + random.below(range.pages().0));
    if random.one_in(2) && cut < range.end {
        later.push(PfnRange { start: cut, ..range });
        return Some(PfnRange { end: cut, ..range });
    }
    Some(range)
}

/// Where memory begins: at the bottom, below 16 MiB, below 4 GiB, and far above, each at most this
/// many pages below the bound so that small machines reach over it.
const BOUNDS: [u64; 4] = [0, 4096, 1 << 20, 1 << 24];
const BELOW_BOUND: u64 = 3000;
/// Of user space, x86-64, aarch64, and a processor with DMA32 and no DMA.
const ADDRESS_MAPS: [AddressMap; 4] = [
    AddressMap::Flat,
    AddressMap::X86,
    AddressMap::Divided { dma_end: Pfn(1 << 20), dma32_end: Pfn(1 << 20) },
    AddressMap::Divided { dma_end: Pfn(0), dma32_end: Pfn(1 << 20) },
];

impl RandomMachine {
    /// A machine made of `random`, under rules of Linux, of which the [naive allocator](super::naive_allocator) predicts each
    /// answer.
    pub fn new(random: &mut Random) -> Self {
        let is_linux = |model: &&Model| model.name != Model::NEARPAGE.name;
        let models: Vec<Model> = Model::ALL.iter().filter(is_linux).copied().collect();
        let model = random.one_of(&models);
        Self::of_model(random, model)
    }

    /// The same under a model of one's choice, which may have a rule of another.
    pub fn of_model(random: &mut Random, model: Model) -> Self {
        let model = varied(random, model);
        let style = Style::new(random, &model);
        let mut nodes: Vec<NodeBuf> = node_ids(random, style.nodes);
        place_memory(random, &style, &mut nodes);
        place_cpus(random, &style, &mut nodes);
        let distances = distances(random, nodes.len());
        let address_map = random.one_of(&ADDRESS_MAPS);
        let topology = TopologyBuf { nodes, distances, address_map };
        let config = config(random, model, &topology);
        let (boot, later) = arrivals(random, &topology);
        Self { topology, config, boot, later }
    }
}

/// What the nodes of a machine have in common.
struct Style {
    nodes: u64,
    /// Largest part of a node's memory.
    pages_max: u64,
    /// Bounds of memory are multiples of this, or of 1.
    alignment: u64,
    /// Most CPUs of a node.
    cpus_max: u64,
    /// Whether memory is dealt out to the nodes in turn and not node by node.
    interleaved: bool,
}

impl Style {
    fn new(random: &mut Random, model: &Model) -> Self {
        // A CPU owns pageblocks of zones of which an eighth has room for one for each CPU.
        let owns = model.owners != PageblockOwners::Nobody && !random.one_in(4);
        let (nodes, pages_max, cpus_max) = match random.below(16) {
            0..12 if owns => (1 + random.below(3), 1 << 16, 2),
            0 => (random.one_of(&[9, 33, 65]) + random.below(16), 1 << 10, 1),
            1..3 => (1 + random.below(2), 1 << 17, 4),
            3..7 => (1 + random.below(8), 1 << 14, 4),
            _ => (1 + random.below(8), 1 << 12, 4),
        };
        let alignment = random.one_of(&[1024, 512, 1, 1]);
        Self { nodes, pages_max, alignment, cpus_max, interleaved: random.below(3) == 0 }
    }
}

/// A number in `least..=most`, small ones as often as large ones: evenly by its power of two.
pub fn any_size(random: &mut Random, least: u64, most: u64) -> u64 {
    let (low, high) = (least.max(1).ilog2() as u64, most.max(1).ilog2() as u64);
    let power = low + random.below(high - low + 1);
    ((1 << power) + random.below(1 << power)).clamp(least, most)
}

/// Nodes without memory and CPUs, their ids dense or with gaps.
fn node_ids(random: &mut Random, count: u64) -> Vec<NodeBuf> {
    let gap_max = random.one_of(&[1, 1, 8, 1000]);
    let mut id = random.below(gap_max) as u32;
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(NodeBuf { id: NodeId(id), ..NodeBuf::default() });
        id += 1 + random.below(gap_max) as u32;
    }
    nodes
}

fn place_memory(random: &mut Random, style: &Style, nodes: &mut [NodeBuf]) {
    let mut owners = owners(random, nodes.len());
    if style.interleaved {
        shuffle(random, &mut owners);
    }
    let mut bound = random.below(BOUNDS.len() as u64) as usize;
    let mut at = below_bound(random, style, bound);
    for owner in owners {
        let end = aligned(style, at + any_size(random, 64, style.pages_max)).max(at + 1);
        nodes[owner].memory.push(PfnRange::new(at, end));
        at = aligned(style, end + hole(random));
        if bound + 1 < BOUNDS.len() && random.one_in(4) && at < BOUNDS[bound + 1] - BELOW_BOUND {
            bound += 1;
            at = below_bound(random, style, bound);
        }
    }
    for node in nodes {
        node.movable_from = movable_from(random, style, node);
    }
}

/// The node of each part of the memory, ascending. Some nodes have none, some several parts.
fn owners(random: &mut Random, nodes: usize) -> Vec<usize> {
    let mut owners = Vec::new();
    for node in 0..nodes {
        let parts = random.one_of(&[0, 1, 1, 1, 1, 2, 3]);
        owners.extend(vec![node; parts]);
    }
    if owners.is_empty() {
        owners.push(random.below(nodes as u64) as usize);
    }
    owners
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for at in 1..items.len() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

fn below_bound(random: &mut Random, style: &Style, bound: usize) -> u64 {
    aligned(style, BOUNDS[bound].saturating_sub(random.below(BELOW_BOUND)))
}

/// Rounded up.
fn aligned(style: &Style, pfn: u64) -> u64 {
    pfn.next_multiple_of(style.alignment)
}

fn hole(random: &mut Random) -> u64 {
    if random.one_in(3) { any_size(random, 1, 3000) } else { 0 }
}

fn movable_from(random: &mut Random, style: &Style, node: &NodeBuf) -> Option<Pfn> {
    let (first, last) = (node.memory.first()?, node.memory.last()?);
    let into = random.below(last.end.0 - first.start.0 + 1);
    let from = Pfn(aligned(style, first.start.0 + into));
    random.one_in(3).then_some(from)
}

/// CPU ids go to random nodes; some ids are no CPU.
fn place_cpus(random: &mut Random, style: &Style, nodes: &mut [NodeBuf]) {
    let gap_max = random.one_of(&[1, 1, 2, 100]);
    let mut id = random.below(gap_max) as u32;
    let without = random.below(3);
    for _ in 0..random.below(style.cpus_max * nodes.len() as u64 + 1) + 1 {
        let at = random.below(nodes.len() as u64) as usize;
        // A third of the nodes stays without CPUs on most machines.
        if at as u64 % 3 != without || nodes.len() == 1 {
            nodes[at].cpus.push(CpuId(id));
            id += 1 + random.below(gap_max) as u32;
        }
    }
}

fn distances(random: &mut Random, nodes: usize) -> Vec<u8> {
    let mut distances = vec![20; nodes * nodes];
    let (few, all) = (random.below(3), 1 + random.below(245));
    for from in 0..nodes {
        for to in 0..nodes {
            distances[from * nodes + to] = match few {
                0 => 20,
                // Pairs of nodes, and pairs of pairs.
                1 => [11, 21, 31, 41][(from ^ to).checked_ilog2().unwrap_or(0).min(3) as usize],
                _ => 10 + random.below(all) as u8,
            };
        }
        distances[from * nodes + from] = 10;
    }
    distances
}

fn config(random: &mut Random, model: Model, topology: &TopologyBuf) -> Config {
    let page_shift = random.one_of(&[12, 12, 12, 12, 14, 16]);
    let mut settings = any_settings(random, topology, page_shift);
    // Only a pageset that may keep a pageblock owns one.
    if model.owners == PageblockOwners::Cpus && !random.one_in(4) {
        settings.percpu_pagelist_high_fraction = 8;
        settings.pageset_budget_kbytes = None;
    }
    Config { page_shift, ..Config::new().with_model(model).with_settings(settings) }
}

/// A model, sometimes with a rule of another. Instances are of sizes that divide small machines.
fn varied(random: &mut Random, mut model: Model) -> Model {
    if random.one_in(2) {
        model.zonelist_cache =
            random.one_of(&[CacheRule::Off, CacheRule::Original, CacheRule::Keyed]);
    }
    if random.one_in(3) {
        model.zone_instances = ZoneInstances::Count(1 + random.below(4) as u16);
    } else if model.zone_instances != ZoneInstances::ONE || random.one_in(6) {
        model.zone_instances = ZoneInstances::OfPages(PageCount(1 + random.below(1 << 16)));
    }
    if model.name == Model::SERIES_2023.name {
        let choose = |series: Series2023, patch| {
            if random.one_in(4) { series.without(patch) } else { series }
        };
        model.pcp = PcpRules::series_2023((1..=10).fold(Series2023::ALL, choose));
    }
    model
}

/// Settings, each at its default or far from it, all acceptable.
pub fn any_settings(random: &mut Random, topology: &TopologyBuf, page_shift: u32) -> Settings {
    let ranges = topology.nodes.iter().flat_map(|node| &node.memory);
    let kbytes = ranges.map(|range| range.pages().to_bytes(page_shift) / 1024).sum::<u64>();
    let mut settings = Settings {
        transparent_hugepage: random.one_in(4),
        min_free_kbytes: (!random.one_in(3)).then(|| random.below(kbytes / 4 + 2)),
        ..Settings::default()
    };
    if random.one_in(3) {
        settings.watermark_scale_factor = 1 + random.below(1000) as u32;
    }
    if random.one_in(4) {
        settings.watermark_boost_factor = random.one_of(&[0, 1000, 10_000, 100_000]);
    }
    if random.one_in(5) {
        settings.pageset_budget_kbytes = Some(any_size(random, 1, kbytes / 16 + 1));
    }
    if random.one_in(8) {
        settings.node_reclaim_mode = 1;
    }
    if random.one_in(4) {
        settings.percpu_pagelist_high_fraction = 8 + random.below(60) as u32;
    }
    if random.one_in(2) {
        settings.lowmem_reserve_ratio =
            core::array::from_fn(|_| random.one_of(&[0, 1, 2, 4, 32, 256]));
    }
    settings
}

/// Splits the memory of a machine into what is there from the start and what comes later.
fn arrivals(random: &mut Random, topology: &TopologyBuf) -> (Vec<PfnRange>, Vec<PfnRange>) {
    let (mut boot, mut later) = (Vec::new(), Vec::new());
    for &range in topology.nodes.iter().flat_map(|node| &node.memory) {
        let cut = range.start.0 + random.below(range.pages().0);
        match random.below(6) {
            0 => later.push(range),
            1 => {
                let halves = [(range.start.0, cut), (cut, range.end.0)];
                let [first, second] = halves.map(|(start, end)| PfnRange::new(start, end));
                let (now, then) = if random.one_in(2) { (first, second) } else { (second, first) };
                boot.push(now);
                later.push(then);
            }
            _ => boot.push(range),
        }
    }
    shuffle(random, &mut boot);
    shuffle(random, &mut later);
    boot.retain(|range| !range.is_empty());
    later.retain(|range| !range.is_empty());
    (boot, later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;
    use crate::units::ZoneKind;

    type Feature = (&'static str, fn(&Topology<'_>) -> bool);

    fn with_memory<'a>(topology: &Topology<'a>) -> Vec<&'a crate::topology::Node<'a>> {
        topology.nodes().iter().filter(|node| !node.memory.is_empty()).collect()
    }

    fn has_zone(topology: &Topology<'_>, kind: ZoneKind) -> bool {
        topology.indexes().any(|node| topology.is_populated(node, kind))
    }

    fn is_asymmetric(topology: &Topology<'_>) -> bool {
        let pairs = topology.indexes().flat_map(|a| topology.indexes().map(move |b| (a, b)));
        pairs.into_iter().any(|(a, b)| topology.distance(a, b) != topology.distance(b, a))
    }

    fn spans_overlap(topology: &Topology<'_>) -> bool {
        let extents: Vec<PfnRange> = with_memory(topology)
            .iter()
            .map(|node| PfnRange { start: node.memory[0].start, end: last(node).end })
            .collect();
        let overlap = |a: &PfnRange, b: &PfnRange| !a.intersection(*b).is_empty();
        (0..extents.len()).any(|at| extents[..at].iter().any(|other| overlap(other, &extents[at])))
    }

    fn last(node: &crate::topology::Node<'_>) -> PfnRange {
        *node.memory.last().expect("a node with memory")
    }

    fn is_unaligned(topology: &Topology<'_>) -> bool {
        let ranges = topology.nodes().iter().flat_map(|node| node.memory);
        ranges.into_iter().any(|range| !(range.start.0 | range.end.0).is_multiple_of(512))
    }

    const FEATURES: [Feature; 13] = [
        ("more than 64 nodes", |t| t.len() > 64),
        ("a memoryless node", |t| with_memory(t).len() < t.len()),
        ("memory without CPUs", |t| with_memory(t).iter().any(|node| node.cpus.is_empty())),
        ("an empty first node", |t| t.nodes()[0].memory.is_empty()),
        ("sparse ids", |t| t.nodes().windows(2).any(|pair| pair[1].id.0 > pair[0].id.0 + 1)),
        ("asymmetric distances", is_asymmetric),
        ("overlapping spans", spans_overlap),
        ("bounds within pageblocks", is_unaligned),
        ("several ranges a node", |t| t.nodes().iter().any(|node| node.memory.len() > 1)),
        ("a DMA zone", |t| has_zone(t, ZoneKind::Dma)),
        ("a DMA32 zone", |t| has_zone(t, ZoneKind::Dma32)),
        ("a Normal zone", |t| has_zone(t, ZoneKind::Normal)),
        ("a Movable zone", |t| has_zone(t, ZoneKind::Movable)),
    ];

    #[test]
    fn machines_are_legal_and_of_all_kinds() {
        let (mut seen, mut growing) = ([0; FEATURES.len()], 0);
        for seed in 0..400 {
            let machine = RandomMachine::new(&mut Random(seed));
            let count = |topology: &Topology<'_>| {
                for (count, (_, has)) in seen.iter_mut().zip(FEATURES) {
                    *count += u32::from(has(topology));
                }
            };
            assert_eq!(machine.topology.with(count), Ok(()), "seed {seed}");
            assert_eq!(machine.config.settings.check(), Ok(()), "seed {seed}");
            growing += u32::from(!machine.later.is_empty());
        }
        for (count, (name, _)) in seen.into_iter().zip(FEATURES) {
            assert!((4..400).contains(&count), "{count} of 400 machines have {name}");
        }
        assert!((40..400).contains(&growing));
    }
}
