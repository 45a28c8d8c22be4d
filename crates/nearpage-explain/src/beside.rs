//! What a ticket holds beside reports: texts of /proc, of sysctl, numactl and lscpu. They are of another moment than the reports.
//!
//! | text | tells |
//! |---|---|
//! | `numactl --hardware`, a node's meminfo, lscpu | nodes, their memory and CPUs |
//! | zoneinfo, buddyinfo, pagetypeinfo | zones, what is free in them, their largest free blocks by type |
//! | meminfo, slabinfo, sysctl | memory of the machine, its largest cache, settings |

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use nearpage_machine::{idlist, size};
use serde::Serialize;

use crate::report::Report;

/// Nodes, zones, settings and counters that are kept.
const ROWS_MOST: usize = 4096;
/// Bytes of a line of these texts that is looked at: buddyinfo has some hundred, lists of CPUs some thousand.
const LINE_MOST: usize = 16 << 10;

/// What a ticket tells of the machine beside reports. Sizes are in KiB, counts in pages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Beside {
    /// Nodes by id.
    pub nodes: BTreeMap<u32, BesideNode>,
    /// Zones in the order in which they came.
    pub zones: Vec<BesideZone>,
    /// Counters of /proc/meminfo in KiB.
    pub meminfo: BTreeMap<String, u64>,
    /// Settings of sysctl about memory, as written.
    pub settings: BTreeMap<String, String>,
    /// The largest cache of slabinfo, and its pages.
    pub largest_cache: Option<(String, u64)>,
    /// Which texts there were, each with the number of its first line.
    pub texts: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    is_in_zone: bool,
}

/// A node beside reports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BesideNode {
    /// Its memory.
    pub size: Option<u64>,
    /// Free memory of it.
    pub free: Option<u64>,
    /// Its CPUs.
    pub cpus: Option<Vec<u32>>,
}

/// A zone beside reports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BesideZone {
    /// Its node.
    pub node: u32,
    /// Its name.
    pub zone: String,
    /// Figures of zoneinfo in pages: `free`, `min`, `low`, `high`, `present`, `managed`.
    pub pages: BTreeMap<String, u64>,
    /// Free blocks by order, of buddyinfo.
    pub blocks: Vec<u64>,
    /// The highest order with a free block, by type, of pagetypeinfo.
    pub highest_orders: BTreeMap<String, Option<u8>>,
}

/// Settings that a report's verdict or advice is about.
const SETTINGS: [&str; 12] = [
    "vm.admin_reserve_kbytes",
    "vm.lowmem_reserve_ratio",
    "vm.min_free_kbytes",
    "vm.min_slab_ratio",
    "vm.min_unmapped_ratio",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "vm.percpu_pagelist_high_fraction",
    "vm.swappiness",
    "vm.watermark_boost_factor",
    "vm.watermark_scale_factor",
    "vm.zone_reclaim_mode",
];

/// Counters of /proc/meminfo that are kept.
const COUNTERS: [&str; 9] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "SwapTotal",
    "SwapFree",
    "SReclaimable",
    "SUnreclaim",
    "Mlocked",
    "CmaFree",
];

impl Beside {
    /// Whether there was none of these texts.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Adds what a text tells; lines of more than 16 KiB are passed over.
    ///
    /// # Errors
    ///
    /// The source failed.
    pub fn add_from(&mut self, mut source: impl BufRead) -> io::Result<()> {
        let (mut line, mut number, mut is_long) = (Vec::new(), 1, false);
        loop {
            let chunk = match source.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            is_long |= line.len() + part.len() > LINE_MOST;
            if !is_long {
                line.extend_from_slice(part);
            }
            let (used, is_last) = (part.len() + usize::from(end.is_some()), chunk.is_empty());
            source.consume(used);
            if (end.is_some() || is_last) && !is_long {
                self.look(line.trim_ascii_end(), number);
            }
            if is_last {
                return Ok(());
            }
            if end.is_some() {
                line.clear();
                (number, is_long) = (number + 1, false);
            }
        }
    }

