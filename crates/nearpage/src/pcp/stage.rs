//! Pages on their way to who has their pageblocks, gathered by pageblock.
//!
//! ```text
//! head of a slot -> entry -> entry -> …      an entry has adjoining pages; slots are by pageblock, some share one
//! ```
//!
//! Whatever their order, pages of one pageblock come out together, as a map: each pageblock is looked at and written once.
//! To add pages touches nothing of the pages themselves.
//!
//! For who has hold of what the CPU owns.

use crate::frame::{FreeMap, first_of};
use crate::sync::{AtomicU16, AtomicU32, Ordering};
use crate::units::PAGEBLOCK_ORDER;

/// Entries for each slot.
const ENTRIES_PER_SLOT: usize = 5;

/// What becomes of the pages of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// They are gone.
    Gone,
    /// They stay.
    Kept,
    /// They stay, and so does all that comes after.
    Stop,
}

/// The stage of a CPU for a zone. Memory of zeroes is an empty one: entries are counted from 1, 0 is none.
#[derive(Debug)]
pub(crate) struct Stage<'m> {
    /// The first entry of each slot.
    heads: &'m [AtomicU16],
    /// The entry after each.
    after: &'m [AtomicU16],
    /// Its first page, and how many it has.
    firsts: &'m [AtomicU32],
    lengths: &'m [AtomicU16],
    /// Entries that are free again, how many there are in use, and how many were ever.
    free: AtomicU16,
    entries: AtomicU16,
    used: AtomicU16,
    pages: AtomicU32,
}

impl<'m> Stage<'m> {
    /// An empty stage, in memory of zeroes: a power of two of slots, and so many [`entries`](Self::entries).
    pub(crate) fn new(
        heads: &'m [AtomicU16],
        [after, lengths]: [&'m [AtomicU16]; 2],
        firsts: &'m [AtomicU32],
    ) -> Self {
        let [free, entries, used] = [const { AtomicU16::new(0) }; 3];
        Self { heads, after, firsts, lengths, free, entries, used, pages: AtomicU32::new(0) }
    }

    /// Entries of a stage with so many slots.
    pub(crate) const fn entries(slots: usize) -> usize {
        slots * ENTRIES_PER_SLOT
    }

    /// Pages here.
    #[inline]
    pub(crate) fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    /// How many more entries there is room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.firsts.len() - self.entries.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn first(&self, entry: u16) -> u32 {
        self.firsts[entry as usize - 1].load(Ordering::Relaxed)
    }

    #[inline]
    fn length(&self, entry: u16) -> u32 {
        self.lengths[entry as usize - 1].load(Ordering::Relaxed).into()
    }

    #[inline]
    fn after(&self, entry: u16) -> &AtomicU16 {
        &self.after[entry as usize - 1]
    }

    /// Adds adjoining pages of one pageblock; `false` if there is no room.
    #[inline]
    pub(crate) fn add(&self, first: u32, pages: u32) -> bool {
        let entry = match self.free.load(Ordering::Relaxed) {
            0 if self.used.load(Ordering::Relaxed) as usize == self.firsts.len() => return false,
            0 => {
                let entry = self.used.load(Ordering::Relaxed) + 1;
                self.used.store(entry, Ordering::Relaxed);
                entry
            }
            entry => {
                self.free.store(self.after(entry).load(Ordering::Relaxed), Ordering::Relaxed);
                entry
            }
        };
        // Neighbours have different slots.
        let slot = (first >> PAGEBLOCK_ORDER.0) as usize & (self.heads.len() - 1);
        let at = entry as usize - 1;
        self.firsts[at].store(first, Ordering::Relaxed);
        self.lengths[at].store(pages as u16, Ordering::Relaxed);
        self.after[at].store(self.heads[slot].load(Ordering::Relaxed), Ordering::Relaxed);
        self.heads[slot].store(entry, Ordering::Relaxed);
        self.entries.store(self.entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.pages.store(self.pages() + pages, Ordering::Relaxed);
        true
    }

    /// Asks for the fate of each pageblock's pages: `decide(first, pages)`, by the pageblock's first frame, from slot `from` on.
    /// Returns the slot in which it said to stop.
    ///
    /// # Panics
    /// If a page is there twice: it was freed twice.
    pub(crate) fn each_parcel(
        &self,
        from: usize,
        mut decide: impl FnMut(u32, FreeMap) -> Fate,
    ) -> Option<usize> {
        for (slot, head) in self.heads.iter().enumerate().skip(from) {
            let mut rest = Entries::of(head.load(Ordering::Relaxed));
            head.store(0, Ordering::Relaxed);
            while rest.first != 0 {
                let pageblock = first_of(self.first(rest.first));
                let (mut map, mut pages) = (FreeMap::NONE, 0);
                let (mut theirs, mut others) = (Entries::of(0), Entries::of(0));
                while let Some(entry) = rest.pop(self) {
                    let (first, length) = (self.first(entry), self.length(entry));
                    if first_of(first) == pageblock {
                        map.add(first - pageblock..first - pageblock + length);
                        pages += length;
                        theirs.push(self, entry);
                    } else {
                        others.push(self, entry);
                    }
                }
                assert!(map.count() == pages, "freed twice");
                let fate = decide(pageblock, map);
                match fate {
                    Fate::Gone => {
                        theirs.move_to(self, &self.free);
                        let entries = self.entries.load(Ordering::Relaxed) - theirs.count;
                        self.entries.store(entries, Ordering::Relaxed);
                        self.pages.store(self.pages() - pages, Ordering::Relaxed);
                    }
                    Fate::Kept | Fate::Stop => theirs.move_to(self, head),
                }
                if fate == Fate::Stop {
                    others.move_to(self, head);
                    return Some(slot);
                }
                rest = others;
            }
        }
        None
    }

    /// Calls `each` with all adjoining pages: the first one, and how many. Only while nobody uses the stage.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u32, u32)) {
        for head in self.heads {
            let mut entry = head.load(Ordering::Relaxed);
            while entry != 0 {
                each(self.first(entry), self.length(entry));
                entry = self.after(entry).load(Ordering::Relaxed);
            }
        }
    }
}

