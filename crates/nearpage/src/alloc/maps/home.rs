//! Ways home: to the CPU's own pageblocks, to those of others, and to the zone.

use super::visit::Visit;
use crate::alloc::allocator::PageAllocator;
use crate::frame::{FreeMap, ZoneFrames, first_of};
use crate::host::{Access, Platform};
use crate::pcp::owned::{Chain, Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::parcels::PARCELS;
use crate::pcp::passing::Passing;
use crate::pcp::{CountedList, HOMEBOUND, list_order};
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER};
use crate::zone::{Zone, ZoneEvents};

/// Where pages that go to another CPU come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    /// From a pageset.
    Passed,
    /// They are freed.
    Freed,
}

/// Blocks that are taken from a list together: 1 KiB of stack.
const CHUNK: usize = 256;
const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes what is homebound: what is the CPU's own is free there then, the rest is in parcels. Returns whether that is all.
    pub(super) fn gather(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
    ) -> bool {
        let waiting = hold.take_waiting();
        let mut is_all = self.put_chain(pageset, hold, waiting) && self.receive(pageset, hold);
        let mut chunk = [0; CHUNK];
        while is_all {
            let got = pageset.pop_cold(self.platform.storage(), on, HOMEBOUND, &mut chunk);
            if got == 0 {
                break;
            }
            is_all = self.put_each(pageset, hold, &chunk[..got]);
        }
        is_all
    }

    /// Takes what other CPUs sent: what is the CPU's own is free there then, the rest is in parcels, or waits. Returns whether
    /// nothing had to wait.
    pub(super) fn receive(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>) -> bool {
        let received = hold.take_inbox(pageset.frames());
        self.put_chain(pageset, hold, received)
    }

    fn put_chain(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>, mut chain: Chain) -> bool {
        let (frames, mut is_all) = (pageset.frames(), true);
        while let Some((number, pages)) = chain.pop(frames) {
            is_all &= hold.put_or_keep(frames, pageset.owner().cpu, number, pages);
        }
        is_all
    }

    /// Puts single pages where they belong, those that adjoin together.
    fn put_each(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>, numbers: &[u32]) -> bool {
        let (mut rest, mut is_all) = (numbers, true);
        while let [number, ..] = rest {
            let run = run_at_start(rest);
            // They may lie in either direction.
            let first = rest[run - 1].min(*number);
            is_all &=
                hold.put_or_keep(pageset.frames(), pageset.owner().cpu, first, run as u32);
            rest = &rest[run..];
        }
        is_all
    }

    /// Makes a block that the CPU took for itself free again, or puts it on its way if its pageblock is not its own any more.
    pub(super) fn put_back(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        number: u32,
        order: Order,
    ) {
        let end = number + order.pages().0 as u32;
        for first in (number..end).step_by(PAGES as usize) {
            let pages = (end - first).min(PAGES);
            let is_adopted = pages == PAGES && self.adopt_whole(pageset, hold, first);
            if !is_adopted {
                hold.put_or_keep(pageset.frames(), pageset.owner().cpu, first, pages);
            }
        }
    }

    /// Moves blocks from the cold end of a list to where they belong, until it has no more than `most`.
    pub(super) fn spill(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        (on, list): (&OnCpu<'_, P>, usize),
        most: u32,
    ) {
        let (storage, order) = (self.platform.storage(), list_order(list));
        let mut chunk = [0; CHUNK];
        loop {
            let more = pageset.list(list).count().saturating_sub(most) as usize;
            let want = more.min(CHUNK);
            let got = pageset.pop_cold(storage, on, list, &mut chunk[..want]);
            if got == 0 {
                return;
            }
            if order == Order(0) {
                self.put_each(pageset, hold, &chunk[..got]);
            } else {
                chunk[..got].iter().for_each(|&number| self.put_back(pageset, hold, number, order));
            }
        }
    }

    /// Makes a pageblock the CPU's of which all pages are in our hands, if nobody owns it; returns whether.
    fn adopt_whole(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>, first: u32) -> bool {
        let frames = pageset.frames();
        let block = frames.free_in_pageblock(first);
        let may_own = block.owner().is_none()
            && frames.pageblock(first).is_mergeable()
            && !frames.is_pageblock_shared(first);
        if may_own {
            // Nobody else can want it: all of it is ours.
            block.set_owner(Some(pageset.owner().cpu));
            let mut passed = Passing::new();
            passed.push(frames, first);
            hold.add(frames, passed);
        }
        may_own
    }

    /// Sends parcels of other CPUs' pageblocks to them, at least `least` pages to each. Returns the pages that were too few.
    pub(super) fn send(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>, least: u32) -> u32 {
        let (frames, parcels) = (pageset.frames(), hold.parcels());
        let mut owners = [None; PARCELS];
        let mut too_few = 0;
        for at in parcels.places() {
            owners[at] = frames.free_in_pageblock(parcels.first(at)).owner();
        }
        for at in 0..PARCELS {
            let Some(owner) = owners[at] else { continue };
            let is_theirs = |&at: &usize| owners[at] == Some(owner);
            let pages: u32 = (at..PARCELS).filter(is_theirs).map(|at| parcels.pages(at)).sum();
            let target = self.owned_of(pageset.zone(), owner).filter(|_| pages >= least);
            if target.is_none() {
                too_few += pages;
            }
            let mut chain = Chain::NONE;
            for at in at..PARCELS {
                if owners[at] == Some(owner) {
                    owners[at] = None;
                    if target.is_some() {
                        chain.push_map(frames, parcels.first(at), parcels.take(at));
                    }
                }
            }
            if let Some(target) = target {
                self.send_to(target, frames, chain, Sending::Passed);
            }
        }
        too_few
    }

    fn send_to(&self, target: &Owned, frames: &ZoneFrames<'_>, chain: Chain, how: Sending) {
        if how == Sending::Freed {
            target.note_sent(chain.pages());
        }
        let target = &target.pageblocks;
        self.platform.touch(core::ptr::from_ref(target).cast(), Access::Atomic);
        target.send(frames, chain);
    }

    /// What a CPU that owned a pageblock has of the zone. The CPU is known: it owned one.
    fn owned_of(&self, zone: &Zone<'m, P>, cpu: CpuId) -> Option<&'m Owned> {
        self.cpu(cpu)?.pagesets[zone.index().0 as usize].owned()
    }

    /// Frees blocks of a zone that nobody holds any more past the pageset: to who has their pageblocks. Whole pageblocks are
    /// the zone's.
    pub(in crate::alloc) fn free_home(&self, zone: &'m Zone<'m, P>, numbers: &[u32]) {
        let frames = zone.frames();
        let mut rest = numbers;
        while !rest.is_empty() {
            let (first, map, blocks) = parcel_at_start(frames, rest);
            if let Some(owner) = frames.free_in_pageblock(first).owner()
                && let Some(target) = self.owned_of(zone, owner)
            {
                let mut chain = Chain::NONE;
                chain.push_map(frames, first, map);
                self.send_to(target, frames, chain, Sending::Freed);
                rest = &rest[blocks..];
                continue;
            }
            let (before, mut guard) = (rest, zone.lock_to_move());
            self.platform.touch(zone.published_line(), Access::Write);
            let mut visit = Visit::new(&mut guard, None);
            while !rest.is_empty() {
                let (first, map, blocks) = parcel_at_start(frames, rest);
                // What another CPU's has become meanwhile goes there.
                if !visit.bring_pages(first, map) {
                    break;
                }
                rest = &rest[blocks..];
            }
            let returned = visit.end().returned;
            drop(guard);
            debug_assert!(returned == 0 || rest.len() < before.len(), "what came back is gone");
            ZoneEvents::add(&zone.events().direct_free_pages, returned);
        }
    }
}

/// How many of these pages, from the first on, adjoin each other in one pageblock, upwards or downwards.
fn run_at_start(numbers: &[u32]) -> usize {
    let first = numbers[0];
    let run = |step: u32| {
        let in_order = numbers.iter().zip(0..).take_while(|&(&number, at)| {
            number == first.wrapping_add(step.wrapping_mul(at)) && first_of(number) == first_of(first)
        });
        in_order.count()
    };
    match numbers.get(1) {
        Some(&second) if second == first.wrapping_sub(1) => run(u32::MAX),
        Some(&second) if second == first + 1 => run(1),
        _ => 1,
    }
}

/// The blocks of one pageblock that `numbers` begin with: the pageblock, their pages, and how many blocks they are. Their words
/// say their orders.
fn parcel_at_start(frames: &ZoneFrames<'_>, numbers: &[u32]) -> (u32, FreeMap, usize) {
    let first = first_of(numbers[0]);
    let (mut map, mut blocks) = (FreeMap::NONE, 0);
    for &number in numbers.iter().take_while(|&&number| first_of(number) == first) {
        let at = number - first;
        map.add(at..at + frames.word(number).get().order().pages().0 as u32);
        blocks += 1;
    }
    (first, map, blocks)
}
