//! Starts drawn at random among those that a recording and its trace leave open.
//!
//! Drawn for each start: what pagesets held, where the trace does not tell ([`Content`]); how far refills had doubled;
//! where in a zone its free blocks lie; what CPUs have not told a zone's counter of free pages; when idle CPUs wake for
//! their once-a-second work; which pagesets of other nodes' zones are about to give back a batch; and how long background
//! reclaim works behind a page that it is seen to free. What all of them come to is an interval; a kernel whose figure lies
//! in it did nothing that the rules do not allow.

use nearpage::CpuId;
use nearpage::rules::pagesets::{LISTS, list_order};

use crate::findings::Content;

/// A sequence of numbers that follows from one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw(u64);

/// How late the once-a-second work is.
const LATE_MS: [u64; 2] = [10, 130];
/// That of an idle CPU is up to so much later: between these two, as the machine is.
const IDLE_MOST_MS: [u64; 2] = [0, 800];
/// Turns after which a pageset of another node's zone gives back a batch; none: it is not about to.
const EXPIRE_MOST: u64 = 3;
/// How long background reclaim works behind a page that it frees.
const RECLAIM_US: [u64; 2] = [200, 10_000];
/// Refills double so often at most: `PCP_BATCH_SCALE_MAX`.
const DOUBLED_MOST: u64 = 5;

impl Draw {
    /// The draw with this number.
    pub fn new(number: u64) -> Draw {
        Draw(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// The same for one thing of many.
    #[must_use]
    fn of(self, thing: u64) -> Draw {
        let mut draw = Draw(self.0 ^ thing.wrapping_mul(0xD1B5_4A32_D192_ED03));
        draw.next();
        draw
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`.
    fn between(&mut self, [least, most]: [u64; 2]) -> u64 {
        match most.checked_sub(least).and_then(|span| span.checked_add(1)) {
            Some(span) => least + self.next() % span,
            None => least,
        }
    }

    /// Shuffles what can be in any order.
    pub fn shuffle<T>(self, items: &mut [T]) {
        let mut draw = self.of(1);
        for at in (1..items.len()).rev() {
            items.swap(at, draw.between([0, at as u64]) as usize);
        }
    }

    /// How late the once-a-second work of a CPU is, in its turn of that number, if it is awake and if it is idle. A machine
    /// whose CPUs wake seldom, or that waits for a host, is late more often than another.
    pub fn late_ns(self, cpu: CpuId, turn: u64) -> [u64; 2] {
        let ns = |ms: u64| ms * 1_000_000;
        let late_ns = self.of(2).between(LATE_MS.map(ns));
        let most_ns = self.of(9).between(IDLE_MOST_MS.map(ns));
        [late_ns, late_ns + self.of(7).of(cpu.0.into()).of(turn).between([0, most_ns])]
    }

    /// After how many turns a CPU's pageset of another node's zone gives back a batch; none: it is not about to.
    pub fn expire(self, cpu: CpuId, zone: usize) -> u8 {
        self.of(8).of(cpu.0.into()).of(zone as u64).between([0, EXPIRE_MOST]) as u8
    }

    /// How long background reclaim works behind a page that it frees; `None`: until its last one.
    pub fn reclaim_ns(self) -> Option<u64> {
        let mut draw = self.of(3);
        draw.next().is_multiple_of(2).then(|| draw.between(RECLAIM_US.map(|us| us * 1000)))
    }

    /// By how many pages the counter of a zone's free pages is ahead of its free lists: pages that CPUs have taken and not
    /// told, `most` at most.
    pub fn lead(self, zone: usize, most: u64) -> u64 {
        self.of(6).of(zone as u64).between([0, most])
    }

    /// How often the refills of a CPU's pageset have doubled.
    pub fn doubled(self, cpu: CpuId, zone: usize) -> u8 {
        let mut draw = self.of(4).of(cpu.0.into()).of(zone as u64);
        if draw.next().is_multiple_of(2) { 0 } else { draw.between([0, DOUBLED_MOST]) as u8 }
    }

    /// Pages of each list of a CPU's pageset.
    pub fn pages(self, cpu: CpuId, zone: usize, content: &Content) -> [u64; LISTS] {
        let mut draw = self.of(5).of(cpu.0.into()).of(zone as u64);
        let mut left: u64 = content.pages.iter().sum();
        let mut pages = [0; LISTS];
        let mut lists: [usize; LISTS] = std::array::from_fn(|list| list);
        draw.shuffle(&mut lists);
        for list in lists.into_iter().filter(|&list| list != content.rest) {
            let order = list_order(list).0;
            let drawn = draw.between(content.open[list].map(|pages| pages >> order)) << order;
            pages[list] = drawn.min(left) >> order << order;
            left -= pages[list];
        }
        pages[content.rest] = left;
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_what_is_open() {
        let mut content = Content::default();
        (content.pages[0], content.pages[1], content.pages[9]) = (700, 200, 64);
        (content.open[1], content.open[9]) = ([100, 300], [0, 120]);
        let mut seen = std::collections::HashSet::new();
        for number in 0..200 {
            let draw = Draw::new(number);
            assert_eq!(draw, Draw::new(number));
            let pages = draw.pages(CpuId(1), 2, &content);
            assert_eq!(pages.iter().sum::<u64>(), 964);
            assert!(
                (100..=300).contains(&pages[1]) && pages[9] <= 120 && pages[9].is_multiple_of(8)
            );
            let [late_ns, idle_late_ns] = draw.late_ns(CpuId(1), number);
            assert!((10_000_000..=130_000_000).contains(&late_ns));
            assert!((late_ns..=late_ns + 800_000_000).contains(&idle_late_ns));
            assert!(draw.expire(CpuId(1), 2) <= 3);
            assert!(draw.doubled(CpuId(0), 1) <= 5);
            seen.insert(pages);
        }
        assert!(seen.len() > 150, "{}", seen.len());
    }

    #[test]
    fn a_shuffle_keeps_all() {
        let mut items: Vec<u32> = (0..100).collect();
        Draw::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<u32>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<u32>>());
    }
}
