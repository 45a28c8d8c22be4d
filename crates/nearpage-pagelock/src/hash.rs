//! What is waited for, and the bucket that it belongs to (facts 10.1).

use nearpage::Pfn;
use nearpage::stats::AwaitedBit;

/// Buckets of a wait table. `WAIT_TABLE_BITS` is 8 in 4.9 and in the proposal of 2016.
pub const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 8;

/// Where Linux on x86-64 keeps its page descriptors, and bytes of one. nearpage has no descriptors; pages are
/// hashed as if it had, so that pages collide here that collide there.
const DESCRIPTORS: u64 = 0xffff_ea00_0000_0000;
const DESCRIPTOR_BYTES: u64 = 64;

/// What is waited for: a bit of the word at an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    address: u64,
    bit: u32,
}

impl Key {
    /// The lock of a page: bit 0 of its descriptor. No word lies at the addresses of descriptors: they are above all
    /// physical ones, and above those of processes.
    pub const fn page(pfn: Pfn) -> Key {
        Key { address: DESCRIPTORS.wrapping_add(pfn.0.wrapping_mul(DESCRIPTOR_BYTES)), bit: 0 }
    }

    /// A bit of the word at `address`.
    pub const fn bit(address: u64, bit: u32) -> Key {
        Key { address, bit }
    }

    /// The page whose lock this is, if it is one.
    pub(crate) fn locked_page(self) -> Option<Pfn> {
        let offset = self.address.checked_sub(DESCRIPTORS)?;
        (self.bit == 0).then_some(Pfn(offset / DESCRIPTOR_BYTES))
    }

    /// The same, for who finds it in disorder.
    pub(crate) const fn awaited(self) -> AwaitedBit {
        AwaitedBit { address: self.address, bit: self.bit }
    }

    /// The bucket. `kernel/sched/core.c: bit_waitqueue`, 4.9, with `include/linux/hash.h: hash_64` since 4.7.
    pub const fn bucket(self) -> usize {
        // Linux's `hash_long`: the upper bits of a product with the golden ratio, as a 64-bit fraction.
        const GOLDEN_RATIO_64: u64 = 0x61c8_8646_80b5_83eb;
        let value = self.address << 6 | self.bit as u64;
        (value.wrapping_mul(GOLDEN_RATIO_64) >> (u64::BITS - BUCKET_BITS)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of facts 10.1.
    #[test]
    fn pages_hash_as_in_linux() {
        let pages = [0, 1, 2, 3, 0x1000, 0x10_0000].map(|pfn| Key::page(Pfn(pfn)).bucket());
        assert_eq!(pages, [170, 50, 187, 67, 240, 43]);
    }

    #[test]
    fn bits_of_one_word_are_waited_for_apart() {
        let word = 0x1234_5678_9000;
        assert_ne!(Key::bit(word, 0), Key::bit(word, 1));
        let buckets = [0, 1, 31, 63].map(|bit| Key::bit(word, bit).bucket());
        assert!(buckets.iter().all(|bucket| *bucket < BUCKETS));
        let distinct: std_alloc::collections::BTreeSet<_> = buckets.into_iter().collect();
        assert_eq!(distinct.len(), 4, "{buckets:?}");
    }

    /// Runs of pages spread: no bucket gets more than three times its share.
    #[test]
    fn neighbouring_pages_spread_over_the_buckets() {
        let mut pages = [0; BUCKETS];
        (0..16 * BUCKETS as u64).for_each(|pfn| pages[Key::page(Pfn(pfn)).bucket()] += 1);
        assert!(pages.iter().all(|pages| (1..=48).contains(pages)), "{pages:?}");
    }
}
