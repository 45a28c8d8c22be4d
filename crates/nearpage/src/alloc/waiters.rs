//! Page locks, as far as pages know of them: the words that hold the lock bits, the tables of who waits, and that a page which
//! is locked or waited for is not freed.
#![allow(unsafe_code)]

use super::allocator::PageAllocator;
use crate::frame::{Frame, FrameState, Word};
use crate::host::{Access, Platform};
use crate::sync::AtomicU32;
use crate::units::{MAX_ORDER, NodeIndex, Order, Pfn, ZoneIndex};
use crate::waiters::{WaitCounts, WaitTables, WaiterTable, Waiters};

/// Why a page has no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoLock {
    /// No memory of this allocator has this frame number.
    Foreign,
    /// The page is in no allocated block.
    NotAllocated,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// The word of a page of an allocated block, for the lock of the page.
    ///
    /// # Errors
    /// [`NoLock`].
    ///
    /// # Safety
    /// * Nothing but the lock bits of the word is changed (`LOCKED`, `WAITERS`), and they by atomic exchange: all that the
    ///   allocator knows of the page is in the others.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn lock_cell(&self, pfn: Pfn) -> Result<&'m AtomicU32, NoLock> {
        let frame = match self.map.get(pfn) {
            Some(frame) if frame.word().state() == FrameState::Allocated => frame,
            _ => self.inner_frame(pfn)?,
        };
        Ok(frame.cell().atomic())
    }

    /// The frame of a page that is not the first one of an allocated block, but in one.
    #[cold]
    #[inline(never)]
    fn inner_frame(&self, pfn: Pfn) -> Result<Frame<'m>, NoLock> {
        let frame = self.map.get(pfn).filter(|_| self.is_online(pfn)).ok_or(NoLock::Foreign)?;
        self.head_of(pfn).map(|_| frame).ok_or(NoLock::NotAllocated)
    }

    /// The word while nobody has or wants the lock, of the first page of a block: as long as the block is allocated it is
    /// that, and not any more when it is free. The words of the other pages say nothing of that.
    #[doc(hidden)]
    pub fn idle_word_of_first(&self, pfn: Pfn) -> Option<u32> {
        let word = self.map.get(pfn)?.word();
        (word.state() == FrameState::Allocated).then(|| word.without_lock().bits())
    }

    /// Whether a page lies in an allocated block.
    #[doc(hidden)]
    pub fn is_in_block(&self, pfn: Pfn) -> bool {
        self.head_of(pfn).is_some()
    }

    /// The node of this CPU, of who waits there.
    #[doc(hidden)]
    pub fn waiting_node(&self) -> NodeIndex {
        self.this_cpu().map_or(NodeIndex(0), |cpu| cpu.owner.node)
    }

    /// The first frame of the allocated block that a page lies in.
    fn head_of(&self, pfn: Pfn) -> Option<Frame<'m>> {
        (0..=MAX_ORDER.0).map(Order).find_map(|order| {
            let frame = self.map.get(Pfn(pfn.0 - pfn.0 % order.pages().0))?;
            let word = frame.word();
            (word.state() == FrameState::Allocated && word.order() >= order).then_some(frame)
        })
    }

    /// Whether the block at `pfn` may be freed with `order`. After a fork a page may be said to be waited for by
    /// threads that are not there any more.
    #[inline]
    pub(super) fn may_free(&self, frame: Frame<'m>, pfn: Pfn, order: Order) -> bool {
        frame.word().is_allocated(order) || self.may_free_unless_waited_for(frame, pfn, order)
    }

    #[cold]
    #[inline(never)]
    fn may_free_unless_waited_for(&self, frame: Frame<'m>, pfn: Pfn, order: Order) -> bool {
        let word = frame.word();
        if word.is_locked() || !word.without_lock().is_allocated(order) {
            return false;
        }
        // Waiters set the bit under the lock of their bucket.
        P::Waiters::unless_waited_for(self.wait_table(pfn), pfn, &mut || {
            frame.cell().replace(word, word.without_lock());
        });
        frame.word().is_allocated(order)
    }

    /// The wait table of an online page: that of its zone.
    #[doc(hidden)]
    pub fn wait_table(&self, pfn: Pfn) -> &'m WaiterTable<'m, P::Waiters> {
        let by_word = self.head_of(pfn).map(|frame| frame.word().zone());
        let zone = by_word.unwrap_or_else(|| self.zone_of_page(pfn));
        if self.model.page_lock.tables == WaitTables::PerZone {
            // Linux 4.8 finds the table by the zone; where it lies is fixed under the other rules.
            self.platform.touch(self.zones[zone.0 as usize].marks_line(), Access::Read);
        }
        self.wait_tables[zone.0 as usize]
    }

    /// The zone of a page that nobody has allocated.
    fn zone_of_page(&self, pfn: Pfn) -> ZoneIndex {
        let has_page = |zone: &&&crate::zone::Zone<'m, P>| {
            self.topology.ranges_in(zone.node(), zone.span()).any(|range| range.contains(pfn))
        };
        self.zones.iter().find(has_page).map_or(ZoneIndex(0), |zone| zone.index())
    }

    /// The word of a page's frame.
    pub(crate) fn frame_word(&self, pfn: Pfn) -> Option<Word> {
        Some(self.map.get(pfn)?.word())
    }

    /// The wait table of each zone's pages, by zone index; zones may share one.
    pub(crate) fn wait_tables(&self) -> &'m [&'m WaiterTable<'m, P::Waiters>] {
        self.wait_tables
    }

    /// What happened at the wait tables of a node's zones: waits, collisions, wake-ups. With
    /// [`WaitTables::Global`](crate::waiters::WaitTables) all of it is the first node's.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn wait_counts(&self, node: NodeIndex) -> WaitCounts {
        assert!((node.0 as usize) < self.topology.len(), "no such node");
        let tables = self.zones.iter().zip(self.wait_tables).enumerate();
        let counts = tables.filter(|(index, (zone, _))| zone.node() == node && self.is_own(*index));
        let counts = counts.map(|(_, (_, table))| table.state.counts());
        counts.fold(WaitCounts::default(), WaitCounts::merged)
    }

    /// Whether a zone is the first of those that share its wait table.
    fn is_own(&self, zone: usize) -> bool {
        !self.wait_tables[..zone].iter().any(|table| core::ptr::eq(*table, self.wait_tables[zone]))
    }
}
