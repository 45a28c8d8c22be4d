//! The walker: every frame is in exactly one place, and every counter says what is there.
//!
//! It marks the heads of what pagesets and free lists hold, then sweeps the frames of each zone from block
//! to block: a frame must be the head of a free, cached or allocated block, or lie inside the
//! block before it. It takes time by the number of frames that were ever touched, and may run only
//! while nobody else uses the allocator.

use crate::alloc::PageAllocator;
use crate::frame::{FrameState, Place, Word, ZoneFrames};
use crate::host::Platform;
use crate::pcp::pageset::PagesetRules;
use crate::pcp::{CountedList, Storage, list_order};
use crate::units::{MAX_ORDER, Order, PageCount, Pfn};
use crate::waiters::{Waiters as _, WaitersBit};
use crate::zone::{Zone, ZoneRules};

pub use crate::check_error::{CheckError, Checked};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Walks everything. Only while nobody else uses the allocator: a page on its way is nowhere.
    ///
    /// # Errors
    /// The first thing found wrong. The marks that the walk made stay then: the allocator is broken and
    /// must not be used any further.
    pub fn check(&self) -> Result<Checked, CheckError> {
        let mut all = Checked::default();
        for zone in self.zones() {
            let found = self.check_zone(zone)?;
            all.free.0 += found.free.0;
            all.cached.0 += found.cached.0;
            all.allocated.0 += found.allocated.0;
        }
        self.check_waiters()?;
        Ok(all)
    }

    /// Every entry of a wait table is found by who unlocks its page.
    fn check_waiters(&self) -> Result<(), CheckError> {
        let is_off = self.model().page_lock.waiters_bit == WaitersBit::Off;
        let is_told = |page: Pfn| is_off || self.frame_word(page).is_some_and(Word::has_waiters);
        let lost = self.wait_tables().iter().find_map(|table| P::Waiters::lost(table, &is_told));
        lost.map_or(Ok(()), |key| Err(CheckError::Waiter { key }))
    }

    fn check_zone(&self, zone: &Zone<'m, P>) -> Result<Checked, CheckError> {
        let (node, kind) = (self.topology().node(zone.node()).id, zone.kind());
        let frames = *zone.frames();
        P::Rules::mark_free(zone, node, |number, order| mark(&frames, number, order, Place::Free))?;
        self.mark_cached(zone)?;
        let mut found = self.sweep(zone)?;
        // Free pages for which a CPU has a quota are the CPU's.
        let quotas = self.quotas_of(zone);
        found.free = found.free.saturating_sub(quotas);
        found.cached += quotas;
        let (managed, published) = (zone.managed(), zone.free_pages());
        if found.free.0 + found.cached.0 + found.allocated.0 != managed.0 {
            return Err(CheckError::Total { node, kind, managed, found });
        }
        if published != found.free {
            return Err(CheckError::Published { node, kind, published, free: found.free });
        }
        Ok(found)
    }

    fn mark_cached(&self, zone: &Zone<'m, P>) -> Result<(), CheckError> {
        for cpu in self.topology().nodes().iter().flat_map(|node| node.cpus) {
            let pagesets = self.pagesets(*cpu).unwrap_or_default();
            let Some(pageset) = pagesets.get(zone.index().0 as usize) else { continue };
            let mut cached = PageCount(0);
            for index in 0..pageset.list_count() {
                let list = pageset.list(index);
                let (mut found, mut result) = (0, Ok(()));
                P::Storage::for_each(list, zone.frames(), &mut |number| {
                    found += 1;
                    if result.is_ok() {
                        result = mark(zone.frames(), number, list_order(index), Place::Cached);
                    }
                });
                result?;
                let counted = list.counts().count;
                if counted != found {
                    return Err(CheckError::ListCount { cpu: *cpu, list: index, counted, found });
                }
                cached.0 += (found as u64) << list_order(index).0;
            }
            let mark = |number, order| mark(zone.frames(), number, order, Place::Cached);
            cached.0 += P::Rules::mark_beside(pageset, mark)?;
            let counted = pageset.listed();
            if counted != cached {
                return Err(CheckError::PagesetCount { cpu: *cpu, counted, found: cached });
            }
        }
        Ok(())
    }

    /// Pages of a zone that CPUs have quotas for.
    fn quotas_of(&self, zone: &Zone<'m, P>) -> PageCount {
        let pagesets = self.cpus().filter_map(|(.., of)| of.get(zone.index().0 as usize));
        pagesets.map(P::Rules::beside).sum()
    }

    /// Goes over the zone's frames from block to block and takes the marks away.
    fn sweep(&self, zone: &Zone<'m, P>) -> Result<Checked, CheckError> {
        let mut found = Checked::default();
        let mut pfn = zone.span().start;
        for range in self.topology().ranges_in(zone.node(), zone.span()) {
            // A block may reach over the bound of two ranges that adjoin.
            pfn = pfn.max(range.start);
            while pfn < range.end {
                let pages = if self.is_online(pfn) {
                    sweep_block(zone.frames(), pfn, &mut found)?
                } else {
                    1
                };
                pfn = pfn.plus(PageCount(pages));
            }
        }
        Ok(found)
    }
}

/// Counts the block that begins at `pfn`, and takes its mark away; returns its pages.
fn sweep_block(frames: &ZoneFrames<'_>, pfn: Pfn, found: &mut Checked) -> Result<u64, CheckError> {
    let number = frames.number(pfn);
    let frame = frames.frame(number);
    let word = frame.word();
    let (place, order) = match word.mark() {
        Some(mark) => mark,
        None if word.state() == FrameState::Allocated => (Place::Allocated, word.order()),
        None => return Err(CheckError::Lost { pfn, word }),
    };
    let is_locked = word.is_locked() || word.has_waiters();
    if is_locked && place != Place::Allocated {
        return Err(CheckError::Locked { pfn, word });
    }
    // An untouched block of the largest order has nothing inside.
    if place != Place::Free || order < MAX_ORDER {
        check_inside(frames, number, order)?;
    }
    frame.set_word(word.unmarked());
    let total = match place {
        Place::Free => &mut found.free,
        Place::Cached => &mut found.cached,
        Place::Allocated => &mut found.allocated,
    };
    total.0 += order.pages().0;
    Ok(order.pages().0)
}

/// Marks the head of a listed block.
fn mark(
    frames: &ZoneFrames<'_>,
    number: u32,
    order: Order,
    place: Place,
) -> Result<(), CheckError> {
    let frame = frames.frame(number);
    let word = frame.word();
    let expected = match (place, word.state()) {
        (Place::Cached, FrameState::Free) | (Place::Free, FrameState::Owned) => false,
        (_, FrameState::Allocated) => false,
        _ => word.mark().is_none(),
    };
    if !expected {
        return Err(CheckError::Twice { pfn: frames.pfn(number), word });
    }
    frame.set_word(word.marked(place, order));
    Ok(())
}

/// Nothing inside a block may be the head of another.
fn check_inside(frames: &ZoneFrames<'_>, number: u32, order: Order) -> Result<(), CheckError> {
    for inner in number + 1..number + order.pages().0 as u32 {
        let word = frames.frame(inner).word();
        if word.mark().is_some() || matches!(word.state(), FrameState::Free | FrameState::Allocated)
        {
            let (pfn, within) = (frames.pfn(inner), frames.pfn(number));
            return Err(CheckError::Overlap { pfn, word, within });
        }
    }
    Ok(())
}
