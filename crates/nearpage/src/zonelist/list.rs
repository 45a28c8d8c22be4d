//! A zonelist in memory: zone indexes that change while others read them.

use core::ops::Range;

use super::cache::ZonelistCache;
use super::versions::Versions;
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
///
/// A reader sees one list or the next one, never parts of both ([`Versions`]).
#[derive(Debug)]
pub struct Zonelist<'m> {
    versions: Versions<AtomicU32>,
    copies: [Entries<'m>; 2],
    /// Which of them were full lately.
    pub cache: ZonelistCache<'m>,
}

#[derive(Debug)]
struct Entries<'m> {
    zones: &'m [AtomicU16],
    len: AtomicU32,
    all_len: AtomicU32,
    own_end: AtomicU32,
}

impl<'m> Entries<'m> {
    fn new(zones: &'m [AtomicU16]) -> Self {
        let [len, all_len, own_end] = [const { AtomicU32::new(0) }; 3];
        Self { zones, len, all_len, own_end }
    }
}

impl<'m> Zonelist<'m> {
    /// A list of nothing, with room for half as many zones as there are entries.
    pub fn new(entries: &'m [AtomicU16], cache: ZonelistCache<'m>) -> Self {
        let (one, other) = entries.split_at(entries.len() / 2);
        let copies = [Entries::new(one), Entries::new(other)];
        Self { versions: Versions::new(), copies, cache }
    }

    /// Replaces the list by the zones that all requests may use, those of private nodes, and so many `own`: they
    /// come first among the private ones if there are private ones of the node. One thread at a time.
    pub fn set(
        &self,
        general: impl Iterator<Item = ZoneIndex>,
        private: impl Iterator<Item = ZoneIndex>,
        own: Own,
    ) {
        let version = self.versions.begin();
        let copy = &self.copies[Versions::<AtomicU32>::copy(version)];
        let mut entries = copy.zones.iter();
        let mut fill = |zones: &mut dyn Iterator<Item = ZoneIndex>| {
            // The zone is asked for first, so that no entry is passed over at the end of the first part.
            let mut filled = 0;
            for zone in zones {
                let Some(entry) = entries.next() else { break };
                entry.store(zone.0, Ordering::Release);
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
        copy.own_end.store(own_end, Ordering::Release);
        copy.all_len.store(all_len, Ordering::Release);
        copy.len.store(len, Ordering::Release);
        self.versions.publish(version);
        self.cache.clear();
    }

    /// The list as it is now.
    #[inline]
    pub fn read(&self) -> Reading<'_, 'm> {
        loop {
            let version = self.versions.current();
            let copy = &self.copies[Versions::<AtomicU32>::copy(version)];
            let [len, all_len, own_end] = [&copy.len, &copy.all_len, &copy.own_end]
                .map(|cell| cell.load(Ordering::Acquire) as usize);
            if self.versions.is_intact(version) {
                return Reading { list: self, version, len, all_len, own_end };
            }
        }
    }
}

/// A version of a list while it is read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a, 'm> {
    list: &'a Zonelist<'m>,
    version: u32,
    len: usize,
    all_len: usize,
    own_end: usize,
}

impl Reading<'_, '_> {
    /// Zones on the list that all requests may use.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// All zones on the list: behind those that all requests may use come those of private nodes.
    #[inline]
    pub fn all_len(&self) -> usize {
        self.all_len
    }

    /// Where the node's own zones are on the list.
    #[inline]
    pub fn own(&self) -> Range<usize> {
        if self.own_end > self.len { self.len..self.own_end } else { 0..self.own_end }
    }

    /// The zone at a position, or `None` if the list was replaced so often meanwhile that nobody knows any more.
    ///
    /// # Panics
    /// If no version had so many.
    #[inline]
    pub fn zone(&self, position: usize) -> Option<ZoneIndex> {
        let copy = &self.list.copies[Versions::<AtomicU32>::copy(self.version)];
        let zone = ZoneIndex(copy.zones[position].load(Ordering::Acquire));
        self.list.versions.is_intact(self.version).then_some(zone)
    }

    /// Whether this is still the list in force. Who found nothing on one that is not looks again.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.list.versions.current() == self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zonelist::cache::HintLine;

    #[test]
    fn a_reading_is_one_list_or_nothing() {
        let entries = [const { AtomicU16::new(0) }; 6];
        let lines = [HintLine::default()];
        let list = Zonelist::new(&entries, ZonelistCache::new(&lines));
        let set = |zones: [u16; 3]| {
            let zone = |zone: &u16| ZoneIndex(*zone);
            list.set(zones[..2].iter().map(zone), zones[2..].iter().map(zone), Own::General(1));
        };
        assert!(list.read().len() == 0 && list.read().own().is_empty());
        set([3, 1, 2]);
        let first = list.read();
        assert_eq!((first.len(), first.all_len(), first.own()), (2, 3, 0..1));
        set([5, 4, 6]);
        let zones = |of: Reading<'_, '_>| [0, 1, 2].map(|at| of.zone(at).map(|zone| zone.0));
        assert_eq!(zones(first), [Some(3), Some(1), Some(2)], "the copy is still whole");
        assert!(!first.is_current());
        assert_eq!(zones(list.read()), [Some(5), Some(4), Some(6)]);
        set([8, 9, 7]);
        assert_eq!(zones(first), [None; 3], "it was written over");
        assert!(list.read().is_current());
    }
}
