//! Instances: several zones of one kind on one node.
//!
//! All CPUs of a node share the lock of its Normal zone. If that memory is divided into instances, each is a zone of its
//! own, with its lock, watermarks and pagesets, and each CPU begins at one of them. Other kinds of memory are not
//! divided: they are small, or few use them.
//!
//! Source: the RFC of 2023-05-11 "mm: improve page allocator scalability via splitting zones" (facts 15.1). It gives
//! the size, and that a CPU's number chooses. Assumed here: instances are equal parts of the zone's addresses, and the
//! number of instances is the nearest one.

use crate::units::{Order, PageCount, Pfn, PfnRange};

/// Into how many zones the Normal memory of a node is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ZoneInstances {
    /// So many on each node; 0 counts as 1. Where the memory does not suffice for so many, there are fewer.
    Count(u16),
    /// One for each so many pages, to the nearest number and at least one.
    OfPages(PageCount),
}

impl ZoneInstances {
    /// No zone is divided.
    pub const ONE: Self = Self::Count(1);

    /// Instances of a zone of so many pages.
    pub fn count(self, pages: PageCount) -> u16 {
        let count = match self {
            Self::Count(count) => u64::from(count),
            Self::OfPages(PageCount(0)) => 1,
            Self::OfPages(size) => pages.0 / size.0 + u64::from(pages.0 % size.0 * 2 >= size.0),
        };
        count.clamp(1, u64::from(u16::MAX)) as u16
    }
}

/// Equal parts of a span, ascending; some may be empty if the span is small. They meet at multiples of the largest
/// block, so that no block belongs to two.
pub(super) fn parts(span: PfnRange, count: u16) -> impl Iterator<Item = PfnRange> {
    let (pages, count) = (span.pages().0, u64::from(count));
    let bound = move |at: u64| match at {
        0 => span.start,
        at if at == count => span.end,
        at => {
            let part = pages / count * at + pages % count * at / count;
            Pfn((span.start.0 + part).next_multiple_of(Order::MAX.pages().0)).min(span.end)
        }
    };
    (0..count).map(move |at| PfnRange { start: bound(at), end: bound(at + 1) })
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;

    #[test]
    fn the_nearest_number_of_instances_is_taken() {
        let size = ZoneInstances::OfPages(PageCount(1000));
        for (pages, count) in [(0, 1), (1, 1), (1499, 1), (1500, 2), (2499, 2), (2500, 3)] {
            assert_eq!(size.count(PageCount(pages)), count, "{pages} pages");
        }
        assert_eq!(ZoneInstances::OfPages(PageCount(0)).count(PageCount(9)), 1);
        assert_eq!(ZoneInstances::OfPages(PageCount(1)).count(PageCount(1 << 40)), u16::MAX);
        assert_eq!(ZoneInstances::Count(0).count(PageCount(9)), 1);
        assert_eq!(ZoneInstances::Count(4).count(PageCount(9)), 4);
    }

    proptest::proptest! {
        #[test]
        fn parts_are_the_span_in_pieces_that_share_no_block(
            start in 0u64..1 << 40,
            pages in 0u64..1 << 30,
            count in 1u16..64,
        ) {
            let span = PfnRange::new(start, start + pages);
            let parts: Vec<PfnRange> = parts(span, count).collect();
            assert_eq!((parts.len(), parts[0].start), (count as usize, span.start));
            assert_eq!(parts[parts.len() - 1].end, span.end);
            let block = Order::MAX.pages().0;
            for pair in parts.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert!(pair[0].end == span.end || pair[0].end.is_aligned(Order::MAX));
            }
            let equal = pages / u64::from(count);
            assert!(parts.iter().all(|part| part.pages().0.abs_diff(equal) <= block));
        }
    }
}
