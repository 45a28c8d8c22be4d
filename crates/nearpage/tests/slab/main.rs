//! The slab allocator against a naive one, on random machines, operation for operation: every address, all counts of
//! all nodes, and now and then the walker. Memory comes and goes while objects are held, halves of nodes and whole ones.
//!
//! A seed makes machine, rules, caches and operations. A failure prints how to replay it:
//!
//! ```text
//! NEARPAGE_SEED=17 cargo test -p nearpage --test slab -- --nocapture
//! ```
//!
//! `NEARPAGE_SEEDS=40` runs that many seeds instead of ten, which allocate or free more than ten million objects.

mod naive;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nearpage::error::OfflineError;
use nearpage::gfp::Gfp;
use nearpage::slab::geometry::Descriptors;
use nearpage::slab::{CacheOptions, KmemCache, LocalNode, REAP_PERIOD_NS, SlabConfig};
use nearpage::testing::machine::{TestMachine, TestSlab};
use nearpage::testing::plain::PlainPlatform;
use nearpage::testing::random::Random;
use nearpage::topology::{AddressMap, NodeBuf, TopologyBuf};
use nearpage::units::{Address, CpuId, NodeId, NodeIndex, PageCount, PfnRange, SECTION_FRAMES};

const SEEDS: u64 = 10;
const OPERATIONS: u64 = 50_000;
/// Operations from one walk to the next, and from one change of memory to the next.
const WALK_PERIOD: u64 = 5000;
const HOTPLUG_PERIOD: u64 = 1000;

/// Frames that come and go together: enough that no node is ever full, whoever holds what.
const PIECE_FRAMES: u64 = SECTION_FRAMES as u64 / 2;
/// Objects of a cache that are held at once, about.
const HELD: usize = 1500;

/// Half of a node's memory.
#[derive(Clone, Copy)]
struct Piece {
    node: usize,
    range: PfnRange,
    is_online: bool,
}

/// A machine of up to six nodes, at least one of which has memory from the start.
struct Drawn {
    topology: TopologyBuf,
    pieces: Vec<Piece>,
    config: SlabConfig,
    caches: Vec<CacheOptions>,
}

fn draw(random: &mut Random) -> Drawn {
    let count = 1 + random.below(6) as usize;
    let stride = random.one_of(&[1, 1, 8, 85]);
    let (mut nodes, mut pieces) = (Vec::new(), Vec::new());
    let first = random.below(count as u64) as usize;
    let mut cpu = 0;
    for at in 0..count {
        let start = (at as u64 * 2 + 1) * SECTION_FRAMES as u64;
        let half =
            |at: u64| PfnRange::new(start + at * PIECE_FRAMES, start + (at + 1) * PIECE_FRAMES);
        let has_memory = at == first || random.below(3) > 0;
        if has_memory {
            let is_online = at == first || random.below(2) > 0;
            pieces.extend([0, 1].map(|number| Piece { node: at, range: half(number), is_online }));
        }
        let cpus = (0..random.below(3)).map(|_| {
            cpu += 1 + random.below(3) as u32;
            CpuId(cpu)
        });
        nodes.push(NodeBuf {
            id: NodeId(at as u32 * stride),
            memory: if has_memory { vec![half(0), half(1)] } else { vec![] },
            cpus: cpus.collect(),
            movable_from: None,
        });
    }
    if nodes.iter().all(|node| node.cpus.is_empty()) {
        nodes[0].cpus.push(CpuId(2));
    }
    let distance = |at: usize, random: &mut Random| match at / count == at % count {
        true => 10,
        false => random.one_of(&[15, 20, 20, 31]),
    };
    let distances = (0..count * count).map(|at| distance(at, random)).collect();
    let topology = TopologyBuf { nodes, distances, address_map: AddressMap::Flat };
    let config = SlabConfig {
        caches_max: 3,
        descriptors: random.one_of(&[Descriptors::Beside, Descriptors::Within]),
        local: random.one_of(&[
            LocalNode::NearestMemory,
            LocalNode::NearestMemory,
            LocalNode::OwnNode,
        ]),
    };
    let caches = (0..3).map(|_| options(random)).collect();
    Drawn { topology, pieces, config, caches }
}

fn options(random: &mut Random) -> CacheOptions {
    let size = match random.below(3) {
        0 => random.one_of(&[8, 64, 256, 1024, 2048]),
        1 => 1 + random.below(300),
        _ => 1 + random.below(3000),
    };
    let align = random.one_of(&[1, 1, 8, 64]);
    let (line_aligned, reclaimable) = (random.below(4) == 0, random.below(4) == 0);
    CacheOptions { line_aligned, reclaimable, ..CacheOptions::new("random", size).align(align) }
}

