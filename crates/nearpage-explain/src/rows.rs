//! The rows of `Mem-Info:`: nodes, zones, reserves, free blocks.

use crate::report::{FreeBlocks, NodeRow, ZoneRow};

/// Names of zones. No other begins a row.
pub(crate) const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];

/// Blocks of a zone that a report keeps: no kernel has as many orders.
const ORDERS_MOST: usize = 32;

/// The node and zone with which a row begins, and the rest; kernels without NUMA print no node.
fn zone_of(message: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = match message.strip_prefix("Node ") {
        Some(rest) => {
            let (node, rest) = rest.split_once(' ')?;
            (node.trim_end_matches(',').parse().ok()?, rest.trim_start())
        }
        None => (0, message),
    };
    let end = rest.find([' ', ':'])?;
    let name = &rest[..end];
    ZONES.contains(&name).then_some((node, name, rest[end..].trim_start()))
}

/// Whether a text begins with the name of a zone.
pub(crate) fn is_zone(text: &str) -> bool {
    zone_of(text).is_some()
}

/// `Node 0`, and no more.
pub(crate) fn is_node(text: &str) -> bool {
    text.strip_prefix("Node ").is_some_and(|id| {
        !id.is_empty() && id.len() < 5 && id.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `Node 0 DMA free:15872kB min:340kB ...`
pub(crate) fn zone(message: &str) -> Option<ZoneRow> {
    let (node, name, rest) = zone_of(message)?;
    if !rest.starts_with("free:") {
        return None;
    }
    let mut zone = ZoneRow { node, name: name.into(), ..ZoneRow::default() };
    for (key, kib) in fields(rest) {
        match key {
            "free" => zone.free = kib,
            "boost" => zone.boost = Some(kib),
            "min" => zone.min = kib,
            "low" => zone.low = kib,
            "high" => zone.high = kib,
            "reserved_highatomic" => zone.reserved_highatomic = kib,
            "free_highatomic" => zone.free_highatomic = Some(kib),
            "active_anon" | "inactive_anon" => zone.anon = zone.anon.saturating_add(kib),
            "active_file" | "inactive_file" => zone.file = zone.file.saturating_add(kib),
            "present" => zone.present = kib,
            "managed" => zone.managed = Some(kib),
            "free_pcp" => zone.free_pcp = Some(kib),
            "free_cma" => zone.free_cma = kib,
            _ => {}
        }
    }
    Some(zone)
}

/// The counters of a node, of kernels that print them with the zones.
pub(crate) fn node_of_zone(message: &str, row: &ZoneRow) -> NodeRow {
    let mut node = node_fields(row.node, message);
    node.all_unreclaimable = message.ends_with("all_unreclaimable? yes");
    node
}

/// `Node 0 active_anon:13072kB inactive_anon:8kB ... all_unreclaimable? no`
pub(crate) fn node(message: &str) -> Option<NodeRow> {
    let (node, rest) = message.strip_prefix("Node ")?.split_once(' ')?;
    let node = node.parse().ok()?;
    rest.starts_with("active_anon:").then(|| {
        let mut node = node_fields(node, rest);
        node.all_unreclaimable = rest.ends_with("all_unreclaimable? yes");
        node
    })
}

fn node_fields(node: u32, text: &str) -> NodeRow {
    let mut row = NodeRow { node, ..NodeRow::default() };
    for (key, kib) in fields(text) {
        let field = match key {
            "active_anon" | "inactive_anon" => &mut row.anon,
            "active_file" | "inactive_file" => &mut row.file,
            "unevictable" => &mut row.unevictable,
            "writeback" | "dirty" => &mut row.writeback,
            "shmem" => &mut row.shmem,
            _ => continue,
        };
        *field = field.saturating_add(kib);
    }
    row
}

/// `key:12kB` of a text, whatever else is in it.
fn fields(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.split_whitespace().filter_map(|word| {
        let (key, value) = word.split_once(':')?;
        let value = value.strip_suffix("kB").or_else(|| value.strip_suffix("KB"))?;
        Some((key, value.parse().ok()?))
    })
}

/// `lowmem_reserve[]: 0 1907 7941 7941 7941`
pub(crate) fn reserve(message: &str) -> Option<Vec<u64>> {
    numbers(message.strip_prefix("lowmem_reserve[]:")?)
}

/// Numbers alone: the rest of a line that the log broke.
pub(crate) fn numbers(text: &str) -> Option<Vec<u64>> {
    let words: Vec<&str> = text.split_whitespace().take(16).collect();
    words.iter().map(|word| word.parse().ok()).collect()
}

/// `Node 0 DMA: 1*4kB (U) 0*8kB ... = 15872kB`: node, zone, blocks.
pub(crate) fn blocks(message: &str) -> Option<(u32, String, Vec<FreeBlocks>)> {
    let (node, name, rest) = zone_of(message)?;
    let rest = rest.strip_prefix(':')?.trim_start();
    if !rest.is_empty() && !is_blocks(rest) {
        return None;
    }
    let mut blocks = Vec::new();
    add_blocks(&mut blocks, rest);
    Some((node, name.into(), blocks))
}

/// Whether a text begins with blocks, or with the types of some: a part of a line that the log broke.
pub(crate) fn is_blocks(text: &str) -> bool {
    text.split_whitespace()
        .next()
        .is_some_and(|word| count_and_size(word).is_some() || types(word).is_some())
}

/// Adds the blocks of a text to those before.
pub(crate) fn add_blocks(blocks: &mut Vec<FreeBlocks>, text: &str) {
    for word in text.split_whitespace() {
        if let Some((count, kib)) = count_and_size(word) {
            // Each order is twice the one before.
            let follows = blocks.last().is_none_or(|last| last.kib.checked_mul(2) == Some(kib));
            if follows && blocks.len() < ORDERS_MOST {
                blocks.push(FreeBlocks { count, kib, types: None });
            }
        } else if let (Some(letters), Some(last)) = (types(word), blocks.last_mut()) {
            last.types = Some(letters.into());
        }
    }
    // A kernel that prints types prints them of every order that has blocks.
    if blocks.iter().any(|blocks| blocks.types.is_some()) {
        for blocks in blocks.iter_mut().filter(|blocks| blocks.types.is_none()) {
            blocks.types = Some(String::new());
        }
    }
}

fn count_and_size(word: &str) -> Option<(u64, u64)> {
    let (count, size) = word.split_once('*')?;
    Some((count.parse().ok()?, size.strip_suffix("kB")?.parse().ok()?))
}

fn types(word: &str) -> Option<&str> {
    let letters = word.strip_prefix('(')?.strip_suffix(')')?;
    letters.chars().all(|letter| "UMERHCI".contains(letter)).then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_of_this_decade() {
        let text = "Node 1 DMA32 free:15872kB boost:2048kB min:340kB low:424kB high:508kB reserved_highatomic:2048KB \
                    free_highatomic:1024KB active_anon:8kB inactive_anon:4kB active_file:0kB inactive_file:16kB \
                    present:15992kB managed:15908kB free_pcp:12kB local_pcp:0kB free_cma:4kB";
        let row = zone(text).unwrap();
        assert_eq!((row.node, row.name.as_str()), (1, "DMA32"));
        assert_eq!(
            (row.free, row.boost, row.min, row.low, row.high),
            (15872, Some(2048), 340, 424, 508)
        );
        assert_eq!(
            (row.reserved_highatomic, row.free_highatomic, row.anon, row.file),
            (2048, Some(1024), 12, 16)
        );
        assert_eq!(
            (row.present, row.managed, row.free_pcp, row.free_cma),
            (15992, Some(15908), Some(12), 4)
        );
        assert_eq!(zone("Normal free:8kB min:4kB").unwrap().node, 0);
        assert!(
            zone("Node 0 active_anon:8kB").is_none() && zone("Node 0 Strange free:8kB").is_none()
        );
    }

    #[test]
    fn blocks_with_types_and_without() {
        let (node, name, with) =
            blocks("Node 0 Normal: 3*4kB (UM) 0*8kB 2*16kB (H) = 44kB").unwrap();
        assert_eq!((node, name.as_str(), with.len()), (0, "Normal", 3));
        let types: Vec<_> = with.iter().map(|blocks| blocks.types.as_deref().unwrap()).collect();
        assert_eq!(types, ["UM", "", "H"]);
        let (.., without) = blocks("DMA: 3*4kB 0*8kB = 12kB").unwrap();
        assert!(without.iter().all(|blocks| blocks.types.is_none()));
        let (.., mut broken) = blocks("Node 0 DMA: 1*4kB").unwrap();
        assert!(is_blocks("(U) 2*8kB") && is_blocks("2*8kB"));
        add_blocks(&mut broken, "(U) 2*8kB");
        assert_eq!((broken[0].types.as_deref(), broken[1].count), (Some("U"), 2));
        assert!(blocks("Node 0 DMA per-cpu:").is_none());
    }

    #[test]
    fn reserves_and_nodes() {
        assert_eq!(reserve("lowmem_reserve[]: 0 1907 7941"), Some(vec![0, 1907, 7941]));
        assert_eq!(reserve("lowmem_reserve[]:"), Some(vec![]));
        let row = node("Node 2 active_anon:4kB inactive_anon:8kB unevictable:1kB shmem:2kB all_unreclaimable? yes").unwrap();
        assert_eq!(
            (row.node, row.anon, row.unevictable, row.shmem, row.all_unreclaimable),
            (2, 12, 1, 2, true)
        );
    }
}
