//! /proc/zoneinfo: the zones of the kernel. No other file has their addresses.

use nearpage::{CpuId, NodeId, PageCount, Pfn, ZoneKind};

use super::error::SysfsError;
use super::source::{TextFile, words};
use crate::idlist;
use crate::machine::ZoneExtent;

/// A zone in the text: what the kernel computes, and what it computes from. A field that the text lacks is `None`:
/// kernels differ, and so do the zones of one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneRecord {
    /// The node that has the zone.
    pub node: NodeId,
    /// The kind of zone; `None` for kinds that only other processors have (HighMem).
    pub kind: Option<ZoneKind>,
    /// `pages free`.
    pub free: Option<u64>,
    /// The boost of its watermarks, in pages.
    pub boost: Option<u64>,
    /// The `min` mark, boost included.
    pub min: Option<u64>,
    /// The `low` mark, boost included.
    pub low: Option<u64>,
    /// The `high` mark, boost included.
    pub high: Option<u64>,
    /// The `promo` mark, boost included; from 6.2 on.
    pub promo: Option<u64>,
    /// Frames from first to last, holes included.
    pub spanned: Option<u64>,
    /// Frames that are memory of this node.
    pub present: Option<u64>,
    /// Frames that the allocator manages.
    pub managed: Option<u64>,
    /// Pages kept from requests, one entry a kind of zone that the kernel is built with.
    pub protection: Option<Vec<u64>>,
    /// Allocations from here that preferred this node, since boot.
    pub numa_hit: Option<u64>,
    /// Allocations from here that preferred another node, since boot.
    pub numa_miss: Option<u64>,
    /// Allocations that preferred this zone and came from another node, since boot.
    pub numa_foreign: Option<u64>,
    /// One a CPU that is online; none for an unpopulated zone.
    pub pagesets: Vec<PagesetRecord>,
    /// First frame.
    pub start_pfn: Option<u64>,
}

/// A CPU's pageset as the kernel prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagesetRecord {
    /// The CPU.
    pub cpu: CpuId,
    /// Pages in it.
    pub count: Option<u64>,
    /// Its limit.
    pub high: Option<u64>,
    /// Unit of refills and drains.
    pub batch: Option<u64>,
    /// Lower bound of `high`; 6.18.
    pub high_min: Option<u64>,
    /// Upper bound of `high`; 6.18.
    pub high_max: Option<u64>,
    /// `vm stats threshold`.
    pub stat_threshold: Option<u64>,
}

impl PagesetRecord {
    /// A pageset without known values.
    pub fn new(cpu: CpuId) -> PagesetRecord {
        PagesetRecord {
            cpu,
            count: None,
            high: None,
            batch: None,
            high_min: None,
            high_max: None,
            stat_threshold: None,
        }
    }

    fn field(&mut self, key: &str) -> Option<&mut Option<u64>> {
        match key {
            "count:" => Some(&mut self.count),
            "high:" => Some(&mut self.high),
            "batch:" => Some(&mut self.batch),
            "high_min:" => Some(&mut self.high_min),
            "high_max:" => Some(&mut self.high_max),
            "vm" => Some(&mut self.stat_threshold),
            _ => None,
        }
    }
}

impl ZoneRecord {
    /// A zone without known values.
    pub fn new(node: NodeId, kind: Option<ZoneKind>) -> ZoneRecord {
        ZoneRecord {
            node,
            kind,
            free: None,
            boost: None,
            min: None,
            low: None,
            high: None,
            promo: None,
            spanned: None,
            present: None,
            managed: None,
            protection: None,
            numa_hit: None,
            numa_miss: None,
            numa_foreign: None,
            pagesets: Vec::new(),
            start_pfn: None,
        }
    }

    /// Whether the zone has memory. A zone of unknown size counts as populated.
    pub fn is_populated(&self) -> bool {
        self.present != Some(0)
    }

    /// The field that a line's first word names; `None` for lines that are not read.
    fn field(&mut self, key: &str) -> Option<&mut Option<u64>> {
        match key {
            "free" => Some(&mut self.free),
            "boost" => Some(&mut self.boost),
            "min" => Some(&mut self.min),
            "low" => Some(&mut self.low),
            "high" => Some(&mut self.high),
            "promo" => Some(&mut self.promo),
            "spanned" => Some(&mut self.spanned),
            "present" => Some(&mut self.present),
            "managed" => Some(&mut self.managed),
            "numa_hit" => Some(&mut self.numa_hit),
            "numa_miss" => Some(&mut self.numa_miss),
            "numa_foreign" => Some(&mut self.numa_foreign),
            "start_pfn:" => Some(&mut self.start_pfn),
            _ => self.pagesets.last_mut()?.field(key),
        }
    }

