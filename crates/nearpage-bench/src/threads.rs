//! Threads on CPUs of their own.

use std::fs;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nearpage::CpuId;
use nearpage_machine::idlist;

use crate::step::StepError;

/// Only one thread locks a slot, and nothing can panic meanwhile.
const OWN_SLOT: &str = "no thread panics while it stores its result";

/// The CPUs that this process may use, ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus(Vec<CpuId>);

impl Cpus {
    /// Asks the kernel.
    ///
    /// # Errors
    ///
    /// If `/proc/self/status` cannot be read, or does not say.
    pub fn allowed() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        parse_status(&status).ok_or_else(|| {
            let message = "/proc/self/status has no line Cpus_allowed_list";
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    /// How many there are: at least one.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Their ids.
    pub fn ids(&self) -> &[CpuId] {
        &self.0
    }

    /// Numbers of threads that loads have: one, and as many as there are CPUs.
    pub fn one_and_all(&self) -> impl Iterator<Item = usize> + use<> {
        let all = Some(self.count()).filter(|&all| all > 1);
        std::iter::once(1).chain(all)
    }

    /// The largest id.
    pub fn last(&self) -> CpuId {
        *self.0.last().expect("a process runs somewhere")
    }

    /// As a list: `0-3,8`.
    pub fn list(&self) -> String {
        let ids: Vec<u32> = self.0.iter().map(|cpu| cpu.0).collect();
        idlist::format(&ids)
    }

    /// Does `work` on `threads` threads at once, each pinned to a CPU, and returns what it returned, thread by thread. `work`
    /// gets the number of its thread and the gate of all. Threads beyond the number of CPUs share one with others.
    ///
    /// # Errors
    ///
    /// What `work` returned, or that a thread cannot be started or may not run on its CPU any more.
    pub fn run<T: Send>(
        &self,
        threads: usize,
        work: impl Fn(usize, &Gate) -> Result<T, StepError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        let results: Vec<Mutex<Option<T>>> = (0..threads).map(|_| Mutex::default()).collect();
        self.run_each(threads, &|number, gate| {
            let result = work(number, gate)?;
            *results[number].lock().expect(OWN_SLOT) = Some(result);
            Ok(())
        })?;
        let result = |slot: Mutex<Option<T>>| slot.into_inner().expect(OWN_SLOT);
        Ok(results.into_iter().map(|slot| result(slot).expect("all threads ended well")).collect())
    }

    /// As [`run`](Self::run), compiled once for all that threads do.
    fn run_each(
        &self,
        threads: usize,
        work: &(dyn Fn(usize, &Gate) -> Result<(), StepError> + Sync),
    ) -> Result<(), StepError> {
        let gate = &Gate::new(threads);
        let on_cpu = move |number: usize, cpu: CpuId| {
            let gives_up = GivesUp(gate);
            pin(cpu)?;
            work(number, gate)?;
            std::mem::forget(gives_up);
            Ok(())
        };
        thread::scope(|scope| {
            let spawn = |(number, &cpu)| {
                let thread = move || on_cpu(number, cpu);
                thread::Builder::new().spawn_scoped(scope, thread).inspect_err(|_| gate.open())
            };
            let cpus = self.0.iter().cycle().take(threads);
            let handles: Vec<_> = cpus.enumerate().map(spawn).collect();
            let join = |handle: io::Result<thread::ScopedJoinHandle<'_, Result<(), StepError>>>| {
                handle?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            handles.into_iter().try_for_each(join)
        })
    }
}

/// A thread that gives up, or panics, must not keep the others waiting.
struct GivesUp<'a>(&'a Gate);

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn parse_status(status: &str) -> Option<Cpus> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let ids = idlist::parse(list.trim()).ok().filter(|ids| !ids.is_empty())?;
    Some(Cpus(ids.into_iter().map(CpuId).collect()))
}

