//! What follows from sizes and settings: watermarks, reserves, pageset sizes, zonelists. All of it is
//! computed anew when memory comes online or a setting changes, under one lock.

use super::allocator::{Cpu, NodeAccess, NodeLists, PageAllocator};
use super::plugged::HotplugCounts;
use super::state::State;
use crate::error::UnknownNode;
use crate::host::{Lock, Platform};
use crate::pcp::pageset::{Pageset, PagesetRules};
use crate::pcp::sizes::{Sizes, ZoneShare};
use crate::sync::Ordering;
use crate::units::{NodeId, NodeIndex, PageCount, ZoneIndex, ZoneKind};
use crate::watermark::{self, SettingError, Settings, Watermarks, ZoneSize};
use crate::zone::Zone;
use crate::zonelist::list::Own;
use crate::zonelist::{self, CpuTerm, NodeOrder, Online};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.state.lock().settings
    }

    /// Log2 of the page size in bytes.
    #[inline(always)]
    pub fn page_shift(&self) -> u32 {
        P::PAGE_SHIFT.unwrap_or(self.page_shift)
    }

    /// Changes the settings and everything that follows from them. `movable_min` stays that of the model.
    ///
    /// # Errors
    /// [`SettingError`] for a value that is out of range.
    pub fn set_settings(&self, settings: Settings) -> Result<(), SettingError> {
        settings.check()?;
        let mut state = self.state.lock();
        state.settings = Settings { movable_min: self.model.movable_min, ..settings };
        self.recompute(&state);
        Ok(())
    }

    /// The `min_free_kbytes` in force: as set, or derived from the memory that is online.
    pub fn min_free_kbytes(&self) -> u64 {
        self.min_free_kbytes_of(&self.state.lock())
    }

    fn min_free_kbytes_of(&self, state: &State<'m>) -> u64 {
        watermark::boot_min_free_kbytes(self.zone_sizes(), &state.settings, self.page_shift())
    }

    /// How often memory and CPUs came and went.
    pub fn hotplug_counts(&self) -> HotplugCounts {
        self.state.lock().plugged
    }

    /// Makes all zonelists anew, as after a change of the machine at run time. `linux-*` models count
    /// the CPUs of nodes from now on (facts 3.2).
    pub fn rebuild_zonelists(&self) {
        let mut state = self.state.lock();
        state.booted = true;
        self.rebuild(&mut state);
    }

    fn zone_sizes(&self) -> impl Iterator<Item = ZoneSize> + Clone + use<'_, 'm, P> {
        self.zones.iter().map(|zone| ZoneSize { kind: zone.kind(), managed: zone.managed() })
    }

    /// Watermarks, reserves and pageset sizes.
    pub(super) fn recompute(&self, state: &State<'m>) {
        self.node_reclaim.store(state.settings.node_reclaim_mode != 0, Ordering::Relaxed);
        let kbytes = self.min_free_kbytes_of(state);
        let watermarks =
            Watermarks::new(self.zone_sizes(), kbytes, &state.settings, self.page_shift());
        for zone in self.zones {
            let size = ZoneSize { kind: zone.kind(), managed: zone.managed() };
            let managed = self.managed_by_kind(zone.node());
            let reserve = watermark::lowmem_reserve(zone.kind(), &managed, &state.settings);
            let boost_factor = state.settings.watermark_boost_factor;
            zone.set_marks(watermarks.marks(size), reserve, boost_factor);
        }
        self.resize_pagesets(state);
    }

    pub(super) fn managed_by_kind(&self, node: NodeIndex) -> [PageCount; ZoneKind::COUNT] {
        let mut managed = [PageCount(0); ZoneKind::COUNT];
        for zone in self.zones.iter().filter(|zone| zone.node() == node) {
            managed[zone.kind().index()] += zone.managed();
        }
        managed
    }

    /// Takes the one place for who keeps notes; returns whether it was free.
    #[doc(hidden)]
    pub fn claim_notes(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.lent_budget.is_none();
        state.lent_budget = state.lent_budget.or(Some(PageCount(0)));
        is_free
    }

    /// Takes what others keep on CPUs out of the budget of the pagesets: what is wanted, and at most half of the budget if there
    /// is one. Returns how much that is.
    #[doc(hidden)]
    pub fn share_budget(&self, wanted: PageCount) -> PageCount {
        let mut state = self.state.lock();
        let budget = state.settings.pageset_budget(self.page_shift());
        let share = budget.map_or(wanted, |budget| wanted.min(PageCount(budget.0 / 2)));
        state.lent_budget = Some(share);
        if budget.is_some() {
            self.resize_pagesets(&state);
        }
        share
    }

    /// The sizes of all pagesets, within the budget if there is one.
    pub(super) fn resize_pagesets(&self, state: &State<'m>) {
        let lent = state.lent_budget.unwrap_or_default();
        let budget = state.settings.pageset_budget(self.page_shift());
        let budget = budget.map(|budget| PageCount(budget.0.saturating_sub(lent.0)));
        let cpus = self.cpus_on().count() as u64;
        let most = |zone: &&Zone<'m, P>| self.sizes_of(zone, state).most_kept().0;
        let wanted = PageCount(cpus * self.zones.iter().map(most).sum::<u64>());
        for zone in self.zones {
            let sizes = self.sizes_of(zone, state);
            let sizes = budget.map_or(sizes, |budget| sizes.within(budget, wanted));
            for cpu in self.known_cpus() {
                let pageset = &cpu.pagesets[zone.index().0 as usize];
                resize(&self.model.pcp, pageset, sizes, budget);
            }
        }
    }

    /// What the size of a zone allows.
    fn sizes_of(&self, zone: &Zone<'m, P>, state: &State<'m>) -> Sizes {
        let of_node = self.topology.node(zone.node()).cpus.iter();
        let near = of_node.filter(|cpu| self.is_cpu_on(**cpu)).count();
        let cpus = if near > 0 { near } else { self.cpus_on().count() };
        let share = ZoneShare { managed: zone.managed(), low: zone.marks().low, cpus: cpus as u32 };
        let fraction = state.settings.percpu_pagelist_high_fraction;
        self.model.pcp.sizes.sizes(share, Sizes::new(share, fraction, self.page_shift()))
    }

    /// Zones that have memory.
    pub(super) fn populated_zones(&self) -> usize {
        self.zones.iter().filter(|zone| zone.managed().0 > 0).count()
    }

    /// All zonelists, after memory came or went. It is at run time, and no part of a boot, once pages have moved; then
    /// Linux makes zonelists anew if a zone got its first pages or lost its last. Facts 13.
    pub(super) fn rebuild_after_hotplug(&self, state: &mut State<'m>, populated_before: usize) {
        let runs = self.zones.iter().any(|zone| zone.holds().acquisitions > 0);
        state.booted |= runs && self.populated_zones() != populated_before;
        self.rebuild(state);
    }

    /// All zonelists, and the preferred zones of nodes and CPUs.
    pub(super) fn rebuild(&self, state: &mut State<'m>) {
        let cpu_term = if state.booted { CpuTerm::Counted } else { self.model.cpu_term_at_boot };
        let order = NodeOrder { topology: &self.topology, online: self, cpu_term };
        order.rebuild(state.loads, state.order, |node, order| self.set_zonelists(node, order));
        for zone in self.zones {
            zone.set_avoids_fragmentation(self.avoids_fragmentation(zone));
        }
        self.known_cpus().for_each(|cpu| self.set_homes(cpu));
    }

    /// Which pagesets the fast path uses on a CPU: nobody's while it is off.
    pub(super) fn set_homes(&self, cpu: &'m Cpu<'m, P>) {
        let pagesets = if cpu.is_on() { cpu.pagesets } else { &[] };
        for kind in ZoneKind::ALL {
            let lists = &self.lists[cpu.lists as usize + cpu.owner.node.0 as usize];
            let zone = lists.preferred.zone(kind);
            let home = self.homes[kind.index()].slot(cpu.owner.cpu.0 as usize);
            home.set(pagesets.get(zone.0 as usize).unwrap_or(self.nobodys));
        }
    }

    /// Whether requests that prefer this zone first look for a block that mixes no pageblock: there must be
    /// a good alternative, the node's DMA32 zone, or no other node. `mm/page_alloc.c:
    /// alloc_flags_nofragment`, 6.12.
    fn avoids_fragmentation(&self, zone: &Zone<'m, P>) -> bool {
        zone.kind() == ZoneKind::Normal
            && (self.is_populated(zone.node(), ZoneKind::Dma32) || self.online_nodes() == 1)
    }

    /// Nodes that have memory or CPUs.
    fn online_nodes(&self) -> usize {
        let is_online = |&node: &NodeIndex| self.has_memory(node) || self.has_cpus(node);
        self.topology.indexes().filter(is_online).count()
    }

    fn set_zonelists(&self, local: NodeIndex, order: &[NodeIndex]) {
        for (rotation, of_nodes) in self.lists.chunks_exact(self.nodes.len()).enumerate() {
            self.set_lists(local, order, rotation, &of_nodes[local.0 as usize]);
        }
    }

    /// The zonelists of a node that begin with the `rotation`th instances.
    fn set_lists(
        &self,
        local: NodeIndex,
        order: &[NodeIndex],
        rotation: usize,
        lists: &NodeLists<'m>,
    ) {
        let instances = |zone| self.instances(zone, rotation);
        let zones = || zonelist::fallback_zones(order, self).flat_map(instances);
        let zone_at = |zone: &ZoneIndex| self.zones[zone.0 as usize];
        for (kind, list) in ZoneKind::ALL.into_iter().zip(&lists.zonelists) {
            let usable = || zones().filter(|zone| zone_at(zone).kind() <= kind);
            let general = || usable().filter(|zone| !self.is_private(zone_at(zone).node()));
            let private = usable().filter(|zone| self.is_private(zone_at(zone).node()));
            let own = usable().filter(|zone| zone_at(zone).node() == local).count();
            let is_private = self.is_private(local);
            let own = if is_private && own > 0 { Own::Private(own) } else { Own::General(own) };
            list.set(general(), private, own);
            // Nobody prefers a private node without naming it; who does takes the way on which it is counted.
            lists.preferred.set(kind, general().next().filter(|_| !is_private));
        }
    }

    /// Whether only requests that name a node reach it: by a policy, or with `__GFP_THISNODE`.
    #[inline]
    pub(super) fn is_private(&self, node: NodeIndex) -> bool {
        self.nodes[node.0 as usize].private.load(Ordering::Relaxed)
    }

    /// Says who may use the memory of a node.
    ///
    /// # Errors
    /// [`UnknownNode`] if the topology has no such node; nothing is changed then.
    pub fn set_access(&self, node: NodeId, access: NodeAccess) -> Result<(), UnknownNode> {
        let index = self.node_index(node).ok_or(UnknownNode { node })?;
        let mut state = self.state.lock();
        let is_private = access == NodeAccess::Private;
        self.nodes[index.0 as usize].private.store(is_private, Ordering::Relaxed);
        self.rebuild(&mut state);
        Ok(())
    }

    /// The zones of a kind on a node that have memory, from the `rotation`th instance on, and then those before it.
    fn instances(
        &self,
        zone: zonelist::ZoneRef,
        rotation: usize,
    ) -> impl Iterator<Item = ZoneIndex> + use<'_, 'm, P> {
        let all = &self.nodes[zone.node.0 as usize].zones[zone.kind.index()];
        let turned = (0..all.len()).map(move |at| all.start + ((at + rotation) % all.len()) as u16);
        let has_memory = |zone: &ZoneIndex| self.zones[zone.0 as usize].managed().0 > 0;
        turned.map(ZoneIndex).filter(has_memory)
    }
}

