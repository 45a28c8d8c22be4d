//! What is kept of a pageblock beside its byte.

use super::ListEnd;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, PAGEBLOCK_ORDER};

const WORDS: usize = 1 << (PAGEBLOCK_ORDER.0 - 6);

/// A bit for each page of a pageblock, under nearpage's own rules: it is free. A line: [`Map`](crate::places::map::Map) says
/// who writes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct MapWords(pub(super) [AtomicU64; WORDS]);

/// The CPU that owns a pageblock, and the links of that CPU's list, under the rules of the RFC of 2026.
#[derive(Debug)]
pub struct OwnerEntry {
    links: [AtomicU32; 2],
    state: AtomicU16,
    owner: AtomicU16,
}

impl OwnerEntry {
    /// The CPU that owns the pageblock.
    #[inline]
    pub(super) fn owner(&self) -> Option<CpuId> {
        self.owner.load(Ordering::Acquire).checked_sub(1).map(|cpu| CpuId(cpu as u32))
    }

    /// Makes a CPU the owner, or nobody.
    #[inline]
    pub(super) fn set_owner(&self, cpu: Option<CpuId>) {
        self.owner.store(cpu.map_or(0, |cpu| cpu.0 as u16 + 1), Ordering::Release);
    }

    /// What [`super::owners`] keeps here.
    #[inline]
    pub(super) fn state(&self) -> &AtomicU16 {
        &self.state
    }

    /// The neighbour on the list on the side away from `end`, by its number.
    #[inline]
    pub(super) fn link(&self, end: ListEnd) -> u32 {
        self.links[end as usize].load(Ordering::Relaxed)
    }

    /// Sets what [`link`](Self::link) returns.
    #[inline]
    pub(super) fn set_link(&self, end: ListEnd, number: u32) {
        self.links[end as usize].store(number, Ordering::Relaxed);
    }
}
