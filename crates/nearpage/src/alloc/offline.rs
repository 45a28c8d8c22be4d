//! Memory goes offline: pages leave their zones, if nobody has any of them.
//!
//! In the order of facts 13, as far as a library has such steps:
//!
//! 1. the pageblocks of the range are isolated: what is free in them is given to nobody, and stays free;
//! 2. pagesets are drained, until all of the range is free, or a drain brings nothing more. A storage that is not exact
//!    may cache a page of an isolated pageblock, so one drain need not be enough;
//! 3. the pages leave their zones; or the isolation ends, and all is as before;
//! 4. watermarks, reserves, sizes of pagesets, and zonelists are computed anew.
//!
//! Other CPUs allocate and free meanwhile. One lock, that of the settings, keeps two of these, and whatever else
//! changes zones and their lists, apart. A range that somebody takes (`contiguous.rs`) is in use: its pageblocks are isolated.

use super::RuleSet;
use super::allocator::PageAllocator;
use super::online_map::{PAGEBLOCK_FRAMES, by_pageblock};
use super::state::State;
use crate::buddy::Isolated;
use crate::error::OfflineError;
use crate::host::{Lock, Platform};
use crate::units::{CpuId, NodeId, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange};
use crate::zone::{Zone, ZoneRules};

/// Pageblocks in one hold of a zone's lock. Blocks of the largest order do not reach over their bounds.
const PAGEBLOCKS_PER_HOLD: u64 = 4;
/// Drains in a row that bring nothing before pages count as in use: one may be on its way at that moment.
const IDLE_ROUNDS: u32 = 2;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes memory offline: any that is online and free, or cached by CPUs, in whole pageblocks. Returns its pages.
    ///
    /// # Errors
    /// [`OfflineError`].
    pub fn offline(&self, range: PfnRange) -> Result<PageCount, OfflineError> {
        self.offline_all(&[range])
    }

    /// Takes several ranges offline, all of them or none.
    ///
    /// # Errors
    /// [`OfflineError`]; [`OfflineError::NotOnline`] also if two ranges have frames in common.
    pub fn offline_all(&self, ranges: &[PfnRange]) -> Result<PageCount, OfflineError> {
        let mut state = self.state.lock();
        for (index, &range) in ranges.iter().enumerate() {
            if ranges[..index].iter().any(|other| !other.intersection(range).is_empty()) {
                return Err(OfflineError::NotOnline { range });
            }
        }
        self.offline_each(&mut state, ranges.iter().copied())
    }

    /// Takes all memory of a node offline.
    ///
    /// # Errors
    /// [`OfflineError`].
    pub fn offline_node(&self, node: NodeId) -> Result<PageCount, OfflineError> {
        let index = self.node_index(node).ok_or(OfflineError::UnknownNode { node })?;
        let mut state = self.state.lock();
        let memory = self.topology.node(index).memory.iter();
        let online = self.online;
        self.offline_each(&mut state, memory.flat_map(move |&range| online.runs(range, true)))
    }

    fn offline_each(
        &self,
        state: &mut State<'m>,
        ranges: impl Iterator<Item = PfnRange> + Clone,
    ) -> Result<PageCount, OfflineError> {
        let pages = self.isolate_and_empty(ranges.clone()).inspect_err(|error| {
            if matches!(error, OfflineError::InUse { .. }) {
                state.plugged.memory_in_use += 1;
            }
        })?;
        let populated = self.populated_zones();
        self.each_hold(ranges.clone(), |zone, part| {
            let (frames, mut guard) = (*zone.frames(), zone.lock());
            let numbers = frames.number(part.start)..frames.number(part.end);
            P::Rules::take_out(self, &mut guard, numbers);
            guard.sub_managed(part.pages());
        });
        ranges.for_each(|range| self.online.clear(range));
        self.recompute(state);
        self.rebuild_after_hotplug(state, populated);
        if pages.0 > 0 {
            state.plugged.went(pages);
        }
        Ok(pages)
    }

    /// Isolates ranges, and drains pagesets until all of them is free. If some of it is in use, all is as before. The caller
    /// holds the lock of the settings.
    fn isolate_and_empty(
        &self,
        mut ranges: impl Iterator<Item = PfnRange> + Clone,
    ) -> Result<PageCount, OfflineError> {
        ranges.clone().try_for_each(|range| self.check_online(range))?;
        let (mut parts, mut refused) = (0_usize, None);
        self.each_hold(ranges.clone(), |zone, part| {
            if refused.is_none() {
                refused = isolate(zone, part).err();
                parts += usize::from(refused.is_none());
            }
        });
        let emptied = match refused {
            Some(first) => {
                let pages = PAGEBLOCK_ORDER.pages();
                Err(OfflineError::InUse { pages, first, undrained: None })
            }
            None => self.empty(ranges.clone()),
        };
        emptied.inspect_err(|_| {
            let mut left = parts;
            self.each_hold(ranges.by_ref(), |zone, part| {
                if left > 0 {
                    left -= 1;
                    end_isolation(zone, part);
                }
            });
        })
    }

    fn check_online(&self, range: PfnRange) -> Result<(), OfflineError> {
        if range.is_empty() {
            return Err(OfflineError::Empty { range });
        }
        if !self.online.all(range) {
            return Err(OfflineError::NotOnline { range });
        }
        let (first, last) = (range.start, Pfn(range.end.0 - 1));
        let before = Pfn(first.0 - first.0 % PAGEBLOCK_FRAMES);
        let after = Pfn(range.end.0.next_multiple_of(PAGEBLOCK_FRAMES));
        let shared = self.parts(range).find_map(|(zone, part)| {
            let frames = self.zones[zone].frames();
            let is_shared = |of: &PfnRange| frames.is_pageblock_shared(frames.number(of.start));
            by_pageblock(part).find(is_shared).map(|of| of.start)
        });
        let pfn = if self.online.any(PfnRange { start: before, end: first }) {
            first
        } else if self.online.any(PfnRange { start: range.end, end: after }) {
            last
        } else if let Some(shared) = shared {
            shared
        } else {
            return Ok(());
        };
        Err(OfflineError::PartOfPageblock { range, pfn })
    }

    /// Calls `act` with pieces of the ranges, by zone and ascending, each for one hold of the zone's lock.
    fn each_hold(
        &self,
        ranges: impl Iterator<Item = PfnRange>,
        mut act: impl FnMut(&'m Zone<'m, P>, PfnRange),
    ) {
        const PIECE: u64 = PAGEBLOCKS_PER_HOLD * PAGEBLOCK_FRAMES;
        for (zone, part) in ranges.flat_map(|range| self.whole_parts(range)) {
            let mut start = part.start;
            while start < part.end {
                let end = Pfn((start.0 + 1).next_multiple_of(PIECE)).min(part.end);
                act(self.zones[zone], PfnRange { start, end });
                start = end;
            }
        }
    }

    /// The parts of a range by zone; ranges of the topology that adjoin are one, since blocks reach over their bounds.
    fn whole_parts(
        &self,
        range: PfnRange,
    ) -> impl Iterator<Item = (usize, PfnRange)> + use<'_, 'm, P> {
        let mut parts = self.parts(range).peekable();
        core::iter::from_fn(move || {
            let (zone, mut part) = parts.next()?;
            let adjoins = |part: PfnRange| {
                move |next: &(usize, PfnRange)| next.0 == zone && next.1.start == part.end
            };
            while let Some((_, next)) = parts.next_if(adjoins(part)) {
                part.end = next.end;
            }
            Some((zone, part))
        })
    }

    /// Drains pagesets until all of the ranges, which are isolated, is free.
    pub(super) fn empty(
        &self,
        ranges: impl Iterator<Item = PfnRange> + Clone,
    ) -> Result<PageCount, OfflineError> {
        let all = PageCount(ranges.clone().map(|range| range.pages().0).sum());
        let (mut free, mut idle) = (None, 0);
        loop {
            let undrained = self.drain_ranges(ranges.clone());
            let found = self.isolated(ranges.clone());
            let Some(first) = found.1 else { return Ok(all) };
            idle = if free == Some(found.0) { idle + 1 } else { 0 };
            if idle == IDLE_ROUNDS {
                return Err(OfflineError::InUse {
                    pages: PageCount(all.0 - found.0.0),
                    first,
                    undrained,
                });
            }
            free = Some(found.0);
            self.platform.relax();
        }
    }

    /// Drains the pagesets of the ranges' zones; returns a CPU that could not be stopped.
    fn drain_ranges(&self, ranges: impl Iterator<Item = PfnRange> + Clone) -> Option<CpuId> {
        let concerned = |zone: &Zone<'m, P>| {
            let is_it = |(index, _): (usize, PfnRange)| core::ptr::eq(self.zones[index], zone);
            ranges.clone().flat_map(|range| self.parts(range)).any(is_it)
        };
        self.drain_where(concerned).err().map(|busy| busy.cpu)
    }

    /// Free pages of the ranges, which are isolated, and the first frame that is not.
    fn isolated(&self, ranges: impl Iterator<Item = PfnRange>) -> (PageCount, Option<Pfn>) {
        let (mut free, mut first) = (PageCount(0), None);
        self.each_hold(ranges, |zone, part| {
            let frames = *zone.frames();
            let numbers = frames.number(part.start)..frames.number(part.end);
            let Isolated { free: pages, first_held } = P::Rules::isolated(zone, numbers);
            free.0 += pages.0;
            first = first.or(first_held.map(|number| frames.pfn(number)));
        });
        (free, first)
    }
}

