//! The figures of a process that serves those of its allocator (`Memory::serve_stats` of `nearpage-linux`), as a tree of
//! files: whatever reads a machine reads such a process too.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nearpage_machine::stats_socket::{HEAD_BYTES_MAX, Head, NOTE_NAME, NoAnswer, Peer, Request};
use nearpage_machine::{FileTree, shown};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// How long an answer may take in all, and how long a process that gave none is not asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// Why a process cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no such process, or its descriptors are not for this user.
    #[error("process {pid}: {error}")]
    Process {
        /// The process.
        pid: u32,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The text names neither a process nor a socket.
    #[error("no process is named: expected its id, or the path of its socket")]
    Unnamed,
    /// It serves nothing.
    #[error(
        "process {pid} serves no figures; it must call serve_stats (nearpage_stats_serve in C), or be started with NEARPAGE_STATS=PATH"
    )]
    NotServed {
        /// The process.
        pid: u32,
    },
    /// It is the child of a fork, and its parent serves.
    #[error(
        "process {pid} was forked from process {served_by}, which serves its own figures at {path}"
    )]
    Forked {
        /// The process.
        pid: u32,
        /// Who serves.
        served_by: u32,
        /// Where.
        path: String,
    },
    /// Another process listens at the socket that a process noted.
    #[error(
        "process {pid} notes the socket {path}, where another process listens: nothing was asked there"
    )]
    Elsewhere {
        /// The process.
        pid: u32,
        /// The socket.
        path: String,
    },
    /// Nobody listens there, or not for this user.
    #[error("{path}: {why}")]
    Connect {
        /// The socket.
        path: String,
        /// Why not.
        why: String,
    },
    /// The connection broke, or the answer took too long.
    #[error("{path}: {why}")]
    Broken {
        /// The socket.
        path: String,
        /// How.
        why: String,
    },
    /// The process refuses.
    #[error("{path}: refused: {why}")]
    Refused {
        /// The socket.
        path: String,
        /// Why, in its words.
        why: String,
    },
    /// The answer is none.
    #[error("{path}: {error}")]
    NoAnswer {
        /// The socket.
        path: String,
        /// What is wrong with it.
        #[source]
        error: NoAnswer,
    },
}

impl From<ProcessError> for io::Error {
    fn from(error: ProcessError) -> io::Error {
        io::Error::other(error)
    }
}

/// A process that serves the figures of its allocator. As a [`FileTree`] it has `proc/zoneinfo`, `proc/buddyinfo`,
/// `proc/vmstat` and the like below its root, of the allocator alone, and `nearpage/memory.json`.
///
/// A connection that breaks is made anew at the next reading: the process may have dropped a reader that was idle. After one
/// that did not answer within five seconds, readings of the next five seconds fail at once: a machine's sample has many
/// files, and would wait for each.
#[derive(Debug)]
pub struct ProcessTree {
    path: PathBuf,
    pid: Option<u32>,
    /// The only process that is asked anything.
    expected: Option<u32>,
    connection: RefCell<Option<UnixStream>>,
    /// Until when it is taken to be silent.
    silent_until: Cell<Option<Instant>>,
}

impl ProcessTree {
    /// The process that serves at a socket.
    ///
    /// # Errors
    ///
    /// [`ProcessError`]: nobody serves there, it is not for this user, or another program listens.
    pub fn connect(path: impl Into<PathBuf>) -> Result<ProcessTree, ProcessError> {
        ProcessTree::connect_to(path.into(), None)
    }

    fn connect_to(path: PathBuf, expected: Option<u32>) -> Result<ProcessTree, ProcessError> {
        let (mut stream, pid) = connect_to(&path, expected)?;
        // Another program that listens there is found out now.
        let answer = exchange(&mut stream, Request::Files);
        let connection = RefCell::new(Some(stream));
        let tree = ProcessTree { path, pid, expected, connection, silent_until: Cell::new(None) };
        tree.told(answer)?;
        Ok(tree)
    }

