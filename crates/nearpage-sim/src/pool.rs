//! Independent runs on threads. Each run lives on one thread from beginning to end, so results do not depend on how
//! many there are.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `run` for each job on up to `threads` threads and returns the results in the order of the jobs. `done` is
/// called after each job, on any thread, with the number of jobs done.
///
/// # Panics
/// If a run does.
pub fn run<J: Sync, R: Send>(
    threads: NonZeroUsize,
    jobs: &[J],
    run: impl Fn(&J) -> R + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<R> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some(at) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len())
        {
            let result = run(&jobs[at]);
            *results[at].lock().expect("no run panicked with it") = Some(result);
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let result = |cell: Mutex<Option<R>>| cell.into_inner().ok().flatten();
    results.into_iter().map(|cell| result(cell).expect("each job was run")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        for threads in [1, 3] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let squares = run(threads, &jobs, |job| job * job, |_| ());
            assert!(squares.iter().enumerate().all(|(at, &square)| square == (at * at) as u64));
        }
    }
}
