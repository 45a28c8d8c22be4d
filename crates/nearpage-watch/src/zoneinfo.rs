//! /proc/zoneinfo, read once a second: a text of 10 MiB on large machines, most of which are pagesets.
//!
//! Unlike the reader of `nearpage-machine`, which describes a machine and refuses what no kernel writes, this one takes
//! what it understands: a file that changes while it is read must not end a watch.

use memchr::memchr_iter;

use crate::number::number;
use crate::sample::{PagesetSample, ZoneSample};

/// Zones that are kept: Linux has at most 1024 nodes with five kinds.
const ZONES_MOST: usize = 5 * 1024;

/// What is kept of pagesets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pagesets {
    /// How many pages they hold, of each zone in sum.
    #[default]
    Sums,
    /// Each CPU's.
    EachCpu,
}

/// Counters of a node that stand above its first zone, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeStats {
    pub(crate) node: u32,
    pub(crate) anon: u64,
    pub(crate) file: u64,
    pub(crate) slab: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Zoneinfo {
    pub(crate) zones: Vec<ZoneSample>,
    pub(crate) nodes: Vec<NodeStats>,
}

pub(crate) fn parse(text: &[u8], pagesets: Pagesets) -> Zoneinfo {
    let mut parsed = Zoneinfo::default();
    let mut begin = 0;
    for end in memchr_iter(b'\n', text).chain([text.len()]) {
        let line = text.get(begin..end).unwrap_or_default();
        begin = end + 1;
        if line.starts_with(b"Node ") {
            heading(line, &mut parsed);
        } else if !line.is_empty() {
            field(line, &mut parsed, pagesets);
        }
    }
    parsed
}

/// `Node 0, zone   Normal`
fn heading(line: &[u8], parsed: &mut Zoneinfo) {
    let words = std::str::from_utf8(line).unwrap_or_default();
    let Some((node, zone)) = words["Node ".len()..].split_once(", zone") else { return };
    let (Ok(node), name) = (node.trim().parse(), zone.trim()) else { return };
    let is_new = parsed.zones.last().is_none_or(|zone| zone.node != node);
    if is_new && !parsed.nodes.iter().any(|stats| stats.node == node) {
        parsed.nodes.push(NodeStats { node, ..NodeStats::default() });
    }
    if parsed.zones.len() < ZONES_MOST {
        parsed.zones.push(ZoneSample {
            node,
            zone: name.chars().take(16).collect(),
            ..ZoneSample::default()
        });
    }
}

fn field(line: &[u8], parsed: &mut Zoneinfo, pagesets: Pagesets) {
    let Some(zone) = parsed.zones.last_mut() else { return };
    let line = line.trim_ascii_start();
    let key_end = line.iter().position(|byte| *byte == b' ' || *byte == b':').unwrap_or(line.len());
    let (key, rest) = line.split_at(key_end);
    let value = || number(rest);
    match key {
        b"pages" => {
            // `pages free     3840`
            if let Some(rest) = rest.trim_ascii_start().strip_prefix(b"free") {
                zone.free = number(rest);
            }
        }
        b"boost" => zone.boost = value(),
        b"min" => zone.min = value(),
        b"low" => zone.low = value(),
        b"high" if zone.managed.is_none() => zone.high = value(),
        b"promo" => zone.promo = value(),
        b"present" => zone.present = value(),
        b"managed" => zone.managed = value(),
        b"protection" => zone.protection = numbers(rest),
        b"numa_hit" => zone.numa_hit = value(),
        b"numa_miss" => zone.numa_miss = value(),
        b"numa_foreign" => zone.numa_foreign = value(),
        b"count" => {
            let count = value().unwrap_or(0);
            zone.pageset_pages = Some(zone.pageset_pages.unwrap_or(0).saturating_add(count));
            if let Some(last) = zone.pagesets.last_mut().filter(|_| pagesets == Pagesets::EachCpu) {
                last.count = count;
            }
        }
        b"cpu" => {
            zone.cpus = zone.cpus.saturating_add(1);
            if pagesets == Pagesets::EachCpu
                && let Some(cpu) = value()
            {
                zone.pagesets.push(PagesetSample { cpu: cpu as u32, ..PagesetSample::default() });
            }
        }
        b"high" | b"batch" if pagesets == Pagesets::EachCpu => {
            if let Some(last) = zone.pagesets.last_mut() {
                let field = if key == b"high" { &mut last.high } else { &mut last.batch };
                *field = value().unwrap_or(0);
            }
        }
        _ if key.starts_with(b"nr_") => node_stat(key, rest, parsed),
        _ => {}
    }
}

fn node_stat(key: &[u8], rest: &[u8], parsed: &mut Zoneinfo) {
    let Some(node) = parsed.nodes.last_mut() else { return };
    let field = match key {
        b"nr_active_anon" | b"nr_inactive_anon" => &mut node.anon,
        b"nr_active_file" | b"nr_inactive_file" => &mut node.file,
        b"nr_slab_reclaimable" | b"nr_slab_unreclaimable" => &mut node.slab,
        _ => return,
    };
    *field = field.saturating_add(number(rest).unwrap_or(0));
}

/// `: (0, 2990, 4959)`
fn numbers(text: &[u8]) -> Vec<u64> {
    text.split(|byte| matches!(byte, b',' | b'(' | b')')).filter_map(number).take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"Node 0, zone   Normal\n  per-node stats\n      nr_inactive_anon 5\n      nr_active_file 7\n  pages free     3840\n        boost    1\n        min      19\n        low      23\n        high     27\n        promo    31\n        spanned  4095\n        present  3998\n        managed  3840\n        protection: (0, 3019, 5195)\n      numa_hit     11\n  pagesets\n    cpu: 0\n              count:    3\n              high:     9\n              batch:    1\n  vm stats threshold: 4\n    cpu: 17\n              count: 4\n              high:  14\n              high_min: 2\nNode 3, zone   Normal\n  pages free 1\n";

    #[test]
    fn zones_and_pagesets() {
        let sums = parse(TEXT, Pagesets::Sums);
        let [zone, other] = &sums.zones[..] else { panic!("{sums:?}") };
        assert_eq!(
            (zone.free, zone.boost, zone.min, zone.low, zone.high, zone.promo),
            (Some(3840), Some(1), Some(19), Some(23), Some(27), Some(31))
        );
        assert_eq!(
            (zone.managed, zone.pageset_pages, zone.cpus, zone.numa_hit),
            (Some(3840), Some(7), 2, Some(11))
        );
        assert_eq!(zone.protection, [0, 3019, 5195]);
        assert!(zone.pagesets.is_empty());
        assert_eq!((other.node, other.free, other.min), (3, Some(1), None));
        assert_eq!((sums.nodes[0].anon, sums.nodes[0].file), (5, 7));
        let each = parse(TEXT, Pagesets::EachCpu);
        let pageset = &each.zones[0].pagesets[1];
        assert_eq!((pageset.cpu, pageset.count, pageset.high), (17, 4, 14));
    }

    #[test]
    fn damage_is_passed_over() {
        for end in 0..TEXT.len() {
            parse(&TEXT[..end], Pagesets::EachCpu);
            parse(&TEXT[end..], Pagesets::EachCpu);
        }
    }
}
