//! Random numbers for tests.

/// Splitmix64: enough for tests, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers that follow from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, from all 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `n - 1`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// One of `items`.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}
