//! Which CPU owns a pageblock, and which owned pageblocks have pieces in the zone's lists.
//!
//! The entry of a pageblock serves both. Everything here is written under the zone's lock. The owner of a pageblock of which somebody
//! holds a page does not change, except that it may cease: so who frees a page may read it without the lock.

use super::Migratetype;
use super::per_pageblock::OwnerEntry;
use crate::sync::Ordering;
use crate::units::CpuId;

/// What is known of a pageblock's owner.
#[derive(Clone, Copy)]
pub(crate) struct OwnedBlock<'m>(&'m OwnerEntry);

impl<'m> OwnedBlock<'m> {
    #[inline]
    pub(super) fn new(entry: &'m OwnerEntry) -> Self {
        Self(entry)
    }

    /// The CPU that owns the pageblock.
    #[inline]
    pub(crate) fn owner(self) -> Option<CpuId> {
        self.0.owner()
    }

    /// Whether a CPU can own pageblocks: its id fits.
    pub(crate) fn may_own(cpu: CpuId) -> bool {
        cpu.0 < u16::MAX as u32
    }

    /// Makes a CPU the owner, or nobody.
    pub(crate) fn set_owner(self, cpu: Option<CpuId>) {
        self.0.set_owner(cpu);
    }

    /// The type of the list that the pageblock is on, if it is on one.
    pub(crate) fn listed(self) -> Option<Migratetype> {
        let number = self.0.state().load(Ordering::Relaxed).checked_sub(1)?;
        Migratetype::ALL.get(number as usize).copied()
    }

    /// Sets [`listed`](Self::listed).
    pub(crate) fn set_listed(self, migratetype: Option<Migratetype>) {
        let number = migratetype.map_or(0, |of| of as u16 + 1);
        self.0.state().store(number, Ordering::Relaxed);
    }
}
