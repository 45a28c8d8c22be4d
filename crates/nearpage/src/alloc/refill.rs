//! Refill: from the zone to a pageset.

use super::RuleSet;
use super::allocator::PageAllocator;
use super::wanted::ZoneRequest;
use crate::host::Platform;
use crate::pcp::Storage;
use crate::pcp::pageset::{Pageset, PagesetRules};

/// What a pageset had for an allocation.
pub(crate) enum FromPageset {
    /// A block.
    Block(u32),
    /// Nothing, nor had the zone.
    Nothing,
    /// Somebody else is at this CPU's pagesets.
    Busy,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Fills the empty list and takes one block from it; wakes background reclaim if pageblocks were mixed.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(
        &self,
        on: <P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        wants: ZoneRequest,
        list: usize,
    ) -> FromPageset {
        let got = P::Rules::refill(self, &on, pageset, wants, list);
        P::Rules::note_left(pageset, &self.model.pcp);
        drop(on);
        if matches!(got, FromPageset::Block(_)) {
            self.wake_if_boosted(pageset.zone(), wants.flags);
            self.wake_above_soft_limit(pageset.zone(), wants.flags);
        }
        got
    }
}