    /// The process with an id, by the note that it keeps for its readers. The note is its own word: nothing is said to
    /// another process that listens there.
    ///
    /// # Errors
    ///
    /// [`ProcessError`].
    pub fn of_process(pid: u32) -> Result<ProcessTree, ProcessError> {
        let path = noted_path(pid)?;
        // A container's process has another root.
        let inside = PathBuf::from(format!("/proc/{pid}/root"))
            .join(path.strip_prefix("/").unwrap_or(&path));
        match ProcessTree::connect_to(path, Some(pid)) {
            Err(ProcessError::Connect { .. } | ProcessError::Elsewhere { .. })
                if inside.exists() =>
            {
                ProcessTree::connect_to(inside, Some(pid))
            }
            tree => tree,
        }
    }

    /// The process that is meant: an id, or the path of a socket.
    ///
    /// # Errors
    ///
    /// [`ProcessError`].
    pub fn open(meant: &str) -> Result<ProcessTree, ProcessError> {
        match meant.parse() {
            Ok(pid) => ProcessTree::of_process(pid),
            Err(_) if meant.is_empty() => Err(ProcessError::Unnamed),
            Err(_) => ProcessTree::connect(meant),
        }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that listens, if the system tells.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The names of all files.
    ///
    /// # Errors
    ///
    /// [`ProcessError`].
    pub fn files(&self) -> Result<Vec<String>, ProcessError> {
        let text = self.ask(Request::Files)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }

    /// A file's content; `None` if there is none of that name.
    ///
    /// # Errors
    ///
    /// [`ProcessError`].
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        if name.contains(['\n', '\r']) {
            return Ok(None);
        }
        self.ask(Request::File(name))
    }

    fn ask(&self, request: Request<'_>) -> Result<Option<Vec<u8>>, ProcessError> {
        if self.is_silent() {
            return self.told(Err(Trouble::Io(ErrorKind::TimedOut.into())));
        }
        let mut connection = self.connection.borrow_mut();
        if let Some(stream) = &mut *connection {
            match exchange(stream, request) {
                Err(Trouble::Io(error)) if !is_timeout(&error) => {}
                answer => {
                    if answer.is_err() {
                        *connection = None;
                    }
                    return self.told(answer);
                }
            }
        }
        *connection = None;
        let (mut stream, _) = connect_to(&self.path, self.expected)?;
        let answer = exchange(&mut stream, request);
        if answer.is_ok() {
            *connection = Some(stream);
        }
        self.told(answer)
    }

    fn is_silent(&self) -> bool {
        self.silent_until.get().is_some_and(|until| until > Instant::now())
    }

    fn told(
        &self,
        answer: Result<Option<Vec<u8>>, Trouble>,
    ) -> Result<Option<Vec<u8>>, ProcessError> {
        let path = shown(&self.path).to_string();
        answer.map_err(|trouble| match trouble {
            Trouble::Io(error) if is_timeout(&error) => {
                if !self.is_silent() {
                    self.silent_until.set(Some(Instant::now() + PATIENCE));
                }
                let why =
                    format!("no answer within {} s; is the process stopped?", PATIENCE.as_secs());
                ProcessError::Broken { path, why }
            }
            Trouble::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                ProcessError::Broken {
                    path,
                    why: "the connection was closed without an answer".into(),
                }
            }
            Trouble::Io(error) => ProcessError::Broken { path, why: error.to_string() },
            Trouble::NoAnswer(error) => ProcessError::NoAnswer { path, error },
            Trouble::Refused(why) => ProcessError::Refused { path, why },
        })
    }
}

impl FileTree for ProcessTree {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.file(path)?)
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let files = self.files()?;
        let prefix = format!("{}/", path.trim_matches('/'));
        let prefix = if prefix == "/" { "" } else { &prefix };
        let below = files.iter().filter_map(|file| file.strip_prefix(prefix)?.split('/').next());
        let mut names: Vec<String> = below.map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn display(&self, path: &str) -> String {
        format!("{}:{path}", shown(&self.path))
    }
}

