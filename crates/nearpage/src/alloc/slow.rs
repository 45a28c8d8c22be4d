//! The ladder when no zone had room above its low mark. Facts 4.4.
//!
//! Background reclaim is woken and the min mark tried; then, if the request may wait, the host reclaims,
//! pagesets are drained, and in the end the host is asked to give something up.

use super::PageAllocator;
use super::scan::{FirstZone, Refusals, Wanted};
use crate::error::AllocError;
use crate::gfp::Gfp;
use crate::platform::{Platform, Shortage};
use crate::units::{COSTLY_ORDER, Order, Pfn};
use crate::watermark::AllocFlags;

/// Rounds of reclaim without progress before giving up. `mm/internal.h: MAX_RECLAIM_RETRIES`, 6.12.
const ROUNDS_WITHOUT_PROGRESS_MAX: u32 = 16;

impl<'m, P: Platform> PageAllocator<'m, P> {
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, wanted: &Wanted) -> Result<Pfn, AllocError> {
        let mut flags = slow_flags(wanted);
        if flags.has(AllocFlags::KSWAPD) {
            self.wake_reclaim(wanted);
        }
        let mut result = self.get_page(wanted, flags, FirstZone::Untried);
        if result.is_err() && ignores_watermarks(wanted.gfp) {
            // Only now: as long as one zone of the list has pages above its mark, no other is emptied.
            let wakes = AllocFlags(flags.0 & AllocFlags::KSWAPD.0);
            flags = AllocFlags::NO_WATERMARKS.or(wakes);
            result = self.get_page(wanted, flags, FirstZone::Untried);
        }
        let refusals = match result {
            Ok(pfn) => return Ok(pfn),
            Err(refusals) => refusals,
        };
        if !wanted.gfp.has(Gfp::DIRECT_RECLAIM) {
            return self.last_try(wanted, flags, refusals);
        }
        self.reclaim_and_retry(wanted, flags)
    }

    fn reclaim_and_retry(&self, wanted: &Wanted, flags: AllocFlags) -> Result<Pfn, AllocError> {
        let shortage = self.shortage(wanted);
        let mut rounds_without_progress = 0;
        loop {
            let progress = self.platform.direct_reclaim(shortage).0 > 0;
            if progress && let Ok(pfn) = self.get_page(wanted, flags, FirstZone::Untried) {
                return Ok(pfn);
            }
            if progress || self.model.departures.drains_before_failing {
                // A CPU that is being drained by somebody else needs no second drain.
                let _ = self.drain_all();
            }
            let refusals = match self.get_page(wanted, flags, FirstZone::Untried) {
                Ok(pfn) => return Ok(pfn),
                Err(refusals) => refusals,
            };
            if gives_up_early(wanted.gfp, wanted.order) {
                return Err(self.out_of_memory(wanted, refusals));
            }
            rounds_without_progress = if progress && wanted.order <= COSTLY_ORDER {
                0
            } else {
                rounds_without_progress + 1
            };
            let retry = progress && rounds_without_progress <= ROUNDS_WITHOUT_PROGRESS_MAX;
            let last_resort = || may_kill(wanted) && self.platform.out_of_memory(shortage);
            if !retry && !last_resort() {
                return Err(self.out_of_memory(wanted, refusals));
            }
        }
    }

    /// For a request that may not reclaim: nearpage looks once more after a drain.
    fn last_try(
        &self,
        wanted: &Wanted,
        flags: AllocFlags,
        refusals: Refusals,
    ) -> Result<Pfn, AllocError> {
        if self.model.departures.drains_before_failing {
            let _ = self.drain_all();
            return self
                .get_page(wanted, flags, FirstZone::Untried)
                .map_err(|refusals| self.out_of_memory(wanted, refusals));
        }
        Err(self.out_of_memory(wanted, refusals))
    }

    /// Wakes background reclaim of each node in the zonelist.
    fn wake_reclaim(&self, wanted: &Wanted) {
        let mut last = None;
        for zone in self.zonelist(wanted) {
            if last.replace(zone.node()) != Some(zone.node()) {
                let node = self.node_id(zone.node());
                self.platform.wake_reclaim(Shortage { node, ..self.shortage(wanted) });
            }
        }
    }

    fn shortage(&self, wanted: &Wanted) -> Shortage {
        Shortage {
            node: self.node_id(wanted.node),
            kind: wanted.kind,
            order: wanted.order,
            gfp: wanted.gfp,
        }
    }

    fn out_of_memory(&self, wanted: &Wanted, refusals: Refusals) -> AllocError {
        AllocError::OutOfMemory {
            node: self.node_id(wanted.node),
            order: wanted.order,
            gfp: wanted.gfp,
            zones: refusals.zones,
            free: refusals.free,
            below_watermark: refusals.below_watermark,
            fragmented: refusals.fragmented,
        }
    }
}

/// The flags of the slow path: the min mark, and reserves for urgent requests. Facts 4.4 a.
fn slow_flags(wanted: &Wanted) -> AllocFlags {
    let gfp = wanted.gfp;
    let when = |condition, flags| if condition { flags } else { AllocFlags::WMARK_MIN };
    let urgent = gfp.has(Gfp::HIGH);
    let cannot_wait = !gfp.has(Gfp::DIRECT_RECLAIM) && !gfp.has(Gfp::NOMEMALLOC);
    when(urgent, AllocFlags::MIN_RESERVE)
        .or(when(gfp.has(Gfp::KSWAPD_RECLAIM), AllocFlags::KSWAPD))
        .or(when(cannot_wait, AllocFlags::NON_BLOCK))
        .or(when(cannot_wait && urgent && wanted.order.0 > 0, AllocFlags::HIGHATOMIC))
}

/// Whether the request may take the last pages: it helps to free others. Facts 4.4 e.
fn ignores_watermarks(gfp: Gfp) -> bool {
    gfp.has(Gfp::MEMALLOC) && !gfp.has(Gfp::NOMEMALLOC)
}

/// Requests that prefer failing to more work.
fn gives_up_early(gfp: Gfp, order: Order) -> bool {
    gfp.has(Gfp::NORETRY) || (order > COSTLY_ORDER && !gfp.has(Gfp::RETRY_MAYFAIL))
}

/// Whether the last resort would be taken for this request. Facts 4.4 m.
fn may_kill(wanted: &Wanted) -> bool {
    wanted.order <= COSTLY_ORDER
        && !wanted.gfp.has(Gfp::RETRY_MAYFAIL)
        && !wanted.gfp.has(Gfp::THISNODE)
        && wanted.kind >= crate::units::ZoneKind::Normal
}

#[cfg(test)]
mod tests {
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{NodeId, NodeIndex, Order};

    #[test]
    fn last_pages_are_taken_last() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 4096, &[1]);
        machine.run(|allocator| {
            let near = |gfp| allocator.alloc(Request::new(Order(0), gfp).on(NodeId(0)));
            let node_of = |pfn| allocator.topology().node_of_pfn(pfn);
            while near(Gfp::KERNEL.or(Gfp::THISNODE)).is_ok() {}
            let helper = Gfp::KERNEL.or(Gfp::MEMALLOC);
            assert_eq!(near(helper).map(node_of), Ok(Some(NodeIndex(1))));
            while near(Gfp::KERNEL).is_ok() {}
            assert_eq!(near(helper).map(node_of), Ok(Some(NodeIndex(0))));
            assert!(near(helper.or(Gfp::NOMEMALLOC)).is_err());
        });
    }
}
