//! Memory is short: what caches keep goes back, also from within an allocation of a cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nearpage::{Gfp, NodeId, Order, PageCount, Request};
use nearpage_linux::{KmemCache, Memory, Reclaim, ReclaimOptions, Shrinker, SlabAllocator};
use nearpage_slab::{CacheOptions, SlabConfig};

use super::load::Stop;
use super::{allowed_cpus, restrict};

/// Gives back what the caches of a slab allocator keep.
#[derive(Default)]
struct Caches(OnceLock<&'static SlabAllocator<'static>>);

impl Shrinker for Caches {
    fn shrink(&self, _node: NodeId, _pages: PageCount) -> PageCount {
        self.0.get().map_or(PageCount(0), |slab| slab.shrink_all())
    }
}

fn slabs(cache: &KmemCache<'_>, memory: &Memory) -> u64 {
    let nodes = memory.topology().nodes().iter();
    nodes.map(|node| cache.node_stats(node.id).unwrap().slabs).sum()
}

#[test]
fn what_caches_keep_goes_back_when_memory_is_short() {
    for use_rseq in [true, false] {
        let (reclaim, caches) = (Reclaim::new(), Arc::<Caches>::default());
        reclaim.add_shrinker(caches.clone());
        let builder = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq);
        // A shrinker lives as long as it likes, so what it shrinks does.
        let memory: &'static Memory =
            Box::leak(Box::new(builder.pressure(reclaim.clone()).build().unwrap()));
        let slab: &'static _ = Box::leak(Box::new(memory.slab(SlabConfig::default()).unwrap()));
        caches.0.set(slab).expect("set once");
        let idle = slab.create(CacheOptions::new("idle", 512)).unwrap();
        let objects: Vec<_> = (0..1000).map(|_| idle.alloc(Gfp::KERNEL).unwrap()).collect();
        // SAFETY: just allocated, and freed once.
        objects.into_iter().for_each(|object| unsafe { idle.free(object) }.unwrap());
        assert!(slabs(&idle, memory) > 0);
        // The busy cache asks for pages until there are none.
        let busy = slab.create(CacheOptions::new("busy", 2048)).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| busy.alloc(Gfp::KERNEL).ok()).collect();
        assert!(reclaim.counts().stalls > 0);
        assert_eq!(slabs(&idle, memory), 0, "{}", memory.storage());
        let page = Request::new(Order(0), Gfp::KERNEL);
        assert!(memory.alloc_frames(page).is_err());
        // SAFETY: just allocated, and freed once.
        held.into_iter().for_each(|object| unsafe { busy.free(object) }.unwrap());
        assert_eq!(slab.check().unwrap().held, 0);
        slab.shrink_all();
        memory.drain_all().unwrap();
        assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The background thread reaps caches that nobody told it of.
#[test]
fn idle_caches_are_reaped_by_the_background_thread() {
    // Each takes two periods of the reaper.
    std::thread::scope(|scope| {
        for use_rseq in [true, false] {
            scope.spawn(move || idle_caches_are_reaped(use_rseq));
        }
    });
}

fn idle_caches_are_reaped(use_rseq: bool) {
    let reclaim = Reclaim::new();
    let builder = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq);
    let memory = Arc::new(builder.pressure(reclaim.clone()).build().unwrap());
    let options = ReclaimOptions { interval: Duration::from_millis(20), trims: false };
    let _thread = reclaim.start(&memory, options).unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let idle = slab.create(CacheOptions::new("idle", 4096)).unwrap();
    let objects: Vec<_> = (0..20).map(|_| idle.alloc(Gfp::KERNEL).unwrap()).collect();
    // SAFETY: just allocated, and freed once.
    objects.into_iter().for_each(|object| unsafe { idle.free(object) }.unwrap());
    let came_home = || {
        let nodes = memory.topology().nodes().iter();
        let stats = nodes.map(|node| idle.node_stats(node.id).unwrap());
        stats.map(|stats| stats.objects_free + stats.reaped).sum::<u64>()
    };
    let before = came_home();
    wait_until("nobody reaps", || came_home() > before);
}

/// The walker puts objects of stacks into slabs for a while: who reaps must not take them from there.
#[test]
fn upkeep_waits_for_the_walker() {
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("walked", 256)).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = (slab.reap(), slab.shrink_all(), slab.apply_budget());
                }
            });
            let _stop = Stop(&stop);
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                let held: Vec<_> = (0..500).map(|_| cache.alloc(Gfp::KERNEL).unwrap()).collect();
                // SAFETY: just allocated, and freed once.
                held.into_iter().for_each(|object| unsafe { cache.free(object) }.unwrap());
                for _ in 0..10 {
                    assert_eq!(cache.check().unwrap().held, 0);
                    assert_eq!(slab.check().unwrap().held, 0);
                }
            }
        });
        assert_eq!(memory.misuses(), 0);
    }
}

