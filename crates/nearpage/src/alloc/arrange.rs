//! Arranging a state from outside: for replays that begin where a recording begins, and for experiments.
//!
//! What is moved here is counted by no event and no hold, and asks no watermark and no limit. All invariants hold: a block is taken
//! by whoever calls, as by an allocation, and what is not the caller's is refused, as by a free.

use super::allocator::PageAllocator;
use crate::buddy::Insertion;
use crate::error::FreeError;
use crate::frame::{Frame, Migratetype};
use crate::host::Platform;
use crate::pcp::list_index;
use crate::pcp::pageset::OnCpu;
use crate::pcp::tuning::Tuning;
use crate::units::{CpuId, Order, PageCount, Pfn, ZoneIndex, ZoneKind};
use crate::watermark::Marks;
use crate::zone::{Zone, ZoneRules};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes a block from the free lists of a zone, of any type if the lists of `migratetype` have none.
    ///
    /// # Panics
    /// If the allocator has no such zone, the order is above [`Order::MAX`], or the type is
    /// [`Migratetype::Isolate`].
    #[doc(hidden)]
    pub fn take_from_zone(
        &self,
        zone: ZoneIndex,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Pfn> {
        let zone = self.zones[zone.0 as usize];
        let frames = *zone.frames();
        let number = P::Rules::take_apart(zone, &self.platform, order, migratetype)?;
        frames.word(number).set(frames.allocated(order, migratetype));
        Some(frames.pfn(number))
    }

    /// Gives a block of the caller's straight to its zone.
    ///
    /// # Errors
    /// [`FreeError`], as for a free.
    #[doc(hidden)]
    pub fn return_to_zone(&self, pfn: Pfn, order: Order, at: Insertion) -> Result<(), FreeError> {
        let (zone, frame) = self.held_block(pfn, order)?;
        self.take_back(frame.cell(), zone.frames().cached(order), pfn, order)?;
        P::Rules::bring(zone, &self.platform, zone.frames().number(pfn), order, at);
        Ok(())
    }

    /// Makes blocks of order `into` out of a block of the caller's. They keep its type; each is to be freed by itself.
    ///
    /// # Errors
    /// [`FreeError`], as for a free.
    ///
    /// # Panics
    /// If `into` is above `order`.
    #[doc(hidden)]
    pub fn split_block(&self, pfn: Pfn, order: Order, into: Order) -> Result<(), FreeError> {
        assert!(into <= order, "a block is split into smaller ones");
        let (zone, frame) = self.held_block(pfn, order)?;
        let (frames, word) = (zone.frames(), frame.word());
        let part = frames.allocated(into, word.migratetype());
        // From the last part down: until its head is written, the block is the caller's as a whole.
        for at in (0..1 << (order.0 - into.0)).rev() {
            frames.word(frames.number(pfn + into.pages_in(at))).set(part);
        }
        Ok(())
    }

    /// Makes a block of the caller's one that was asked for as `migratetype`.
    ///
    /// # Errors
    /// [`FreeError`], as for a free.
    #[doc(hidden)]
    pub fn retype_block(
        &self,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
    ) -> Result<(), FreeError> {
        let (zone, frame) = self.held_block(pfn, order)?;
        frame.set_word(zone.frames().allocated(order, migratetype));
        Ok(())
    }

    /// Gives a pageblock another type: what is free in it moves to the lists of that type. Returns whether it did: no
    /// pageblock that is isolated, that zones share, or that reaches out of its zone with something free in it, changes
    /// its type, and none becomes isolated.
    ///
    /// # Panics
    /// If the allocator has no such zone, or the zone no such frame.
    #[doc(hidden)]
    pub fn retype_pageblock(&self, zone: ZoneIndex, pfn: Pfn, migratetype: Migratetype) -> bool {
        let zone = self.zones[zone.0 as usize];
        assert!(zone.span().contains(pfn), "a frame of the zone");
        P::Rules::set_type(zone, zone.frames().number(pfn), migratetype)
    }

    /// Moves a block of the caller's to the cold end of a pageset's list for `migratetype`; returns whether there was
    /// room. Otherwise the block goes to its zone.
    ///
    /// # Errors
    /// [`FreeError`], as for a free.
    #[doc(hidden)]
    pub fn cache_block(
        &self,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
    ) -> Result<bool, FreeError> {
        let (zone, frame) = self.held_block(pfn, order)?;
        let frames = *zone.frames();
        self.take_back(frame.cell(), frames.cached(order), pfn, order)?;
        let number = frames.number(pfn);
        let cached =
            list_index(order, migratetype).zip(self.cpu(cpu)).is_some_and(|(list, cpu)| {
                let pageset = &cpu.pagesets[zone.index().0 as usize];
                let storage = self.platform.storage();
                let append = |on: &OnCpu<'_, P>| pageset.append_run(storage, on, list, number, 1);
                self.while_stopped(cpu, |_| true, append) == Ok(1)
            });
        if !cached {
            P::Rules::bring(zone, &self.platform, number, order, Insertion::Usual);
        }
        Ok(cached)
    }

    /// Takes the coldest block of a list of a pageset, as one of the caller's; `None` if the list is empty or there is no
    /// such CPU.
    ///
    /// # Panics
    /// If the allocator has no such zone, or pagesets no such list.
    #[doc(hidden)]
    pub fn uncache_block(&self, cpu: CpuId, zone: ZoneIndex, list: usize) -> Option<Pfn> {
        let cpu = self.cpu(cpu)?;
        let pageset = &cpu.pagesets[zone.0 as usize];
        let mut number = [0];
        let storage = self.platform.storage();
        let pop = |on: &OnCpu<'_, P>| pageset.pop_cold(storage, on, list, &mut number);
        if self.while_stopped(cpu, |_| true, pop) != Ok(1) {
            return None;
        }
        let frames = pageset.frames();
        frames.word(number[0]).set(pageset.held_word(list));
        Some(frames.pfn(number[0]))
    }

    /// Sets the watermarks and reserves of a zone, and ends a boost; until they are computed anew, since memory came or
    /// went or a setting changed.
    ///
    /// # Panics
    /// If the allocator has no such zone.
    #[doc(hidden)]
    pub fn set_marks(
        &self,
        zone: ZoneIndex,
        marks: Marks,
        reserve: [PageCount; ZoneKind::COUNT],
        boost_factor: u32,
    ) {
        self.zones[zone.0 as usize].set_marks(marks, reserve, boost_factor);
    }

    /// Sets the tuning state of a CPU's pageset for a zone, its sizes included; until sizes are computed anew. Nothing if
    /// there is no such CPU.
    ///
    /// # Panics
    /// If the allocator has no such zone.
    #[doc(hidden)]
    pub fn set_tuning(&self, cpu: CpuId, zone: ZoneIndex, tuning: Tuning) {
        if let Some(cpu) = self.cpu(cpu) {
            let pageset = &cpu.pagesets[zone.0 as usize];
            pageset.set_settings(tuning);
            pageset.share_high(&tuning, 0);
        }
    }

    /// Ends a boost of a zone's watermarks, or a part of it.
    ///
    /// # Panics
    /// If the allocator has no such zone.
    #[doc(hidden)]
    pub fn lower_boost(&self, zone: ZoneIndex, pages: PageCount) {
        self.zones[zone.0 as usize].lower_boost(pages);
    }

    /// Says whether background reclaim works on a zone.
    ///
    /// # Panics
    /// If the allocator has no such zone.
    #[doc(hidden)]
    pub fn set_reclaim_active(&self, zone: ZoneIndex, active: bool) {
        self.zones[zone.0 as usize].set_reclaim_active(active);
    }

    /// From now on, the most of a hold in [`Zone::work`] and [`taken_by_others`](Self::taken_by_others) is that of later holds.
    #[doc(hidden)]
    pub fn forget_most_work(&self) {
        self.zones.iter().for_each(|zone| zone.forget_most_work());
        self.known_cpus().for_each(|cpu| cpu.owner.taken.forget_most());
    }

    /// The zone and the frame of a block that a free would take.
    fn held_block(
        &self,
        pfn: Pfn,
        order: Order,
    ) -> Result<(&'m Zone<'m, P>, Frame<'m>), FreeError> {
        match self.frame(pfn) {
            Some(frame) if self.may_free(frame, pfn, order) => {
                Ok((self.zones[frame.word().zone().0 as usize], frame))
            }
            _ => Err(self.refuse_free(pfn, order)),
        }
    }
}
