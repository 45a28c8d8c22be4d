//! Where the free memory of a zone lies at the start: in blocks as large as can be, unless a recording tells
//! that some of it was in small ones.

use nearpage::{Order, Pfn, PfnRange};

/// Free memory of a zone by the size of its blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// This many pages in one piece.
    Whole(u64),
    /// This many blocks of the highest order.
    Largest(u64),
    /// Some pages in one piece, and some in blocks below an order.
    Fragmented {
        /// Pages in one piece.
        whole: u64,
        /// Pages in smaller blocks.
        fragments: u64,
        /// As above, but apart from those: they may be of another type.
        rest: u64,
        /// Order that no fragment has.
        limit: Order,
    },
    /// So many blocks, by order; a list of them for each type.
    Blocks(Vec<Vec<u64>>),
}

impl Layout {
    /// The ranges of memory, ascending: small blocks at the bottom of the zone, the rest at the top, which
    /// ends on a boundary of large blocks more often than the bottom begins on one.
    pub fn ranges(&self, span: PfnRange) -> Result<Vec<PfnRange>, String> {
        let mut ranges = self.fragments(span);
        ranges.extend(self.rest(span));
        let (pages, aligned) = match self {
            Self::Whole(pages) => (*pages, Order(0)),
            Self::Largest(blocks) => (blocks << Order::MAX.0, Order::MAX),
            Self::Fragmented { whole, limit, .. } => (*whole, *limit),
            Self::Blocks(types) => {
                let blocks = types.first().and_then(|blocks| blocks.last());
                (blocks.unwrap_or(&0) << Order::MAX.0, Order::MAX)
            }
        };
        let end = align_down(span.end.0, aligned);
        let used = ranges.last().map_or(span.start, |fragment| fragment.end);
        let start = end.checked_sub(pages).filter(|&start| start >= used.0);
        let start = start.ok_or_else(|| format!("{self:?} does not fit into frames {span}"))?;
        ranges.extend((pages > 0).then(|| PfnRange::new(start, end)));
        Ok(ranges)
    }

    /// The small blocks.
    pub fn fragments(&self, span: PfnRange) -> Vec<PfnRange> {
        match self {
            Self::Whole(_) | Self::Largest(_) => Vec::new(),
            Self::Fragmented { fragments, limit, .. } => shortened_blocks(span, *fragments, *limit),
            Self::Blocks(_) => self.of_types(span).concat(),
        }
    }

    /// The blocks of each type: no pageblock has some of two. Those of the highest order and the first type
    /// are left for the top of the zone.
    pub fn of_types(&self, span: PfnRange) -> Vec<Vec<PfnRange>> {
        let Self::Blocks(types) = self else { return Vec::new() };
        let mut from = span.start.0;
        let lone = |(number, blocks): (usize, &Vec<u64>)| {
            let orders = if number == 0 { Order::MAX.0 as usize } else { blocks.len() };
            let ranges = lone_blocks(PfnRange { start: Pfn(from), ..span }, &blocks[..orders]);
            from = ranges.last().map_or(from, |range| range.end.0);
            ranges
        };
        types.iter().enumerate().map(lone).collect()
    }

    /// The small blocks that lie apart.
    pub fn rest(&self, span: PfnRange) -> Vec<PfnRange> {
        let Self::Fragmented { rest, limit, .. } = self else { return Vec::new() };
        let used = self.fragments(span).last().map_or(span.start, |fragment| fragment.end);
        let start = used.0.next_multiple_of(limit.pages().0);
        shortened_blocks(PfnRange { start: Pfn(start), ..span }, *rest, *limit)
    }
}

/// Pages in aligned blocks of which the first page is missing.
fn shortened_blocks(span: PfnRange, pages: u64, order: Order) -> Vec<PfnRange> {
    let (mut ranges, mut left) = (Vec::new(), pages);
    let mut block = align_down(span.start.0, order);
    while left > 0 {
        let next = block + order.pages().0;
        let range = PfnRange::new((block + 1).max(span.start.0), next);
        let range = PfnRange::new(range.start.0, range.end.0.min(range.start.0 + left));
        left -= range.pages().0;
        ranges.extend((!range.is_empty()).then_some(range));
        block = next;
    }
    ranges
}

/// Blocks whose buddies are missing, largest first.
fn lone_blocks(span: PfnRange, blocks: &[u64]) -> Vec<PfnRange> {
    let mut ranges = Vec::new();
    let mut at = span.start.0.next_multiple_of(Order::MAX.pages().0);
    for (order, &blocks) in blocks.iter().enumerate().rev() {
        for _ in 0..blocks {
            ranges.push(PfnRange::new(at, at + (1 << order)));
            at += 2 << order;
        }
    }
    ranges
}

fn align_down(frame: u64, order: Order) -> u64 {
    frame - frame % order.pages().0
}
