//! Threads that move, end, and free what others allocated, with upkeep from outside.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::gfp::Gfp;
use nearpage::slab::{CacheOptions, LocalNode, SlabConfig};
use nearpage::units::NodeId;
use nearpage_linux::builder::MemoryBuilder;
use nearpage_linux::slab::{KmemCache, SlabAllocator};

use super::{allowed_cpus, number, restrict, three_nodes};

/// An object with its stamp.
pub struct Stamped(NonNull<u64>, u64);

// SAFETY: any thread may use and free an object.
unsafe impl Send for Stamped {}

impl Stamped {
    pub fn new(cache: &KmemCache<'_>, stamp: u64) -> Option<Self> {
        let object = cache.alloc(Gfp::KERNEL).ok()?.cast::<u64>();
        // SAFETY: the object is ours, of at least 8 bytes and aligned to 8.
        unsafe { object.write(stamp) };
        Some(Self(object, stamp))
    }

    pub fn free(self, cache: &KmemCache<'_>) {
        // SAFETY: the object is ours since `new`.
        let stamp = unsafe { self.0.read() };
        assert_eq!(stamp, self.1, "somebody else wrote to {:?}", self.0);
        // SAFETY: as above, and this is its end.
        unsafe { cache.free(self.0.cast()) }.unwrap();
    }
}

/// Stops threads at the end, also if that is a panic.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Works until it shall stop: bursts that fill and empty stacks; every other object is left for another thread.
fn work(cache: &KmemCache<'_>, left: &Mutex<Vec<Stamped>>, stop: &AtomicBool, thread: u64) {
    let cpus = allowed_cpus();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let stamp = thread << 32 | round;
        let mut held: Vec<Stamped> =
            (0..round % 400).filter_map(|_| Stamped::new(cache, stamp)).collect();
        let half = held.split_off(held.len() / 2);
        let others = std::mem::replace(&mut *left.lock().unwrap(), half);
        held.into_iter().chain(others).for_each(|object| object.free(cache));
        if round % 64 == 0 {
            restrict(&[cpus[(round / 64) as usize % cpus.len()]]);
        } else if round % 64 == 32 {
            restrict(&cpus);
        }
    }
}

/// Short-lived threads, which end with objects of theirs on stacks.
fn come_and_go(cache: &KmemCache<'_>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::scope(|scope| {
            scope.spawn(|| {
                let held: Vec<Stamped> =
                    (0..100).filter_map(|at| Stamped::new(cache, at)).collect();
                held.into_iter().for_each(|object| object.free(cache));
            });
        });
    }
}

/// What a program does from outside: reaps, shrinks, brings memory to the node that has none.
fn upkeep(slab: &SlabAllocator<'_>, caches: &[KmemCache<'_>], stop: &AtomicBool) {
    let mut round = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        // A CPU may be busy with the other one's upkeep.
        let _ = slab.reap();
        if round.is_multiple_of(5) {
            let _ = caches[round as usize % caches.len()].shrink();
        }
        if round.is_multiple_of(7) {
            let _ = slab.refresh_nodes();
            let _ = slab.bring_online(NodeId(0), 1 << 20);
        }
        assert!(slab.slabinfo().lines().count() >= 2);
        thread::sleep(Duration::from_millis(1));
    }
}

fn stress(builder: MemoryBuilder, config: SlabConfig) {
    let memory = builder.reserve_per_node(256 << 20).build().unwrap();
    let slab = memory.slab(config).unwrap();
    let caches: Vec<KmemCache<'_>> = [64, 200, 3000]
        .into_iter()
        .map(|size| slab.create(CacheOptions::new("stress", size)).unwrap())
        .collect();
    let left: Vec<Mutex<Vec<Stamped>>> = caches.iter().map(|_| Mutex::default()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..6 {
            let (cache, left) = (&caches[number % 3], &left[number % 3]);
            let stop = &stop;
            scope.spawn(move || work(cache, left, stop, number as u64));
        }
        scope.spawn(|| come_and_go(&caches[0], &stop));
        scope.spawn(|| upkeep(&slab, &caches, &stop));
        let seconds = number("NEARPAGE_STRESS_SECONDS", 2);
        let _stop = Stop(&stop);
        thread::sleep(Duration::from_secs(seconds));
    });
    for (cache, left) in caches.iter().zip(left) {
        left.into_inner().unwrap().into_iter().for_each(|object| object.free(cache));
        assert_eq!(cache.check().unwrap().held, 0);
    }
    for cache in caches {
        cache.destroy().unwrap();
    }
    memory.drain_all().unwrap();
    assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
}

#[test]
fn nothing_is_lost_with_rings() {
    stress(three_nodes(), SlabConfig::default());
}

#[test]
fn nothing_is_lost_with_locks() {
    stress(three_nodes().use_rseq(false), SlabConfig::default());
}

#[test]
fn nothing_is_lost_hardened() {
    stress(three_nodes().hardened(true), SlabConfig::default());
}

#[test]
fn nothing_is_lost_as_before_2010() {
    let config = SlabConfig { local: LocalNode::OwnNode, ..SlabConfig::LINUX_2_6_35 };
    stress(three_nodes(), config);
}

/// A node without memory gets some while its CPUs allocate: from then on objects come from there, and those before
/// go home.
#[test]
fn memory_arrives_under_load() {
    // With all CPUs on the node whose memory comes later: the builder brings all nodes online, so its memory is the
    // part that comes later.
    let cpus = allowed_cpus();
    let node = |id, cpus: &[nearpage::units::CpuId]| nearpage_linux::HostNode {
        id: NodeId(id),
        cpus: cpus.to_vec(),
        has_memory: true,
    };
    let machine = nearpage_linux::HostMachine {
        nodes: vec![node(2, &cpus), node(7, &[])],
        distances: vec![10, 20, 20, 10],
        emulated: true,
    };
    let builder = nearpage_linux::Memory::builder().machine(machine);
    let builder = builder.bytes_on(NodeId(2), 0).bytes_on(NodeId(7), 64 << 20);
    let memory = match builder.reserve_per_node(128 << 20).build() {
        Ok(memory) => memory,
        Err(error) => panic!("a node may be empty at first: {error}"),
    };
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("arrival", 64)).unwrap();
    let effective = || slab.effective_node(cpus[0]).unwrap();
    assert_eq!(effective(), NodeId(7));
    let (left, stop) = (Mutex::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, left, stop) = (&cache, &left, &stop);
            scope.spawn(move || work(cache, left, stop, thread));
        }
        let _stop = Stop(&stop);
        thread::sleep(Duration::from_millis(200));
        slab.bring_online(NodeId(2), 64 << 20).unwrap();
        let start = Instant::now();
        while effective() != NodeId(2) {
            // The CPUs of a crowded machine may be busy for a while.
            let refreshed = slab.refresh_nodes();
            assert!(start.elapsed() < Duration::from_secs(20), "{refreshed:?}");
        }
        thread::sleep(Duration::from_millis(200));
    });
    left.into_inner().unwrap().into_iter().for_each(|object: Stamped| object.free(&cache));
    assert_eq!(cache.check().unwrap().held, 0);
    let object = Stamped::new(&cache, 1).unwrap();
    assert_eq!(slab.owner(object.0.cast::<u8>().as_ptr()).unwrap().node, NodeId(2));
    object.free(&cache);
    cache.destroy().unwrap();
    memory.drain_all().unwrap();
    assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
}
