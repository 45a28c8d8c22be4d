//! Where things in pages are waited for: the wait table of a page's zone, and its bucket.

use core::pin::pin;
use core::time::Duration;

use super::allocator::PageAllocator;
use crate::error::PageLockError;
use crate::frame::{Frame, FrameState, Word};
use crate::host::{Access, Platform};
use crate::page_wait::{Awaited, Interrupted, Key, Site, Wait, WaitCounts, WaitTable, WaitTables};
use crate::units::{MAX_ORDER, NodeIndex, Order, Pfn, ZoneIndex};

impl<'m, P: Platform> PageAllocator<'m, P> {
    pub(super) fn block(
        &self,
        awaited: Awaited<'_, P>,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let deadline = |time| self.platform.now_ns().saturating_add(nanoseconds(time));
        let wait = pin!(Wait::new(awaited));
        wait.as_ref().block(timeout.map(deadline)).map_err(|interrupted| match interrupted {
            Interrupted::TimedOut => PageLockError::TimedOut,
            Interrupted::Cancelled => PageLockError::Cancelled,
        })
    }

    /// The first frame of the allocated block that a page lies in.
    pub(super) fn head_of(&self, pfn: Pfn) -> Option<Frame<'m>> {
        (0..=MAX_ORDER.0).map(Order).find_map(|order| {
            let frame = self.map.get(Pfn(pfn.0 - pfn.0 % order.pages().0))?;
            let word = frame.word();
            (word.state() == FrameState::Allocated && word.order() >= order).then_some(frame)
        })
    }

    /// The word of a page's frame.
    pub(crate) fn frame_word(&self, pfn: Pfn) -> Option<Word> {
        Some(self.map.get(pfn)?.word())
    }

    /// Where something in an online page is waited for.
    pub(super) fn site(&self, pfn: Pfn, key: Key) -> Site<'_, P> {
        let here = self.this_cpu().map_or(NodeIndex(0), |cpu| cpu.owner.node);
        Site { parking: &self.platform, table: self.wait_table(pfn), key, here }
    }

    /// The wait table of an online page: that of its zone.
    pub(super) fn wait_table(&self, pfn: Pfn) -> &'m WaitTable<'m, P> {
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

    /// The wait table of each zone's pages, by zone index; zones may share one.
    pub(crate) fn wait_tables(&self) -> &'m [&'m WaitTable<'m, P>] {
        self.wait_tables
    }

    /// What happened at the wait tables of a node's zones: waits, collisions, wake-ups. With
    /// [`WaitTables::Global`](crate::page_wait::WaitTables) all of it is the first node's.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn wait_counts(&self, node: NodeIndex) -> WaitCounts {
        assert!((node.0 as usize) < self.topology.len(), "no such node");
        let tables = self.zones.iter().zip(self.wait_tables).enumerate();
        let counts = tables.filter(|(index, (zone, _))| zone.node() == node && self.is_own(*index));
        let counts = counts.map(|(_, (_, table))| table.counts());
        counts.fold(WaitCounts::default(), WaitCounts::merged)
    }

    /// Whether a zone is the first of those that share its wait table.
    fn is_own(&self, zone: usize) -> bool {
        !self.wait_tables[..zone].iter().any(|table| core::ptr::eq(*table, self.wait_tables[zone]))
    }
}
