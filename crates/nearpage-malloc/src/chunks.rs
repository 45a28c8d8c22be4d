//! Chunks of 4 MiB of nearpage's memory, from which spans and large blocks are cut, page by page.
//!
//! A chunk has a bit for each page that is free, and one for each free page that may be resident: it is *dirty*. The free runs
//! of a node's chunks are counted by the bins of their lengths. A request gets the lowest run of the least bin that holds it:
//! best fit, then the lowest address, so that high chunks empty.
//!
//! Whoever gives dirty pages to the kernel *borrows* them first, and asks the kernel without the lock. A block of nearpage's that
//! is free and clean goes back to nearpage.
//!
//! One lock a node guards its chunks and the descriptors of large blocks in them. No other lock is taken under it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::boot::map_table;
use crate::lock::Lock;
use crate::runs::{BINS, Bits, PAGES, bin};
use crate::span::{UNIT_ORDER, UNIT_SHIFT};
use crate::usage;

/// The order of a chunk.
pub(crate) const CHUNK_ORDER: u8 = 10;
/// Units of a chunk.
const UNITS: usize = PAGES >> UNIT_ORDER;
/// Nodes that can have chunks.
pub(crate) const NODES: usize = 64;
/// Chunks of a bin that are looked at for an aligned run.
const TRIES: usize = 4;
/// Chunks that are looked at for dirty pages in one call.
const LOOKS: usize = 256;

struct Chunk {
    free: Bits,
    dirty: Bits,
    /// The order of the block of nearpage's that begins at each unit, and one more; 0: none does.
    blocks: [u8; UNITS],
    /// Free runs of each bin.
    runs: [u16; BINS],
    dirty_pages: u16,
    /// The look in which pages became dirty last.
    dirtied: u32,
}

/// The chunks of a node.
pub(crate) struct Chunks {
    /// A set of chunks for each bin, 64 of them a word.
    index: *mut [u64; BINS],
    words: usize,
    /// Bins that have runs, and how many chunks have them.
    filled: u128,
    counts: [u32; BINS],
    /// No word below has a chunk of the bin.
    lowest: [u32; BINS],
    /// The first chunk and the one behind the last: a node's addresses are a range.
    start: usize,
    end: usize,
    /// Where the next search for dirty pages begins, downwards.
    hand: usize,
}

// SAFETY: whoever has the lock has the index and the chunks.
unsafe impl Send for Chunks {}

/// The chunks of each node.
pub(crate) static CHUNKS: [Lock<Chunks>; NODES] = [const {
    Lock::new(Chunks {
        index: null_mut(),
        words: 0,
        filled: 0,
        counts: [0; BINS],
        lowest: [0; BINS],
        start: usize::MAX,
        end: 0,
        hand: 0,
    })
}; NODES];

static TABLE: AtomicPtr<Chunk> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Looks for old pages so far.
static LOOK: AtomicU32 = AtomicU32::new(0);

/// Pages in a row, by the number of the first: 0 is the start of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    pub first: usize,
    pub pages: usize,
}

/// Which dirty pages are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Pages in a row, at least.
    pub least: usize,
    /// Looks since pages of the chunk became dirty, at least.
    pub age: u32,
}

/// Makes the table for so many units.
pub(crate) fn make_table(units: usize) -> Option<()> {
    let count = units.div_ceil(UNITS);
    let table = map_table(count * size_of::<Chunk>())?;
    TABLE.store(table.as_ptr().cast(), Ordering::Relaxed);
    COUNT.store(count, Ordering::Release);
    Some(())
}

/// A look for old pages begins.
pub(crate) fn note_look() {
    LOOK.fetch_add(1, Ordering::Relaxed);
}

/// The chunks of a node, by its dense number.
pub(crate) fn of_node(node: u16) -> &'static Lock<Chunks> {
    &CHUNKS[node as usize]
}

impl Chunks {
    fn chunk(&mut self, number: usize) -> &mut Chunk {
        assert!(number < COUNT.load(Ordering::Relaxed), "a chunk is one of the table's");
        // SAFETY: the table has a chunk of this number, zeroes at first, and this lock guards those of the node.
        unsafe { &mut *TABLE.load(Ordering::Relaxed).add(number) }
    }

    /// The sets of a word of 64 chunks. `None` without memory.
    fn sets(&mut self, word: usize) -> Option<&mut [u64; BINS]> {
        if self.index.is_null() {
            self.words = COUNT.load(Ordering::Relaxed).div_ceil(64);
            let index = map_table(self.words * size_of::<[u64; BINS]>())?;
            self.index = index.as_ptr().cast();
        }
        assert!(word < self.words, "a set is one of the index's");
        // SAFETY: the index is so long.
        Some(unsafe { &mut *self.index.add(word) })
    }

