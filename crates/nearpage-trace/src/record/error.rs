//! Why nothing was recorded.

use std::io;
use std::path::{Path, PathBuf};

use nearpage_machine::shown;

/// A failed recording. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is no such program.
    #[error("{program}: {why}; expected a program, by its path or in one of the folders of PATH")]
    NoProgram {
        /// As it was asked for.
        program: String,
        /// What was found instead.
        why: &'static str,
    },
    /// The program was found, but the kernel does not run it.
    #[error("{program}: cannot be run: {error}")]
    NotRun {
        /// As it was asked for.
        program: String,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The file of the bundle cannot be made.
    #[error("{path}: {why}", path = shown(path))]
    NoOutput {
        /// The bundle.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// Only root may trace.
    #[error(
        "recording needs root: tracefs, /proc/pagetypeinfo and /proc/slabinfo are root's. Run it with sudo; for a \
         machine without nearpage, `nearpage record --print-script > record.sh` there: `sudo sh record.sh -- CMD`"
    )]
    NotRoot,
    /// There is no tracefs, and none can be mounted.
    #[error(
        "no tracefs: {path}: {error}. Mount it (`mount -t tracefs nodev /sys/kernel/tracing`); in a container, record \
         on the host or with all privileges; a kernel needs CONFIG_TRACING and CONFIG_EVENT_TRACING",
        path = shown(path)
    )]
    NoTracefs {
        /// Where it should be.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The kernel lacks an event.
    #[error("{path}: this kernel has no event {event}, without which a trace cannot be replayed", path = shown(path))]
    NoEvent {
        /// Where it should be.
        path: PathBuf,
        /// `kmem/mm_page_alloc`.
        event: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{path}: cannot {action}: {error}", path = shown(path))]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// Signals cannot be caught, or a thread not be started.
    #[error("cannot prepare the recorder: {0}")]
    Setup(io::Error),
    /// Interrupted while the bundle was written.
    #[error("interrupted while the bundle was written: it was removed")]
    Abandoned,
}

impl RecordError {
    /// Makes an error about a file out of the kernel's.
    pub(super) fn file<'a>(
        path: &'a Path,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> RecordError + 'a {
        move |error| RecordError::File { path: path.into(), action, error }
    }
}
