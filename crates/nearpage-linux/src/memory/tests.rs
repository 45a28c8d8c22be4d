//! A memory as a whole.

use std::io;

use nearpage::{CpuId, Gfp, PageCount};
use rustix::io::Errno;

use super::*;
use crate::bind::BindMode;
use crate::error::MemoryError;
use crate::machine::{HostMachine, HostNode};

/// Two nodes, 0 and 3, of 64 MiB; all CPUs are on node 0.
pub(super) fn memory(use_rseq: bool) -> Memory {
    let cpus = (0..256).map(CpuId).collect();
    let near = HostNode { id: NodeId(0), cpus, has_memory: true };
    let far = HostNode { id: NodeId(3), cpus: Vec::new(), has_memory: true };
    let distances = vec![10, 20, 20, 10];
    let machine = HostMachine { nodes: vec![near, far], distances, emulated: true };
    let builder = Memory::builder().machine(machine).use_rseq(use_rseq);
    builder.bytes_per_node(64 << 20).build().unwrap()
}

fn value(text: &str, name: &str) -> u64 {
    let mut lines =
        text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
    lines.next().and_then(|value| value.trim().parse().ok()).expect(name)
}

#[test]
fn nothing_is_lost_or_counted_twice_by_many_threads() {
    const THREADS: u64 = 8;
    const BLOCKS: u64 = 100_000;
    for use_rseq in [true, false] {
        let memory = memory(use_rseq);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let memory = &memory;
                scope.spawn(move || {
                    let far = Request::new(Order(0), Gfp::KERNEL).on(NodeId(3));
                    let request = if thread % 2 == 0 { far } else { Request { node: None, ..far } };
                    // Bursts beyond what a list holds, and orders beyond what pagesets cache.
                    let mut held = Vec::new();
                    for block in 0..BLOCKS {
                        let order = if block % 64 == 0 { Order(4) } else { Order(0) };
                        held.push(memory.alloc(Request { order, ..request }).unwrap());
                        if block % 700 == 0 {
                            held.clear();
                        }
                    }
                });
            }
        });
        memory.check().unwrap();
        let (storage, text) = (memory.storage(), memory.vmstat());
        let large = BLOCKS.div_ceil(64);
        let pages = THREADS * (BLOCKS - large + 16 * large);
        assert_eq!(value(&text, "pgalloc_normal"), pages, "{storage}");
        assert_eq!(value(&text, "pgfree"), pages, "{storage}");
        let cached = value(&text, "nr_pcp_pages");
        assert_eq!(value(&text, "nr_free_pages") + cached, 2 * (64 << 20) / 4096, "{storage}");
        let (near, far) = (memory.numastat(NodeId(0)), memory.numastat(NodeId(3)));
        let (near, far) = (near.unwrap(), far.unwrap());
        let half = THREADS / 2 * BLOCKS;
        assert_eq!((value(&near, "numa_hit"), value(&near, "local_node")), (half, half));
        assert_eq!((value(&far, "numa_hit"), value(&far, "other_node")), (half, half));
    }
}

#[test]
fn blocks_are_cleared_if_asked() {
    for use_rseq in [true, false] {
        let memory = memory(use_rseq);
        let request = Request::new(Order(2), Gfp::KERNEL);
        let mut block = memory.alloc(request).unwrap();
        block.fill(7);
        let pfn = block.pfn();
        drop(block);
        let request = Request { gfp: request.gfp.union(Gfp::ZERO), ..request };
        let block = memory.alloc(request).unwrap();
        assert_eq!(block.pfn(), pfn, "the block that was freed last");
        assert!(block.iter().all(|byte| *byte == 0));
    }
}

/// No machine has node 1000, which is how a cpuset that forbids a node looks too.
#[test]
fn a_node_that_cannot_be_bound_says_why() {
    let node = HostNode { id: NodeId(1000), cpus: vec![CpuId(0)], has_memory: true };
    let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: false };
    let error = Memory::builder().machine(machine).bind(BindMode::Strict).build().unwrap_err();
    let is_refused = |what: &io::Error| Errno::from_io_error(what) == Some(Errno::INVAL);
    let MemoryError::CannotBind { node: NodeId(1000), error: what } = &error else {
        panic!("{error}");
    };
    let names_cpuset = error.to_string().contains("Mems_allowed_list");
    assert!(names_cpuset || !is_refused(what), "{error}");
    assert!(error.to_string().ends_with("the mode `advisory` goes on without"), "{error}");
}

