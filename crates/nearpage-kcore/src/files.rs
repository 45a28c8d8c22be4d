//! What is read of a kernel, as the kernel itself prints it: files below `/`.

use std::fmt::Write;

use crate::state::{NodeState, State, ZoneState};

const PAGE_KIB: u64 = 4;
/// `/proc/pagetypeinfo` counts the blocks of a list no further.
const PAGEBLOCK_ORDER: u32 = 9;

impl State {
    /// Files of `/proc` and `/sys` with what was read, by their paths below `/`. What was not read has no line.
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut add = |path: &str, text: String| files.push((path.to_owned(), text));
        add("proc/zoneinfo", self.zoneinfo());
        add("proc/buddyinfo", self.buddyinfo());
        add("proc/pagetypeinfo", self.pagetypeinfo());
        add("proc/version", format!("Linux version {}\n", self.release));
        add("proc/sys/kernel/osrelease", format!("{}\n", self.release));
        for (name, values) in &self.settings {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            add(&format!("proc/sys/vm/{name}"), format!("{}\n", values.join("\t")));
        }
        let [total, free] =
            self.nodes.iter().map(memory_kib).fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
        add(
            "proc/meminfo",
            format!("MemTotal:       {total:>8} kB\nMemFree:        {free:>8} kB\n"),
        );
        add("sys/devices/system/cpu/online", list(self.cpus.iter().copied()));
        let folder = "sys/devices/system/node";
        let of = |keep: fn(&NodeState) -> bool| {
            list(self.nodes.iter().filter(|node| keep(node)).map(|node| node.id))
        };
        add(&format!("{folder}/online"), of(|_| true));
        add(&format!("{folder}/has_cpu"), of(|node| !node.cpus.is_empty()));
        add(&format!("{folder}/has_memory"), of(|node| memory_kib(node)[0] > 0));
        for node in &self.nodes {
            let (id, [total, free]) = (node.id, memory_kib(node));
            add(&format!("{folder}/node{id}/cpulist"), list(node.cpus.iter().copied()));
            if !node.distances.is_empty() {
                let row: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
                add(&format!("{folder}/node{id}/distance"), format!("{}\n", row.join(" ")));
            }
            let text =
                format!("Node {id} MemTotal: {total:>8} kB\nNode {id} MemFree: {free:>8} kB\n");
            add(&format!("{folder}/node{id}/meminfo"), text);
        }
        files
    }

    fn zoneinfo(&self) -> String {
        let mut out = String::new();
        for node in &self.nodes {
            for zone in &node.zones {
                zone.write_zoneinfo(&mut out, node.id).expect("texts grow");
            }
        }
        out
    }

    fn buddyinfo(&self) -> String {
        let mut out = String::new();
        for (node, zone) in self.populated() {
            let blocks = zone.free.iter().map(|area| format!("{:>6} ", area.free_blocks));
            out += &format!("Node {node}, zone {:>8} {}\n", zone.name, blocks.collect::<String>());
        }
        out
    }

    fn pagetypeinfo(&self) -> String {
        let orders = self.populated().map(|(_, zone)| zone.free.len()).max().unwrap_or(0);
        let row: String = (0..orders).map(|order| format!("{order:>6} ")).collect();
        let mut out = format!(
            "Page block order: {PAGEBLOCK_ORDER}\nPages per block:  {}\n\n{:<43} {row}\n",
            1 << PAGEBLOCK_ORDER,
            "Free pages count per migrate type at order"
        );
        for (node, zone) in self.populated() {
            for (index, kind) in self.migratetypes.iter().enumerate() {
                let blocks = zone.free.iter().map(|area| area.lists.get(index).map_or(0, Vec::len));
                let row: String = blocks.map(|blocks| format!("{blocks:>6} ")).collect();
                out += &format!("Node {node:>4}, zone {:>8}, type {kind:>12} {row}\n", zone.name);
            }
        }
        let names: String = self.migratetypes.iter().map(|kind| format!("{kind:>12} ")).collect();
        out += &format!("\n{:<23}{names}\n", "Number of blocks type ");
        for (node, zone) in self.populated() {
            let count = |index: usize| {
                zone.pageblocks.iter().filter(|kind| **kind == u8::try_from(index).ok()).count()
            };
            let row: String = (0..self.migratetypes.len())
                .map(|index| format!("{:>12} ", count(index)))
                .collect();
            out += &format!("Node {node}, zone {:>8} {row}\n", zone.name);
        }
        out
    }

    fn populated(&self) -> impl Iterator<Item = (u32, &ZoneState)> {
        self.nodes.iter().flat_map(|node| {
            let populated = node.zones.iter().filter(|zone| zone.managed_pages > 0);
            populated.map(|zone| (node.id, zone))
        })
    }
}

/// The managed and the free memory of a node.
fn memory_kib(node: &NodeState) -> [u64; 2] {
    let managed: u64 = node.zones.iter().map(|zone| zone.managed_pages).sum();
    let free: u64 = node.zones.iter().map(ZoneState::free_counted).sum();
    [managed.saturating_mul(PAGE_KIB), free.saturating_mul(PAGE_KIB)]
}

/// `0-2,5` and the end of a line.
fn list(ids: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",") + "\n"
}

impl ZoneState {
    /// Free pages as `/proc/zoneinfo` counts them: without what CPUs hold back.
    fn free_counted(&self) -> u64 {
        self.counter("NR_FREE_PAGES").map_or(0, |(own, _)| own.max(0) as u64)
    }

    fn write_zoneinfo(&self, out: &mut String, node: u32) -> std::fmt::Result {
        writeln!(out, "Node {node}, zone {:>8}", self.name)?;
        writeln!(out, "  pages free     {}", self.free_counted())?;
        let boost = self.watermark_boost;
        writeln!(out, "        boost    {boost}")?;
        for (name, mark) in ["min", "low", "high", "promo"].iter().zip(&self.watermarks) {
            writeln!(out, "        {name:<8} {}", mark.saturating_add(boost))?;
        }
        writeln!(out, "        spanned  {}", self.spanned_pages)?;
        writeln!(out, "        present  {}", self.present_pages)?;
        writeln!(out, "        managed  {}", self.managed_pages)?;
        let reserve: Vec<String> = self.lowmem_reserve.iter().map(ToString::to_string).collect();
        writeln!(out, "        protection: ({})", reserve.join(", "))?;
        if self.managed_pages == 0 {
            return Ok(());
        }
        for (name, value) in self.counters.iter().chain(&self.numa_events) {
            writeln!(out, "      {:<12} {value}", name.to_lowercase())?;
        }
        writeln!(out, "  pagesets")?;
        for pageset in &self.pagesets {
            writeln!(out, "    cpu: {}", pageset.cpu)?;
            writeln!(out, "              count:    {}", pageset.count)?;
            writeln!(out, "              high:     {}", pageset.high)?;
            writeln!(out, "              batch:    {}", pageset.batch)?;
            for (name, value) in [("high_min:", pageset.high_min), ("high_max:", pageset.high_max)]
            {
                if let Some(value) = value {
                    writeln!(out, "              {name} {value}")?;
                }
            }
            if let Some(threshold) = pageset.stat_threshold {
                writeln!(out, "  vm stats threshold: {threshold}")?;
            }
        }
        writeln!(out, "  start_pfn:           {}", self.start_pfn)
    }
}
