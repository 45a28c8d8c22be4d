//! Independent runs on threads. Each run lives on one thread from beginning to end, so results do not depend on how
//! many there are.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nearpage_machine::work::{Observer, Stopped};

/// Calls `run` for each job on up to `threads` threads and returns the results in the order of the jobs. The observer
/// hears of each job that is done, on any thread.
///
/// # Errors
/// [`Stopped`] if the observer asks for it: no further job begins, and those that have begun end.
///
/// # Panics
/// If a run does.
pub fn run<J: Sync, R: Send>(
    threads: NonZeroUsize,
    jobs: &[J],
    run: impl Fn(&J) -> R + Sync,
    observer: &dyn Observer,
) -> Result<Vec<R>, Stopped> {
    let all = jobs.len() as u64;
    observer.step(0, all)?;
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_stopped = AtomicBool::new(false);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while !is_stopped.load(Ordering::Relaxed)
            && let at = next.fetch_add(1, Ordering::Relaxed)
            && at < jobs.len()
        {
            let result = run(&jobs[at]);
            *results[at].lock().expect("no run panicked with it") = Some(result);
            let done = finished.fetch_add(1, Ordering::Relaxed) as u64 + 1;
            if observer.step(done, all).is_err() {
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    if is_stopped.into_inner() {
        return Err(Stopped);
    }
    let result = |cell: Mutex<Option<R>>| cell.into_inner().ok().flatten();
    Ok(results.into_iter().map(|cell| result(cell).expect("each job was run")).collect())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use nearpage_machine::work::Unwatched;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        for threads in [1, 3] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let squares = run(threads, &jobs, |job| job * job, &Unwatched).unwrap();
            assert!(squares.iter().enumerate().all(|(at, &square)| square == (at * at) as u64));
        }
    }
    #[test]
    fn an_observer_stops_before_the_next_job() {
        let jobs: Vec<u64> = (0..100).collect();
        let until_3 = |done: u64, all: u64| {
            assert_eq!(all, 100);
            if done < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let begun = AtomicUsize::new(0);
        let count = |_: &u64| begun.fetch_add(1, Ordering::Relaxed);
        assert_eq!(run(NonZeroUsize::MIN, &jobs, count, &until_3), Err(Stopped));
        assert_eq!(begun.into_inner(), 3);
    }
}
