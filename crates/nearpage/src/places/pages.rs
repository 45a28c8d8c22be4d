//! Past the lists, under nearpage's own rules: pages come by quota out of maps, and go back into them.
//!
//! Nothing here takes a lock or waits. A thread that is interrupted anywhere has pages for which it has a quota, or a quota
//! for pages that are free: others lack them until it goes on, and see no state that is wrong.

use core::ops::Range;

use super::quota::Quota;
use super::size::{COLD_MAX, QuotaSize, blocks_of_a_refill};
use super::zone_maps::{Reach, ZoneMaps, frames_of};
use crate::alloc::{
    Cpu, DrainBusy, FromPageset, PageAllocator, Request, Wanted, ZoneRequest, first_flags,
};
use crate::buddy::Fragmentation;
use crate::frame::{Migratetype, Word, WordCell, ZoneFrames};
use crate::host::{Access, Platform};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::{COLD, CountedList, list_index, list_order};
use crate::rule_set::HasMaps;
use crate::units::{Order, PAGEBLOCK_ORDER, PageCount, Pfn, ZoneIndex};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents, ZoneGuard};

/// Pages that move between a list and maps at once.
const CHUNK: usize = 128;
const _: () = assert!(COLD_MAX as usize <= CHUNK && blocks_of_a_refill(Order(0)) as usize <= CHUNK);

/// Pages that nobody used for a second go back if they are so many.
const UNUSED_MIN: u64 = 512;

/// Numbers of blocks on the stack, as many as move at once.
struct Chunk {
    numbers: [u32; CHUNK],
    len: usize,
}

impl Chunk {
    fn new() -> Self {
        Self { numbers: [0; CHUNK], len: 0 }
    }

    fn extend(&mut self, numbers: impl Iterator<Item = u32>) {
        for number in numbers {
            self.numbers[self.len] = number;
            self.len += 1;
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u32] {
        &mut self.numbers[..self.len]
    }
}

/// The type of the pages that a request takes, and whether it may take them from pageblocks of other types.
fn what(wants: ZoneRequest) -> (Migratetype, Reach) {
    let reach = match wants.block().fragmentation {
        Fragmentation::Allowed => Reach::All,
        Fragmentation::Avoided => Reach::Own,
    };
    (wants.migratetype, reach)
}

/// Taking.
impl<'m, P: Platform<Rules: HasMaps>> PageAllocator<'m, P> {
    /// Fills an empty list by quota, and takes one block from it.
    pub(crate) fn refill_by_quota(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        wants: ZoneRequest,
        list: usize,
    ) -> FromPageset {
        let (zone, quota, order) = (pageset.zone(), pageset.quota(), wants.order);
        let maps = zone.maps();
        let limit = pageset.list(list).limit().min(pageset.list(list).capacity()).max(1);
        let (unit, most) = (order.pages().0, blocks_of_a_refill(order).min(limit));
        let pages = self.quota_for(pageset, quota, wants, unit, u64::from(most) << order.0);
        if pages == 0 {
            return FromPageset::Nothing;
        }
        let listed = match order {
            Order(0) => self.refill_pages(on, pageset, (maps, quota), wants, list, pages as u32),
            _ => self.refill_blocks(on, pageset, (maps, quota), wants, list, pages),
        };
        let listed = u64::from(listed) << order.0;
        if listed < pages {
            quota.give(pages - listed);
        }
        self.after_fallback(zone, quota, wants.flags);
        if listed == 0 {
            self.give_above(pageset, quota, PageCount(0));
            return FromPageset::Nothing;
        }
        let popped = pageset.pop(&self.platform, on, list);
        let Some(number) = popped.frame() else { return FromPageset::Busy };
        self.platform.touch_page(pageset.frames().pfn(number), Access::Write);
        FromPageset::Block(number)
    }

