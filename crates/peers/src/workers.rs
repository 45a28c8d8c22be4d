//! The benchmark threads: one per CPU, pinned, alive for the whole run.
//!
//! Threads that came and went would find the per-thread caches of the peers empty each time.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::{io, thread};

use nearpage::CpuId;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

type Job = Box<dyn FnOnce() + Send>;

/// Threads at most: no benchmark has more.
const THREADS_MAX: usize = 2;

/// Threads that each stay on one CPU.
pub struct Workers {
    queues: Vec<Sender<Job>>,
}

impl Workers {
    /// Starts a thread on each of the first two CPUs that this process may use.
    ///
    /// # Errors
    ///
    /// The error of the system call that asks for the allowed CPUs, or that pins a thread.
    pub fn start() -> io::Result<Workers> {
        let cpus = allowed_cpus()?;
        let queues = cpus.into_iter().take(THREADS_MAX).map(start_on).collect::<io::Result<_>>()?;
        Ok(Workers { queues })
    }

    /// How many threads there are: 2, or 1 where only one CPU may be used.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Runs `work` on the first `threads` threads at once, each with its number; returns their
    /// results by number.
    ///
    /// # Panics
    ///
    /// If `work` panics.
    pub fn on_each<R: Send + 'static>(
        &self,
        threads: usize,
        work: impl Fn(usize) -> R + Send + Sync + 'static,
    ) -> Vec<R> {
        let work = Arc::new(work);
        let results: Vec<_> = (0..threads)
            .map(|number| {
                let (sender, result) = mpsc::channel();
                let work = Arc::clone(&work);
                let job: Job = Box::new(move || {
                    let _ = sender.send(work(number));
                });
                self.queues[number].send(job).expect("a worker lives as long as its queue");
                result
            })
            .collect();
        results.into_iter().map(|result| result.recv().expect("the work panicked")).collect()
    }
}

/// The CPUs that this process may use, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<CpuId>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| CpuId(cpu as u32)).collect())
}

fn start_on(cpu: CpuId) -> io::Result<Sender<Job>> {
    let (queue, jobs) = mpsc::channel::<Job>();
    let (pinned, outcome) = mpsc::channel();
    thread::Builder::new().name(format!("bench-cpu{cpu}")).spawn(move || {
        let mut set = CpuSet::new();
        set.set(cpu.0 as usize);
        let _ = pinned.send(sched_setaffinity(None, &set));
        for job in jobs {
            job();
        }
    })?;
    outcome.recv().expect("the thread reports before it works")?;
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_stays_on_its_own_cpu() {
        let workers = Workers::start().expect("pinned threads");
        let allowed = allowed_cpus().expect("allowed CPUs");
        let used = workers.on_each(workers.count(), |_| allowed_cpus().expect("allowed CPUs"));
        let expected: Vec<_> = allowed.iter().take(THREADS_MAX).map(|&cpu| vec![cpu]).collect();
        assert_eq!(used, expected);
    }

    #[test]
    fn results_come_back_by_number() {
        let workers = Workers::start().expect("pinned threads");
        assert_eq!(workers.on_each(1, |number| number * 10), [0]);
    }
}