/// What works beside the model.
struct Pair<'a, 's, 'm> {
    slab: &'a TestSlab<'s, 'm>,
    machine: naive::Machine,
    caches: Vec<(KmemCache<'m, PlainPlatform>, naive::Cache)>,
    ids: Vec<NodeId>,
    pieces: Vec<Piece>,
    now_ns: u64,
    tally: Tally,
}

/// What happened in a run, or in several.
#[derive(Debug, Default)]
struct Tally {
    /// Objects allocated and freed.
    moved: u64,
    /// Memory that came online, went offline, and stayed since objects of it were in use.
    arrivals: u64,
    departures: u64,
    refusals: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.moved += other.moved;
        self.arrivals += other.arrivals;
        self.departures += other.departures;
        self.refusals += other.refusals;
    }
}

fn machine_of(slab: &TestSlab<'_, '_>, local: LocalNode) -> naive::Machine {
    let topology = slab.pages().topology();
    let cpus = slab.pages().cpus().map(|(cpu, node, _)| {
        let node = node.0 as usize;
        // As the slab allocator starts: one after the other, by CPU id.
        let reap_node = cpu.0 as usize % topology.len();
        (cpu.0, naive::Cpu { node, effective: node, reap_node })
    });
    let nodes = topology.len();
    let (has_memory, fallback) = (vec![false; nodes], vec![Vec::new(); nodes]);
    naive::Machine { cpus: cpus.collect::<BTreeMap<_, _>>(), has_memory, fallback, local }
}

