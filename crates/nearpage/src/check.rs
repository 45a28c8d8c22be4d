//! The walker: every frame is in exactly one place, and every counter says what is there.
//!
//! It marks the heads of what pagesets and free lists hold, then sweeps the frames of each zone from block
//! to block: a frame must be the head of a free, cached or allocated block, or lie inside the
//! block before it. It takes time by the number of frames that were ever touched, and may run only
//! while nobody else uses the allocator.

use core::fmt;

use crate::alloc::PageAllocator;
use crate::buddy::BuddyError;
use crate::frame::{FrameState, Migratetype, NO_FRAME, Place, Word, ZoneFrames};
use crate::host::Platform;
use crate::pcp::pageset::Pageset;
use crate::pcp::pieces::Pieces;
use crate::pcp::{CountedList, Storage, list_order};
use crate::places::quota::Quota;
use crate::places::zone_maps::{PAGES, ZoneMaps, isolated_in};
use crate::units::{CpuId, MAX_ORDER, NodeId, Order, PAGEBLOCK_ORDER, PageCount, Pfn, ZoneKind};
use crate::waiters::{AwaitedBit, Waiters as _, WaitersBit};
use crate::zone::Zone;

/// What the walker counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Pages on free lists.
    pub free: PageCount,
    /// Pages in pagesets.
    pub cached: PageCount,
    /// Pages in somebody's hands.
    pub allocated: PageCount,
}

/// What the walker found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The buddy of a zone is not in order.
    Buddy {
        /// The zone's node.
        node: NodeId,
        /// The zone's kind.
        kind: ZoneKind,
        /// What is wrong.
        error: BuddyError,
    },
    /// A pageset list does not hold what its count says.
    ListCount {
        /// The CPU.
        cpu: CpuId,
        /// The list.
        list: usize,
        /// The count.
        counted: u32,
        /// Blocks found.
        found: u32,
    },
    /// A pageset does not hold what its count says.
    PagesetCount {
        /// The CPU.
        cpu: CpuId,
        /// The count.
        counted: PageCount,
        /// Pages found on its lists.
        found: PageCount,
    },
    /// A pageblock that is whole, and has free pages of its own in its map.
    WholeInPart {
        /// Its first frame.
        pfn: Pfn,
    },
    /// A pageblock is on the list of those that a CPU owns and that have pieces in the zone, and is not the CPU's, or the
    /// list is broken.
    OwnedBlock {
        /// The CPU.
        cpu: CpuId,
        /// The pageblock.
        pfn: Pfn,
    },
    /// A block stands in two places, or on a list although somebody holds it.
    Twice {
        /// The block.
        pfn: Pfn,
        /// What its word says.
        word: Word,
    },
    /// A block lies within another.
    Overlap {
        /// The inner block.
        pfn: Pfn,
        /// What its word says.
        word: Word,
        /// The outer block.
        within: Pfn,
    },
    /// A frame is online and in no place at all.
    Lost {
        /// The frame.
        pfn: Pfn,
        /// What its word says.
        word: Word,
    },
    /// The pages found in a zone are not those that it was given.
    Total {
        /// The zone's node.
        node: NodeId,
        /// The zone's kind.
        kind: ZoneKind,
        /// Pages that the zone was given.
        managed: PageCount,
        /// What was found.
        found: Checked,
    },
    /// A page that nobody holds is locked, or said to be waited for.
    Locked {
        /// The page.
        pfn: Pfn,
        /// What its word says.
        word: Word,
    },
    /// Somebody waits for a page in the wrong bucket, or the page's word does not say so.
    Waiter {
        /// What is waited for.
        key: AwaitedBit,
    },
    /// The published free pages of a zone are not those on its lists.
    Published {
        /// The zone's node.
        node: NodeId,
        /// The zone's kind.
        kind: ZoneKind,
        /// What is published.
        published: PageCount,
        /// What is there.
        free: PageCount,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buddy { node, kind, error } => {
                write!(f, "node {node}, zone {}: {error}", kind.name())
            }
            Self::ListCount { cpu, list, counted, found } => {
                write!(f, "CPU {cpu}, list {list}: {found} blocks, counted {counted}")
            }
            Self::PagesetCount { cpu, counted, found } => {
                write!(f, "CPU {cpu}: {found} pages in a pageset, counted {counted}")
            }
            Self::WholeInPart { pfn } => {
                write!(f, "the pageblock at frame {pfn} is whole, and free in part")
            }
            Self::OwnedBlock { cpu, pfn } => {
                write!(f, "the pageblock at frame {pfn} is listed as CPU {cpu}'s, and is not")
            }
            Self::Twice { pfn, word } => {
                write!(f, "frame {pfn}: in two places; its word is {word:?}")
            }
            Self::Overlap { pfn, word, within } => {
                write!(f, "frame {pfn}, {word:?}: lies within the block at {within}")
            }
            Self::Lost { pfn, word } => write!(f, "frame {pfn}, {word:?}: online and nowhere"),
            Self::Total { node, kind, managed, found } => {
                write!(
                    f,
                    "node {node}, zone {}: {managed} pages managed, found {found:?}",
                    kind.name()
                )
            }
            Self::Locked { pfn, word } => {
                write!(f, "frame {pfn}, {word:?}: locked or waited for, and in nobody's hands")
            }
            Self::Waiter { key } => write!(f, "a waiter that nobody would wake: {key:?}"),
            Self::Published { node, kind, published, free } => write!(
                f,
                "node {node}, zone {}: {published} free pages published, {free} on the lists",
                kind.name()
            ),
        }
    }
}

