//! `/proc/buddyinfo`: how many free blocks of each order a zone has.

use nearpage::{NodeId, ZoneKind};
use nearpage_machine::sysfs::{SysfsError, TextFile, words};

/// The free blocks of a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FreeBlocks {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// Free blocks by order, from 0.
    pub blocks: Vec<u64>,
}

/// Reads the populated zones in the order of the text.
///
/// # Errors
///
/// [`SysfsError::Syntax`] with line and column.
pub fn parse_buddyinfo(file: &TextFile) -> Result<Vec<FreeBlocks>, SysfsError> {
    let mut zones: Vec<FreeBlocks> = Vec::new();
    for (index, line) in file.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let zone = parse_line(file, index + 1, line)?;
        let orders = zones.first().map_or(zone.blocks.len(), |first| first.blocks.len());
        check_orders(file, index + 1, line, &zone.blocks, orders)?;
        zones.push(zone);
    }
    Ok(zones)
}

/// Checks that a line has as many orders as the lines before it. A line with fewer was cut off.
pub(super) fn check_orders(
    file: &TextFile,
    line: usize,
    text: &str,
    blocks: &[u64],
    orders: usize,
) -> Result<(), SysfsError> {
    if blocks.len() == orders && orders > 0 {
        return Ok(());
    }
    let end = text.trim_end().chars().count() + 1;
    let expected = format!("{} orders as in the lines before", orders.max(1));
    Err(file.syntax(line, end, "", expected))
}

fn parse_line(file: &TextFile, line: usize, text: &str) -> Result<FreeBlocks, SysfsError> {
    let mut words = words(text);
    let (node, kind) = zone_heading(file, line, text, &mut words)?;
    let blocks = words.map(|(column, word)| block_count(file, line, column, word));
    Ok(FreeBlocks { node, kind, blocks: blocks.collect::<Result<_, _>>()? })
}

/// A number of blocks.
pub(super) fn block_count(
    file: &TextFile,
    line: usize,
    column: usize,
    word: &str,
) -> Result<u64, SysfsError> {
    word.parse().map_err(|_| file.syntax(line, column, word, "a number of blocks"))
}

/// Reads `Node 0, zone   Normal,`. Only `/proc/pagetypeinfo` has the comma at the end.
pub(super) fn zone_heading<'t>(
    file: &TextFile,
    line: usize,
    text: &str,
    words: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Result<(NodeId, ZoneKind), SysfsError> {
    let expected = "a zone such as Node 0, zone Normal";
    let end = text.chars().count() + 1;
    let mut next = || words.next().unwrap_or((end, ""));
    let heading = [next(), next(), next(), next()];
    let [(at, "Node"), (node_at, node), (zone_at, "zone"), (name_at, name)] = heading else {
        return Err(file.syntax(line, heading[0].0, text.trim(), expected));
    };
    debug_assert!(at < zone_at);
    let id = node.strip_suffix(',').and_then(|id| id.parse().ok());
    let name = name.trim_end_matches(',');
    let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
    match (id, kind) {
        (Some(id), Some(kind)) => Ok((NodeId(id), kind)),
        (None, _) => Err(file.syntax(line, node_at, node, expected)),
        (_, None) => Err(file.syntax(line, name_at, name, "DMA, DMA32, Normal, Movable or Device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<FreeBlocks>, String> {
        let file = TextFile { name: "buddyinfo".into(), text: text.into() };
        parse_buddyinfo(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn zones_and_blocks_are_read() {
        let zones = parse(
            "Node 0, zone      DMA      0      1      3 \nNode 8, zone   Normal      7      0      9 \n",
        );
        let zones = zones.unwrap();
        assert_eq!(zones[0].blocks, [0, 1, 3]);
        assert_eq!((zones[1].node, zones[1].kind), (NodeId(8), ZoneKind::Normal));
    }

    #[test]
    fn a_text_that_is_cut_off_is_told() {
        let text = "Node 0, zone DMA 1 2 3\nNode 0, zone Normal 1 2\n";
        assert_eq!(
            parse(text).unwrap_err(),
            "buddyinfo:2:24: found \"\", expected 3 orders as in the lines before"
        );
        assert!(parse("Node 0, zone DMA\n").unwrap_err().contains("1 orders"));
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(
            parse("Node 0, zone DMA 1\nNode 0, zone Normal 1 -2\n").unwrap_err(),
            "buddyinfo:2:23: found \"-2\", expected a number of blocks"
        );
        assert_eq!(
            parse("Node 0, zone Low 1\n").unwrap_err(),
            "buddyinfo:1:14: found \"Low\", expected DMA, DMA32, Normal, Movable or Device"
        );
        assert_eq!(
            parse("node 0\n").unwrap_err(),
            "buddyinfo:1:1: found \"node 0\", expected a zone such as Node 0, zone Normal"
        );
    }
}