impl Pair<'_, '_, '_> {
    /// What is known of nodes after memory came.
    fn look_at_nodes(&mut self) {
        for node in 0..self.ids.len() {
            let zones = self.slab.pages().fallback_zones(NodeIndex(node as u16));
            let nodes: Vec<usize> = zones.map(|zone| zone.node().0 as usize).collect();
            self.machine.has_memory[node] = nodes.contains(&node);
            self.machine.fallback[node] = nodes;
        }
        self.machine.refresh();
        self.caches.iter_mut().for_each(|(_, model)| model.settle(&self.machine));
    }

    fn run_on(&self, random: &mut Random) -> u32 {
        let cpus: Vec<u32> = self.machine.cpus.keys().copied().collect();
        let cpu = random.one_of(&cpus);
        self.slab.pages().platform().run_on(CpuId(cpu));
        cpu
    }

    fn step(&mut self, random: &mut Random) {
        let cpu = self.run_on(random);
        let at = random.below(self.caches.len() as u64) as usize;
        let few = self.caches[at].1.held.len() < HELD;
        match random.below(1000) {
            0..450 if few => self.alloc(cpu, at, 1),
            450..500 if few => self.alloc(cpu, at, 1 + random.below(150) as usize),
            500..530 if few => self.alloc_node(cpu, at, random),
            0..900 => self.free(cpu, at, 1, random),
            900..980 => self.free(cpu, at, 1 + random.below(150) as usize, random),
            980..990 => self.burst(cpu, at, random),
            990..998 => self.reap(cpu),
            _ => self.shrink(at),
        }
        self.compare_counts(at);
    }

    /// Where the block begins that an object is in, if it is of a slab that the model does not know.
    fn block(&self, at: usize, object: u64) -> u64 {
        object & !((4096 << self.caches[at].0.geometry().order.0) - 1)
    }

    fn alloc(&mut self, cpu: u32, at: usize, objects: usize) {
        let mut out = vec![Address(0); objects];
        let got = self.slab.alloc_bulk(&self.caches[at].0, Gfp::KERNEL, &mut out);
        assert_eq!(got, Ok(objects));
        self.tally.moved += objects as u64;
        for object in out {
            let block = self.block(at, object.0);
            let expected = self.caches[at].1.alloc(&self.machine, cpu, block);
            assert_eq!(object.0, expected, "an allocation on CPU {cpu}");
        }
    }

    fn alloc_node(&mut self, cpu: u32, at: usize, random: &mut Random) {
        let node = random.below(self.ids.len() as u64) as usize;
        let object = self.slab.alloc_node(&self.caches[at].0, Gfp::KERNEL, self.ids[node]).unwrap();
        let block = self.block(at, object.0);
        let expected = self.caches[at].1.alloc_node(&self.machine, cpu, node, block);
        assert_eq!(object.0, expected, "an allocation on CPU {cpu} of node {node}");
    }

    fn free(&mut self, cpu: u32, at: usize, objects: usize, random: &mut Random) {
        let mut chosen = Vec::new();
        for _ in 0..objects.min(self.caches[at].1.held.len()) {
            let held = &self.caches[at].1.held;
            let from = *held.first().unwrap()
                + random.below(held.last().unwrap() - held.first().unwrap() + 1);
            let object = *held.range(from..).next().or(held.last()).unwrap();
            if !chosen.contains(&object) {
                chosen.push(object);
            }
        }
        self.free_these(cpu, at, &chosen);
    }

    fn free_these(&mut self, cpu: u32, at: usize, chosen: &[u64]) {
        self.tally.moved += chosen.len() as u64;
        let (cache, model) = &mut self.caches[at];
        let addresses: Vec<Address> = chosen.iter().map(|&object| Address(object)).collect();
        match addresses[..] {
            [object] => self.slab.free(cache, object).unwrap(),
            _ => self.slab.free_bulk(cache, &addresses).unwrap(),
        }
        // Bulk frees bring objects of this CPU's node onto its stack after those of other nodes, batch by batch.
        let here = self.machine.cpus[&cpu].effective;
        for batch in chosen.chunks(nearpage::slab::tunables::BATCH_MAX) {
            let (near, far): (Vec<u64>, Vec<u64>) =
                batch.iter().partition(|&&object| model.node_of(object) == here);
            far.into_iter().chain(near).for_each(|object| model.free(&self.machine, cpu, object));
        }
    }

    /// Many at once, all freed again: what a stack alone never sees.
    fn burst(&mut self, cpu: u32, at: usize, random: &mut Random) {
        self.alloc(cpu, at, 700);
        let cpu = if random.below(2) == 0 { cpu } else { self.run_on(random) };
        while self.caches[at].1.held.len() > HELD / 2 {
            self.free(cpu, at, 100, random);
        }
    }

    fn reap(&mut self, cpu: u32) {
        self.now_ns += REAP_PERIOD_NS;
        self.slab.pages().platform().now_ns.set(self.now_ns);
        self.slab.reap_cpu(CpuId(cpu)).unwrap();
        for (_, model) in &mut self.caches {
            model.reap(&self.machine, cpu, self.now_ns);
        }
        let nodes = self.ids.len();
        let cpu = self.machine.cpus.get_mut(&cpu).unwrap();
        cpu.reap_node = (cpu.reap_node + 1) % nodes;
    }

    fn shrink(&mut self, at: usize) {
        let (cache, model) = &mut self.caches[at];
        self.slab.shrink(cache).unwrap();
        model.shrink(&self.machine);
    }

    /// Memory of a node comes, or goes if there is other memory: half of the node's, or all.
    fn hotplug(&mut self, random: &mut Random) {
        let at = random.below(self.pieces.len() as u64) as usize;
        if !self.pieces[at].is_online {
            return self.online(at);
        }
        let whole_node = random.below(2) == 0;
        let node = self.pieces[at].node;
        let goes = |(other, piece): (usize, &Piece)| {
            piece.is_online && (other == at || whole_node && piece.node == node)
        };
        let going: Vec<usize> =
            (0..self.pieces.len()).filter(|&at| goes((at, &self.pieces[at]))).collect();
        if self.pieces.iter().filter(|piece| piece.is_online).count() == going.len() {
            return;
        }
        if random.below(2) == 0 {
            going.iter().for_each(|&at| self.empty(self.pieces[at].range, random));
        }
        self.offline(&going, whole_node.then_some(self.ids[node]));
    }

    fn online(&mut self, at: usize) {
        self.slab.online_all(&[self.pieces[at].range]).unwrap();
        self.pieces[at].is_online = true;
        self.tally.arrivals += 1;
        let cpus: Vec<u32> = self.machine.cpus.keys().copied().collect();
        for (_, model) in &mut self.caches {
            cpus.iter().for_each(|&cpu| model.flush(&self.machine, cpu));
        }
        self.look_at_nodes();
    }

    /// Frees all objects that lie in a range, on one CPU or another.
    fn empty(&mut self, range: PfnRange, random: &mut Random) {
        for at in 0..self.caches.len() {
            let inside = self.caches[at].1.held.range(range.start.0 << 12..range.end.0 << 12);
            let inside: Vec<u64> = inside.copied().collect();
            for some in inside.chunks(100) {
                let cpu = self.run_on(random);
                self.free_these(cpu, at, some);
            }
        }
    }

    /// Takes pieces offline, which are all that `node` has if it is given. They stay if objects of them are held.
    fn offline(&mut self, going: &[usize], node: Option<NodeId>) {
        let ranges: Vec<PfnRange> = going.iter().map(|&at| self.pieces[at].range).collect();
        let answer = match node {
            Some(node) => self.slab.offline_node(node),
            None => self.slab.offline_all(&ranges),
        };
        let mut pages_in_use = 0;
        for (_, model) in &mut self.caches {
            model.shrink(&self.machine);
            pages_in_use += ranges.iter().map(|&range| model.pages_in(range)).sum::<u64>();
        }
        if pages_in_use > 0 {
            let Err(OfflineError::InUse { pages, .. }) = answer else {
                panic!("{pages_in_use} pages are in use: {answer:?}")
            };
            assert_eq!(pages.0, pages_in_use);
            self.tally.refusals += 1;
            return;
        }
        let pages = ranges.iter().map(|range| range.pages().0).sum();
        assert_eq!(answer, Ok(PageCount(pages)));
        going.iter().for_each(|&at| self.pieces[at].is_online = false);
        self.tally.departures += 1;
        self.look_at_nodes();
    }

    fn compare_counts(&self, at: usize) {
        let (cache, model) = &self.caches[at];
        for node in 0..self.ids.len() {
            let stats = self.slab.node_stats(cache, NodeIndex(node as u16));
            let counts = [stats.slabs, stats.objects_free, stats.shared, stats.alien];
            assert_eq!(counts, model.counts(node), "slabs, free, shared, alien of node {node}");
        }
    }

    fn walk(&self) {
        for (cache, model) in &self.caches {
            let checked = self.slab.check(cache).unwrap();
            assert_eq!(checked.held, model.held.len() as u64);
            assert_eq!(checked.in_stacks, model.in_stacks());
        }
        self.slab.pages().check().unwrap();
    }
}

