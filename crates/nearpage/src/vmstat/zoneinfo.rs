//! `/proc/zoneinfo`: every zone of every node, populated or not.
//!
//! [`ZoneinfoWriter`] knows the layout and no allocator; `write_zoneinfo` knows where an allocator has the
//! numbers. Source of the layout: as for the items; `mm/vmstat.c: zoneinfo_show_print`.

use core::fmt::{self, Write};

use super::ZoneStats;
use super::items::{Item, NODE_ITEMS, ZONE_ITEMS};
use crate::alloc::PageAllocator;
use crate::frame::Migratetype;
use crate::host::Platform;
use crate::model::TextLayout;
use crate::pcp::sizes::stat_threshold;
use crate::pcp::tuning::Tuning;
use crate::units::{
    CpuId, MAX_ORDER, NodeId, NodeIndex, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange, ZoneKind,
};
use crate::watermark::{Marks, Watermarks, ZoneSize};
use crate::zone::Zone;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Writes the text of `/proc/zoneinfo` in the layout of the model's kernel. A zone is populated once
    /// some of its memory is online; then it spans what the topology says, and has that present but for what went
    /// offline. CMA and what else this allocator does not have are 0. CPUs that are off have no lines.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_zoneinfo(&self, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        let mut writer = ZoneinfoWriter::new(out, self.model().text_layout);
        for node in self.topology().indexes() {
            let mut has_node_items = false;
            for kind in ZoneKind::ALL {
                let mut zones = self.populated_zones_of(node, kind).peekable();
                if zones.peek().is_none() {
                    writer.heading(self.topology().node(node).id, kind)?;
                    writer.pages(&self.unpopulated(kind))?;
                }
                for zone in zones {
                    writer.heading(self.topology().node(node).id, kind)?;
                    if !has_node_items {
                        writer.node_items()?;
                        has_node_items = true;
                    }
                    self.write_populated(zone, &mut writer)?;
                }
            }
        }
        Ok(())
    }

    fn write_populated(
        &self,
        zone: &Zone<'m, P>,
        writer: &mut ZoneinfoWriter<'_, impl Write + ?Sized>,
    ) -> fmt::Result {
        let pages = self.pages_of(zone);
        writer.pages(&pages)?;
        writer.items(pages.free, free_in_pageblocks(zone), &self.zone_stats(zone))?;
        let cpus_on = || self.cpus().filter(|(cpu, ..)| self.is_cpu_on(*cpu));
        let cpus = cpus_on().count() as u32;
        let stat_threshold = stat_threshold(zone.managed(), cpus, self.page_shift());
        for (cpu, _, pagesets) in cpus_on() {
            let pageset = &pagesets[zone.index().0 as usize];
            let Tuning { high, batch, high_min, high_max, .. } = pageset.tuning();
            let count = pageset.count();
            let lines = PagesetLines { count, high, batch, high_min, high_max, stat_threshold };
            writer.pageset(cpu, &lines)?;
        }
        writer.end(zone.span().start)
    }

    /// One zone, or its instances.
    fn populated_zones_of(
        &self,
        node: NodeIndex,
        kind: ZoneKind,
    ) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'m, P> {
        let is_of = move |zone: &&Zone<'m, P>| (zone.node(), zone.kind()) == (node, kind);
        self.zones().iter().copied().filter(is_of).filter(|zone| zone.managed().0 > 0)
    }

    fn pages_of(&self, zone: &Zone<'m, P>) -> ZonePages {
        let memory = self.topology().ranges_in(zone.node(), zone.span());
        let known: PageCount = memory.map(PfnRange::pages).sum();
        ZonePages {
            free: zone.free_pages(),
            boost: zone.boost(),
            marks: zone.marks(),
            spanned: zone.span().pages(),
            present: PageCount(known.0 - zone.gone().0),
            managed: zone.managed(),
            protection: ZoneKind::ALL.map(|kind| zone.reserve(kind)),
        }
    }

    /// A zone without memory has marks too: Movable ones have a least `min`.
    fn unpopulated(&self, kind: ZoneKind) -> ZonePages {
        let managed = PageCount(0);
        let zone = ZoneSize { kind, managed };
        let watermarks =
            Watermarks::new([zone].into_iter(), 0, &self.settings(), self.page_shift());
        ZonePages { marks: watermarks.marks(zone), ..ZonePages::default() }
    }
}

/// Free pages in blocks of a pageblock or more (`nr_free_pages_blocks`).
fn free_in_pageblocks<P: Platform>(zone: &Zone<'_, P>) -> PageCount {
    let area = zone.free_area();
    let counted = Migratetype::ALL.into_iter().filter(|&of| of != Migratetype::Isolate);
    let pages = counted.flat_map(|of| {
        let orders = PAGEBLOCK_ORDER.0..=MAX_ORDER.0;
        orders.map(move |order| u64::from(area[of.index()][order as usize]) << order)
    });
    PageCount(pages.sum())
}

