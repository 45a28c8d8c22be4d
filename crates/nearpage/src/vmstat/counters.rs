//! The counters of a zone, a node, or all of the machine.

use crate::alloc::PageAllocator;
use crate::host::Platform;
use crate::pcp::pageset::Pageset;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{NodeIndex, PageCount};
use crate::zone::{LockHolds, Zone, ZoneEvents, ZoneRules};

/// What was counted for one zone, or for several together, since the allocator was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ZoneStats {
    /// Allocations from here that preferred this node.
    pub numa_hit: u64,
    /// Allocations from here that preferred another node.
    pub numa_miss: u64,
    /// Allocations that preferred this zone and came from another node.
    pub numa_foreign: u64,
    /// Allocations that a policy interleaved to here.
    pub numa_interleave: u64,
    /// Allocations from here by CPUs of this node.
    pub numa_local: u64,
    /// Allocations from here by CPUs of other nodes.
    pub numa_other: u64,
    /// Pages allocated.
    pub pgalloc: PageCount,
    /// Pages freed.
    pub pgfree: PageCount,
    /// Trips of pagesets to the zone to fill a list.
    pub refills: u64,
    /// Pages that those brought.
    pub refilled_pages: PageCount,
    /// Trips of pagesets to the zone to give pages back.
    pub drains: u64,
    /// Pages that those took back.
    pub drained_pages: PageCount,
    /// Times that the zone's lock was taken to move pages.
    pub lock_acquisitions: u64,
    /// Writes to words of the zone that all CPUs share, its counter and its bits, under rules that move pages without its lock;
    /// `None` under those that move them with it: nobody counts them there.
    pub shared_writes: Option<u64>,
    /// Most pages that moved in one hold of the lock; of several zones, the most of any.
    pub most_pages_per_hold: PageCount,
    /// Pages that CPUs cache now.
    pub cached_pages: PageCount,
    /// Trips for blocks that a hard limit sent away with none.
    pub limit_refused: u64,
    /// Trips above a soft limit, which woke background reclaim.
    pub soft_limit_wakes: u64,
}

impl ZoneStats {
    /// The counts of both zones together: sums, and of the largest hold the larger.
    #[must_use]
    pub fn merged(self, other: &ZoneStats) -> ZoneStats {
        let pages = |a: PageCount, b: PageCount| PageCount(a.0 + b.0);
        ZoneStats {
            numa_hit: self.numa_hit + other.numa_hit,
            numa_miss: self.numa_miss + other.numa_miss,
            numa_foreign: self.numa_foreign + other.numa_foreign,
            numa_interleave: self.numa_interleave + other.numa_interleave,
            numa_local: self.numa_local + other.numa_local,
            numa_other: self.numa_other + other.numa_other,
            pgalloc: pages(self.pgalloc, other.pgalloc),
            pgfree: pages(self.pgfree, other.pgfree),
            refills: self.refills + other.refills,
            refilled_pages: pages(self.refilled_pages, other.refilled_pages),
            drains: self.drains + other.drains,
            drained_pages: pages(self.drained_pages, other.drained_pages),
            lock_acquisitions: self.lock_acquisitions + other.lock_acquisitions,
            shared_writes: match (self.shared_writes, other.shared_writes) {
                (Some(one), Some(another)) => Some(one + another),
                (one, another) => one.or(another),
            },
            most_pages_per_hold: self.most_pages_per_hold.max(other.most_pages_per_hold),
            cached_pages: pages(self.cached_pages, other.cached_pages),
            limit_refused: self.limit_refused + other.limit_refused,
            soft_limit_wakes: self.soft_limit_wakes + other.soft_limit_wakes,
        }
    }

    /// Adds what was counted by the pageset of a CPU of node `near`.
    fn add_pageset<P: Platform>(&mut self, pageset: &Pageset<'_, P>, near: NodeIndex) {
        let (totals, events) = (pageset.totals(), pageset.events());
        let allocs = totals.allocs.wrapping_add(events.bulk_allocs.load(Ordering::Relaxed));
        if near == pageset.zone().node() {
            self.numa_local += allocs;
        } else {
            self.numa_other += allocs;
        }
        self.pgalloc.0 += totals.alloc_pages;
        self.pgfree.0 += totals.freed_pages;
        self.cached_pages.0 += totals.count.0;
        self.refills += events.refills.get();
        self.refilled_pages.0 += events.refilled_pages.get();
        self.drains += events.drains.get();
        self.drained_pages.0 += events.drained_pages.get();
    }

