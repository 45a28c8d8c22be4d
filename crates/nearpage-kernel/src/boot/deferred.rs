//! Memory that is initialised after the boot, in parts, by any CPU.

use nearpage::{OnlineError, PageCount, Pfn, PfnRange};

use crate::Pages;
use crate::lock::TicketLock;
use crate::seam::Kernel;

/// Ranges that can wait.
const RANGES_MAX: usize = 128;
/// Parts end at bounds of so many frames, which share a block of no order: a section of 128 MiB.
const PART: u64 = 1 << 15;

/// Ranges that are there, and not online yet.
pub struct Deferred<K: Kernel> {
    pages: &'static Pages<'static, K>,
    left: TicketLock<K, Left>,
}

struct Left {
    ranges: [PfnRange; RANGES_MAX],
    len: usize,
}

impl<K: Kernel> Deferred<K> {
    pub(super) fn new(pages: &'static Pages<'static, K>) -> Self {
        let ranges = [PfnRange { start: Pfn(0), end: Pfn(0) }; RANGES_MAX];
        Self { pages, left: TicketLock::new(Left { ranges, len: 0 }) }
    }

    /// Notes a range; `false` if there is no room.
    pub(super) fn add(&self, range: PfnRange) -> bool {
        let left = &mut *self.left.lock();
        if range.is_empty() {
            return true;
        }
        let Some(place) = left.ranges.get_mut(left.len) else { return false };
        *place = range;
        left.len += 1;
        true
    }

    /// Pages that wait.
    pub fn pages_left(&self) -> PageCount {
        let left = self.left.lock();
        PageCount(left.ranges[..left.len].iter().map(|range| range.pages().0).sum())
    }

    /// Brings a part online, of about `pages` pages and in whole sections where it can be; returns how many, 0 once nothing
    /// waits. Any CPU may call it at any time: each takes another part.
    ///
    /// # Errors
    /// [`OnlineError`] if somebody brought a page of the part online otherwise; the part is forgotten.
    pub fn step(&self, pages: PageCount) -> Result<PageCount, OnlineError> {
        match self.take(pages.0.max(1)) {
            Some(part) => self.pages.online(part),
            None => Ok(PageCount(0)),
        }
    }

    fn take(&self, most: u64) -> Option<PfnRange> {
        let left = &mut *self.left.lock();
        let range = left.ranges.get_mut(left.len.checked_sub(1)?)?;
        let end = range.start.0.saturating_add(most).checked_next_multiple_of(PART);
        let end = end.map_or(range.end, |end| Pfn(end).min(range.end));
        let part = PfnRange { start: range.start, end };
        range.start = part.end;
        if range.is_empty() {
            left.len -= 1;
        }
        Some(part)
    }
}

impl<K: Kernel> core::fmt::Debug for Deferred<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Deferred").field("pages_left", &self.pages_left()).finish_non_exhaustive()
    }
}