/// What `/proc/zoneinfo` says of every zone, populated or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZonePages {
    /// Free pages.
    pub free: PageCount,
    /// What the marks were raised by.
    pub boost: PageCount,
    /// The marks in force, boost included.
    pub marks: Marks,
    /// Frames from the first to the last, holes included.
    pub spanned: PageCount,
    /// Frames that are memory.
    pub present: PageCount,
    /// Pages that the buddy was given.
    pub managed: PageCount,
    /// Pages kept from requests, by the highest zone kind that they could have used.
    pub protection: [PageCount; ZoneKind::COUNT],
}

/// What `/proc/zoneinfo` says of a CPU's pageset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagesetLines {
    /// Pages in it.
    pub count: PageCount,
    /// Its limit.
    pub high: PageCount,
    /// Unit of refills and drains.
    pub batch: PageCount,
    /// Lower bound of `high`.
    pub high_min: PageCount,
    /// Upper bound of `high`.
    pub high_max: PageCount,
    /// How far the CPU's differences to the zone's counters may grow before they are added to them.
    pub stat_threshold: u32,
}

/// Writes `/proc/zoneinfo` piece by piece, in the layout of one kernel.
///
/// For each zone: [`heading`](Self::heading); [`node_items`](Self::node_items) for the node's first
/// populated zone; [`pages`](Self::pages). For a populated zone also [`items`](Self::items),
/// [`pageset`](Self::pageset) for each online CPU, and [`end`](Self::end). All methods return the errors
/// of the writer underneath.
pub struct ZoneinfoWriter<'a, W: ?Sized> {
    out: &'a mut W,
    layout: TextLayout,
    has_pageset_bounds: bool,
}

impl<W: ?Sized> core::fmt::Debug for ZoneinfoWriter<'_, W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ZoneinfoWriter").field("layout", &self.layout).finish_non_exhaustive()
    }
}

#[allow(clippy::missing_errors_doc, reason = "the same for all, in the text of the type")]
impl<'a, W: Write + ?Sized> ZoneinfoWriter<'a, W> {
    /// A writer to `out`.
    pub fn new(out: &'a mut W, layout: TextLayout) -> Self {
        Self { out, layout, has_pageset_bounds: layout >= TextLayout::Linux6_18 }
    }

    /// Adds `high_min` and `high_max` to each pageset, as 6.18 prints them, to a layout without them.
    #[must_use]
    pub fn with_pageset_bounds(self) -> Self {
        Self { has_pageset_bounds: true, ..self }
    }

    /// Begins a zone.
    pub fn heading(&mut self, node: NodeId, kind: ZoneKind) -> fmt::Result {
        writeln!(self.out, "Node {node}, zone {:>8}", kind.name())
    }

    /// What is counted for the node: nothing that an allocator of pages knows.
    pub fn node_items(&mut self) -> fmt::Result {
        writeln!(self.out, "  per-node stats")?;
        self.zeroes(&NODE_ITEMS)
    }

    /// From `pages free` to `protection`.
    pub fn pages(&mut self, zone: &ZonePages) -> fmt::Result {
        writeln!(self.out, "  pages free     {}", zone.free)?;
        self.size("boost", zone.boost)?;
        self.size("min", zone.marks.min)?;
        self.size("low", zone.marks.low)?;
        self.size("high", zone.marks.high)?;
        if self.layout >= TextLayout::Linux6_12 {
            self.size("promo", zone.marks.promo)?;
        }
        self.size("spanned", zone.spanned)?;
        self.size("present", zone.present)?;
        self.size("managed", zone.managed)?;
        self.size("cma", PageCount(0))?;
        write!(self.out, "        protection: ")?;
        let mut separator = "(";
        for pages in zone.protection {
            write!(self.out, "{separator}{pages}")?;
            separator = ", ";
        }
        writeln!(self.out, ")")
    }

    /// What is counted for a populated zone; `free_in_pageblocks` is the part of `free` that lies in blocks of
    /// a pageblock or more.
    pub fn items(
        &mut self,
        free: PageCount,
        free_in_pageblocks: PageCount,
        stats: &ZoneStats,
    ) -> fmt::Result {
        self.item("nr_free_pages", free.0)?;
        if self.layout >= TextLayout::Linux6_18 {
            self.item("nr_free_pages_blocks", free_in_pageblocks.0)?;
        }
        self.zeroes(&ZONE_ITEMS)?;
        stats.numa_lines().into_iter().try_for_each(|(name, value)| self.item(name, value))?;
        writeln!(self.out, "  pagesets")
    }

