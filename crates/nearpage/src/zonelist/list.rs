//! A zonelist in memory: zone indexes that change while others read them.

use core::ops::Range;

use super::cache::ZonelistCache;
use crate::sync::{AtomicU16, AtomicU32, Ordering};
use crate::units::ZoneIndex;

/// How many of a list's zones are its node's own, and among which they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    /// Among those that all requests may use.
    General(usize),
    /// Among those of private nodes: at least one.
    Private(usize),
}

/// The zones that requests of one node and one highest zone kind may use, in the order of fallback: first those
/// that all requests may use, then those of private nodes. The node's own are the list for `__GFP_THISNODE`; they
/// come first in their part, since a node with memory comes first in its own order.
#[derive(Debug)]
pub struct Zonelist<'m> {
    entries: &'m [AtomicU16],
    len: AtomicU32,
    all_len: AtomicU32,
    own_end: AtomicU32,
    /// Which of them were full lately.
    pub cache: ZonelistCache<'m>,
}

impl<'m> Zonelist<'m> {
    /// A list of nothing, with room for as many zones as there are entries.
    pub const fn new(entries: &'m [AtomicU16], cache: ZonelistCache<'m>) -> Self {
        let [len, all_len, own_end] = [const { AtomicU32::new(0) }; 3];
        Self { entries, len, all_len, own_end, cache }
    }

    /// Replaces the list by the zones that all requests may use, those of private nodes, and so many `own`: they
    /// come first among the private ones if there are private ones of the node.
    pub fn set(
        &self,
        general: impl Iterator<Item = ZoneIndex>,
        private: impl Iterator<Item = ZoneIndex>,
        own: Own,
    ) {
        let mut entries = self.entries.iter();
        let mut fill = |zones: &mut dyn Iterator<Item = ZoneIndex>| {
            // The zone is asked for first, so that no entry is passed over at the end of the first part.
            let mut filled = 0;
            for zone in zones {
                let Some(entry) = entries.next() else { break };
                entry.store(zone.0, Ordering::Relaxed);
                filled += 1;
            }
            filled
        };
        let (mut general, mut private) = (general, private);
        let len: u32 = fill(&mut general);
        let all_len = len + fill(&mut private);
        let own_end = match own {
            Own::General(zones) => zones as u32,
            Own::Private(zones) => len + zones as u32,
        };
        self.cache.clear();
        // These pair with Acquires: who sees a longer list sees its entries.
        self.own_end.store(own_end, Ordering::Release);
        self.all_len.store(all_len, Ordering::Release);
        self.len.store(len, Ordering::Release);
    }

    /// Zones on the list that all requests may use.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// Whether there is no zone that all requests may use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All zones on the list: behind those that all requests may use come those of private nodes.
    #[inline]
    pub fn all_len(&self) -> usize {
        self.all_len.load(Ordering::Acquire) as usize
    }

    /// Where the node's own zones are on the list.
    #[inline]
    pub fn own(&self) -> Range<usize> {
        let (len, end) = (self.len(), self.own_end.load(Ordering::Acquire) as usize);
        if end > len { len..end } else { 0..end }
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
