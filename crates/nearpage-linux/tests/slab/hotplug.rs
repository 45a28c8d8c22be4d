//! A node's memory goes and comes back, again and again, while threads allocate, free what others allocated, and move.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::{CpuId, Gfp, Model, NodeAccess, NodeId};
use nearpage_linux::{HostMachine, HostNode, KmemCache, Memory, SlabAllocator};
use nearpage_slab::{CacheOptions, SlabConfig};

use super::load::{Stamped, Stop};
use super::{allowed_cpus, restrict};

/// The node whose memory goes, with the first CPU; the others are of the node that stays.
const GUEST: NodeId = NodeId(2);
const STAYS: NodeId = NodeId(7);
const GUEST_BYTES: u64 = 32 << 20;
const ROUNDS: usize = 6;

/// One a CPU at least, so that somebody works on the first.
fn threads() -> usize {
    allowed_cpus().len().max(3)
}

fn memory(use_rseq: bool) -> Memory {
    memory_under(Model::NEARPAGE, use_rseq)
}

fn memory_under(model: Model, use_rseq: bool) -> Memory {
    let cpus = allowed_cpus();
    let (first, others) = cpus.split_at(1);
    let node = |id, cpus: &[CpuId]| HostNode { id, cpus: cpus.to_vec(), has_memory: true };
    let nodes = vec![node(GUEST, first), node(STAYS, others)];
    let machine = HostMachine { nodes, distances: vec![10, 20, 20, 10], emulated: true };
    let builder = Memory::builder().machine(machine).model(model).use_rseq(use_rseq);
    builder.bytes_per_node(GUEST_BYTES).build().unwrap()
}

/// Works until it shall stop; where the guest goes it neither runs nor keeps objects.
fn work(
    cache: &KmemCache<'_>,
    left: &Mutex<Vec<Stamped>>,
    leaving: &AtomicBool,
    stop: &AtomicBool,
) {
    let cpus = allowed_cpus();
    let (mut round, mut here) = (0, &cpus[..]);
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let allowed = if leaving.load(Ordering::Relaxed) { &cpus[1..] } else { &cpus[..] };
        let kept = if allowed.is_empty() { 0 } else { round as usize % 400 };
        if allowed.len() != here.len() && !allowed.is_empty() {
            restrict(allowed);
        }
        here = allowed;
        let mut held: Vec<Stamped> = (0..kept).filter_map(|_| Stamped::new(cache, round)).collect();
        let half = held.split_off(held.len() / 2);
        let others = std::mem::replace(&mut *left.lock().unwrap(), half);
        held.into_iter().chain(others).for_each(|object| object.free(cache));
        if allowed.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Repeats what a busy machine may refuse for a while.
fn soon(mut act: impl FnMut() -> bool, what: &str) {
    let start = Instant::now();
    while !act() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn effective_becomes(slab: &SlabAllocator<'_>, cpu: CpuId, node: NodeId) {
    let is_there = || {
        let _ = slab.refresh_nodes();
        slab.effective_node(cpu) == Some(node)
    };
    soon(is_there, "the CPU has its old node");
}

/// Takes the guest away and brings it back; returns how often it could not go.
fn plug(slab: &SlabAllocator<'_>, cache: &KmemCache<'_>, leaving: &AtomicBool) -> u64 {
    let cpu = allowed_cpus()[0];
    let slabs_of_guest = || cache.node_stats(GUEST).unwrap().slabs;
    let mut refused = 0;
    for _ in 0..ROUNDS {
        soon(|| slabs_of_guest() > 0, "the guest has no objects");
        leaving.store(true, Ordering::Relaxed);
        let is_gone = || {
            let answer = slab.memory().take_offline(GUEST, GUEST_BYTES);
            refused += u64::from(answer.is_err());
            answer.is_ok()
        };
        soon(is_gone, "the guest stays");
        assert_eq!((slabs_of_guest(), slab.memory().managed_pages(GUEST).0), (0, 0));
        effective_becomes(slab, cpu, STAYS);
        leaving.store(false, Ordering::Relaxed);
        // Its CPU works with the other node's memory.
        thread::sleep(Duration::from_millis(30));
        assert_eq!(slabs_of_guest(), 0);
        slab.memory().bring_online(GUEST, GUEST_BYTES).unwrap();
        effective_becomes(slab, cpu, GUEST);
    }
    refused
}

#[test]
fn a_node_is_emptied_and_refilled_while_threads_allocate() {
    let models = [Model::LINUX_6_18, Model::NEARPAGE];
    for (use_rseq, model) in
        [true, false].into_iter().flat_map(|use_rseq| models.map(|model| (use_rseq, model)))
    {
        let memory = memory_under(model, use_rseq);
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("guest", 64)).unwrap();
        let left = Mutex::default();
        let (leaving, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let threads = threads();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| work(&cache, &left, &leaving, &stop));
            }
            let _stop = Stop(&stop);
            let refused = plug(&slab, &cache, &leaving);
            println!("{}: gone {ROUNDS} times, refused {refused} times", memory.storage());
        });
        left.into_inner().unwrap().into_iter().for_each(|object: Stamped| object.free(&cache));
        let checked = cache.check().unwrap();
        assert_eq!(checked.held, 0);
        // With sequences, a thread may have been just putting an object back when its CPU got another node: one a thread
        // and change.
        let most = if use_rseq { threads * ROUNDS * 2 } else { 0 };
        assert!(checked.foreign <= most as u64, "{checked:?}");
        // On its CPU objects are the guest's again, but for those.
        restrict(&allowed_cpus()[..1]);
        if checked.foreign > 0 {
            cache.shrink().unwrap();
        }
        let object = cache.alloc(Gfp::KERNEL).unwrap();
        assert_eq!(slab.owner(object.as_ptr()).unwrap().node, GUEST);
        // SAFETY: just allocated, and freed once.
        unsafe { cache.free(object) }.unwrap();
        cache.destroy().unwrap();
        memory.drain_all().unwrap();
        assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
    }
}

