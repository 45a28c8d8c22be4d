//! Ratios of the same round, their means over rows, and intervals by bootstrap.

use super::rows::Row;
use super::trial::Ran;

/// Draws of a bootstrap.
const DRAWS: usize = 2000;

/// What is measured of a run.
#[derive(Clone, Copy)]
pub(super) enum Quantity {
    Wall,
    Cpu,
    Peak,
}

/// The rounds of a row.
pub(super) struct Measured {
    pub name: &'static str,
    /// Whether its wall time means something.
    pub has_wall: bool,
    /// By malloc, a triple a round: wall, CPU, peak.
    pub rounds: Vec<Vec<[f64; 3]>>,
    /// Modes of nearpage that ran once: name, and CPU time against the C library's.
    pub modes: Vec<(String, f64)>,
    pub allocations: u64,
}

/// A ratio with the 95 % interval that its rounds leave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

impl Measured {
    pub fn new(row: &Row, mallocs: usize) -> Self {
        Self {
            name: row.name,
            has_wall: row.has_wall,
            rounds: vec![Vec::new(); mallocs],
            modes: Vec::new(),
            allocations: 0,
        }
    }

    pub fn note_mode(&mut self, mode: &str, ran: &Ran, plain: &Ran) {
        if mode.is_empty() {
            self.allocations = ran.allocations();
        } else {
            self.modes.push((mode.to_owned(), ran.cpu_s.max(0.001) / plain.cpu_s.max(0.001)));
        }
    }

    pub fn add_round(&mut self, runs: impl Iterator<Item = Ran>) {
        for (of_malloc, ran) in self.rounds.iter_mut().zip(runs) {
            of_malloc.push([ran.wall_s, ran.cpu_s, ran.peak_bytes]);
        }
    }

    pub fn is_timed(&self) -> bool {
        self.rounds.iter().all(|of_malloc| !of_malloc.is_empty())
    }

    /// The middle value of a malloc.
    pub fn middle(&self, malloc: usize, quantity: Quantity) -> f64 {
        middle(self.rounds[malloc].iter().map(|round| round[quantity as usize]).collect())
    }

    /// Logarithms of the ratios of each round.
    fn logs(&self, malloc: usize, base: usize, quantity: Quantity) -> Vec<f64> {
        let pairs = self.rounds[malloc].iter().zip(&self.rounds[base]);
        // Clocks of CPU time may be as coarse as a tick.
        let value = |round: &[f64; 3]| round[quantity as usize].max(1e-3);
        pairs.map(|(one, other)| (value(one) / value(other)).ln()).collect()
    }

    /// Whether the row counts in means of a quantity.
    pub fn has(&self, quantity: Quantity) -> bool {
        self.has_wall || !matches!(quantity, Quantity::Wall)
    }

    /// The row's ratio of two mallocs.
    pub fn ratio(&self, malloc: usize, base: usize, quantity: Quantity) -> Ratio {
        mean_ratio(&[self], malloc, base, quantity)
    }
}

/// The geometric mean over rows of the middle ratio of each.
pub(super) fn mean_ratio(
    rows: &[&Measured],
    malloc: usize,
    base: usize,
    quantity: Quantity,
) -> Ratio {
    let counted = rows.iter().filter(|row| row.has(quantity));
    let logs: Vec<_> = counted.map(|row| row.logs(malloc, base, quantity)).collect();
    let mean = |logs: &[Vec<f64>]| {
        logs.iter().map(|row| middle(row.clone())).sum::<f64>() / logs.len().max(1) as f64
    };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) as usize % bound
    };
    let mut draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn: Vec<Vec<f64>> = logs
                .iter()
                .map(|row| (0..row.len()).map(|_| row[below(row.len())]).collect())
                .collect();
            mean(&drawn)
        })
        .collect();
    draws.sort_by(f64::total_cmp);
    let at = |share: f64| draws[(share * (DRAWS - 1) as f64) as usize].exp();
    Ratio { middle: mean(&logs).exp(), low: at(0.025), high: at(0.975) }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[odd / 2],
        even => (values[even / 2 - 1] + values[even / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rounds: Vec<Vec<[f64; 3]>>) -> Measured {
        Measured { name: "row", has_wall: true, rounds, modes: Vec::new(), allocations: 0 }
    }

    #[test]
    fn a_disturbed_round_disturbs_both_sides_of_its_ratio() {
        let one = [1.0, 2.0, 5.0, 1.0].map(|wall| [wall, 1.0, 1.0]).to_vec();
        let twice = one.iter().map(|[wall, ..]| [2.0 * wall, 1.0, 1.0]).collect();
        let ratio = measured(vec![one, twice]).ratio(1, 0, Quantity::Wall);
        assert!((ratio.middle - 2.0).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
    }

    #[test]
    fn the_mean_over_rows_is_geometric_and_its_interval_has_it() {
        let row = |ratios: [f64; 5]| {
            measured(vec![vec![[1.0; 3]; 5], ratios.map(|ratio| [ratio; 3]).to_vec()])
        };
        let (half, double) = (row([0.5, 0.4, 0.6, 0.5, 0.5]), row([2.0, 2.2, 1.8, 2.0, 2.0]));
        let ratio = mean_ratio(&[&half, &double], 1, 0, Quantity::Peak);
        assert!((ratio.middle - 1.0).abs() < 1e-9);
        assert!(ratio.low <= 1.0 && ratio.high >= 1.0 && ratio.low < ratio.high, "{ratio:?}");
    }
}
