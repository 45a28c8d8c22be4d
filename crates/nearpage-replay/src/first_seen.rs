//! Blocks that a list of a pageset gave for the first time, in the order in which it gave them.
//!
//! A list gives back first what came last. So a block that was seen before in the window is, with few exceptions, one that
//! was freed to that list. A block that was never seen comes from below them: from what the list held at the start, or,
//! once that is used up, from a refill. A sequence of such blocks tells where the one ends and the other begins
//! ([`signs`](crate::signs)). A block that another CPU freed last came through the zone, which proves a refill.

use std::collections::HashMap;

use nearpage::rules::pagesets::list_order;
use nearpage::{CpuId, Order, Pfn};

/// Frames of a chunk.
const CHUNK: usize = 1 << Order::PAGEBLOCK.0;
/// Blocks that are kept of a sequence beyond those that can be of the start: what follows them tells too.
const AHEAD: u64 = 1100;
/// Blocks of other CPUs that make a proof: one may be a block that was freed on this CPU without an event.
const FOREIGN_LEAST: u32 = 2;

/// Fewer odd pairs than this tell nothing.
const PAIRS_LEAST: usize = 4;
/// Nor do fewer than one in so many blocks: in refills there are some too.
const PLACES_MOST: usize = 50;
/// A change is believed that is so much likelier than none (the logarithm).
const CHANGE_LEAST: f64 = 6.0;

/// What is known of a frame: never seen.
const UNSEEN: u8 = 0;
/// Seen, and not freed since, or freed by a CPU whose number has no room here.
const SEEN: u8 = 1;
/// The first of the CPUs by which it was freed last.
const FREED: u8 = 2;

/// A list of a pageset: CPU, zone and index.
pub type ListKey = (CpuId, usize, usize);

/// Frames that a trace has shown, and the sequence of each list.
#[derive(Clone, Debug, Default)]
pub struct FirstSeen {
    frames: HashMap<u64, Box<[u8; CHUNK]>>,
    /// First-time blocks by their first frame: the list, by its position, and the place in its sequence.
    places: HashMap<u64, (u32, u32)>,
    lists: Vec<(ListKey, Sequence)>,
}

/// First-time blocks of a list.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// Their first frames.
    pub frames: Vec<u64>,
    /// Whether each is the second of an *odd pair*: two free buddies lie in one larger block, and a refill takes them
    /// together, the lower one right before the other. Buddies that come in another way were not free together: one of
    /// them was in the list.
    pub is_odd: Vec<bool>,
    /// Places of the first blocks of odd pairs, ascending once finished.
    odd_first: Vec<u32>,
    /// How many blocks came from other CPUs, and the first of those: its place in the sequence, and its frame.
    foreign: u32,
    first_foreign: Option<(u32, u64)>,
    /// How many first-time blocks there were, those that are not kept included.
    pub length: u64,
}

impl Sequence {
    /// A block that proves a refill: the place in the sequence before which it came, and its frame.
    pub fn proof(&self) -> Option<(usize, u64)> {
        let (place, frame) = self.first_foreign.filter(|_| self.foreign >= FOREIGN_LEAST)?;
        Some((place as usize, frame))
    }

    /// How many of the first `reach` blocks were surely in the list at the start: up to where odd pairs become rare, or up
    /// to the last one if they do not. `None` if there are few of them.
    pub fn old_at_least(&self, reach: usize) -> Option<usize> {
        let reach = reach.min(self.frames.len());
        let marks = self.odd_first.iter().map(|&at| at as usize).filter(|&at| at < reach);
        let marks: Vec<usize> = marks.collect();
        let is_frequent = marks.len() >= PAIRS_LEAST && marks.len() * PLACES_MOST > reach;
        let last = marks.last().map(|mark| mark + 1).filter(|_| is_frequent);
        change(&marks, reach).or(last)
    }
}

