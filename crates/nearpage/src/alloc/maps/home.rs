//! Ways home: to the CPU's own pageblocks, to those of others, and to the zone.

use core::ops::Range;

use super::chain::Chain;
use super::visit::Visit;
use crate::alloc::allocator::PageAllocator;
use crate::frame::NO_FRAME;
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
    /// Takes all that is homebound: what is the CPU's own is free there then, the rest is the answer.
    pub(super) fn gather(
        &self,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
    ) -> Chain<'m> {
        let frames = *pageset.frames();
        let own = Some(pageset.owner().cpu);
        let mut chain = self.receive(pageset, hold);
        chain.add_chain(Chain::of(frames, owned.waiting()));
        owned.set_waiting(hold, (NO_FRAME, 0));
        let mut chunk = [0; CHUNK];
        loop {
            let got = owned.take_homebound(&frames, hold, &mut chunk);
            if got == 0 {
                return chain;
            }
            let mut others = 0;
            for at in 0..got {
                let number = chunk[at];
                if frames.free_in_pageblock(number).owner() == own {
                    hold.put(&frames, number, 1);
                } else {
                    chunk[others] = number;
                    others += 1;
                }
            }
            chain.add(&mut chunk[..others]);
        }
    }

    /// Takes what other CPUs sent: what is the CPU's own is free there then, the rest is the answer.
    fn receive(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>) -> Chain<'m> {
        let (frames, cpu) = (*pageset.frames(), pageset.owner().cpu);
        let (mut others, mut chunk, mut filled) = (Chain::new(frames), [0; CHUNK], 0);
        hold.receive(&frames, &mut |number, order| {
            let pages = order.pages().0 as u32;
            if frames.free_in_pageblock(number).owner() == Some(cpu) {
                hold.put(&frames, number, pages);
            } else {
                chunk[filled] = number;
                filled += 1;
                if filled == CHUNK {
                    others.add(&mut chunk);
                    filled = 0;
                }
            }
        });
        others.add(&mut chunk[..filled]);
        others
    }

    /// The same, where the rest waits.
    pub(super) fn receive_own(&self, pageset: &Pageset<'m, P>, owned: &Owned, hold: &Hold<'_>) {
        let others = self.receive(pageset, hold);
        self.wait(pageset, owned, hold, others);
    }

    /// Lets blocks wait for more on the same way.
    pub(super) fn wait(
        &self,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
        chain: Chain<'m>,
    ) {
        let mut waiting = Chain::of(*pageset.frames(), owned.waiting());
        waiting.add_chain(chain);
        owned.set_waiting(hold, waiting.parts());
    }

    /// Makes pages that the CPU took for itself free again, or lets them wait if their pageblock is not its own any more.
    pub(super) fn put_or_wait(
        &self,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
        pages: Range<u32>,
    ) {
        let frames = *pageset.frames();
        let mut chain = Chain::new(frames);
        for number in pages {
            if !self.go_home(pageset, hold, number, Order(0)) {
                frames.word(number).set(frames.cached(Order(0)));
                chain.add(&mut [number]);
            }
        }
        self.wait(pageset, owned, hold, chain);
    }

    /// Moves blocks from the cold end of a list to where they belong, until it has no more than `most`.
    pub(super) fn spill(
        &self,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
        (on, list): (&OnCpu<'_, P>, usize),
        most: u32,
    ) {
        let (storage, order) = (self.platform.storage(), list_order(list));
        let frames = pageset.frames();
        let mut chunk = [0; CHUNK];
        loop {
            let more = pageset.list(list).count().saturating_sub(most) as usize;
            let want = more.min(CHUNK);
            let got = pageset.pop_cold(storage, on, list, &mut chunk[..want]);
            if got == 0 {
                return;
            }
            let mut others = 0;
            for at in 0..got {
                let number = chunk[at];
                // What a refill brought has the word that it had before.
                frames.word(number).set(frames.cached(order));
                if !self.go_home(pageset, hold, number, order) {
                    chunk[others] = number;
                    others += 1;
                }
            }
            let mut chain = Chain::new(*frames);
            chain.add(&mut chunk[..others]);
            self.wait(pageset, owned, hold, chain);
        }
    }

    /// Frees a block in the CPU's own pageblock; `false` if it is none of its own.
    pub(super) fn go_home(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        number: u32,
        order: Order,
    ) -> bool {
        let (frames, cpu) = (pageset.frames(), pageset.owner().cpu);
        let block = frames.free_in_pageblock(number);
        if block.owner() == Some(cpu) {
            hold.put(frames, number, order.pages().0 as u32);
            return true;
        }
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

    /// Sends blocks of other CPUs' pageblocks to them, at least `least` pages to each. Returns those of nobody's pageblocks, and
    /// those that were too few.
    pub(super) fn send(
        &self,
        zone: &Zone<'m, P>,
        chain: Chain<'m>,
        least: u32,
        how: Sending,
    ) -> (Chain<'m>, Chain<'m>) {
        let frames = *zone.frames();
        let (mut nobodys, mut others) = (Chain::new(frames), Chain::new(frames));
        let mut rest = chain;
        // One CPU after the other: the owner of the first pageblock that is left.
        while rest.pages() > 0 {
            let (mut theirs, mut further) = (Chain::new(frames), Chain::new(frames));
            let (mut last, mut last_further) = (NO_FRAME, NO_FRAME);
            let mut last_of_nobody = nobodys.last();
            let mut cpu = None;
            while let Some(part) = rest.take_first() {
                let owner = frames.free_in_pageblock(part.first).owner();
                match owner {
                    None => {
                        nobodys.append(last_of_nobody, part);
                        last_of_nobody = part.last;
                    }
                    Some(owner) if cpu.is_none_or(|cpu| cpu == owner) => {
                        cpu = Some(owner);
                        theirs.append(last, part);
                        last = part.last;
                    }
                    Some(_) => {
                        further.append(last_further, part);
                        last_further = part.last;
                    }
                }
            }
            rest = further;
            let Some(target) = cpu.and_then(|cpu| self.owned_of(zone, cpu)) else { continue };
            if theirs.pages() < least {
                others.add_chain(theirs);
                continue;
            }
            if let Some(all) = theirs.take_all(last) {
                if how == Sending::Freed {
                    target.sent_pages.fetch_add(all.pages.into(), Ordering::Relaxed);
                }
                let target = &target.pageblocks;
                self.platform.touch(core::ptr::from_ref(target).cast(), Access::Atomic);
                target.send(&frames, all.first, all.last, all.pages);
            }
        }
        (nobodys, others)
    }

    /// What a CPU that owned a pageblock has of the zone. The CPU is known: it owned one.
    fn owned_of(&self, zone: &Zone<'m, P>, cpu: CpuId) -> Option<&'m Owned> {
        self.cpu(cpu)?.pagesets[zone.index().0 as usize].owned()
    }

    /// Frees blocks of a zone that nobody holds any more past the pageset: to who has their pageblocks. Whole pageblocks are
    /// the zone's.
    pub(in crate::alloc) fn free_home(&self, zone: &'m Zone<'m, P>, numbers: &mut [u32]) {
        let mut chain = Chain::new(*zone.frames());
        chain.add(numbers);
        while chain.pages() > 0 {
            let (nobodys, _) = self.send(zone, chain, 1, Sending::Freed);
            if nobodys.pages() == 0 {
                return;
            }
            let before = nobodys.pages();
            let mut guard = zone.lock_to_move();
            self.platform.touch(zone.published_line(), Access::Write);
            let mut visit = Visit::new(&mut guard, None);
            // What another CPU's has become meanwhile goes there.
            chain = visit.bring_home(nobodys);
            visit.end();
            drop(guard);
            let pages = u64::from(before - chain.pages());
            ZoneEvents::add(&zone.events().direct_free_pages, pages);
        }
    }
}
