//! Blocks on their way home, by pageblock: each parcel has the blocks of one, linked through their frames in any order.

use crate::frame::{FreeMap, NO_FRAME, ZoneFrames, first_of};
use crate::units::{Order, PAGEBLOCK_ORDER};

/// The most parcels of a trip: about as many pageblocks as one hold of a zone's lock can pass. 2 KiB of stack.
const MOST: usize = 96;
/// Places by which a pageblock's parcel is found: a power of two, some of them empty.
const SLOTS: usize = 256;
const NONE: u8 = u8::MAX;
const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

/// The blocks of one pageblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parcel {
    /// The pageblock, by its first frame.
    pub first: u32,
    /// The block that was added last, and the one that was added first.
    pub head: u32,
    pub tail: u32,
    pub blocks: u32,
    pub pages: u32,
    pub place: Place,
}

/// Where the blocks of a parcel are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the parcel.
    Here,
    /// In the parcel, whose pageblock has become the CPU's.
    Claimed,
    /// At home, or with another CPU.
    Gone,
}

impl Parcel {
    /// Calls `each` with the blocks; it may write their links.
    pub(super) fn each(&self, frames: &ZoneFrames<'_>, mut each: impl FnMut(u32, Order)) {
        let mut next = self.head;
        for _ in 0..self.blocks {
            let (number, frame) = (next, frames.frame(next));
            next = frame.next();
            each(number, frame.word().order());
        }
    }

    /// Which pages of the pageblock the blocks are.
    pub(super) fn map(&self, frames: &ZoneFrames<'_>) -> FreeMap {
        let mut map = FreeMap::NONE;
        self.each(frames, |number, order| {
            let at = number - self.first;
            map.add(at..at + order.pages().0 as u32);
        });
        map
    }
}

/// The parcels of a trip.
pub(super) struct Parcels<'m> {
    frames: ZoneFrames<'m>,
    parcels: [Parcel; MOST],
    len: usize,
    slots: [u8; SLOTS],
}

impl<'m> Parcels<'m> {
    pub(super) fn new(frames: ZoneFrames<'m>) -> Self {
        let (head, tail, place) = (NO_FRAME, NO_FRAME, Place::Gone);
        let none = Parcel { first: NO_FRAME, head, tail, blocks: 0, pages: 0, place };
        Self { frames, parcels: [none; MOST], len: 0, slots: [NONE; SLOTS] }
    }

    /// Adds a block, whose word says its order; `false` if there is no room for another pageblock.
    #[inline]
    pub(super) fn add(&mut self, number: u32, order: Order) -> bool {
        let first = first_of(number);
        // Neighbours fall into different slots.
        let mut slot = (first / PAGES) as usize % SLOTS;
        let at = loop {
            match self.slots[slot] {
                NONE if self.len == MOST => return false,
                NONE => {
                    self.slots[slot] = self.len as u8;
                    let (head, tail, place) = (NO_FRAME, number, Place::Here);
                    self.parcels[self.len] =
                        Parcel { first, head, tail, blocks: 0, pages: 0, place };
                    self.len += 1;
                    break self.len - 1;
                }
                at if self.parcels[at as usize].first == first => break at as usize,
                _ => slot = (slot + 1) % SLOTS,
            }
        };
        let parcel = &mut self.parcels[at];
        self.frames.frame(number).set_next(parcel.head);
        parcel.head = number;
        parcel.blocks += 1;
        parcel.pages += order.pages().0 as u32;
        true
    }

    /// All parcels.
    pub(super) fn all(&mut self) -> &mut [Parcel] {
        &mut self.parcels[..self.len]
    }

    /// Parcels that are not gone, nor the CPU's.
    pub(super) fn here(&self) -> impl Iterator<Item = &Parcel> {
        self.parcels[..self.len].iter().filter(|parcel| parcel.place == Place::Here)
    }

    /// The same, to be changed.
    pub(super) fn here_mut(&mut self) -> impl Iterator<Item = &mut Parcel> {
        self.all().iter_mut().filter(|parcel| parcel.place == Place::Here)
    }

    /// Pages in those parcels.
    pub(super) fn pages(&self) -> u32 {
        self.here().map(|parcel| parcel.pages).sum()
    }

    /// Those of them whose pageblocks nobody owns.
    pub(super) fn pages_of_nobody(&self) -> u32 {
        let is_nobodys =
            |parcel: &&Parcel| self.frames.free_in_pageblock(parcel.first).owner().is_none();
        self.here().filter(is_nobodys).map(|parcel| parcel.pages).sum()
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;
    use crate::frame::Word;
    use crate::testing::random::Random;
    use crate::testing::sections::Sections;
    use crate::units::{Pfn, ZoneIndex};

    #[test]
    fn each_pageblock_has_its_blocks() {
        let sections = Sections::new(2, |_| false);
        let table = sections.table();
        let frames = table.frames(Pfn(0), ZoneIndex(0));
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut trip = Parcels::new(frames);
            let (mut added, mut refused) = (Vec::new(), 0);
            for _ in 0..1500 {
                let number = random.below(65_536) as u32;
                if added.contains(&number) {
                    continue;
                }
                frames.frame(number).set_word(Word::cached(Order(0), ZoneIndex(0)));
                match trip.add(number, Order(0)) {
                    true => added.push(number),
                    false => refused += 1,
                }
            }
            assert!(refused > 0 && trip.all().len() == MOST);
            assert_eq!(trip.pages() as usize, added.len());
            let mut found = Vec::new();
            for parcel in trip.all() {
                assert_eq!(parcel.map(&frames).count(), parcel.pages);
                parcel.each(&frames, |number, order| {
                    assert_eq!((first_of(number), order), (parcel.first, Order(0)));
                    found.push(number);
                });
                assert_eq!(found.last(), Some(&parcel.tail));
            }
            found.sort_unstable();
            added.sort_unstable();
            assert_eq!(found, added);
        }
    }
}
