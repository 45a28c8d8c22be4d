//! A memory's figures over a unix socket: [`Memory::serve_stats`].
//!
//! A thread of its own answers; nothing is added to an allocation or a free. It reads what [`Memory`]'s own texts read: a
//! counter at a time, or a zone's lists under its lock for as long as it copies the counts of one type of page. No lock is
//! held while a text is written, and none while a reader is waited for.
//!
//! ```text
//! stats: the handle, the thread ---> connections: who asks, who is dropped
//!                               ---> files: names and contents ---> document: the JSON
//!                               ---> socket: where readers find it
//! ```
//!
//! The language is that of [`nearpage_machine::stats_socket`]. Readers are processes of the same user, or of root.

mod connections;
mod document;
mod files;
mod socket;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use crate::ffi;
use crate::fork;
use crate::memory::Memory;
use connections::Connections;
use socket::Bound;

/// Why the figures of a memory are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// Another program serves there, or another file has the name.
    #[error(
        "{path}: something is there already; a new name is accepted, or that of a socket that nobody serves"
    )]
    Taken {
        /// The path.
        path: PathBuf,
        /// The process that serves there, if one does and the system tells.
        by: Option<u32>,
    },
    /// The system refused.
    #[error("{path}: {error}")]
    Refused {
        /// The path.
        path: PathBuf,
        /// What it says.
        #[source]
        error: io::Error,
    },
    /// No thread could be started.
    #[error("the thread that serves statistics: {0}")]
    Thread(#[source] io::Error),
}

/// Serves the figures of a memory until this is dropped, or the memory is. See [`Memory::serve_stats`].
#[derive(Debug)]
pub struct StatsServer {
    thread: Option<JoinHandle<()>>,
    /// Wakes the thread to end.
    ends: Arc<OwnedFd>,
    bound: Arc<Bound>,
}

impl Memory {
    /// Serves the figures of this memory on a unix socket: its texts, JSON, and a tree of files as below /proc and /sys.
    /// `nearpage top --process`, `nearpage export --process` and `nearpage proc` read it.
    ///
    /// The socket has the mode 0600, and readers of other users than this process's and root are told so. A socket that a
    /// dead process left at the path is replaced. The server has a thread, which takes no signals, three descriptors, and
    /// at most sixteen readers at once; a reader that does not take its answer within five seconds is dropped.
    ///
    /// After a fork the child has no server: it may call this for another path.
    ///
    /// ```
    /// use std::io::{BufRead, BufReader, Write};
    /// use std::sync::Arc;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let memory = Arc::new(nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build()?);
    /// let server = memory.serve_stats(folder.path().join("socket"))?;
    ///
    /// let mut reader = std::os::unix::net::UnixStream::connect(server.path())?;
    /// reader.write_all(b"nearpage 1 proc/buddyinfo\n")?;
    /// let mut head = String::new();
    /// BufReader::new(reader).read_line(&mut head)?;
    /// assert!(head.starts_with("nearpage 1 ok "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn serve_stats(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
    ) -> Result<StatsServer, StatsError> {
        StatsServer::start(Source::Shared(Arc::downgrade(self)), path.as_ref())
    }

    /// The same of a memory that lives as long as the process.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn serve_stats_always(
        &'static self,
        path: impl AsRef<Path>,
    ) -> Result<StatsServer, StatsError> {
        StatsServer::start(Source::Static(self), path.as_ref())
    }
}

impl StatsServer {
    fn start(source: Source, path: &Path) -> Result<StatsServer, StatsError> {
        let refused = |error| StatsError::Refused { path: path.to_owned(), error };
        let ends = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let ends = Arc::new(ends.map_err(|error| refused(error.into()))?);
        let (bound, listener) = Bound::bind(path)?;
        let bound = Arc::new(bound);
        let connections = Connections::new(listener, ends.clone());
        let worker = Worker { source, connections, bound: bound.clone() };
        // The program's signals are for its own threads.
        let thread = ffi::with_signals_blocked(|| {
            let builder = std::thread::Builder::new().name(String::from("nearpage-stats"));
            builder.spawn(move || worker.run())
        });
        Ok(StatsServer { thread: Some(thread.map_err(StatsError::Thread)?), ends, bound })
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        self.bound.path()
    }
}

impl Drop for StatsServer {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // A child of a fork has a copy of the handle only.
        if !self.bound.is_of_this_process() {
            return fork::leave_to_parent(thread);
        }
        // The counter is full only if the thread was woken before.
        let _ = rustix::io::write(&*self.ends, &1_u64.to_ne_bytes());
        // The thread itself may drop this, with the memory's last owner.
        if thread.thread().id() != std::thread::current().id() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The memory that is served.
enum Source {
    Shared(Weak<Memory>),
    Static(&'static Memory),
}

impl Source {
    /// Calls `act` with the memory, if it is still there.
    fn with<R>(&self, act: impl FnOnce(&Memory) -> R) -> Option<R> {
        match self {
            Source::Shared(memory) => memory.upgrade().map(|memory| act(&memory)),
            Source::Static(memory) => Some(act(memory)),
        }
    }
}

struct Worker {
    source: Source,
    connections: Connections,
    bound: Arc<Bound>,
}

impl Worker {
    fn run(mut self) {
        let source = &self.source;
        self.connections.serve(|request| source.with(|memory| files::answer(memory, request)));
        self.bound.remove();
    }
}

#[cfg(test)]
mod tests;