    /// Looks at a line; most are passed over by their first letters.
    pub(crate) fn look(&mut self, line: &[u8], number: u64) {
        let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'>' | b'|'));
        let Some(line) = start.map(|start| &line[start..]) else { return };
        let may_be = match line[0] {
            b'N' => line.starts_with(b"Node ") || line.starts_with(b"NUMA node"),
            b'n' => line.starts_with(b"node "),
            b'v' => line.starts_with(b"vm."),
            b'p' | b'm' | b'l' | b'h' | b's' if self.is_in_zone => true,
            _ => line.len() < 100 && line.ends_with(b" kB") || is_like_slabinfo(line),
        };
        if may_be && line.len() <= LINE_MOST {
            self.take(String::from_utf8_lossy(line).trim_end(), number);
        }
    }

    fn take(&mut self, line: &str, number: u64) -> Option<()> {
        if self.is_in_zone && self.zone_figure(line).is_some() {
            return Some(());
        }
        if let Some(rest) = line.strip_prefix("Node ") {
            let (node, rest) = rest.trim_start().split_once([',', ' '])?;
            let node = node.parse().ok()?;
            let rest = rest.trim_start();
            return match rest.strip_prefix("zone ") {
                Some(zone) => self.zone(node, zone.trim_start(), number),
                None => self.node_counter(node, rest, number),
            };
        }
        if let Some(rest) = line.strip_prefix("node ") {
            let (heading, value) = rest.split_once(':')?;
            let (node, what) = heading.split_once(' ')?;
            let (node, value) = (node.parse().ok()?, value.trim());
            return match what {
                "cpus" => {
                    let list = value.split(' ').filter(|word| !word.is_empty());
                    let cpus = list.map(str::parse).collect::<Result<Vec<u32>, _>>().ok()?;
                    self.node("numactl", node, number)?.cpus = Some(cpus);
                    Some(())
                }
                "size" | "free" => {
                    let mebibytes: u64 = value.strip_suffix("MB")?.trim().parse().ok()?;
                    let kib = mebibytes.checked_mul(1024)?;
                    let node = self.node("numactl", node, number)?;
                    *(if what == "size" { &mut node.size } else { &mut node.free }) = Some(kib);
                    Some(())
                }
                _ => None,
            };
        }
        if let Some(rest) = line.strip_prefix("NUMA node") {
            let (node, cpus) = rest.split_once(" CPU(s):")?;
            let (node, cpus) = (node.parse().ok()?, idlist::parse(cpus.trim()).ok()?);
            self.node("lscpu", node, number)?.cpus = Some(cpus);
            return Some(());
        }
        if line.starts_with("vm.") {
            let (name, value) = line.split_once('=')?;
            let name = SETTINGS.iter().find(|setting| **setting == name.trim())?;
            self.texts.entry("sysctl").or_insert(number);
            let value = value.trim().chars().take(64).collect();
            self.settings.entry((*name).into()).or_insert(value);
            return Some(());
        }
        if let Some((name, value)) = line.split_once(':')
            && let Some(value) = value.trim().strip_suffix(" kB")
        {
            let name = COUNTERS.iter().find(|counter| **counter == name)?;
            let value = value.parse().ok()?;
            self.texts.entry("meminfo").or_insert(number);
            self.meminfo.entry((*name).into()).or_insert(value);
            return Some(());
        }
        self.cache(line, number)
    }

    fn node(&mut self, text: &'static str, node: u32, number: u64) -> Option<&mut BesideNode> {
        if self.nodes.len() == ROWS_MOST && !self.nodes.contains_key(&node) {
            return None;
        }
        self.texts.entry(text).or_insert(number);
        Some(self.nodes.entry(node).or_default())
    }

    /// `MemTotal: 4096 kB` of a node.
    fn node_counter(&mut self, node: u32, rest: &str, number: u64) -> Option<()> {
        let (name, value) = rest.split_once(':')?;
        let kib = value.trim().strip_suffix(" kB")?.parse().ok()?;
        match name {
            "MemTotal" => self.node("node meminfo", node, number)?.size = Some(kib),
            "MemFree" => self.node("node meminfo", node, number)?.free = Some(kib),
            _ => return None,
        }
        Some(())
    }

    /// `Normal`, of zoneinfo; `Normal 1 2 3`, of buddyinfo; `Normal, type Movable 1 2 3`, of pagetypeinfo.
    fn zone(&mut self, node: u32, rest: &str, number: u64) -> Option<()> {
        self.is_in_zone = false;
        let (zone, rest) = rest.split_once([',', ' ']).unwrap_or((rest, ""));
        if !crate::rows::ZONES.contains(&zone) {
            return None;
        }
        let counts = |text: &str| -> Option<Vec<u64>> {
            text.split_whitespace().take(32).map(|word| word.parse().ok()).collect()
        };
        let at = match self.zones.iter().position(|of| of.node == node && of.zone == zone) {
            Some(at) => at,
            None if self.zones.len() == ROWS_MOST => return None,
            None => {
                self.zones.push(BesideZone { node, zone: zone.into(), ..BesideZone::default() });
                self.zones.len() - 1
            }
        };
        let text = match rest.trim_start() {
            "" => {
                // The zone whose figures follow is the last.
                let zone = self.zones.remove(at);
                self.zones.push(zone);
                self.is_in_zone = true;
                "zoneinfo"
            }
            rest => match rest.strip_prefix("type ") {
                Some(rest) => {
                    let (kind, counts_of) = rest.trim_start().split_once(' ')?;
                    let highest = counts(counts_of)?.iter().rposition(|count| *count > 0);
                    let kind = kind.chars().take(16).collect();
                    let orders = &mut self.zones[at].highest_orders;
                    orders.insert(kind, highest.map(|order| order as u8));
                    "pagetypeinfo"
                }
                None => {
                    self.zones[at].blocks = counts(rest)?;
                    "buddyinfo"
                }
            },
        };
        self.texts.entry(text).or_insert(number);
        Some(())
    }

    /// `pages free 3976`, `min 8` below the heading of a zone.
    fn zone_figure(&mut self, line: &str) -> Option<()> {
        let line = line.strip_prefix("pages ").unwrap_or(line).trim_start();
        let (name, value) = line.split_once(' ')?;
        const NAMES: [&str; 6] = ["free", "min", "low", "high", "present", "managed"];
        let name = NAMES.iter().find(|of| **of == name)?;
        let value = value.trim().parse().ok()?;
        self.zones.last_mut()?.pages.entry((*name).into()).or_insert(value);
        Some(())
    }

    /// `dentry 100 200 192 21 1 : tunables 0 0 0 : slabdata 10 10 0`
    fn cache(&mut self, line: &str, number: u64) -> Option<()> {
        let (objects, slabs) = line.split_once(" : slabdata")?;
        let name = objects.split_whitespace().next()?;
        let pages_per_slab: u64 = objects.split_whitespace().nth(5)?.parse().ok()?;
        let slabs: u64 = slabs.split_whitespace().nth(1)?.parse().ok()?;
        let pages = slabs.saturating_mul(pages_per_slab);
        self.texts.entry("slabinfo").or_insert(number);
        if self.largest_cache.as_ref().is_none_or(|(_, largest)| pages > *largest) {
            self.largest_cache = Some((name.chars().take(64).collect(), pages));
        }
        Some(())
    }

    /// The node of a CPU.
    pub(crate) fn node_of(&self, cpu: u32) -> Option<u32> {
        let has = |node: &BesideNode| node.cpus.as_ref().is_some_and(|cpus| cpus.contains(&cpu));
        self.nodes.iter().find(|(_, node)| has(node)).map(|(id, _)| *id)
    }

    /// Memory and free memory of a node in KiB, as far as these texts tell.
    fn memory(&self, node: u32, page_kib: u64) -> (Option<u64>, Option<u64>) {
        let sum = |name: &str| {
            let zones = self.zones.iter().filter(|zone| zone.node == node);
            let pages = zones.filter_map(|zone| zone.pages.get(name)).copied();
            let pages = pages.reduce(u64::saturating_add)?;
            Some(pages.saturating_mul(page_kib))
        };
        let known = self.nodes.get(&node);
        let size = known.and_then(|node| node.size).or_else(|| sum("managed"));
        (size, known.and_then(|node| node.free).or_else(|| sum("free")))
    }

    /// What these texts add to a report.
    pub(crate) fn about(&self, report: &Report) -> Vec<String> {
        let mut lines = Vec::new();
        let kib = |kib: u64| size::format(kib.saturating_mul(1024));
        if let Some((cpu, node)) = report.cpu.and_then(|cpu| Some((cpu, self.node_of(cpu)?))) {
            lines.push(format!("CPU {cpu}, which asked, is on node {node}"));
        }
        let ids = self.nodes.keys().copied().chain(self.zones.iter().map(|zone| zone.node));
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        let is_hidden = |node: &u32| report.zones.iter().all(|zone| zone.node != *node);
        let hidden = ids.into_iter().filter(|node| !report.zones.is_empty() && is_hidden(node));
        for node in hidden.take(16) {
            let told = match self.memory(node, report.page_kib()) {
                (Some(0), _) => "no memory".into(),
                (Some(size), Some(free)) => format!("{}, {} of them free", kib(size), kib(free)),
                (Some(size), None) => kib(size),
                (None, _) => "an unknown amount of memory".into(),
            };
            lines.push(format!(
                "node {node}, which the report does not show, has {told}, at another moment"
            ));
        }
        if let Some((name, pages)) = &self.largest_cache
            && report.largest_cache.is_none()
        {
            let total = kib(pages.saturating_mul(report.page_kib()));
            lines.push(format!(
                "the largest cache of slabinfo is {name} with {total}, at another moment"
            ));
        }
        if !self.settings.is_empty() {
            let settings: Vec<String> =
                self.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            lines.push(settings.join(", "));
        }
        lines
    }
}

