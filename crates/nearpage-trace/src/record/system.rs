//! Calls to the system that the standard library lacks.

use std::ffi::CStr;
use std::io;

use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal};

/// Whether this process is root's.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Bytes of a page.
pub(super) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Mounts a tracefs.
pub(super) fn mount_tracefs(target: &CStr) -> io::Result<()> {
    rustix::mount::mount(c"nodev", target, c"tracefs", MountFlags::empty(), None::<&CStr>)?;
    Ok(())
}

/// Sends a signal to a process, and to its group if it leads one. A process that has ended is no error.
pub(super) fn signal(process: Pid, signal: Signal) {
    let leads = rustix::process::getpgid(Some(process)).is_ok_and(|group| group == process);
    // The process may be gone, and its group not.
    let _ = match leads || rustix::process::test_kill_process_group(process).is_ok() {
        true => rustix::process::kill_process_group(process, signal),
        false => rustix::process::kill_process(process, signal),
    };
}

/// This thread goes first, as long as this lives: what others do between a marker and the reading of a file
/// would not be in the file. Where the kernel does not allow it, it is no worse than before.
pub(super) struct Urgent;

impl Urgent {
    /// Begins.
    pub(super) fn begin() -> Urgent {
        set_scheduler(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Urgent
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        set_scheduler(libc::SCHED_OTHER, 0);
    }
}

/// The one call here that rustix lacks.
fn set_scheduler(policy: i32, priority: i32) {
    // SAFETY: a structure of numbers, for which zeros are valid where it has more than the priority.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: 0 is this thread; the kernel reads the structure, which lives.
    unsafe { libc::sched_setscheduler(0, policy, &parameters) };
}
