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
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
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

/// Adjoining pages, and the entry after them.
///
/// ```text
/// bit 0-15 the entry after it  16-31 how many pages  32-63 the first one
/// ```
#[derive(Clone, Copy)]
struct Entry {
    first: u32,
    pages: u32,
    after: u16,
}

impl Entry {
    #[inline]
    fn of(bits: u64) -> Entry {
        Entry {
            first: (bits >> 32) as u32,
            pages: (bits >> 16) as u32 & 0xffff,
            after: bits as u16,
        }
    }

    #[inline]
    fn bits(self) -> u64 {
        u64::from(self.first) << 32 | u64::from(self.pages) << 16 | u64::from(self.after)
    }
}

/// The stage of a CPU for a zone. Memory of zeroes is an empty one: entries are counted from 1, 0 is none.
#[derive(Debug)]
pub(crate) struct Stage<'m> {
    /// The first entry of each slot.
    heads: &'m [AtomicU16],
    entries: &'m [AtomicU64],
    /// Entries that are free again, how many there are in use, and how many were ever.
    free: AtomicU16,
    in_use: AtomicU16,
    used: AtomicU16,
    pages: AtomicU32,
}

impl<'m> Stage<'m> {
    /// An empty stage, in memory of zeroes: a power of two of slots, and so many [`entries`](Self::entries).
    pub(crate) fn new(heads: &'m [AtomicU16], entries: &'m [AtomicU64]) -> Self {
        let [free, in_use, used] = [const { AtomicU16::new(0) }; 3];
        Self { heads, entries, free, in_use, used, pages: AtomicU32::new(0) }
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
        self.entries.len() - self.in_use.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn entry(&self, number: u16) -> Entry {
        Entry::of(self.entries[number as usize - 1].load(Ordering::Relaxed))
    }

    #[inline]
    fn set_entry(&self, number: u16, entry: Entry) {
        self.entries[number as usize - 1].store(entry.bits(), Ordering::Relaxed);
    }

    /// Adds adjoining pages of one pageblock; `false` if there is no room.
    #[inline]
    pub(crate) fn add(&self, first: u32, pages: u32) -> bool {
        let number = match self.free.load(Ordering::Relaxed) {
            0 if self.used.load(Ordering::Relaxed) as usize == self.entries.len() => return false,
            0 => {
                let number = self.used.load(Ordering::Relaxed) + 1;
                self.used.store(number, Ordering::Relaxed);
                number
            }
            number => {
                self.free.store(self.entry(number).after, Ordering::Relaxed);
                number
            }
        };
        let slot = self.slot_of(first);
        let after = self.heads[slot].load(Ordering::Relaxed);
        self.set_entry(number, Entry { first, pages, after });
        self.heads[slot].store(number, Ordering::Relaxed);
        self.in_use.store(self.in_use.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.pages.store(self.pages() + pages, Ordering::Relaxed);
        true
    }

    /// Asks for the fate of each pageblock's pages: `decide(first, parcel)`, by the pageblock's first frame, from slot `from` on.
    /// Returns the slot in which it said to stop.
    pub(crate) fn each_parcel(
        &self,
        from: usize,
        mut decide: impl FnMut(u32, &mut Parcel<'_, 'm>) -> Fate,
    ) -> Option<usize> {
        // Most slots are empty, and often all behind the first few.
        let mut left = self.in_use.load(Ordering::Relaxed);
        for slot in from..self.heads.len() {
            if left == 0 {
                return None;
            }
            if self.heads[slot].load(Ordering::Relaxed) != 0 {
                let (seen, stopped) = self.each_in_slot(slot, &mut decide);
                if stopped {
                    return Some(slot);
                }
                left -= seen;
            }
        }
        None
    }

    /// Takes the pages of the pageblock at `first`: which, and how many.
    pub(crate) fn take_parcel(&self, first: u32) -> (FreeMap, u32) {
        let mut taken = (FreeMap::NONE, 0);
        self.each_in_slot(self.slot_of(first), &mut |of, parcel| {
            if of != first {
                return Fate::Kept;
            }
            taken = (parcel.map(), parcel.pages());
            Fate::Gone
        });
        taken
    }

    /// As [`each_parcel`](Self::each_parcel), for the pageblocks of one slot. Returns entries that were seen, and whether it said
    /// to stop.
    fn each_in_slot(
        &self,
        slot: usize,
        decide: &mut impl FnMut(u32, &mut Parcel<'_, 'm>) -> Fate,
    ) -> (u16, bool) {
        let head = &self.heads[slot];
        let (mut rest, mut seen) = (head.load(Ordering::Relaxed), 0);
        head.store(0, Ordering::Relaxed);
        while rest != 0 {
            let pageblock = first_of(self.entry(rest).first);
            let mut pages = 0;
            let (mut theirs, mut others) = (Linked::NONE, Linked::NONE);
            while rest != 0 {
                let (number, entry) = (rest, self.entry(rest));
                rest = entry.after;
                if first_of(entry.first) == pageblock {
                    pages += entry.pages;
                    theirs.append(self, number, entry);
                } else {
                    others.append(self, number, entry);
                }
            }
            seen += theirs.count;
            let mut parcel = Parcel { stage: self, entries: theirs, pages };
            let fate = decide(pageblock, &mut parcel);
            let Parcel { entries: mut theirs, pages, .. } = parcel;
            match fate {
                Fate::Gone => self.release(theirs, pages),
                Fate::Kept | Fate::Stop => theirs.put_before(self, head),
            }
            if fate == Fate::Stop {
                others.put_before(self, head);
                return (seen, true);
            }
            others.end(self, 0);
            rest = others.first;
        }
        (seen, false)
    }

    /// The slot of a frame's pageblock. Neighbours have different ones.
    #[inline]
    fn slot_of(&self, number: u32) -> usize {
        (number >> PAGEBLOCK_ORDER.0) as usize & (self.heads.len() - 1)
    }

    /// Entries and their pages are gone.
    #[inline]
    fn release(&self, mut entries: Linked, pages: u32) {
        entries.put_before(self, &self.free);
        self.in_use.store(self.in_use.load(Ordering::Relaxed) - entries.count, Ordering::Relaxed);
        self.pages.store(self.pages() - pages, Ordering::Relaxed);
    }

    /// Calls `each` with all adjoining pages: the first one, and how many. Only while nobody uses the stage.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u32, u32)) {
        for head in self.heads {
            let mut number = head.load(Ordering::Relaxed);
            while number != 0 {
                let entry = self.entry(number);
                each(entry.first, entry.pages);
                number = entry.after;
            }
        }
    }
}

/// The pages of one pageblock.
pub(crate) struct Parcel<'s, 'm> {
    stage: &'s Stage<'m>,
    entries: Linked,
    pages: u32,
}

impl Parcel<'_, '_> {
    /// How many pages they are.
    #[inline]
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Which, by their places in the pageblock.
    ///
    /// # Panics
    /// If a page is there twice: it was freed twice.
    #[inline]
    pub(crate) fn map(&self) -> FreeMap {
        let (mut map, mut number) = (FreeMap::NONE, self.entries.first);
        for _ in 0..self.entries.count {
            let Entry { first, pages, after } = self.stage.entry(number);
            let at = first - first_of(first);
            assert!(map.add_new(at..at + pages), "freed twice");
            number = after;
        }
        map
    }