    /// The extent; `None` if the text lacks a part of it.
    pub(super) fn extent(&self) -> Option<ZoneExtent> {
        Some(ZoneExtent {
            node: self.node,
            kind: self.kind?,
            start: Pfn(self.start_pfn?),
            spanned: PageCount(self.spanned?),
            present: PageCount(self.present?),
            managed: PageCount(self.managed?),
            free: PageCount(self.free?),
        })
    }
}

/// Reads `/proc/zoneinfo` of any kernel: all zones in the order of the text. Lines with unknown keys are skipped.
///
/// # Errors
///
/// [`SysfsError::Syntax`] with line and column: a heading or a number that no kernel writes, a zone that occurs twice,
/// or one that spans fewer pages than it has.
pub fn parse(file: &TextFile) -> Result<Vec<ZoneRecord>, SysfsError> {
    let mut zones: Vec<ZoneRecord> = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with("Node ") {
            let zone = parse_heading(file, index + 1, line)?;
            if zones.iter().any(|other| (other.node, other.kind) == (zone.node, zone.kind)) {
                return Err(file.syntax(index + 1, 1, line, "each zone once"));
            }
            zones.push(zone);
        } else if let Some(zone) = zones.last_mut() {
            parse_line(file, index + 1, line, zone)?;
        }
    }
    Ok(zones)
}

/// Reads `Node 0, zone      DMA`.
fn parse_heading(file: &TextFile, line: usize, text: &str) -> Result<ZoneRecord, SysfsError> {
    let expected = "a heading such as Node 0, zone Normal";
    let parts = text.strip_prefix("Node ").and_then(|rest| rest.split_once(", zone"));
    let Some((node, name)) = parts else { return Err(file.syntax(line, 1, text, expected)) };
    let node = node.parse().map_err(|_| file.syntax(line, 6, node, expected))?;
    let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
    Ok(ZoneRecord::new(NodeId(node), kind))
}

fn parse_line(
    file: &TextFile,
    line: usize,
    text: &str,
    zone: &mut ZoneRecord,
) -> Result<(), SysfsError> {
    let mut words = words(text).peekable();
    words.next_if(|(_, word)| *word == "pages");
    let Some((_, key)) = words.next() else { return Ok(()) };
    let end = text.chars().count() + 1;
    let number = |word: Option<(usize, &str)>, expected: &str| {
        let (column, word) = word.unwrap_or((end, ""));
        word.parse().map_err(|_| file.syntax(line, column, word, expected))
    };
    match key {
        "protection:" => zone.protection = Some(parse_protection(file, line, text)?),
        "cpu:" => {
            let cpu = number(words.next(), "the number of a CPU")?;
            let cpu = u32::try_from(cpu).ok().filter(|&cpu| cpu <= idlist::MAX_ID);
            let Some(cpu) = cpu else { return Err(file.syntax(line, 1, text, "a CPU's number")) };
            zone.pagesets.push(PagesetRecord::new(CpuId(cpu)));
        }
        _ => {
            let value = if key == "vm" { words.nth(2) } else { words.next() };
            if let Some(slot) = zone.field(key) {
                *slot = Some(number(value, "a number of pages")?);
                check_size(file, line, value, key, zone)?;
            }
        }
    }
    Ok(())
}

/// Checks that a zone has no more free, present and managed pages than it spans. The kernel prints `free` first.
fn check_size(
    file: &TextFile,
    line: usize,
    value: Option<(usize, &str)>,
    key: &str,
    zone: &ZoneRecord,
) -> Result<(), SysfsError> {
    let (Some(spanned), Some((column, word))) = (zone.spanned, value) else { return Ok(()) };
    let told = |pages: Option<u64>| pages.unwrap_or(0);
    let expected = match key {
        "spanned" if told(zone.free) > spanned => {
            format!("at least the {} pages that are free", told(zone.free))
        }
        "present" | "managed" if told(zone.present).max(told(zone.managed)) > spanned => {
            format!("at most the {spanned} pages that the zone spans")
        }
        _ => return Ok(()),
    };
    Err(file.syntax(line, column, word, &expected))
}

