//! The rows of `Mem-Info:`: nodes, zones, reserves, free blocks.

use crate::figure::Figure;
use crate::report::{FreeBlocks, NodeRow, ZoneRow};

/// Names of zones. No other begins a row.
pub(crate) const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];

/// Figures of a zone by which it decides.
const DECIDES: [&str; 10] = [
    "free",
    "boost",
    "min",
    "low",
    "high",
    "reserved_highatomic",
    "free_highatomic",
    "present",
    "managed",
    "free_cma",
];

/// Figures that all kernels print of a zone: a row without one of them was cut.
const IN_EVERY_ROW: [&str; 3] = ["free", "min", "present"];

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
    let mut missing = IN_EVERY_ROW.to_vec();
    let (mut anon, mut file, mut lists) = (Sum::of(2), Sum::of(2), Sum::of(2));
    for (key, kib) in fields(rest) {
        let Ok(kib) = kib.parse::<u64>() else {
            zone.is_damaged |= DECIDES.contains(&key);
            continue;
        };
        missing.retain(|other| *other != key);
        let field = match key {
            "free" => &mut zone.free,
            "boost" => &mut zone.boost,
            "min" => &mut zone.min,
            "low" => &mut zone.low,
            "high" => &mut zone.high,
            "reserved_highatomic" => &mut zone.reserved_highatomic,
            "free_highatomic" => &mut zone.free_highatomic,
            "present" => &mut zone.present,
            "managed" => &mut zone.managed,
            "mlocked" => &mut zone.mlocked,
            "free_pcp" => &mut zone.free_pcp,
            "free_cma" => &mut zone.free_cma,
            "slab_unreclaimable" => &mut zone.slab_unreclaimable,
            "slab_reclaimable" => &mut zone.slab_reclaimable,
            "active_anon" | "inactive_anon" => {
                anon.add(kib);
                continue;
            }
            "active_file" | "inactive_file" => {
                file.add(kib);
                continue;
            }
            "active" | "inactive" => {
                lists.add(kib);
                continue;
            }
            _ => continue,
        };
        *field = Figure::exact(kib);
    }
    (zone.anon, zone.file, zone.lists) = (anon.figure(), file.figure(), lists.figure());
    zone.is_damaged |= !missing.is_empty() || breaks_off(rest);
    Some(zone)
}

/// Parts that are summed up: what is missing may be anything.
struct Sum {
    missing: usize,
    sum: u64,
}

impl Sum {
    const fn of(parts: usize) -> Sum {
        Sum { missing: parts, sum: 0 }
    }

    fn add(&mut self, part: u64) {
        self.missing = self.missing.saturating_sub(1);
        self.sum = self.sum.saturating_add(part);
    }

    fn figure(&self) -> Figure {
        match self.missing {
            0 => Figure::exact(self.sum),
            _ => Figure::between(self.sum, u64::MAX),
        }
    }
}

/// Whether the last word of a row of figures is a part of one: `mana`, `present:1`.
fn breaks_off(rest: &str) -> bool {
    let last = without_note(rest.split_whitespace().next_back().unwrap_or_default());
    let is_figure = last.ends_with("kB") || last.ends_with("KB");
    !is_figure
        && !rest.ends_with("all_unreclaimable? yes")
        && !rest.ends_with("all_unreclaimable? no")
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
    let [mut anon, mut file, mut writeback] = [Sum::of(2), Sum::of(2), Sum::of(2)];
    let [mut unevictable, mut shmem, mut stacks] = [Sum::of(1), Sum::of(1), Sum::of(1)];
    for (key, kib) in fields(text) {
        let Ok(kib) = kib.parse::<u64>() else { continue };
        match key {
            "active_anon" | "inactive_anon" => anon.add(kib),
            "active_file" | "inactive_file" => file.add(kib),
            "writeback" | "dirty" => writeback.add(kib),
            "unevictable" => unevictable.add(kib),
            "shmem" => shmem.add(kib),
            "kernel_stack" => stacks.add(kib),
            _ => {}
        }
    }
    NodeRow {
        node,
        anon: anon.figure(),
        file: file.figure(),
        unevictable: unevictable.figure(),
        writeback: writeback.figure(),
        shmem: shmem.figure(),
        kernel_stack: stacks.figure(),
        ..NodeRow::default()
    }
}

/// `2643608kB` of `2643608kB(2.5G)`: who reads a log writes sizes into it.
fn without_note(word: &str) -> &str {
    let (value, note) = word.split_once('(').unwrap_or((word, ")"));
    if note.ends_with(')') { value } else { word }
}

/// `key:12kB` of a text, whatever else is in it: `key` and `12`.
fn fields(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().filter_map(|word| {
        let (key, value) = word.split_once(':')?;
        let value = without_note(value);
        Some((key, value.strip_suffix("kB").or_else(|| value.strip_suffix("KB"))?))
    })
}

