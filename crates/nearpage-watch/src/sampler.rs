//! Samples of a machine, or of a copy of its files.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nearpage_machine::FileTree;

use crate::cpus::CpuNodes;
use crate::number::number;
use crate::processes::ProcessReader;
use crate::sample::{EVENTS, NUMA, NodeSample, Sample, ZoneSample};
use crate::types::{TypeBlocks, type_blocks};
use crate::zoneinfo::{self, NodeStats, Pagesets};

/// The folder of nodes.
const NODES: &str = "sys/devices/system/node";
/// Nodes that are read: as many as Linux may have.
const NODES_MOST: usize = 1024;
/// Files that are told to be unreadable.
const TOLD_MOST: usize = 16;

/// Reads samples. It keeps the zones of the last sample, so that a zoneinfo that takes long is not read each time.
pub struct Sampler {
    tree: Box<dyn FileTree>,
    pagesets: Pagesets,
    budget: Option<Duration>,
    zones: Vec<ZoneSample>,
    stats: Vec<NodeStats>,
    /// Samples that may still come from the last zoneinfo.
    skips: u32,
    /// Distances and CPUs of nodes, which seldom change, and samples until they are read again.
    layout: Vec<Layout>,
    layout_holds: u32,
    /// How many processes are told, and their reader.
    processes: Option<(usize, ProcessReader)>,
    cpu_nodes: CpuNodes,
}

/// What seldom changes of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Layout {
    node: u32,
    distances: Vec<u32>,
    cpus: String,
}

/// Samples for which the layout of nodes is kept, unless nodes come or go.
const LAYOUT_HOLDS: u32 = 10;

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("tree", &self.tree.display("")).finish_non_exhaustive()
    }
}

impl Sampler {
    /// A sampler of a tree: `/` of this machine, or a copy.
    ///
    /// ```
    /// use nearpage_machine::FolderTree;
    /// use nearpage_watch::Sampler;
    ///
    /// let sample = Sampler::new(Box::new(FolderTree::new("/"))).sample();
    /// assert!(sample.zones.iter().all(|zone| zone.managed != Some(0)));
    /// ```
    pub fn new(tree: Box<dyn FileTree>) -> Sampler {
        Sampler {
            tree,
            pagesets: Pagesets::Sums,
            budget: None,
            zones: Vec::new(),
            stats: Vec::new(),
            skips: 0,
            layout: Vec::new(),
            layout_holds: 0,
            processes: None,
            cpu_nodes: CpuNodes::default(),
        }
    }

    /// The same, with the pageset of each CPU.
    #[must_use]
    pub fn with_pagesets(mut self, pagesets: Pagesets) -> Sampler {
        self.pagesets = pagesets;
        self
    }

    /// The same, spending no more on zoneinfo than this for each sample, on average. Between readings, what is free
    /// comes from buddyinfo, which is short; marks and pagesets are those of the last reading, at most 30 samples old.
    #[must_use]
    pub fn with_budget(mut self, budget: Duration) -> Sampler {
        self.budget = Some(budget);
        self
    }

    /// The same, with the `most` processes that have most memory, and where it is. It spends about `budget` on them for
    /// each sample, and reads all there is without one: the largest processes each time, others in turn.
    #[must_use]
    pub fn with_processes(mut self, most: usize, budget: Option<Duration>) -> Sampler {
        self.processes = Some((most, ProcessReader::new(budget)));
        self
    }

    /// Reads the placement of this process for the next sample, also if it takes long.
    pub fn want_process(&mut self, pid: u32) {
        if let Some((_, reader)) = &mut self.processes {
            reader.want(pid);
        }
    }

    /// Free blocks by type, which no sample has: counting them costs more than all the rest.
    ///
    /// # Errors
    ///
    /// As of the function [`type_blocks`].
    pub fn type_blocks(&self) -> io::Result<Vec<TypeBlocks>> {
        type_blocks(&*self.tree)
    }

    /// The machine as it is now. Files that vanish or cannot be read leave their figures out.
    pub fn sample(&mut self) -> Sample {
        let mut sample = Sample { time_ms: now_ms(), ..Sample::default() };
        self.read_zones(&mut sample);
        sample.kernel =
            self.text("proc/sys/kernel/osrelease", &mut sample).map(|text| text.trim().to_owned());
        sample.zone_reclaim_mode = self
            .text("proc/sys/vm/zone_reclaim_mode", &mut sample)
            .and_then(|text| text.trim().parse().ok());
        self.read_blocks(&mut sample);
        self.read_nodes(&mut sample);
        self.read_events(&mut sample);
        if let Some((most, reader)) = &mut self.processes {
            self.cpu_nodes.follow(&sample.nodes);
            let nodes = &self.cpu_nodes;
            let page_kib = sample.page_kib();
            sample.processes =
                reader.refresh(&*self.tree, *most, page_kib, |cpu| nodes.node_of(cpu));
        }
        sample
    }

    fn bytes(&self, path: &str, sample: &mut Sample) -> Option<Vec<u8>> {
        self.tree.read(path).unwrap_or_else(|error| {
            if sample.unreadable.len() < TOLD_MOST {
                sample.unreadable.push(format!("{}: {error}", self.tree.display(path)));
            }
            None
        })
    }