    /// Takes a block of nearpage's in, which is clean. `false` without memory.
    pub fn add(&mut self, unit: usize, order: u8) -> bool {
        let number = unit / UNITS;
        if self.sets(number / 64).is_none() {
            return false;
        }
        self.chunk(number).blocks[unit % UNITS] = order + 1;
        self.start = self.start.min(number);
        self.end = self.end.max(number + 1);
        self.put(Run { first: unit << UNIT_ORDER, pages: 1 << order });
        true
    }

    /// Cuts so many pages, a length that is the first of its bin, at a multiple of `align`. Tells whether they are all clean.
    pub fn take(&mut self, pages: usize, align: usize) -> Option<(usize, bool)> {
        let mut bins = self.filled & u128::MAX << bin(pages);
        while bins != 0 {
            let bin = bins.trailing_zeros() as usize;
            let mut from = self.lowest[bin] as usize * 64;
            for tries in 0..TRIES {
                let Some(number) = self.next_with(bin, from) else { break };
                if tries == 0 {
                    self.lowest[bin] = (number / 64) as u32;
                }
                if let Some(first) = self.fits(number, bin, pages, align) {
                    return Some((number * PAGES + first, self.cut(number, first, pages)));
                }
                from = number + 1;
            }
            bins &= bins - 1;
        }
        None
    }

