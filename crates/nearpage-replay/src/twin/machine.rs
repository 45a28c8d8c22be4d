//! The twin's machine: copies of the recorded nodes, with copies of the recorded CPUs dealt out over them.
//!
//! A **group** is a copy of the recorded CPUs; the last one may be a part. A **copy** of the recorded nodes has one group or more, and
//! memory for each: each CPU has as much of it as it was recorded with, and so have watermarks, reserves and free blocks. Nodes of one copy
//! are as far from each other as recorded; those of different copies as far as the farthest, and no nearer than 20.

use std::fmt::Write;

use nearpage::{CpuId, NodeId, PageCount};

use crate::start::Start;

/// A machine that was made up of a recorded one.
#[derive(Debug)]
pub(super) struct TwinMachine {
    /// Nodes of a copy.
    recorded_nodes: usize,
    pub(super) copies: usize,
    /// Groups of CPUs; the last one may be a part.
    pub(super) groups: usize,
    pub(super) cpus: Vec<TwinCpu>,
    /// For each copy the recorded zones, in their order.
    pub(super) zones: Vec<TwinZone>,
}

/// A CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwinCpu {
    /// The recorded one.
    recorded: CpuId,
    node: usize,
    group: usize,
}

/// A zone of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwinZone {
    pub(super) copy: usize,
    /// The recorded one, by its position.
    pub(super) recorded: usize,
    /// How many groups it has memory for.
    times: u64,
    pub(super) first: u64,
    pub(super) pages: u64,
    /// Pages that may be taken before the zone is as full as no kernel would leave it.
    pub(super) room: u64,
}

/// Frames that a zone begins at a multiple of: blocks of the largest order are aligned.
const ALIGNMENT: u64 = 1 << 10;

impl TwinMachine {
    pub(super) fn new(start: &Start, copies: usize, cpus: usize) -> TwinMachine {
        let recorded = &start.topology.nodes;
        let mut own: Vec<(CpuId, usize)> = Vec::new();
        for (at, node) in recorded.iter().enumerate() {
            own.extend(node.cpus.iter().map(|&cpu| (cpu, at)));
        }
        own.sort_unstable();
        let groups = cpus.div_ceil(own.len());
        let cpu = |at: usize| {
            let (group, (recorded_cpu, node)) = (at / own.len(), own[at % own.len()]);
            let node = (group % copies) * recorded.len() + node;
            TwinCpu { recorded: recorded_cpu, node, group }
        };
        let mut zones = Vec::new();
        for copy in 0..copies {
            let times = (0..groups).filter(|group| group % copies == copy).count().max(1) as u64;
            for (at, zone) in start.zones.iter().enumerate() {
                let in_blocks = zone.pageblocks.iter().sum::<u64>() * 512;
                let pages = zone.managed.0.max(in_blocks).max(zone.free_pages()) * times;
                let pages = pages.next_multiple_of(512);
                let room = (zone.free_pages() * times).saturating_sub(zone.marks.low.0 * times);
                zones.push(TwinZone { copy, recorded: at, times, first: 0, pages, room });
            }
        }
        // Zones of a kind lie above all of the kinds below.
        let mut next = ALIGNMENT;
        let mut order: Vec<usize> = (0..zones.len()).collect();
        order.sort_by_key(|&at| (start.zones[zones[at].recorded].kind, at));
        for at in order {
            zones[at].first = next;
            next = (next + zones[at].pages).next_multiple_of(ALIGNMENT);
        }
        let cpus = (0..cpus).map(cpu).collect();
        TwinMachine { recorded_nodes: recorded.len(), copies, groups, cpus, zones }
    }

    pub(super) fn nodes(&self) -> usize {
        self.copies * self.recorded_nodes
    }

    /// The position of a recorded zone in a group's copy.
    pub(super) fn zone(&self, group: usize, recorded: usize) -> usize {
        (group % self.copies) * (self.zones.len() / self.copies) + recorded
    }

    /// The CPU of a group that plays a recorded one, by its position; in a group that is a part, another one may.
    pub(super) fn cpu(&self, group: usize, recorded: usize, of: usize) -> usize {
        let first = group * of;
        first + recorded % (self.cpus.len() - first).min(of)
    }