/// Zones count as populated once they were given pages.
impl<P: Platform> Online for PageAllocator<'_, P> {
    fn is_populated(&self, node: NodeIndex, kind: ZoneKind) -> bool {
        self.instances(zonelist::ZoneRef { node, kind }, 0).next().is_some()
    }

    fn has_cpus(&self, node: NodeIndex) -> bool {
        self.topology.node(node).cpus.iter().any(|&cpu| self.is_cpu_on(cpu))
    }
}

/// Gives a pageset its sizes, within its bounds.
fn resize<P: Platform>(
    rules: &crate::pcp::tuning::PcpRules,
    pageset: &Pageset<'_, P>,
    sizes: Sizes,
    budget: Option<PageCount>,
) {
    let (capacity, kept) = P::Rules::bounds(pageset);
    let part = if budget.is_some() { kept } else { 1 };
    let fit = |pages: PageCount| PageCount(pages.0.min(capacity) / part);
    let mut tuning = pageset.tuning();
    tuning.resize(rules, fit(sizes.high_min), fit(sizes.high_max), fit(sizes.batch));
    if budget.is_some() {
        tuning.apply_bounds();
    }
    pageset.set_settings(tuning);
    pageset.share_high(&tuning, 0);
}

#[cfg(test)]
mod tests {
    use crate::alloc::{Config, Request};
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::pcp::sizes::Sizes;
    use crate::pcp::tuning::{DrainSize, SizeRule};
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, Order, PageCount};
    use crate::watermark::{MovableMin, Settings};

    #[test]
    fn settings_do_not_change_the_rules_of_the_model() {
        let config = Config { model: Model::LINUX_6_1, ..Config::default() };
        let machine = TestMachine::new().node(0, 8192, &[0]).movable(4096).config(config);
        machine.run(|allocator| {
            let marks = || allocator.zones().iter().map(|zone| zone.marks()).collect();
            let before: std_alloc::vec::Vec<_> = marks();
            let settings = Settings { movable_min: MovableMin::Small, ..allocator.settings() };
            allocator.set_settings(settings).unwrap();
            assert_eq!(allocator.settings().movable_min, MovableMin::Proportional);
            assert_eq!(marks(), before);
        });
    }

    #[test]
    fn sizes_and_drains_of_ones_own_act() {
        let sizes = |_, _| {
            let [batch, high_min, high_max] = [8, 100, 100].map(PageCount);
            Sizes { batch, high_min, high_max }
        };
        let sizes = Model::LINUX_6_12.with(|model| model.pcp.sizes = SizeRule::Own(sizes));
        let drain = sizes.with(|model| model.pcp.drain = DrainSize::Own(|_| PageCount(50)));
        // Linux drains all but a batch after so many frees in a row.
        for (model, least) in [(sizes, 8), (drain, 50)] {
            let config = Config { model, ..Config::default() };
            TestMachine::new().node(0, 65_536, &[0]).config(config).run(|allocator| {
                let request = Request::new(Order(0), Gfp::KERNEL);
                let take = |_| allocator.alloc(request).unwrap();
                let pages: std_alloc::vec::Vec<_> = (0..1000).map(take).collect();
                let kept = pages.iter().map(|&page| {
                    allocator.free(page, Order(0)).unwrap();
                    allocator.totals().cached_pages.0
                });
                let kept: std_alloc::vec::Vec<_> = kept.skip(500).collect();
                assert_eq!((kept.iter().min(), kept.iter().max()), (Some(&least), Some(&99)));
            });
        }
    }

    #[test]
    fn pagesets_keep_within_their_budget() {
        let machine = TestMachine::new().node(0, 65_536, &[0, 1]).node(1, 65_536, &[]);
        machine.run(|allocator| {
            let request = Request::new(Order(0), Gfp::KERNEL);
            let pages: std_alloc::vec::Vec<_> =
                (0..20_000).map(|_| allocator.alloc(request).unwrap()).collect();
            // Few enough that the CPU does not take itself for one that only frees.
            pages[..5000].iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
            let cached = || allocator.totals().cached_pages;
            let budget = PageCount(512);
            assert!(cached() > budget, "{:?}", cached());
            let kbytes = Some(budget.to_bytes(12) / 1024);
            let settings = Settings { pageset_budget_kbytes: kbytes, ..allocator.settings() };
            allocator.set_settings(settings).unwrap();
            for _ in 0..20 {
                allocator.decay_cpu(CpuId(0)).unwrap();
            }
            assert!(cached() <= budget, "{:?}", cached());
            for cpu in [0, 1].map(CpuId) {
                allocator.platform().run_on(cpu);
                let take = || allocator.alloc(request).unwrap();
                let pages: std_alloc::vec::Vec<_> = (0..5000).map(|_| take()).collect();
                pages.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
                assert!(cached() <= budget, "{:?}", cached());
            }
            assert!(cached() > PageCount(0));
        });
    }
}