/// Isolates the pageblocks of a part of a zone. Those of others, who take a range, stay theirs: then none is isolated, and the
/// error is the first frame of such a pageblock.
pub(super) fn isolate<P: Platform>(zone: &Zone<'_, P>, part: PfnRange) -> Result<(), Pfn> {
    let Some(refused) = P::Rules::isolate(zone, pageblocks(zone, part)) else { return Ok(()) };
    let end = zone.frames().pfn(refused);
    end_isolation(zone, PfnRange { start: part.start, end });
    Err(end)
}

/// Ends the isolation of the pageblocks of a part of a zone.
pub(super) fn end_isolation<P: Platform>(zone: &Zone<'_, P>, part: PfnRange) {
    P::Rules::end_isolation(zone, pageblocks(zone, part));
}

/// A frame of each pageblock of a part of a zone.
fn pageblocks<P: Platform>(zone: &Zone<'_, P>, part: PfnRange) -> impl Iterator<Item = u32> {
    by_pageblock(part).map(|of| zone.frames().number(of.start))
}

#[cfg(test)]
mod tests {
    use std_alloc::string::{String, ToString};
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::{HotplugCounts, Limits, Request};
    use crate::error::{FreeError, LimitOf};
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::units::{NodeIndex, Order};

    type Allocator<'m> = PageAllocator<'m, PlainPlatform>;

