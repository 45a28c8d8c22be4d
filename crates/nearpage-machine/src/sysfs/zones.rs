//! The zones of a machine: read from /proc/zoneinfo, and checked against the memory of its nodes.

use nearpage::ZoneKind;

use super::error::SysfsError;
use super::source::{Source, TextFile};
use super::zoneinfo::{ZoneRecord, parse};
use crate::machine::{MachineNode, Note, PAGE_BYTES_DEFAULT, ZoneExtent};

/// The largest base page that any Linux has: 256 KiB.
const PAGE_BYTES_MAX: u64 = 256 << 10;

/// The populated zones. There are none without the file. With a note there are none if the file is empty, or if it lacks
/// the extent of a zone, as with old kernels and with HighMem of 32-bit kernels.
pub(super) fn read(
    source: &Source<'_>,
    notes: &mut Vec<Note>,
) -> Result<Vec<ZoneExtent>, SysfsError> {
    let Some(file) = source.read_if_allowed("proc/zoneinfo")? else { return Ok(Vec::new()) };
    if file.text.is_empty() {
        notes.push(Note::ZonesEmpty);
        return Ok(Vec::new());
    }
    let zones = parse(&file)?;
    check_end(&file, &zones)?;
    let extents = extents(&zones);
    if extents.is_none() {
        notes.push(Note::ZonesUnknown);
    }
    Ok(extents.unwrap_or_default())
}

/// Checks that the text was not cut off. The kernel writes the zones of a node at once, so even a node that is added or
/// removed meanwhile is whole. A text that ends within its first node cannot be recognised here.
fn check_end(file: &TextFile, zones: &[ZoneRecord]) -> Result<(), SysfsError> {
    let Some(last) = zones.last() else { return Ok(()) };
    let cut_off = |expected: String| {
        let line = file.text.lines().count();
        Err(SysfsError::CutOff { file: file.name.clone(), line, expected })
    };
    let tells_start = zones.iter().any(|zone| zone.start_pfn.is_some());
    if last.is_populated() && last.start_pfn.is_none() && tells_start {
        return cut_off(format!("start_pfn: of the last zone of node {}", last.node));
    }
    // From 4.12 on kernels print also the unpopulated zones: of each node as many as `protection:` has entries.
    let prints_all = zones.iter().any(|zone| !zone.is_populated());
    let kinds = zones.iter().find_map(|zone| zone.protection.as_ref()).map_or(0, Vec::len);
    let of_last = zones.iter().rev().take_while(|zone| zone.node == last.node).count();
    if prints_all && of_last < kinds {
        return cut_off(format!("{kinds} zones of node {}, as protection: has entries", last.node));
    }
    Ok(())
}

fn extents(zones: &[ZoneRecord]) -> Option<Vec<ZoneExtent>> {
    // An unpopulated zone has no `start_pfn`. Device memory is in no zonelist.
    let counts = |zone: &&ZoneRecord| zone.is_populated() && zone.kind != Some(ZoneKind::Device);
    zones.iter().filter(counts).map(ZoneRecord::extent).collect()
}

/// Bytes of a page: a node's `MemTotal` divided by the pages that its zones manage, which the kernel
/// prints from the same counters.
pub(super) fn page_bytes(nodes: &[MachineNode], zones: &[ZoneExtent]) -> u64 {
    let ratio = |node: &MachineNode| {
        let of_node = |zone: &&ZoneExtent| nodes.len() == 1 || zone.node == node.id;
        let managed = zones
            .iter()
            .filter(of_node)
            .fold(0, |sum: u64, zone| sum.saturating_add(zone.managed.0));
        // Memory may be added between reading the two files.
        let ratio = node.memory_bytes?.checked_div(managed)?;
        let bytes = ratio.checked_next_power_of_two()?;
        let is_size = (PAGE_BYTES_DEFAULT..=PAGE_BYTES_MAX).contains(&bytes);
        (is_size && is_most(ratio, bytes)).then_some(bytes)
    };
    nodes.iter().find_map(ratio).unwrap_or(PAGE_BYTES_DEFAULT)
}

/// Whether a part is at least 7/8 of the whole. Memory that is added or removed between two reads is far less.
fn is_most(part: u64, whole: u64) -> bool {
    part >= whole - whole / 8
}

/// Gives each node its zones, and a size if its meminfo is missing. If zones lack much of a node's memory, the text lost
/// its end or the node was just added: then all zones are dropped, because addresses would be wrong.
pub(super) fn attach_zones(
    nodes: &mut [MachineNode],
    zones: Vec<ZoneExtent>,
    page_bytes: u64,
    notes: &mut Vec<Note>,
) {
    let has_zones = !zones.is_empty();
    for node in &mut *nodes {
        node.zones = zones.iter().copied().filter(|zone| zone.node == node.id).collect();
        if node.memory_bytes.is_none() {
            node.memory_bytes = managed_bytes(&node.zones, page_bytes);
        }
        if node.memory_bytes.is_none() {
            notes.push(Note::MemoryUnknown { node: node.id });
        }
    }
    let incomplete = |node: &MachineNode| {
        let managed = managed_bytes(&node.zones, page_bytes).unwrap_or(0);
        let size = node.memory_bytes.filter(|&size| has_zones && !is_most(managed, size))?;
        Some(Note::ZonesIncomplete { node: node.id, managed, size })
    };
    let incomplete: Vec<Note> = nodes.iter().filter_map(incomplete).collect();
    if !incomplete.is_empty() {
        nodes.iter_mut().for_each(|node| node.zones.clear());
        notes.extend(incomplete);
    }
}

