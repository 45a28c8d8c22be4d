//! Ways home: to the CPU's own pageblocks, to those of others, and to the zone.

use std_alloc::collections::VecDeque;
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::NaiveAllocator;
use super::kept::At;
use super::maps::{Pages, runs};
use super::owners::first_of;
use super::room::{OF_A_MOVE, OF_A_PAGE, Room, of_a_block, of_a_put};
use super::stage::Fate;
use crate::pcp::{HOMEBOUND, list_order};
use crate::testing::kept::Run;
use crate::units::{CpuId, Order, Pfn};

/// Blocks that are taken from a list together: adjoining ones among them go on together.
const PIECE: usize = 256;
/// CPUs that pages are sent to in one go.
const TARGETS: usize = 16;

/// What was gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    /// Whether there was room for all that was taken.
    pub is_all: bool,
    /// Pages on the stage then, by who owns their pageblocks.
    pub of_nobody: u64,
    pub of_others: u64,
}

impl NaiveAllocator {
    /// Takes what is homebound: what is the CPU's own is free there then, the rest is on the stage.
    pub(super) fn gather(&mut self, at: At) -> Gathered {
        self.gather_some(at, &mut Room::any())
    }

    /// Takes what is homebound, as far as `room` allows.
    pub(super) fn gather_some(&mut self, at: At, room: &mut Room) -> Gathered {
        let waiting = core::mem::take(&mut self.behind(at).waiting);
        let mut is_all = self.receive(at, waiting, room);
        if is_all {
            let received = core::mem::take(&mut self.behind(at).inbox);
            is_all = self.receive(at, received, room);
        }
        while is_all && !room.is_short {
            let piece = PIECE.min(self.behind(at).stage.room());
            let piece = self.pageset(at).lists[HOMEBOUND].len().min(piece) as u64;
            let piece = room.fits(OF_A_PAGE, piece) as usize;
            let pages = self.pop_cold(at, HOMEBOUND, piece);
            if pages.is_empty() {
                is_all = self.pageset(at).lists[HOMEBOUND].is_empty();
                break;
            }
            room.charge(self.put_each(at, &pages));
        }
        let mut gathered = Gathered { is_all, of_nobody: 0, of_others: 0 };
        let mut stage = core::mem::take(&mut self.behind(at).stage);
        stage.each_pageblock(0, |first, pages| {
            let count = pages.len() as u64;
            match self.zones[at.zone].owners.of(first) {
                Some(owner) if owner == at.cpu => {
                    if !room.take(1 + of_a_put(count)) {
                        return Fate::Stop;
                    }
                    self.put(at, &pages);
                    return Fate::Gone;
                }
                Some(_) => gathered.of_others += count,
                None if count == 512 && !room.take(OF_A_MOVE) => return Fate::Stop,
                None if count == 512 && self.adopt_whole(at, first) => return Fate::Gone,
                None => gathered.of_nobody += count,
            }
            Fate::Kept
        });
        self.behind(at).stage = stage;
        gathered
    }

    /// Takes up to so many blocks from the cold end of a list, coldest first.
    fn pop_cold(&mut self, at: At, list: usize, most: usize) -> Vec<Pfn> {
        let pageset = self.pageset(at);
        let queue = &mut pageset.lists[list];
        let kept = queue.len() - most.min(queue.len());
        let taken: Vec<Pfn> = queue.split_off(kept).into_iter().rev().collect();
        pageset.count.0 -= (taken.len() as u64) << list_order(list).0;
        taken
    }

    /// Puts runs that others sent where they belong, the last one first, as long as there is room; the others wait. Returns
    /// whether there was room for all.
    fn receive(&mut self, at: At, mut runs: Vec<Run>, room: &mut Room) -> bool {
        while !runs.is_empty()
            && self.behind(at).stage.room() > 0
            && room.has(OF_A_MOVE)
            && let Some((first, pages)) = runs.pop()
        {
            let is_own = self.zones[at.zone].owners.of(first) == Some(at.cpu);
            room.charge(1 + if is_own { of_a_put(pages) } else { 1 });
            self.put_or_keep(at, first, pages);
        }
        self.behind(at).waiting = runs;
        self.behind(at).waiting.is_empty()
    }

    /// Puts runs where they belong, the last one first; returns whether there was room.
    fn put_runs(&mut self, at: At, runs: Vec<Run>) -> bool {
        // All of them are put, whether there was room for one or not.
        let there_was_room =
            runs.into_iter().rev().map(|(first, pages)| self.put_or_keep(at, first, pages));
        there_was_room.filter(|one| !one).count() == 0
    }

    /// Puts pages of one pageblock where they belong: among what is free there if it is the CPU's, or on the stage, or to those
    /// that wait. Returns whether there was room.
    fn put_or_keep(&mut self, at: At, first: Pfn, pages: u64) -> bool {
        if self.zones[at.zone].owners.of(first) == Some(at.cpu) {
            self.put(at, &super::maps::run(first, pages));
            return true;
        }
        let kept = self.behind(at);
        let has_room = kept.stage.add(first, pages);
        if !has_room {
            kept.waiting.push((first, pages));
        }
        has_room
    }

    /// Puts single pages of a list where they belong; those that adjoin each other, in either direction, together. Returns what
    /// that is worth.
    fn put_each(&mut self, at: At, pages: &[Pfn]) -> u64 {
        let (mut rest, mut operations) = (pages, pages.len() as u64);
        while let Some(&first) = rest.first() {
            let up = adjoining(rest, |at| Some(first.0 + at));
            let down = adjoining(rest, |at| first.0.checked_sub(at));
            let count = up.max(down);
            let lowest = first.min(rest[count - 1]);
            if count > 1 || !self.behind(at).stage.add(lowest, 1) {
                self.put_or_keep(at, lowest, count as u64);
                operations += of_a_put((count as u64).min(2).max(count as u64 / 64 + 1));
            } else {
                operations += 1;
            }
            rest = &rest[count..];
        }
        operations
    }

