//! Signals that end, stop and continue the panes.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null;

use nearpage_top::Signals;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag;

/// From now on SIGINT, SIGTERM and SIGQUIT set a flag. With panes SIGHUP does too, and SIGTSTP and SIGCONT set flags of their
/// own: a terminal must be restored. What whoever started this process ignores stays ignored.
///
/// # Errors
///
/// The kernel does not allow it.
pub(super) fn watch(has_panes: bool) -> io::Result<Signals> {
    let signals = Signals { stop, ..Signals::default() };
    for signal in [SIGINT, SIGTERM, SIGQUIT] {
        flag::register(signal, signals.ends.clone())?;
    }
    if has_panes {
        let flags =
            [(SIGHUP, &signals.ends), (SIGTSTP, &signals.stops), (SIGCONT, &signals.goes_on)];
        for (signal, flag) in flags {
            if action(signal)?.sa_sigaction != libc::SIG_IGN {
                flag::register(signal, flag.clone())?;
            }
        }
    }
    Ok(signals)
}

/// Stops what runs with this process on the terminal, as Ctrl-Z does where it is no key, until somebody continues it. Where
/// nobody could, the kernel goes on at once.
fn stop() {
    let Ok(ours) = action(SIGTSTP) else { return };
    if ours.sa_sigaction == libc::SIG_IGN {
        return;
    }
    let is_set = |action: &libc::sigaction| {
        // SAFETY: the action outlives the call, and is the default or one that was in force before.
        unsafe { libc::sigaction(SIGTSTP, action, std::ptr::null_mut()) == 0 }
    };
    // SAFETY: zeroes are the default action, with no flag and no other signal blocked.
    let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    if is_set(&default) {
        // SAFETY: a signal to the own process group; the caller has given the terminal back.
        unsafe { libc::kill(0, SIGTSTP) };
        is_set(&ours);
    }
}

/// What a signal does to this process.
fn action(signal: i32) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: asks only; there is room for the answer, which is initialized before.
    match unsafe { libc::sigaction(signal, null(), action.as_mut_ptr()) } {
        // SAFETY: as above.
        0 => Ok(unsafe { action.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}