impl core::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Buddy { error, .. } => Some(error),
            _ => None,
        }
    }
}

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
        match zone.maps() {
            Some(maps) => mark_maps(&frames, maps)?,
            None => {
                let mut guard = zone.lock_from_outside();
                let buddy = guard.buddy();
                buddy.check(frames).map_err(|error| CheckError::Buddy { node, kind, error })?;
                for order in (0..=MAX_ORDER.0).map(Order) {
                    for migratetype in Migratetype::ALL {
                        for number in buddy.list(frames, order, migratetype) {
                            mark(&frames, number, order, Place::Free)?;
                        }
                    }
                }
            }
        }
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
            if let Some(pieces) = pageset.pieces() {
                cached.0 += mark_pieces(zone.frames(), pieces, *cpu)?;
            }
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
        pagesets.filter_map(Pageset::quota).map(Quota::pages).sum()
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

/// Marks the pieces of a pageset; returns their pages. A piece says of its word whether its CPU owns the pageblock, and the
/// pageblocks listed as having pieces in the zone are the CPU's.
fn mark_pieces(frames: &ZoneFrames<'_>, pieces: &Pieces, cpu: CpuId) -> Result<u64, CheckError> {
    let mut pages = 0;
    for order in (0..=PAGEBLOCK_ORDER.0).map(Order) {
        for of in Migratetype::ALL.into_iter().take(Migratetype::PCP_COUNT) {
            let (mut found, mut result) = (0, Ok(()));
            pieces.for_each(frames, order, of, &mut |number| {
                found += 1;
                let word = frames.frame(number).word();
                let is_ours = frames.owned(number).owner() == Some(cpu);
                let is_owned = word.state() == FrameState::Owned;
                if result.is_ok() {
                    result = match is_owned && !is_ours || word.order() != order {
                        true => Err(CheckError::Twice { pfn: frames.pfn(number), word }),
                        false => mark(frames, number, order, Place::Cached),
                    };
                }
            });
            result?;
            let counted = pieces.count(order, of);
            if counted != found {
                let list = order.0 as usize * Migratetype::PCP_COUNT + of.index();
                return Err(CheckError::ListCount { cpu, list, counted, found });
            }
            pages += (found as u64) << order.0;
        }
    }
    let listed = Migratetype::ALL.into_iter().take(Migratetype::PCP_COUNT);
    for of in listed {
        let mut before = NO_FRAME;
        for first in frames.pageblocks_from(pieces.first_fragment(of).unwrap_or(NO_FRAME)) {
            let block = frames.owned(first);
            let is_linked = frames.pageblock_before(first) == before && block.listed() == Some(of);
            if !is_linked || block.owner() != Some(cpu) {
                return Err(CheckError::OwnedBlock { cpu, pfn: frames.pfn(first) });
            }
            before = first;
        }
    }
    Ok(pages)
}

/// Marks what is free in maps, and what is isolated and in nobody's hands.
fn mark_maps(frames: &ZoneFrames<'_>, maps: &ZoneMaps<'_>) -> Result<(), CheckError> {
    for at in maps.ours() {
        if maps.is_whole(at) && frames.map(at * PAGES).count() > 0 {
            return Err(CheckError::WholeInPart { pfn: frames.pfn(at * PAGES) });
        }
        let (free, captured) = (maps.free_in(frames, at), isolated_in(frames, at));
        for order in (0..=PAGEBLOCK_ORDER.0).map(Order) {
            let heads = free.heads(order).chain(captured.heads(order));
            { heads }.try_for_each(|head| mark(frames, at * PAGES + head, order, Place::Free))?;
        }
    }
    Ok(())
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