#[test]
fn objects_follow_a_node_that_becomes_private() {
    for use_rseq in [true, false] {
        let memory = memory(use_rseq);
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("private", 64)).unwrap();
        let cpu = allowed_cpus()[0];
        restrict(&[cpu]);
        for (access, node) in [(NodeAccess::Private, STAYS), (NodeAccess::General, GUEST)] {
            memory.set_access(GUEST, access).unwrap();
            assert_eq!(slab.effective_node(cpu), Some(node), "the memory told the slab allocator");
            let object = cache.alloc(Gfp::KERNEL).unwrap();
            assert_eq!(slab.owner(object.as_ptr()).unwrap().node, node);
            // SAFETY: just allocated, and freed once.
            unsafe { cache.free(object) }.unwrap();
        }
        cache.destroy().unwrap();
    }
}

#[test]
fn cpus_are_switched_while_threads_allocate() {
    for use_rseq in [true, false] {
        let memory = memory(use_rseq);
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("switched", 64)).unwrap();
        let (left, cpus) = (Mutex::default(), allowed_cpus());
        let (leaving, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let most = slab.stack_bytes_max();
        thread::scope(|scope| {
            for _ in 0..threads() {
                scope.spawn(|| work(&cache, &left, &leaving, &stop));
            }
            let _stop = Stop(&stop);
            for round in 0..10 * ROUNDS {
                let cpu = cpus[round % cpus.len()];
                soon(|| slab.memory().offline_cpu(cpu).is_ok(), "the CPU stays on");
                assert!(slab.memory().offline_cpu(cpu).is_err());
                let is_counted = || slab.refresh_nodes().is_ok() && slab.stack_bytes_max() < most;
                soon(is_counted, "its stacks cannot be had");
                thread::sleep(Duration::from_millis(2));
                slab.memory().online_cpu(cpu).unwrap();
            }
        });
        left.into_inner().unwrap().into_iter().for_each(|object: Stamped| object.free(&cache));
        soon(|| slab.refresh_nodes().is_ok(), "the CPUs cannot be had");
        assert_eq!((cache.check().unwrap().held, slab.stack_bytes_max()), (0, most));
        cache.destroy().unwrap();
        memory.drain_all().unwrap();
        assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
    }
}
