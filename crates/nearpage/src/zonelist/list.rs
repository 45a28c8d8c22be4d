//! A zonelist in memory: zone indexes that change while others read them.

use super::cache::ZonelistCache;
use crate::sync::{AtomicU16, AtomicU32, Ordering};
use crate::units::ZoneIndex;

/// The zones that requests of one node and one highest zone kind may use, in the order of fallback. The
/// first of them, as far as they are the node's own, are the list for `__GFP_THISNODE`: a node with memory
/// comes first in its own order.
#[derive(Debug)]
pub struct Zonelist<'m> {
    entries: &'m [AtomicU16],
    len: AtomicU32,
    near_len: AtomicU32,
    own_len: AtomicU32,
    /// Which of them were full lately.
    pub cache: ZonelistCache<'m>,
}

impl<'m> Zonelist<'m> {
    /// A list of nothing, with room for as many zones as there are entries.
    pub const fn new(entries: &'m [AtomicU16], cache: ZonelistCache<'m>) -> Self {
        let [len, near_len, own_len] = [const { AtomicU32::new(0) }; 3];
        Self { entries, len, near_len, own_len, cache }
    }

    /// Replaces the list by `zones`, of which the first `near` are of one node and the first `own` are the
    /// list's node's own.
    pub fn set(&self, zones: impl Iterator<Item = ZoneIndex>, near: usize, own: usize) {
        let mut len = 0;
        for (entry, zone) in self.entries.iter().zip(zones) {
            entry.store(zone.0, Ordering::Relaxed);
            len += 1;
        }
        self.cache.clear();
        // Pairs with the Acquire of `len`: who sees a longer list sees its entries.
        self.near_len.store(near as u32, Ordering::Relaxed);
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

    /// Zones on the list that are of the same node as the first: the first ones.
    #[inline]
    pub fn near_len(&self) -> usize {
        self.near_len.load(Ordering::Relaxed) as usize
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