    /// Whether a group has a CPU of its own for a recorded one.
    pub(super) fn has_cpu(&self, group: usize, recorded: usize, of: usize) -> bool {
        group * of + recorded < self.cpus.len()
    }

    /// The node of a group for a recorded one.
    pub(super) fn node(&self, group: usize, recorded: usize) -> usize {
        (group % self.copies) * self.recorded_nodes + recorded
    }

    /// `/proc/zoneinfo`, as far as a replay reads it.
    pub(super) fn zoneinfo(&self, start: &Start) -> String {
        let mut out = String::new();
        for zone in &self.zones {
            self.add_zone(&mut out, start, zone);
        }
        out
    }

    fn add_zone(&self, out: &mut String, start: &Start, twin: &TwinZone) {
        let zone = &start.zones[twin.recorded];
        let times = |pages: PageCount| pages.0 * twin.times;
        let marks = &zone.marks;
        let lines = [
            ("pages free", zone.free_pages() * twin.times),
            ("boost", 0),
            ("min", times(marks.min)),
            ("low", times(marks.low)),
            ("high", times(marks.high)),
            ("promo", times(marks.promo)),
            ("spanned", twin.pages),
            ("present", twin.pages),
            ("managed", times(zone.managed)),
        ];
        let _ = writeln!(out, "Node {}, zone {:>8}", self.node_of(start, twin), zone.kind.name());
        for (at, (name, pages)) in lines.into_iter().enumerate() {
            let indent = if at == 0 { "  " } else { "        " };
            let _ = writeln!(out, "{indent}{name:<8} {pages}");
        }
        let reserve: Vec<String> =
            zone.reserve.iter().map(|&pages| times(pages).to_string()).collect();
        let _ = writeln!(out, "        protection: ({})\n  pagesets", reserve.join(", "));
        for (at, cpu) in self.cpus.iter().enumerate() {
            let Some(of) = zone.pageset(cpu.recorded) else { continue };
            let is_own = cpu.group % self.copies == twin.copy;
            let (count, high) =
                if is_own { (of.count, of.high) } else { (PageCount(0), of.sizes.high_min) };
            let sizes = &of.sizes;
            let _ = writeln!(
                out,
                "    cpu: {at}\n              count:    {}\n              high:     {}\n              batch:    {}\n              \
                 high_min: {}\n              high_max: {}\n  vm stats threshold: {}",
                count.0, high.0, sizes.batch.0, sizes.high_min.0, sizes.high_max.0, zone.threshold
            );
        }
        let _ = writeln!(out, "  node_unreclaimable:  0\n  start_pfn:           {}", twin.first);
    }

    fn node_of(&self, start: &Start, twin: &TwinZone) -> usize {
        twin.copy * self.recorded_nodes + self.recorded_node(start, start.zones[twin.recorded].node)
    }

    /// The position of a recorded node.
    pub(super) fn recorded_node(&self, start: &Start, id: NodeId) -> usize {
        start.topology.nodes.iter().position(|node| node.id == id).unwrap_or(0)
    }

    /// `/proc/buddyinfo`.
    pub(super) fn buddyinfo(&self, start: &Start) -> String {
        let mut out = String::new();
        for twin in &self.zones {
            let zone = &start.zones[twin.recorded];
            let head = format!("Node {}, zone {:>8}", self.node_of(start, twin), zone.kind.name());
            let orders = (0..zone.free[0].len()).map(|order| {
                zone.free.iter().map(|blocks| blocks[order]).sum::<u64>() * twin.times
            });
            add_counts(&mut out, &head, orders);
        }
        out
    }

