//! Which blocks lay in a pageset at the start, from the frames that were allocated.
//!
//! Two free buddies lie in one larger block, and a refill takes them together: they come to be allocated one right after
//! the other, the lower one first. So if two buddies, neither of which was seen before in the window, are allocated from
//! one CPU's list in another way, one of them was in that list at the start. Counted along a list's first-time blocks,
//! such *odd pairs* are frequent as long as the blocks are of the start, and rare behind: where the rate falls most is how
//! many there were.

use std::collections::HashMap;

use nearpage::rules::pagesets::list_order;
use nearpage::{CpuId, Order, Pfn};

/// Fewer odd pairs than this tell nothing.
const PAIRS_LEAST: usize = 4;
/// Frames of a chunk.
const CHUNK: usize = 1 << Order::PAGEBLOCK.0;

/// A list of a pageset: CPU, zone and index.
pub type ListKey = (CpuId, usize, usize);

/// Frames that a trace has shown, and the odd pairs of each list.
#[derive(Clone, Debug, Default)]
pub struct OldPages {
    /// By pageblock, a bit for each frame that was allocated or freed.
    shown: HashMap<u64, Box<[u64; CHUNK / 64]>>,
    /// First-time blocks by their first frame: the list, by its position, and the place in its sequence.
    places: HashMap<u64, (u32, u32)>,
    lists: Vec<(ListKey, Sequence)>,
}

/// First-time blocks of a list.
#[derive(Clone, Debug, Default)]
struct Sequence {
    /// How many there were.
    length: u32,
    /// Places of the first blocks of odd pairs.
    odd: Vec<u32>,
}

impl OldPages {
    /// Forgets everything: a window begins.
    pub fn clear(&mut self) {
        *self = OldPages::default();
    }

    /// Notes a block that was freed, or allocated past the pagesets; returns whether any of it was seen before.
    pub fn note(&mut self, pfn: Pfn, pages: u64) -> bool {
        let mut was_shown = false;
        for frame in pfn.0..pfn.0 + pages {
            was_shown |= self.show(frame);
        }
        was_shown
    }

    /// Notes a block that was allocated from a list, of which at most `most` pages can be of the start.
    pub fn note_alloc(&mut self, key: ListKey, pfn: Pfn, most: u64) {
        let order = list_order(key.2);
        if self.note(pfn, order.pages().0) {
            return;
        }
        let list = self.list(key);
        let sequence = &mut self.lists[list as usize].1;
        let place = sequence.length;
        sequence.length += 1;
        if u64::from(place) >= most >> order.0 {
            return;
        }
        let buddy = pfn.0 ^ order.pages().0;
        if let Some(&(other, before)) = self.places.get(&buddy)
            && other == list
            && !(buddy < pfn.0 && before + 1 == place)
        {
            self.lists[list as usize].1.odd.push(before);
        }
        self.places.insert(pfn.0, (list, place));
    }

    /// Marks a frame as shown; returns whether it was before.
    fn show(&mut self, frame: u64) -> bool {
        let chunk =
            self.shown.entry(frame / CHUNK as u64).or_insert_with(|| Box::new([0; CHUNK / 64]));
        let at = frame as usize % CHUNK;
        let was = chunk[at / 64] >> (at % 64) & 1 == 1;
        chunk[at / 64] |= 1 << (at % 64);
        was
    }

    fn list(&mut self, key: ListKey) -> u32 {
        let known = self.lists.iter().position(|(of, _)| *of == key);
        known.unwrap_or_else(|| {
            self.lists.push((key, Sequence::default()));
            self.lists.len() - 1
        }) as u32
    }

    /// How many pages of a list were there at the start, if its blocks tell.
    pub fn pages(&self, key: ListKey, most: u64) -> Option<u64> {
        let (_, sequence) = self.lists.iter().find(|(of, _)| *of == key)?;
        let mut odd = sequence.odd.clone();
        odd.sort_unstable();
        let order = list_order(key.2).0;
        let blocks = change(&odd, u64::from(sequence.length).min(most >> order))?;
        Some(blocks << order)
    }
}

/// Where the rate of marks among `length` places falls most: the place behind the last mark of the frequent part.
fn change(marks: &[u32], length: u64) -> Option<u64> {
    if marks.len() < PAIRS_LEAST {
        return None;
    }
    // The logarithm of the likelihood of `hits` among `places` at their own rate.
    let fit = |hits: f64, places: f64| {
        let part = |share: f64| if share > 0.0 { share * (share / places).ln() } else { 0.0 };
        if places > 0.0 { part(hits) + part(places - hits) } else { 0.0 }
    };
    let (all, length) = (marks.len() as f64, length as f64);
    let likelihood = |(index, &mark): (usize, &u32)| {
        let (hits, places) = (index as f64 + 1.0, f64::from(mark) + 1.0);
        let (rest, behind) = (all - hits, (length - places).max(all - hits));
        let is_falling = hits / places > rest / behind.max(1.0);
        let value =
            if is_falling { fit(hits, places) + fit(rest, behind) } else { f64::NEG_INFINITY };
        (value, u64::from(mark) + 1)
    };
    let best = marks.iter().enumerate().map(likelihood).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ListKey = (CpuId(0), 0, 1);

    /// Allocates pages; returns how many are taken for old.
    fn count(pages: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut old = OldPages::default();
        pages.into_iter().for_each(|frame| old.note_alloc(KEY, Pfn(frame), 10_000));
        old.pages(KEY, 10_000)
    }

    #[test]
    fn pages_of_refills_are_not_old() {
        assert_eq!(count(4096..9000), None);
        // Single pages, and pairs from an odd frame on.
        assert_eq!(count((0..500).map(|at| at * 8).chain(4097..6000)), None);
    }

    #[test]
    fn pages_in_reverse_are_old_until_they_come_in_order() {
        let found = count((4096..5096).rev().chain(10_000..12_000)).unwrap();
        assert!((990..=1000).contains(&found), "{found}");
    }

    #[test]
    fn a_few_odd_pairs_later_do_not_matter() {
        let later =
            (10_000..14_000).chain([20_001, 20_000]).chain(30_000..34_000).chain([40_001, 40_000]);
        let found = count((4096..4396).rev().chain(later)).unwrap();
        assert!((290..=300).contains(&found), "{found}");
    }

    #[test]
    fn huge_pages_in_reverse_are_old() {
        let (mut old, key) = (OldPages::default(), (CpuId(0), 0, 13));
        (8..40).rev().for_each(|block| old.note_alloc(key, Pfn(block * 512), 1 << 20));
        (100..140).for_each(|block| old.note_alloc(key, Pfn(block * 512), 1 << 20));
        let pages = old.pages(key, 1 << 20).unwrap();
        assert!((30 * 512..=32 * 512).contains(&pages), "{pages}");
    }

    #[test]
    fn what_was_freed_before_is_not_old() {
        let mut old = OldPages::default();
        old.note(Pfn(4096), 1024);
        (4096..5120).rev().for_each(|frame| old.note_alloc(KEY, Pfn(frame), 10_000));
        assert_eq!(old.pages(KEY, 10_000), None);
    }
}