/// Whether a message is a row of figures.
fn is_row(message: &str) -> bool {
    const BEGINS: [&str; 5] =
        ["Node ", "lowmem_reserve[]:", "Free swap", "Total swap", "memory: usage "];
    const HAVE: [&str; 3] = ["slab_reclaimable:", " pages RAM", "illed process "];
    BEGINS.iter().any(|begin| message.starts_with(begin))
        || HAVE.iter().any(|part| message.contains(part))
        || is_zone(message)
}

/// Whether a message has a number below zero, or of so many digits that 64 bits may not hold it. Nearly none has.
fn has_odd_number(message: &str) -> bool {
    let (mut digits, mut before) = (0, b' ');
    message.bytes().any(|byte| {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        let is_negative = digits == 1 && before == b'-';
        before = byte;
        is_negative || digits == 20
    })
}

/// The first word of a row of figures whose figure is none: too large for 64 bits, or below zero.
pub(crate) fn unreadable(message: &str) -> Option<&str> {
    // Free swap is below zero while swap is switched off.
    if !has_odd_number(message) || !is_row(message) || message.starts_with("Free swap  = -") {
        return None;
    }
    let mut words = message.split_whitespace();
    words.find(|word| {
        let (key, value) = word.rsplit_once([':', '=']).unwrap_or(("", word));
        let value = value.split_once('*').map_or(value, |(count, _)| count);
        let value = value.trim_end_matches([',', ')']);
        let value = value.strip_suffix("kB").or_else(|| value.strip_suffix("KB")).unwrap_or(value);
        let digits = value.strip_prefix('-').unwrap_or(value);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number && value.parse::<u64>().is_err() && key != "oom_score_adj"
    })
}

/// `lowmem_reserve[]: 0 1907 7941 7941 7941`
pub(crate) fn reserve(message: &str) -> Option<Vec<u64>> {
    // Before Linux 2.6.12 the marks were a part of what it told, unless there was none.
    let older = || numbers(message.strip_prefix("protections[]:")?);
    let older = || older().filter(|numbers| numbers.iter().all(|kept| *kept == 0));
    message.strip_prefix("lowmem_reserve[]:").map_or_else(older, numbers)
}

/// Numbers alone: the rest of a line that the log broke.
pub(crate) fn numbers(text: &str) -> Option<Vec<u64>> {
    let words: Vec<&str> = text.split_whitespace().take(16).collect();
    words.iter().map(|word| word.parse().ok()).collect()
}

/// The free blocks of a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlocksRow {
    pub(crate) node: u32,
    pub(crate) zone: String,
    pub(crate) blocks: Vec<FreeBlocks>,
    /// The sum with which the row ends, if it has its end.
    pub(crate) ends: Option<Figure>,
}

/// `Node 0 DMA: 1*4kB (U) 0*8kB ... = 15872kB`
pub(crate) fn blocks(message: &str) -> Option<BlocksRow> {
    let (node, name, rest) = zone_of(message)?;
    let rest = rest.strip_prefix(':')?.trim_start();
    if !rest.is_empty() && !is_blocks(rest) {
        return None;
    }
    let mut blocks = Vec::new();
    // With one count missing, no order could be told from the next.
    if unreadable(message).is_none() {
        add_blocks(&mut blocks, rest);
    }
    Some(BlocksRow { node, zone: name.into(), blocks, ends: ends_blocks(rest) })
}

/// Whether a text begins with blocks, the types of some, or their sum: a part of a line that the log broke.
pub(crate) fn is_blocks(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next().is_some_and(|word| {
        count_and_size(word).is_some()
            || types(word).is_some()
            || word == "=" && words.next().is_some_and(|sum| sum.ends_with("kB"))
    })
}

/// The sum in KiB with which a text ends a row of blocks: its last figure.
pub(crate) fn ends_blocks(text: &str) -> Option<Figure> {
    let (_, sum) = text.split_once("= ")?;
    let sum = sum.split_whitespace().next()?.strip_suffix("kB")?;
    Some(sum.parse().ok().into())
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
}