/// The bytes that zones manage; `None` without zones.
fn managed_bytes(zones: &[ZoneExtent], page_bytes: u64) -> Option<u64> {
    let managed = zones.iter().map(|zone| zone.managed.0).reduce(u64::saturating_add)?;
    managed.checked_mul(page_bytes)
}

#[cfg(test)]
mod tests {
    use nearpage::{NodeId, PageCount, Pfn};

    use super::*;
    use crate::tree::MemoryTree;

    fn zones(text: &str) -> Result<Option<Vec<ZoneExtent>>, String> {
        let file = TextFile { name: "zoneinfo".into(), text: text.into() };
        parse(&file).map(|zones| extents(&zones)).map_err(|error| error.to_string())
    }

    /// A zone of node 0, an unpopulated one, and a zone of node 2.
    const RECORDED: &str = "\
Node 0, zone      DMA
  pages free     3776
        spanned  4095
        present  3998
        managed  3840
  start_pfn:           1
Node 0, zone   Normal
  pages free     0
        spanned  0
        present  0
        managed  0
Node 2, zone    DMA32
  pages free     245890
        spanned  262112
        present  262112
        managed  256020
  start_pfn:           262144
";

    #[test]
    fn populated_zones_are_read() {
        let zones = zones(RECORDED).unwrap().unwrap();
        assert_eq!(zones.len(), 2);
        assert_eq!(
            zones[0],
            ZoneExtent {
                node: NodeId(0),
                kind: ZoneKind::Dma,
                start: Pfn(1),
                spanned: PageCount(4095),
                present: PageCount(3998),
                managed: PageCount(3840),
                free: PageCount(3776),
            }
        );
        assert_eq!((zones[1].node, zones[1].start), (NodeId(2), Pfn(262_144)));
    }

    /// As 6.12 prints two nodes of 2 kinds of zones, in short.
    const WHOLE: &str = "\
Node 0, zone   Normal
  pages free     7
        spanned  9
        present  9
        managed  9
        protection: (0, 0)
  start_pfn:           1
Node 0, zone  Movable
  pages free     0
        present  0
        protection: (0, 0)
Node 1, zone   Normal
  pages free     7
        spanned  9
        present  9
        managed  9
        protection: (0, 0)
  start_pfn:           20
Node 1, zone  Movable
  pages free     0
        present  0
        protection: (0, 0)
";

    /// The zones of a copy, and whether there is a note.
    fn cut(text: &str) -> Result<(Vec<ZoneExtent>, bool), String> {
        let (mut tree, mut notes) = (MemoryTree::new("box"), Vec::new());
        tree.insert("proc/zoneinfo", text);
        let zones = read(&Source::new(&tree), &mut notes).map_err(|error| error.to_string())?;
        Ok((zones, notes == [Note::ZonesUnknown]))
    }

    #[test]
    fn a_text_that_is_cut_off_within_a_node_is_refused() {
        let lines: Vec<&str> = WHOLE.split_inclusive('\n').collect();
        for kept in 1..lines.len() {
            let read = cut(&lines[..kept].concat());
            // Accepted are cuts behind a zone that may be the last of its node, and in the last zone, which is
            // unpopulated. A text that ends in its first zone may be that of an old kernel, which is a note.
            assert_eq!(
                read.is_ok(),
                kept <= 7 || (10..=11).contains(&kept) || kept >= 21,
                "{kept}: {read:?}"
            );
            assert_eq!(read.is_ok_and(|(_, is_noted)| is_noted), kept < 7, "{kept}");
        }
        let message = |kept: usize| cut(&lines[..kept].concat()).unwrap_err();
        assert_eq!(
            message(15),
            "box: proc/zoneinfo:15: ends here, expected start_pfn: of the last zone of node 1"
        );
        assert_eq!(
            message(18),
            "box: proc/zoneinfo:18: ends here, expected 2 zones of node 1, as protection: has entries"
        );
        // Recordings may lack the last newline.
        for whole in [WHOLE, WHOLE.trim_end()] {
            let (zones, is_noted) = cut(whole).unwrap();
            assert_eq!((zones.len(), is_noted), (2, false));
        }
    }

    #[test]
    fn foreign_kernels_tell_nothing() {
        assert_eq!(zones("Node 0, zone  HighMem\n  pages free 1\n  present 5\n"), Ok(None));
        assert_eq!(zones("Node 0, zone  Normal\n  pages free 1\n  present 5\n"), Ok(None));
    }
}
