//! What the holder of a block keeps beside its pages: two words each, where frames have links.
//!
//! The links of a frame are those of lists of free pages. While its page is allocated they are its holder's, who may keep
//! there what he likes, as Linux keeps cache and slab in `page->lru`. There can be one such holder: a slab allocator.

use super::allocator::PageAllocator;
use crate::frame::{Frame, FrameState};
use crate::host::Platform;
use crate::sync::{Ordering, fence};
use crate::units::{NodeIndex, Order, PageCount, Pfn};

/// What stands beside a page. Of a page that is not allocated it may be a link.
#[derive(Clone, Copy, Debug)]
pub struct PageNote<'m>(Frame<'m>);

impl PageNote<'_> {
    /// The first word.
    #[inline(always)]
    pub fn tag(self) -> u32 {
        self.0.next()
    }

    /// The second word.
    #[inline]
    pub fn number(self) -> u32 {
        self.0.prev()
    }

    /// Both words, if they were set at once.
    #[inline]
    pub fn read(self) -> Option<(u32, u32)> {
        let tag = self.tag();
        fence(Ordering::Acquire);
        let number = self.number();
        fence(Ordering::Acquire);
        (self.tag() == tag).then_some((tag, number))
    }

    /// The tag is 0 while the number changes: who reads tag, number and tag again has what belongs together, or knows that it
    /// does not.
    fn set(self, tag: u32, number: u32) {
        self.0.set_next(0);
        // Pairs with the fences in `read`: who sees this number sees that the tag was taken away before, and who
        // sees this tag sees this number.
        fence(Ordering::Release);
        self.0.set_prev(number);
        fence(Ordering::Release);
        self.0.set_next(tag);
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Whether there is room for notes ([`Config::notes`](crate::Config::notes)).
    #[doc(hidden)]
    pub fn has_notes(&self) -> bool {
        self.notes
    }

    /// The note beside a page, or `None` where the machine has no memory. Only where there is room for notes.
    #[doc(hidden)]
    #[inline(always)]
    pub fn note(&self, pfn: Pfn) -> Option<PageNote<'m>> {
        self.map.get(pfn).map(PageNote)
    }

    /// Sets the notes of all pages of a block, which the caller holds.
    ///
    /// # Panics
    /// If the machine has no memory there.
    #[doc(hidden)]
    pub fn set_notes(&self, pfn: Pfn, order: Order, tag: u32, number: u32) {
        for at in 0..order.pages().0 {
            let note = self.note(pfn.plus(PageCount(at)));
            note.expect("a block has frames").set(tag, number);
        }
    }

    /// The order of the allocated block that begins with a page.
    #[doc(hidden)]
    pub fn allocated_order(&self, pfn: Pfn) -> Option<Order> {
        let word = self.map.get(pfn)?.word();
        (word.state() == FrameState::Allocated).then(|| word.order())
    }

    /// The node of an allocated block, by its first frame.
    #[doc(hidden)]
    pub fn node_of_block(&self, pfn: Pfn) -> Option<NodeIndex> {
        let zone = self.map.get(pfn)?.word().zone();
        Some(self.zones.get(zone.0 as usize)?.node())
    }

    /// Whether a page is locked.
    #[doc(hidden)]
    pub fn is_locked(&self, pfn: Pfn) -> bool {
        self.map.get(pfn).is_some_and(|frame| frame.word().is_locked())
    }
}
