//! The fast path: one page from, or to, the pageset of this CPU.

use core::hint::cold_path;

use super::scan::{Trip, first_flags};
use super::{PageAllocator, Request};
use crate::error::{AllocError, FreeError};
use crate::frame::{Migratetype, Word, WordCell, ZoneFrames};
use crate::gfp::Gfp;
use crate::pcp::pageset::Pageset;
use crate::pcp::{Pop, Push, Storage, list_index};
use crate::platform::{Access, Platform};
use crate::units::{Order, Pfn, ZoneKind};

/// What a pageset had for an allocation.
pub(super) enum FromPageset {
    /// A block.
    Block(u32),
    /// Nothing, nor had the zone.
    Nothing,
    /// Somebody else is at this CPU's pagesets.
    Busy,
}

/// Where the fast path looks: the pageset of this CPU for the zone that a request prefers, and the list in it.
pub(super) struct Near<'m, P: Platform> {
    pub(super) pageset: &'m Pageset<'m, P>,
    pub(super) list: usize,
    pub(super) migratetype: Migratetype,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Allocates a block.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is changed then.
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        match self.alloc_fast(request) {
            Some(pfn) => Ok(pfn),
            None => self.alloc_scan(request),
        }
    }

    /// A block from this CPU's pageset for the preferred zone, if that zone has room to spare. On storages that are not
    /// exact that is asked only where the pageset is to be refilled: what it holds is not free in the zone, so to hand it
    /// out takes nothing that a watermark keeps, and it is the nearest that there is.
    #[inline(always)]
    pub(super) fn alloc_fast(&self, request: Request) -> Option<Pfn> {
        let Near { pageset, list, migratetype } = self.near(request)?;
        if P::Storage::EXACT && !has_headroom(pageset, request.order) {
            return None;
        }
        let (on, popped) = self.pop(pageset, list)?;
        let frames = pageset.frames();
        // One comparison asks both whether it is a frame and whether its word is here.
        let Some(word) = frames.near_word(popped.0) else {
            let flags = first_flags(request.gfp, pageset.zone());
            let trip = Trip { order: request.order, migratetype, flags };
            return self.alloc_from_empty(on, pageset, list, trip, popped);
        };
        let pfn = frames.pfn(popped.0);
        self.platform.touch_page(pfn, Access::Write);
        mark_allocated(word, pageset.held_word(list), request.order);
        Some(pfn)
    }

    #[cold]
    #[inline(never)]
    fn alloc_from_empty(
        &self,
        on: <P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        trip: Trip,
        popped: Pop,
    ) -> Option<Pfn> {
        if !has_headroom(pageset, trip.order) {
            return None;
        }
        match self.popped_or_refilled(on, pageset, list, trip, popped) {
            FromPageset::Block(number) => {
                Some(hand_out(pageset.frames(), number, trip.order, trip.migratetype))
            }
            FromPageset::Nothing | FromPageset::Busy => None,
        }
    }

    /// Where the fast path looks for a request, or `None` if it is not one for the fast path.
    #[inline(always)]
    pub(super) fn near(&self, request: Request) -> Option<Near<'m, P>> {
        let migratetype = request.gfp.migratetype()?;
        let kind = request.gfp.zone_kind()?;
        let list = list_index(request.order, migratetype)?;
        let (node, pageset) = match request.node {
            None => {
                let pageset = self.home(kind)?;
                (pageset.owner().node, pageset)
            }
            Some(id) => {
                let node = self.node_index(id)?;
                let zone = self.nodes[node.0 as usize].preferred.zone(kind);
                (node, self.this_cpu()?.pagesets.get(zone.0 as usize)?)
            }
        };
        // A node without memory of this kind prefers a zone of another node.
        if request.gfp.has(Gfp::THISNODE) && pageset.zone().node() != node {
            return None;
        }
        Some(Near { pageset, list, migratetype })
    }

    /// A block from a pageset of this CPU, refilled if its list is empty.
    pub(super) fn alloc_from_pageset(
        &self,
        pageset: &Pageset<'m, P>,
        list: usize,
        trip: Trip,
    ) -> FromPageset {
        match self.pop(pageset, list) {
            Some((on, popped)) => self.popped_or_refilled(on, pageset, list, trip, popped),
            None => FromPageset::Busy,
        }
    }

    /// Pops from a list of this CPU; `None` if somebody else is at its pagesets.
    #[inline(always)]
    fn pop(
        &self,
        pageset: &Pageset<'m, P>,
        list: usize,
    ) -> Option<(<P::Storage as Storage>::OnCpu<'_>, Pop)> {
        let storage = self.platform.storage();
        let on = pageset.enter(storage)?;
        let popped = pageset.pop(storage, &on, list);
        pageset.note_alloc(&self.model.pcp, popped);
        Some((on, popped))
    }

    /// What was popped, or the first block of a refill if the list was empty.
    fn popped_or_refilled(
        &self,
        on: <P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        trip: Trip,
        popped: Pop,
    ) -> FromPageset {
        match popped {
            Pop::MOVED => FromPageset::Busy,
            Pop::EMPTY => self.refill(on, pageset, trip, list),
            Pop(number) => {
                self.platform.touch_page(pageset.frames().pfn(number), Access::Write);
                FromPageset::Block(number)
            }
        }
    }

    /// Frees a block that [`alloc`](Self::alloc) returned, with the order that it was allocated with.
    /// The page goes back to its own zone, whoever frees it.
    ///
    /// # Errors
    /// [`FreeError`] if the block is not in the caller's hands; it is left alone then, and the host is
    /// told ([`Platform::misuse`]).
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // Most pages come home to the zone that this CPU's requests prefer, from movable pageblocks. To
        // ask for that first means that the addresses of the zone and of the list are known before
        // the frame's word and its pageblock's type are: those only confirm the branches.
        if let Some(list) = list_index(order, Migratetype::Movable)
            && let Some(pageset) = self.home(ZoneKind::Normal)
            && let Some((word, number)) = pageset.frames().locate(pfn)
            && goes_to_list(pageset, list, word, number, order)
        {
            let cached = pageset.held_word(list).given_back(order, Migratetype::Movable);
            self.take_back(word, cached, pfn, order)?;
            self.free_to_pageset(pageset, number, order, list);
            return Ok(());
        }
        cold_path();
        self.free_anywhere(pfn, order)
    }

    /// A free of a page of another zone or of a pageblock that is not movable, from a CPU that has no pagesets, or
    /// of a page that is not the caller's.
    #[inline(never)]
    fn free_anywhere(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let frame = match self.map.get(pfn) {
            Some(frame) if self.may_free(frame, pfn, order) => frame,
            _ => return Err(self.refuse_free(pfn, order)),
        };
        let zone = frame.word().zone();
        self.take_back(frame.cell(), Word::cached(order, zone), pfn, order)?;
        let list = list_index(order, self.map.pageblock(pfn));
        match (list, self.this_cpu()) {
            (Some(list), Some(cpu)) => {
                let pageset = &cpu.pagesets[zone.0 as usize];
                self.free_to_pageset(pageset, pageset.frames().number(pfn), order, list);
            }
            _ => self.free_to_zone(zone, pfn, order),
        }
        Ok(())
    }

    /// Puts a block that nobody holds any more into a pageset of this CPU.
    #[inline(always)]
    fn free_to_pageset(&self, pageset: &Pageset<'m, P>, number: u32, order: Order, list: usize) {
        let storage = self.platform.storage();
        if let Some(on) = pageset.enter(storage) {
            let pushed = pageset.push(storage, &on, list, number);
            if pushed.is_done() {
                if P::Storage::EXACT {
                    self.after_exact_free(&on, pageset, order, list);
                }
                return;
            }
            if pushed == Push::FULL {
                return self.free_to_full_list(&on, pageset, number, order, list);
            }
        }
        self.free_to_zone(pageset.zone().index(), pageset.frames().pfn(number), order);
    }

    /// Takes an allocated block, whose word will be `cached`, out of its holder's hands.
    #[inline(always)]
    pub(super) fn take_back(
        &self,
        word: WordCell<'_>,
        cached: Word,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        self.platform.touch_page(pfn, Access::Write);
        if !P::HARDENED {
            word.set(cached);
        } else {
            let held = word.swap(cached);
            if !held.is_allocated(order) {
                return Err(self.refuse_taken(word, held, pfn, order));
            }
        }
        Ok(())
    }

    /// In the same instant somebody else freed the page, or locked it: then it stays where it is.
    #[cold]
    #[inline(never)]
    fn refuse_taken(&self, word: WordCell<'_>, held: Word, pfn: Pfn, order: Order) -> FreeError {
        if held.without_lock().is_allocated(order) {
            word.replace(Word::cached(order, held.zone()), held);
        }
        self.refuse_free(pfn, order)
    }

    /// Says why a free is refused, to the caller and to the host. The page stays where it is: whoever holds
    /// it keeps it, and if nobody does it is free already.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_free(&self, pfn: Pfn, order: Order) -> FreeError {
        let error = self.why_not_free(pfn, order);
        self.platform.misuse(&error);
        error
    }

    fn why_not_free(&self, pfn: Pfn, order: Order) -> FreeError {
        use crate::frame::FrameState;
        let Some(frame) = self.map.get(pfn) else { return FreeError::Foreign { pfn } };
        if order > crate::units::MAX_ORDER {
            return FreeError::OrderTooLarge { pfn, order };
        }
        if !pfn.is_aligned(order) {
            return FreeError::Misaligned { pfn, order };
        }
        let word = frame.word();
        match word.state() {
            FrameState::Allocated if word.order() != order => {
                FreeError::WrongOrder { pfn, order, allocated: word.order() }
            }
            FrameState::Allocated if word.is_locked() || word.has_waiters() => {
                FreeError::Locked { pfn, order }
            }
            _ if !self.is_online(pfn) => FreeError::Foreign { pfn },
            state => FreeError::NotAllocated { pfn, order, state },
        }
    }
}

