//! Parts of blocks: pages with a life of their own, and frees of any part of what was allocated.
//!
//! A block is split where it lies: its parts get words of their own, from the last down, and the first one last, so that
//! until then the block is whole for everybody. Splits of one zone happen under its lock: two who free different parts of one
//! block at once both find whole parts.

use super::allocator::PageAllocator;
use crate::error::FreeError;
use crate::frame::{Migratetype, Word, ZoneFrames};
use crate::host::Platform;
use crate::units::{MAX_ORDER, Order, PageCount, Pfn, PfnRange};
use crate::zone::Zone;

/// An allocated block.
#[derive(Clone, Copy)]
struct Block {
    first: Pfn,
    order: Order,
}

impl Block {
    fn range(self) -> PfnRange {
        PfnRange { start: self.first, end: self.first + self.order.pages() }
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Makes blocks of order `into` out of a block of the caller's, each to be freed by itself. They keep its type, and the
    /// block's lock must be free.
    ///
    /// # Errors
    /// [`FreeError`] as for a free of the block; [`FreeError::OrderTooLarge`] if `into` is above `order`. Nothing is changed
    /// then, and the host is told.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{Gfp, Order, PageCount, Request};
    /// # TestMachine::new().node(0, 4096, &[0]).run(|pages| {
    /// let block = pages.alloc(Request::new(Order(3), Gfp::KERNEL)).unwrap();
    /// pages.split(block, Order(3), Order(0)).unwrap();
    /// for page in 0..8 {
    ///     pages.free(block + PageCount(page), Order(0)).unwrap();
    /// }
    /// # });
    /// ```
    pub fn split(&self, pfn: Pfn, order: Order, into: Order) -> Result<(), FreeError> {
        if into > order {
            let error = FreeError::OrderTooLarge { pfn, order: into };
            self.platform.misuse(&error);
            return Err(error);
        }
        self.split_block(pfn, order, into)
    }

    /// Makes blocks of order `into` out of all larger blocks of a range of the caller's, which begins and ends with blocks:
    /// such as one from [`alloc_contiguous`](Self::alloc_contiguous) or [`alloc_at`](Self::alloc_at).
    ///
    /// # Errors
    /// [`FreeError`] of the first page that is in nobody's hands, or whose block is locked; nothing is changed then, and the
    /// host is told.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{Gfp, Order, PageCount, Pfn, Request};
    /// # TestMachine::new().node(0, 8192, &[0]).run(|pages| {
    /// let request = Request::new(Order(0), Gfp::KERNEL);
    /// let range = pages.alloc_contiguous(PageCount(3000), Order(0), request).unwrap();
    /// pages.split_range(range, Order(0)).unwrap();
    /// for page in range.start.0..range.end.0 {
    ///     pages.free(Pfn(page), Order(0)).unwrap();
    /// }
    /// # });
    /// ```
    pub fn split_range(&self, range: PfnRange, into: Order) -> Result<(), FreeError> {
        self.each_block(range, |_| Ok(()))?;
        self.each_block(range, |Block { first, order }| {
            if order > into { self.split_block(first, order, into) } else { Ok(()) }
        })
    }

    /// Frees any part of allocated blocks: pages of one, or of several that adjoin. What is left of a block stays its holder's,
    /// in blocks of smaller orders: who allocated an order of 3 and freed its fifth page frees the others by `free_range` too,
    /// in any order and any number of calls.
    ///
    /// # Errors
    /// [`FreeError`] of the first page that is in nobody's hands, or whose block is locked; nothing is changed then, and the
    /// host is told.
    ///
    /// ```
    /// # use nearpage::testing::machine::TestMachine;
    /// # use nearpage::{Gfp, Order, PageCount, PfnRange, Request};
    /// # TestMachine::new().node(0, 4096, &[0]).run(|pages| {
    /// let block = pages.alloc(Request::new(Order(3), Gfp::KERNEL)).unwrap();
    /// let part = |from: u64, to: u64| PfnRange::new(block.0 + from, block.0 + to);
    /// pages.free_range(part(5, 8)).unwrap();
    /// pages.free_range(part(0, 5)).unwrap();
    /// assert!(pages.free_range(part(0, 1)).is_err());
    /// # });
    /// ```
    pub fn free_range(&self, range: PfnRange) -> Result<(), FreeError> {
        self.each_block(range, |_| Ok(()))?;
        self.each_block(range, |block| {
            let part = block.range().intersection(range);
            self.cut(block, part)?;
            self.free_blocks(part)
        })
    }

    /// Calls `each` with the allocated blocks that a range has pages of, one after the other.
    fn each_block(
        &self,
        range: PfnRange,
        each: impl Fn(Block) -> Result<(), FreeError>,
    ) -> Result<(), FreeError> {
        let mut at = range.start;
        while at < range.end {
            let block = self.allocated_block(at)?;
            each(block)?;
            at = block.range().end;
        }
        Ok(())
    }

    /// The allocated block that a page is of.
    fn allocated_block(&self, page: Pfn) -> Result<Block, FreeError> {
        let found = (0..=MAX_ORDER.0).map(Order).find_map(|order| {
            let first = Pfn(page.0 & !(order.pages().0 - 1));
            let word = self.frame(first)?.word();
            // A head that is allocated is exact, and no allocated head lies inside a block.
            (word.without_lock().is_allocated(order)).then_some((Block { first, order }, word))
        });
        match found {
            Some((block, word)) if !word.is_locked() && !word.has_waiters() => Ok(block),
            Some((block, _)) => Err(self.refuse_free(block.first, block.order)),
            None => Err(self.refuse_free(page, Order(0))),
        }
    }

    /// Cuts a block at the ends of a part of it.
    fn cut(&self, block: Block, part: PfnRange) -> Result<(), FreeError> {
        if part == block.range() {
            return Ok(());
        }
        let Some(frame) = self.frame(block.first) else {
            return Err(self.refuse_free(block.first, block.order));
        };
        let zone: &Zone<'m, P> = self.zones[frame.word().zone().0 as usize];
        let guard = zone.lock();
        // Somebody who freed another part may have been faster.
        let word = frame.word();
        let is_whole = word.is_allocated(block.order);
        if is_whole {
            set_parts(zone.frames(), block, part, word.migratetype());
        }
        drop(guard);
        if is_whole {
            return Ok(());
        }
        let again = self.allocated_block(part.start)?;
        if again.range().intersection(part) == part { self.cut(again, part) } else { Ok(()) }
    }

    /// Frees all allocated blocks of a range, whose ends are ends of blocks.
    fn free_blocks(&self, range: PfnRange) -> Result<(), FreeError> {
        let mut at = range.start;
        while at < range.end {
            let order = self.frame(at).map_or(Order(0), |frame| frame.word().order());
            self.free(at, order)?;
            at += order.pages();
        }
        Ok(())
    }
}

/// Gives words to the largest parts of a block that lie within `range` or outside of it, from the last down.
fn set_parts(frames: &ZoneFrames<'_>, block: Block, range: PfnRange, of: Migratetype) {
    let Block { first, order } = block;
    let inside = block.range().intersection(range);
    if order == Order(0) || inside.is_empty() || inside == block.range() {
        let word: Word = frames.allocated(order, of);
        return frames.word(frames.number(first)).set(word);
    }
    let half = Order(order.0 - 1);
    let middle = first + PageCount(half.pages().0);
    set_parts(frames, Block { first: middle, order: half }, range, of);
    set_parts(frames, Block { first, order: half }, range, of);
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::{Config, Request};
    use crate::frame::LOCKED;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::sync::Ordering;
    use crate::testing::machine::TestMachine;
    use crate::testing::random::Random;

    #[test]
    fn any_parts_in_any_order() {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            TestMachine::new().node(0, 8192, &[0]).config(config).run(|allocator| {
                // A failure names the model; the seed is always this one.
                let mut random = Random(0x9a27);
                for _ in 0..200 {
                    let order = Order(random.below(11) as u8);
                    let block = allocator.alloc(Request::new(order, Gfp::KERNEL)).unwrap();
                    let pages = order.pages().0;
                    // Cut it anywhere, and free the parts in any order.
                    let mut ends: Vec<u64> =
                        (0..random.below(5)).map(|_| random.below(pages)).collect();
                    ends.extend([0, pages]);
                    ends.sort_unstable();
                    let mut parts: Vec<_> =
                        ends.windows(2).map(|ends| (ends[0], ends[1])).collect();
                    while !parts.is_empty() {
                        let at = random.below(parts.len() as u64) as usize;
                        let (from, to) = parts.swap_remove(at);
                        let part = PfnRange::new(block.0 + from, block.0 + to);
                        allocator.free_range(part).expect(model.name);
                        if from < to {
                            assert!(allocator.free_range(part).is_err(), "it is free");
                        }
                    }
                }
                assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
            });
        }
    }