/// What is sure of the blocks that a row had: all of them if their sum is the row's, and of a row that breaks off those orders
/// that are whole. Whether they are all is the answer.
pub(crate) fn seal_blocks(blocks: &mut Vec<FreeBlocks>, ends: Option<Figure>) -> bool {
    let has_types = blocks.iter().any(|blocks| blocks.types.is_some());
    let sum = blocks
        .iter()
        .fold(0_u64, |sum, blocks| sum.saturating_add(blocks.count.saturating_mul(blocks.kib)));
    // Of a sum that is no figure nothing follows.
    let is_whole = ends.is_some_and(|ends| ends.known().is_none_or(|ends| ends == sum));
    if ends.is_some() && !is_whole {
        blocks.clear();
    }
    // A kernel that prints types prints them of every order that has blocks: the last may have lost its own.
    if !is_whole && has_types {
        blocks.pop_if(|last| last.count > 0 && last.types.is_none());
    }
    if has_types {
        for blocks in blocks.iter_mut().filter(|blocks| blocks.types.is_none()) {
            blocks.types = Some(String::new());
        }
    }
    is_whole
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
            [row.free, row.boost, row.min, row.low, row.high],
            [15872, 2048, 340, 424, 508].map(Figure::exact)
        );
        assert_eq!(
            [row.reserved_highatomic, row.free_highatomic, row.anon, row.file],
            [2048, 1024, 12, 16].map(Figure::exact)
        );
        assert_eq!(
            [row.present, row.managed, row.free_pcp, row.free_cma],
            [15992, 15908, 12, 4].map(Figure::exact)
        );
        let bare = zone("Normal free:8kB min:4kB present:16kB").unwrap();
        assert_eq!((bare.node, bare.anon, bare.is_damaged), (0, Figure::UNKNOWN, false));
        for cut in [
            "Normal free:8",
            "Normal free:8kB",
            "Normal free:8kB min:4kB",
            "Normal free:8kB min:4kB present:1",
            "Normal free:8kB min:4kB present:16kB mana",
        ] {
            assert!(zone(cut).unwrap().is_damaged, "{cut}");
        }
        assert!(
            zone("Node 0 active_anon:8kB").is_none() && zone("Node 0 Strange free:8kB").is_none()
        );
    }

    #[test]
    fn blocks_with_types_and_without() {
        let sealed = |text| {
            let mut row = blocks(text).unwrap();
            let is_whole = seal_blocks(&mut row.blocks, row.ends);
            (row, is_whole)
        };
        let (with, is_whole) = sealed("Node 0 Normal: 3*4kB (UM) 0*8kB 2*16kB (H) = 44kB");
        assert!(is_whole);
        assert_eq!((with.node, with.zone.as_str(), with.blocks.len()), (0, "Normal", 3));
        let types: Vec<_> =
            with.blocks.iter().map(|blocks| blocks.types.as_deref().unwrap()).collect();
        assert_eq!(types, ["UM", "", "H"]);
        let (without, is_whole) = sealed("DMA: 3*4kB 0*8kB = 12kB");
        assert!(is_whole && without.blocks.iter().all(|blocks| blocks.types.is_none()));
        // An order was lost: the sum says so.
        assert_eq!(sealed("DMA: 3*4kB (U) 0*8kB = 28kB").0.blocks, []);
        // What breaks off may have lost the types of its last order, unless it has no blocks.
        for (text, orders) in [
            ("DMA: 3*4kB (U) 1*8kB (U", 1),
            ("DMA: 3*4kB (U) 0*8kB 1*1", 2),
            ("DMA: 3*4kB (U) 1*8kB (U) =", 2),
            ("DMA: 3*4kB 1*8kB 1*16", 2),
        ] {
            let (row, is_whole) = sealed(text);
            assert_eq!((row.blocks.len(), is_whole), (orders, false), "{text}");
        }
        let mut broken = blocks("Node 0 DMA: 1*4kB").unwrap().blocks;
        assert!(is_blocks("(U) 2*8kB") && is_blocks("2*8kB") && is_blocks("= 20kB"));
        add_blocks(&mut broken, "(U) 2*8kB");
        assert_eq!((broken[0].types.as_deref(), broken[1].count), (Some("U"), 2));
        assert!(blocks("Node 0 DMA per-cpu:").is_none());
    }

    #[test]
    fn figures_that_are_none() {
        let large = "Node 0 DMA free:99999999999999999999kB min:4kB";
        assert_eq!(unreadable(large), Some("free:99999999999999999999kB"));
        assert!(zone(large).unwrap().is_damaged);
        let negative = "Node 0 DMA free:8kB min:4kB active_anon:-4kB present:16kB";
        assert_eq!(unreadable(negative), Some("active_anon:-4kB"));
        let row = zone(negative).unwrap();
        assert_eq!((row.anon, row.is_damaged), (Figure::UNKNOWN, false), "it decides nothing");
        let counts = "Node 0 DMA: 99999999999999999999*4kB (U) 1*8kB (U)";
        assert_eq!(unreadable(counts), Some("99999999999999999999*4kB"));
        assert!(blocks(counts).is_none_or(|row| row.blocks.is_empty()));
        assert_eq!(unreadable("lowmem_reserve[]: 0 -1"), Some("-1"));
        assert_eq!(unreadable("99999999999999999999 pages RAM"), Some("99999999999999999999"));
        let killed = "Killed process 7 (a) total-vm:9kB, anon-rss:-8kB, oom_score_adj:-998";
        assert_eq!(unreadable(killed), Some("anon-rss:-8kB,"));
        assert_eq!(unreadable("usb 99999999999999999999: new device"), None);
    }

    #[test]
    fn reserves_and_nodes() {
        assert_eq!(reserve("lowmem_reserve[]: 0 1907 7941"), Some(vec![0, 1907, 7941]));
        assert_eq!(reserve("lowmem_reserve[]:"), Some(vec![]));
        let row = node("Node 2 active_anon:4kB inactive_anon:8kB unevictable:1kB shmem:2kB all_unreclaimable? yes").unwrap();
        assert_eq!(
            (row.node, row.anon, row.unevictable, row.shmem, row.all_unreclaimable),
            (2, Figure::exact(12), Figure::exact(1), Figure::exact(2), true)
        );
    }
}
