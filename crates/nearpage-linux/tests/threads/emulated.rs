//! Stress on machines that are not this one.

use nearpage::{CpuId, Model, NodeId};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryBuilder};

use super::affinity;
use super::stress::stress_memory;

fn node(id: u32, cpus: &[CpuId], has_memory: bool) -> HostNode {
    HostNode { id: NodeId(id), cpus: cpus.to_vec(), has_memory }
}

/// A CPU with memory, a CPU without, and memory without a CPU.
fn three_nodes() -> MemoryBuilder {
    let cpus = affinity::allowed_cpus();
    let (first, others) = cpus.split_at(1);
    let machine = HostMachine {
        nodes: vec![node(0, first, true), node(3, others, false), node(8, &[], true)],
        distances: vec![10, 21, 31, 21, 10, 31, 31, 31, 10],
        emulated: true,
    };
    Memory::builder().machine(machine).bytes_per_node(32 << 20)
}

#[test]
fn three_nodes_with_rings() {
    stress_memory("three_nodes_with_rings", three_nodes().use_rseq(true), 80, 1.0);
}

#[test]
fn three_nodes_with_locks() {
    stress_memory("three_nodes_with_locks", three_nodes().use_rseq(false), 80, 1.0);
}

/// The same, where CPUs own pageblocks with maps.
#[test]
fn three_nodes_with_owned_pageblocks() {
    for (use_rseq, hardened) in [(true, false), (false, true)] {
        let builder = three_nodes().model(Model::NEARPAGE).use_rseq(use_rseq);
        stress_memory("three_nodes_with_owned_pageblocks", builder.hardened(hardened), 80, 0.7);
    }
}

/// All CPUs of this process but the first one came after the topology was read; another one went.
fn unknown_cpus() -> MemoryBuilder {
    let first = affinity::allowed_cpus()[0];
    let machine = HostMachine {
        nodes: vec![node(0, &[first, CpuId(70_000)], true)],
        distances: vec![10],
        emulated: true,
    };
    Memory::builder().machine(machine).bytes_per_node(32 << 20)
}

#[test]
fn unknown_cpus_with_rings() {
    stress_memory("unknown_cpus_with_rings", unknown_cpus().use_rseq(true), 80, 1.0);
}

#[test]
fn unknown_cpus_with_locks() {
    stress_memory("unknown_cpus_with_locks", unknown_cpus().use_rseq(false), 80, 1.0);
}

#[test]
fn unknown_cpus_with_owned_pageblocks() {
    for use_rseq in [true, false] {
        let builder = unknown_cpus().model(Model::NEARPAGE).use_rseq(use_rseq);
        stress_memory("unknown_cpus_with_owned_pageblocks", builder, 80, 0.7);
    }
}
