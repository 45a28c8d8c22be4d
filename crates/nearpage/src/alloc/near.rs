//! The pageset at hand: of this CPU, for the zone that a request prefers.

use super::allocator::PageAllocator;
use super::refill::FromPageset;
use super::request::Request;
use super::wanted::ZoneRequest;
use crate::frame::{Word, WordCell, ZoneFrames};
use crate::gfp::Gfp;
use crate::host::{Access, Platform};
use crate::pcp::pageset::{Pageset, PagesetRules};
use crate::pcp::{Pop, Storage, list_index};
use crate::units::{Order, Pfn};

/// Where the fast path looks: the pageset of this CPU for the zone that a request prefers, and the list in it.
pub(super) struct Near<'m, P: Platform> {
    pub(super) pageset: &'m Pageset<'m, P>,
    pub(super) list: usize,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
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
                let cpu = self.this_cpu()?;
                let zone = self.lists[cpu.lists as usize + node.0 as usize].preferred.zone(kind);
                (node, cpu.pagesets.get(zone.0 as usize)?)
            }
        };
        // A node without memory of this kind prefers a zone of another node.
        if request.gfp.contains(Gfp::THISNODE) && pageset.zone().node() != node {
            return None;
        }
        Some(Near { pageset, list })
    }

    /// A block from a pageset of this CPU, refilled if its list is empty.
    pub(super) fn alloc_from_pageset(
        &self,
        pageset: &Pageset<'m, P>,
        list: usize,
        wants: ZoneRequest,
    ) -> FromPageset {
        match self.pop(pageset, list) {
            Some((on, popped)) => self.popped_or_refilled(on, pageset, list, wants, popped),
            None => FromPageset::Busy,
        }
    }

    /// Pops from a list of this CPU; `None` if somebody else is at its pagesets.
    #[inline(always)]
    pub(super) fn pop(
        &self,
        pageset: &Pageset<'m, P>,
        list: usize,
    ) -> Option<(<P::Storage as Storage>::OnCpu<'_>, Pop)> {
        let on = pageset.enter(self.platform.storage())?;
        let popped = pageset.pop(&self.platform, &on, list);
        P::Rules::note_alloc(pageset, &self.model.pcp, popped);
        Some((on, popped))
    }

    /// What was popped, or the first block of a refill if the list was empty.
    pub(super) fn popped_or_refilled(
        &self,
        on: <P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        wants: ZoneRequest,
        popped: Pop,
    ) -> FromPageset {
        match popped {
            Pop::MOVED => FromPageset::Busy,
            Pop::EMPTY => self.refill(on, pageset, wants, list),
            Pop(number) => {
                self.platform.touch_page(pageset.frames().pfn(number), Access::Write);
                FromPageset::Block(number)
            }
        }
    }
}

/// Whether the zone of a pageset has room to spare for a block.
#[inline(always)]
pub(super) fn has_headroom<P: Platform>(pageset: &Pageset<'_, P>, order: Order) -> bool {
    order.0 < pageset.zone().headroom_orders()
}

/// Marks a block as allocated, by the word `allocated`, and gives its frame number to the outside.
#[inline(always)]
pub(crate) fn hand_out(frames: &ZoneFrames<'_>, number: u32, allocated: Word, order: Order) -> Pfn {
    mark_allocated(frames.word(number), allocated, order);
    frames.pfn(number)
}

#[inline(always)]
pub(super) fn mark_allocated(word: WordCell<'_>, allocated: Word, order: Order) {
    debug_assert!(!word.get().is_allocated(order), "handed out twice");
    word.set(allocated);
}