/// Entries that are linked.
struct Entries {
    first: u16,
    last: u16,
    count: u16,
}

impl Entries {
    #[inline]
    fn of(first: u16) -> Self {
        Self { first, last: 0, count: 0 }
    }

    #[inline]
    fn push(&mut self, stage: &Stage<'_>, entry: u16) {
        stage.after(entry).store(self.first, Ordering::Relaxed);
        if self.count == 0 {
            self.last = entry;
        }
        (self.first, self.count) = (entry, self.count + 1);
    }

    #[inline]
    fn pop(&mut self, stage: &Stage<'_>) -> Option<u16> {
        let entry = Some(self.first).filter(|&first| first != 0)?;
        self.first = stage.after(entry).load(Ordering::Relaxed);
        Some(entry)
    }

    /// Puts them before those that begin at `head`.
    #[inline]
    fn move_to(&self, stage: &Stage<'_>, head: &AtomicU16) {
        if self.count > 0 {
            stage.after(self.last).store(head.load(Ordering::Relaxed), Ordering::Relaxed);
            head.store(self.first, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::collections::{BTreeMap, BTreeSet};
    use std_alloc::vec::Vec;

    use super::*;
    use crate::testing::random::Random;

    const SLOTS: usize = 16;
    const ENTRIES: usize = Stage::entries(SLOTS);

    /// Beside a map by pageblock.
    #[test]
    fn pages_come_out_by_pageblock() {
        let (mut refused, mut stopped) = (0, 0);
        for seed in 0..300 {
            let mut random = Random(seed);
            let heads = [const { AtomicU16::new(0) }; SLOTS];
            let [after, lengths] = [const { [const { AtomicU16::new(0) }; ENTRIES] }; 2];
            let firsts = [const { AtomicU32::new(0) }; ENTRIES];
            let stage = Stage::new(&heads, [&after, &lengths], &firsts);
            let mut naive: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for _ in 0..2000 {
                let number = random.below(40 * 512) as u32;
                let all = naive.entry(first_of(number)).or_default();
                let end = (number + 1 + random.below(9) as u32).min(first_of(number) + 512);
                if !(number..end).any(|page| all.contains(&page)) {
                    match stage.add(number, end - number) {
                        true => all.extend(number..end),
                        false => refused += 1,
                    }
                }
                naive.retain(|_, pages| !pages.is_empty());
                let total: usize = naive.values().map(BTreeSet::len).sum();
                assert_eq!(stage.pages() as usize, total);
                if random.one_in(30) {
                    let from = random.below(4) as usize * 4;
                    let before = naive.clone();
                    let mut seen = BTreeSet::new();
                    let stop = stage.each_parcel(from, |first, map| {
                        assert!(seen.insert(first));
                        let pages: Vec<u32> = map.runs().flatten().map(|at| first + at).collect();
                        assert_eq!(pages, Vec::from_iter(before[&first].iter().copied()));
                        match random.below(12) {
                            0 => Fate::Stop,
                            1..6 => Fate::Kept,
                            _ => {
                                naive.remove(&first);
                                Fate::Gone
                            }
                        }
                    });
                    stopped += u32::from(stop.is_some());
                    let slot = |first: u32| (first / 512) as usize % SLOTS;
                    let is_due = |first: &&u32| slot(**first) >= from && stop.is_none();
                    assert!(before.keys().filter(is_due).all(|first| seen.contains(first)));
                }
            }
            let mut left = Vec::new();
            stage.for_each(&mut |first, pages| left.extend(first..first + pages));
            left.sort_unstable();
            assert_eq!(left, naive.into_values().flatten().collect::<Vec<u32>>());
            stage.each_parcel(0, |_, _| Fate::Gone);
            assert_eq!((stage.pages(), stage.room()), (0, ENTRIES));
        }
        assert!(refused > 0 && stopped > 0);
    }
}
