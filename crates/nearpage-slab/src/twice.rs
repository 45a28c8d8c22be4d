//! Finds a number that occurs twice among many, without memory for all of them.
//!
//! Who has the numbers shows them all, round after round. A round keeps the lowest ones above those of the round
//! before, in ascending order, where the second of two equal ones meets the first. N numbers take N / [`KEPT`] rounds.

/// Numbers that a round keeps: 1 KiB, for stacks of kernels.
const KEPT: usize = 256;

/// The lowest numbers of a round.
#[derive(Debug)]
pub struct Lowest {
    kept: [u32; KEPT],
    len: usize,
    /// The highest number that the rounds before kept.
    above: Option<u32>,
}

impl Lowest {
    /// Before the first round.
    pub const fn new() -> Self {
        Self { kept: [0; KEPT], len: 0, above: None }
    }

    /// Looks at a number; returns whether this round keeps the same one already. Of two equal numbers the second is
    /// told in the one round that keeps them, whatever comes between them: what fell out is higher than all kept since.
    #[must_use]
    pub fn is_second(&mut self, number: u32) -> bool {
        if self.above.is_some_and(|above| number <= above) {
            return false;
        }
        let Err(at) = self.kept[..self.len].binary_search(&number) else { return true };
        if at < KEPT {
            self.len = KEPT.min(self.len + 1);
            self.kept.copy_within(at..self.len - 1, at + 1);
            self.kept[at] = number;
        }
        false
    }

    /// Ends a round; returns whether there is to be another one.
    #[must_use]
    pub fn goes_on(&mut self) -> bool {
        if self.len < KEPT {
            return false;
        }
        self.above = self.kept.last().copied();
        self.len = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use nearpage::testing::random::Random;

    use super::*;

    fn finds(numbers: &[u32]) -> (Option<u32>, usize) {
        let mut lowest = Lowest::new();
        for round in 1.. {
            if let Some(second) = numbers.iter().find(|&&number| lowest.is_second(number)) {
                return (Some(*second), round);
            }
            if !lowest.goes_on() {
                return (None, round);
            }
        }
        unreachable!("a round keeps a number or is the last")
    }

    #[test]
    fn a_second_one_is_found_wherever_it_stands() {
        let mut random = Random(5);
        for count in [0, 1, 2, KEPT - 1, KEPT, KEPT + 1, 5 * KEPT + 7] {
            let mut numbers: Vec<u32> = (0..count as u32).map(|at| at * 3).collect();
            for at in (1..count).rev() {
                numbers.swap(at, random.below(at as u64 + 1) as usize);
            }
            assert_eq!(finds(&numbers), (None, count / KEPT + 1), "{count}");
            for _ in 0..if count < 2 { 0 } else { 100 } {
                let (from, to) = (random.below(count as u64), random.below(count as u64));
                let mut doubled = numbers.clone();
                doubled.insert(to as usize, numbers[from as usize]);
                assert_eq!(finds(&doubled).0, Some(numbers[from as usize]), "{count} {from} {to}");
            }
        }
        assert_eq!(finds(&[u32::MAX, 0, u32::MAX]).0, Some(u32::MAX));
    }
}
