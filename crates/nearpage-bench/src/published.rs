//! The published table of 2017.
//!
//! Source: "[PATCH 4/4] mm, page_alloc: Add a bulk page allocator", linux-mm, January 2017; Linux
//! 4.10.0-rc2, arithmetic means over 13 samples, in CPU cycles per page on one CPU of a machine that is
//! not named.
//!
//! Its loop for single pages handles `n + 1` pages and divides by `n`, its loop for bulk does not. So the
//! published gain is too large for small `n`; [`Published::exact_gain_percent`] takes that out.

use serde::Serialize;

/// A line of the table.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Published {
    /// Pages per batch.
    pub n: usize,
    /// Cycles per page, one page at a time.
    pub single_cycles: f64,
    /// Cycles per page, in bulk.
    pub bulk_cycles: f64,
    /// The gain of bulk, as published.
    pub gain_percent: f64,
}

impl Published {
    /// The gain against a loop that handles `n` pages.
    pub fn exact_gain_percent(&self) -> f64 {
        let exact_cycles = self.single_cycles * self.n as f64 / (self.n + 1) as f64;
        100.0 * (1.0 - self.bulk_cycles / exact_cycles)
    }
}

const fn line(n: usize, single_cycles: f64, bulk_cycles: f64, gain_percent: f64) -> Published {
    Published { n, single_cycles, bulk_cycles, gain_percent }
}

/// Lines `alloc-odr0-N`.
pub const ALLOC: [Published; 15] = [
    line(1, 259.54, 106.62, 58.92),
    line(2, 193.38, 76.38, 60.50),
    line(4, 162.38, 57.23, 64.76),
    line(8, 144.31, 48.77, 66.20),
    line(16, 134.08, 45.38, 66.15),
    line(32, 128.62, 42.77, 66.75),
    line(64, 126.00, 41.00, 67.46),
    line(128, 125.00, 40.08, 67.94),
    line(256, 136.62, 56.00, 59.01),
    line(512, 152.00, 69.00, 54.61),
    line(1024, 158.00, 76.23, 51.75),
    line(2048, 163.00, 81.15, 50.21),
    line(4096, 169.77, 85.92, 49.39),
    line(8192, 170.00, 88.00, 48.24),
    line(16_384, 170.00, 89.00, 47.65),
];

/// Lines `free-odr0-N`.
pub const FREE: [Published; 15] = [
    line(1, 88.69, 55.69, 37.21),
    line(2, 66.00, 49.38, 25.17),
    line(4, 54.23, 45.38, 16.31),
    line(8, 48.23, 44.23, 8.29),
    line(16, 47.00, 45.00, 4.26),
    line(32, 44.77, 43.92, 1.89),
    line(64, 44.00, 43.00, 2.27),
    line(128, 43.00, 43.00, 0.00),
    line(256, 60.69, 60.46, 0.38),
    line(512, 79.23, 76.00, 4.08),
    line(1024, 86.00, 85.38, 0.72),
    line(2048, 91.00, 91.23, -0.25),
    line(4096, 94.85, 95.62, -0.81),
    line(8192, 97.00, 97.00, 0.00),
    line(16_384, 98.00, 97.46, 0.55),
];

/// Lines `total-odr0-N`.
pub const TOTAL: [Published; 15] = [
    line(1, 348.23, 162.31, 53.39),
    line(2, 259.38, 125.77, 51.51),
    line(4, 216.62, 102.62, 52.63),
    line(8, 192.54, 93.00, 51.70),
    line(16, 181.08, 90.38, 50.08),
    line(32, 173.38, 86.69, 50.00),
    line(64, 170.00, 84.00, 50.59),
    line(128, 168.00, 83.08, 50.55),
    line(256, 197.31, 116.46, 40.97),
    line(512, 231.23, 145.00, 37.29),
    line(1024, 244.00, 161.62, 33.76),
    line(2048, 254.00, 172.38, 32.13),
    line(4096, 264.62, 181.54, 31.40),
    line(8192, 267.00, 185.00, 30.71),
    line(16_384, 268.00, 186.46, 30.42),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure that was copied wrongly would not give its own published gain.
    #[test]
    fn gains_follow_from_the_figures() {
        for lines in [ALLOC, FREE, TOTAL] {
            for (at, line) in lines.into_iter().enumerate() {
                assert_eq!(line.n, 1 << at);
                let gain = 100.0 * (1.0 - line.bulk_cycles / line.single_cycles);
                // The figures themselves are rounded to two digits.
                assert!((gain - line.gain_percent).abs() < 0.02, "{line:?} {gain}");
            }
        }
    }

    #[test]
    fn totals_are_sums() {
        for ((alloc, free), total) in ALLOC.into_iter().zip(FREE).zip(TOTAL) {
            let sum = alloc.bulk_cycles + free.bulk_cycles;
            assert!((sum - total.bulk_cycles).abs() < 0.02, "{total:?} {sum}");
        }
    }

    #[test]
    fn exact_gains() {
        let gains = [ALLOC[0], ALLOC[5], FREE[0], TOTAL[14]].map(|line| line.exact_gain_percent());
        let expected = [17.8, 65.7, -25.6, 30.4];
        assert!(gains.iter().zip(expected).all(|(gain, expected)| (gain - expected).abs() < 0.06));
    }
}
