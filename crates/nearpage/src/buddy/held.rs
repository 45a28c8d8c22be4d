//! For tests: a buddy, and who has been given what of it.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::state::frame_count;
use super::{BlockRequest, Buddy, FallbackModel, FallbackRules, Fragmentation, HeldMovable};
use super::{Insertion, Merging};
use crate::frame::{Migratetype, ZoneFrames};
use crate::testing::random::Random;
use crate::testing::sections::Sections;
use crate::units::{Order, Pfn, ZoneIndex};

pub(super) const RULES: FallbackRules =
    FallbackRules { model: FallbackModel::Linux6_12, held: HeldMovable::Never };
/// Two sections and a bit, from a start within a pageblock.
pub(super) const FIRST: u64 = 1;
pub(super) const FRAMES: u32 = 70_000;

pub(super) fn request(order: u8, migratetype: Migratetype) -> BlockRequest {
    BlockRequest { order: Order(order), migratetype, fragmentation: Fragmentation::Allowed }
}

/// A buddy, and the blocks that somebody holds.
pub(super) struct Held<'m> {
    pub buddy: Buddy,
    pub frames: ZoneFrames<'m>,
    pub is_held: Vec<bool>,
    pub blocks: Vec<(u32, Order)>,
}

impl Held<'_> {
    /// Somebody was given a block.
    pub fn hold(&mut self, first: u32, order: Order) {
        assert!(self.frames.pfn(first).is_aligned(order));
        for page in first..first + frame_count(order) {
            assert!(!self.is_held[page as usize], "page {page} was given twice");
            self.is_held[page as usize] = true;
        }
        self.blocks.push((first, order));
    }

    /// Gives fewer than `most` blocks back that are drawn, to the buddy, but for those that `takes` takes.
    pub fn give_back(
        &mut self,
        random: &mut Random,
        most: u64,
        mut takes: impl FnMut(u32, Order) -> bool,
    ) {
        let mut numbers = Vec::new();
        for _ in 0..random.below(most) {
            if self.blocks.is_empty() {
                break;
            }
            let at = random.below(self.blocks.len() as u64) as usize;
            let (first, order) = self.blocks.swap_remove(at);
            self.is_held[first as usize..(first + frame_count(order)) as usize].fill(false);
            if takes(first, order) {
                continue;
            }
            if order == Order(0) {
                numbers.push(first);
            } else {
                self.buddy.free(self.frames, first, order, Insertion::Usual);
            }
        }
        // Runs, upward or downward.
        match random.below(3) {
            0 => numbers.sort_unstable(),
            1 => numbers.sort_unstable_by(|one, other| other.cmp(one)),
            _ => {}
        }
        self.buddy.free_batch(self.frames, &numbers, Order(0));
    }

    /// Pages that somebody holds.
    pub fn held(&self) -> u64 {
        self.is_held.iter().filter(|held| **held).count() as u64
    }
}

/// Runs a test on a buddy that has the frames from `first` on, and nothing of it is held.
pub(super) fn with_buddy(merging: Merging, first: u32, run: impl FnOnce(Held<'_>)) {
    let sections = Sections::new(3, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(FIRST), ZoneIndex(0));
    let mut buddy = Buddy::new(RULES, merging);
    buddy.online(frames, first..FRAMES);
    run(Held { buddy, frames, is_held: vec![false; FRAMES as usize], blocks: Vec::new() });
}
