//! What Linux's rules do to a zone: to its buddy, under its lock.

use core::ops::{ControlFlow, Range};

use crate::buddy::{BlockRequest, Fragmentation, Insertion};
use crate::check_error::CheckError;
use crate::frame::Migratetype;
use crate::host::Platform;
use crate::rule_set::HasBuddy;
use crate::units::{MAX_ORDER, NodeId, ORDERS, Order, Pfn};
use crate::zone::{Lent, Zone};

impl<'m, P: Platform<Rules: HasBuddy>> Zone<'m, P> {
    pub(crate) fn free_area_of_buddy(&self) -> [[u32; ORDERS]; Migratetype::COUNT] {
        let mut guard = self.lock_from_outside();
        let buddy = guard.buddy();
        let blocks = |of| core::array::from_fn(|order| buddy.blocks(Order(order as u8), of));
        Migratetype::ALL.map(blocks)
    }

    pub(crate) fn each_block_of_buddy(
        &self,
        order: Order,
        of: Migratetype,
        mut each: impl FnMut(Pfn) -> ControlFlow<()>,
    ) {
        let mut guard = self.lock_from_outside();
        let mut blocks = guard.buddy().list(*self.frames(), order, of);
        let _ = blocks.try_for_each(|number| each(self.frames().pfn(number)));
    }

    pub(crate) fn reserve_in_buddy(&self, number: u32, order: Order) {
        let managed = self.managed();
        self.lock().buddy().reserve(*self.frames(), number, order, managed);
    }

    pub(crate) fn isolate_in_buddy(
        &self,
        mut pageblocks: impl Iterator<Item = u32>,
    ) -> Option<u32> {
        let mut guard = self.lock();
        pageblocks.find(|&number| !guard.buddy().isolate(*self.frames(), number))
    }

    pub(crate) fn end_isolation_in_buddy(&self, pageblocks: impl Iterator<Item = u32>) {
        let mut pageblocks = pageblocks.peekable();
        if pageblocks.peek().is_some() {
            let mut guard = self.lock();
            pageblocks.for_each(|number| guard.buddy().end_isolation(*self.frames(), number));
        }
    }

    pub(crate) fn take_apart_from_buddy(
        &self,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<u32> {
        let fragmentation = Fragmentation::Allowed;
        let request = BlockRequest { order, migratetype, fragmentation };
        self.lock_from_outside().buddy().alloc(*self.frames(), request)
    }

    /// A block of a pageblock or more. Nobody knows whether somebody had it in hand.
    pub(crate) fn lend_of_buddy(&self, range: Range<u32>) -> Option<Lent> {
        let (first, order) = self.lock().buddy().take_between(*self.frames(), range)?;
        let touched = order.pages().0 as u32;
        Some(Lent { pages: first..first + touched, touched })
    }

    pub(crate) fn lent_to_buddy(&self, pages: Range<u32>) {
        let order = Order(pages.len().ilog2() as u8);
        self.lock().buddy().free(*self.frames(), pages.start, order, Insertion::Tail);
    }

    pub(crate) fn mark_buddy(
        &self,
        node: NodeId,
        mark: impl Fn(u32, Order) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> {
        let (frames, kind) = (*self.frames(), self.kind());
        let mut guard = self.lock_from_outside();
        let buddy = guard.buddy();
        buddy.check(frames).map_err(|error| CheckError::Buddy { node, kind, error })?;
        for order in (0..=MAX_ORDER.0).map(Order) {
            for of in Migratetype::ALL {
                buddy.list(frames, order, of).try_for_each(|number| mark(number, order))?;
            }
        }
        Ok(())
    }
}
