//! Why nothing was recorded, and what could not be removed.

use std::io;
use std::path::{Path, PathBuf};

use nearpage_machine::shown;

/// A failed recording. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The command cannot be started.
    #[error("{program}: cannot be run: {source}")]
    NotRun {
        /// As it was asked for.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// There is no such process.
    #[error("there is no process {pid}: {source}")]
    NoProcess {
        /// Its number.
        pid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The bundle cannot be made where it was asked for.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Only root may trace.
    #[error("recording needs root: tracefs, /proc/pagetypeinfo and /proc/slabinfo are root's")]
    NotRoot,
    /// There is no tracefs, and none can be mounted.
    #[error(
        "no tracefs: {path}: {source}. Mount it (`mount -t tracefs nodev /sys/kernel/tracing`); in a container, record \
         on the host or with all privileges; a kernel needs CONFIG_TRACING and CONFIG_EVENT_TRACING",
        path = shown(path)
    )]
    NoTracefs {
        /// Where it should be.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
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
    #[error("{path}: cannot {action}: {source}", path = shown(path))]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The recorder itself cannot be prepared.
    #[error("cannot prepare the recorder: {0}")]
    Setup(#[source] io::Error),
    /// Stopped while the bundle was written.
    #[error("interrupted while the bundle was written: it was removed")]
    Abandoned,
}

impl RecordError {
    /// Makes an error about a file out of the kernel's.
    pub(super) fn file<'a>(
        path: &'a Path,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> RecordError + 'a {
        move |source| RecordError::File { path: path.into(), action, source }
    }
}

/// A trace instance that the kernel keeps. The next recorder removes it, once the files of it are closed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot be removed: {source}; `rmdir {path}` does it", path = shown(path))]
#[non_exhaustive]
pub struct Kept {
    /// The instance.
    pub path: PathBuf,
    /// The kernel's reason.
    pub source: io::Error,
}

/// A place where no bundle can be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// Something that is neither a file nor an empty folder.
    #[error("{path}: is no file and no empty folder; expected a name for the bundle, which is made", path = shown(path))]
    NotAFile {
        /// As it was asked for.
        path: PathBuf,
    },
    /// A file with something in it.
    #[error("{path}: exists and is not empty; remove it, or give another name", path = shown(path))]
    NotEmpty {
        /// As it was asked for.
        path: PathBuf,
    },
    /// A name that promises what is not written.
    #[error(
        "{path}: no bundle is written as {suffix}; expected a name that ends in .tar.zst, .tar.gz or .tar, or in / for a \
         folder",
        path = shown(path)
    )]
    Suffix {
        /// As it was asked for.
        path: PathBuf,
        /// The end of the name.
        suffix: String,
    },
    /// A place in a folder that there is not.
    #[error("{path}: there is no folder {folder}; make it first (mkdir -p)", path = shown(path), folder = shown(folder))]
    NoFolder {
        /// As it was asked for.
        path: PathBuf,
        /// What is missing.
        folder: PathBuf,
    },
    /// The kernel refuses it.
    #[error("{path}: cannot be written: {source}", path = shown(path))]
    Unwritable {
        /// As it was asked for.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// No name was asked for, and all of the usual ones are taken.
    #[error("{path}: exists, with all numbers", path = shown(path))]
    NoName {
        /// The first of them.
        path: PathBuf,
    },
    /// Somebody wrote to the file while it was recorded.
    #[error(
        "{path}: was written by another program meanwhile, and is left as it is; the bundle is {bundle}",
        path = shown(path),
        bundle = shown(bundle)
    )]
    Taken {
        /// As it was asked for.
        path: PathBuf,
        /// Where the bundle is.
        bundle: PathBuf,
    },
}