    #[test]
    fn a_range_is_split_whatever_its_blocks() {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            TestMachine::new().node(0, 8192, &[0]).config(config).run(|allocator| {
                let request = Request::new(Order(0), Gfp::KERNEL);
                let range = allocator.alloc_contiguous(PageCount(3001), Order(0), request).unwrap();
                let more = PfnRange { start: range.start, end: range.end + PageCount(1) };
                assert!(allocator.split_range(more, Order(0)).is_err(), "{}", model.name);
                assert!(allocator.free(range.start, Order(0)).is_err(), "nothing was changed");
                allocator.split_range(range, Order(1)).unwrap();
                allocator.free(range.start, Order(1)).unwrap();
                let rest = PfnRange { start: range.start + PageCount(2), end: range.end };
                allocator.split_range(rest, Order(0)).unwrap();
                for page in rest.start.0..rest.end.0 {
                    allocator.free(Pfn(page), Order(0)).unwrap();
                }
                assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
            });
        }
    }

    #[test]
    fn what_is_not_the_callers_stays() {
        TestMachine::new().node(0, 4096, &[0]).run(|allocator| {
            let block = allocator.alloc(Request::new(Order(2), Gfp::KERNEL)).unwrap();
            let all = |from: u64, to: u64| PfnRange::new(block.0 + from, block.0 + to);
            let word = allocator.map.get(block).unwrap().cell().atomic();
            word.fetch_or(LOCKED, Ordering::Relaxed);
            assert_eq!(
                allocator.free_range(all(2, 3)),
                Err(FreeError::Locked { pfn: block, order: Order(2) })
            );
            assert!(allocator.split(block, Order(2), Order(0)).is_err());
            word.fetch_and(!LOCKED, Ordering::Relaxed);
            let too_large = FreeError::OrderTooLarge { pfn: block, order: Order(3) };
            assert_eq!(allocator.split(block, Order(2), Order(3)), Err(too_large));
            // Whatever lies behind it is nobody's, so nothing of the range goes.
            assert!(allocator.free_range(all(3, 4096)).is_err());
            allocator.free(block, Order(2)).unwrap();
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
        });
    }
}
