//! `/proc/pagetypeinfo`: free blocks by order and migratetype, and the types of pageblocks.
//!
//! Source: recordings of 6.1.192 and 6.12.95, which are alike; `mm/vmstat.c: pagetypeinfo_show`.

use core::fmt::{self, Write};

use crate::alloc::PageAllocator;
use crate::frame::Migratetype;
use crate::host::Platform;
use crate::units::{NodeId, NodeIndex, ORDERS, PAGEBLOCK_ORDER, Pfn, ZoneKind};
use crate::zone::Zone;

/// More blocks than this on a list are not counted.
const BLOCKS_MAX: u64 = 100_000;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Writes the text of `/proc/pagetypeinfo`: for each node that has memory online, the free blocks of
    /// its zones by migratetype and order, and how many of their pageblocks are of each type.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_pagetypeinfo(&self, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        for node in self.topology().indexes() {
            if self.zones_of_node(node).next().is_some() {
                self.write_node(node, out)?;
            }
        }
        Ok(())
    }

    fn write_node(&self, node: NodeIndex, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        let id = self.topology().node(node).id;
        write_heading(out)?;
        for zone in self.zones_of_node(node) {
            let area = zone.free_area();
            for migratetype in Migratetype::ALL {
                let blocks = area[migratetype.index()].map(u64::from);
                write_free(id, zone.kind(), migratetype, &blocks, out)?;
            }
        }
        write_pageblock_heading(out)?;
        for zone in self.zones_of_node(node) {
            write_pageblocks(id, zone.kind(), &self.pageblocks_of(zone), out)?;
        }
        Ok(())
    }

    /// The zones of a node that have memory online.
    fn zones_of_node(&self, node: NodeIndex) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'m, P> {
        let zones = self.zones().iter().copied();
        zones.filter(move |zone| zone.node() == node && zone.managed().0 > 0)
    }

    /// Pageblocks by type. Linux looks at one page of each, as far from the start of the pageblock as the
    /// zone's first page is from the start of its own.
    fn pageblocks_of(&self, zone: &Zone<'m, P>) -> [u64; Migratetype::COUNT] {
        let mut blocks = [0; Migratetype::COUNT];
        let (frames, span) = (zone.frames(), zone.span());
        for pfn in (span.start.0..span.end.0).step_by(PAGEBLOCK_ORDER.pages().0 as usize).map(Pfn) {
            let mut ranges = self.topology().ranges_in(zone.node(), zone.span());
            if self.is_online(pfn) && ranges.any(|range| range.contains(pfn)) {
                blocks[frames.pageblock(frames.number(pfn)).index()] += 1;
            }
        }
        blocks
    }
}

fn write_heading(out: &mut (impl Write + ?Sized)) -> fmt::Result {
    writeln!(out, "Page block order: {PAGEBLOCK_ORDER}")?;
    writeln!(out, "Pages per block:  {}\n", PAGEBLOCK_ORDER.pages())?;
    write!(out, "{:<43} ", "Free pages count per migrate type at order")?;
    (0..ORDERS).try_for_each(|order| write!(out, "{order:>6} "))?;
    out.write_char('\n')
}

fn write_free(
    node: NodeId,
    kind: ZoneKind,
    migratetype: Migratetype,
    blocks: &[u64; ORDERS],
    out: &mut (impl Write + ?Sized),
) -> fmt::Result {
    write!(out, "Node {node:>4}, zone {:>8}, type {:>12} ", kind.name(), migratetype.name())?;
    for &blocks in blocks {
        if blocks < BLOCKS_MAX {
            write!(out, "{blocks:>6} ")?;
        } else {
            write!(out, ">{BLOCKS_MAX} ")?;
        }
    }
    out.write_char('\n')
}

fn write_pageblock_heading(out: &mut (impl Write + ?Sized)) -> fmt::Result {
    write!(out, "\n{:<23}", "Number of blocks type ")?;
    Migratetype::ALL.iter().try_for_each(|of| write!(out, "{:>12} ", of.name()))?;
    out.write_char('\n')
}

fn write_pageblocks(
    node: NodeId,
    kind: ZoneKind,
    blocks: &[u64; Migratetype::COUNT],
    out: &mut (impl Write + ?Sized),
) -> fmt::Result {
    write!(out, "Node {node}, zone {:>8} ", kind.name())?;
    blocks.iter().try_for_each(|blocks| write!(out, "{blocks:>12} "))?;
    out.write_char('\n')
}

#[cfg(test)]
mod tests {
    use std_alloc::string::String;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;

    /// 6.12.95, four nodes of which two have memory.
    const RECORDED: &str = include_str!("../../tests/data/pagetypeinfo-6.12.txt");

    fn kind_of(line: &str) -> ZoneKind {
        let name = line.split([',', ' ']).filter(|word| !word.is_empty()).nth(3);
        ZoneKind::ALL.into_iter().find(|kind| Some(kind.name()) == name).unwrap()
    }

    fn numbers<const N: usize>(line: &str) -> [u64; N] {
        let words: Vec<&str> = line.split_whitespace().collect();
        core::array::from_fn(|at| words[words.len() - N + at].parse().unwrap())
    }

    /// Writes a line of a recording anew from its numbers.
    fn rewrite(line: &str, text: &mut String) -> fmt::Result {
        let node = || NodeId(line[5..].trim_start().split(',').next().unwrap().parse().unwrap());
        if let Some((_, rest)) = line.split_once(", type ") {
            let name = rest.split_whitespace().next().unwrap();
            let of = Migratetype::ALL.into_iter().find(|of| of.name() == name).unwrap();
            write_free(node(), kind_of(line), of, &numbers(line), text)
        } else if line.starts_with("Node ") {
            write_pageblocks(node(), kind_of(line), &numbers(line), text)
        } else if line.starts_with("Page block order") {
            write_heading(text)
        } else if line.starts_with("Number of blocks type") {
            write_pageblock_heading(text)
        } else {
            Ok(())
        }
    }

    #[test]
    fn a_recorded_text_is_written_back_byte_for_byte() {
        let mut text = String::new();
        RECORDED.lines().try_for_each(|line| rewrite(line, &mut text)).unwrap();
        assert_eq!(text, RECORDED);
    }

    #[test]
    fn a_list_may_be_too_long_to_count() {
        let mut text = String::new();
        let blocks = [99_999, 100_000, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        write_free(NodeId(0), ZoneKind::Normal, Migratetype::Movable, &blocks, &mut text).unwrap();
        assert!(text.contains(" Movable  99999 >100000      0 "), "{text}");
    }

    #[test]
    fn blocks_and_pageblocks_are_those_of_the_zones() {
        let machine = TestMachine::new().node(0, 0, &[0]).node(8, 5120, &[]).movable(2048);
        machine.model(Model::LINUX_6_18).run(|allocator| {
            allocator.alloc(Request::new(crate::units::Order(8), Gfp::KERNEL)).unwrap();
            let mut text = String::new();
            allocator.write_pagetypeinfo(&mut text).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            // Two pageblocks became unmovable, of which a half is in use.
            assert_eq!(lines.len(), 4 + 10 + 2 + 2);
            let first = "Node    8, zone   Normal, type    Unmovable      0      0      0      0      0      0      0      0      1      1      0 ";
            assert_eq!(lines[4], first);
            let pageblocks =
                "Node 8, zone   Normal            2            4            0            0            0 ";
            assert_eq!(lines[16], pageblocks);
        });
    }
}