    /// The next chunk that has a run of a bin.
    fn next_with(&mut self, bin: usize, from: usize) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for word in from / 64..self.end.div_ceil(64) {
            let found = self.sets(word)?[bin] & mask;
            if found != 0 {
                return Some(word * 64 + found.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    fn fits(&mut self, number: usize, of: usize, pages: usize, align: usize) -> Option<usize> {
        let mut runs = self.chunk(number).free.runs();
        runs.find_map(|(start, length)| {
            let first = start.next_multiple_of(align);
            (bin(length) == of && first + pages <= start + length).then_some(first)
        })
    }

    /// Takes free pages out of their run; whether they are all clean.
    fn cut(&mut self, number: usize, first: usize, pages: usize) -> bool {
        let (start, length) = self.chunk(number).free.around(first, pages);
        self.count(number, length, false);
        self.count(number, first - start, true);
        self.count(number, start + length - first - pages, true);
        let chunk = self.chunk(number);
        chunk.free.clear(first, pages);
        let dirty = chunk.dirty.count(first, pages);
        chunk.dirty.clear(first, pages);
        chunk.dirty_pages -= dirty as u16;
        usage::note_dirty(-(dirty as i64) << 12);
        dirty == 0
    }

    /// Takes pages back that nobody uses, which are clean.
    fn put(&mut self, run: Run) {
        let (number, first) = (run.first / PAGES, run.first % PAGES);
        let (start, length) = self.chunk(number).free.around(first, run.pages);
        self.count(number, first - start, false);
        self.count(number, start + length - first - run.pages, false);
        self.count(number, length, true);
        self.chunk(number).free.set(first, run.pages);
    }

    /// Takes pages back that nobody uses, and that may be resident.
    pub fn give_back(&mut self, run: Run) {
        self.put(run);
        let chunk = self.chunk(run.first / PAGES);
        chunk.dirty.set(run.first % PAGES, run.pages);
        chunk.dirty_pages += run.pages as u16;
        chunk.dirtied = LOOK.load(Ordering::Relaxed);
        usage::note_dirty((run.pages as i64) << 12);
    }

    /// Counts a free run that comes or goes.
    fn count(&mut self, number: usize, length: usize, comes: bool) {
        if length == 0 {
            return;
        }
        let bin = bin(length);
        let runs = &mut self.chunk(number).runs[bin];
        *runs = if comes { *runs + 1 } else { *runs - 1 };
        let has_changed = *runs == u16::from(comes);
        if !has_changed {
            return;
        }
        let (word, bit) = (number / 64, 1 << (number % 64));
        let Some(sets) = self.sets(word) else { return };
        sets[bin] ^= bit;
        if comes {
            self.counts[bin] += 1;
            self.lowest[bin] = self.lowest[bin].min(word as u32);
        } else {
            self.counts[bin] -= 1;
        }
        let is_filled = self.counts[bin] > 0;
        self.filled = self.filled & !(1 << bin) | u128::from(is_filled) << bin;
        if !is_filled {
            self.lowest[bin] = u32::MAX;
        }
    }

    /// Borrows dirty pages for whoever gives them to the kernel, from the highest chunks on; returns how many runs, and whether
    /// that was the end of a round.
    pub fn borrow(&mut self, wanted: Wanted, runs: &mut [Run]) -> (usize, bool) {
        let now = LOOK.load(Ordering::Relaxed);
        let mut count = 0;
        for _ in 0..LOOKS {
            if self.hand <= self.start {
                self.hand = self.end;
                return (count, true);
            }
            let number = self.hand - 1;
            let chunk = self.chunk(number);
            let is_old = now.wrapping_sub(chunk.dirtied) >= wanted.age;
            if is_old && chunk.dirty_pages as usize >= wanted.least {
                let dirty = chunk.dirty;
                for (first, pages) in dirty.runs().filter(|(_, pages)| *pages >= wanted.least) {
                    if count == runs.len() {
                        return (count, false);
                    }
                    self.cut(number, first, pages);
                    runs[count] = Run { first: number * PAGES + first, pages };
                    count += 1;
                }
            }
            self.hand -= 1;
        }
        (count, false)
    }

    /// Takes borrowed pages back, which the kernel has now.
    pub fn take_clean(&mut self, run: Run) {
        self.put(run);
    }

    /// Takes a block of nearpage's out that is free and clean, of the chunk that a page lies in: its first unit, and its order.
    pub fn take_block(&mut self, page: usize) -> Option<(usize, u8)> {
        let number = page / PAGES;
        let chunk = self.chunk(number);
        let is_clean = |(unit, order): &(usize, u8)| {
            let (first, pages) = (unit << UNIT_ORDER, 1 << order);
            chunk.free.count(first, pages) == pages && chunk.dirty.count(first, pages) == 0
        };
        let blocks = chunk.blocks.iter().enumerate().filter(|(_, order)| **order > 0);
        let (unit, order) = blocks.map(|(unit, order)| (unit, *order - 1)).find(is_clean)?;
        chunk.blocks[unit] = 0;
        self.cut(number, unit << UNIT_ORDER, 1 << order);
        Some((number * UNITS + unit, order))
    }
}

const _: () = assert!(1 << UNIT_SHIFT == 4096 << UNIT_ORDER && 1 << CHUNK_ORDER == PAGES);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::runs::rounded;

    /// Random cuts and returns against a map of what is taken. The table is the process's: this is the only test that uses it.
    #[test]
    fn what_is_cut_lies_apart_and_all_comes_together_again() {
        make_table(6 * UNITS).unwrap();
        let mut chunks = of_node(3).lock();
        let chunks = &mut *chunks;
        let mut random = fastrand::Rng::with_seed(51);
        assert_eq!(chunks.take(1, 1), None);
        // Four whole chunks, and two blocks of half of one.
        for (unit, order) in
            [(0, 10), (128, 10), (3 * 128, 10), (4 * 128, 10), (5 * 128, 9), (5 * 128 + 64, 9)]
        {
            assert!(chunks.add(unit, order));
        }
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        let (mut refused, mut clean, mut dirty) = (0, 0, 0);
        for turn in 0..20_000 {
            if turn % 100 == 0 {
                note_look();
                let wanted = Wanted { least: 4, age: 1 };
                let mut runs = [Run::default(); 3];
                let (count, _) = chunks.borrow(wanted, &mut runs);
                for run in &runs[..count] {
                    assert!(run.pages >= 4);
                    apart(&taken, run.first, run.pages);
                    chunks.take_clean(*run);
                }
                clean += count;
            }
            if random.usize(..100) < 40 + 20 * (turn / 2000 % 2) {
                let most = 1 << random.u32(..10);
                let pages = rounded(1 + random.usize(..most));
                let align = 1 << random.u32(..8);
                let Some((first, is_clean)) = chunks.take(pages, align) else {
                    refused += 1;
                    continue;
                };
                dirty += usize::from(!is_clean);
                assert!(first.is_multiple_of(align) && first / PAGES != 2);
                apart(&taken, first, pages);
                taken.insert(first, pages);
            } else if let Some((&first, _)) = taken.range(random.usize(..6 * PAGES)..).next() {
                let pages = taken.remove(&first).unwrap();
                chunks.give_back(Run { first, pages });
            }
            let free: usize = taken.values().sum();
            let counted: usize =
                (0..6).map(|number| chunks.chunk(number).free.count(0, PAGES)).sum();
            assert_eq!(counted + free, 5 * PAGES);
        }
        assert!(refused > 100 && clean > 100 && dirty > 100, "{refused} {clean} {dirty}");
        for (first, pages) in taken {
            chunks.give_back(Run { first, pages });
        }
        assert_eq!(chunks.take_block(0), None, "it is not clean");
        let mut runs = [Run::default(); 8];
        // A round may have begun in the middle, and ends where the list of runs is full.
        for _ in 0..1000 {
            let (count, _) = chunks.borrow(Wanted { least: 1, age: 0 }, &mut runs);
            runs[..count].iter().for_each(|run| chunks.take_clean(*run));
        }
        assert_eq!(chunks.filled, 1 << bin(PAGES), "all is one run in each chunk");
        assert_eq!(chunks.take_block(0), Some((0, 10)));
        assert_eq!(chunks.take_block(5 * PAGES + 7), Some((5 * UNITS, 9)));
        assert_eq!(chunks.take_block(5 * PAGES), Some((5 * UNITS + 64, 9)));
        assert_eq!(chunks.take_block(5 * PAGES), None);
        assert_eq!(chunks.take(PAGES, PAGES), Some((PAGES, true)), "the lowest");
    }

    fn apart(taken: &BTreeMap<usize, usize>, first: usize, pages: usize) {
        let before = taken.range(..first + pages).next_back();
        assert!(before.is_none_or(|(start, length)| start + length <= first));
    }
}
