//! What a recorder puts into the kernel, by the names that it has there, and how it is removed.
//!
//! The names are those of the process, so they are known before anything is made, and a handler of a signal can remove
//! what they name: nothing here allocates once the names are put together.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::Timespec;

/// Events of probes, in the order in which they are set.
pub(super) const PROBE_EVENTS: [&str; 2] = ["nearpage_bulk", "nearpage_bulk_done"];

/// A file that was opened in an instance may be closed a moment later.
const BUSY_RETRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The names of one process below one tracefs.
#[derive(Debug)]
pub(super) struct Leftovers {
    instance: CString,
    tracing_on: CString,
    events: CString,
    probes: CString,
    /// The lines that remove the probes.
    removals: Vec<CString>,
}

/// The group of the probes of a process.
pub(super) fn probe_group(pid: u32) -> String {
    format!("nearpage{pid}")
}

/// The name of the instance of a process.
pub(super) fn instance_name(pid: u32) -> String {
    format!("nearpage.{pid}")
}

impl Leftovers {
    /// The names of this process below a tracefs.
    pub(super) fn of_this_process(tracefs: &Path) -> Leftovers {
        let pid = std::process::id();
        let name =
            |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
        let instance = tracefs.join("instances").join(instance_name(pid));
        let removal = |event: &&str| {
            CString::new(format!("-:{}/{event}\n", probe_group(pid))).expect("a line has no NUL")
        };
        Leftovers {
            tracing_on: name(&instance.join("tracing_on")),
            events: name(&instance.join("events/enable")),
            instance: name(&instance),
            probes: name(&tracefs.join("kprobe_events")),
            removals: PROBE_EVENTS.iter().rev().map(removal).collect(),
        }
    }

    /// Removes the instance; of one that is not there, nothing is left. Its files must be closed, and are waited for a
    /// little. Safe in a handler of a signal.
    ///
    /// # Errors
    ///
    /// The kernel keeps it.
    pub(super) fn remove_instance(&self) -> Result<(), Errno> {
        let _ = write(&self.tracing_on, b"0", OFlags::empty());
        let _ = write(&self.events, b"0", OFlags::empty());
        let pause = Timespec { tv_sec: 0, tv_nsec: BUSY_PAUSE.as_nanos() as _ };
        for _ in 0..BUSY_RETRIES {
            match rustix::fs::rmdir(&*self.instance) {
                Err(Errno::BUSY) => drop(rustix::thread::nanosleep(&pause)),
                Err(Errno::NOENT) => return Ok(()),
                done => return done,
            }
        }
        Err(Errno::BUSY)
    }

    /// Removes the probes, if they are set; no instance may use them any more. Safe in a handler of a signal.
    pub(super) fn remove_probes(&self) {
        for line in &self.removals {
            let _ = write(&self.probes, line.to_bytes(), OFlags::APPEND);
        }
    }
}

fn write(path: &CString, text: &[u8], flags: OFlags) -> Result<(), Errno> {
    let flags = flags | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&**path, flags, Mode::empty())?;
    rustix::io::write(&file, text).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let leftovers = Leftovers::of_this_process(folder.path());
        assert_eq!(leftovers.remove_instance(), Ok(()));
        leftovers.remove_probes();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_instance_is_removed_and_probes_are_taken_off_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let instance = folder.path().join("instances").join(format!("nearpage.{pid}"));
        std::fs::create_dir_all(&instance).unwrap();
        let list = folder.path().join("kprobe_events");
        std::fs::write(&list, "").unwrap();
        let leftovers = Leftovers::of_this_process(folder.path());
        assert_eq!(leftovers.remove_instance(), Ok(()));
        assert!(!instance.exists());
        leftovers.remove_probes();
        let expected =
            format!("-:nearpage{pid}/nearpage_bulk_done\n-:nearpage{pid}/nearpage_bulk\n");
        assert_eq!(std::fs::read_to_string(&list).unwrap(), expected);
    }
}