fn run(seed: u64) -> Tally {
    let mut random = Random(seed);
    let drawn = draw(&mut random);
    TestMachine::from(drawn.topology).run_slab_offline(drawn.config, |slab| {
        let pieces = drawn.pieces;
        let boot: Vec<PfnRange> =
            pieces.iter().filter(|piece| piece.is_online).map(|piece| piece.range).collect();
        slab.online_all(&boot).unwrap();
        let ids = slab.pages().topology().nodes().iter().map(|node| node.id).collect();
        let machine = machine_of(slab, drawn.config.local);
        let (caches, tally) = (Vec::new(), Tally::default());
        let mut pair = Pair { slab, machine, caches, ids, pieces, now_ns: 0, tally };
        pair.look_at_nodes();
        for options in drawn.caches {
            let cache = slab.create(options).unwrap();
            let model = naive::Cache::new(*cache.geometry(), &pair.machine);
            pair.caches.push((cache, model));
        }
        for operation in 1..=OPERATIONS {
            pair.step(&mut random);
            if operation % HOTPLUG_PERIOD == 0 {
                pair.hotplug(&mut random);
                (0..pair.caches.len()).for_each(|at| pair.compare_counts(at));
            }
            if operation % WALK_PERIOD == 0 {
                pair.walk();
            }
        }
        finish(pair)
    })
}

/// All objects come back, and all pages.
fn finish(pair: Pair<'_, '_, '_>) -> Tally {
    let slab = pair.slab;
    for (cache, model) in pair.caches {
        for &object in &model.held {
            slab.free(&cache, Address(object)).unwrap();
        }
        slab.destroy(cache).unwrap();
    }
    slab.pages().drain_all().unwrap();
    let checked = slab.pages().check().unwrap();
    assert_eq!((checked.allocated.0, slab.pages().platform().misuses.get()), (0, 0));
    pair.tally
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number is accepted")))
}

#[test]
fn the_slab_allocator_does_what_the_naive_one_predicts() {
    let seeds = match number("NEARPAGE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NEARPAGE_SEEDS").unwrap_or(SEEDS),
    };
    let (mut all, count) = (Tally::default(), seeds.end - seeds.start);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(tally) => all.add(&tally),
            Err(_) => panic!(
                "seed {seed}: NEARPAGE_SEED={seed} cargo test -p nearpage --test slab -- --nocapture"
            ),
        }
    }
    println!("{count} machines: {all:?}");
    assert!(all.moved > 1_000_000 * count, "{all:?}");
    if count >= SEEDS {
        assert!(all.arrivals > 0 && all.departures > 0 && all.refusals > 0, "{all:?}");
    }
}
