//! `/proc/pagetypeinfo`: free blocks by migratetype and order, and pageblocks by migratetype.

use nearpage::{NodeId, ZoneKind};
use nearpage_machine::sysfs::{SysfsError, TextFile, words};

use super::buddyinfo::{block_count, check_orders, zone_heading};

/// The content of the text. Migratetypes have the kernel's names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeCounts {
    /// Log2 of the pages of a pageblock (`Page block order`), if the text has it.
    pub pageblock_order: Option<u64>,
    /// Free blocks of each zone and migratetype.
    pub free: Vec<TypeBlocks>,
    /// Pageblocks of each zone, by migratetype.
    pub pageblocks: Vec<Pageblocks>,
}

/// Pageblocks of one zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pageblocks {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// How many there are of each migratetype.
    pub by_type: Vec<(String, u64)>,
}

/// Free blocks of one migratetype in one zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeBlocks {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The migratetype.
    pub migratetype: String,
    /// Free blocks by order, from 0.
    pub blocks: Vec<u64>,
    /// Whether the kernel stopped counting some order; `blocks` has the number at which it stopped.
    pub has_more: bool,
}

/// Reads the text. Each node repeats the headings.
///
/// # Errors
///
/// [`SysfsError::Syntax`] with line and column.
pub fn parse_pagetypeinfo(file: &TextFile) -> Result<TypeCounts, SysfsError> {
    let mut counts = TypeCounts::default();
    let mut columns: Vec<String> = Vec::new();
    for (index, text) in file.text.lines().enumerate() {
        let line = index + 1;
        if let Some(order) = text.strip_prefix("Page block order:") {
            let order = order.trim();
            let column = text.chars().count() - order.chars().count() + 1;
            counts.pageblock_order = Some(block_count(file, line, column, order)?);
        } else if let Some(names) = text.strip_prefix("Number of blocks type") {
            columns = names.split_whitespace().map(String::from).collect();
        } else if text.starts_with("Node ") && text.contains(" type ") {
            let list = parse_free(file, line, text)?;
            let orders = counts.free.first().map_or(list.blocks.len(), |first| first.blocks.len());
            check_orders(file, line, text, &list.blocks, orders)?;
            counts.free.push(list);
        } else if text.starts_with("Node ") {
            counts.pageblocks.push(parse_pageblocks(file, line, text, &columns)?);
        }
    }
    Ok(counts)
}

/// Reads `Node    0, zone      DMA, type    Unmovable      1      0 >100000`.
fn parse_free(file: &TextFile, line: usize, text: &str) -> Result<TypeBlocks, SysfsError> {
    let mut words = words(text);
    let (node, kind) = zone_heading(file, line, text, &mut words)?;
    let end = text.chars().count() + 1;
    let migratetype = match (words.next(), words.next()) {
        (Some((_, "type")), Some((_, name))) => name.to_owned(),
        (at, _) => {
            let (column, found) = at.unwrap_or((end, ""));
            return Err(file.syntax(line, column, found, "type and the name of a migratetype"));
        }
    };
    let mut has_more = false;
    let mut blocks = Vec::new();
    for (column, word) in words {
        let number = word.strip_prefix('>');
        has_more |= number.is_some();
        blocks.push(block_count(file, line, column, number.unwrap_or(word))?);
    }
    Ok(TypeBlocks { node, kind, migratetype, blocks, has_more })
}

/// Reads `Node 0, zone      DMA            1            7`.
fn parse_pageblocks(
    file: &TextFile,
    line: usize,
    text: &str,
    columns: &[String],
) -> Result<Pageblocks, SysfsError> {
    let mut words = words(text);
    let (node, kind) = zone_heading(file, line, text, &mut words)?;
    let counts: Vec<u64> = words
        .map(|(column, word)| block_count(file, line, column, word))
        .collect::<Result<_, _>>()?;
    if counts.len() != columns.len() {
        let expected = format!("{} numbers, one for each migratetype named above", columns.len());
        return Err(file.syntax(line, 1, text, expected));
    }
    Ok(Pageblocks { node, kind, by_type: columns.iter().cloned().zip(counts).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2
Node    0, zone      DMA, type    Unmovable      1      0      5
Node    0, zone      DMA, type      Movable      0 >100000      5

Number of blocks type     Unmovable      Movable
Node 0, zone      DMA            1            7
";

    fn parse(text: &str) -> Result<TypeCounts, String> {
        let file = TextFile { name: "pagetypeinfo".into(), text: text.into() };
        parse_pagetypeinfo(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_and_pageblocks_are_read() {
        let counts = parse(TEXT).unwrap();
        assert_eq!(counts.pageblock_order, Some(9));
        assert_eq!(counts.free[0].blocks, [1, 0, 5]);
        assert_eq!(
            (counts.free[1].migratetype.as_str(), counts.free[1].has_more),
            ("Movable", true)
        );
        assert_eq!(counts.free[1].blocks, [0, 100_000, 5]);
        let by_type = vec![("Unmovable".into(), 1), ("Movable".into(), 7)];
        let expected = Pageblocks { node: NodeId(0), kind: ZoneKind::Dma, by_type };
        assert_eq!(counts.pageblocks, [expected]);
    }

    #[test]
    fn a_list_that_is_cut_off_is_told() {
        let text = TEXT.replace(">100000      5", ">100000");
        assert_eq!(
            parse(&text).unwrap_err(),
            "pagetypeinfo:6:59: found \"\", expected 3 orders as in the lines before"
        );
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(
            parse(&TEXT.replace("            7", "")).unwrap_err(),
            "pagetypeinfo:9:1: found \"Node 0, zone      DMA            1\", expected 2 numbers, \
             one for each migratetype named above"
        );
        assert_eq!(
            parse(&TEXT.replace(">100000", "<100000")).unwrap_err(),
            "pagetypeinfo:6:52: found \"<100000\", expected a number of blocks"
        );
        assert_eq!(
            parse("Page block order: nine\n").unwrap_err(),
            "pagetypeinfo:1:19: found \"nine\", expected a number of blocks"
        );
    }
}
