//! Objects on real memory, real threads and real CPUs.

mod flow;
mod forks;
mod hotplug;
mod load;
mod misuse;
mod pressure;

use nearpage::units::{CpuId, NodeId};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryBuilder};

/// The CPUs that the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<CpuId> {
    // SAFETY: an empty set is all zeroes; the call writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let ids = (0..libc::CPU_SETSIZE as u32).map(CpuId);
        ids.filter(|cpu| libc::CPU_ISSET(cpu.0 as usize, &set)).collect()
    }
}

/// Lets the calling thread run on these CPUs only.
pub fn restrict(cpus: &[CpuId]) {
    // SAFETY: an empty set is all zeroes; the call reads it, and changes only where the thread runs.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(cpu.0 as usize, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    assert_eq!(answer, 0);
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