/// Whether the zone of a pageset has room to spare for a block.
#[inline(always)]
pub(super) fn has_headroom<P: Platform>(pageset: &Pageset<'_, P>, order: Order) -> bool {
    order.0 < pageset.zone().headroom_orders()
}

/// Marks a block as allocated and gives its frame number to the outside.
#[inline(always)]
pub(super) fn hand_out(
    frames: &ZoneFrames<'_>,
    number: u32,
    order: Order,
    migratetype: Migratetype,
) -> Pfn {
    mark_allocated(frames.word(number), frames.allocated(order, migratetype), order);
    frames.pfn(number)
}

/// Whether a block is allocated, and goes to list `list` of its order when it is freed. That is the list of its
/// pageblock's type, as in Linux, or on storages that are not exact of the type that it was allocated for: its word
/// tells that for nothing, and a page on the wrong list only waits there for a request of that type.
#[inline(always)]
pub(super) fn goes_to_list<P: Platform>(
    pageset: &Pageset<'_, P>,
    list: usize,
    word: WordCell<'_>,
    number: u32,
    order: Order,
) -> bool {
    if P::Storage::EXACT {
        let frames = pageset.frames();
        frames.is_allocated(word.get(), order)
            && list_index(order, frames.pageblock(number)) == Some(list)
    } else {
        word.get() == pageset.held_word(list)
    }
}

#[inline(always)]
fn mark_allocated(word: WordCell<'_>, allocated: Word, order: Order) {
    debug_assert!(!word.get().is_allocated(order), "handed out twice");
    word.set(allocated);
}

#[cfg(test)]
mod tests {
    use crate::alloc::Request;
    use crate::error::AllocError;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, NodeId, Order};

    #[test]
    fn this_node_is_no_other_node() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 0, &[1]);
        machine.run(|allocator| {
            allocator.platform().run_on(CpuId(1));
            let gfp = Gfp::KERNEL.or(Gfp::THISNODE);
            let request = Request::new(Order(0), gfp);
            let refused = AllocError::MemorylessNode { node: NodeId(1), gfp };
            assert_eq!(allocator.alloc(request), Err(refused));
            assert_eq!(allocator.alloc(request.on(NodeId(1))), Err(refused));
            assert!(allocator.alloc(request.on(NodeId(0))).is_ok());
        });
    }
}
