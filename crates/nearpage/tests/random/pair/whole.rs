//! What no ordinary operation takes, where CPUs own pageblocks with maps: what zones keep for urgent requests, and what limits
//! do not allow. Beside what the model says: of rules that both sides have wrong, this tells.

use nearpage::{Gfp, LimitOf, PageblockOwners, Request};

use super::Pair;
use crate::compare::Difference;

/// What there was before an operation.
pub(super) struct Before {
    /// By zone: pages that must be left free.
    least_free: Vec<u64>,
    /// By node, and of all: pages that may be out.
    most_out: Vec<(LimitOf, u64)>,
}

/// Whether a request may take what is kept from others.
pub(super) fn is_urgent(request: Request) -> bool {
    let has = |flags| request.gfp.contains(flags);
    !has(Gfp::DIRECT_RECLAIM) || has(Gfp::HIGH) || has(Gfp::MEMALLOC) || has(Gfp::NOFAIL)
}

impl Pair<'_, '_> {
    /// Looks before an operation; `None` under rules that promise nothing.
    pub(super) fn look_before(&self) -> Option<Before> {
        if self.allocator.model().owners != PageblockOwners::CpusWithMaps {
            return None;
        }
        let zones = self.allocator.zones().iter();
        let shift = self.machine.config.page_shift;
        let most_out = self.limited().map(|of| {
            let (limits, out) = (self.allocator.limits(of), self.allocator.in_use(of));
            let out = out.expect("a known node").0;
            let hard = limits.expect("a known node").hard_bytes.map(|bytes| bytes >> shift);
            (of, hard.map_or(u64::MAX, |hard| hard.max(out)))
        });
        Some(Before {
            least_free: zones.map(|zone| zone.free_pages().min(zone.marks().min).0).collect(),
            most_out: most_out.collect(),
        })
    }

    fn limited(&self) -> impl Iterator<Item = LimitOf> + '_ {
        let nodes = self.machine.topology.nodes.iter().map(|node| LimitOf::Node(node.id));
        nodes.chain([LimitOf::Allocator])
    }

    /// Nothing was taken that must be left, by an operation that was not urgent.
    pub(super) fn look_after(&self, before: &Before) -> Result<(), Difference> {
        for (zone, least) in self.allocator.zones().iter().zip(&before.least_free) {
            let free = zone.free_pages().0;
            if free < *least {
                let index = zone.index().0;
                return Err(format!("zone {index} has {free} free pages, less than {least}"));
            }
        }
        for &(of, most) in &before.most_out {
            let out = self.allocator.in_use(of).expect("a known node").0;
            if out > most {
                return Err(format!("{out} pages of {of} are out, more than {most}"));
            }
        }
        Ok(())
    }
}
