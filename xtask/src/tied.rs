//! Emulators that do not outlive this program.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Lets a program end when this one is killed. An interrupt from the terminal, which both get, ends the program alone: this one
/// sees it end, takes its folders away, and says so.
pub fn tie(command: &mut Command) {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing, and so nothing that a handler may not do. A program that is started has the default again.
    unsafe { libc::signal(libc::SIGINT, handler as *const () as libc::sighandler_t) };
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_killed_with_this_program() {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("60");
        tie(&mut sleeper);
        // It is tied to the thread that starts it.
        let child = std::thread::spawn(move || sleeper.spawn().unwrap()).join();
        let ended = child.unwrap().wait().unwrap();
        assert!(!ended.success(), "it was killed: {ended}");
    }
}