/// Lets this thread run on one CPU only.
fn pin(cpu: CpuId) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    // A mask of our own length: `cpu_set_t` ends at CPU 1023.
    let mut mask = vec![0 as libc::c_ulong; cpu.0 as usize / BITS + 1];
    mask[cpu.0 as usize / BITS] = 1 << (cpu.0 as usize % BITS);
    // SAFETY: the call reads as many bytes of the mask as it is told; 0 is the calling thread.
    let answer =
        unsafe { libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets threads start at the same time, again and again.
///
/// It spins: a thread that sleeps starts tens of microseconds after the one that wakes it. If it spins in vain, it lets
/// others run: the thread that it waits for may have the same CPU.
#[derive(Debug)]
pub struct Gate {
    threads: usize,
    arrived: AtomicUsize,
}

/// Looks at a gate before others may run: some tens of microseconds.
const LOOKS: usize = 1 << 10;

/// The gate stays open from this many arrivals on.
const OPEN: usize = 1 << (usize::BITS - 1);

impl Gate {
    /// A gate for so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0) }
    }

    /// Waits until all threads have come here as often as this one has.
    pub fn wait(&self) {
        // AcqRel and Acquire: what a thread did before the gate is done for those behind it.
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (arrived / self.threads + 1) * self.threads;
        let mut looks = 0;
        while self.arrived.load(Ordering::Acquire) < all.min(OPEN) {
            looks += 1;
            if looks < LOOKS { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Waits until all threads have come here, and then for the first of them, which does `work` while nobody else does
    /// anything, and has what it returns.
    pub fn all_wait_for_one<T>(
        &self,
        thread: usize,
        work: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        self.wait();
        let result = if thread == 0 { work() } else { None };
        self.wait();
        result
    }

    /// Makes nobody wait any more: a thread has given up.
    pub fn open(&self) {
        self.arrived.fetch_or(OPEN, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_the_cpus() {
        let cpus = |text: &str| parse_status(text).map(|cpus| cpus.list());
        assert_eq!(cpus("Name:\tx\nCpus_allowed_list:\t0-1,2000\n"), Some("0-1,2000".into()));
        assert_eq!(cpus("Cpus_allowed_list:\t\n"), None);
        assert_eq!(cpus("Cpus_allowed:\t3\n"), None);
    }

    #[test]
    fn each_thread_runs_on_its_cpu() {
        let cpus = Cpus::allowed().unwrap();
        // SAFETY: sched_getcpu reads; it has no preconditions.
        let here = cpus.run(cpus.count(), |_, _| Ok(unsafe { libc::sched_getcpu() })).unwrap();
        let ids: Vec<u32> = here.into_iter().map(|cpu| cpu as u32).collect();
        assert_eq!(idlist::format(&ids), cpus.list());
    }

    #[test]
    fn a_thread_that_panics_keeps_nobody_waiting() {
        let work = |number: usize, gate: &Gate| {
            assert!(number > 0, "the first one gives up");
            gate.wait();
            Ok(())
        };
        let run = || Cpus::allowed().unwrap().run(2, work);
        assert!(std::panic::catch_unwind(run).is_err());
    }

    #[test]
    fn threads_beyond_the_cpus_share_them() {
        let cpus = Cpus::allowed().unwrap();
        let work = |_: usize, gate: &Gate| {
            (0..100).for_each(|_| gate.wait());
            // SAFETY: sched_getcpu reads; it has no preconditions.
            Ok(unsafe { libc::sched_getcpu() } as u32)
        };
        let threads = 2 * cpus.count() + 1;
        let expected: Vec<u32> = cpus.0.iter().cycle().take(threads).map(|cpu| cpu.0).collect();
        assert_eq!(cpus.run(threads, work).unwrap(), expected);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_nobody_waits() {
        let mut cpus = Cpus::allowed().unwrap();
        cpus.0.truncate(1);
        cpus.0.push(CpuId(100_000));
        let work = |_: usize, gate: &Gate| {
            gate.wait();
            gate.wait();
            Ok(())
        };
        assert!(matches!(cpus.run(2, work), Err(StepError::Threads(_))));
    }

    #[test]
    fn the_gate_holds_threads_together_time_after_time() {
        let gate = Gate::new(2);
        let steps = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for turn in 0..1000 {
                        gate.wait();
                        let seen = steps.fetch_add(1, Ordering::Relaxed);
                        assert!((2 * turn..2 * turn + 2).contains(&seen));
                        gate.wait();
                    }
                });
            }
        });
    }
}
