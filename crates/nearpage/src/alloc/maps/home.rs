//! Ways home: to the CPU's own pageblocks, to those of others, and to the zone.

use super::parcels::{Parcel, Parcels, Place};
use super::visit::Visit;
use crate::alloc::allocator::PageAllocator;
use crate::frame::{NO_FRAME, ZoneFrames};
use crate::host::{Access, Platform};
use crate::pcp::owned::{Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::passing::Passing;
use crate::pcp::{CountedList, list_order};
use crate::sync::Ordering;
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER};
use crate::zone::{Zone, ZoneEvents};

/// Where blocks that go to another CPU come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    /// From a pageset.
    Passed,
    /// They are freed.
    Freed,
}

/// Blocks that are taken from a list together: 1 KiB of stack.
const CHUNK: usize = 256;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes what is homebound: what is the CPU's own is free there then, the rest is in parcels. Returns whether that is all.
    pub(super) fn gather(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        trip: &mut Parcels<'m>,
    ) -> bool {
        let frames = *pageset.frames();
        let cpu = pageset.owner().cpu;
        self.receive(pageset, hold);
        let (mut next, mut pages) = hold.waiting();
        let mut is_all = true;
        while next != NO_FRAME {
            let (number, frame) = (next, frames.frame(next));
            let (after, order) = (frame.next(), frame.word().order());
            if !hold.put_if_own(&frames, cpu, number, order) && !trip.add(number, order) {
                is_all = false;
                break;
            }
            (next, pages) = (after, pages - order.pages().0 as u32);
        }
        hold.set_waiting((next, pages));
        let mut chunk = [0; CHUNK];
        while is_all {
            let got = hold.take_homebound(&frames, &mut chunk);
            if got == 0 {
                break;
            }
            for &number in &chunk[..got] {
                let order = Order(0);
                if !hold.put_if_own(&frames, cpu, number, order) && !trip.add(number, order) {
                    hold.wait(&frames, number, order);
                    is_all = false;
                }
            }
        }
        is_all
    }

    /// Takes what other CPUs sent: what is the CPU's own is free there then, the rest waits.
    pub(super) fn receive(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>) {
        let (frames, cpu) = (*pageset.frames(), pageset.owner().cpu);
        hold.receive(&frames, &mut |number, order| {
            if !hold.put_if_own(&frames, cpu, number, order) {
                hold.wait(&frames, number, order);
            }
        });
    }

    /// Lets what is still in parcels wait for more on the same way.
    pub(super) fn wait(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>, trip: &mut Parcels<'m>) {
        let (mut first, mut pages) = hold.waiting();
        for parcel in trip.here_mut() {
            pageset.frames().frame(parcel.tail).set_next(first);
            (first, pages) = (parcel.head, pages + parcel.pages);
            parcel.place = Place::Gone;
        }
        hold.set_waiting((first, pages));
    }

    /// Makes a block that the CPU took for itself free again, or lets it wait if its pageblock is not its own any more.
    pub(super) fn put_or_wait(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        number: u32,
        order: Order,
    ) {
        let frames = pageset.frames();
        if !self.go_home(pageset, hold, number, order) {
            frames.word(number).set(frames.cached(order));
            hold.wait(frames, number, order);
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
            for &number in &chunk[..got] {
                // What a refill brought has the word that it had before.
                self.put_or_wait(pageset, hold, number, order);
            }
        }
    }

    /// Frees a block in the CPU's own pageblock; `false` if it is none of its own.
    fn go_home(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        number: u32,
        order: Order,
    ) -> bool {
        let (frames, cpu) = (pageset.frames(), pageset.owner().cpu);
        if hold.put_if_own(frames, cpu, number, order) {
            return true;
        }
        let block = frames.free_in_pageblock(number);
        let is_whole = order == PAGEBLOCK_ORDER
            && block.owner().is_none()
            && frames.pageblock(number).is_mergeable()
            && !frames.is_pageblock_shared(number);
        if is_whole {
            // All of the pageblock is in our hands: nobody else can want it.
            block.set_owner(Some(cpu));
            let mut passed = Passing::new();
            passed.push(frames, number);
            hold.add(frames, passed);
        }
        is_whole
    }

    /// Sends parcels of other CPUs' pageblocks to them, at least `least` pages to each. Returns the pages that were too few.
    pub(super) fn send(
        &self,
        zone: &Zone<'m, P>,
        trip: &mut Parcels<'m>,
        least: u32,
        how: Sending,
    ) -> u32 {
        let frames = *zone.frames();
        let mut too_few = 0;
        for at in 0..trip.all().len() {
            let parcel = trip.all()[at];
            let Some(owner) = owner_of(&frames, &parcel) else { continue };
            let Some(target) = self.owned_of(zone, owner) else { continue };
            let rest = &mut trip.all()[at..];
            let is_theirs = |parcel: &Parcel| owner_of(&frames, parcel) == Some(owner);
            let theirs = rest.iter().filter(|parcel| is_theirs(parcel));
            if theirs.map(|parcel| parcel.pages).sum::<u32>() < least {
                too_few += parcel.pages;
                continue;
            }
            let (mut head, mut last, mut sent) = (NO_FRAME, NO_FRAME, 0);
            for parcel in rest.iter_mut().filter(|parcel| is_theirs(parcel)) {
                match last {
                    NO_FRAME => head = parcel.head,
                    last => frames.frame(last).set_next(parcel.head),
                }
                (last, sent) = (parcel.tail, sent + parcel.pages);
                parcel.place = Place::Gone;
            }
            // Meanwhile they may have become nobody's.
            if last == NO_FRAME {
                continue;
            }
            if how == Sending::Freed {
                target.sent_pages.fetch_add(sent.into(), Ordering::Relaxed);
            }
            let target = &target.pageblocks;
            self.platform.touch(core::ptr::from_ref(target).cast(), Access::Atomic);
            target.send(&frames, head, last, sent);
        }
        too_few
    }

    /// What a CPU that owned a pageblock has of the zone. The CPU is known: it owned one.
    fn owned_of(&self, zone: &Zone<'m, P>, cpu: CpuId) -> Option<&'m Owned> {
        self.cpu(cpu)?.pagesets[zone.index().0 as usize].owned()
    }

    /// Frees blocks of a zone that nobody holds any more past the pageset: to who has their pageblocks. Whole pageblocks are
    /// the zone's.
    pub(in crate::alloc) fn free_home(&self, zone: &'m Zone<'m, P>, numbers: &[u32]) {
        let frames = *zone.frames();
        let mut rest = numbers;
        while !rest.is_empty() {
            let mut trip = Parcels::new(frames);
            let fits = |number: &&u32| trip.add(**number, frames.word(**number).get().order());
            let fitting = rest.iter().take_while(fits).count();
            rest = &rest[fitting..];
            while trip.pages() > 0 {
                self.send(zone, &mut trip, 1, Sending::Freed);
                let before = trip.pages();
                if before == 0 {
                    break;
                }
                let mut guard = zone.lock_to_move();
                self.platform.touch(zone.published_line(), Access::Write);
                let mut visit = Visit::new(&mut guard, None);
                // What another CPU's has become meanwhile goes there.
                visit.bring_home(&mut trip);
                visit.end();
                drop(guard);
                let pages = u64::from(before - trip.pages());
                ZoneEvents::add(&zone.events().direct_free_pages, pages);
            }
        }
    }
}

/// The CPU that owns the pageblock of a parcel; none if nobody does, or the parcel is gone.
fn owner_of(frames: &ZoneFrames<'_>, parcel: &Parcel) -> Option<CpuId> {
    match parcel.place {
        Place::Here => frames.free_in_pageblock(parcel.first).owner(),
        Place::Claimed | Place::Gone => None,
    }
}
