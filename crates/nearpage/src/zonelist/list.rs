//! A zonelist in memory: zone indexes that change while others read them.

use super::cache::ZonelistCache;
use crate::sync::{AtomicU16, AtomicU32, Ordering};
use crate::units::ZoneIndex;

/// The zones that requests of one node and one highest zone kind may use, in the order of fallback. The
/// first of them, as far as they are the node's own, are the list for `__GFP_THISNODE`.
#[derive(Debug)]
pub struct Zonelist<'m> {
    entries: &'m [AtomicU16],
    len: AtomicU32,
    own_len: AtomicU32,
    /// Which of them were full lately.
    pub cache: ZonelistCache<'m>,
}

impl<'m> Zonelist<'m> {
    /// A list of nothing, with room for as many zones as there are entries.
    pub const fn new(entries: &'m [AtomicU16], cache: ZonelistCache<'m>) -> Self {
        Self { entries, len: AtomicU32::new(0), own_len: AtomicU32::new(0), cache }
    }

    /// Replaces the list by `zones`, of which the first `own` are the node's own.
    pub fn set(&self, zones: impl Iterator<Item = ZoneIndex>, own: usize) {
        let mut len = 0;
        for (entry, zone) in self.entries.iter().zip(zones) {
            entry.store(zone.0, Ordering::Relaxed);
            len += 1;
        }
        self.cache.clear();
        // Pairs with the Acquire of `len`: who sees a longer list sees its entries.
        self.own_len.store(own as u32, Ordering::Release);
        self.len.store(len, Ordering::Release);
    }

    /// Zones on the list.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// Whether no zone is on it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Zones on the list that are the node's own: the first ones.
    #[inline]
    pub fn own_len(&self) -> usize {
        self.own_len.load(Ordering::Acquire) as usize
    }

    /// The zone at a position.
    ///
    /// # Panics
    /// If the list never was so long.
    #[inline]
    pub fn zone(&self, position: usize) -> ZoneIndex {
        ZoneIndex(self.entries[position].load(Ordering::Relaxed))
    }
}
