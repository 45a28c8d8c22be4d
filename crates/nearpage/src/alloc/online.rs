//! Memory comes online: the host hands frames over to their zones.

use super::allocator::PageAllocator;
use super::online_map::PAGEBLOCK_FRAMES;
use crate::error::OnlineError;
use crate::host::{Lock, Platform};
use crate::units::{NodeId, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange, ZoneKind};
use crate::zone::ZoneRules;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Hands frames over: they are free from now on. The range may be any part of the topology's memory,
    /// over zones and nodes. Whole blocks of the largest order are not touched until they are used.
    ///
    /// # Errors
    /// [`OnlineError`] if some of the frames are not memory of the topology, or online already.
    pub fn online(&self, range: PfnRange) -> Result<PageCount, OnlineError> {
        self.online_all(&[range])
    }

    /// Hands several ranges over at once. Zonelists, watermarks and pageset sizes are made anew once, not
    /// once a range: for `n` nodes one by one, that is a time that grows as the fourth power of `n`.
    ///
    /// # Errors
    /// [`OnlineError`] as for [`online`](Self::online), or if two ranges have frames in common. Then none of
    /// them was handed over.
    pub fn online_all(&self, ranges: &[PfnRange]) -> Result<PageCount, OnlineError> {
        let mut state = self.state.lock();
        for (index, &range) in ranges.iter().enumerate() {
            self.check_offline(range)?;
            if ranges[..index].iter().any(|other| !other.intersection(range).is_empty()) {
                return Err(OnlineError::AlreadyOnline { range });
            }
        }
        let populated = self.populated_zones();
        for &range in ranges {
            self.hand_over(range);
        }
        self.recompute(&state);
        self.rebuild_after_hotplug(&mut state, populated);
        let pages = PageCount(ranges.iter().map(|range| range.pages().0).sum());
        state.plugged.came(pages);
        Ok(pages)
    }

    fn check_offline(&self, range: PfnRange) -> Result<(), OnlineError> {
        if range.is_empty() {
            return Err(OnlineError::Empty { range });
        }
        let known: u64 = self.parts(range).map(|(_, part)| part.pages().0).sum();
        if known != range.pages().0 {
            return Err(OnlineError::NotInTopology { range });
        }
        if !self.online.none(range) {
            return Err(OnlineError::AlreadyOnline { range });
        }
        Ok(())
    }

    fn hand_over(&self, range: PfnRange) {
        self.online.set(range);
        for (zone, part) in self.parts(range) {
            self.share_pageblocks(zone, part);
            let zone = self.zones[zone];
            let frames = *zone.frames();
            let numbers = frames.number(part.start)..frames.number(part.end);
            let mut guard = zone.lock();
            P::Rules::add_frames(zone, &mut guard, numbers);
            guard.add_managed(part.pages());
        }
    }

    /// Notes which pageblocks at the ends of a part, which is of `zone`, hold memory of other zones too,
    /// online or not.
    fn share_pageblocks(&self, zone: usize, part: PfnRange) {
        let frames = self.zones[zone].frames();
        for pfn in [part.start, Pfn(part.end.0 - 1)] {
            let start = Pfn(pfn.0 - pfn.0 % PAGEBLOCK_FRAMES);
            let pageblock = PfnRange { start, end: start.plus(PAGEBLOCK_ORDER.pages()) };
            if self.parts(pageblock).any(|(other, _)| other != zone) {
                frames.share_pageblock(frames.number(pfn));
            }
        }
    }

    /// The parts of a range by zone, each within one range of the topology.
    pub(super) fn parts(
        &self,
        range: PfnRange,
    ) -> impl Iterator<Item = (usize, PfnRange)> + use<'_, 'm, P> {
        self.zones.iter().enumerate().flat_map(move |(index, zone)| {
            self.topology
                .ranges_in(zone.node(), zone.span())
                .map(move |memory| memory.intersection(range))
                .filter(|part| !part.is_empty())
                .map(move |part| (index, part))
        })
    }

    /// Brings all of a node's memory online that is not: all that the topology has. Where some of it is in use otherwise (a kernel's
    /// image, metadata), [`online`](Self::online) says what comes.
    ///
    /// # Errors
    /// [`OnlineError::UnknownNode`].
    pub fn online_node(&self, node: NodeId) -> Result<PageCount, OnlineError> {
        let index = self.node_index(node).ok_or(OnlineError::UnknownNode { node })?;
        let mut state = self.state.lock();
        let (before, populated) = (self.managed_by_kind(index), self.populated_zones());
        for &memory in self.topology.node(index).memory {
            self.online.runs(memory, false).for_each(|range| self.hand_over(range));
        }
        self.recompute(&state);
        self.rebuild_after_hotplug(&mut state, populated);
        let pages = |of: [PageCount; ZoneKind::COUNT]| of.iter().map(|pages| pages.0).sum::<u64>();
        let pages = PageCount(pages(self.managed_by_kind(index)) - pages(before));
        if pages.0 > 0 {
            state.plugged.came(pages);
        }
        Ok(pages)
    }

    /// Whether a frame was handed over.
    pub fn is_online(&self, pfn: Pfn) -> bool {
        self.online.contains(pfn)
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::string::ToString;
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use crate::alloc::{Config, Request};
    use crate::frame::Migratetype;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::topology::{AddressMap, NodeBuf, TopologyBuf};
    use crate::units::{CpuId, NodeId, NodeIndex, Order, PageCount, PfnRange};

    fn node(id: u32, memory: &[(u64, u64)]) -> NodeBuf {
        let memory = memory.iter().map(|&(start, end)| PfnRange::new(start, end)).collect();
        NodeBuf { id: NodeId(id), memory, cpus: vec![CpuId(id)], movable_from: None }
    }

    #[test]
    fn several_ranges_are_handed_over_all_or_none() {
        let nodes = vec![node(0, &[(0, 4096)]), node(1, &[(4096, 8192)])];
        let machine =
            TopologyBuf { nodes, distances: vec![10, 20, 20, 10], address_map: AddressMap::Flat };
        TestMachine::from(machine).run_offline(|allocator| {
            let online = |ranges: &[(u64, u64)]| {
                let ranges: Vec<PfnRange> =
                    ranges.iter().map(|&(start, end)| PfnRange::new(start, end)).collect();
                allocator.online_all(&ranges).map_err(|error| error.to_string())
            };
            let refused =
                |range, why| Err(std_alloc::format!("frames {range} to bring online: {why}"));
            let not_all = "not all of them are memory of the topology";
            assert_eq!(online(&[(0, 512), (8000, 8193)]), refused("0x1f40..0x2001", not_all));
            let twice = refused("0x1ff..0x400", "some of them are online already");
            assert_eq!(online(&[(0, 512), (511, 1024)]), twice);
            assert_eq!(online(&[(0, 512), (7, 7)]), refused("0x7..0x7", "the range is empty"));
            assert!(allocator.zones().iter().all(|zone| zone.managed() == PageCount(0)));
            assert_eq!(online(&[]), Ok(PageCount(0)));
            assert_eq!(online(&[(0, 512), (4096, 8192)]), Ok(PageCount(4608)));
            assert_eq!(
                online(&[(512, 513), (0, 1)]),
                refused("0x0..0x1", "some of them are online already")
            );
            let pages = allocator.zones().iter().map(|zone| zone.managed().0).collect::<Vec<_>>();
            assert_eq!(pages, [512, 4096]);
            allocator.check().unwrap();
        });
    }

    /// Part of a pageblock comes while a CPU has the rest.
    #[test]
    fn what_comes_beside_an_owned_part_goes_to_the_owner() {
        let config = Config { model: Model::NEARPAGE, ..Config::default() };
        TestMachine::new().node(0, 4096, &[0]).config(config).run_offline(|allocator| {
            let base = allocator.zones()[0].span().start.0;
            let range = |start, end| PfnRange::new(base + start, base + end);
            let online = |start, end| allocator.online(range(start, end)).unwrap();
            online(700, 2900);
            let take = || allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE));
            let mut pages = vec![];
            for _ in 0..1500 {
                pages.push(take().unwrap());
            }
            online(2900, 3000);
            online(520, 700);
            allocator.check().unwrap();
            while let Ok(page) = take() {
                pages.push(page);
            }
            pages.drain(..).for_each(|page| allocator.free(page, Order(0)).unwrap());
            allocator.drain_all().unwrap();
            let found = allocator.check().unwrap();
            assert_eq!((found.free, found.cached), (PageCount(2480), PageCount(0)));
        });
    }

    /// Recorded: 0 1 2 at boot, 0 3 1 2 after node 3 came, which has no CPU (facts 3.2).
    #[test]
    fn cpus_count_once_memory_came_at_run_time() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 4096, &[1]);
        let machine = machine.node(2, 4096, &[2]).node(3, 4096, &[]);
        for (model, runs, expected) in [
            (Model::LINUX_6_12, true, 3),
            (Model::LINUX_6_12, false, 1),
            (Model::LINUX_6_1, true, 3),
            (Model::NEARPAGE, false, 3),
        ] {
            let config = Config { model, ..Config::default() };
            machine.clone().config(config).run_offline(|allocator| {
                let node_of = |pfn| allocator.topology().node_of_pfn(pfn);
                let alloc = |gfp| allocator.alloc(Request::new(Order(0), gfp)).map(node_of);
                for node in [0, 1, 2].map(NodeId) {
                    allocator.online_node(node).unwrap();
                }
                if runs {
                    alloc(Gfp::KERNEL).unwrap();
                }
                allocator.online_node(NodeId(3)).unwrap();
                while alloc(Gfp::KERNEL.union(Gfp::THISNODE)).is_ok() {}
                let next = alloc(Gfp::KERNEL).unwrap();
                assert_eq!(next, Some(NodeIndex(expected)), "{} {runs}", model.name);
            });
        }
    }

    #[test]
    fn memory_that_went_counts_cpus_too() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 4096, &[1]);
        let machine = machine.node(2, 4096, &[]).node(3, 4096, &[3]);
        let config = Config { model: Model::LINUX_6_12, ..Config::default() };
        machine.config(config).run(|allocator| {
            let node_of = |pfn| allocator.topology().node_of_pfn(pfn);
            let alloc = |gfp| allocator.alloc(Request::new(Order(0), gfp)).map(node_of);
            while alloc(Gfp::KERNEL.union(Gfp::THISNODE)).is_ok() {}
            assert_eq!(alloc(Gfp::KERNEL), Ok(Some(NodeIndex(1))));
            allocator.offline_node(NodeId(3)).unwrap();
            assert_eq!(alloc(Gfp::KERNEL), Ok(Some(NodeIndex(2))));
        });
    }

    #[test]
    fn pageblocks_of_two_zones_keep_their_type() {
        // Frames 700 to 1023 are node 1's, within the span of node 0.
        let nodes = vec![node(0, &[(0, 700), (1024, 4096)]), node(1, &[(700, 1024), (4096, 8192)])];
        let distances = vec![10, 20, 20, 10];
        let machine = TopologyBuf { nodes, distances, address_map: AddressMap::Flat };
        TestMachine::from(machine).run(|allocator| {
            let frames = allocator.zones()[0].frames();
            let shared: Vec<u32> =
                (0..8).filter(|at| frames.is_pageblock_shared(at * 512)).collect();
            assert_eq!(shared, [1]);
            // Node 0 claims all pageblocks that it can.
            let request =
                Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE).union(Gfp::MEMALLOC));
            while allocator.alloc(request).is_ok() {}
            assert_eq!(frames.pageblock(0), Migratetype::Unmovable);
            assert_eq!(frames.pageblock(512), Migratetype::Movable);
            allocator.check().unwrap();
        });
    }
}
