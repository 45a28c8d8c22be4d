//! The form that the table of 2017 has: `p + F/n + b * max(0, n - h) / n` for `n` pages a call.
//!
//! `p` is what a page costs through the pageset, `F` what a call costs, `b` what a page costs more once the pageset,
//! which holds `h`, is used up. A loop that handles `n + 1` pages and divides by `n` multiplies all by `(n + 1) / n`.

/// Coefficients, and how well they fit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// A page through the pageset.
    pub page: f64,
    /// A call.
    pub call: f64,
    /// What a page costs more through the zone.
    pub zone: f64,
    /// Pages that the pageset holds.
    pub held: f64,
    /// Largest relative error.
    pub error: f64,
}

/// How the loop counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loop {
    /// `n` pages, divided by `n`.
    Exact,
    /// `n + 1` pages, divided by `n`: then nothing tells a call from a page.
    OneMore,
}

impl Fit {
    /// Fits `(n, cost a page)`; relative errors count.
    pub fn of(points: &[(f64, f64)], how: Loop) -> Self {
        let best = |best: Option<Fit>, held: f64| {
            let fit = Self::with_held(points, how, held);
            Some(best.filter(|best| best.error <= fit.error).unwrap_or(fit))
        };
        let held = std::iter::successors(Some(8.0f64), |held| Some(held * 1.01));
        held.take_while(|held| *held < 16_384.0).fold(None, best).expect("some sizes were tried")
    }

    fn with_held(points: &[(f64, f64)], how: Loop, held: f64) -> Self {
        let mut normal = [[0.0; 4]; 3];
        for &(n, cost) in points {
            let terms = terms(n, how, held).map(|term| term / cost);
            for (row, &term) in normal.iter_mut().zip(&terms) {
                row.iter_mut()
                    .zip(terms.iter().chain([&1.0]))
                    .for_each(|(cell, other)| *cell += term * other);
            }
        }
        if how == Loop::OneMore {
            normal[1] = [0.0, 1.0, 0.0, 0.0];
        }
        let [page, call, zone] = solve(normal);
        let mut fit = Self { page, call, zone, held, error: 0.0 };
        let error = |&(n, cost): &(f64, f64)| (fit.cost(n, how) / cost - 1.0).abs();
        fit.error = points.iter().map(error).fold(0.0, f64::max);
        fit
    }

    /// Cost a page of `n` pages a call.
    pub fn cost(&self, n: f64, how: Loop) -> f64 {
        let [page, call, zone] = terms(n, how, self.held);
        self.page * page + self.call * call + self.zone * zone
    }
}

fn terms(n: f64, how: Loop, held: f64) -> [f64; 3] {
    let through_zone = (n - held).max(0.0) / n;
    match how {
        Loop::Exact => [1.0, 1.0 / n, through_zone],
        Loop::OneMore => [(n + 1.0) / n, 0.0, (n + 1.0) / n * through_zone],
    }
}

/// Solves three equations by elimination; a coefficient that nothing determines is 0.
fn solve(mut rows: [[f64; 4]; 3]) -> [f64; 3] {
    for at in 0..3 {
        let pivot = (at..3).max_by(|&i, &j| rows[i][at].abs().total_cmp(&rows[j][at].abs()));
        rows.swap(at, pivot.unwrap_or(at));
        if rows[at][at].abs() < 1e-12 {
            continue;
        }
        for other in (0..3).filter(|&other| other != at) {
            let factor = rows[other][at] / rows[at][at];
            let source = rows[at];
            rows[other].iter_mut().zip(source).for_each(|(cell, value)| *cell -= factor * value);
        }
    }
    std::array::from_fn(
        |at| if rows[at][at].abs() < 1e-12 { 0.0 } else { rows[at][3] / rows[at][at] },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> impl Iterator<Item = f64> {
        (0..15).map(|shift| f64::from(1 << shift))
    }

    #[test]
    fn coefficients_come_back() {
        for how in [Loop::Exact, Loop::OneMore] {
            let call = if how == Loop::Exact { 70.0 } else { 0.0 };
            let made = Fit { page: 40.0, call, zone: 46.0, held: 172.0, error: 0.0 };
            let points: Vec<(f64, f64)> = sizes().map(|n| (n, made.cost(n, how))).collect();
            let fit = Fit::of(&points, how);
            assert!(fit.error < 0.01, "{fit:?}");
            assert!((fit.page - 40.0).abs() < 0.5 && (fit.zone - 46.0).abs() < 0.5, "{fit:?}");
            assert!((fit.held - 172.0).abs() < 10.0 && (fit.call - call).abs() < 1.0, "{fit:?}");
        }
    }
}
