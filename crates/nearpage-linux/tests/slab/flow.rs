//! One thread allocates, another frees, without end: what is kept for it stays the same.
//!
//! `NEARPAGE_OBJECTS=100000000 cargo test -p nearpage-linux --test slab flow -- --nocapture` prints the
//! figure.

use std::ptr::NonNull;
use std::sync::mpsc::sync_channel;
use std::thread;

use nearpage::Gfp;
use nearpage_linux::Memory;
use nearpage_slab::{CacheOptions, SlabConfig};

use super::{allowed_cpus, number, restrict};

struct Batch(Vec<NonNull<u8>>);

// SAFETY: any thread may free an object.
unsafe impl Send for Batch {}

const BATCH: u64 = 256;
/// Batches on their way, at most.
const QUEUE: usize = 16;

#[test]
fn a_flow_holds_a_constant_footprint() {
    let batches = number("NEARPAGE_OBJECTS", 2_000_000) / BATCH;
    let memory = Memory::builder().bytes_per_node(256 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("flow", 64)).unwrap();
    let cpus = allowed_cpus();
    let (sender, receiver) = sync_channel(QUEUE);
    let slabs = || {
        memory
            .topology()
            .nodes()
            .iter()
            .map(|node| cache.node_stats(node.id).unwrap().slabs)
            .sum::<u64>()
    };
    let mut seen: Vec<u64> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            restrict(&cpus[..1]);
            for _ in 0..batches {
                let objects = (0..BATCH).map(|_| cache.alloc(Gfp::KERNEL).unwrap()).collect();
                sender.send(Batch(objects)).unwrap();
            }
            drop(sender);
        });
        restrict(&cpus[cpus.len() - 1..]);
        for (at, Batch(objects)) in receiver.into_iter().enumerate() {
            for object in objects {
                // SAFETY: the other thread gave it away.
                unsafe { cache.free(object) }.unwrap();
            }
            if (at as u64).is_multiple_of((batches / 100).max(1)) {
                seen.push(slabs());
            }
        }
        restrict(&cpus);
    });
    let (most, last) = (*seen.iter().max().unwrap(), *seen.last().unwrap());
    println!(
        "{} objects of 64 bytes flowed: {last} slabs at the end, {most} at most, {} kB of objects; stacks keep {} kB at most",
        batches * BATCH,
        most * 4,
        slab.stack_bytes_max() / 1024
    );
    // What the queue and both threads hold, and what the stacks and the free limit allow.
    let held = (QUEUE as u64 + 3) * BATCH * 64;
    let free_limit = (1 + cpus.len() as u64) * 60 * 64 + 4096;
    assert!(most * 4096 <= held + slab.stack_bytes_max() + free_limit + held / 2, "{seen:?}");
    assert_eq!(cache.check().unwrap().held, 0);
}
