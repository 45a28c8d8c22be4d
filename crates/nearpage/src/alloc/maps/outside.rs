//! What is done to a CPU's pagesets from outside: once a second, and when they are drained.
//!
//! Meanwhile the CPU's threads go to the zone. So each hold has at most 256 operations ([`room`](super::room)), and in between
//! the CPU has its pagesets for itself.

use super::give::{Step, lacks_behind};
use super::room::Room;
use crate::alloc::allocator::{Cpu, PageAllocator};
use crate::alloc::drain::DrainBusy;
use crate::host::Platform;
use crate::pcp::owned::{Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::swing::Swing;
use crate::pcp::{CountedList, HOMEBOUND};
use crate::units::PageCount;

/// Fewer unused pages are not worth a hold of a lock.
const UNUSED_MIN: u64 = 512;
/// Holds after which a CPU that frees as fast as this empties its lists, or gives back, is left alone: room for the pageblocks of
/// 160 GiB.
const HOLDS_MAX: u32 = 4096;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Does something with each of some pagesets of a CPU and what stands behind it. Who is busy keeps no other from its turn.
    /// Returns the pages in all.
    pub(in crate::alloc) fn each_owned(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
        act: impl Fn(&'m Pageset<'m, P>, &'m Owned<'m>) -> Result<PageCount, DrainBusy>,
    ) -> Result<PageCount, DrainBusy> {
        let (mut pages, mut busy) = (PageCount(0), None);
        for pageset in cpu.pagesets.iter().filter(|pageset| wanted(pageset)) {
            let Some(owned) = pageset.owned() else { continue };
            match act(pageset, owned) {
                Ok(some) => pages.0 += some.0,
                Err(error) => busy = busy.or(Some(error)),
            }
        }
        busy.map_or(Ok(pages), Err)
    }

    /// Empties a pageset of `cpu`. Returns the pages that went to the zone: who drains all CPUs counts those sent to another once.
    pub(in crate::alloc) fn drain_maps(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        owned: &'m Owned<'m>,
    ) -> Result<PageCount, DrainBusy> {
        self.spill_from_outside(cpu, pageset, owned)?;
        self.give_in_steps(cpu, pageset, owned, (PageCount(0), 0))
    }

    /// Sends what is homebound home, but for a few pages for other CPUs, and gives pageblocks back until the pageset keeps no more
    /// than a target. Returns the pages that went to the zone.
    fn give_in_steps(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        owned: &'m Owned<'m>,
        leaving: (PageCount, u32),
    ) -> Result<PageCount, DrainBusy> {
        let mut returned = PageCount(0);
        for _ in 0..HOLDS_MAX {
            let step = self.hold_from_outside(cpu, pageset, owned, |on, hold, room| {
                self.give_from_outside(on, pageset, hold, leaving, room)
            })?;
            returned.0 += step.returned.0;
            if !step.is_more {
                break;
            }
        }
        Ok(returned)
    }

    /// The once-a-second work: half of what nobody used since goes back. Returns the pages that went to the zone.
    pub(in crate::alloc) fn decay_maps(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        owned: &'m Owned<'m>,
    ) -> Result<PageCount, DrainBusy> {
        let before = pageset.count();
        let swing = owned.pageblocks.swing();
        if before.0 == 0 && swing.within(pageset.tuning().high_max).size >= swing.size {
            // Nothing is kept, and as much may be: no reason to stop the CPU. If it takes pages just now, they stay a second longer.
            owned.pageblocks.note_least(before);
            return Ok(before);
        }
        let few = swing.homebound() / 8;
        let first = self.hold_from_outside(cpu, pageset, owned, |on, hold, room| {
            let target = Self::target_of_decay(pageset, hold)?;
            let step = match lacks_behind(pageset, owned, target) {
                true => Step { returned: PageCount(0), is_more: true },
                false => self.give_from_outside(on, pageset, hold, (target, few), room),
            };
            Some((target, step))
        })?;
        let Some((target, Step { mut returned, is_more })) = first else { return Ok(PageCount(0)) };
        if is_more {
            if lacks_behind(pageset, owned, target) {
                self.spill_from_outside(cpu, pageset, owned)?;
            }
            returned.0 += self.give_in_steps(cpu, pageset, owned, (target, few))?.0;
        }
        Ok(returned)
    }

    /// How many pages may stay; `None` if what is more is not worth the work.
    fn target_of_decay(pageset: &Pageset<'m, P>, hold: &Hold<'_>) -> Option<PageCount> {
        let (before, owned) = (pageset.count(), hold.owned());
        let swing = owned.pageblocks.swing();
        // What may be kept can have become less.
        let within = swing.within(pageset.tuning().high_max);
        let unused = Swing::unused(owned.pageblocks.take_least(before));
        if unused.0 < UNUSED_MIN && within.size >= swing.size {
            return None;
        }
        let target = PageCount(before.0 - unused.0);
        if within.size >= swing.size {
            return Some(target);
        }
        owned.pageblocks.set_swing(within);
        pageset.set_limits(within);
        Some(target.min(PageCount(within.size.into())))
    }

    /// Moves what is on the lists, but for what is homebound, behind them.
    fn spill_from_outside(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        owned: &'m Owned<'m>,
    ) -> Result<(), DrainBusy> {
        let lists = (0..pageset.list_count()).filter(|&list| list != HOMEBOUND);
        let mut lists = lists.filter(|&list| pageset.list(list).count() > 0).peekable();
        let mut holds = 0;
        while lists.peek().is_some() && holds < HOLDS_MAX {
            holds += 1;
            self.hold_from_outside(cpu, pageset, owned, |on, hold, room| {
                while let Some(&list) = lists.peek()
                    && !room.is_short()
                {
                    let before = pageset.list(list).count();
                    self.spill(pageset, hold, (on, list), 0, room);
                    // A count that nothing stands behind is the walker's to report, not a reason to go on for ever.
                    let after = pageset.list(list).count();
                    lists.next_if(|_| after == 0 || after == before && !room.is_short());
                }
            })?;
        }
        Ok(())
    }

    /// Does something with a pageset and what stands behind it, in one hold of both, as far as there is room for it.
    fn hold_from_outside<R>(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &Pageset<'m, P>,
        owned: &'m Owned<'m>,
        act: impl FnOnce(&OnCpu<'_, P>, &Hold<'_>, &mut Room) -> R,
    ) -> Result<R, DrainBusy> {
        let done = self.while_stopped(
            cpu,
            |of| core::ptr::eq(of, pageset),
            |on| {
                let taken = self.note_taken(cpu);
                let mut room = Room::of_a_foreign_hold();
                let hold = self.wait_for(|| owned.enter());
                let answer = hold.map(|hold| act(on, &hold, &mut room));
                if let Some(taken) = taken {
                    taken.end_after(room.used());
                }
                answer
            },
        );
        done?.ok_or(DrainBusy { cpu: cpu.owner.cpu })
    }
}
