//! `numastat` of a node and `/proc/vmstat`: a name and a value a line.

use core::fmt::{self, Write};

use super::ZoneStats;
use crate::alloc::{Fallbacks, HotplugCounts, PageAllocator, Reason, ScanCounts, StallCounts};
use crate::host::Platform;
use crate::units::{NodeIndex, ZoneKind};
use crate::waiters::WaitCounts;

impl ZoneStats {
    /// The NUMA events with the kernel's names, in its order (`mm/vmstat.c: vmstat_text`, 6.12).
    pub(super) fn numa_lines(&self) -> [(&'static str, u64); 6] {
        [
            ("numa_hit", self.numa_hit),
            ("numa_miss", self.numa_miss),
            ("numa_foreign", self.numa_foreign),
            ("numa_interleave", self.numa_interleave),
            ("numa_local", self.numa_local),
            ("numa_other", self.numa_other),
        ]
    }

    /// What only nearpage counts.
    fn own_lines(&self) -> [(&'static str, u64); 9] {
        [
            ("nr_pcp_pages", self.cached_pages.0),
            ("pcp_refill", self.refills),
            ("pcp_refill_pages", self.refilled_pages.0),
            ("pcp_drain", self.drains),
            ("pcp_drain_pages", self.drained_pages.0),
            ("zone_lock_acquisitions", self.lock_acquisitions),
            ("zone_lock_most_pages", self.most_pages_per_hold.0),
            ("limit_refused", self.limit_refused),
            ("limit_soft_wake", self.soft_limit_wakes),
        ]
    }
}

impl<P: Platform> PageAllocator<'_, P> {
    /// Writes the text of `/sys/devices/system/node/nodeN/numastat`: six lines.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_numastat(&self, node: NodeIndex, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        write_numastat(&self.node_stats(node), out)
    }

    /// Writes those lines of `/proc/vmstat` that an allocator of pages has, with the kernel's names, and
    /// after them nearpage's own: what watermarks are raised by and what is kept for urgent requests, pages in pagesets, their refills and drains, how often zone locks were
    /// taken and the most pages in one hold, writes to words that all CPUs share (under rules that move pages without zone locks), trips that limits concerned, what scans of zonelists did
    /// ([`ScanCounts`]) and requests that found nothing ([`StallCounts`]), what happened at the wait tables of page locks ([`WaitCounts`]), how often memory
    /// and CPUs came and went ([`HotplugCounts`]), and how many pages came from elsewhere than preferred for which reason ([`Reason`]).
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_vmstat(&self, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        let by_kind = ZoneKind::ALL.map(|kind| self.sum_of_stats(|zone| zone.kind() == kind));
        let all = by_kind.iter().fold(ZoneStats::default(), ZoneStats::merged);
        let free: u64 = self.zones().iter().map(|zone| zone.free_pages().0).sum();
        write_lines(&[("nr_free_pages", free)], out)?;
        write_lines(&all.numa_lines(), out)?;
        for (kind, stats) in ZoneKind::ALL.into_iter().zip(&by_kind) {
            writeln!(out, "pgalloc_{} {}", event_suffix(kind), stats.pgalloc)?;
        }
        write_lines(&[("pgfree", all.pgfree.0)], out)?;
        self.write_stalls(out)?;
        let zones = || self.zones().iter();
        let kept = [
            ("watermark_boost_pages", zones().map(|zone| zone.boost().0).sum()),
            ("highatomic_kept_pages", zones().map(|zone| zone.kept_back().0).sum()),
        ];
        write_lines(&kept, out)?;
        write_lines(&all.own_lines(), out)?;
        if let Some(writes) = all.shared_writes {
            writeln!(out, "zone_shared_writes {writes}")?;
        }
        write_lines(&self.scan_lines(), out)?;
        write_lines(&self.page_lock_lines(), out)?;
        write_lines(&self.hotplug_lines(), out)?;
        let indexes = || self.topology().indexes();
        let pairs = indexes().flat_map(|from| indexes().map(move |to| self.fallbacks(from, to)));
        let all: Fallbacks = pairs.sum();
        let mut reasons = Reason::ALL.into_iter();
        reasons.try_for_each(|of| writeln!(out, "fallback_{} {}", of.name(), all.pages(of)))
    }

