//! Where threads run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The CPUs that the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Lets the calling thread run on these CPUs only.
pub fn run_on(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).unwrap();
}

/// Lets the calling thread run on its present CPU only.
pub fn stay_on_this_cpu() {
    run_on(&[sched_getcpu()]);
}
