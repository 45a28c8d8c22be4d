//! The caller's hold on a recording: it can be stopped from other threads and from handlers of signals.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::AtFlags;
use rustix::process::{Pid, Signal};

use super::leftovers::Leftovers;
use super::tracefs::PLACES;

/// Stops a recording: one, since it remembers that it was asked to. Clones are of the same recording.
///
/// A recording that is asked to stop asks its command to end (SIGTERM), and kills it at the second time or after 5 s; what
/// happened until then is kept. Asked while the bundle is written, it gives the bundle up.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Becomes readable with each wish to stop.
    wake: OwnedFd,
    stops: AtomicU32,
    /// The command that runs, or 0.
    command: AtomicI32,
    /// What was made for the bundle, by its folder, and is to be removed as long as that is not finished.
    unfinished: OnceLock<(OwnedFd, Vec<CString>)>,
    is_finished: AtomicBool,
    /// What may be in the kernel, wherever the tracefs is.
    leftovers: Vec<Leftovers>,
}

impl Control {
    /// A hold on a recording of this process.
    ///
    /// # Errors
    ///
    /// The kernel has no descriptor to give.
    pub fn new() -> io::Result<Control> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let leftovers = PLACES.iter().map(|place| Leftovers::of_this_process(Path::new(place)));
        Ok(Control(Arc::new(Inner {
            wake,
            stops: AtomicU32::new(0),
            command: AtomicI32::new(0),
            unfinished: OnceLock::new(),
            is_finished: AtomicBool::new(false),
            leftovers: leftovers.collect(),
        })))
    }

    /// Asks the recording to stop. Safe in a handler of a signal.
    pub fn stop(&self) {
        self.0.stops.fetch_add(1, Ordering::Relaxed);
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    /// Leaves nothing behind: kills the command, removes what is in the kernel, and the file that was made for the bundle.
    /// This is for a handler of SIGABRT, in which it is safe.
    ///
    /// # Safety
    ///
    /// - The process ends when the handler returns.
    /// - No thread opens files, or uses files above standard error, from now on: all of them are closed here, since the
    ///   kernel keeps an instance of which a file is open. (A thread that is in the middle of a call gets an error.)
    pub unsafe fn abandon(&self) {
        if !self.0.is_finished.load(Ordering::Relaxed)
            && let Some((folder, names)) = self.0.unfinished.get()
        {
            for name in names {
                let _ = rustix::fs::unlinkat(folder, &**name, AtFlags::empty());
            }
        }
        // By its number: not every C library has a function for it.
        let (first, last, flags) = (3_u64, u64::from(u32::MAX), 0_u64);
        // SAFETY: takes numbers; that files are closed under their owners is what the caller promises to be harmless.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        if let Some(command) = self.command() {
            let _ = rustix::process::kill_process_group(command, Signal::KILL);
        }
        for leftovers in &self.0.leftovers {
            let _ = leftovers.remove_instance();
            leftovers.remove_probes();
        }
    }

    /// How often it was asked to stop.
    pub(super) fn stops(&self) -> u32 {
        self.0.stops.load(Ordering::Relaxed)
    }

    /// Becomes readable when it is asked to stop.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    /// Makes it unreadable until it is asked again.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
    }

    /// Says which command runs, which leads a group of its own; `None` when it has ended.
    pub(super) fn set_command(&self, command: Option<Pid>) {
        let number = command.map_or(0, |pid| pid.as_raw_nonzero().get());
        self.0.command.store(number, Ordering::Relaxed);
    }

    fn command(&self) -> Option<Pid> {
        Pid::from_raw(self.0.command.load(Ordering::Relaxed))
    }

    /// Says which files of a folder are made for the bundle.
    pub(super) fn set_unfinished(&self, folder: OwnedFd, names: impl Iterator<Item = OsString>) {
        let names = names.filter_map(|name| CString::new(name.into_vec()).ok());
        self.0.unfinished.get_or_init(|| (folder, names.collect()));
    }

    /// Says that the bundle is whole.
    pub(super) fn set_finished(&self) {
        self.0.is_finished.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn a_wish_to_stop_wakes() {
        let control = Control::new().unwrap();
        let is_readable = || {
            let mut wake = [PollFd::from_borrowed_fd(control.wake(), PollFlags::IN)];
            poll(&mut wake, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!is_readable() && control.stops() == 0);
        let other = control.clone();
        std::thread::spawn(move || other.stop()).join().unwrap();
        control.stop();
        assert!(is_readable() && control.stops() == 2);
        control.clear();
        assert!(!is_readable());
    }
}
