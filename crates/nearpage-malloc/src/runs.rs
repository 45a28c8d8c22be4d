//! Runs of pages in a chunk of 4 MiB, as bits, and the bins of their lengths. Pure.
//!
//! Bins are exact up to 32 pages, then 16 to each doubling: 34, 36, … 64, 68, … 1024. A length that is the first of a bin fits
//! into every run of it and of those above.

/// Pages of a chunk.
pub(crate) const PAGES: usize = 1024;
const WORDS: usize = PAGES / 64;

/// Lengths up to this have a bin each.
const EXACT: usize = 32;
/// Bins.
pub(crate) const BINS: usize = EXACT + 16 * 5;

/// The bin of runs of a length.
pub(crate) const fn bin(pages: usize) -> usize {
    if pages <= EXACT {
        return pages - 1;
    }
    let doubling = pages.ilog2() as usize;
    EXACT - 1 + (doubling - 5) * 16 + ((pages >> (doubling - 4)) & 15)
}

/// The least length of a bin that is at least so long. At most a sixteenth is added.
pub(crate) const fn rounded(pages: usize) -> usize {
    if pages <= EXACT {
        return pages;
    }
    pages.next_multiple_of(1 << ((pages - 1).ilog2() - 4))
}

/// A bit for each page.
#[derive(Clone, Copy)]
pub(crate) struct Bits(pub [u64; WORDS]);

impl Bits {
    fn each(first: usize, pages: usize, mut act: impl FnMut(usize, u64)) {
        let (mut at, end) = (first, first + pages);
        while at < end {
            let here = (64 - at % 64).min(end - at);
            act(at / 64, (u64::MAX >> (64 - here)) << (at % 64));
            at += here;
        }
    }

    pub fn set(&mut self, first: usize, pages: usize) {
        Self::each(first, pages, |word, mask| self.0[word] |= mask);
    }

    pub fn clear(&mut self, first: usize, pages: usize) {
        Self::each(first, pages, |word, mask| self.0[word] &= !mask);
    }

    pub fn count(&self, first: usize, pages: usize) -> usize {
        let mut sum = 0;
        Self::each(first, pages, |word, mask| sum += (self.0[word] & mask).count_ones() as usize);
        sum
    }

    /// The first page from `from` on whose bit is as `is_set`; [`PAGES`] if there is none.
    fn find(&self, from: usize, is_set: bool) -> usize {
        let flip = if is_set { 0 } else { u64::MAX };
        let mut mask = u64::MAX << (from % 64);
        for word in from / 64..WORDS {
            let bits = (self.0[word] ^ flip) & mask;
            if bits != 0 {
                return word * 64 + bits.trailing_zeros() as usize;
            }
            mask = u64::MAX;
        }
        PAGES
    }

    /// The first page of the run that ends before `page`.
    fn start_before(&self, page: usize) -> usize {
        let mut at = page;
        while at > 0 {
            let (word, bits) = ((at - 1) / 64, at - (at - 1) / 64 * 64);
            let ones = (self.0[word] << (64 - bits)).leading_ones() as usize;
            at -= ones.min(bits);
            if ones < bits {
                break;
            }
        }
        at
    }

    /// The run around a range: all pages before and behind it whose bits are set.
    pub fn around(&self, first: usize, pages: usize) -> (usize, usize) {
        let start = self.start_before(first);
        let end = if first + pages < PAGES { self.find(first + pages, false) } else { PAGES };
        (start, end - start)
    }

    /// The runs from the first on: start and length.
    pub fn runs(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = if at < PAGES { self.find(at, true) } else { PAGES };
            if start == PAGES {
                return None;
            }
            at = self.find(start, false);
            Some((start, at - start))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_and_their_first_lengths_are_what_is_rounded_to() {
        for pages in 1..=PAGES {
            let next = rounded(pages);
            assert!(next >= pages && (next - pages) * 16 <= pages, "{pages}: {next}");
            assert_eq!(rounded(next), next);
            assert_eq!(bin(next), bin(pages) + usize::from(next != pages), "{pages}");
            assert!(next == 1 || bin(next - 1) + 1 == bin(next), "{next} is the first of its bin");
        }
        assert_eq!((bin(1), bin(PAGES) + 1), (0, BINS));
    }

    #[test]
    fn bits_are_as_a_list_of_pages() {
        let mut random = fastrand::Rng::with_seed(51);
        let (mut bits, mut list) = (Bits([0; WORDS]), [false; PAGES]);
        for _ in 0..2000 {
            let first = random.usize(..PAGES);
            let pages = random.usize(1..=(PAGES - first).min(200));
            let count = list[first..first + pages].iter().filter(|is_set| **is_set).count();
            assert_eq!(bits.count(first, pages), count);
            match random.bool() {
                true => bits.set(first, pages),
                false => bits.clear(first, pages),
            }
            list[first..first + pages].fill(random_of(&bits, first));
            let runs: Vec<_> = bits.runs().collect();
            let of_list = list.chunk_by(|one, other| one == other);
            let mut at = 0;
            let expected = of_list.filter_map(|run| {
                at += run.len();
                run[0].then_some((at - run.len(), run.len()))
            });
            assert_eq!(runs, expected.collect::<Vec<_>>());
            if let Some(&(start, pages)) = runs.last() {
                let inside = start + random.usize(..pages);
                assert_eq!(bits.around(inside, start + pages - inside), (start, pages));
            }
        }
    }

    fn random_of(bits: &Bits, page: usize) -> bool {
        bits.0[page / 64] >> (page % 64) & 1 == 1
    }
}