    /// Writes where pages came from instead of the zone that was preferred, and why: a line for each pair of
    /// nodes between which there were any, as `Node 0 -> Node 2 watermark 512 lowmem_reserve 0 …`, in pages.
    /// A node beside itself: pages of another of its zones.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_fallbacks(&self, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        let indexes = || self.topology().indexes();
        for (from, to) in indexes().flat_map(|from| indexes().map(move |to| (from, to))) {
            let fallbacks = self.fallbacks(from, to);
            if fallbacks.total().0 > 0 {
                let id = |node| self.topology().node(node).id;
                write!(out, "Node {} -> Node {}", id(from), id(to))?;
                for of in Reason::ALL {
                    write!(out, " {} {}", of.name(), fallbacks.pages(of))?;
                }
                out.write_char('\n')?;
            }
        }
        Ok(())
    }

    /// What requests did that found nothing: with the kernel's names, and then what it does not count.
    fn write_stalls(&self, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        let counts = self.topology().indexes().map(|node| self.stall_counts(node));
        let all: StallCounts = counts.sum();
        for kind in ZoneKind::ALL {
            writeln!(out, "allocstall_{} {}", event_suffix(kind), all.reclaims[kind.index()])?;
        }
        let lines = [
            ("compact_stall", all.compactions),
            ("zone_reclaim_success", all.node_reclaims),
            ("zone_reclaim_failed", all.node_reclaims_failed),
            ("oom_kill", all.last_resorts),
            ("stall_drain", all.drains),
            ("stall_unreserve", all.unreserved),
        ];
        write_lines(&lines, out)
    }

    fn scan_lines(&self) -> [(&'static str, u64); 4] {
        let counts = self.topology().indexes().map(|node| self.scan_counts(node));
        let all: ScanCounts = counts.sum();
        [
            ("zonelist_visited", all.zones_visited),
            ("zonelist_skipped", all.zones_skipped),
            ("zonelist_second_pass", all.second_passes),
            ("zonelist_zap", all.zaps),
        ]
    }

    fn hotplug_lines(&self) -> [(&'static str, u64); 7] {
        let counts: HotplugCounts = self.hotplug_counts();
        [
            ("memory_online", counts.memory_onlines),
            ("memory_online_pages", counts.onlined_pages.0),
            ("memory_offline", counts.memory_offlines),
            ("memory_offline_pages", counts.offlined_pages.0),
            ("memory_offline_in_use", counts.memory_in_use),
            ("cpu_online", counts.cpu_onlines),
            ("cpu_offline", counts.cpu_offlines),
        ]
    }

    fn page_lock_lines(&self) -> [(&'static str, u64); 6] {
        let counts = self.topology().indexes().map(|node| self.wait_counts(node));
        let all = counts.fold(WaitCounts::default(), WaitCounts::merged);
        [
            ("page_lock_waits", all.waits),
            ("page_lock_collisions", all.collisions),
            ("page_lock_longest_chain", all.longest_chain),
            ("page_lock_wakes", all.wakes),
            ("page_lock_wakes_from_other_node", all.wakes_from_other_node),
            ("page_lock_hand_overs", all.hand_overs),
        ]
    }
}

/// The zone in the name of an event.
const fn event_suffix(kind: ZoneKind) -> &'static str {
    match kind {
        ZoneKind::Dma => "dma",
        ZoneKind::Dma32 => "dma32",
        ZoneKind::Normal => "normal",
        ZoneKind::Movable => "movable",
        ZoneKind::Device => "device",
    }
}

/// The last three events have other names here than in `/proc/vmstat`.
/// `drivers/base/node.c: node_read_numastat`, 6.12.
fn write_numastat(stats: &ZoneStats, out: &mut (impl Write + ?Sized)) -> fmt::Result {
    let mut lines = stats.numa_lines();
    for (line, name) in lines[3..].iter_mut().zip(["interleave_hit", "local_node", "other_node"]) {
        line.0 = name;
    }
    write_lines(&lines, out)
}

fn write_lines(lines: &[(&str, u64)], out: &mut (impl Write + ?Sized)) -> fmt::Result {
    lines.iter().try_for_each(|(name, value)| writeln!(out, "{name} {value}"))
}

#[cfg(test)]
mod tests {
    use std_alloc::string::String;

    use super::*;
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, NodeId, NodeIndex, Order};

    #[test]
    fn numastat_has_its_own_names() {
        // A node of a 6.12 machine after it helped out.
        let recorded = "numa_hit 3945825\nnuma_miss 20689\nnuma_foreign 17\ninterleave_hit 823\n\
                        local_node 3926075\nother_node 40439\n";
        let stats = ZoneStats {
            numa_hit: 3_945_825,
            numa_miss: 20_689,
            numa_foreign: 17,
            numa_interleave: 823,
            numa_local: 3_926_075,
            numa_other: 40_439,
            ..ZoneStats::default()
        };
        let mut text = String::new();
        write_numastat(&stats, &mut text).unwrap();
        assert_eq!(text, recorded);
    }

    /// Vector I of the recordings: what a full node turns away, it counts as foreign, and the node that
    /// serves it counts as many misses.
    #[test]
    fn an_overfull_node_is_foreign_as_often_as_its_helper_misses() {
        let machine =
            TestMachine::new().node(0, 8192, &[0]).node(1, 4096, &[1]).node(2, 4096, &[2]);
        let machine = machine.distances(&[10, 20, 30, 20, 10, 15, 30, 15, 10]);
        machine.run(|allocator| {
            let preferred = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE).on(NodeId(1));
            for _ in 0..6000 {
                allocator.alloc(preferred).unwrap();
            }
            let numastat = |node: u16| {
                let stats = allocator.node_stats(NodeIndex(node));
                (stats.numa_hit, stats.numa_miss, stats.numa_foreign, stats.numa_other)
            };
            let (hit, _, foreign, _) = numastat(1);
            assert!(foreign > 0 && hit + foreign == 6000, "{hit} {foreign}");
            assert_eq!(numastat(1), (hit, 0, foreign, hit));
            assert_eq!(numastat(2), (0, foreign, 0, foreign));
            assert_eq!(numastat(0), (0, 0, 0, 0));
        });
    }

    #[test]
    fn vmstat_is_of_all_nodes() {
        let machine = TestMachine::new().node(0, 8192, &[0]).node(1, 8192, &[1]).movable(4096);
        machine.model(Model::LINUX_6_18).run(|allocator| {
            allocator.alloc(Request::new(Order(4), Gfp::KERNEL)).unwrap();
            let movable = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE).on(NodeId(1));
            let pages = [(); 3].map(|()| allocator.alloc(movable).unwrap());
            allocator.platform().run_on(CpuId(1));
            allocator.free(pages[0], Order(0)).unwrap();
            let mut text = String::new();
            allocator.write_vmstat(&mut text).unwrap();
            // Zones this small have batches of one page, and the second refill is twice that.
            let expected = "nr_free_pages 16365\nnuma_hit 4\nnuma_miss 0\nnuma_foreign 0\n\
                            numa_interleave 0\nnuma_local 1\nnuma_other 3\npgalloc_dma 0\n\
                            pgalloc_dma32 0\npgalloc_normal 16\npgalloc_movable 3\npgalloc_device 0\n\
                            pgfree 1\nallocstall_dma 0\nallocstall_dma32 0\nallocstall_normal 0\n\
                            allocstall_movable 0\nallocstall_device 0\ncompact_stall 0\n\
                            zone_reclaim_success 0\nzone_reclaim_failed 0\noom_kill 0\nstall_drain 0\nstall_unreserve 0\n\
                            watermark_boost_pages 0\nhighatomic_kept_pages 0\nnr_pcp_pages 1\npcp_refill 2\npcp_refill_pages 3\npcp_drain 0\n\
                            pcp_drain_pages 0\nzone_lock_acquisitions 3\nzone_lock_most_pages 16\n\
                            limit_refused 0\nlimit_soft_wake 0\nzonelist_visited 0\nzonelist_skipped 0\nzonelist_second_pass 0\n\
                            zonelist_zap 0\npage_lock_waits 0\npage_lock_collisions 0\n\
                            page_lock_longest_chain 0\npage_lock_wakes 0\n\
                            page_lock_wakes_from_other_node 0\npage_lock_hand_overs 0\n\
                            memory_online 2\nmemory_online_pages 16384\nmemory_offline 0\n\
                            memory_offline_pages 0\nmemory_offline_in_use 0\ncpu_online 0\ncpu_offline 0\n\
                            fallback_watermark 0\nfallback_lowmem_reserve 0\n\
                            fallback_fragmentation 0\nfallback_zonelist_hint 0\n\
                            fallback_policy 0\nfallback_cpuset 0\nfallback_private_node 0\nfallback_limit 0\n";
            assert_eq!(text, expected);
            let mut text = String::new();
            allocator.write_numastat(NodeIndex(1), &mut text).unwrap();
            assert_eq!(text.lines().last(), Some("other_node 3"));
        });
    }

    #[test]
    fn fallbacks_have_a_line_for_each_pair_of_nodes() {
        TestMachine::new().node(0, 4096, &[0]).node(8, 4096, &[]).run(|allocator| {
            let own = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE));
            while allocator.alloc(own).is_ok() {}
            allocator.alloc(Request::new(Order(1), Gfp::KERNEL)).unwrap();
            let mut text = String::new();
            allocator.write_fallbacks(&mut text).unwrap();
            let expected = "Node 0 -> Node 8 watermark 2 lowmem_reserve 0 fragmentation 0 \
                            zonelist_hint 0 policy 0 cpuset 0 private_node 0 limit 0\n";
            assert_eq!(text, expected);
        });
    }
}
