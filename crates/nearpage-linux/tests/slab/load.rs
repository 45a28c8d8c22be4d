//! Threads that move, end, and free what others allocated, with upkeep from outside.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::{Gfp, Model, NodeId};
use nearpage_linux::{HostMachine, HostNode, KmemCache, Memory, MemoryBuilder, SlabAllocator};
use nearpage_slab::{CacheOptions, LocalNode, SlabConfig};

use super::{allowed_cpus, number, restrict, three_nodes};

/// An object with its stamp.
pub struct Stamped(NonNull<u64>, u64);

// SAFETY: any thread may use and free an object.
unsafe impl Send for Stamped {}

impl Stamped {
    pub fn new(cache: &KmemCache<'_>, stamp: u64) -> Option<Self> {
        Some(Self::stamp(cache.alloc(Gfp::KERNEL).ok()?, stamp))
    }

    fn on(cache: &KmemCache<'_>, node: NodeId, stamp: u64) -> Option<Self> {
        Some(Self::stamp(cache.alloc_node(Gfp::KERNEL, node).ok()?, stamp))
    }

    fn stamp(object: NonNull<u8>, stamp: u64) -> Self {
        let object = object.cast::<u64>();
        // SAFETY: the object is ours, of at least 8 bytes and aligned to 8.
        unsafe { object.write(stamp) };
        Self(object, stamp)
    }

    pub fn free(self, cache: &KmemCache<'_>) {
        // SAFETY: the object is ours since `stamp`.
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

/// What a program does from outside: reaps, shrinks, brings memory to the node that has none; and looks whether all is in
/// order, which it cannot know while others work, but must harm nobody.
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
            let _ = slab.memory().bring_online(NodeId(0), 1 << 20);
        }
        let _ = slab.check();
        assert!(slab.slabinfo().lines().count() >= 2);
        thread::sleep(Duration::from_millis(1));
    }
}

fn stress(builder: MemoryBuilder, config: SlabConfig) {
    let memory = builder.reserve_per_node(256 << 20).build().unwrap();
    let slab = memory.slab(config).unwrap();
    let caches: Vec<KmemCache<'_>> = [("small", 64), ("odd", 200), ("large", 3000)]
        .into_iter()
        .map(|(name, size)| slab.create(CacheOptions::new(name, size)).unwrap())
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
        let seconds = number("NEARPAGE_STRESS_SECONDS", 1);
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

/// Pages that go home in chains when slabs are freed.
#[test]
fn nothing_is_lost_where_cpus_own_pageblocks() {
    for use_rseq in [true, false] {
        let builder = three_nodes().model(Model::NEARPAGE).use_rseq(use_rseq);
        stress(builder, SlabConfig::default());
    }
}

#[test]
fn nothing_is_lost_hardened() {
    stress(three_nodes().hardened(true), SlabConfig::default());
}

#[test]
fn nothing_is_lost_as_before_2010() {
    let config = SlabConfig::LINUX_2_6_35.with_local(LocalNode::OwnNode);
    stress(three_nodes(), config);
}

#[test]
fn nothing_is_lost_with_sheaves() {
    stress(three_nodes(), SlabConfig::LINUX_7_0);
    stress(three_nodes(), SlabConfig::LINUX_7_1);
    stress(three_nodes().use_rseq(false), SlabConfig::LINUX_7_1);
}

/// The node of all CPUs, without memory at first.
const HOME: NodeId = NodeId(2);
/// The node where there is always some.
const HOST: NodeId = NodeId(7);

fn home_and_host(use_rseq: bool) -> Memory {
    let node = |id, cpus| HostNode { id, cpus, has_memory: true };
    let nodes = vec![node(HOME, allowed_cpus()), node(HOST, vec![])];
    let machine = HostMachine { nodes, distances: vec![10, 20, 20, 10], emulated: true };
    let builder = Memory::builder().machine(machine).use_rseq(use_rseq);
    let builder = builder.bytes_on(HOME, 0).bytes_on(HOST, 64 << 20);
    builder.reserve_per_node(128 << 20).build().unwrap()
}

/// A node without memory gets some while its CPUs allocate: from then on objects come from there, and those before
/// go home.
#[test]
fn memory_arrives_under_load() {
    let cpus = allowed_cpus();
    let memory = home_and_host(true);
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("arrival", 64)).unwrap();
    let effective = || slab.effective_node(cpus[0]).unwrap();
    assert_eq!(effective(), HOST);
    let (left, stop) = (Mutex::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, left, stop) = (&cache, &left, &stop);
            scope.spawn(move || work(cache, left, stop, thread));
        }
        let _stop = Stop(&stop);
        thread::sleep(Duration::from_millis(200));
        slab.memory().bring_online(HOME, 64 << 20).unwrap();
        let start = Instant::now();
        while effective() != HOME {
            // The CPUs of a crowded machine may be busy for a while.
            let refreshed = slab.refresh_nodes();
            assert!(start.elapsed() < Duration::from_secs(20), "{refreshed:?}");
        }
        thread::sleep(Duration::from_millis(200));
    });
    left.into_inner().unwrap().into_iter().for_each(|object: Stamped| object.free(&cache));
    assert_eq!(cache.check().unwrap().held, 0);
    let object = Stamped::new(&cache, 1).unwrap();
    assert_eq!(slab.owner(object.0.cast::<u8>().as_ptr()).unwrap().node, HOME);
    object.free(&cache);
    cache.destroy().unwrap();
    memory.drain_all().unwrap();
    assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
}