    fn text(&self, path: &str, sample: &mut Sample) -> Option<String> {
        self.bytes(path, sample).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read_zones(&mut self, sample: &mut Sample) {
        if self.skips > 0 && !self.zones.is_empty() {
            self.skips -= 1;
        } else {
            let begin = Instant::now();
            let parsed = self
                .bytes("proc/zoneinfo", sample)
                .map(|text| zoneinfo::parse(&text, self.pagesets));
            let parsed = parsed.unwrap_or_default();
            (self.zones, self.stats) = (parsed.zones, parsed.nodes);
            self.zones.retain(|zone| {
                zone.managed != Some(0) && (zone.managed, zone.free) != (None, Some(0))
            });
            let took = begin.elapsed().as_micros();
            let budget = self.budget.map_or(u128::MAX, |budget| budget.as_micros().max(1));
            self.skips = (took / budget).min(30) as u32;
        }
        sample.zones.clone_from(&self.zones);
    }

    /// `Node 0, zone   Normal  34247  16748 ...`
    fn read_blocks(&self, sample: &mut Sample) {
        let Some(text) = self.text("proc/buddyinfo", sample) else { return };
        for line in text.lines() {
            let Some((node, rest)) =
                line.strip_prefix("Node ").and_then(|rest| rest.split_once(", zone"))
            else {
                continue;
            };
            let mut words = rest.split_whitespace();
            let (Ok(node), Some(name)) = (node.trim().parse::<u32>(), words.next()) else {
                continue;
            };
            let blocks: Vec<u64> = words.take(32).map_while(|word| word.parse().ok()).collect();
            let zone = sample.zones.iter_mut().find(|zone| zone.node == node && zone.zone == name);
            let Some(zone) = zone else { continue };
            if self.skips > 0 {
                let pages = blocks
                    .iter()
                    .enumerate()
                    .map(|(order, count)| count.saturating_mul(1 << order));
                zone.free = Some(pages.fold(0, u64::saturating_add));
            }
            zone.blocks = blocks;
        }
    }

    fn read_nodes(&mut self, sample: &mut Sample) {
        let names = self.tree.names(NODES).unwrap_or_default();
        let mut ids: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        ids.extend(sample.zones.iter().map(|zone| zone.node));
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(NODES_MOST);
        self.read_layout(&ids, sample);
        let page_kib = sample.page_kib();
        for (id, layout) in ids.into_iter().zip(&self.layout) {
            let mut node = NodeSample {
                node: id,
                distances: layout.distances.clone(),
                cpus: layout.cpus.clone(),
                ..NodeSample::default()
            };
            if let Some(text) = self.node_file(id, "meminfo", sample) {
                meminfo(&text, &mut node);
            }
            if let Some(text) = self.node_file(id, "numastat", sample) {
                node.numa = counters(&text, &NUMA);
            }
            self.complete(&mut node, sample, page_kib);
            sample.nodes.push(node);
        }
    }

    fn node_file(&self, id: u32, name: &str, sample: &mut Sample) -> Option<String> {
        self.text(&format!("{NODES}/node{id}/{name}"), sample)
    }

    fn read_layout(&mut self, ids: &[u32], sample: &mut Sample) {
        let is_same = self.layout.iter().map(|layout| layout.node).eq(ids.iter().copied());
        if is_same && self.layout_holds > 0 {
            self.layout_holds -= 1;
            return;
        }
        let read = ids.iter().map(|id| {
            let distances = self.node_file(*id, "distance", sample).unwrap_or_default();
            let cpus = self.node_file(*id, "cpulist", sample).unwrap_or_default();
            let distances = distances.split_whitespace();
            Layout {
                node: *id,
                distances: distances.filter_map(|word| word.parse().ok()).collect(),
                cpus: cpus.trim().chars().take(4096).collect(),
            }
        });
        self.layout = read.collect();
        self.layout_holds = LAYOUT_HOLDS;
    }

    /// What the node's files do not have and zoneinfo does: copies often lack them.
    fn complete(&self, node: &mut NodeSample, sample: &Sample, page_kib: u64) {
        let sum = |of: fn(&ZoneSample) -> Option<u64>| {
            let pages = sample.zones_of(node.node).filter_map(of).reduce(u64::saturating_add);
            pages.map(|pages| pages.saturating_mul(page_kib))
        };
        let (total, free) = (sum(|zone| zone.managed), sum(|zone| zone.free));
        node.total = node.total.or(total);
        node.free = node.free.or(free);
        if let Some(stats) = self.stats.iter().find(|stats| stats.node == node.node) {
            let kib = |pages: u64| Some(pages.saturating_mul(page_kib));
            node.anon = node.anon.or(kib(stats.anon));
            node.file = node.file.or(kib(stats.file));
            node.slab = node.slab.or(kib(stats.slab));
        }
    }

    fn read_events(&self, sample: &mut Sample) {
        if let Some(text) = self.text("proc/vmstat", sample) {
            sample.events = counters(&text, &EVENTS);
        }
    }
}

/// The counters of a text that have a name of the list, in its order.
fn counters(text: &str, names: &[&'static str]) -> Vec<(&'static str, u64)> {
    let mut found: Vec<(usize, u64)> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            let at = names.iter().position(|other| *other == name)?;
            Some((at, value.trim().parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(at, _)| *at);
    found.into_iter().map(|(at, count)| (names[at], count)).collect()
}

/// `Node 0 MemTotal:       32 kB`
fn meminfo(text: &str, node: &mut NodeSample) {
    let (mut huge_total, mut huge_free) = (None, None);
    for line in text.lines() {
        let Some((head, value)) = line.split_once(':') else { continue };
        let value = number(value.as_bytes());
        match head.rsplit(' ').next().unwrap_or_default() {
            "MemTotal" => node.total = value,
            "MemFree" => node.free = value,
            "FilePages" => node.file = value,
            "AnonPages" => node.anon = value,
            "Slab" => node.slab = value,
            "Shmem" => node.shmem = value,
            "AnonHugePages" => node.anon_huge = value,
            "HugePages_Total" => huge_total = value,
            "HugePages_Free" => huge_free = value,
            _ => {}
        }
    }
    node.hugetlb = huge_total.zip(huge_free);
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