    /// Adds what no pageset has counted.
    fn add_events(&mut self, events: &ZoneEvents) {
        let read = |event: &AtomicU64| event.load(Ordering::Relaxed);
        let (all, other) = (read(&events.direct_allocs), read(&events.direct_other));
        self.numa_local += all.saturating_sub(other);
        self.numa_other += other;
        self.numa_miss += read(&events.miss);
        self.numa_foreign += read(&events.foreign);
        self.numa_interleave += read(&events.interleave);
        self.limit_refused += read(&events.limit_refused);
        self.soft_limit_wakes += read(&events.soft_limit_wakes);
        self.pgalloc.0 += read(&events.direct_alloc_pages);
        self.pgfree.0 += read(&events.direct_free_pages);
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// What was counted for a zone of this allocator.
    ///
    /// # Panics
    /// If the zone is of another allocator and this one has fewer.
    pub fn zone_stats(&self, zone: &Zone<'m, P>) -> ZoneStats {
        let LockHolds { acquisitions, most_pages, .. } = zone.holds();
        let mut stats = ZoneStats {
            lock_acquisitions: acquisitions,
            shared_writes: self.shared_writes(zone),
            most_pages_per_hold: most_pages,
            ..ZoneStats::default()
        };
        for (_, node, pagesets) in self.cpus() {
            stats.add_pageset(&pagesets[zone.index().0 as usize], node);
        }
        stats.add_events(zone.events());
        // A miss is counted after its allocation, but a reader may see it first.
        let allocations = stats.numa_local + stats.numa_other;
        stats.numa_hit = allocations.saturating_sub(stats.numa_miss);
        stats
    }

    /// [`ZoneStats::shared_writes`] of a zone of this allocator.
    ///
    /// # Panics
    /// If the zone is of another allocator and this one has fewer.
    pub fn shared_writes(&self, zone: &Zone<'m, P>) -> Option<u64> {
        let outside = P::Rules::shared_writes(zone)?;
        let pagesets = self.cpus().map(|(.., pagesets)| &pagesets[zone.index().0 as usize]);
        Some(outside + pagesets.map(|pageset| pageset.counts().shared_writes).sum::<u64>())
    }

    /// What was counted for the zones of a node; zeroes for a node without memory.
    pub fn node_stats(&self, node: NodeIndex) -> ZoneStats {
        self.sum_of_stats(|zone| zone.node() == node)
    }

    /// What was counted for all zones.
    pub fn totals(&self) -> ZoneStats {
        self.sum_of_stats(|_| true)
    }

    pub(super) fn sum_of_stats(&self, wanted: impl Fn(&Zone<'m, P>) -> bool) -> ZoneStats {
        let zones = self.zones().iter().filter(|zone| wanted(zone));
        zones.fold(ZoneStats::default(), |sum, zone| sum.merged(&self.zone_stats(zone)))
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::collections::BTreeMap;
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::{Config, Request};
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::testing::random::Random;
    use crate::units::{CpuId, MAX_ORDER, NodeId, Order, Pfn, ZoneKind};

    type Allocator<'m> = PageAllocator<'m, PlainPlatform>;

    const PAGE: Order = Order(0);

    fn request(node: u32) -> Request {
        Request::new(PAGE, Gfp::HIGHUSER_MOVABLE).on(NodeId(node))
    }

    fn numa(stats: ZoneStats) -> [u64; 5] {
        let ZoneStats { numa_hit, numa_miss, numa_foreign, numa_local, numa_other, .. } = stats;
        [numa_hit, numa_miss, numa_foreign, numa_local, numa_other]
    }

    /// A block in the hands of the test.
    #[derive(Clone, Copy)]
    struct Block {
        pfn: Pfn,
        order: Order,
    }

    /// The definitions of facts 11, taken word for word: each operation is counted when it happens.
    #[derive(Default)]
    struct Naive {
        zones: BTreeMap<(NodeIndex, ZoneKind), ZoneStats>,
        held: Vec<Block>,
    }

    impl Naive {
        fn allocated(&mut self, allocator: &Allocator<'_>, cpu: CpuId, of: Request, pfn: Pfn) {
            let topology = allocator.topology();
            let first = allocator.zones()[0].node();
            let here = topology.node_of_cpu(cpu).unwrap_or(first);
            let node = of.node.map_or(here, |id| topology.index_of(id).unwrap());
            let preferred = nearest_zone(allocator, node, of.gfp.zone_kind().unwrap());
            let used = zone_of(allocator, pfn);
            let zone = self.zones.entry(used).or_default();
            zone.pgalloc.0 += of.order.pages().0;
            *if used.0 == here { &mut zone.numa_local } else { &mut zone.numa_other } += 1;
            if used.0 == preferred.0 {
                zone.numa_hit += 1;
            } else {
                zone.numa_miss += 1;
                self.zones.entry(preferred).or_default().numa_foreign += 1;
            }
            self.held.push(Block { pfn, order: of.order });
        }

        fn freed(&mut self, allocator: &Allocator<'_>, block: Block) {
            let zone = self.zones.entry(zone_of(allocator, block.pfn)).or_default();
            zone.pgfree.0 += block.order.pages().0;
        }
    }

    fn zone_of(allocator: &Allocator<'_>, pfn: Pfn) -> (NodeIndex, ZoneKind) {
        let topology = allocator.topology();
        (topology.node_of_pfn(pfn).unwrap(), topology.zone_kind_of(pfn).unwrap())
    }

    /// The highest zone that may be used on the nearest node that has one.
    fn nearest_zone(
        allocator: &Allocator<'_>,
        from: NodeIndex,
        highest: ZoneKind,
    ) -> (NodeIndex, ZoneKind) {
        let zones = allocator.zones().iter().map(|zone| (zone.node(), zone.kind()));
        let rank = |&(node, kind): &(NodeIndex, ZoneKind)| {
            (allocator.topology().distance(from, node), core::cmp::Reverse(kind))
        };
        zones.filter(|zone| zone.1 <= highest).min_by_key(rank).unwrap()
    }

    fn compare(allocator: &Allocator<'_>, naive: &Naive, place: &str) {
        for zone in allocator.zones() {
            let stats = allocator.zone_stats(zone);
            let key = (zone.node(), zone.kind());
            let expected = naive.zones.get(&key).copied().unwrap_or_default();
            assert_eq!(numa(stats), numa(expected), "{place}, {key:?}");
            assert_eq!(stats.pgalloc, expected.pgalloc, "{place}, {key:?}");
            assert_eq!(stats.pgfree, expected.pgfree, "{place}, {key:?}");

            let outside = zone.managed().0 - zone.free_pages().0 - stats.cached_pages.0;
            assert_eq!(stats.pgalloc.0 - stats.pgfree.0, outside, "{place}, {key:?}");
            // What came into pagesets left them, or is there.
            let read = |event: &AtomicU64| event.load(Ordering::Relaxed);
            let pushed = stats.pgfree.0 - read(&zone.events().direct_free_pages);
            let popped = stats.pgalloc.0 - read(&zone.events().direct_alloc_pages);
            let came = stats.refilled_pages.0 + pushed;
            let left = stats.drained_pages.0 + popped;
            assert_eq!(came, left + stats.cached_pages.0, "{place}, {key:?}");
        }
    }

    /// Machines of 1 to 6 nodes: some without memory, some without CPUs, some with a Movable zone. From
    /// each node all distances differ by more than what else decides the order of nodes. The last CPU is
    /// one that the topology does not have: all its pages come from zones and go back to them.
    fn random_machine(random: &mut Random) -> (TestMachine, Vec<CpuId>, Vec<u32>) {
        let count = 1 + random.below(6) as usize;
        let with_memory = random.below(count as u64) as usize;
        let mut machine = TestMachine::new();
        let (mut cpus, mut ids) = (vec![], vec![]);
        for at in 0..count {
            let id = ids.last().map_or(0, |id| id + 1) + random.below(3) as u32;
            ids.push(id);
            let first = cpus.len() as u32;
            let most = if at == count - 1 && cpus.is_empty() { 1 } else { random.below(4) as u32 };
            cpus.extend((first..first + most).map(CpuId));
            let ids_of_cpus: Vec<u32> = (first..first + most).collect();
            let has_memory = at == with_memory || random.below(3) > 0;
            let pages = if has_memory { 600 + random.below(6000) } else { 0 };
            machine = machine.node(id, pages, &ids_of_cpus);
            if has_memory && random.below(3) == 0 {
                machine = machine.movable(1 + random.below(pages));
            }
        }
        let mut distances = vec![10; count * count];
        for from in 0..count {
            let mut others: Vec<usize> = (0..count).filter(|&to| to != from).collect();
            for rank in 0..others.len() {
                let left = others.len() - rank;
                others.swap(rank, rank + random.below(left as u64) as usize);
                distances[from * count + others[rank]] = 20 + 4 * rank as u8;
            }
        }
        cpus.push(CpuId(999));
        (machine.distances(&distances), cpus, ids)
    }

    fn random_request(random: &mut Random, ids: &[u32]) -> Request {
        let kinds = [
            Gfp::KERNEL,
            Gfp::ATOMIC,
            Gfp::HIGHUSER_MOVABLE,
            Gfp::KERNEL.union(Gfp::RECLAIMABLE),
            Gfp::TRANSHUGE,
        ];
        let order = match random.below(8) {
            0..5 => PAGE,
            5..7 => Order(random.below(4) as u8),
            _ => Order(random.below(MAX_ORDER.0 as u64 + 1) as u8),
        };
        let request = Request::new(order, random.one_of(&kinds));
        if random.below(2) == 0 { request } else { request.on(NodeId(random.one_of(ids))) }
    }

    /// One operation by a random CPU. Phases of growth fill nodes and make others help out.
    fn step(
        allocator: &Allocator<'_>,
        naive: &mut Naive,
        random: &mut Random,
        cpus: &[CpuId],
        ids: &[u32],
        percent_of_frees: u64,
    ) {
        let cpu = random.one_of(cpus);
        allocator.platform().run_on(cpu);
        let is_bulk = random.below(10) == 0;
        match random.below(100) {
            0 => drop(allocator.drain_cpu(random.one_of(cpus))),
            1 => drop(allocator.decay_cpu(random.one_of(cpus))),
            2 => drop(allocator.drain_zone(random.one_of(allocator.zones()))),
            _ if !naive.held.is_empty() && random.below(100) < percent_of_frees => {
                free_some(allocator, naive, random, is_bulk);
            }
            _ if is_bulk => {
                let request = Request { order: PAGE, ..random_request(random, ids) };
                let mut pages = vec![Pfn(0); 1 + random.below(600) as usize];
                let got = allocator.alloc_bulk(request, &mut pages).unwrap_or(0);
                for &pfn in &pages[..got] {
                    naive.allocated(allocator, cpu, request, pfn);
                }
            }
            _ => {
                let request = random_request(random, ids);
                if let Ok(pfn) = allocator.alloc(request) {
                    naive.allocated(allocator, cpu, request, pfn);
                }
            }
        }
    }

    fn free_some(allocator: &Allocator<'_>, naive: &mut Naive, random: &mut Random, bulk: bool) {
        let count = if bulk { 1 + random.below(600) as usize } else { 1 };
        let mut pages = vec![];
        for _ in 0..count.min(naive.held.len()) {
            let at = random.below(naive.held.len() as u64) as usize;
            let block = naive.held.swap_remove(at);
            naive.freed(allocator, block);
            if bulk && block.order == PAGE {
                pages.push(block.pfn);
            } else {
                allocator.free(block.pfn, block.order).unwrap();
                // A refused free is none.
                assert!(allocator.free(block.pfn, block.order).is_err());
            }
        }
        allocator.free_bulk(&pages).unwrap();
    }

    #[test]
    fn counters_are_those_of_a_naive_count() {
        for seed in 0..60 {
            let mut random = Random(seed);
            let (machine, cpus, ids) = random_machine(&mut random);
            let model = random.one_of(&Model::ALL);
            let config = Config { model, ..Config::default() };
            machine.config(config).run(|allocator| {
                let mut naive = Naive::default();
                for at in 0..6000 {
                    let percent_of_frees = if at / 1000 % 2 == 0 { 10 } else { 60 };
                    step(allocator, &mut naive, &mut random, &cpus, &ids, percent_of_frees);
                    if at % 50 == 0 {
                        compare(allocator, &naive, &std_alloc::format!("seed {seed}, step {at}"));
                    }
                }
                let place = std_alloc::format!("seed {seed}, the end");
                compare(allocator, &naive, &place);
                let found = allocator.check().unwrap_or_else(|error| panic!("{place}: {error}"));
                assert_eq!(found.cached, allocator.totals().cached_pages, "{place}");
            });
        }
    }

    #[test]
    fn an_overfilled_node_has_its_pages_counted_where_they_came_from() {
        let machine = TestMachine::new().node(0, 8192, &[0]).node(1, 8192, &[1]);
        machine.node(2, 8192, &[2]).distances(&[10, 20, 30, 20, 10, 15, 30, 15, 10]).run(
            |allocator| {
                // CPU 0 prefers node 1 and wants half as much again as it has; then a bulk.
                for _ in 0..12_000 {
                    allocator.alloc(request(1)).unwrap();
                }
                let [zero, one, two] = [0, 1, 2].map(|at| allocator.node_stats(NodeIndex(at)));
                let spilled = two.numa_miss;
                assert!((3000..5000).contains(&spilled), "{spilled}");
                assert_eq!(numa(zero), [0; 5]);
                assert_eq!(numa(one), [12_000 - spilled, 0, spilled, 0, 12_000 - spilled]);
                assert_eq!(numa(two), [0, spilled, 0, 0, spilled]);
                assert_eq!(allocator.totals(), zero.merged(&one).merged(&two));

                // A bulk never leaves the preferred node, but its first page may.
                let mut pages = [Pfn(0); 100];
                assert_eq!(allocator.alloc_bulk(request(1), &mut pages), Ok(1));
                let [one, two] = [1, 2].map(|at| allocator.node_stats(NodeIndex(at)));
                assert_eq!((one.numa_foreign, two.numa_miss), (spilled + 1, spilled + 1));
            },
        );
    }

    #[test]
    fn a_cpu_without_memory_hits_the_nearest_node_as_other() {
        let machine = TestMachine::new().node(0, 8192, &[0]).node(4, 0, &[3]).node(5, 8192, &[]);
        machine.distances(&[10, 20, 30, 20, 10, 15, 30, 15, 10]).run(|allocator| {
            allocator.platform().run_on(CpuId(3));
            for _ in 0..300 {
                allocator.alloc(Request::new(PAGE, Gfp::KERNEL)).unwrap();
            }
            // An order that no pageset caches.
            allocator.alloc(Request::new(Order(5), Gfp::KERNEL)).unwrap();
            // A request of another CPU that prefers the memoryless node prefers the same one.
            allocator.platform().run_on(CpuId(0));
            allocator.alloc(request(4)).unwrap();
            assert_eq!(numa(allocator.node_stats(NodeIndex(2))), [302, 0, 0, 0, 302]);
            assert_eq!(allocator.node_stats(NodeIndex(1)), ZoneStats::default());
            assert_eq!(numa(allocator.totals()), [302, 0, 0, 0, 302]);
        });
    }

    #[test]
    fn a_cpu_that_the_topology_does_not_have_counts_by_the_first_node() {
        TestMachine::new().node(0, 8192, &[0]).node(1, 8192, &[1]).run(|allocator| {
            allocator.platform().run_on(CpuId(9));
            let pfn = allocator.alloc(Request::new(PAGE, Gfp::KERNEL)).unwrap();
            allocator.alloc(request(1)).unwrap();
            allocator.free(pfn, PAGE).unwrap();
            let [zero, one] = [0, 1].map(|at| allocator.node_stats(NodeIndex(at)));
            assert_eq!((numa(zero), numa(one)), ([1, 0, 0, 1, 0], [1, 0, 0, 0, 1]));
            assert_eq!((zero.pgalloc, zero.pgfree), (PageCount(1), PageCount(1)));
        });
    }

    #[test]
    fn trips_to_the_zone_are_counted() {
        TestMachine::new().node(0, 32_768, &[0]).model(Model::LINUX_6_18).run(|allocator| {
            let mut expected = ZoneStats::default();
            let first = allocator.alloc(Request::new(PAGE, Gfp::KERNEL)).unwrap();
            let batch = allocator.pagesets(CpuId(0)).unwrap()[0].tuning().batch;
            expected.numa_hit = 1;
            expected.numa_local = 1;
            expected.pgalloc = PageCount(1);
            expected.refills = 1;
            expected.refilled_pages = batch;
            expected.lock_acquisitions = 1;
            expected.most_pages_per_hold = batch;
            expected.cached_pages = PageCount(batch.0 - 1);
            assert_eq!(allocator.totals(), expected);

            // Straight from the zone: an allocation and a lock hold, no refill.
            let large = allocator.alloc(Request::new(Order(6), Gfp::KERNEL)).unwrap();
            expected.numa_hit = 2;
            expected.numa_local = 2;
            expected.pgalloc = PageCount(65);
            expected.lock_acquisitions = 2;
            expected.most_pages_per_hold = PageCount(64);
            assert_eq!(allocator.totals(), expected);

            allocator.free(large, Order(6)).unwrap();
            allocator.free(first, PAGE).unwrap();
            expected.pgfree = PageCount(65);
            expected.lock_acquisitions = 3;
            expected.cached_pages = batch;
            assert_eq!(allocator.totals(), expected);

            assert_eq!(allocator.drain_all(), Ok(batch));
            expected.drains = 1;
            expected.drained_pages = batch;
            expected.lock_acquisitions = 4;
            expected.cached_pages = PageCount(0);
            assert_eq!(allocator.totals(), expected);
        });
    }
}
