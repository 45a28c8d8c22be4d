//! Lending free blocks to the host, by where they are: for hosts that give the memory behind them back.

use super::allocator::PageAllocator;
use crate::buddy::Insertion;
use crate::host::Platform;
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn, PfnRange, ZoneIndex};
use crate::zone::Zone;

/// A free block that the host has for a while: no request finds it. It goes back to the tail of its list when this is
/// dropped.
pub struct LentBlock<'m, P: Platform> {
    zone: &'m Zone<'m, P>,
    number: u32,
    order: Order,
}

impl<P: Platform> core::fmt::Debug for LentBlock<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LentBlock").field("pfn", &self.pfn()).field("order", &self.order).finish()
    }
}

impl<P: Platform> LentBlock<'_, P> {
    /// The first frame.
    pub fn pfn(&self) -> Pfn {
        self.zone.frames().pfn(self.number)
    }

    /// The order.
    pub fn order(&self) -> Order {
        self.order
    }
}

impl<P: Platform> Drop for LentBlock<'_, P> {
    fn drop(&mut self) {
        let frames = *self.zone.frames();
        match self.zone.maps() {
            Some(maps) => self.zone.lent_pageblock_is_back(maps, self.number),
            None => {
                let (number, order) = (self.number, self.order);
                self.zone.lock().buddy().free(frames, number, order, Insertion::Tail);
            }
        }
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes the first free block of a pageblock or more whose first frame lies in a range of a zone. Memory that nobody
    /// has touched since it came online is not found, since nothing is behind it; nor are blocks that are reserved or
    /// isolated.
    ///
    /// # Panics
    /// If the allocator has no such zone.
    pub fn lend_free_block(&self, zone: ZoneIndex, range: PfnRange) -> Option<LentBlock<'m, P>> {
        let zone = self.zones[zone.0 as usize];
        let (frames, range) = (*zone.frames(), range.intersection(zone.span()));
        if range.is_empty() {
            return None;
        }
        let numbers = frames.number(range.start)..frames.number(range.end);
        let (number, order) = match zone.maps() {
            Some(maps) => (zone.lend_pageblock(maps, numbers)?, PAGEBLOCK_ORDER),
            None => zone.lock().buddy().take_between(frames, numbers)?,
        };
        Some(LentBlock { zone, number, order })
    }
}