/// What happens then is the setting's choice, not that of the build.
#[test]
fn a_block_that_was_freed_behind_its_back_is_reported() {
    let memory = memory(true);
    let block = memory.alloc_pages(1).unwrap();
    // SAFETY: nobody uses the block any more; that it still stands for the page is what is tested.
    unsafe { memory.free_frames(block.pfn(), block.order()) }.unwrap();
    drop(block);
    assert_eq!(memory.misuses(), 1);
    memory.check().unwrap();
}

#[test]
fn texts_are_of_this_memory() {
    let memory = memory(true);
    let _block = memory.alloc_pages(16).unwrap();
    let zoneinfo = memory.zoneinfo();
    assert_eq!(value(&zoneinfo, "managed"), 0);
    assert_eq!(zoneinfo.lines().filter(|line| line.starts_with("Node ")).count(), 10);
    assert_eq!(zoneinfo.matches("managed  16384\n").count(), 2);
    let buddyinfo = memory.buddyinfo();
    let ends: Vec<&str> = buddyinfo.lines().map(|line| line.trim_end()).collect();
    let (near, far) = ("     1      1      1     15", "     0      0      0     16");
    assert!(ends[0].starts_with("Node 0, zone   Normal ") && ends[0].ends_with(near), "{ends:?}");
    assert!(ends[1].starts_with("Node 3, zone   Normal ") && ends[1].ends_with(far), "{ends:?}");
    assert_eq!(memory.numastat(NodeId(1)), None);
}

#[test]
fn placement_is_sampled_over_what_is_online() {
    let machine = HostMachine::from(&nearpage_machine::read_this_machine().unwrap());
    let memory = Memory::builder().machine(machine).bytes_per_node(16 << 20).build().unwrap();
    let untouched = memory.verify_placement(100).unwrap();
    assert!(untouched.nodes.iter().all(|(_, placement)| placement.placed() == 0));
    let node = untouched.nodes[0].0;
    let all = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE)).on(node);
    let mut blocks = Vec::new();
    while let Ok(mut block) = memory.alloc(all) {
        block[0] = 1;
        blocks.push(block);
    }
    let placement = &memory.verify_placement(100).unwrap().nodes[0].1;
    assert!(placement.placed() > 90 && placement.placed() <= 100, "{placement:?}");
    assert_eq!(placement.placed() + placement.untouched, 100);
}

#[test]
fn pages_are_free_cached_or_held() {
    for use_rseq in [true, false] {
        let memory = memory(use_rseq);
        let (near, far) = (NodeId(0), NodeId(3));
        let blocks: Vec<_> = (0..100).map(|_| memory.alloc_pages(1).unwrap()).collect();
        memory.drain_all().unwrap();
        assert_eq!([near, far].map(|node| memory.free_pages(node).0), [16_284, 16_384]);
        assert_eq!([near, far].map(|node| memory.managed_pages(node).0), [16_384, 16_384]);
        assert_eq!(memory.managed_pages(NodeId(1)), PageCount(0));
        drop(blocks);
        let checked = memory.check().unwrap();
        assert_eq!(checked.free.0 + checked.cached.0, 2 * 16_384);
        assert!(checked.cached.0 > 0, "{checked:?}");
    }
}

/// More threads than this machine may have CPUs, each with a pageset of its own.
#[test]
fn threads_work_as_the_cpus_that_they_name() {
    thread_local! {
        static CPU: std::cell::Cell<CpuId> = const { std::cell::Cell::new(CpuId(0)) };
    }
    const CPUS: u32 = 64;
    let node = HostNode { id: NodeId(0), cpus: (0..CPUS).map(CpuId).collect(), has_memory: true };
    let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
    let builder = Memory::builder().machine(machine).bytes_per_node(64 << 20);
    let memory = builder.cpu_of_thread(|| CPU.get()).build().unwrap();
    std::thread::scope(|scope| {
        for cpu in (0..CPUS).step_by(2) {
            let memory = &memory;
            scope.spawn(move || {
                CPU.set(CpuId(cpu));
                memory.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
            });
        }
    });
    for cpu in 0..CPUS {
        let has_pages = memory.drain_cpu(CpuId(cpu)).unwrap() > PageCount(0);
        assert_eq!(has_pages, cpu % 2 == 0, "CPU {cpu}");
    }
}