/// Bursts of objects, from home unless all are to leave it; half of each is left for another thread.
fn stay_or_leave(
    cache: &KmemCache<'_>,
    left: &Mutex<Vec<Stamped>>,
    [leave, stop]: [&AtomicBool; 2],
    thread: u64,
) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let stamp = thread << 32 | round;
        let leaves = leave.load(Ordering::Relaxed);
        let new = |_| match leaves {
            true => Stamped::on(cache, HOST, stamp),
            false => Stamped::new(cache, stamp),
        };
        let mut held: Vec<Stamped> = (0..round % 300).filter_map(new).collect();
        let half = held.split_off(held.len() / 2);
        let others = std::mem::replace(&mut *left.lock().unwrap(), half);
        held.into_iter().chain(others).for_each(|object| object.free(cache));
    }
}

/// Home gets memory and loses it again, as long as `time` and at least twice; returns how often, and how often it was in
/// use.
fn fill_and_empty(slab: &SlabAllocator<'_>, leave: &AtomicBool, time: Duration) -> [u32; 2] {
    let [mut times, mut in_use] = [0; 2];
    let effective = || slab.effective_node(allowed_cpus()[0]).unwrap();
    let begun = Instant::now();
    // On a crowded machine once may take longer than that.
    while begun.elapsed() < time || times < 2 {
        slab.memory().bring_online(HOME, 32 << 20).unwrap();
        while effective() != HOME {
            let _ = slab.refresh_nodes();
        }
        leave.store(false, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        leave.store(true, Ordering::Relaxed);
        while slab.memory().take_offline(HOME, 32 << 20).is_err() {
            in_use += 1;
            assert!(begun.elapsed() < Duration::from_secs(60), "home is never empty");
        }
        assert_eq!(slab.memory().managed_pages(HOME).0, 0);
        while effective() != HOST {
            let _ = slab.refresh_nodes();
        }
        times += 1;
    }
    [times, in_use]
}

fn emptied_and_refilled(use_rseq: bool) {
    let memory = home_and_host(use_rseq);
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("commuter", 200)).unwrap();
    let (left, stop) = (Mutex::default(), AtomicBool::new(false));
    let leave = AtomicBool::new(true);
    let [times, in_use] = thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, left, flags) = (&cache, &left, [&leave, &stop]);
            scope.spawn(move || stay_or_leave(cache, left, flags, thread));
        }
        let _stop = Stop(&stop);
        fill_and_empty(&slab, &leave, Duration::from_secs(number("NEARPAGE_STRESS_SECONDS", 1)))
    });
    println!("{}: home was filled and emptied {times} times, {in_use} refusals", memory.storage());
    left.into_inner().unwrap().into_iter().for_each(|object: Stamped| object.free(&cache));
    assert_eq!(cache.check().unwrap().held, 0);
    assert!(times > 1 && cache.node_stats(HOME).unwrap().grown > u64::from(times));
    cache.destroy().unwrap();
    memory.drain_all().unwrap();
    assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
}

#[test]
fn a_node_is_emptied_and_refilled_under_load() {
    emptied_and_refilled(true);
    emptied_and_refilled(false);
}