/// Where the rate of marks among `length` places falls most: the place behind the last mark of the frequent part.
fn change(marks: &[usize], length: usize) -> Option<usize> {
    if marks.len() < PAIRS_LEAST {
        return None;
    }
    // The logarithm of the likelihood of `hits` among `places` at their own rate.
    let fit = |hits: f64, places: f64| {
        let part = |share: f64| if share > 0.0 { share * (share / places).ln() } else { 0.0 };
        if places > 0.0 { part(hits) + part(places - hits) } else { 0.0 }
    };
    let (all, length) = (marks.len() as f64, length as f64);
    let likelihood = |(index, &mark): (usize, &usize)| {
        let (hits, places) = (index as f64 + 1.0, mark as f64 + 1.0);
        let (rest, behind) = (all - hits, (length - places).max(all - hits));
        let is_falling = hits / places > rest / behind.max(1.0);
        let value =
            if is_falling { fit(hits, places) + fit(rest, behind) } else { f64::NEG_INFINITY };
        (value, mark + 1)
    };
    let best = marks.iter().enumerate().map(likelihood).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(value, _)| *value > fit(all, length) + CHANGE_LEAST).map(|(_, place)| place)
}

impl FirstSeen {
    /// Forgets everything: a window begins.
    pub fn clear(&mut self) {
        *self = FirstSeen::default();
    }

    /// Notes a block that a CPU freed.
    pub fn note_free(&mut self, cpu: CpuId, pfn: Pfn, pages: u64) {
        let mark = u8::try_from(cpu.0).ok().and_then(|cpu| cpu.checked_add(FREED)).unwrap_or(SEEN);
        self.mark(pfn, pages, mark);
    }

    /// Notes a block that was allocated past the pagesets.
    pub fn note_direct(&mut self, pfn: Pfn, pages: u64) {
        self.mark(pfn, pages, SEEN);
    }

    /// Notes a block that was allocated from a list, whose pageset held `most` pages at the start.
    pub fn note_alloc(&mut self, key: ListKey, pfn: Pfn, most: u64) {
        let order = list_order(key.2);
        let was = self.mark(pfn, order.pages().0, SEEN);
        if was == SEEN {
            return;
        }
        let list = self.list(key);
        let sequence = &mut self.lists[list as usize].1;
        let place = sequence.frames.len() as u32;
        if was != UNSEEN {
            if u32::from(was - FREED) != key.0.0 {
                sequence.foreign += 1;
                sequence.first_foreign.get_or_insert((place, pfn.0));
            }
            return;
        }
        sequence.length += 1;
        if u64::from(place) >= (most >> order.0) + AHEAD {
            return;
        }
        let buddy = pfn.0 ^ order.pages().0;
        let before = self.places.get(&buddy).filter(|(of, _)| *of == list);
        let is_odd = before.is_some_and(|(_, at)| !(buddy < pfn.0 && at + 1 == place));
        if let Some((_, at)) = before.filter(|_| is_odd) {
            sequence.odd_first.push(*at);
        }
        sequence.frames.push(pfn.0);
        sequence.is_odd.push(is_odd);
        self.places.insert(pfn.0, (list, place));
    }

    /// Marks the frames of a block; returns the highest mark before.
    fn mark(&mut self, pfn: Pfn, pages: u64, mark: u8) -> u8 {
        let mut was = UNSEEN;
        for frame in pfn.0..pfn.0 + pages {
            let chunk = self
                .frames
                .entry(frame / CHUNK as u64)
                .or_insert_with(|| Box::new([UNSEEN; CHUNK]));
            was = was.max(std::mem::replace(&mut chunk[frame as usize % CHUNK], mark));
        }
        was
    }

    fn list(&mut self, key: ListKey) -> u32 {
        let known = self.lists.iter().position(|(of, _)| *of == key);
        known.unwrap_or_else(|| {
            self.lists.push((key, Sequence::default()));
            self.lists.len() - 1
        }) as u32
    }

    /// The sequences, each with its list.
    pub fn lists(&self) -> &[(ListKey, Sequence)] {
        &self.lists
    }

    /// Forgets all but the sequences.
    pub fn finish(&mut self) {
        (self.frames, self.places) = (HashMap::new(), HashMap::new());
        self.lists.iter_mut().for_each(|(_, sequence)| sequence.odd_first.sort_unstable());
    }
}
