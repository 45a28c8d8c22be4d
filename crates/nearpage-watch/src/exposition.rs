//! OpenMetrics: the names of node_exporter where it has them, others with `nearpage_`.
//!
//! | series | for each |
//! |---|---|
//! | `node_memory_numa_*` | node |
//! | `node_zoneinfo_*_pages`, `nearpage_zone_*` | zone |
//! | `node_zoneinfo_protection_pages` | zone and zone that a request could use |
//! | `node_buddyinfo_blocks` | zone and order |
//! | `node_vmstat_*` | machine |
//! | `nearpage_mark` | word, node, zone, while it is true |
//! | `nearpage_pageset_*` | zone and CPU, on request only |
//!
//! A machine of N nodes has at most 5 zones a node, of which one or two have memory: about 40 series a zone and 20 a
//! node. With pagesets there are three more for each zone and CPU.

use std::fmt::Write;

use crate::marks::{marks, passes};
use crate::sample::{Sample, ZoneSample};

/// How the text is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// OpenMetrics 1.0: what a server answers.
    #[default]
    OpenMetrics,
    /// The older text of Prometheus: what the textfile collector of node_exporter reads.
    Text,
}

struct Page<'a> {
    text: &'a mut String,
    format: Format,
}

/// How many series there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cardinality {
    /// By node, zone and order.
    #[default]
    Bounded,
    /// Also by CPU, if the sample has pagesets.
    EachCpu,
}

/// Writes a sample as text of metrics behind what is in `text`; OpenMetrics ends in `# EOF`. `before` is the sample before, for
/// marks that are a matter of rates.
///
/// ```
/// use nearpage_watch::{Cardinality, Format, Sample, exposition};
///
/// let mut text = String::new();
/// exposition(&mut text, None, &Sample::default(), Format::OpenMetrics, Cardinality::Bounded);
/// assert!(text.ends_with("# EOF\n"));
/// ```
pub fn exposition(
    text: &mut String,
    before: Option<&Sample>,
    now: &Sample,
    format: Format,
    cardinality: Cardinality,
) {
    let text = &mut Page { text, format };
    nodes(text, now);
    zones(text, now);
    blocks(text, now);
    for (name, value) in &now.events {
        family(text, &format!("node_vmstat_{name}"), "unknown", "/proc/vmstat information field.");
        let _ = writeln!(text.text, "node_vmstat_{name} {value}");
    }
    family(
        text,
        "nearpage_mark",
        "gauge",
        "1 while it is true: a word of the book for what is wrong",
    );
    for mark in marks(before, now) {
        let node = mark.node.map(|node| node.to_string()).unwrap_or_default();
        let zone = mark.zone.unwrap_or_default();
        let _ = writeln!(
            text.text,
            "nearpage_mark{{word=\"{}\",node=\"{node}\",zone=\"{}\"}} 1",
            mark.word,
            Escaped(&zone)
        );
    }
    family(
        text,
        "nearpage_unreadable_files",
        "gauge",
        "files of the last sample that could not be read",
    );
    let _ = writeln!(text.text, "nearpage_unreadable_files {}", now.unreadable.len());
    if cardinality == Cardinality::EachCpu {
        pagesets(text, now);
    }
    if format == Format::OpenMetrics {
        text.text.push_str("# EOF\n");
    }
}

fn family(text: &mut Page<'_>, name: &str, kind: &str, help: &str) {
    let (suffix, kind) = match (text.format, kind) {
        (Format::Text, "counter") => ("_total", kind),
        (Format::Text, "unknown") => ("", "untyped"),
        _ => ("", kind),
    };
    let _ = writeln!(
        text.text,
        "# TYPE {name}{suffix} {kind}
# HELP {name}{suffix} {help}"
    );
}

/// A label's value: names of zones come from a file that anybody may have made.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

fn nodes(text: &mut Page<'_>, now: &Sample) {
    type Of = fn(&crate::sample::NodeSample) -> Option<u64>;
    let gauges: [(&str, Of); 7] = [
        ("MemTotal", |node| node.total),
        ("MemFree", |node| node.free),
        ("FilePages", |node| node.file),
        ("AnonPages", |node| node.anon),
        ("Slab", |node| node.slab),
        ("Shmem", |node| node.shmem),
        ("AnonHugePages", |node| node.anon_huge),
    ];
    for (name, of) in gauges {
        family(
            text,
            &format!("node_memory_numa_{name}"),
            "gauge",
            "Memory information field, in bytes.",
        );
        for node in &now.nodes {
            if let Some(kib) = of(node) {
                let _ = writeln!(
                    text.text,
                    "node_memory_numa_{name}{{node=\"{}\"}} {}",
                    node.node,
                    kib.saturating_mul(1024)
                );
            }
        }
    }
    for name in crate::sample::NUMA {
        family(
            text,
            &format!("node_memory_numa_{name}"),
            "counter",
            "Allocations by where they came from.",
        );
        for node in &now.nodes {
            for (_, count) in node.numa.iter().filter(|(other, _)| *other == name) {
                let _ = writeln!(
                    text.text,
                    "node_memory_numa_{name}_total{{node=\"{}\"}} {count}",
                    node.node
                );
            }
        }
    }
    for (name, at) in [("HugePages_Total", 0), ("HugePages_Free", 1)] {
        family(text, &format!("node_memory_numa_{name}"), "gauge", "Huge pages of the pool.");
        for node in &now.nodes {
            if let Some((all, free)) = node.hugetlb {
                let _ = writeln!(
                    text.text,
                    "node_memory_numa_{name}{{node=\"{}\"}} {}",
                    node.node,
                    [all, free][at]
                );
            }
        }
    }
}