    const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);

    fn two_nodes(run: impl FnOnce(&Allocator<'_>)) {
        TestMachine::new().node(0, 8192, &[0]).node(3, 8192, &[1]).run(run);
    }

    fn memory(allocator: &Allocator<'_>, node: u16) -> PfnRange {
        allocator.topology().node(NodeIndex(node)).memory[0]
    }

    #[test]
    fn a_node_goes_and_comes_back() {
        two_nodes(|allocator| {
            let before = allocator.zones().iter().map(|zone| zone.marks()).collect::<Vec<_>>();
            let pages: Vec<Pfn> = (0..50).map(|_| allocator.alloc(PAGE).unwrap()).collect();
            let refused = allocator.offline_node(NodeId(0)).unwrap_err();
            let first = *pages.iter().min().unwrap();
            assert_eq!(
                refused,
                OfflineError::InUse { pages: PageCount(50), first, undrained: None }
            );
            assert!(refused.to_string().contains("50 pages are in use"));
            assert_eq!(allocator.check().unwrap().allocated, PageCount(50));
            pages.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
            assert!(allocator.totals().cached_pages.0 > 0);
            assert_eq!(allocator.offline_node(NodeId(0)), Ok(PageCount(8192)));
            assert_eq!(allocator.zones()[0].managed(), PageCount(0));
            assert_eq!(allocator.memory_node(NodeIndex(0)), Some(NodeIndex(1)));
            assert_eq!(allocator.free(first, Order(0)), Err(FreeError::Foreign { pfn: first }));
            let page = allocator.alloc(PAGE).unwrap();
            assert_eq!(allocator.topology().node_of_pfn(page), Some(NodeIndex(1)));
            allocator.free(page, Order(0)).unwrap();
            allocator.check().unwrap();
            assert_eq!(allocator.online_node(NodeId(0)), Ok(PageCount(8192)));
            assert_eq!(allocator.online_node(NodeId(0)), Ok(PageCount(0)));
            let after = allocator.zones().iter().map(|zone| zone.marks()).collect::<Vec<_>>();
            assert_eq!(after, before);
            let page = allocator.alloc(PAGE).unwrap();
            assert_eq!(allocator.topology().node_of_pfn(page), Some(NodeIndex(0)));
            allocator.check().unwrap();
        });
    }

    #[test]
    fn only_whole_pageblocks_that_are_online_go() {
        two_nodes(|allocator| {
            let start = memory(allocator, 0).start.0;
            let offline =
                |from: u64, to: u64| allocator.offline(PfnRange::new(start + from, start + to));
            let range = |from, to| PfnRange::new(start + from, start + to);
            let part = |from, to, pfn| {
                let (range, pfn) = (range(from, to), Pfn(start + pfn));
                Err(OfflineError::PartOfPageblock { range, pfn })
            };
            assert_eq!(offline(1, 1024), part(1, 1024, 1));
            assert_eq!(offline(0, 1023), part(0, 1023, 1022));
            assert_eq!(offline(7, 7), Err(OfflineError::Empty { range: range(7, 7) }));
            assert_eq!(offline(0, 9000), Err(OfflineError::NotOnline { range: range(0, 9000) }));
            assert_eq!(offline(512, 1024), Ok(PageCount(512)));
            assert_eq!(offline(0, 1024), Err(OfflineError::NotOnline { range: range(0, 1024) }));
            let twice = [range(2048, 4096), range(2560, 3072)];
            let refused = Err(OfflineError::NotOnline { range: twice[1] });
            assert_eq!(allocator.offline_all(&twice), refused);
            assert_eq!(offline(2048, 4096), Ok(PageCount(2048)));
            assert_eq!(
                allocator.offline_node(NodeId(9)),
                Err(OfflineError::UnknownNode { node: NodeId(9) })
            );
            assert_eq!(allocator.zones()[0].managed(), PageCount(8192 - 2560));
            allocator.check().unwrap();
            assert_eq!(allocator.offline_node(NodeId(0)), Ok(PageCount(8192 - 2560)));
            assert_eq!(allocator.online(memory(allocator, 0)), Ok(PageCount(8192)));
            allocator.check().unwrap();
        });
    }

    #[test]
    fn what_went_is_counted_and_not_present() {
        two_nodes(|allocator| {
            let zoneinfo = || {
                let mut text = String::new();
                allocator.write_zoneinfo(&mut text).unwrap();
                let present = text.lines().filter_map(|line| line.trim().strip_prefix("present"));
                let populated = present.map(|pages| pages.trim().parse().unwrap());
                populated.filter(|&pages| pages > 0).collect::<Vec<u64>>()
            };
            let start = memory(allocator, 0).start;
            let page = allocator.alloc(PAGE).unwrap();
            let half = |at: u64| PfnRange::new(start.0 + at * 4096, start.0 + (at + 1) * 4096);
            let of_page = (page.0 - start.0) / 4096;
            assert!(allocator.offline(half(of_page)).is_err());
            assert_eq!(zoneinfo(), [8192, 8192]);
            allocator.offline(half(1 - of_page)).unwrap();
            assert_eq!(zoneinfo(), [4096, 8192]);
            assert_eq!(allocator.online_node(NodeId(0)), Ok(PageCount(4096)));
            assert_eq!(zoneinfo(), [8192, 8192]);
            allocator.offline_cpu(CpuId(1)).unwrap();
            allocator.online_cpu(CpuId(1)).unwrap();
            assert!(allocator.online_cpu(CpuId(1)).is_err());
            let expected = HotplugCounts {
                memory_onlines: 3,
                onlined_pages: PageCount(2 * 8192 + 4096),
                memory_offlines: 1,
                offlined_pages: PageCount(4096),
                memory_in_use: 1,
                cpu_onlines: 1,
                cpu_offlines: 1,
            };
            assert_eq!(allocator.hotplug_counts(), expected);
        });
    }

    #[test]
    fn what_is_isolated_is_not_in_use() {
        two_nodes(|allocator| {
            let limits = Limits { soft_bytes: Some(1 << 12), ..Limits::default() };
            allocator.set_limits(LimitOf::Allocator, limits).unwrap();
            let zone = allocator.zones()[0];
            let start = memory(allocator, 0).start;
            let part = PfnRange { start, end: start + PageCount(512) };
            super::isolate(zone, part).unwrap();
            assert_eq!(super::isolate(zone, part), Err(start), "it is somebody's");
            assert_eq!(allocator.in_use(LimitOf::Allocator), Ok(PageCount(0)));
            assert_eq!(allocator.in_use(LimitOf::Node(NodeId(0))), Ok(PageCount(0)));
            super::end_isolation(zone, part);
            assert!(allocator.in_use(LimitOf::Node(NodeId(1))).is_err());
        });
    }

    #[test]
    fn ledgers_do_not_count_what_went() {
        two_nodes(|allocator| {
            let limits = Limits { hard_bytes: Some(6000 << 12), ..Limits::default() };
            allocator.set_limits(LimitOf::Allocator, limits).unwrap();
            let page = allocator.alloc(PAGE).unwrap();
            let out = || allocator.counted_in_use(LimitOf::Allocator).unwrap();
            let before = out();
            let kept = page.0 - page.0 % 512;
            let rest = PfnRange::new(kept + 512, memory(allocator, 0).end.0);
            allocator.offline(rest).unwrap();
            assert!(out() <= before && out().0 >= 1, "{} {before}", out());
            assert!(allocator.offline_node(NodeId(0)).is_err());
            assert!(out() <= before && out().0 >= 1);
            allocator.online(rest).unwrap();
            assert_eq!(out(), PageCount(1));
            allocator.free(page, Order(0)).unwrap();
            allocator.drain_all().unwrap();
            assert_eq!(out(), PageCount(0));
        });
    }
}
