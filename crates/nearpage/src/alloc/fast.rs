//! Allocation of one block: the fast path, and what follows when it finds nothing.

use super::allocator::PageAllocator;
use super::near::{Near, hand_out, has_headroom, mark_allocated};
use super::refill::FromPageset;
use super::request::Request;
use super::wanted::{Climbs, FirstZone, Wanted, ZoneRequest, first_flags};
use crate::error::AllocError;
use crate::gfp::Gfp;
use crate::host::{Access, Platform};
use crate::pcp::pageset::Pageset;
use crate::pcp::{Pop, Storage};
use crate::units::{NodeId, Order, Pfn};

/// `alloc_scan` stores an error whenever it returns no page.
const TOLD: &str = "a request that gets nothing is told why";

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Allocates a block.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is changed then.
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        match self.alloc_fast(request) {
            Some(pfn) => Ok(pfn),
            None => {
                let Request { order, gfp, node } = request;
                let mut error = None;
                self.alloc_scan(order, gfp, node, &mut error).ok_or_else(|| error.expect(TOLD))
            }
        }
    }

    /// What the fast path did not find, or why there is none. Request and page pass in registers: through memory, the fast
    /// path would write them there too, eight instructions in a caller that is optimised by itself.
    #[cold]
    #[inline(never)]
    fn alloc_scan(
        &self,
        order: Order,
        gfp: Gfp,
        node: Option<NodeId>,
        error: &mut Option<AllocError>,
    ) -> Option<Pfn> {
        let request = Request { order, gfp, node };
        let found = self.wanted(request).and_then(|wanted| self.scan(request, &wanted));
        found.map_err(|refused| *error = Some(refused)).ok()
    }

    /// As [`alloc`](Self::alloc), but a request that may not fail does, after everything was tried once.
    #[doc(hidden)]
    pub fn alloc_once(&self, request: Request) -> Result<Pfn, AllocError> {
        if let Some(pfn) = self.alloc_fast(request) {
            return Ok(pfn);
        }
        self.scan(request, &Wanted { climbs: Climbs::One, ..self.wanted(request)? })
    }

    fn scan(&self, request: Request, wanted: &Wanted<'_>) -> Result<Pfn, AllocError> {
        let first_zone = self.first_zone_after_fast_path(request);
        let found = self.zonelist(wanted).next().and_then(|preferred| {
            let flags = first_flags(wanted.gfp, preferred);
            self.get_page(wanted, flags, first_zone).ok()
        });
        found.map_or_else(|| self.alloc_slow(wanted), Ok)
    }

    /// What the fast path did. If storage and tuning move together the way that it went must not be gone
    /// twice; otherwise the fast path may have been disturbed, and once more does no harm.
    pub(super) fn first_zone_after_fast_path(&self, request: Request) -> FirstZone {
        let had_room = |near: Near<'m, P>| has_headroom(near.pageset, request.order);
        if P::Storage::EXACT && self.near(request).is_some_and(had_room) {
            FirstZone::PagesetTried
        } else {
            FirstZone::Untried
        }
    }

    /// A block from this CPU's pageset for the preferred zone, if that zone has room to spare. On storages that are not
    /// exact that is asked only where the pageset is to be refilled: what it holds is not free in the zone, so to hand it
    /// out takes nothing that a watermark keeps, and it is the nearest that there is.
    #[inline(always)]
    pub(super) fn alloc_fast(&self, request: Request) -> Option<Pfn> {
        let Near { pageset, list } = self.near(request)?;
        if P::Storage::EXACT && !has_headroom(pageset, request.order) {
            return None;
        }
        let (on, popped) = self.pop(pageset, list)?;
        let frames = pageset.frames();
        // One comparison asks both whether it is a frame and whether its word is here.
        let Some(word) = frames.near_word(popped.0) else {
            let Request { order, gfp, .. } = request;
            return self.alloc_from_empty(on, (pageset, list), order, gfp, popped);
        };
        let pfn = frames.pfn(popped.0);
        self.platform.touch_page(pfn, Access::Write);
        mark_allocated(word, pageset.held_word(list), request.order);
        Some(pfn)
    }

    #[cold]
    #[inline(never)]
    fn alloc_from_empty(
        &self,
        on: <P::Storage as Storage>::OnCpu<'_>,
        (pageset, list): (&Pageset<'m, P>, usize),
        order: Order,
        gfp: Gfp,
        popped: Pop,
    ) -> Option<Pfn> {
        // The caller owns a popped block, whatever room the zone has.
        if popped.frame().is_none() && !has_headroom(pageset, order) {
            return None;
        }
        // Of types that share a list, it is the request's own.
        let (migratetype, flags) = (gfp.migratetype()?, first_flags(gfp, pageset.zone()));
        let kind = gfp.zone_kind().unwrap_or(pageset.zone().kind());
        let wants = ZoneRequest { order, migratetype, kind, flags };
        match self.popped_or_refilled(on, pageset, list, wants, popped) {
            FromPageset::Block(number) => {
                Some(hand_out(pageset.frames(), number, pageset.held_word(list), order))
            }
            FromPageset::Nothing | FromPageset::Busy => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::alloc::Request;
    use crate::error::AllocError;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, NodeId, Order};

    #[test]
    fn this_node_is_no_other_node() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 0, &[1]);
        machine.run(|allocator| {
            allocator.platform().run_on(CpuId(1));
            let gfp = Gfp::KERNEL.union(Gfp::THISNODE);
            let request = Request::new(Order(0), gfp);
            let refused = AllocError::MemorylessNode { node: NodeId(1), gfp };
            assert_eq!(allocator.alloc(request), Err(refused));
            assert_eq!(allocator.alloc(request.on(NodeId(1))), Err(refused));
            assert!(allocator.alloc(request.on(NodeId(0))).is_ok());
        });
    }
}