    /// Moves single pages from maps to an empty list; returns how many.
    fn refill_pages(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        (maps, quota): (&ZoneMaps<'_>, &Quota),
        wants: ZoneRequest,
        list: usize,
        pages: u32,
    ) -> u32 {
        let (frames, storage) = (pageset.frames(), self.platform.storage());
        pageset.begin_tag(list);
        let (mut listed, mut scattered) = (0, Chunk::new());
        let mut each = |first: u32, pages: u64| {
            self.platform.touch(ZoneMaps::map_line(frames, first), Access::Atomic);
            let (at, run) = (pages.trailing_zeros(), pages.count_ones());
            if pages >> at != u64::MAX >> (u64::BITS - run) {
                return scattered.extend(frames_of(first, pages));
            }
            let appended = pageset.append_run(storage, on, list, first + at, run);
            listed += appended;
            if appended < run {
                maps.put_run(frames, first + at + appended, run - appended, quota);
            }
        };
        maps.take_pages(frames, what(wants), quota, pages, &mut each);
        listed + self.list_all(on, pageset, (maps, quota), list, scattered.as_mut_slice())
    }

    /// Moves blocks from maps to an empty list; returns how many.
    fn refill_blocks(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        (maps, quota): (&ZoneMaps<'_>, &Quota),
        wants: ZoneRequest,
        list: usize,
        pages: u64,
    ) -> u32 {
        let (mut numbers, blocks) = (Chunk::new(), (pages >> wants.order.0) as usize);
        if wants.order == PAGEBLOCK_ORDER {
            let mut each = |first| numbers.extend(core::iter::once(first));
            self.take_wholes(maps, pageset.frames(), wants, quota, blocks as u32, &mut each);
        }
        // If there is none, what is whole by its pages and not yet by its bit.
        if numbers.len == 0 {
            let next = || self.take_block(maps, pageset.frames(), wants, quota);
            numbers.extend(core::iter::from_fn(next).take(blocks));
        }
        self.list_all(on, pageset, (maps, quota), list, numbers.as_mut_slice())
    }

    /// Puts blocks on a list, the first one hottest; the rest goes back into maps. Returns how many are on the list.
    fn list_all(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        (maps, quota): (&ZoneMaps<'_>, &Quota),
        list: usize,
        numbers: &mut [u32],
    ) -> u32 {
        if numbers.is_empty() {
            return 0;
        }
        numbers.reverse();
        let listed = pageset.push_batch(&self.platform, on, list, numbers);
        quota.pages_listed.add((listed as u64) << list_order(list).0);
        self.put_all(maps, pageset.frames(), quota, &numbers[listed..], list_order(list));
        listed as u32
    }

    /// A multiple of `unit` pages that the caller may take out of maps, up to `most`, or none: from the quota, or from the
    /// zone, of which this CPU then claims more.
    fn quota_for(
        &self,
        pageset: &Pageset<'m, P>,
        quota: &Quota,
        wants: ZoneRequest,
        unit: u64,
        most: u64,
    ) -> u64 {
        self.platform.touch(quota.line(), Access::Write);
        let own = quota.take(unit, most);
        if own > 0 {
            return own;
        }
        let size = self.note_move(pageset, quota);
        let share = u64::from(size.refill(wants.order)) << wants.order.0;
        let limits = (wants.flags, wants.kind);
        let claimed = pageset.zone().claim_pages(&self.platform, limits, unit, share.max(most));
        quota.shared_writes.add(1);
        if claimed == 0 {
            return 0;
        }
        pageset.events().refills.add_atomically(1);
        pageset.events().refilled_pages.add_atomically(claimed);
        let used = claimed.min(most);
        let used = used - used % unit;
        quota.give(claimed - used);
        used
    }

    /// This CPU claims pages from the zone now, or gives some back: what its quota may be follows from that.
    fn note_move(&self, pageset: &Pageset<'m, P>, quota: &Quota) -> QuotaSize {
        let size = quota.size().after_move(self.platform.now_ns(), pageset.tuning().high_max);
        quota.set_size(size);
        pageset.set_limits(size);
        size
    }

    /// Takes a block for which the caller has a quota.
    fn take_block(
        &self,
        maps: &ZoneMaps<'_>,
        frames: &ZoneFrames<'_>,
        wants: ZoneRequest,
        by: &Quota,
    ) -> Option<u32> {
        let block = maps.take_block(frames, wants.order, what(wants), by)?;
        self.platform.touch(maps.block_line(frames, block, wants.order), Access::Atomic);
        Some(block)
    }

    /// Takes whole pageblocks, up to `most`, for which the caller has a quota; tells the first frame of each.
    fn take_wholes(
        &self,
        maps: &ZoneMaps<'_>,
        frames: &ZoneFrames<'_>,
        wants: ZoneRequest,
        by: &Quota,
        most: u32,
        each: &mut dyn FnMut(u32),
    ) -> u32 {
        let mut line = core::ptr::null();
        maps.take_wholes(frames, wants.migratetype, by, most, &mut |at| {
            let first = at << PAGEBLOCK_ORDER.0;
            let of = maps.block_line(frames, first, PAGEBLOCK_ORDER);
            if of != core::mem::replace(&mut line, of) {
                self.platform.touch(of, Access::Atomic);
            }
            each(first);
        })
    }

    /// A block past the lists, for a request that passed the zone's marks.
    fn take_past_lists(
        &self,
        zone: &Zone<'m, P>,
        maps: &ZoneMaps<'m>,
        wants: ZoneRequest,
    ) -> Option<u32> {
        let pages = wants.order.pages().0;
        let account = self.account(zone, maps);
        if account.take(self, zone, wants, pages, pages) == 0 {
            return None;
        }
        let block = self.take_block(maps, zone.frames(), wants, account.quota());
        self.after_fallback(zone, account.quota(), wants.flags);
        match block {
            Some(_) => self.note_given(zone, &account, 1, wants.order),
            None => account.give_up(self, zone, pages),
        }
        block
    }

    /// A block for which this CPU has a quota already; who asks may have interrupted anything.
    pub(crate) fn take_by_own_quota(
        &self,
        pageset: &Pageset<'m, P>,
        request: Request,
    ) -> Option<u32> {
        let (maps, quota, of) =
            (pageset.zone().maps(), pageset.quota(), request.gfp.migratetype()?);
        let pages = request.order.pages().0;
        if quota.take(pages, pages) == 0 {
            return None;
        }
        let block = maps.take_block(pageset.frames(), request.order, (of, Reach::Own), quota);
        if block.is_none() {
            quota.give(pages);
        }
        block
    }

    /// Pages came from pageblocks of another type: the zone's marks are boosted, as far as the settings say.
    fn after_fallback(&self, zone: &Zone<'m, P>, by: &Quota, flags: AllocFlags) {
        if by.take_fell_back() {
            zone.boost_for_fallback(flags);
        }
    }
}

/// What a free of one block or of many does.
impl<'m, P: Platform<Rules: HasMaps>> PageAllocator<'m, P> {
    /// This CPU's pageset for a zone.
    #[inline]
    fn quota_here(&self, zone: ZoneIndex) -> Option<&'m Pageset<'m, P>> {
        Some(&self.this_cpu()?.pagesets[zone.0 as usize])
    }

    #[inline]
    pub(crate) fn free_by_word(&self, held: Word, pfn: Pfn, order: Order) {
        let zone = self.zones[held.zone().0 as usize];
        let number = zone.frames().number(pfn);
        if held.migratetype() == Migratetype::HighAtomic {
            return zone.free_reserved(&self.platform, number, order);
        }
        let pageset = self.quota_here(zone.index());
        match pageset.and_then(|pageset| Some((pageset, pageset.list_of_freed(held, order)?))) {
            Some((pageset, list)) => self.free_to_pageset(pageset, number, order, list),
            None => self.free_to_zone(zone.index(), pfn, order),
        }
    }

    /// What came out of the reserve goes back there.
    pub(crate) fn list_of_word(&self, held: Word, pfn: Pfn) -> Option<usize> {
        let list = match self.quota_here(held.zone()) {
            Some(pageset) => pageset.list_of_freed(held, Order(0)),
            None => list_index(Order(0), self.map.pageblock(pfn)),
        };
        list.filter(|_| held.migratetype() != Migratetype::HighAtomic)
    }

    #[inline]
    pub(crate) fn is_single_of_quota(
        &self,
        zone: ZoneIndex,
        list: usize,
        word: WordCell<'_>,
        number: u32,
    ) -> bool {
        let Some(pageset) = self.quota_here(zone) else {
            return self.is_single_of_list(zone, list, word, number);
        };
        let held = word.get();
        held.is_allocated(Order(0))
            && held.zone() == zone
            && pageset.list_of_freed(held, Order(0)) == Some(list)
    }

    /// Isolated pages are somebody's from now on. Their words say that they are isolated.
    pub(crate) fn take_captured(&self, guard: &mut ZoneGuard<'_, 'm, P>, range: Range<u32>) {
        let zone = guard.zone();
        zone.captured_are_out(range.len() as u64);
        range.for_each(|page| zone.frames().word(page).set(Word::BLANK));
    }
}

/// Giving back.
impl<'m, P: Platform<Rules: HasMaps>> PageAllocator<'m, P> {
    /// Makes blocks free again. Their quota is the caller's still.
    fn put_all(
        &self,
        maps: &ZoneMaps<'_>,
        frames: &ZoneFrames<'_>,
        by: &Quota,
        numbers: &[u32],
        order: Order,
    ) {
        let mut rest = numbers;
        while let [first, ..] = *rest {
            self.platform.touch(maps.block_line(frames, first, order), Access::Atomic);
            rest = &rest[maps.put_blocks(frames, rest, order, by)..];
        }
    }

    /// Frees blocks past the lists.
    pub(crate) fn free_past_lists(&self, zone: &Zone<'m, P>, numbers: &[u32], order: Order) {
        let maps = zone.maps();
        let pages = (numbers.len() as u64) << order.0;
        let account = self.account(zone, maps);
        self.put_all(maps, zone.frames(), account.quota(), numbers, order);
        account.give(self, zone, pages);
        match account {
            Account::Quota(pageset, quota) => {
                self.platform.touch(quota.line(), Access::Write);
                quota.pages_put.add(pages);
                self.give_excess(pageset, quota);
            }
            Account::Zone(_) => ZoneEvents::add(&zone.events().direct_free_pages, pages),
        }
    }

    /// After a free to a list: if it is full now, half of it goes into maps, and if the quota is too large then, some of that
    /// to the zone.
    pub(crate) fn after_free_to_list(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        list: usize,
    ) {
        let quota = pageset.quota();
        let most = pageset.limit_of(list, quota.size()).min(pageset.list(list).capacity());
        if pageset.list(list).count() >= most {
            let kept = if list == COLD { 0 } else { most / 2 };
            self.spill(on, pageset, quota, list, kept);
        }
        if pageset.zone().is_over_limit() {
            (0..pageset.list_count()).for_each(|list| self.spill(on, pageset, quota, list, 0));
        }
        self.give_excess(pageset, quota);
    }

    /// Moves what a list has above `kept` blocks into maps.
    fn spill(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        quota: &Quota,
        list: usize,
        kept: u32,
    ) {
        let maps = pageset.zone().maps();
        let order = list_order(list);
        let mut chunk = [0; CHUNK];
        loop {
            let over = pageset.list(list).count().saturating_sub(kept).min(CHUNK as u32);
            let into = &mut chunk[..over as usize];
            let got = pageset.pop_cold(self.platform.storage(), on, list, into);
            if got == 0 {
                return;
            }
            self.put_all(maps, pageset.frames(), quota, &chunk[..got], order);
            quota.give((got as u64) << order.0);
        }
    }

    /// Gives the zone what the quota has too much.
    fn give_excess(&self, pageset: &Pageset<'m, P>, quota: &Quota) {
        if pageset.zone().is_over_limit() {
            self.give_above(pageset, quota, PageCount(0));
        } else if quota.pages().0 > quota.size().pages.into() {
            let size = self.note_move(pageset, quota);
            if quota.pages().0 > size.pages.into() {
                self.give_above(pageset, quota, size.left());
            }
        }
    }

    fn give_above(&self, pageset: &Pageset<'m, P>, quota: &Quota, kept: PageCount) -> PageCount {
        let pages = quota.take_above(kept);
        if pages.0 > 0 {
            pageset.zone().give_pages(&self.platform, pages.0);
            quota.shared_writes.add(1);
            pageset.events().drains.add_atomically(1);
            pageset.events().drained_pages.add_atomically(pages.0);
        }
        pages
    }
}

/// From outside.
impl<'m, P: Platform<Rules: HasMaps>> PageAllocator<'m, P> {
    /// Gives the zones all that a CPU has of them.
    pub(crate) fn drain_quotas(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        let has_any = |pageset: &Pageset<'m, P>| pageset.count().0 > 0 && wanted(pageset);
        self.each_quota(cpu, has_any, |pageset, quota| self.drain_quota(cpu, pageset, quota))
    }

    /// Lets what a CPU may take decay by one step.
    pub(crate) fn decay_quotas(&self, cpu: &'m Cpu<'m, P>) -> Result<PageCount, DrainBusy> {
        self.each_quota(cpu, |_| true, |pageset, quota| self.decay_quota(cpu, pageset, quota))
    }

    /// Gives the zone all that a CPU has of it.
    fn drain_quota(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        quota: &Quota,
    ) -> Result<PageCount, DrainBusy> {
        self.spill_from_outside(cpu, pageset, quota)?;
        let maps = pageset.zone().maps();
        for by in [quota, maps.outside()] {
            by.places.iter().for_each(|place| maps.leave(pageset.frames(), place, by));
        }
        Ok(self.give_above(pageset, quota, PageCount(0)))
    }

    /// Moves all that is on a CPU's lists into maps, a chunk each time that the CPU is stopped.
    fn spill_from_outside(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        quota: &Quota,
    ) -> Result<(), DrainBusy> {
        let maps = pageset.zone().maps();
        let mut chunk = [0; CHUNK];
        for list in 0..pageset.list_count() {
            let order = list_order(list);
            while pageset.list(list).count() > 0 {
                let pop = |on: &OnCpu<'_, P>| {
                    pageset.pop_cold(self.platform.storage(), on, list, &mut chunk)
                };
                let got = self.while_taken(cpu, |of| core::ptr::eq(of, pageset), pop)?;
                if got == 0 {
                    break;
                }
                self.put_all(maps, pageset.frames(), quota, &chunk[..got], order);
                quota.give((got as u64) << order.0);
            }
        }
        Ok(())
    }

    /// Gives back half of what a CPU did not use since the last call, and what it may not keep any more.
    fn decay_quota(
        &self,
        cpu: &'m Cpu<'m, P>,
        pageset: &'m Pageset<'m, P>,
        quota: &Quota,
    ) -> Result<PageCount, DrainBusy> {
        let least = quota.take_least();
        let size = quota.size();
        let within = size.within(pageset.tuning().high_max);
        if within.pages < size.pages {
            quota.set_size(within);
            pageset.set_limits(within);
        }
        if quota.pages().0 == 0 && pageset.listed().0 > within.pages.into() {
            return self.drain_quota(cpu, pageset, quota);
        }
        let unused = QuotaSize::unused(least);
        let kept = match unused.0 {
            few if few < UNUSED_MIN => quota.pages(),
            _ => quota.pages().saturating_sub(unused),
        };
        Ok(self.give_above(pageset, quota, kept.min(PageCount(within.pages.into()))))
    }

    /// Calls `act` with each of a CPU's pagesets that has a quota; the pages that it tells, and the first that was busy.
    fn each_quota(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
        act: impl Fn(&'m Pageset<'m, P>, &'m Quota) -> Result<PageCount, DrainBusy>,
    ) -> Result<PageCount, DrainBusy> {
        let (mut pages, mut busy) = (PageCount(0), None);
        for pageset in cpu.pagesets.iter().filter(|pageset| wanted(pageset)) {
            match act(pageset, pageset.quota()) {
                Ok(some) => pages.0 += some.0,
                Err(error) => busy = busy.or(Some(error)),
            }
        }
        busy.map_or(Ok(pages), Err)
    }
}

/// For a scan, and in bulk.
impl<'m, P: Platform<Rules: HasMaps>> PageAllocator<'m, P> {
    /// A block past the lists.
    pub(crate) fn take_from_maps(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let number = self.find_in_maps(zone, wanted, flags)?;
        self.platform.touch_page(zone.frames().pfn(number), Access::Write);
        self.wake_above_soft_limit(zone, flags);
        Some(number)
    }

    /// From the reserve first for those that it is for, and last for
    /// others who cannot wait.
    fn find_in_maps(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let reserved = |rights| {
            let may = flags.intersects(rights);
            let number = if may { zone.take_reserved(flags, wanted.order) } else { None };
            number.inspect(|_| self.note_direct(zone, 1, wanted.order))
        };
        reserved(AllocFlags::HIGHATOMIC)
            .or_else(|| self.take_past_lists(zone, zone.maps(), wanted.of_zone(flags)))
            .or_else(|| reserved(AllocFlags::OOM.union(AllocFlags::NON_BLOCK)))
    }

    /// By its word a free knows where a block goes: back to the reserve, if it came from there.
    pub(crate) fn word_of_taken(
        &self,
        zone: &Zone<'m, P>,
        number: u32,
        wanted: &Wanted<'_>,
    ) -> Word {
        let frames = zone.frames();
        if frames.pageblock(number) == Migratetype::HighAtomic {
            return frames.allocated(wanted.order, Migratetype::HighAtomic);
        }
        match (list_index(wanted.order, wanted.migratetype), self.quota_here(zone.index())) {
            (Some(list), Some(pageset)) => pageset.held_word(list),
            _ => frames.allocated(wanted.order, wanted.migratetype),
        }
    }

    /// Whole pageblocks, what is on the list, and the rest straight out of maps.
    pub(crate) fn bulk_from_maps(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        out: &mut [Pfn],
    ) -> usize {
        let (maps, wants) = (zone.maps(), wanted.of_zone(AllocFlags::WMARK_LOW));
        let mut got = self.pageblocks_past_lists(zone, maps, wants, out);
        if got < out.len()
            && let Some(pageset) = self.quota_here(zone.index())
            && let Some(list) = list_index(Order(0), wanted.migratetype)
            && let Some(on) = pageset.enter(self.platform.storage())
        {
            got += self.pop_many(&on, pageset, list, &mut out[got..]);
        }
        got += self.bulk_past_lists(zone, maps, wants, &mut out[got..]);
        self.wake_above_soft_limit(zone, first_flags(wanted.gfp, zone));
        got
    }
}

/// Many at once.
impl<'m, P: Platform<Rules: HasMaps>> PageAllocator<'m, P> {
    /// Single pages out of maps; returns how many.
    fn bulk_past_lists(
        &self,
        zone: &Zone<'m, P>,
        maps: &ZoneMaps<'m>,
        wants: ZoneRequest,
        out: &mut [Pfn],
    ) -> usize {
        let account = self.account(zone, maps);
        let word = account.held_word(zone, wants);
        let (frames, mut got) = (zone.frames(), 0);
        while got < out.len() {
            let pages = account.take(self, zone, wants, 1, (out.len() - got) as u64);
            if pages == 0 {
                break;
            }
            let mut each = |first: u32, pages: u64| {
                self.platform.touch(ZoneMaps::map_line(frames, first), Access::Atomic);
                match pages {
                    u64::MAX => frames.hand_out_all(first..first + 64, word, &mut out[got..]),
                    _ => frames.hand_out_all(frames_of(first, pages), word, &mut out[got..]),
                }
                got += pages.count_ones() as usize;
            };
            let found =
                maps.take_pages(frames, what(wants), account.quota(), pages as u32, &mut each);
            self.after_fallback(zone, account.quota(), wants.flags);
            if u64::from(found) < pages {
                account.give(self, zone, pages - u64::from(found));
                break;
            }
        }
        self.note_given(zone, &account, got as u64, Order(0));
        got
    }

    /// Whole pageblocks, as single pages; returns how many pages.
    fn pageblocks_past_lists(
        &self,
        zone: &Zone<'m, P>,
        maps: &ZoneMaps<'m>,
        wants: ZoneRequest,
        out: &mut [Pfn],
    ) -> usize {
        const PAGES: u64 = PAGEBLOCK_ORDER.pages().0;
        let wanted = out.len() as u64 / PAGES * PAGES;
        if wanted == 0 {
            return 0;
        }
        let account = self.account(zone, maps);
        let (frames, word) = (zone.frames(), account.held_word(zone, wants));
        let mut got = 0;
        while got < wanted {
            let end = got + account.take(self, zone, wants, PAGES, wanted - got);
            let (before, most) = (got, ((end - got) / PAGES) as u32);
            self.take_wholes(maps, frames, wants, account.quota(), most, &mut |first| {
                frames.hand_out_all(first..first + PAGES as u32, word, &mut out[got as usize..]);
                got += PAGES;
            });
            account.give(self, zone, end - got);
            if got < end || got == before {
                break;
            }
        }
        self.note_given(zone, &account, got, Order(0));
        got as usize
    }

    fn note_given(
        &self,
        zone: &Zone<'m, P>,
        account: &Account<'_, 'm, P>,
        blocks: u64,
        order: Order,
    ) {
        match account {
            Account::Quota(pageset, _) => {
                pageset.events().given_blocks.add_atomically(blocks);
                pageset.events().given_pages.add_atomically(blocks << order.0);
            }
            Account::Zone(_) => self.note_direct(zone, blocks, order),
        }
    }

    /// Where this thread's pages of a zone are counted.
    fn account<'a>(&self, zone: &Zone<'m, P>, maps: &'a ZoneMaps<'m>) -> Account<'a, 'm, P>
    where
        'm: 'a,
    {
        match self.quota_here(zone.index()) {
            Some(pageset) => Account::Quota(pageset, pageset.quota()),
            None => Account::Zone(maps.outside()),
        }
    }
}

/// Where a thread's pages of a zone are counted: in its CPU's quota, or, where that has none, in the zone's counter.
enum Account<'a, 'm, P: Platform> {
    Quota(&'m Pageset<'m, P>, &'m Quota),
    Zone(&'a Quota),
}

impl<'m, P: Platform<Rules: HasMaps>> Account<'_, 'm, P> {
    /// With the hints of where to take pages.
    fn quota(&self) -> &Quota {
        match self {
            Self::Quota(_, quota) => quota,
            Self::Zone(hints) => hints,
        }
    }

    /// A multiple of `unit` pages that the thread may take out of maps, up to `most`, or none.
    fn take(
        &self,
        allocator: &PageAllocator<'m, P>,
        zone: &Zone<'m, P>,
        wants: ZoneRequest,
        unit: u64,
        most: u64,
    ) -> u64 {
        match self {
            Self::Quota(pageset, quota) => allocator.quota_for(pageset, quota, wants, unit, most),
            Self::Zone(hints) => {
                let limits = (wants.flags, wants.kind);
                hints.shared_writes.add(1);
                let pages = zone.claim_pages(&allocator.platform, limits, unit, most);
                zone.give_pages(&allocator.platform, pages % unit);
                pages - pages % unit
            }
        }
    }

    /// Gives back what [`take`](Self::take) took too much.
    fn give(&self, allocator: &PageAllocator<'m, P>, zone: &Zone<'m, P>, pages: u64) {
        match self {
            Self::Quota(_, quota) => quota.give(pages),
            Self::Zone(hints) => {
                hints.shared_writes.add(1);
                zone.give_pages(&allocator.platform, pages);
            }
        }
    }

    /// Gives pages back that maps do not have as the request needs them, and all else that the CPU may take of the zone: it
    /// would keep others of a limit's memory from their zones.
    fn give_up(&self, allocator: &PageAllocator<'m, P>, zone: &Zone<'m, P>, pages: u64) {
        self.give(allocator, zone, pages);
        if let Self::Quota(pageset, quota) = self {
            allocator.give_above(pageset, quota, PageCount(0));
        }
    }

    /// The word of a single page of the request.
    fn held_word(&self, zone: &Zone<'m, P>, wants: ZoneRequest) -> Word {
        let list = list_index(Order(0), wants.migratetype);
        match (self, list) {
            (Self::Quota(pageset, _), Some(list)) => pageset.held_word(list),
            _ => zone.frames().allocated(Order(0), wants.migratetype),
        }
    }
}
