//! The slab allocator against a naive one, on random machines, operation for operation: every address, all counts of
//! all nodes, and now and then the walker. Memory of some nodes arrives while objects are held.
//!
//! A seed makes machine, rules, caches and operations. A failure prints how to replay it:
//!
//! ```text
//! NEARPAGE_SEED=17 cargo test -p nearpage --test slab -- --nocapture
//! ```
//!
//! `NEARPAGE_SEEDS=40` runs that many seeds; ten allocate or free more than ten million objects.

mod naive;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nearpage::gfp::Gfp;
use nearpage::slab::geometry::Descriptors;
use nearpage::slab::{CacheOptions, KmemCache, LocalNode, REAP_PERIOD_NS, SlabConfig};
use nearpage::testing::machine::{TestMachine, TestSlab};
use nearpage::testing::plain::PlainPlatform;
use nearpage::testing::random::Random;
use nearpage::topology::{AddressMap, NodeBuf, TopologyBuf};
use nearpage::units::{Address, CpuId, NodeId, NodeIndex, PfnRange, SECTION_FRAMES};

const SEEDS: u64 = 8;
const OPERATIONS: u64 = 50_000;

/// Frames of a node: enough that no node is ever full, whoever holds what.
const NODE_FRAMES: u64 = 16_384;
/// Objects of a cache that are held at once, about.
const HELD: usize = 1500;

/// A machine of up to six nodes, at least one of which has memory from the start.
struct Drawn {
    topology: TopologyBuf,
    boot: Vec<PfnRange>,
    later: Vec<PfnRange>,
    config: SlabConfig,
    caches: Vec<CacheOptions>,
}

fn draw(random: &mut Random) -> Drawn {
    let count = 1 + random.below(6) as usize;
    let stride = random.one_of(&[1, 1, 8, 85]);
    let (mut nodes, mut boot, mut later) = (Vec::new(), Vec::new(), Vec::new());
    let first = random.below(count as u64) as usize;
    let mut cpu = 0;
    for at in 0..count {
        let start = (at as u64 * 2 + 1) * SECTION_FRAMES as u64;
        let range = PfnRange::new(start, start + NODE_FRAMES);
        let has_memory = at == first || random.below(3) > 0;
        if has_memory {
            let arrives_later = at != first && random.below(2) == 0;
            if arrives_later { later.push(range) } else { boot.push(range) }
        }
        let cpus = (0..random.below(3)).map(|_| {
            cpu += 1 + random.below(3) as u32;
            CpuId(cpu)
        });
        nodes.push(NodeBuf {
            id: NodeId(at as u32 * stride),
            memory: if has_memory { vec![range] } else { vec![] },
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
    Drawn { topology, boot, later, config, caches }
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
    now_ns: u64,
    /// Objects allocated and freed.
    moved: u64,
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
        self.moved += objects as u64;
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
        self.moved += chosen.len() as u64;
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

    fn online(&mut self, range: PfnRange) {
        self.slab.online_all(&[range]).unwrap();
        let cpus: Vec<u32> = self.machine.cpus.keys().copied().collect();
        for (_, model) in &mut self.caches {
            cpus.iter().for_each(|&cpu| model.flush(&self.machine, cpu));
        }
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

fn run(seed: u64) -> u64 {
    let mut random = Random(seed);
    let drawn = draw(&mut random);
    TestMachine::from(drawn.topology).run_slab_offline(drawn.config, |slab| {
        slab.online_all(&drawn.boot).unwrap();
        let ids = slab.pages().topology().nodes().iter().map(|node| node.id).collect();
        let machine = machine_of(slab, drawn.config.local);
        let mut pair = Pair { slab, machine, caches: Vec::new(), ids, now_ns: 0, moved: 0 };
        pair.look_at_nodes();
        for options in drawn.caches {
            let cache = slab.create(options).unwrap();
            let model = naive::Cache::new(*cache.geometry(), &pair.machine);
            pair.caches.push((cache, model));
        }
        let mut later = drawn.later;
        for operation in 0..OPERATIONS {
            pair.step(&mut random);
            if operation % 5000 == 4999 {
                pair.walk();
                later.pop().into_iter().for_each(|range| pair.online(range));
            }
        }
        let moved = pair.moved;
        finish(pair);
        moved
    })
}

/// All objects come back, and all pages.
fn finish(pair: Pair<'_, '_, '_>) {
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
    let (mut moved, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(objects) => moved += objects,
            Err(_) => panic!(
                "seed {seed}: NEARPAGE_SEED={seed} cargo test -p nearpage --test slab -- --nocapture"
            ),
        }
    }
    println!("{moved} objects allocated or freed on {count} machines");
    assert!(moved > 400_000 * count, "{moved}");
}