/// Why there is no answer.
enum Trouble {
    Io(io::Error),
    NoAnswer(NoAnswer),
    Refused(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Connects without waiting: who is stopped, and has many readers waiting, would keep this one for ever.
/// Nothing is sent to another process than the expected one.
fn connect_to(
    path: &Path,
    expected: Option<u32>,
) -> Result<(UnixStream, Option<u32>), ProcessError> {
    let refused = |why: String| ProcessError::Connect { path: shown(path).to_string(), why };
    let address = SocketAddrUnix::new(path)
        .map_err(|_| refused("the path of a socket has 1 to 107 bytes".into()))?;
    let connected = || -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let stream = connected().map_err(|error| {
        refused(match error.kind() {
            ErrorKind::NotFound => {
                "there is no such socket: the process has ended, or never served".into()
            }
            ErrorKind::ConnectionRefused => {
                "nobody serves there any more, or it is no socket".into()
            }
            ErrorKind::PermissionDenied => {
                "it is of another user, and only that user and root may read it".into()
            }
            ErrorKind::WouldBlock => "it accepts no readers; is the process stopped?".into(),
            _ => error.to_string(),
        })
    })?;
    let found = Peer::of(&stream).ok().and_then(|peer| peer.pid);
    let Some(pid) = expected.filter(|pid| found != Some(*pid)) else { return Ok((stream, found)) };
    let path = shown(path).to_string();
    Err(match found.filter(|served_by| parent(pid) == Some(*served_by)) {
        Some(served_by) => ProcessError::Forked { pid, served_by, path },
        None => ProcessError::Elsewhere { pid, path },
    })
}

/// A stream that is read until an instant: whoever sends a byte now and then keeps nobody.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

fn exchange(stream: &mut UnixStream, request: Request<'_>) -> Result<Option<Vec<u8>>, Trouble> {
    match stream.write_all(request.to_string().as_bytes()) {
        // A process of another user refuses before it is asked, and closes: its answer says why.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let mut answer = BufReader::new(Timed { stream, until: Instant::now() + PATIENCE });
    let mut head = Vec::with_capacity(64);
    (&mut answer).take(HEAD_BYTES_MAX as u64).read_until(b'\n', &mut head)?;
    if head.last() != Some(&b'\n') {
        return Err(match head.len() < HEAD_BYTES_MAX {
            true => Trouble::Io(ErrorKind::UnexpectedEof.into()),
            false => Trouble::NoAnswer(NoAnswer::Line),
        });
    }
    let content = match Head::parse(&head).map_err(Trouble::NoAnswer)? {
        Head::NoFile => None,
        Head::Refused { why } => return Err(Trouble::Refused(why)),
        Head::Content { bytes } => {
            let mut content = Vec::new();
            let length = (&mut answer).take(bytes).read_to_end(&mut content)? as u64;
            if length < bytes {
                return Err(Trouble::Io(ErrorKind::UnexpectedEof.into()));
            }
            Some(content)
        }
    };
    // More than was asked for would be taken for the next answer.
    if !answer.buffer().is_empty() {
        return Err(Trouble::NoAnswer(NoAnswer::Line));
    }
    Ok(content)
}

/// The path in the note among a process's descriptors.
fn noted_path(pid: u32) -> Result<PathBuf, ProcessError> {
    let told = |error| ProcessError::Process { pid, error };
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = fs::read_dir(&folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => told(io::Error::new(error.kind(), "there is no such process")),
        _ => told(error),
    })?;
    let name = format!("/memfd:{NOTE_NAME}");
    for entry in entries.take(DESCRIPTORS_MAX).flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if !target.as_os_str().as_encoded_bytes().starts_with(name.as_bytes()) {
            continue;
        }
        let mut path = Vec::new();
        let file = open_note(&entry.path()).map_err(told)?;
        file.take(4096).read_to_end(&mut path).map_err(told)?;
        return Ok(OsString::from_vec(path).into());
    }
    Err(ProcessError::NotServed { pid })
}

/// Opens what a process holds open, if that is a file of memory: the process may have put a device there since its name was
/// read.
fn open_note(path: &Path) -> io::Result<fs::File> {
    let held = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&held)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "its note is no file of memory"));
    }
    fs::File::open(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

/// The process that a process was forked from.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
