//! System calls that the standard library lacks.

use std::ffi::CStr;
use std::io;

/// Whether this process is root's.
pub(super) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Bytes of a page.
pub(super) fn page_bytes() -> u64 {
    // SAFETY: sysconf reads a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Mounts a tracefs.
pub(super) fn mount_tracefs(target: &CStr) -> io::Result<()> {
    // SAFETY: four texts that end, which the kernel only reads; tracefs takes no data.
    let result = unsafe {
        libc::mount(c"nodev".as_ptr(), target.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to a group of processes. One that has ended is no error.
pub(super) fn signal_group(group: u32, signal: i32) {
    // SAFETY: takes numbers only. Group 0 would be our own, and no child has the number 0.
    unsafe { libc::kill(-(group as i32), signal) };
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

fn set_scheduler(policy: i32, priority: i32) {
    // SAFETY: a structure of numbers, for which zeros are valid where it has more than the priority.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: 0 is this thread; the kernel reads the structure, which lives.
    unsafe { libc::sched_setscheduler(0, policy, &parameters) };
}
