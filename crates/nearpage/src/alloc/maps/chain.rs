//! Blocks on their way home, linked through their frames in ascending order: so that those of one pageblock stand together.

use crate::frame::{NO_FRAME, ZoneFrames, first_of};
use crate::units::Order;

/// The blocks, from the lowest frame up. Each is in nobody's hands, and its word says its order.
pub(super) struct Chain<'m> {
    frames: ZoneFrames<'m>,
    head: u32,
    pages: u32,
}

/// Some blocks that stand together in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The first block, the last one, and how many pages there are in all.
    pub first: u32,
    pub last: u32,
    pub blocks: u32,
    pub pages: u32,
}

impl<'m> Chain<'m> {
    pub(super) fn new(frames: ZoneFrames<'m>) -> Self {
        Self { frames, head: NO_FRAME, pages: 0 }
    }

    /// The chain whose first block and pages [`parts`](Self::parts) told.
    pub(super) fn of(frames: ZoneFrames<'m>, (head, pages): (u32, u32)) -> Self {
        Self { frames, head, pages }
    }

    /// The first block, or [`NO_FRAME`], and the pages.
    pub(super) fn parts(self) -> (u32, u32) {
        (self.head, self.pages)
    }

    /// Pages in the chain.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    fn order(&self, number: u32) -> Order {
        self.frames.frame(number).word().order()
    }

    fn next(&self, number: u32) -> u32 {
        self.frames.frame(number).next()
    }

    /// Adds blocks, in any order.
    pub(super) fn add(&mut self, numbers: &mut [u32]) {
        numbers.sort_unstable();
        let (mut before, mut next) = (NO_FRAME, self.head);
        for &mut number in numbers {
            while next < number {
                (before, next) = (next, self.next(next));
            }
            self.frames.frame(number).set_next(next);
            self.link(before, number);
            self.pages += self.order(number).pages().0 as u32;
            before = number;
        }
    }

    /// Lets the block after `before`, or the first one, be `number`.
    fn link(&mut self, before: u32, number: u32) {
        match before {
            NO_FRAME => self.head = number,
            before => self.frames.frame(before).set_next(number),
        }
    }

    /// Takes the blocks of the first pageblock out.
    pub(super) fn take_first(&mut self) -> Option<Part> {
        let first = Some(self.head).filter(|&head| head != NO_FRAME)?;
        let mut part = Part { first, last: first, blocks: 0, pages: 0 };
        let mut next = first;
        while next != NO_FRAME && first_of(next) == first_of(first) {
            part = Part {
                last: next,
                blocks: part.blocks + 1,
                pages: part.pages + self.order(next).pages().0 as u32,
                ..part
            };
            next = self.next(next);
        }
        self.head = next;
        self.pages -= part.pages;
        Some(part)
    }

    /// Adds a part that was taken out, whose blocks lie above all others, behind the block `last`, or at the front if that
    /// is [`NO_FRAME`].
    pub(super) fn append(&mut self, last: u32, part: Part) {
        self.frames.frame(part.last).set_next(NO_FRAME);
        self.link(last, part.first);
        self.pages += part.pages;
    }

    /// The last block, or [`NO_FRAME`].
    pub(super) fn last(&self) -> u32 {
        let (mut last, mut next) = (NO_FRAME, self.head);
        while next != NO_FRAME {
            (last, next) = (next, self.next(next));
        }
        last
    }

    /// Adds the blocks of another chain.
    pub(super) fn add_chain(&mut self, other: Chain<'m>) {
        let (mut before, mut next, mut added) = (NO_FRAME, self.head, other.head);
        while added != NO_FRAME {
            while next < added {
                (before, next) = (next, self.next(next));
            }
            let after = self.next(added);
            self.frames.frame(added).set_next(next);
            self.link(before, added);
            (before, added) = (added, after);
        }
        self.pages += other.pages;
    }

    /// Takes all blocks out, of which `last` is the last one.
    pub(super) fn take_all(self, last: u32) -> Option<Part> {
        let first = Some(self.head).filter(|&head| head != NO_FRAME)?;
        Some(Part { first, last, blocks: 0, pages: self.pages })
    }

    /// Calls `each` with the blocks of a part that was taken out; it may write their links.
    pub(super) fn each(frames: &ZoneFrames<'_>, part: Part, mut each: impl FnMut(u32, Order)) {
        let mut next = part.first;
        for _ in 0..part.blocks {
            let (number, frame) = (next, frames.frame(next));
            next = frame.next();
            each(number, frame.word().order());
        }
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
    fn blocks_come_out_by_pageblock_and_ascending() {
        let sections = Sections::new(1, |_| false);
        let table = sections.table();
        let frames = table.frames(Pfn(0), ZoneIndex(0));
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut numbers: Vec<u32> = (0..4096).filter(|_| random.one_in(9)).collect();
            for number in &numbers {
                frames.frame(*number).set_word(Word::cached(Order(0), ZoneIndex(0)));
            }
            for at in (1..numbers.len()).rev() {
                numbers.swap(at, random.below(at as u64 + 1) as usize);
            }
            let mut chain = Chain::new(frames);
            for part in numbers.chunks_mut(1 + random.below(300) as usize) {
                chain.add(part);
            }
            assert_eq!(chain.pages() as usize, numbers.len());
            let (mut found, mut kept, mut last) = (Vec::new(), Chain::new(frames), NO_FRAME);
            while let Some(part) = chain.take_first() {
                assert_eq!(first_of(part.first), first_of(part.last));
                Chain::each(&frames, part, |number, _| found.push(number));
                kept.append(last, part);
                last = part.last;
            }
            assert_eq!((chain.pages(), kept.pages() as usize), (0, numbers.len()));
            numbers.sort_unstable();
            assert_eq!(found, numbers);
            while let Some(part) = kept.take_first() {
                Chain::each(&frames, part, |number, _| {
                    found.remove(found.iter().position(|&other| other == number).unwrap());
                });
            }
            assert!(found.is_empty());
        }
    }
}
