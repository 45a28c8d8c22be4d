//! What the allocator and reclaim agree on: when a node has enough, and when its own memory is reclaimed before
//! another node is asked.

use super::allocator::PageAllocator;
use super::stalls::count;
use super::wanted::Wanted;
use crate::host::{NodeReclaimed, Platform, Shortage};
use crate::sync::Ordering;
use crate::units::{NodeIndex, Order, PageCount, ZoneKind};
use crate::watermark::AllocFlags;
use crate::zone::Zone;

/// Nodes that are further away are not reclaimed from in order to stay near.
/// `include/linux/topology.h: RECLAIM_DISTANCE`, 6.12.
const RECLAIM_DISTANCE: u8 = 30;

/// Background reclaim of a node that has begun ([`PageAllocator::begin_reclaim`]).
#[derive(Debug)]
#[must_use = "pagesets of the node do not grow until reclaim ends"]
pub struct ReclaimPass {
    node: NodeIndex,
    kind: ZoneKind,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Whether background reclaim of a node may stop: some zone, up to `kind`, would give a block of `order`
    /// above its high mark, or above promo with
    /// [`memory_tiering`](crate::watermark::Settings::memory_tiering). So it is for a node without such
    /// zones. `mm/vmscan.c: pgdat_balanced`, 6.12.
    pub fn is_balanced(&self, node: NodeIndex, order: Order, kind: ZoneKind) -> bool {
        let promo = AllocFlags(AllocFlags::WMARK_MASK);
        let mark = if self.settings().memory_tiering { promo } else { AllocFlags::WMARK_HIGH };
        let concerned =
            |zone: &Zone<'m, P>| zone.node() == node && zone.kind() <= kind && zone.managed().0 > 0;
        let mut zones = self.zones().iter().filter(|zone| concerned(zone)).peekable();
        zones.peek().is_none() || zones.any(|zone| zone.would_pass(order, mark, kind, PageCount(0)))
    }

    /// Background reclaim of a node begins, for zones up to `kind`: their pagesets stop growing until it ends.
    /// `mm/vmscan.c: balance_pgdat`, 6.12.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn begin_reclaim(&self, node: NodeIndex, kind: ZoneKind) -> ReclaimPass {
        for zone in self.node_zones(node).filter(|zone| zone.kind() <= kind) {
            zone.set_reclaim_active(true);
            zone.note_boost();
        }
        ReclaimPass { node, kind }
    }

    /// Background reclaim ends: the boosts that its zones had when it began end too, since it has balanced them.
    pub fn end_reclaim(&self, pass: ReclaimPass) {
        let ReclaimPass { node, kind } = pass;
        for zone in self.node_zones(node).filter(|zone| zone.kind() <= kind) {
            zone.set_reclaim_active(false);
            zone.lower_boost(zone.noted_boost());
        }
    }

    /// The zones of a node, by kind.
    fn node_zones(&self, node: NodeIndex) -> impl Iterator<Item = &'m Zone<'m, P>> {
        let zones = self.nodes[node.0 as usize].zones.iter();
        zones.flat_map(|of_kind| of_kind.clone()).map(|zone| self.zones[zone as usize])
    }

    /// Reclaims a zone's node, if it is near enough to be worth it. Returns whether the zone passes its
    /// watermark then; nearpage drains the zone's pagesets first if need be, since what a host frees lies there.
    /// `mm/page_alloc.c: get_page_from_freelist`, facts 4.2 step 7.
    pub(super) fn node_reclaim_helps(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> bool {
        let is_on = self.node_reclaim.load(Ordering::Relaxed);
        if !is_on || !self.is_near(zone, wanted) {
            return false;
        }
        let shortage = Shortage { node: self.node_id(zone.node()), ..self.shortage(wanted) };
        let reclaimed = self.platform.node_reclaim(shortage);
        let stalls = &self.nodes[wanted.node.0 as usize].stalls;
        match reclaimed {
            NodeReclaimed::NotTried | NodeReclaimed::Nothing => false,
            NodeReclaimed::Some | NodeReclaimed::Enough => {
                let is_enough = reclaimed == NodeReclaimed::Enough;
                count(if is_enough { &stalls.node_reclaims } else { &stalls.node_reclaims_failed });
                let passes = || zone.would_pass(wanted.order, flags, wanted.kind, PageCount(0));
                passes()
                    || self.model.departures.drains_before_failing && {
                        // A CPU that is being drained by somebody else needs no second drain.
                        let _ = self.drain_zone(zone);
                        passes()
                    }
            }
        }
    }

    fn is_near(&self, zone: &Zone<'m, P>, wanted: &Wanted<'_>) -> bool {
        let preferred = self.zonelist(wanted).next().map_or(wanted.node, |first| first.node());
        self.topology.distance(preferred, zone.node()) <= RECLAIM_DISTANCE
    }

    pub(super) fn shortage(&self, wanted: &Wanted<'_>) -> Shortage {
        Shortage {
            node: self.node_id(wanted.node),
            kind: wanted.kind,
            order: wanted.order,
            gfp: wanted.gfp,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::{NodeIndex, Order, ZoneKind};
    use crate::watermark::Settings;

    #[test]
    fn reclaim_works_up_to_high_or_promo() {
        let machine = TestMachine::new().node(0, 8192, &[0]).node(1, 0, &[1]);
        machine.model(Model::LINUX_6_18).run(|allocator| {
            let zone = allocator.zones()[0];
            let is_balanced = |node| allocator.is_balanced(node, Order(0), ZoneKind::Normal);
            assert!(is_balanced(NodeIndex(0)) && is_balanced(NodeIndex(1)));
            let settings = allocator.settings();
            while zone.free_pages() > zone.marks().promo {
                allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
            }
            assert!(zone.free_pages() > zone.marks().high && is_balanced(NodeIndex(0)));
            let tiering = Settings { memory_tiering: true, ..settings };
            allocator.set_settings(tiering).unwrap();
            assert!(!is_balanced(NodeIndex(0)) && is_balanced(NodeIndex(1)));
            allocator.set_settings(settings).unwrap();
            while allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).is_ok() {}
            assert!(!is_balanced(NodeIndex(0)));
        });
    }
}
