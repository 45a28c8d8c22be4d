//! The file system of the kernel's tracer.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::error::RecordError;
use super::system;

const TRACEFS: &str = "/sys/kernel/tracing";
/// Where it is, and where it was before 4.1, and still is if debugfs is mounted.
pub(super) const PLACES: [&str; 2] = [TRACEFS, "/sys/kernel/debug/tracing"];

/// A mounted tracefs.
pub(super) struct Tracefs {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it was mounted for this recording. It stays mounted, as with other tracers.
    pub is_mounted_now: bool,
}

impl Tracefs {
    /// Finds it, or mounts it.
    ///
    /// # Errors
    ///
    /// This process is not root's, or there is none and none can be mounted.
    pub(super) fn open() -> Result<Tracefs, RecordError> {
        if !system::is_root() {
            return Err(RecordError::NotRoot);
        }
        let is_there = |path: &str| Path::new(path).join("instances").is_dir();
        let mut is_mounted_now = false;
        if !PLACES.into_iter().any(is_there) {
            system::mount_tracefs(c"/sys/kernel/tracing")
                .map_err(|source| RecordError::NoTracefs { path: TRACEFS.into(), source })?;
            is_mounted_now = true;
        }
        match PLACES.into_iter().find(|path| is_there(path)) {
            Some(path) => Ok(Tracefs { path: path.into(), is_mounted_now }),
            None => Err(RecordError::NoTracefs {
                path: Path::new(TRACEFS).join("instances"),
                source: ErrorKind::NotFound.into(),
            }),
        }
    }

    /// Removes what recorders left that were killed: instances and probes named after a process that is no more.
    /// Who still has one open keeps it.
    pub(super) fn remove_abandoned(&self) {
        for entry in fs::read_dir(self.path.join("instances")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.strip_prefix("nearpage."))
                && is_gone(pid)
            {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let probes = self.path.join("kprobe_events");
        for line in fs::read_to_string(&probes).unwrap_or_default().lines() {
            if let Some(event) = event_of_probe(line)
                && let Some((group, _)) = event.split_once('/')
                && group.strip_prefix("nearpage").is_some_and(is_gone)
            {
                let _ = append(&probes, &format!("-:{event}\n"));
            }
        }
    }
}

/// `nearpage12/nearpage_bulk` of `p:nearpage12/nearpage_bulk alloc_pages_bulk_noprof gfp=…`.
fn event_of_probe(line: &str) -> Option<&str> {
    line.split_once(':')?.1.split_whitespace().next()
}

fn is_gone(pid: &str) -> bool {
    pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Writes to a file of the kernel, which a truncation would change before.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Adds to a file of the kernel that is a list.
pub(super) fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_abandoned_is_told_from_what_is_used() {
        let line = "p:nearpage12/nearpage_bulk alloc_pages_bulk_noprof gfp=$arg1:x32";
        assert_eq!(event_of_probe(line), Some("nearpage12/nearpage_bulk"));
        assert!(!is_gone(&std::process::id().to_string()));
        assert!(is_gone("4194999") && !is_gone("self") && !is_gone(""));
    }
}
