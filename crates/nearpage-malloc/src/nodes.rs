//! The nodes that memory comes from: the kernel's, or emulated ones.
//!
//! A malloc starts in every process, also in those that live for a millisecond. Of a machine it needs the nodes, their CPUs
//! and distances, four small files; what else /sys tells is left unread. If something is not as expected, the full reader of
//! nearpage's machines looks.

use std::num::NonZeroU16;

use nearpage::{CpuId, NodeId};
use nearpage_linux::{Environment, HostMachine, HostNode, MemoryError, Nodes};

use crate::options::Options;

/// Where the kernel tells about nodes.
const FOLDER: &str = "/sys/devices/system/node";

/// The machine of the options, of the kernel, or if /sys tells nothing, one node with all of `cpus` CPUs.
pub(crate) fn machine(options: &Options, cpus: usize) -> Result<HostMachine, MemoryError> {
    let mut environment = Environment::default();
    if let Some(count) = NonZeroU16::new(options.fake) {
        environment.nodes = Nodes::Shares(count);
        return Ok(environment.machine()?);
    }
    let read = |path: &str| std::fs::read_to_string(format!("{FOLDER}/{path}")).ok();
    if let Some(machine) = kernel_machine(read) {
        return Ok(machine);
    }
    Ok(environment.machine().unwrap_or_else(|_| {
        let cpus = (0..cpus as u32).map(CpuId).collect();
        let node = HostNode { id: NodeId(0), cpus, has_memory: true };
        HostMachine { nodes: vec![node], distances: vec![10], emulated: true }
    }))
}

/// The kernel's nodes; `None` if a file is missing or says something else than expected.
fn kernel_machine(read: impl Fn(&str) -> Option<String>) -> Option<HostMachine> {
    let online = list(&read("online")?)?;
    let with_memory = list(&read("has_memory").or_else(|| read("has_normal_memory"))?)?;
    let mut nodes = Vec::with_capacity(online.len());
    let mut distances = Vec::with_capacity(online.len() * online.len());
    for id in &online {
        let cpus = list(&read(&format!("node{id}/cpulist"))?)?.into_iter().map(CpuId).collect();
        let has_memory = with_memory.contains(id);
        nodes.push(HostNode { id: NodeId(*id), cpus, has_memory });
        let row: Option<Vec<u8>> = read(&format!("node{id}/distance"))?
            .split_whitespace()
            .map(|way| way.parse().ok())
            .collect();
        distances.extend(row.filter(|row| row.len() == online.len())?);
    }
    let has_any = nodes.iter().any(|node| node.has_memory && !node.cpus.is_empty());
    has_any.then_some(HostMachine { nodes, distances, emulated: false })
}

/// A list as the kernel writes it: `0-3,8`, rising, or nothing.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut all: Vec<u32> = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 1 << 16 || all.last().is_some_and(|before| *before >= first) {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_sees_what_the_full_reader_sees() {
        let read = |path: &str| std::fs::read_to_string(format!("{FOLDER}/{path}")).ok();
        let Some(machine) = kernel_machine(read) else {
            eprintln!("SKIPPED: /sys tells nothing of nodes here");
            return;
        };
        assert_eq!(machine, Environment::default().machine().unwrap());
    }

    #[test]
    fn a_machine_with_a_gap_and_a_node_without_memory() {
        let read = |path: &str| {
            let text = match path {
                "online" => "0,4-5\n",
                "has_memory" => "0,5\n",
                "node0/cpulist" => "0-1,8\n",
                "node4/cpulist" => "2\n",
                "node5/cpulist" => "\n",
                "node0/distance" => "10 20 30\n",
                "node4/distance" => "20 10 30\n",
                "node5/distance" => "30 30 10\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let machine = kernel_machine(read).unwrap();
        let of = |node: &HostNode| (node.id.0, node.cpus.len(), node.has_memory);
        let nodes: Vec<_> = machine.nodes.iter().map(of).collect();
        assert_eq!(nodes, [(0, 3, true), (4, 1, false), (5, 0, true)]);
        assert_eq!(machine.distances, [10, 20, 30, 20, 10, 30, 30, 30, 10]);
    }

    #[test]
    fn what_is_not_as_expected_is_left_to_the_full_reader() {
        for wrong in ["x", "3-1", "1,0", "0-", "-1", "0-99999999"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        assert_eq!(list("\n"), Some(Vec::new()));
        let short_row = |path: &str| match path {
            "online" | "has_memory" => Some("0-1".to_owned()),
            "node0/cpulist" | "node1/cpulist" => Some("0".to_owned()),
            _ => Some("10".to_owned()),
        };
        assert_eq!(kernel_machine(short_row), None);
        assert_eq!(kernel_machine(|_| None), None);
    }
}