    /// `/proc/pagetypeinfo`.
    pub(super) fn pagetypeinfo(&self, start: &Start) -> String {
        let mut out = String::from("Page block order: 9\nPages per block:  512\n\n");
        out.push_str("Free pages count per migrate type at order ");
        add_counts(&mut out, "", 0..start.zones[0].free[0].len() as u64);
        let types = nearpage::Migratetype::ALL;
        for twin in &self.zones {
            let zone = &start.zones[twin.recorded];
            for (at, of_type) in types.iter().enumerate() {
                let head = format!(
                    "Node {:>4}, zone {:>8}, type {:>12}",
                    self.node_of(start, twin),
                    zone.kind.name(),
                    of_type.name()
                );
                add_counts(&mut out, &head, zone.free[at].iter().map(|count| count * twin.times));
            }
        }
        let names: Vec<String> = types.iter().map(|of| format!("{:>12}", of.name())).collect();
        let _ = writeln!(out, "\nNumber of blocks type {}", names.join(" "));
        for twin in &self.zones {
            let zone = &start.zones[twin.recorded];
            let head = format!("Node {}, zone {:>8}", self.node_of(start, twin), zone.kind.name());
            add_counts(&mut out, &head, zone.pageblocks.iter().map(|count| count * twin.times));
        }
        out
    }

    /// Lines of /sys, each with its path.
    pub(super) fn sysfs(&self, start: &Start) -> String {
        const NODES: &str = "/sys/devices/system/node";
        const CPUS: &str = "/sys/devices/system/cpu";
        let (mut out, nodes) = (String::new(), self.nodes());
        let _ = writeln!(out, "{NODES}/online:0-{}\n{NODES}/possible:0-{}", nodes - 1, nodes - 1);
        let _ = writeln!(out, "{CPUS}/online:0-{}", self.cpus.len() - 1);
        for node in 0..nodes {
            let own = self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.node == node);
            let own: Vec<String> = own.map(|(at, _)| at.to_string()).collect();
            let _ = writeln!(out, "{NODES}/node{node}/cpulist:{}", own.join(","));
            let row: Vec<String> =
                (0..nodes).map(|other| self.distance(start, node, other).to_string()).collect();
            let _ = writeln!(out, "{NODES}/node{node}/distance:{}", row.join(" "));
            let zones = self.zones.iter().filter(|zone| self.node_of(start, zone) == node);
            let kib = |pages: u64| (pages << start.page_shift) / 1024;
            let (mut all, mut free) = (0, 0);
            for zone in zones {
                all += start.zones[zone.recorded].managed.0 * zone.times;
                free += start.zones[zone.recorded].free_pages() * zone.times;
            }
            for (name, pages) in [("MemTotal", all), ("MemFree", free)] {
                let _ = writeln!(
                    out,
                    "{NODES}/node{node}/meminfo:Node {node} {name}: {} kB",
                    kib(pages)
                );
            }
        }
        for (at, cpu) in self.cpus.iter().enumerate() {
            let slice = start.cache_slices.iter().find(|(of, _)| *of == cpu.recorded);
            let Some((_, pages)) = slice else { continue };
            let kib = (pages.0 << start.page_shift) / 1024;
            let place = format!("{CPUS}/cpu{at}/cache/index3");
            let _ = writeln!(out, "{place}/level:3\n{place}/type:Unified\n{place}/size:{kib}K");
            let _ = writeln!(out, "{place}/shared_cpu_list:{at}");
        }
        out
    }

    fn distance(&self, start: &Start, from: usize, to: usize) -> u32 {
        let recorded = |from: usize, to: usize| {
            let at = from * self.recorded_nodes + to;
            start
                .topology
                .distances
                .get(at)
                .map_or(if from == to { 10 } else { 20 }, |&of| u32::from(of))
        };
        let (copy, node) = (from / self.recorded_nodes, from % self.recorded_nodes);
        let (other_copy, other) = (to / self.recorded_nodes, to % self.recorded_nodes);
        if copy == other_copy {
            return recorded(node, other);
        }
        let all = 0..self.recorded_nodes;
        let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
        pairs.map(|(from, to)| recorded(from, to)).max().unwrap_or(20).max(20)
    }
}

fn add_counts(out: &mut String, head: &str, counts: impl Iterator<Item = u64>) {
    out.push_str(head);
    for count in counts {
        let _ = write!(out, " {count:>6}");
    }
    out.push_str(" \n");
}
