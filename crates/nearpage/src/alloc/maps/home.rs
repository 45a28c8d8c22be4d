//! Ways home: to the CPU's own pageblocks, to those of others, and to the zone.

use super::room::{OF_A_MOVE, OF_A_PAGE, OF_A_STEP, Room, of_a_block, of_a_put};
use super::visit::{Visit, touch_pageblock};
use crate::alloc::allocator::PageAllocator;
use crate::frame::{FreeMap, ZoneFrames, first_of};
use crate::host::{Access, Platform};
use crate::pcp::owned::{Chain, Hold, Owned, Staged};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::stage::Fate;
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

/// What was gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    /// Whether the stage had room for all.
    pub(super) is_all: bool,
    /// What is on the stage then.
    pub(super) staged: Staged,
}

/// CPUs that pages are sent to in one go.
const TARGETS: usize = 16;
/// Blocks that are taken from a list together: 1 KiB of stack.
const CHUNK: usize = 256;
const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes what is homebound: what is the CPU's own is free there then, the rest is on the stage.
    pub(super) fn gather(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
    ) -> Gathered {
        self.gather_some(on, pageset, hold, &mut Room::any())
    }

    /// Takes what is homebound, as far as `room` allows.
    pub(super) fn gather_some(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        room: &mut Room,
    ) -> Gathered {
        let is_all = self.put_chain(pageset, hold, hold.take_waiting(), room)
            && self.put_chain(pageset, hold, hold.take_inbox(), room)
            && (pageset.list(HOMEBOUND).count() == 0 || self.put_listed(on, pageset, hold, room));
        let frames = pageset.frames();
        let touch = |first, access| touch_pageblock(&self.platform, frames, first, access);
        let may_put = |pages| room.take(OF_A_STEP + of_a_put(pages));
        let staged = hold.put_own(frames, pageset.owner().cpu, may_put, touch);
        Gathered { is_all, staged }
    }

    /// Takes homebound pages off their list, and puts them where they belong, as long as `room` allows. Returns whether that was
    /// so, and the stage had room, for all.
    fn put_listed(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        room: &mut Room,
    ) -> bool {
        let mut chunk = [0; CHUNK];
        while !room.is_short() {
            let fitting = hold.stage().room().min(CHUNK);
            let want = pageset.list(HOMEBOUND).count().min(fitting as u32);
            let want = room.fits(OF_A_PAGE, want) as usize;
            let got = pageset.pop_cold(self.platform.storage(), on, HOMEBOUND, &mut chunk[..want]);
            if got == 0 {
                return pageset.list(HOMEBOUND).count() == 0;
            }
            room.charge(self.put_each(pageset, hold, &chunk[..got]));
        }
        true
    }

    /// Puts runs that came from other CPUs where they belong: among what is free in the CPU's own pageblocks, or on the stage.
    /// Returns whether there was room for all; the others wait.
    fn put_chain(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        mut chain: Chain,
        room: &mut Room,
    ) -> bool {
        let frames = pageset.frames();
        while !chain.is_empty()
            && hold.stage().room() > 0
            && room.has(OF_A_MOVE)
            && let Some((number, pages)) = chain.pop(frames)
        {
            touch_pageblock(&self.platform, frames, number, Access::Read);
            let cpu = pageset.owner().cpu;
            let is_own = frames.free_in_pageblock(number).owner() == Some(cpu);
            room.charge(OF_A_STEP + if is_own { of_a_put(pages) } else { OF_A_STEP });
            hold.put_or_keep(frames, cpu, number, pages);
        }
        hold.leave_waiting(chain);
        hold.note_uses(chain.sent());
        chain.is_empty()
    }

    /// Puts single pages of a list where they belong, those that adjoin together; single ones on the stage. Returns the
    /// operations of that, and of taking them off the list: no more than [`OF_A_PAGE`] each.
    pub(super) fn put_each(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        numbers: &[u32],
    ) -> u32 {
        let (mut rest, mut operations) = (numbers, OF_A_STEP * numbers.len() as u32);
        while let [number, ..] = rest {
            let run = run_at_start(rest);
            // They may lie in either direction.
            let first = rest[run - 1].min(*number);
            if run > 1 || !hold.stage().add(first, 1) {
                let (frames, cpu) = (pageset.frames(), pageset.owner().cpu);
                touch_pageblock(&self.platform, frames, first, Access::Write);
                hold.put_or_keep(frames, cpu, first, run as u32);
                // Adjoining pages are in two words, or in more if they are many.
                operations += of_a_put((run as u32).min(2).max(run as u32 / 64 + 1));
            } else {
                operations += OF_A_STEP;
            }
            rest = &rest[run..];
        }
        operations
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
            let (frames, cpu) = (pageset.frames(), pageset.owner().cpu);
            if pages < PAGES || !hold.adopt_whole(frames, cpu, first) {
                hold.put_or_keep(frames, cpu, first, pages);
            }
        }
    }

    /// Moves blocks from the cold end of a list to where they belong, until it has no more than `most`, or there is no more room
    /// for it.
    pub(super) fn spill(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        (on, list): (&OnCpu<'_, P>, usize),
        most: u32,
        room: &mut Room,
    ) {
        let (storage, order) = (self.platform.storage(), list_order(list));
        if pageset.list(list).count() <= most {
            return;
        }
        let mut chunk = [0; CHUNK];
        loop {
            let more = pageset.list(list).count().saturating_sub(most);
            let want = room.fits(of_a_block(order), more.min(CHUNK as u32)) as usize;
            let got = pageset.pop_cold(storage, on, list, &mut chunk[..want]);
            if got == 0 {
                return;
            }
            if order == Order(0) {
                room.charge(self.put_each(pageset, hold, &chunk[..got]));
            } else {
                chunk[..got].iter().for_each(|&number| self.put_back(pageset, hold, number, order));
                room.charge(of_a_block(order) * got as u32);
            }
        }
    }

    /// Sends what is on the stage of other CPUs' pageblocks to them, at least `least` pages to each, as far as there is room for
    /// it. Returns the pages of others that are left: they were too few, or of CPUs that come after too many such.
    pub(super) fn send(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        least: u32,
        room: &mut Room,
    ) -> u32 {
        let frames = pageset.frames();
        loop {
            let mut chains = [(CpuId::NONE, Chain::NONE); TARGETS];
            // Of those that there was no place for, which are too many to be looked at together.
            let mut left_out = 0;
            hold.stage().each_parcel(0, |first, parcel| {
                let owner = frames.free_in_pageblock(first).owner();
                let Some(owner) = owner.filter(|&owner| owner != pageset.owner().cpu) else {
                    return Fate::Kept;
                };
                let place = { chains.iter_mut() }.find(|(of, _)| [owner, CpuId::NONE].contains(of));
                let Some((of, chain)) = place else {
                    left_out += parcel.pages();
                    return Fate::Kept;
                };
                *of = owner;
                let mut map = parcel.map();
                // They may be as many runs.
                let fitting = room.take_steps(parcel.pages());
                if fitting < parcel.pages() {
                    chain.push_map(frames, first, map.take_first(fitting));
                    parcel.leave(&map);
                    return Fate::Stop;
                }
                chain.push_map(frames, first, map);
                Fate::Gone
            });
            let (mut is_any, mut too_few) = (false, 0);
            for (owner, mut chain) in chains {
                match self.owned_of(pageset.zone(), owner).filter(|_| chain.pages() >= least) {
                    Some(target) => {
                        self.send_to(target, frames, chain, Sending::Passed);
                        is_any = true;
                    }
                    None => {
                        too_few += chain.pages();
                        while let Some((first, pages)) = chain.pop(frames) {
                            hold.put_or_keep(frames, pageset.owner().cpu, first, pages);
                        }
                    }
                }
            }
            if left_out == 0 || !is_any || room.is_short() {
                return too_few + left_out;
            }
        }
    }

    fn send_to(&self, target: &Owned<'_>, frames: &ZoneFrames<'_>, chain: Chain, how: Sending) {
        if how == Sending::Freed {
            target.note_sent(chain.pages());
        }
        let target = &target.pageblocks;
        self.platform.touch(core::ptr::from_ref(target).cast(), Access::Atomic);
        target.send(frames, chain);
    }

    /// What a CPU that owned a pageblock has of the zone. The CPU is known: it owned one.
    fn owned_of(&self, zone: &Zone<'m, P>, cpu: CpuId) -> Option<&'m Owned<'m>> {
        self.cpu(cpu)?.pagesets[zone.index().0 as usize].owned()
    }

    /// Frees blocks of a zone that nobody holds any more past the pageset: to who has their pageblocks. Whole pageblocks are
    /// the zone's.
    pub(in crate::alloc) fn free_home(&self, zone: &'m Zone<'m, P>, numbers: &[u32]) {
        let (frames, mut rest) = (zone.frames(), numbers);
        let mut next = || parcel_at_start(frames, &mut rest);
        let mut parcel = next();
        while let Some((first, map)) = parcel {
            if self.send_map(zone, first, map) {
                parcel = next();
                continue;
            }
            let mut guard = zone.lock_to_move();
            let mut visit = Visit::new(&mut guard, &self.platform, None);
            // What another CPU's has become meanwhile goes there.
            while let Some((first, map)) = &mut parcel
                && let pages = map.count()
                && visit.bring_pages(*first, map, pages)
            {
                parcel = next();
            }
            ZoneEvents::add(&zone.events().direct_free_pages, visit.end().returned);
        }
    }

    /// Brings pages of one pageblock, which are nobody's yet, to who has the pageblock.
    pub(in crate::alloc) fn bring_map_home(
        &self,
        zone: &'m Zone<'m, P>,
        first: u32,
        mut map: FreeMap,
    ) {
        while !self.send_map(zone, first, map) {
            let mut guard = zone.lock_to_move();
            let mut visit = Visit::new(&mut guard, &self.platform, None);
            let pages = map.count();
            let is_home = visit.bring_pages(first, &mut map, pages);
            visit.end();
            if is_home {
                return;
            }
        }
    }

    /// Sends freed pages to the CPU that owns their pageblock; `false` if none does.
    pub(in crate::alloc) fn send_map(&self, zone: &Zone<'m, P>, first: u32, map: FreeMap) -> bool {
        let frames = zone.frames();
        let owner = frames.free_in_pageblock(first).owner();
        let Some(target) = owner.and_then(|owner| self.owned_of(zone, owner)) else { return false };
        let mut chain = Chain::NONE;
        chain.push_map(frames, first, map);
        self.send_to(target, frames, chain, Sending::Freed);
        true
    }
}

