//! `_exit`: children of forks end by it, and would write no report.
//!
//! The C library's own `exit` does not come through here; it has run `fini_array` by then.

use std::ffi::c_int;

use crate::report;

fn leave(status: c_int) -> ! {
    report::end();
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    leave(status)
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    leave(status)
}
