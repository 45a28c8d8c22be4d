//! CPUs on nodes without memory, as they are now and as they were before 2010, beside CPUs on nodes with memory: emulated
//! nodes, real threads.

use nearpage::NodeId;
use nearpage_linux::{HostMachine, HostNode};
use nearpage_slab::{LocalNode, SlabConfig};

use super::ObjectEffort;
use super::nearpage::{Caches, slab};
use super::work::{OBJECT_BYTES, pair};
use crate::fact::Fact;
use crate::nearpage::builder;
use crate::sample::{Bench, Key, Sample};
use crate::workers::{Workers, allowed_cpus};

const NODE_BYTES: u64 = 256 << 20;

/// Machines that differ in where the memory is.
pub struct Machines {
    near: &'static Caches,
    memoryless: &'static Caches,
    memoryless_old: &'static Caches,
}

/// Two nodes, all CPUs on the first; one of them has memory.
fn caches(near: bool, local: LocalNode) -> Result<&'static Caches, String> {
    let cpus = allowed_cpus().map_err(|error| error.to_string())?;
    let nodes = vec![
        HostNode { id: NodeId(0), cpus, has_memory: near },
        HostNode { id: NodeId(1), cpus: Vec::new(), has_memory: true },
    ];
    let machine = HostMachine { nodes, distances: vec![10, 20, 20, 10], emulated: true };
    let builder = builder()?.machine(machine).bytes_per_node(NODE_BYTES);
    let slab = slab(builder, SlabConfig::default().with_local(local))?;
    Ok(Box::leak(Box::new(Caches::new(slab)?)))
}

impl Machines {
    /// Makes the machines.
    pub fn build() -> Result<Self, String> {
        Ok(Self {
            near: caches(true, LocalNode::NearestMemory)?,
            memoryless: caches(false, LocalNode::NearestMemory)?,
            memoryless_old: caches(false, LocalNode::OwnNode)?,
        })
    }

    /// Pairs on all of them, by all threads.
    pub fn measure(&self, workers: &Workers, effort: &ObjectEffort) -> Vec<Sample> {
        let threads = workers.count();
        let pair = |bench, caches| {
            let key = Key { bench, threads, n: OBJECT_BYTES };
            pair::<Caches, OBJECT_BYTES>(caches, workers, key, effort)
        };
        vec![
            pair(Bench::ObjPairNear, self.near),
            pair(Bench::ObjPairMemoryless, self.memoryless),
            pair(Bench::ObjPairMemorylessOld, self.memoryless_old),
        ]
    }

    /// How many allocations in a hundred the stacks of CPUs served.
    pub fn hits(&self, fact: &mut dyn FnMut(&'static str, f64)) {
        let hits = |caches: &Caches| {
            let stats = caches.of::<OBJECT_BYTES>().stats();
            let all = stats.alloc_hits + stats.alloc_misses;
            100.0 * stats.alloc_hits as f64 / all.max(1) as f64
        };
        fact(Fact::MEMORYLESS_HITS_PERCENT, hits(self.memoryless));
        fact(Fact::MEMORYLESS_OLD_HITS_PERCENT, hits(self.memoryless_old));
    }
}
