//! Objects on real memory, real threads and real CPUs.

mod flow;
mod forks;
mod hotplug;
mod load;
mod misuse;
mod pressure;

use nearpage::{CpuId, NodeId};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryBuilder};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<CpuId> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(|cpu| CpuId(cpu as u32)).collect()
}

/// Lets the calling thread run on these CPUs only.
pub fn restrict(cpus: &[CpuId]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu.0 as usize));
    sched_setaffinity(None, &set).unwrap();
}

/// A CPU with memory, the other CPUs without, and memory without a CPU; a reserve to grow into.
pub fn three_nodes() -> MemoryBuilder {
    let cpus = allowed_cpus();
    let (first, others) = cpus.split_at(1);
    let node = |id, cpus: &[CpuId], has_memory| HostNode {
        id: NodeId(id),
        cpus: cpus.to_vec(),
        has_memory,
    };
    let machine = HostMachine {
        nodes: vec![node(0, first, true), node(3, others, false), node(8, &[], true)],
        distances: vec![10, 21, 31, 21, 10, 15, 31, 15, 10],
        emulated: true,
    };
    Memory::builder().machine(machine).bytes_per_node(64 << 20)
}

/// A number from the environment.
pub fn number(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => {
            value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number is accepted"))
        }
        Err(_) => usual,
    }
}
