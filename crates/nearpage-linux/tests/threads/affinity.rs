//! Where threads run.

use nearpage::CpuId;

/// The CPUs that the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<CpuId> {
    // SAFETY: an empty set is all zeroes; the call writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let ids = (0..libc::CPU_SETSIZE as u32).map(CpuId);
        ids.filter(|cpu| libc::CPU_ISSET(cpu.0 as usize, &set)).collect()
    }
}

/// The calling thread's id for [`restrict`].
pub fn this_thread() -> libc::pid_t {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() }
}

/// Lets a thread run on these CPUs only; 0 is the calling one. Returns whether it was there.
pub fn restrict(thread: libc::pid_t, cpus: &[CpuId]) -> bool {
    // SAFETY: an empty set is all zeroes; the call reads it, and changes only where the thread runs.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(cpu.0 as usize, &mut set));
        libc::sched_setaffinity(thread, size_of_val(&set), &set) == 0
    }
}

/// Runs `work` on a thread that stays on `cpu`.
pub fn on_cpu<R: Send>(cpu: CpuId, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            assert!(restrict(0, &[cpu]), "CPU {cpu} is allowed");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
