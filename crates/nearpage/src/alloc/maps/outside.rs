//! What is done to a CPU's pagesets from outside: once a second, and when they are drained.
//!
//! Meanwhile the CPU's threads go to the zone. So each hold takes at most 256 blocks off the CPU's lists, and in between the
//! CPU has its pagesets for itself.

use super::give::{Reach, lacks_behind, note_least};
use super::home::CHUNK;
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
/// Holds after which a CPU that frees as fast as this gives back is left alone.
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

    /// Empties a pageset of `cpu`. Returns the pages.
    pub(in crate::alloc) fn drain_maps(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        owned: &'m Owned<'m>,
    ) -> Result<PageCount, DrainBusy> {
        self.spill_from_outside(cpu, pageset, owned)?;
        let piece = pageset.tuning().batch.0 << 5;
        let (mut drained, mut is_more, mut holds) = (0, true, 0);
        while is_more && holds < HOLDS_MAX {
            drained += self.hold_from_outside(cpu, pageset, owned, |on, hold| {
                let start = pageset.count().0;
                let mut before = start;
                while before > 0 {
                    let keeping = (PageCount(before.saturating_sub(piece)), Reach::All);
                    let has_next = self.give_step(on, pageset, hold, keeping, CHUNK);
                    let now = pageset.count().0;
                    // A count that nothing stands behind is the walker's to report, not a reason to go on for ever.
                    is_more = now > 0 && (now < before || has_next);
                    if !is_more || pageset.list(HOMEBOUND).count() > 0 {
                        break;
                    }
                    before = now;
                }
                is_more &= start > 0;
                start.saturating_sub(pageset.count().0)
            })?;
            holds += 1;
        }
        Ok(PageCount(drained))
    }

    /// The once-a-second work: half of what nobody used since goes back. Returns the pages.
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
        let target = self.while_taken(
            cpu,
            |of| core::ptr::eq(of, pageset),
            |_| Self::target_of_decay(pageset, owned),
        )?;
        let Some(target) = target else { return Ok(PageCount(0)) };
        if lacks_behind(pageset, owned, target) {
            self.spill_from_outside(cpu, pageset, owned)?;
        }
        let (mut is_more, mut holds) = (true, 0);
        while is_more && holds < HOLDS_MAX {
            is_more = self.hold_from_outside(cpu, pageset, owned, |on, hold| {
                let keeping = (target, Reach::Unused);
                let has_next = self.give_step(on, pageset, hold, keeping, CHUNK);
                note_least(pageset, owned);
                has_next
            })?;
            holds += 1;
        }
        Ok(PageCount(before.0.saturating_sub(pageset.count().0)))
    }

    /// How many pages may stay; `None` if what is more is not worth the work.
    fn target_of_decay(pageset: &Pageset<'m, P>, owned: &Owned<'_>) -> Option<PageCount> {
        let before = pageset.count();
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
        let _hold = owned.enter()?;
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
        while lists.peek().is_some() {
            self.hold_from_outside(cpu, pageset, owned, |on, hold| {
                let mut room = CHUNK as u32;
                while let Some(&list) = lists.peek() {
                    let blocks = pageset.list(list).count();
                    if blocks > room && room < CHUNK as u32 {
                        break;
                    }
                    self.spill(pageset, hold, (on, list), blocks.saturating_sub(room));
                    room -= blocks.min(room);
                    lists.next_if(|_| pageset.list(list).count() == 0);
                }
            })?;
        }
        Ok(())
    }

    /// Does something with a pageset and what stands behind it, in one hold of both.
    fn hold_from_outside<R>(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &Pageset<'m, P>,
        owned: &'m Owned<'m>,
        act: impl FnOnce(&OnCpu<'_, P>, &Hold<'_>) -> R,
    ) -> Result<R, DrainBusy> {
        let done = self.while_taken(
            cpu,
            |of| core::ptr::eq(of, pageset),
            |on| {
                let hold = self.wait_for(|| owned.enter())?;
                Some(act(on, &hold))
            },
        );
        done?.ok_or(DrainBusy { cpu: cpu.owner.cpu })
    }
}
