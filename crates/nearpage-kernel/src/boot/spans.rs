//! Ranges of physical addresses in a fixed place: ascending, disjoint, and merged where they touch.

use core::fmt;
use core::ops::Range;

/// Whole frames of bytes `start..end`; `tag` says what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) tag: u32,
}

impl Span {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Memory of a firmware's map that is not used, since the map has more ranges than there is room for, or is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Ranges: of memory, and between what is taken.
    pub ranges: u32,
    /// Their bytes. Those of a range that wraps around are not known, and not among them.
    pub bytes: u64,
}

impl LeftOut {
    pub(crate) fn note(&mut self, bytes: u64) {
        self.ranges = self.ranges.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ranges of memory, {} KiB, are not used: the map is too long or wrong",
            self.ranges,
            self.bytes >> 10
        )
    }
}

/// There is no room for another span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// At most `N` spans.
#[derive(Clone, Debug)]
pub(crate) struct Spans<const N: usize> {
    spans: [Span; N],
    len: usize,
}

impl<const N: usize> Spans<N> {
    pub(crate) const fn new() -> Self {
        Self { spans: [Span { start: 0, end: 0, tag: 0 }; N], len: 0 }
    }

    pub(crate) fn as_slice(&self) -> &[Span] {
        &self.spans[..self.len]
    }

    /// The first span that has a byte of `range`.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> Option<Span> {
        let at = self.as_slice().partition_point(|span| span.end <= range.start);
        self.as_slice().get(at).copied().filter(|span| span.start < range.end)
    }

    /// The union with `range`, which is not empty. What is in a span already keeps its tag.
    pub(crate) fn add(&mut self, range: Range<u64>, tag: u32) -> Result<(), Full> {
        let mut at = range.start;
        while at < range.end {
            match self.overlapping(&(at..range.end)) {
                Some(span) if span.start <= at => at = span.end,
                Some(span) => {
                    self.insert(Span { start: at, end: span.start, tag })?;
                    at = span.end;
                }
                None => {
                    self.insert(Span { start: at, end: range.end, tag })?;
                    at = range.end;
                }
            }
        }
        Ok(())
    }

    /// The union with `range`, which is not empty, as far as there is room: if there is none, the smallest spans go, or what is
    /// smaller of `range`. Tells each that is not there any more, or did not come.
    pub(crate) fn add_largest(
        &mut self,
        range: Range<u64>,
        tag: u32,
        mut left_out: impl FnMut(Span),
    ) {
        let mut at = range.start;
        // One gap after the other: what fills it is a span itself then.
        while let Some(gap) = { self.gaps(at..range.end).next() } {
            at = gap.end;
            let new = Span { start: gap.start, end: gap.end, tag };
            while self.insert(new).is_err() {
                let smallest = (0..self.len).min_by_key(|&at| self.spans[at].bytes());
                match smallest.filter(|&at| self.spans[at].bytes() < new.bytes()) {
                    Some(at) => left_out(self.remove(at)),
                    None => {
                        left_out(new);
                        break;
                    }
                }
            }
        }
    }

    /// The union with `range`, which is not empty, and with more if there is no room: then the two spans that are nearest to each
    /// other become one. Tells the gap that was between them. For spans that all have one tag.
    pub(crate) fn add_closing_gaps(
        &mut self,
        range: Range<u64>,
        mut closed: impl FnMut(Range<u64>),
    ) {
        const { assert!(N >= 2, "two spans become one") };
        while self.add(range.clone(), 0).is_err() {
            let gap = |at: usize| self.spans[at - 1].end..self.spans[at].start;
            let nearest = (1..self.len).min_by_key(|&at| gap(at).end - gap(at).start);
            // There are as many as there is room for, so there are two.
            let Some(at) = nearest else { return };
            closed(gap(at));
            let left = self.remove(at - 1);
            self.spans[at - 1].start = left.start;
        }
    }

    fn remove(&mut self, at: usize) -> Span {
        let span = self.spans[at];
        self.spans.copy_within(at + 1..self.len, at);
        self.len -= 1;
        span
    }

    /// Puts a span that overlaps no other into its place, and makes one of what touches and has one tag.
    fn insert(&mut self, new: Span) -> Result<(), Full> {
        let at = self.as_slice().partition_point(|span| span.end <= new.start);
        let touches_left = at > 0 && {
            let left = self.spans[at - 1];
            left.end == new.start && left.tag == new.tag
        };
        let touches_right = at < self.len && {
            let right = self.spans[at];
            right.start == new.end && right.tag == new.tag
        };
        match (touches_left, touches_right) {
            (true, true) => {
                self.spans[at - 1].end = self.spans[at].end;
                self.remove(at);
            }
            (true, false) => self.spans[at - 1].end = new.end,
            (false, true) => self.spans[at].start = new.start,
            (false, false) => {
                if self.len == N {
                    return Err(Full);
                }
                self.spans.copy_within(at..self.len, at + 1);
                self.spans[at] = new;
                self.len += 1;
            }
        }
        Ok(())
    }

    /// The parts of `range` that are in no span, ascending.
    pub(crate) fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            while at < range.end {
                match self.overlapping(&(at..range.end)) {
                    Some(span) if span.start <= at => at = span.end,
                    Some(span) => {
                        let gap = at..span.start;
                        at = span.end;
                        return Some(gap);
                    }
                    None => {
                        let gap = at..range.end;
                        at = range.end;
                        return Some(gap);
                    }
                }
            }
            None
        })
    }

    /// The parts of `range` that are in spans, ascending, with their tags.
    pub(crate) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Span> + '_ {
        let cut = move |span: &Span| Span {
            start: span.start.max(range.start),
            end: span.end.min(range.end),
            tag: span.tag,
        };
        self.as_slice().iter().map(cut).filter(|span| span.start < span.end)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use nearpage::testing::random::Random;

    use super::*;

    #[test]
    fn spans_are_as_a_naive_map_has_them() {
        let seed = 0x5ba5;
        std::println!("seed {seed:#x}");
        let mut random = Random(seed);
        for _ in 0..2000 {
            let (mut spans, mut naive) = (Spans::<12>::new(), vec![None; 64]);
            for _ in 0..random.below(20) {
                let start = random.below(60);
                let end = start + 1 + random.below(64 - start);
                let tag = random.below(3) as u32;
                let before = spans.clone();
                if spans.add(start..end, tag) == Err(Full) {
                    // Then it is as it was, or has a part of it: no more than was asked for.
                    assert!(before.as_slice().len() > 5);
                    break;
                }
                for byte in &mut naive[start as usize..end as usize] {
                    *byte = byte.or(Some(tag));
                }
            }
            let full = spans.as_slice().len() == 12;
            if !full {
                compare(&spans, &naive);
            }
        }
    }

    fn compare(spans: &Spans<12>, naive: &[Option<u32>]) {
        let mut found = vec![None; 64];
        for span in spans.as_slice() {
            found[span.start as usize..span.end as usize].fill(Some(span.tag));
        }
        assert_eq!(found, naive);
        let touching = spans.as_slice().windows(2);
        assert!(touching.clone().all(|pair| pair[0].end <= pair[1].start));
        assert!(!touching.into_iter().any(|p| p[0].end == p[1].start && p[0].tag == p[1].tag));
        let gaps: Vec<u64> = spans.gaps(5..50).flatten().collect();
        let expected = (5..50).filter(|&byte| naive[byte as usize].is_none());
        assert!(gaps.iter().copied().eq(expected));
        let parts: u64 = spans.parts(5..50).map(|part| part.end - part.start).sum();
        assert_eq!(parts as usize + gaps.len(), 45);
    }
}
