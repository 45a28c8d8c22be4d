//! Pages on their way to who has their pageblocks: the stage, what waits, and the inbox.

use super::{Chain, Hold, Owned, PAGES, Staged};
use crate::frame::ZoneFrames;
use crate::host::Access;
use crate::pcp::passing::Passing;
use crate::pcp::stage::{Fate, Stage};
use crate::sync::Ordering;
use crate::units::CpuId;

impl Hold<'_> {
    /// What there is hold of.
    pub(crate) fn owned(&self) -> &Owned<'_> {
        self.0
    }

    /// The stage.
    pub(crate) fn stage(&self) -> &Stage<'_> {
        &self.0.stage
    }

    /// Puts pages of one pageblock where they belong: among what is free in the pageblock if it is `cpu`'s, who has hold; else
    /// on the stage, or to those that wait for room there. Returns whether there was room.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(crate) fn put_or_keep(
        &self,
        frames: &ZoneFrames<'_>,
        cpu: CpuId,
        number: u32,
        pages: u32,
    ) -> bool {
        if frames.free_in_pageblock(number).owner() == Some(cpu) {
            self.put(frames, number, pages);
            return true;
        }
        if self.0.stage.add(number, pages) {
            return true;
        }
        let mut waiting = self.take_waiting();
        waiting.push(frames, number, pages);
        self.leave_waiting(waiting);
        false
    }

    /// Frees what is on the stage of `cpu`'s own pageblocks, who has hold, of one after the other as long as `may_put(pages)` says so.
    /// `touch` is told each pageblock that is looked at or changed. Returns the pages of others that stay there.
    pub(crate) fn put_own(
        &self,
        frames: &ZoneFrames<'_>,
        cpu: CpuId,
        mut may_put: impl FnMut(u32) -> bool,
        touch: impl Fn(u32, Access),
    ) -> Staged {
        let mut left = Staged { of_nobody: 0, of_others: 0 };
        self.0.stage.each_parcel(0, |first, parcel| {
            touch(first, Access::Read);
            match frames.free_in_pageblock(first).owner() {
                Some(owner) if owner == cpu => {
                    if !may_put(parcel.pages()) {
                        return Fate::Stop;
                    }
                    touch(first, Access::Write);
                    self.put_map(frames, first, &parcel.map(), parcel.pages());
                    return Fate::Gone;
                }
                Some(_) => left.of_others += parcel.pages(),
                None if parcel.pages() == PAGES => {
                    if !may_put(parcel.pages()) {
                        return Fate::Stop;
                    }
                    if self.adopt_whole(frames, cpu, first) {
                        return Fate::Gone;
                    }
                    left.of_nobody += PAGES;
                }
                None => left.of_nobody += parcel.pages(),
            }
            Fate::Kept
        });
        left
    }

    /// Makes a pageblock `cpu`'s, who has hold and all of its pages in its hands, if nobody owns it; returns whether.
    pub(crate) fn adopt_whole(&self, frames: &ZoneFrames<'_>, cpu: CpuId, first: u32) -> bool {
        let block = frames.free_in_pageblock(first);
        let may_own = block.owner().is_none()
            && frames.pageblock(first).is_mergeable()
            && !frames.is_pageblock_shared(first);
        if may_own {
            // Nobody else can want it: all of it is ours.
            block.set_owner(Some(cpu));
            let mut passed = Passing::new();
            passed.push(frames, first);
            self.add(frames, passed);
        }
        may_own
    }

    /// Takes all runs that wait. Those that do not go on are [left waiting](Self::leave_waiting).
    pub(crate) fn take_waiting(&self) -> Chain {
        let waiting = &self.0.waiting;
        let runs = Chain::of((
            waiting.first.load(Ordering::Relaxed),
            waiting.pages.load(Ordering::Relaxed),
        ));
        self.leave_waiting(Chain::NONE);
        runs
    }

    /// Takes all runs in the inbox. Those that do not go on are [left waiting](Self::leave_waiting).
    pub(crate) fn take_inbox(&self) -> Chain {
        let runs = Chain::of(self.0.pageblocks.inbox().take());
        self.note_uses(u32::from(!runs.is_empty()));
        runs
    }

    /// Leaves runs waiting. No others do.
    pub(crate) fn leave_waiting(&self, runs: Chain) {
        self.0.waiting.first.store(runs.first, Ordering::Relaxed);
        self.0.waiting.pages.store(runs.pages(), Ordering::Relaxed);
    }

    /// Notes uses of the inbox.
    pub(crate) fn note_uses(&self, uses: u32) {
        let count = &self.0.pageblocks.inbox_uses;
        count.store(count.load(Ordering::Relaxed).wrapping_add(uses), Ordering::Relaxed);
    }
}