/// How many of these pages, from the first on, adjoin each other in one pageblock, upwards or downwards.
fn run_at_start(numbers: &[u32]) -> usize {
    let first = numbers[0];
    let at = first - first_of(first);
    let run = |step: u32, most: u32| {
        let mut expected = first;
        let in_order = numbers.iter().take(most as usize).take_while(|&&number| {
            let is_next = number == expected;
            expected = expected.wrapping_add(step);
            is_next
        });
        in_order.count()
    };
    match numbers.get(1) {
        Some(&second) if second == first.wrapping_sub(1) => run(u32::MAX, at + 1),
        Some(&second) if second == first + 1 => run(1, PAGES - at),
        _ => 1,
    }
}

/// Takes the blocks of one pageblock that `numbers` begin with: the pageblock, and their pages. Their words say their orders.
fn parcel_at_start(frames: &ZoneFrames<'_>, numbers: &mut &[u32]) -> Option<(u32, FreeMap)> {
    let first = first_of(*numbers.first()?);
    let mut map = FreeMap::NONE;
    while let [number, rest @ ..] = *numbers
        && first_of(*number) == first
    {
        let at = number - first;
        map.add(at..at + frames.word(*number).get().order().pages().0 as u32);
        *numbers = rest;
    }
    Some((first, map))
}
