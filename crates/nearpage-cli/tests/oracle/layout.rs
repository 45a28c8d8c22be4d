//! Where the free memory of a zone lies at the start: in blocks as large as can be, unless a recording tells
//! that some of it was in small ones.

use nearpage::units::{Order, PAGEBLOCK_ORDER, PfnRange};

/// Free memory of a zone by the size of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Pages in one piece.
    pub whole: u64,
    /// Pages in blocks below `limit`.
    pub fragments: u64,
    /// Order that no fragment has.
    pub limit: Order,
}

impl Layout {
    /// All pages in one piece.
    pub fn whole(pages: u64) -> Self {
        Self { whole: pages, fragments: 0, limit: Order(0) }
    }

    /// Some of the pages in blocks smaller than a pageblock.
    pub fn with_fragments(pages: u64, fragments: u64) -> Self {
        Self { whole: pages - fragments, fragments, limit: PAGEBLOCK_ORDER }
    }

    /// The ranges of memory: fragments at the bottom of the zone, the rest at the top, which ends on a
    /// boundary of large blocks more often than the bottom begins on one.
    pub fn ranges(&self, span: PfnRange) -> Result<Vec<PfnRange>, String> {
        let mut ranges: Vec<PfnRange> = self.pieces(span).collect();
        let end = span.end.0;
        let used = ranges.last().map_or(span.start, |piece| piece.end);
        let start = end.checked_sub(self.whole).filter(|&start| start >= used.0);
        let start = start.ok_or_else(|| format!("{self:?} does not fit into frames {span}"))?;
        ranges.extend((self.whole > 0).then(|| PfnRange::new(start, end)));
        Ok(ranges)
    }

    /// The fragments: all but the first page of aligned blocks.
    fn pieces(&self, span: PfnRange) -> impl Iterator<Item = PfnRange> {
        let (size, mut left) = (self.limit.pages().0, self.fragments);
        let mut block = align_down(span.start.0, self.limit);
        std::iter::from_fn(move || {
            let first = (block + 1).max(span.start.0);
            let pages = left.min((block + size).saturating_sub(first));
            block += size;
            left -= pages;
            Some(PfnRange::new(first, first + pages))
        })
        .take_while(move |_| size > 1)
        .scan(self.fragments, |left, piece| {
            let go_on = *left > 0;
            *left -= piece.pages().0;
            go_on.then_some(piece)
        })
        .filter(|piece| !piece.is_empty())
    }
}

fn align_down(frame: u64, order: Order) -> u64 {
    frame - frame % order.pages().0
}
