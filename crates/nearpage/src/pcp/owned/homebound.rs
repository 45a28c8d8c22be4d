//! Pages on their way to who has their pageblocks: the stage, what waits for room there, and the inbox.

use super::{Chain, Hold, Owned, PAGES, Staged};
use crate::frame::{NO_FRAME, ZoneFrames};
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
        let waiting = &self.0.waiting;
        let mut chain = Chain::starting_at(waiting.first.load(Ordering::Relaxed));
        chain.push(frames, number, pages);
        waiting.first.store(chain.first, Ordering::Relaxed);
        waiting.pages.store(waiting.pages.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
        false
    }

    /// Frees what is on the stage of `cpu`'s own pageblocks, who has hold. `touch` is told each pageblock that is looked at or
    /// changed. Returns the pages that stay there.
    pub(crate) fn put_own(
        &self,
        frames: &ZoneFrames<'_>,
        cpu: CpuId,
        touch: impl Fn(u32, Access),
    ) -> Staged {
        let mut left = Staged { of_nobody: 0, of_others: 0 };
        self.0.stage.each_parcel(0, |first, parcel| {
            touch(first, Access::Read);
            match frames.free_in_pageblock(first).owner() {
                Some(owner) if owner == cpu => {
                    touch(first, Access::Write);
                    self.put_map(frames, first, &parcel.map(), parcel.pages());
                    return Fate::Gone;
                }
                Some(_) => left.of_others += parcel.pages(),
                None if parcel.pages() == PAGES && self.adopt_whole(frames, cpu, first) => {
                    return Fate::Gone;
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

    /// Takes all runs that wait.
    pub(crate) fn take_waiting(&self) -> Chain {
        let waiting = &self.0.waiting;
        let first = waiting.first.load(Ordering::Relaxed);
        waiting.first.store(NO_FRAME, Ordering::Relaxed);
        waiting.pages.store(0, Ordering::Relaxed);
        Chain::starting_at(first)
    }

    /// Takes all runs out of the inbox.
    pub(crate) fn take_inbox(&self, frames: &ZoneFrames<'_>) -> Chain {
        let first = self.0.pageblocks.inbox().take(|number| {
            let frame = frames.frame(number);
            (frame.next(), frame.prev())
        });
        Chain::starting_at(first)
    }
}