/// A request that finds nothing has caches give back what they keep, with nobody's help.
#[test]
fn what_caches_keep_is_given_to_who_finds_no_memory() {
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq).build().unwrap();
        // It may move before it has a slab allocator, and not after.
        let moved = Box::new(memory);
        let slab = moved.slab(SlabConfig::default()).unwrap();
        let idle = slab.create(CacheOptions::new("idle", 512)).unwrap();
        let objects: Vec<_> = (0..1000).map(|_| idle.alloc(Gfp::KERNEL).unwrap()).collect();
        // SAFETY: just allocated, and freed once.
        objects.into_iter().for_each(|object| unsafe { idle.free(object) }.unwrap());
        assert!(slabs(&idle, &moved) > 0);
        let page = Request::new(Order(0), Gfp::KERNEL);
        let held: Vec<_> = std::iter::from_fn(|| moved.alloc(page).ok()).collect();
        assert_eq!(slabs(&idle, &moved), 0, "{}", moved.storage());
        drop(held);
        idle.destroy().unwrap();
        drop(slab);
        moved.drain_all().unwrap();
        assert_eq!((moved.check().unwrap().allocated.0, moved.misuses()), (0, 0));
    }
}

#[test]
fn a_memory_that_moved_away_from_a_forgotten_slab_allocator_goes_on() {
    let mut memory = Memory::builder().bytes_per_node(32 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    slab.create(CacheOptions::new("forgotten", 64)).unwrap();
    std::mem::forget(slab);
    let other = Memory::builder().bytes_per_node(16 << 20).build().unwrap();
    let moved = std::mem::replace(&mut memory, other);
    let moved = Box::new(moved);
    let page = Request::new(Order(0), Gfp::KERNEL);
    let held: Vec<_> = std::iter::from_fn(|| moved.alloc(page).ok()).collect();
    assert!(held.len() > 1000);
}

#[test]
fn a_new_budget_is_kept_at_once() {
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("kept", 1024)).unwrap();
        let objects: Vec<_> = (0..2000).map(|_| cache.alloc(Gfp::KERNEL).unwrap()).collect();
        // SAFETY: just allocated, and freed once.
        objects.into_iter().for_each(|object| unsafe { cache.free(object) }.unwrap());
        let kept = || {
            let checked = cache.check().unwrap();
            (checked.in_stacks + checked.shared) * 1024
        };
        let before = kept();
        let settings = memory.settings().with(|changed| changed.pageset_budget_kbytes = Some(32));
        memory.set_settings(settings).unwrap();
        assert!(slab.stack_bytes_max() <= 16 << 10 && kept() <= 16 << 10 && kept() < before);
        cache.destroy().unwrap();
    }
}

/// What another CPU freed stands in its stack: reclaim brings it home, and who reclaimed gets it.
#[test]
fn what_another_cpu_freed_is_had_before_memory_is_out() {
    let [first, second, ..] = allowed_cpus()[..] else {
        println!("SKIPPED: what_another_cpu_freed_is_had_before_memory_is_out: one CPU");
        return;
    };
    let (reclaim, caches) = (Reclaim::new(), Arc::<Caches>::default());
    reclaim.add_shrinker(caches.clone());
    let builder = Memory::builder().bytes_per_node(16 << 20).pressure(reclaim);
    let memory: &'static Memory = Box::leak(Box::new(builder.build().unwrap()));
    let slab: &'static _ = Box::leak(Box::new(memory.slab(SlabConfig::default()).unwrap()));
    caches.0.set(slab).expect("set once");
    let cache = slab.create(CacheOptions::new("packets", 2048)).unwrap();
    let take_all = || -> Vec<_> { std::iter::from_fn(|| cache.alloc(Gfp::KERNEL).ok()).collect() };
    restrict(&[first]);
    let mut held = take_all();
    for freed in [1, 8, 33, 200] {
        // Every other one: no page comes back.
        let given: Vec<_> = (0..freed).map(|at| held.swap_remove(2 * at)).collect();
        restrict(&[second]);
        // SAFETY: held until now, and freed once.
        given.into_iter().for_each(|object| unsafe { cache.free(object) }.unwrap());
        restrict(&[first]);
        let got = take_all();
        assert_eq!(got.len(), freed);
        held.extend(got);
    }
    // SAFETY: held until now, and freed once.
    held.into_iter().for_each(|object| unsafe { cache.free(object) }.unwrap());
    assert_eq!(slab.check().unwrap().held, 0);
}