    /// Leaves only these of them: the others are gone.
    #[cold]
    pub(crate) fn leave(&mut self, rest: &FreeMap) {
        let (stage, first) = (self.stage, first_of(self.stage.entry(self.entries.first).first));
        let (mut left, mut gone) = (Linked::NONE, Linked::NONE);
        let (mut runs, mut number) = (rest.runs(), self.entries.first);
        for _ in 0..self.entries.count {
            let entry = stage.entry(number);
            match runs.next() {
                Some(run) => {
                    let (first, pages) = (first + run.start, run.end - run.start);
                    stage.set_entry(number, Entry { first, pages, ..entry });
                    left.append(stage, number, entry);
                }
                None => gone.append(stage, number, entry),
            }
            number = entry.after;
        }
        assert!(runs.next().is_none(), "they are fewer than there were");
        let pages = rest.count();
        stage.release(gone, self.pages - pages);
        (self.entries, self.pages) = (left, pages);
    }
}

/// Entries that are linked, but for what follows the last one. A link that is right already is not written again.
struct Linked {
    first: u16,
    last: u16,
    after: u16,
    count: u16,
}

impl Linked {
    const NONE: Linked = Linked { first: 0, last: 0, after: 0, count: 0 };

    #[inline]
    fn append(&mut self, stage: &Stage<'_>, number: u16, entry: Entry) {
        if self.count == 0 {
            self.first = number;
        } else {
            self.end(stage, number);
        }
        (self.last, self.after, self.count) = (number, entry.after, self.count + 1);
    }

    /// Has another one follow the last.
    #[inline]
    fn end(&mut self, stage: &Stage<'_>, after: u16) {
        if self.count > 0 && self.after != after {
            stage.set_entry(self.last, Entry { after, ..stage.entry(self.last) });
            self.after = after;
        }
    }

    /// Puts them before those that begin at `head`.
    #[inline]
    fn put_before(&mut self, stage: &Stage<'_>, head: &AtomicU16) {
        if self.count > 0 {
            self.end(stage, head.load(Ordering::Relaxed));
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
        let (mut refused, mut stopped, mut cut) = (0, 0, 0);
        for seed in 0..300 {
            let mut random = Random(seed);
            let heads = [const { AtomicU16::new(0) }; SLOTS];
            let entries = [const { AtomicU64::new(0) }; ENTRIES];
            let stage = Stage::new(&heads, &entries);
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
                    let stop = stage.each_parcel(from, |first, parcel| {
                        assert!(seen.insert(first));
                        let map = parcel.map();
                        let pages: Vec<u32> = map.runs().flatten().map(|at| first + at).collect();
                        assert_eq!(pages.len() as u32, parcel.pages());
                        assert_eq!(pages, Vec::from_iter(before[&first].iter().copied()));
                        match random.below(12) {
                            0 => {
                                let mut rest = map;
                                let gone = rest.take_first(random.below(600) as u32);
                                let pages = naive.get_mut(&first).expect("it was there");
                                gone.runs().flatten().for_each(|at| {
                                    pages.remove(&(first + at));
                                });
                                parcel.leave(&rest);
                                assert_eq!((parcel.map(), parcel.pages()), (rest, rest.count()));
                                cut += u32::from(rest.count() > 0 && gone.count() > 0);
                                Fate::Stop
                            }
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
        assert!(refused > 0 && stopped > 0 && cut > 0);
    }
}
