//! What a zone tells of its free pages under nearpage's own rules, and how a state is arranged.

use core::ops::ControlFlow;

use super::zone_maps::{PAGES, isolated_in};
use crate::check_error::CheckError;
use crate::frame::Migratetype;
use crate::host::Platform;
use crate::rule_set::HasMaps;
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn};
use crate::watermark::{WatermarkCheck, watermark_ok};
use crate::zone::Zone;

impl<P: Platform<Rules: HasMaps>> Zone<'_, P> {
    pub(crate) fn passes_by_maps(&self, check: &WatermarkCheck) -> bool {
        match check.order {
            Order(0) => watermark_ok(check, self.has_blocks()),
            _ => watermark_ok(check, |order, of| self.maps().has_block(self.frames(), order, of)),
        }
    }

    pub(crate) fn each_block_of_maps(
        &self,
        order: Order,
        of: Migratetype,
        mut each: impl FnMut(Pfn) -> ControlFlow<()>,
    ) {
        let each = &mut |number| each(self.frames().pfn(number));
        let _ = self.maps().each_free_block(self.frames(), order, of, each);
    }

    pub(crate) fn bring_to_maps(&self, platform: &P, number: u32, order: Order) {
        self.maps().put_block(self.frames(), number, order, self.maps().outside());
        self.give_pages(platform, order.pages().0);
    }

    /// Marks what is free in maps, and what is isolated and in nobody's hands.
    pub(crate) fn mark_maps(
        &self,
        mark: impl Fn(u32, Order) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> {
        let (frames, maps) = (self.frames(), self.maps());
        for at in maps.ours() {
            if maps.is_whole(at) && frames.map(at * PAGES).count() > 0 {
                return Err(CheckError::WholeInPart { pfn: frames.pfn(at * PAGES) });
            }
            let (free, captured) = (maps.free_in(frames, at), isolated_in(frames, at));
            for order in (0..=PAGEBLOCK_ORDER.0).map(Order) {
                let heads = free.heads(order).chain(captured.heads(order));
                { heads }.try_for_each(|head| mark(at * PAGES + head, order))?;
            }
        }
        Ok(())
    }
}