/// Reads `protection: (0, 954, 954, 954, 954)`.
fn parse_protection(file: &TextFile, line: usize, text: &str) -> Result<Vec<u64>, SysfsError> {
    let expected = "pages such as protection: (0, 954, 954)";
    let list = text.split_once('(').and_then(|(_, rest)| rest.trim_end().strip_suffix(')'));
    let Some(list) = list else { return Err(file.syntax(line, 1, text.trim(), expected)) };
    let column = |word: &str| {
        let offset = word.as_ptr() as usize - text.as_ptr() as usize;
        text[..offset].chars().count() + 1
    };
    let number = |word: &str| {
        let word = word.trim();
        word.parse().map_err(|_| file.syntax(line, column(word), word, expected))
    };
    list.split(',').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from a recording of 6.12: unpopulated zones, a memoryless node, a node of its own.
    const RECORDED: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 0
  pages free     3776
        boost    0
        min      128
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 954, 954, 954, 954)
      nr_free_pages 3776
  pagesets
    cpu: 0
              count: 0
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone   Normal
  pages free     0
        spanned  0
        present  0
        managed  0
        protection: (0, 0, 0, 0, 0)
Node 2, zone    DMA32
  pages free     245890
        spanned  262112
        present  262112
        managed  256020
  start_pfn:           262144
";

    fn records(text: &str) -> Result<Vec<ZoneRecord>, String> {
        let file = TextFile { name: "zoneinfo".into(), text: text.into() };
        parse(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn all_that_is_computed_is_read() {
        let zones = records(RECORDED).unwrap();
        assert_eq!(zones.len(), 3);
        assert_eq!((zones[0].boost, zones[0].min, zones[0].low), (Some(0), Some(128), None));
        assert_eq!(zones[0].protection, Some(vec![0, 954, 954, 954, 954]));
        assert_eq!(
            zones[0].pagesets,
            [PagesetRecord { count: Some(0), ..PagesetRecord::new(CpuId(0)) }]
        );
        assert!(zones[1].pagesets.is_empty() && !zones[1].is_populated());
    }

    /// As 6.18 prints it, with unknown keys.
    #[test]
    fn keys_of_newer_kernels_are_read_or_left() {
        let text = "Node 0, zone Normal\n        high     90\n        demote   8\n      nr_new 9\n  \
                    pagesets\n    cpu: 3\n              count:    1\n              high:     2\n              \
                    batch:    63\n              high_min: 4\n              high_max: 5\n              \
                    news: x\n  vm stats threshold: 12\n  node_unreclaimable:  0\n";
        let zones = records(text).unwrap();
        assert_eq!(zones[0].high, Some(90));
        let expected = PagesetRecord {
            cpu: CpuId(3),
            count: Some(1),
            high: Some(2),
            batch: Some(63),
            high_min: Some(4),
            high_max: Some(5),
            stat_threshold: Some(12),
        };
        assert_eq!(zones[0].pagesets, [expected]);
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(
            records("Node x, zone Normal\n").unwrap_err(),
            "zoneinfo:1:6: found \"x\", expected a heading such as Node 0, zone Normal"
        );
        assert_eq!(
            records("Node 0, zone Normal\n  pages free     -1\n").unwrap_err(),
            "zoneinfo:2:18: found \"-1\", expected a number of pages"
        );
        assert_eq!(
            records("Node 0, zone Normal\n        protection: (0, x, 5)\n").unwrap_err(),
            "zoneinfo:2:25: found \"x\", expected pages such as protection: (0, 954, 954)"
        );
        assert_eq!(
            records("Node 0, zone Normal\n  pages free 12\n        spanned  9\n").unwrap_err(),
            "zoneinfo:3:18: found \"9\", expected at least the 12 pages that are free"
        );
        assert_eq!(
            records("Node 0, zone Normal\n        spanned  9\n        present  10\n").unwrap_err(),
            "zoneinfo:3:18: found \"10\", expected at most the 9 pages that the zone spans"
        );
        assert_eq!(
            records("Node 0, zone Normal\n cpu: 99999999999\n").unwrap_err(),
            "zoneinfo:2:1: found \" cpu: 99999999999\", expected a CPU's number"
        );
        assert_eq!(
            records("Node 0, zone Normal\nNode 0, zone  Normal\n").unwrap_err(),
            "zoneinfo:2:1: found \"Node 0, zone  Normal\", expected each zone once"
        );
    }
}
