//! The matrix of reasons: from which node pages were wanted, which node gave, and why the nearest did not.
//!
//! Counted in pages, by the node of the nearest zone, the node that gave, and the reason why the nearest zone did
//! not. Where both are the same node, another zone of it gave. A page that a pageset hands out on the fast path is
//! from the nearest zone and counted nowhere.

use super::allocator::PageAllocator;
use super::wanted::Wanted;
use crate::gfp::Gfp;
use crate::host::Platform;
use crate::reason::{Fallbacks, Reason};
use crate::sync::Ordering;
use crate::units::{NodeIndex, Order, PageCount};
use crate::watermark::AllocFlags;
use crate::zone::Zone;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Pages that were wanted from `from` and came from `to`, by reason. If both are the same node: pages that
    /// were wanted from one of its zones and came from another.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn fallbacks(&self, from: NodeIndex, to: NodeIndex) -> Fallbacks {
        let row = &self.nodes[from.0 as usize].fallbacks;
        Fallbacks::of(|reason| PageCount(row.cell(to, reason).load(Ordering::Relaxed)))
    }

    /// Counts pages that came from another zone than the nearest. `why` says so if a request might have had them
    /// from there.
    pub(super) fn note_fallback(
        &self,
        wanted: &Wanted<'_>,
        zone: &Zone<'m, P>,
        pages: PageCount,
        why: impl FnOnce() -> Reason,
    ) {
        let is_nameless = !wanted.gfp.contains(Gfp::THISNODE) && !wanted.scope.names(wanted.node);
        let (from, reason) = match self.nearest(wanted) {
            _ if is_nameless && self.is_private(wanted.node) => (wanted.node, Reason::PrivateNode),
            Some((nearest, excluded)) if nearest.index() != zone.index() => {
                (nearest.node(), excluded.unwrap_or_else(why))
            }
            _ => return,
        };
        let row = &self.nodes[from.0 as usize].fallbacks;
        row.cell(zone.node(), reason).fetch_add(pages.0, Ordering::Relaxed);
        if let Some(site) = wanted.scope.site {
            site.note(reason, pages);
        }
    }

    /// Why a zone did not give what it was asked for, by what it has now.
    pub(super) fn why_not(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Reason {
        let passes = |order, kind| zone.passes(order, flags, kind);
        if passes(wanted.order, wanted.kind) {
            let is_limited = zone.is_limited(wanted.order.pages());
            if is_limited { Reason::Limit } else { Reason::Fragmentation }
        } else if passes(wanted.order, zone.kind()) {
            // Nothing is kept from requests that could use no higher zone.
            Reason::LowmemReserve
        } else if passes(Order(0), wanted.kind) {
            Reason::Fragmentation
        } else {
            Reason::Watermark
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::{Config, Request};
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::NodeId;

    const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);

    #[test]
    fn pages_are_counted_by_where_they_were_wanted_and_why_they_came_from_elsewhere() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(8, 4096, &[]).movable(1024);
        machine.run(|allocator| {
            let [zero, eight] = [NodeIndex(0), NodeIndex(1)];
            let wanted = |gfp: Gfp| Request::new(Order(0), gfp.union(Gfp::THISNODE));
            while allocator.alloc(wanted(Gfp::KERNEL)).is_ok() {}
            assert_eq!(allocator.fallbacks(zero, eight), Fallbacks::default());
            for _ in 0..3 {
                allocator.alloc(PAGE).unwrap();
            }
            let mut expected = Fallbacks::default();
            expected.record(Reason::Watermark, PageCount(3));
            assert_eq!(allocator.fallbacks(zero, eight), expected);
            // The Movable zone of node 8 has no block of order 10 above its watermark: Normal gives it.
            let gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::THISNODE);
            let large = Request::new(Order(10), gfp).on(NodeId(8));
            allocator.alloc(large).unwrap();
            let mut expected = Fallbacks::default();
            expected.record(Reason::Fragmentation, PageCount(1024));
            assert_eq!(allocator.fallbacks(eight, eight), expected);
            assert_eq!(allocator.fallbacks(eight, zero).total(), PageCount(0));
        });
    }

    #[test]
    fn bulk_requests_count_too() {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            let machine = TestMachine::new().node(0, 8192, &[0]).movable(2048).config(config);
            machine.run(|allocator| {
                let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
                let zone = allocator.zones()[1];
                while zone.free_pages() > zone.marks().low {
                    allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE)).unwrap();
                }
                let before = allocator.fallbacks(NodeIndex(0), NodeIndex(0)).total();
                let got = allocator.alloc_bulk(request, &mut [crate::units::Pfn(0); 64]).unwrap();
                assert_eq!(got, 64, "{}", model.name);
                let after = allocator.fallbacks(NodeIndex(0), NodeIndex(0));
                assert_eq!(after.pages(Reason::Watermark).0, before.0 + 64, "{}", model.name);
            });
        }
    }
}