fn zone_gauge(
    text: &mut Page<'_>,
    now: &Sample,
    name: &str,
    help: &str,
    of: impl Fn(&ZoneSample) -> Option<u64>,
) {
    family(text, name, "gauge", help);
    for zone in &now.zones {
        if let Some(value) = of(zone) {
            let _ = writeln!(
                text.text,
                "{name}{{node=\"{}\",zone=\"{}\"}} {value}",
                zone.node,
                Escaped(&zone.zone)
            );
        }
    }
}

fn zones(text: &mut Page<'_>, now: &Sample) {
    type Of = fn(&ZoneSample) -> Option<u64>;
    let gauges: [(&str, &str, Of); 8] = [
        ("node_zoneinfo_nr_free_pages", "Free pages", |zone| zone.free),
        ("node_zoneinfo_min_pages", "Zone watermark pages_min", |zone| zone.min),
        ("node_zoneinfo_low_pages", "Zone watermark pages_low", |zone| zone.low),
        ("node_zoneinfo_high_pages", "Zone watermark pages_high", |zone| zone.high),
        ("node_zoneinfo_present_pages", "Physical pages of the zone", |zone| zone.present),
        ("node_zoneinfo_managed_pages", "Present pages managed by the buddy system", |zone| {
            zone.managed
        }),
        ("nearpage_zone_boost_pages", "what the watermarks are raised by", |zone| zone.boost),
        ("nearpage_zone_pageset_pages", "pages that CPUs cache", |zone| zone.pageset_pages),
    ];
    for (name, help, of) in gauges {
        zone_gauge(text, now, name, help, of);
    }
    zone_gauge(
        text,
        now,
        "nearpage_zone_largest_order",
        "highest order of which a block is free",
        |zone| zone.largest_order().map(|order| order as u64),
    );
    family(
        text,
        "nearpage_zone_gives",
        "gauge",
        "whether a request of the kernel that can wait passes the watermark check",
    );
    for zone in &now.zones {
        for order in [0, 3, 9] {
            if let Some(gives) = passes(zone, order) {
                let (node, name) = (zone.node, Escaped(&zone.zone));
                let _ = writeln!(
                    text.text,
                    "nearpage_zone_gives{{node=\"{node}\",zone=\"{name}\",order=\"{order}\"}} {}",
                    u8::from(gives)
                );
            }
        }
    }
    family(
        text,
        "nearpage_zone_reserve_pages",
        "gauge",
        "kept from requests that could use a higher zone, by its index",
    );
    for zone in &now.zones {
        for (index, pages) in zone.protection.iter().enumerate() {
            let (node, name) = (zone.node, Escaped(&zone.zone));
            let _ = writeln!(
                text.text,
                "nearpage_zone_reserve_pages{{node=\"{node}\",zone=\"{name}\",highest=\"{index}\"}} {pages}"
            );
        }
    }
}

fn blocks(text: &mut Page<'_>, now: &Sample) {
    family(text, "node_buddyinfo_blocks", "gauge", "Count of free blocks according to size.");
    for zone in &now.zones {
        for (order, count) in zone.blocks.iter().enumerate() {
            let (node, name) = (zone.node, Escaped(&zone.zone));
            let _ = writeln!(
                text.text,
                "node_buddyinfo_blocks{{node=\"{node}\",zone=\"{name}\",size=\"{order}\"}} {count}"
            );
        }
    }
}

fn pagesets(text: &mut Page<'_>, now: &Sample) {
    type Of = fn(&crate::sample::PagesetSample) -> u64;
    let gauges: [(&str, &str, Of); 3] = [
        ("nearpage_pageset_count_pages", "pages in the pageset", |pageset| pageset.count),
        ("nearpage_pageset_high_pages", "its limit", |pageset| pageset.high),
        ("nearpage_pageset_batch_pages", "unit of refills and drains", |pageset| pageset.batch),
    ];
    for (name, help, of) in gauges {
        family(text, name, "gauge", help);
        for zone in &now.zones {
            for pageset in &zone.pagesets {
                let (node, zone, cpu) = (zone.node, Escaped(&zone.zone), pageset.cpu);
                let _ = writeln!(
                    text.text,
                    "{name}{{node=\"{node}\",zone=\"{zone}\",cpu=\"{cpu}\"}} {}",
                    of(pageset)
                );
            }
        }
    }
}
