//! The files that a memory offers: names as below `/`, contents in the kernel's formats, of this memory alone.

use std::fmt::Write;

use nearpage::{CpuId, Node, NodeId, PageCount, ZoneKind};
use nearpage_machine::idlist;
use nearpage_machine::stats_socket::Request;

use super::document;
use crate::frame::FRAME_SHIFT;
use crate::memory::Memory;

/// A file, by its name.
type File = (&'static str, fn(&Memory) -> Option<String>);

/// The files that are not of one node.
const FILES: [File; 23] = [
    ("proc/zoneinfo", |memory| Some(memory.zoneinfo())),
    ("proc/buddyinfo", |memory| Some(memory.buddyinfo())),
    ("proc/pagetypeinfo", |memory| Some(memory.pagetypeinfo())),
    ("proc/vmstat", |memory| Some(memory.vmstat())),
    ("proc/slabinfo", Memory::slabinfo_if_any),
    ("proc/meminfo", |memory| Some(meminfo(memory))),
    ("proc/sys/kernel/osrelease", |_| {
        Some(concat!("nearpage-", env!("CARGO_PKG_VERSION"), "\n").into())
    }),
    ("proc/sys/vm/min_free_kbytes", |memory| Some(line(memory.min_free_kbytes()))),
    ("proc/sys/vm/watermark_scale_factor", |memory| {
        Some(line(memory.settings().watermark_scale_factor))
    }),
    ("proc/sys/vm/watermark_boost_factor", |memory| {
        Some(line(memory.settings().watermark_boost_factor))
    }),
    ("proc/sys/vm/lowmem_reserve_ratio", |memory| Some(lowmem_reserve_ratio(memory))),
    ("proc/sys/vm/percpu_pagelist_high_fraction", |memory| {
        Some(line(memory.settings().percpu_pagelist_high_fraction))
    }),
    ("proc/sys/vm/zone_reclaim_mode", |memory| Some(line(memory.settings().node_reclaim_mode))),
    ("sys/devices/system/node/online", |memory| Some(nodes(memory, |_, _| true))),
    ("sys/devices/system/node/possible", |memory| Some(nodes(memory, |_, _| true))),
    ("sys/devices/system/node/has_cpu", |memory| {
        Some(nodes(memory, |_, node| !node.cpus.is_empty()))
    }),
    ("sys/devices/system/node/has_memory", |memory| Some(nodes(memory, has_memory))),
    ("sys/devices/system/node/has_normal_memory", |memory| Some(nodes(memory, has_memory))),
    ("sys/devices/system/cpu/online", |memory| Some(cpus(memory))),
    ("sys/devices/system/cpu/possible", |memory| Some(cpus(memory))),
    ("sys/devices/system/cpu/present", |memory| Some(cpus(memory))),
    ("nearpage/fallbacks", |memory| Some(memory.fallbacks_text())),
    ("nearpage/memory.json", |memory| Some(document::of(memory))),
];

const NODES: &str = "sys/devices/system/node/node";

/// The files of each node.
const OF_NODE: [(&str, fn(&Memory, NodeId) -> Option<String>); 4] = [
    ("cpulist", |memory, id| Some(cpulist(node(memory, id)?.cpus))),
    ("distance", distance),
    ("meminfo", node_meminfo),
    ("numastat", |memory, id| memory.numastat(id)),
];

/// What a request gets: the text, or `None` if there is no such file.
pub(super) fn answer(memory: &Memory, request: Request<'_>) -> Option<String> {
    match request {
        Request::Files => Some(names(memory)),
        Request::File(name) => content(memory, name),
    }
}

fn names(memory: &Memory) -> String {
    let mut text = String::new();
    for (name, content) in FILES {
        // Only a memory with objects has slabinfo.
        if name != "proc/slabinfo" || content(memory).is_some() {
            let _ = writeln!(text, "{name}");
        }
    }
    for node in memory.topology().nodes() {
        for (name, _) in OF_NODE {
            let _ = writeln!(text, "{NODES}{}/{name}", node.id.0);
        }
    }
    text
}

fn content(memory: &Memory, name: &str) -> Option<String> {
    if let Some((_, content)) = FILES.iter().find(|(other, _)| *other == name) {
        return content(memory);
    }
    let (id, file) = name.strip_prefix(NODES)?.split_once('/')?;
    let (_, content) = OF_NODE.iter().find(|(other, _)| *other == file)?;
    content(memory, NodeId(id.parse().ok()?))
}

fn line(value: impl std::fmt::Display) -> String {
    format!("{value}\n")
}

fn node(memory: &Memory, id: NodeId) -> Option<&Node<'_>> {
    memory.topology().nodes().iter().find(|node| node.id == id)
}

fn has_memory(memory: &Memory, node: &Node<'_>) -> bool {
    memory.managed_pages(node.id).0 > 0
}

fn nodes(memory: &Memory, is_meant: impl Fn(&Memory, &Node<'_>) -> bool) -> String {
    let nodes = memory.topology().nodes().iter().filter(|node| is_meant(memory, node));
    let ids: Vec<u32> = nodes.map(|node| node.id.0).collect();
    line(idlist::format(&ids))
}

fn cpus(memory: &Memory) -> String {
    let mut cpus: Vec<CpuId> =
        memory.topology().nodes().iter().flat_map(|node| node.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    cpulist(&cpus)
}

fn cpulist(cpus: &[CpuId]) -> String {
    let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    line(idlist::format(&ids))
}

fn distance(memory: &Memory, id: NodeId) -> Option<String> {
    let topology = memory.topology();
    let from = topology.index_of(id)?;
    let row: Vec<String> =
        topology.indexes().map(|to| topology.distance(from, to).to_string()).collect();
    Some(line(row.join(" ")))
}

fn kib(pages: PageCount) -> u64 {
    pages.to_bytes(FRAME_SHIFT) >> 10
}

fn node_meminfo(memory: &Memory, id: NodeId) -> Option<String> {
    let index = node(memory, id)?.id.0;
    let (total, free) = (kib(memory.managed_pages(id)), kib(memory.free_pages(id)));
    let mut text = String::new();
    for (name, value) in
        [("MemTotal", total), ("MemFree", free), ("MemUsed", total.saturating_sub(free))]
    {
        let _ = writeln!(text, "Node {index} {:<15} {value:>8} kB", format!("{name}:"));
    }
    Some(text)
}

/// `MemAvailable` is what is free above the `low` marks: a request gets it without waiting. Tools want the other lines, and
/// an allocator has none of what they count.
fn meminfo(memory: &Memory) -> String {
    let ids = || memory.topology().nodes().iter().map(|node| node.id);
    let sum = |of: &dyn Fn(NodeId) -> u64| ids().map(of).sum::<u64>();
    let available =
        |id| kib(PageCount(memory.free_pages(id).0.saturating_sub(memory.watermarks(id).low.0)));
    let mut text = String::new();
    for (name, value) in [
        ("MemTotal", sum(&|id| kib(memory.managed_pages(id)))),
        ("MemFree", sum(&|id| kib(memory.free_pages(id)))),
        ("MemAvailable", sum(&available)),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Shmem", 0),
        ("SReclaimable", 0),
    ] {
        let _ = writeln!(text, "{:<15} {value:>8} kB", format!("{name}:"));
    }
    text
}

fn lowmem_reserve_ratio(memory: &Memory) -> String {
    let ratio = memory.settings().lowmem_reserve_ratio;
    let of_zones: Vec<String> =
        ratio.iter().take(ZoneKind::COUNT).map(ToString::to_string).collect();
    line(of_zones.join("\t"))
}
