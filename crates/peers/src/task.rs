//! What is measured: pieces of work, as data.

use crate::timing::Effort;

/// One piece of work; it gives one or more rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Pages allocated and freed at once, by so many threads.
    Pair { threads: usize },
    /// 2 MiB blocks allocated and freed at once.
    HugePair,
    /// Many pages held, and freed in both orders.
    Fill { threads: usize },
    /// The same with ten times as many, in memories of their own.
    LargeFill { threads: usize },
    /// Of many pages that are held, one replaced by another, at random.
    Replace { threads: usize },
    /// Pages allocated on one CPU and freed on another.
    Cross,
    /// `n` pages at a time, page by page.
    Single { n: usize },
    /// `n` pages at a time by one call, by so many threads.
    Bulk { threads: usize, n: usize },
}

impl Work {
    /// The work of memories that hold [`Effort::large_pages`].
    pub fn large(cpus: usize) -> Vec<Work> {
        (1..=cpus).map(|threads| Work::LargeFill { threads }).collect()
    }

    /// All other work on a machine where `cpus` threads can run side by side.
    pub fn all(cpus: usize, effort: &Effort) -> Vec<Work> {
        let series = || series(effort.batch_max);
        let mut all = vec![Work::HugePair];
        for threads in 1..=cpus {
            all.extend([Work::Pair { threads }, Work::Fill { threads }, Work::Replace { threads }]);
            all.extend(series().map(|n| Work::Bulk { threads, n }));
        }
        all.extend(series().map(|n| Work::Single { n }));
        if cpus >= 2 {
            all.push(Work::Cross);
        }
        all
    }
}

/// Pages per call: powers of two, and 3, as small as calls in bulk are.
pub fn series(batch_max: usize) -> impl Iterator<Item = usize> {
    let powers = (0..).map(|shift| 1 << shift).take_while(move |&n| n <= batch_max);
    powers.chain([3])
}