/// Whether a line may be a row of slabinfo: it has what nothing else has, behind its numbers.
fn is_like_slabinfo(line: &[u8]) -> bool {
    line.len() < 400
        && line.last().is_some_and(u8::is_ascii_digit)
        && line.windows(11).any(|window| window == b" : slabdata")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(text: &str) -> Beside {
        let mut beside = Beside::default();
        text.lines().zip(1..).for_each(|(line, number)| beside.look(line.as_bytes(), number));
        beside
    }

    #[test]
    fn texts_of_a_ticket_are_told_apart() {
        let text = "\
available: 2 nodes (0-1)
> node 0 cpus: 0 1
> node 0 size: 100 MB
> node 0 free: 10 MB
NUMA node1 CPU(s):   2-3
Node 1 MemTotal:        204800 kB
Node 1, zone   Normal
  pages free     5000
        min      10
        managed  50000
Node 1, zone   Normal 1 0 2
Node    1, zone   Normal, type      Movable      1      0      0
MemTotal:       307200 kB
vm.min_free_kbytes = 67584
vm.laptop_mode = 0
dentry 100 200 192 21 2 : tunables 0 0 0 : slabdata 10 10 0
";
        let beside = beside(text);
        assert_eq!(
            beside.nodes[&0],
            BesideNode { size: Some(102_400), free: Some(10_240), cpus: Some(vec![0, 1]) }
        );
        assert_eq!((beside.node_of(3), beside.nodes[&1].size), (Some(1), Some(204_800)));
        let [zone] = &beside.zones[..] else { panic!("{:?}", beside.zones) };
        assert_eq!((zone.pages["free"], zone.pages["managed"]), (5000, 50_000));
        assert_eq!((&zone.blocks[..], zone.highest_orders["Movable"]), (&[1, 0, 2][..], Some(0)));
        assert_eq!(beside.settings.len(), 1);
        assert_eq!(beside.largest_cache, Some(("dentry".into(), 20)));
        let texts: Vec<&str> = beside.texts.keys().copied().collect();
        assert_eq!(
            texts,
            [
                "buddyinfo",
                "lscpu",
                "meminfo",
                "node meminfo",
                "numactl",
                "pagetypeinfo",
                "slabinfo",
                "sysctl",
                "zoneinfo"
            ]
        );
    }

    #[test]
    fn reports_are_none_of_these_texts() {
        let text = "\
Node 0 Normal free:8kB min:4kB
Node 0 active_anon:4kB
Node 0 Normal: 1*4kB (U) = 4kB
node 0 is down
vm.swap
";
        assert_eq!(beside(text), Beside::default());
    }
}
