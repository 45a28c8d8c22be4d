//! A recorded machine with another number of CPUs, in short form.

use nearpage::{NodeBuf, TopologyBuf};

/// The nodes, with `cpus` CPUs dealt out over those that have any, and `times` as much memory.
pub(super) fn nodes(topology: &TopologyBuf, page_shift: u32, cpus: u32, times: u32) -> Vec<String> {
    let nodes = &topology.nodes;
    let with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty()).count().max(1) as u32;
    let (mut next, mut turn) = (0, 0);
    let node = |node: &NodeBuf| {
        let pages: u64 = node.memory.iter().map(|range| range.pages().0).sum();
        let kib = (pages << page_shift) / 1024 * u64::from(times);
        if node.cpus.is_empty() {
            return format!("{kib}K");
        }
        let count = cpus / with_cpus + u32::from(turn < cpus % with_cpus);
        turn += 1;
        let first = next;
        next += count;
        match count {
            0 => format!("{kib}K"),
            _ => format!("{kib}K,cpus={first}-{}", next - 1),
        }
    };
    nodes.iter().map(node).collect()
}

/// The distances; nodes are numbered from 0.
pub(super) fn distances(topology: &TopologyBuf) -> Vec<String> {
    let count = topology.nodes.len();
    let entry = |at: usize| format!("{},{}={}", at / count, at % count, topology.distances[at]);
    (0..count * count).filter(|at| at / count != at % count).map(entry).collect()
}
