//! Free blocks by type: `/proc/pagetypeinfo`, which takes root, and each zone's lock while its lists are counted.

use std::io;

use nearpage_machine::FileTree;

/// The file.
const PATH: &str = "proc/pagetypeinfo";
/// Rows that are kept: Linux has at most 1024 nodes, of five zones, with eight types.
const ROWS_MAX: usize = 1024 * 5 * 8;
/// Orders of a row.
const ORDERS_MAX: usize = 32;

/// Free blocks of one type in a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeBlocks {
    /// The node.
    pub node: u32,
    /// The zone.
    pub zone: String,
    /// The type, as the kernel names it.
    pub migratetype: String,
    /// How many of each order, and whether the kernel stopped counting there: there are more.
    pub blocks: Vec<(u64, bool)>,
}

/// The blocks of a tree. Each reading costs the kernel a walk over its free lists.
///
/// # Errors
///
/// The file is not there, or not for this user.
pub fn type_blocks(tree: &dyn FileTree) -> io::Result<Vec<TypeBlocks>> {
    let told = |why: &dyn std::fmt::Display| format!("{why}: {}", tree.display(PATH));
    let text = tree.read(PATH).map_err(|error| io::Error::new(error.kind(), told(&error)))?;
    let text = text
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, told(&"there is no such file")))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(row).take(ROWS_MAX).collect())
}

/// `Node    0, zone   Normal, type    Unmovable      0      1 >100000 ...`
fn row(line: &str) -> Option<TypeBlocks> {
    let mut parts = line.strip_prefix("Node ")?.splitn(3, ',');
    let node = parts.next()?.trim().parse().ok()?;
    let zone = parts.next()?.trim().strip_prefix("zone")?.trim().to_owned();
    let mut words = parts.next()?.trim().strip_prefix("type")?.split_whitespace();
    let migratetype = words.next()?.to_owned();
    let count = |word: &str| {
        let most = word.strip_prefix('>');
        Some((most.unwrap_or(word).parse().ok()?, most.is_some()))
    };
    let blocks = words.take(ORDERS_MAX).map_while(count).collect();
    Some(TypeBlocks { node, zone, migratetype, blocks })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_read_and_other_lines_passed_over() {
        let blocks =
            row("Node    1, zone    DMA32, type  Reclaimable   2263 >100000    0 ").unwrap();
        assert_eq!((blocks.node, blocks.zone.as_str()), (1, "DMA32"));
        assert_eq!(blocks.migratetype, "Reclaimable");
        assert_eq!(blocks.blocks, [(2263, false), (100_000, true), (0, false)]);
        for line in [
            "Page block order: 9",
            "Free pages count per migrate type at order       0      1",
            "Number of blocks type     Unmovable      Movable",
            "Node 0, zone      DMA            1            7",
            "Node x, zone      DMA, type Movable 1",
        ] {
            assert_eq!(row(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_passed_over(line in "(Node )?[ -~]{0,60}") {
            let _ = row(&line);
        }
    }
}
