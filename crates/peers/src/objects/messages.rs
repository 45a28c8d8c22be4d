//! How often list locks are taken for a message of hackbench: a sender allocates one object of 232 bytes and one of
//! 1024, a receiver on another CPU frees them; both CPUs are on nodes without memory. With Linux's limits of 2.6.35.

use std::ptr::NonNull;

use nearpage::{Gfp, NodeId};
use nearpage_linux::{HostMachine, HostNode, KmemCache};
use nearpage_slab::{CacheOptions, LocalNode, SlabConfig};

use super::nearpage::slab;
use crate::nearpage::builder;
use crate::workers::{Workers, allowed_cpus};

const NODE_BYTES: u64 = 128 << 20;
const WITH_MEMORY: NodeId = NodeId(2);
/// A sender writes so many before the receiver runs.
const MESSAGES_AT_ONCE: usize = 20;
const WARM_UP: usize = 100;
const ROUNDS: usize = 1000;

/// List-lock acquisitions a message, or why they cannot be counted.
pub fn list_locks(workers: &Workers, local: LocalNode) -> Result<f64, String> {
    if workers.count() < 2 {
        return Err("one CPU".to_owned());
    }
    let caches: &'static [KmemCache<'static>; 2] = Box::leak(Box::new(caches(local)?));
    let locks = || -> u64 {
        let stats = caches.iter().filter_map(|cache| cache.node_stats(WITH_MEMORY));
        stats.map(|stats| stats.list_locks).sum()
    };
    (0..WARM_UP).for_each(|_| exchange(workers, caches));
    let before = locks();
    (0..ROUNDS).for_each(|_| exchange(workers, caches));
    Ok((locks() - before) as f64 / (ROUNDS * MESSAGES_AT_ONCE) as f64)
}

fn caches(local: LocalNode) -> Result<[KmemCache<'static>; 2], String> {
    let cpus = allowed_cpus().map_err(|error| error.to_string())?;
    let (sender, others) = cpus.split_at(1);
    let node = |id, cpus: &[_], has_memory| HostNode { id, cpus: cpus.to_vec(), has_memory };
    let nodes = vec![
        node(NodeId(0), sender, false),
        node(NodeId(1), others, false),
        node(WITH_MEMORY, &[], true),
    ];
    let distances = vec![10, 20, 20, 20, 10, 20, 20, 20, 10];
    let machine = HostMachine { nodes, distances, emulated: true };
    let builder = builder()?.machine(machine).bytes_per_node(NODE_BYTES);
    let slab = slab(builder, SlabConfig::LINUX_2_6_35.with_local(local))?;
    let cache =
        |name, size| slab.create(CacheOptions::new(name, size)).map_err(|error| error.to_string());
    Ok([cache("skbuff_head_cache", 232)?, cache("size-1024", 1024)?])
}

/// Some messages from the first thread to the second.
fn exchange(workers: &Workers, caches: &'static [KmemCache<'static>; 2]) {
    let send = |cache: &KmemCache<'_>| -> Vec<usize> {
        let object =
            || cache.alloc(Gfp::KERNEL).expect("there is memory").expose_provenance().get();
        (0..MESSAGES_AT_ONCE).map(|_| object()).collect()
    };
    let sent = workers.on_each(1, move |_| caches.each_ref().map(send)).remove(0);
    workers.on_each(2, move |number| {
        if number == 0 {
            return;
        }
        for (cache, objects) in caches.iter().zip(&sent) {
            for &object in objects {
                let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object));
                // SAFETY: allocated by the sender, and freed here only.
                unsafe { cache.free(object.expect("an object")) }.expect("an object of the cache");
            }
        }
    });
}
