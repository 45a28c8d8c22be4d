//! Reasons add up to the pages that came from elsewhere: those are counted here by where they lie.

use std::collections::BTreeSet;

use nearpage::stats::Zone;
use nearpage::{Gfp, NodeId, Pfn, Request, ZoneIndex};

use super::Pair;
use crate::compare::{Difference, same};
use crate::host::Host;

/// Pages that came from elsewhere than the nearest zone.
#[derive(Default)]
pub struct Moved {
    /// Of requests without a policy, by where they lie.
    by_place: u64,
    /// Of requests with one, by the reasons that their call sites counted.
    pub by_policy: u64,
    /// Nodes that are private now.
    pub private: BTreeSet<NodeId>,
}

impl Pair<'_, '_> {
    /// Looks at pages that a request without a policy got just now.
    pub(super) fn note_moved(&mut self, request: Request, first: Pfn) {
        let nearest = self.nearest_zone(request);
        let topology = self.allocator.topology();
        let has_page = |zone: &&&Zone<'_, Host>| {
            topology.ranges_in(zone.node(), zone.span()).any(|range| range.contains(first))
        };
        let zone = self.allocator.zones().iter().find(has_page).map(|zone| zone.index());
        if zone != nearest {
            self.moved.by_place += request.order.pages().0;
        }
    }

    /// Where a request would be served if there was room; `None` if its node is private to it.
    fn nearest_zone(&self, request: Request) -> Option<ZoneIndex> {
        let topology = self.allocator.topology();
        let node = match request.node {
            Some(id) => topology.index_of(id)?,
            None => topology.node_of_cpu(self.cpu).unwrap_or(self.allocator.zones()[0].node()),
        };
        let highest = request.gfp.zone_kind()?;
        let fits = |kind| kind <= highest;
        if request.gfp.contains(Gfp::THISNODE) {
            let own = self.allocator.zones().iter().copied().filter(|zone| zone.node() == node);
            let populated = |zone: &&Zone<'_, Host>| zone.managed().0 > 0;
            let usable = own.clone().filter(|zone| fits(zone.kind()));
            let kind = usable.filter(populated).map(|zone| zone.kind()).max()?;
            let instances: Vec<_> = own.filter(|zone| zone.kind() == kind).collect();
            let is_known = topology.node_of_cpu(self.cpu).is_some();
            let turn = if is_known { self.cpu.0 as usize % topology.most_instances() } else { 0 };
            let (before, from) = instances.split_at(turn % instances.len());
            let mut turned = from.iter().chain(before).copied();
            return turned.find(populated).map(|zone| zone.index());
        }
        if self.moved.private.contains(&topology.node(node).id) {
            return None;
        }
        let mut zones = self.allocator.fallback_zones(node);
        zones.find(|zone| fits(zone.kind())).map(|zone| zone.index())
    }

    /// The matrix has all of them.
    pub(super) fn reasons_add_up(&self) -> Result<(), Difference> {
        let indexes = || self.allocator.topology().indexes();
        let pairs = indexes().flat_map(|from| indexes().map(move |to| (from, to)));
        let counted: u64 =
            pairs.map(|(from, to)| self.allocator.fallbacks(from, to).total().0).sum();
        same("pages with a reason", counted, self.moved.by_place + self.moved.by_policy)
    }
}