    /// Puts a block where it belongs.
    fn put_block(&mut self, at: At, pfn: Pfn, order: Order) {
        if order < Order(9) {
            self.put_or_keep(at, pfn, order.pages().0);
            return;
        }
        for first in (pfn.0..pfn.0 + order.pages().0).step_by(512).map(Pfn) {
            if !self.adopt_whole(at, first) {
                self.put_or_keep(at, first, 512);
            }
        }
    }

    /// Moves the coldest blocks of a list to where they belong, until it has no more than `most`.
    pub(super) fn spill(&mut self, at: At, list: usize, most: usize, room: &mut Room) {
        let order = list_order(list);
        loop {
            let more = self.pageset(at).lists[list].len().saturating_sub(most);
            let piece = room.fits(of_a_block(order), more.min(PIECE) as u64) as usize;
            let blocks = self.pop_cold(at, list, piece);
            if blocks.is_empty() {
                return;
            }
            if order == Order(0) {
                room.charge(self.put_each(at, &blocks));
            } else {
                blocks.iter().for_each(|&pfn| self.put_block(at, pfn, order));
                room.charge(of_a_block(order) * blocks.len() as u64);
            }
        }
    }

    /// Sends what is on the stage of other CPUs' pageblocks to them, at least `least` pages to each. Returns the pages of others
    /// that stay.
    pub(super) fn send(&mut self, at: At, least: u64, room: &mut Room) -> u64 {
        loop {
            let (mut parcels, mut left_out): (Vec<(CpuId, Vec<Run>)>, u64) = (vec![], 0);
            let mut stage = core::mem::take(&mut self.behind(at).stage);
            stage.each_pageblock(0, |first, pages| {
                let owner = self.zones[at.zone].owners.of(first).filter(|&cpu| cpu != at.cpu);
                let Some(owner) = owner else { return Fate::Kept };
                let known = parcels.iter().position(|(cpu, _)| *cpu == owner);
                if known.is_none() && parcels.len() == TARGETS {
                    left_out += pages.len() as u64;
                    return Fate::Kept;
                }
                let place = known.unwrap_or(parcels.len());
                if known.is_none() {
                    parcels.push((owner, vec![]));
                }
                let fitting = room.take_steps(pages.len() as u64) as usize;
                let sent: Pages = pages.iter().take(fitting).copied().collect();
                let rest: Pages = pages.difference(&sent).copied().collect();
                let sent = runs(&sent).into_iter().map(|(at, end)| (Pfn(at), end - at));
                parcels[place].1.extend(sent);
                if rest.is_empty() { Fate::Gone } else { Fate::StopWith(rest) }
            });
            self.behind(at).stage = stage;
            let (mut was_any_sent, mut too_few) = (false, 0);
            for (owner, parcel) in parcels {
                let pages = parcel.iter().map(|(_, pages)| pages).sum::<u64>();
                if pages >= least {
                    self.behind(At { cpu: owner, ..at }).send(parcel);
                    was_any_sent = true;
                } else {
                    too_few += pages;
                    self.put_runs(at, parcel);
                }
            }
            if left_out == 0 || !was_any_sent || room.is_short {
                return too_few + left_out;
            }
        }
    }

    /// Frees blocks of a zone past the pageset: to who has their pageblocks. Those of one pageblock that stand next to each
    /// other go together.
    pub(super) fn free_home(&mut self, zone: usize, pages: &[Pfn], order: Order) {
        let parcel = |blocks: &[Pfn]| -> Pages {
            blocks.iter().flat_map(|pfn| pfn.0..pfn.0 + order.pages().0).map(Pfn).collect()
        };
        let mut parcels: VecDeque<Pages> =
            pages.chunk_by(|one, other| first_of(*one) == first_of(*other)).map(parcel).collect();
        while let Some(pages) = parcels.front() {
            if self.send_to_owner(zone, pages) {
                parcels.pop_front();
                continue;
            }
            let mut visit = self.visit(zone, None);
            while let Some(pages) = parcels.front_mut()
                && self.bring_pages(&mut visit, pages)
            {
                parcels.pop_front();
            }
            self.zones[zone].events.direct_free_pages += visit.returned;
            self.end_visit(&visit);
        }
    }

    /// Sends pages of one pageblock to the CPU that owns it; `false` if none does.
    pub(super) fn send_to_owner(&mut self, zone: usize, pages: &Pages) -> bool {
        let Some(cpu) = pages.first().and_then(|&pfn| self.zones[zone].owners.of(pfn)) else {
            return false;
        };
        let parcel = runs(pages).into_iter().map(|(at, end)| (Pfn(at), end - at));
        self.behind(At { cpu, zone }).send(parcel.collect());
        self.zones[zone].owners.sent_home += 1;
        true
    }
}

/// How many pages, from the first on, are where they are expected and of one pageblock.
fn adjoining(pages: &[Pfn], expected: impl Fn(u64) -> Option<u64>) -> usize {
    let is_next = |&(pfn, at): &(&Pfn, u64)| {
        expected(at) == Some(pfn.0) && first_of(*pfn) == first_of(pages[0])
    };
    pages.iter().zip(0..).take_while(is_next).count()
}
