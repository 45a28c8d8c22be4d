//! What buddyinfo and pagetypeinfo say of free blocks, zone by zone.

use nearpage::{Migratetype, NodeId, Order, ZoneKind};
use nearpage_bundle::{BundleError, Capture, parse_buddyinfo, parse_pagetypeinfo};
use nearpage_machine::sysfs::TextFile;

use crate::error::ReplayError;
use crate::layout::Blocks;

/// More blocks than any zone has: what a text says beyond is damage, which the size of the zone shows.
const BLOCKS_MOST: u64 = 1 << 40;

/// Free blocks and pageblocks of all zones.
pub(super) struct FreeLists {
    free: Vec<(NodeId, ZoneKind, Blocks)>,
    pageblocks: Vec<(NodeId, ZoneKind, [u64; Migratetype::COUNT])>,
}

impl FreeLists {
    pub(super) fn read(input: &str, capture: &Capture) -> Result<FreeLists, ReplayError> {
        let totals = require(input, capture, "proc/buddyinfo")?;
        let totals = parse_buddyinfo(&totals).map_err(BundleError::from)?;
        let types = require(input, capture, "proc/pagetypeinfo")?;
        let types = parse_pagetypeinfo(&types).map_err(BundleError::from)?;
        if types.pageblocks.is_empty() {
            let what = "before/pagetypeinfo tells of no pageblocks".into();
            return Err(ReplayError::incomplete(input, what, "/proc/pagetypeinfo as it is"));
        }
        check_orders(input, types.pageblock_order, totals.iter().map(|zone| zone.blocks.len()))?;
        let mut free = Vec::new();
        for zone in &totals {
            let mut blocks = Blocks::default();
            let of_zone = |node, kind| (node, kind) == (zone.node, zone.kind);
            for list in types.free.iter().filter(|list| of_zone(list.node, list.kind)) {
                let Some(migratetype) = by_name(&list.migratetype) else { continue };
                for (slot, &count) in blocks[migratetype.index()].iter_mut().zip(&list.blocks) {
                    *slot += count.min(BLOCKS_MOST);
                }
            }
            // The two texts are read one after the other, and the second one stops counting at 100000: the total
            // holds, and what differs is movable.
            for (order, &total) in zone.blocks.iter().enumerate().take(Order::COUNT) {
                settle(&mut blocks, order, total.min(BLOCKS_MOST));
            }
            free.push((zone.node, zone.kind, blocks));
        }
        let mut pageblocks = Vec::new();
        for zone in &types.pageblocks {
            let mut counts = [0; Migratetype::COUNT];
            for (name, count) in &zone.by_type {
                let of = by_name(name).unwrap_or(Migratetype::Movable);
                counts[of.index()] += (*count).min(BLOCKS_MOST);
            }
            pageblocks.push((zone.node, zone.kind, counts));
        }
        Ok(FreeLists { free, pageblocks })
    }

    pub(super) fn of(
        &self,
        input: &str,
        node: NodeId,
        kind: ZoneKind,
    ) -> Result<(Blocks, [u64; Migratetype::COUNT]), ReplayError> {
        let blocks = self.free.iter().find(|entry| (entry.0, entry.1) == (node, kind));
        let Some((_, _, blocks)) = blocks else {
            let what = format!("node {node} zone {} has no free lists", kind.name());
            return Err(ReplayError::incomplete(
                input,
                what,
                "each populated zone in before/buddyinfo",
            ));
        };
        let counts = self.pageblocks.iter().find(|entry| (entry.0, entry.1) == (node, kind));
        let Some((_, _, counts)) = counts else {
            let what = format!("node {node} zone {} has no pageblocks", kind.name());
            return Err(ReplayError::incomplete(
                input,
                what,
                "each populated zone in before/pagetypeinfo",
            ));
        };
        Ok((*blocks, *counts))
    }
}

/// The core's blocks have the orders of kernels with pages of 4 KiB.
fn check_orders(
    input: &str,
    pageblock: Option<u64>,
    orders: impl Iterator<Item = usize>,
) -> Result<(), ReplayError> {
    let refuse = |what| {
        let expected = "pages of 4 KiB: pageblocks of order 9, blocks up to order 10";
        Err(ReplayError::incomplete(input, what, expected))
    };
    if let Some(order) = pageblock.filter(|&order| order != u64::from(Order::PAGEBLOCK.0)) {
        return refuse(format!("its pageblocks are of order {order}"));
    }
    match orders.max() {
        Some(count) if count > Order::COUNT => {
            refuse(format!("it has blocks of order {}", count - 1))
        }
        _ => Ok(()),
    }
}

/// Free pages of some zones by the lists of a capture; `None` if it has no lists, or not of all.
///
/// # Errors
///
/// The lists are damaged.
pub(crate) fn free_pages(
    capture: &Capture,
    wanted: impl Iterator<Item = (NodeId, ZoneKind)>,
) -> Result<Option<Vec<u64>>, BundleError> {
    let Ok(file) = require("", capture, "proc/buddyinfo") else { return Ok(None) };
    let zones = parse_buddyinfo(&file)?;
    let pages = |wanted: (NodeId, ZoneKind)| {
        let found = zones.iter().find(|found| (found.node, found.kind) == wanted)?;
        Some(found.blocks.iter().enumerate().map(|(order, count)| count << order).sum())
    };
    Ok(wanted.map(pages).collect())
}

/// Free lists of some zones by a capture; `None` if it does not tell them all.
pub(crate) fn free_lists(
    capture: &Capture,
    mut wanted: impl Iterator<Item = (NodeId, ZoneKind)>,
) -> Option<Vec<Blocks>> {
    let lists = FreeLists::read("", capture).ok()?;
    wanted.try_fold(Vec::new(), |mut all, (node, kind)| {
        all.push(lists.of("", node, kind).ok()?.0);
        Some(all)
    })
}

/// Makes the blocks of an order `total` in all, by changing the movable ones first.
fn settle(blocks: &mut Blocks, order: usize, total: u64) {
    let sum: u64 = blocks.iter().map(|of| of[order]).sum();
    blocks[Migratetype::Movable.index()][order] += total.saturating_sub(sum);
    let mut excess = sum.saturating_sub(total);
    for migratetype in [1, 0, 2, 3, 4] {
        let less = excess.min(blocks[migratetype][order]);
        blocks[migratetype][order] -= less;
        excess -= less;
    }
}

fn by_name(name: &str) -> Option<Migratetype> {
    Migratetype::ALL.into_iter().find(|migratetype| migratetype.name() == name)
}

fn require(input: &str, capture: &Capture, path: &str) -> Result<TextFile, ReplayError> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let content = capture.tree.read(path).ok().flatten().filter(|content| !content.is_empty());
    let content = content.ok_or_else(|| {
        let what = format!("before/{name} is missing or empty");
        ReplayError::incomplete(
            input,
            what,
            "before/zoneinfo, before/buddyinfo and before/pagetypeinfo",
        )
    })?;
    let text = String::from_utf8_lossy(&content).into_owned();
    Ok(TextFile { name: capture.tree.display(path), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_hold_and_the_difference_is_movable() {
        let mut blocks = Blocks::default();
        (blocks[0][3], blocks[1][3]) = (5, 7);
        settle(&mut blocks, 3, 20);
        assert_eq!((blocks[0][3], blocks[1][3]), (5, 15));
        settle(&mut blocks, 3, 4);
        assert_eq!((blocks[0][3], blocks[1][3]), (4, 0));
    }
}