    /// The pageset of an online CPU.
    pub fn pageset(&mut self, cpu: CpuId, pageset: &PagesetLines) -> fmt::Result {
        let PagesetLines { count, high, batch, high_min, high_max, stat_threshold } = pageset;
        writeln!(self.out, "    cpu: {cpu}")?;
        let margin = "              ";
        if self.layout >= TextLayout::Linux6_18 {
            writeln!(self.out, "{margin}count:    {count}\n{margin}high:     {high}")?;
            writeln!(self.out, "{margin}batch:    {batch}")?;
        } else {
            writeln!(self.out, "{margin}count: {count}\n{margin}high:  {high}")?;
            writeln!(self.out, "{margin}batch: {batch}")?;
        }
        if self.has_pageset_bounds {
            writeln!(self.out, "{margin}high_min: {high_min}\n{margin}high_max: {high_max}")?;
        }
        writeln!(self.out, "  vm stats threshold: {stat_threshold}")
    }

    /// Ends a populated zone, whose first frame is `start`.
    pub fn end(&mut self, start: Pfn) -> fmt::Result {
        writeln!(self.out, "  node_unreclaimable:  0\n  start_pfn:           {}", start.0)
    }

    fn size(&mut self, name: &str, pages: PageCount) -> fmt::Result {
        writeln!(self.out, "        {name:<8} {pages}")
    }

    fn item(&mut self, name: &str, value: u64) -> fmt::Result {
        writeln!(self.out, "      {name:<12} {value}")
    }

    fn zeroes(&mut self, items: &[Item]) -> fmt::Result {
        let layout = self.layout;
        let mut printed = items.iter().filter(|(_, layouts)| layouts.contains(&layout));
        printed.try_for_each(|(name, _)| self.item(name, 0))
    }
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

    // Layouts and numbers are compared with recordings in `tests/zoneinfo.rs`.

    #[test]
    fn every_zone_has_a_heading_and_every_cpu_a_pageset() {
        let machine = TestMachine::new().node(0, 0, &[4]).node(8, 2048, &[0, 7]).movable(1024);
        let text = machine.run(|allocator| {
            let mut text = String::new();
            allocator.write_zoneinfo(&mut text).unwrap();
            text
        });
        let prefixes = ["Node", "  per-node stats", "    cpu", "  start_pfn"];
        let is_bone = |line: &&str| prefixes.iter().any(|prefix| line.starts_with(prefix));
        let bones: Vec<&str> = text.lines().filter(is_bone).collect();
        let expected = [
            "Node 0, zone      DMA",
            "Node 0, zone    DMA32",
            "Node 0, zone   Normal",
            "Node 0, zone  Movable",
            "Node 0, zone   Device",
            "Node 8, zone      DMA",
            "Node 8, zone    DMA32",
            "Node 8, zone   Normal",
            "  per-node stats",
            "    cpu: 0",
            "    cpu: 4",
            "    cpu: 7",
            "  start_pfn:           32768",
            "Node 8, zone  Movable",
            "    cpu: 0",
            "    cpu: 4",
            "    cpu: 7",
            "  start_pfn:           33792",
            "Node 8, zone   Device",
        ];
        assert_eq!(bones, expected);
    }

    #[test]
    fn counts_are_those_of_the_zone() {
        TestMachine::new().node(0, 65_536, &[0]).model(Model::LINUX_6_18).run(|allocator| {
            let pfn = allocator.alloc(Request::new(crate::units::Order(0), Gfp::KERNEL)).unwrap();
            allocator.free(pfn, crate::units::Order(0)).unwrap();
            let pageset = &allocator.pagesets(CpuId(0)).unwrap()[0];
            let (count, tuning) = (pageset.count().0, pageset.tuning());
            let mut text = String::new();
            allocator.write_zoneinfo(&mut text).unwrap();
            let value = |name: &str| -> u64 {
                let found = text.lines().filter_map(|line| line.trim().strip_prefix(name));
                found.filter_map(|value| value.trim().parse().ok()).max().unwrap()
            };
            assert_eq!(value("pages free"), 65_536 - count);
            assert_eq!(value("nr_free_pages "), 65_536 - count);
            // The block of 1024 pages that the refill began lies half in a free pageblock.
            assert_eq!(value("nr_free_pages_blocks"), 65_536 - 512);
            assert_eq!((value("numa_hit"), value("numa_local"), value("numa_other")), (1, 1, 0));
            let sizes = [tuning.high, tuning.batch, tuning.high_min, tuning.high_max];
            let printed = ["high: ", "batch:", "high_min:", "high_max:"].map(value);
            assert_eq!(printed, sizes.map(|size| size.0));
            assert_eq!(value("count:"), count);
            assert!(count > 1);
        });
    }
}
