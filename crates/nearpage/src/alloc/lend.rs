//! Lending free pages to the host, by where they are: for hosts that give the memory behind them back.

use super::allocator::PageAllocator;
use crate::host::Platform;
use crate::units::{PageCount, PfnRange, ZoneIndex};
use crate::zone::{Lent, Zone, ZoneRules};

pub use crate::zone::Lending;

/// Free pages that the host has for a while: no request finds them. They are free again when this is dropped, a block at the
/// tail of its list.
pub struct LentPages<'m, P: Platform> {
    zone: &'m Zone<'m, P>,
    range: PfnRange,
    touched: PageCount,
}

impl<P: Platform> core::fmt::Debug for LentPages<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LentPages")
            .field("range", &self.range)
            .field("touched", &self.touched)
            .finish()
    }
}

impl<P: Platform> LentPages<'_, P> {
    /// The pages.
    pub fn range(&self) -> PfnRange {
        self.range
    }

    /// How many of them somebody had in hand since they were last lent. Under Linux's rules nobody knows: all of them.
    pub fn touched(&self) -> PageCount {
        self.touched
    }
}

impl<P: Platform> Drop for LentPages<'_, P> {
    fn drop(&mut self) {
        let frames = *self.zone.frames();
        let numbers = frames.number(self.range.start)..frames.number(self.range.end);
        P::Rules::lent_are_back(self.zone, numbers);
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes the first free pages in a range of a zone that adjoin. Pages that nobody had in hand since they came online or were
    /// last lent are not found, since nothing is behind them; nor are those that are reserved or isolated, or that CPUs may
    /// take by quota.
    ///
    /// Under Linux's rules it takes free blocks of a pageblock or more, also those that it took before.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{Gfp, Lending, Order, Request, ZoneIndex};
    /// # TestMachine::new().node(0, 8192, &[0]).run(|pages| {
    /// let block = pages.alloc(Request::new(Order(3), Gfp::KERNEL)).unwrap();
    /// pages.free(block, Order(3)).unwrap();
    /// pages.drain_all().unwrap();
    /// let all = pages.zones()[0].span();
    /// let lend = || pages.lend_free_pages(ZoneIndex(0), all, Lending::default());
    /// assert!(lend().is_some());
    /// # });
    /// ```
    ///
    /// # Panics
    /// If the allocator has no such zone.
    pub fn lend_free_pages(
        &self,
        zone: ZoneIndex,
        range: PfnRange,
        lending: Lending,
    ) -> Option<LentPages<'m, P>> {
        let zone = self.zones[zone.0 as usize];
        let (frames, range) = (*zone.frames(), range.intersection(zone.span()));
        if range.is_empty() {
            return None;
        }
        let numbers = frames.number(range.start)..frames.number(range.end);
        let Lent { pages, touched } = P::Rules::lend(zone, numbers, lending)?;
        let start = frames.pfn(pages.start);
        let range = PfnRange { start, end: start + PageCount(pages.len() as u64) };
        Some(LentPages { zone, range, touched: PageCount(touched.into()) })
    }
}
