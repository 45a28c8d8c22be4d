//! What a program that serves the figures of its allocator and a reader of them say to each other over a unix socket.
//!
//! The program offers a small tree of files with the names that they have below `/`. A reader sends a line and gets a
//! line; where that says `ok`, as many bytes follow as it names. A connection lasts for any number of requests.
//!
//! ```text
//! reader   nearpage 1 proc/buddyinfo
//! program  nearpage 1 ok 84
//!          Node 0, zone   Normal      1      0 ...
//! reader   nearpage 1 files                         the names of all files, a line each
//! reader   nearpage 1 proc/none
//! program  nearpage 1 no file
//! reader   nearpage 7 files
//! program  nearpage 1 refused version 7 was asked for; version 1 is answered
//! ```
//!
//! Here are only the lines, and who is at the other end. `nearpage-linux` serves (feature `stats`), and `nearpage-watch`
//! reads.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::{fmt, io};

/// The version of these lines.
pub const VERSION: u32 = 1;
/// The longest request, with its newline.
pub const REQUEST_BYTES_MAX: usize = 256;
/// The longest first line of an answer, with its newline.
pub const HEAD_BYTES_MAX: usize = 512;
/// The longest content of a file.
pub const CONTENT_BYTES_MAX: u64 = crate::Budget::DEFAULT.file_bytes;
/// The name of the memory file (`memfd_create(2)`) in which a program keeps the path of its socket: so `/proc/PID/fd` leads
/// to it.
pub const NOTE_NAME: &str = "nearpage-stats";

const WORD: &str = "nearpage";
const FILES: &str = "files";

/// The process at the other end of a connection, as it was when they connected (`SO_PEERCRED`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number; `None` where this process cannot see it, since it is in another PID namespace.
    pub pid: Option<u32>,
    /// Its effective user.
    pub user: u32,
}

impl Peer {
    /// Asks the kernel for the process at the other end.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use nearpage_machine::stats_socket::Peer;
    ///
    /// let (one, _other) = UnixStream::pair()?;
    /// assert_eq!(Peer::of(&one)?.pid, Some(std::process::id()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    // `rustix::net::sockopt::socket_peercred` gives the number as one that cannot be 0, and the kernel says 0 of a process
    // in another namespace.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the descriptor is open while `stream` is borrowed, and the kernel writes at most `length` bytes, which
        // is the size of `credentials`, whose fields may have any value.
        let answer = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = u32::try_from(credentials.pid).ok().filter(|&pid| pid != 0);
        Ok(Peer { pid, user: credentials.uid })
    }
}

/// What a reader asks for.
///
/// ```
/// use nearpage_machine::stats_socket::Request;
///
/// let line = Request::File("proc/zoneinfo").to_string();
/// assert_eq!(line, "nearpage 1 proc/zoneinfo\n");
/// assert_eq!(Request::parse(line.as_bytes()), Ok(Request::File("proc/zoneinfo")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The names of all files.
    Files,
    /// A file.
    File(&'a str),
}

/// Why a line is no request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoRequest {
    /// The reader speaks another version.
    #[error("version {asked} was asked for; version {VERSION} is answered")]
    Version {
        /// What it speaks.
        asked: u32,
    },
    /// Anything else.
    #[error(
        "that is no request; `{WORD} {VERSION} {FILES}` and `{WORD} {VERSION} NAME` are answered"
    )]
    Line,
}

impl<'a> Request<'a> {
    /// Reads a line, with its newline or without.
    ///
    /// # Errors
    ///
    /// [`NoRequest`], whose text is for the reader.
    pub fn parse(line: &'a [u8]) -> Result<Request<'a>, NoRequest> {
        let line = std::str::from_utf8(line).map_err(|_| NoRequest::Line)?;
        let mut words = line.trim_end().splitn(3, ' ');
        let (Some(WORD), Some(version), Some(what)) = (words.next(), words.next(), words.next())
        else {
            return Err(NoRequest::Line);
        };
        match version.parse() {
            Ok(VERSION) if what == FILES => Ok(Request::Files),
            Ok(VERSION) => Ok(Request::File(what)),
            Ok(asked) => Err(NoRequest::Version { asked }),
            Err(_) => Err(NoRequest::Line),
        }
    }
}

impl fmt::Display for Request<'_> {
    /// The line, with its newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Request::Files => FILES,
            Request::File(name) => name,
        };
        writeln!(f, "{WORD} {VERSION} {what}")
    }
}

/// The first line of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// So many bytes follow.
    Content {
        /// How many.
        bytes: u64,
    },
    /// There is no such file.
    NoFile,
    /// The program does not answer, and closes the connection.
    Refused {
        /// Why.
        why: String,
    },
}

/// Why a line is no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The program speaks another version.
    #[error(
        "it answers version {theirs} of the socket's language, and this program reads version {VERSION}"
    )]
    Version {
        /// What it speaks.
        theirs: u32,
    },
    /// It announces more than is read.
    #[error("it announces {bytes} bytes; at most {CONTENT_BYTES_MAX} are read")]
    TooLong {
        /// What it announces.
        bytes: u64,
    },
    /// Anything else: another program listens there.
    #[error("what listens there is no memory of nearpage")]
    Line,
}

impl Head {
    /// Reads a line, with its newline or without.
    ///
    /// # Errors
    ///
    /// [`NoAnswer`].
    pub fn parse(line: &[u8]) -> Result<Head, NoAnswer> {
        let line = std::str::from_utf8(line).map_err(|_| NoAnswer::Line)?.trim_end();
        let rest = line.strip_prefix(WORD).and_then(|rest| rest.strip_prefix(' '));
        let (version, rest) = rest.and_then(|rest| rest.split_once(' ')).ok_or(NoAnswer::Line)?;
        let theirs = version.parse().map_err(|_| NoAnswer::Line)?;
        if let Some(why) = rest.strip_prefix("refused ") {
            return Ok(Head::Refused { why: why.to_owned() });
        }
        if theirs != VERSION {
            return Err(NoAnswer::Version { theirs });
        }
        if rest == "no file" {
            return Ok(Head::NoFile);
        }
        let bytes = rest.strip_prefix("ok ").and_then(|bytes| bytes.parse().ok());
        match bytes.ok_or(NoAnswer::Line)? {
            bytes if bytes > CONTENT_BYTES_MAX => Err(NoAnswer::TooLong { bytes }),
            bytes => Ok(Head::Content { bytes }),
        }
    }
}

impl fmt::Display for Head {
    /// The line, with its newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Head::Content { bytes } => writeln!(f, "{WORD} {VERSION} ok {bytes}"),
            Head::NoFile => writeln!(f, "{WORD} {VERSION} no file"),
            Head::Refused { why } => writeln!(f, "{WORD} {VERSION} refused {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_versions_and_other_programs() {
        assert_eq!(Request::parse(b"nearpage 1 files"), Ok(Request::Files));
        assert_eq!(Request::parse(b"nearpage 7 files\n"), Err(NoRequest::Version { asked: 7 }));
        for line in
            [&b""[..], b"\n", b"nearpage", b"nearpage 1", b"nearpage x files", b"\xff 1 files"]
        {
            assert_eq!(Request::parse(line), Err(NoRequest::Line), "{line:?}");
            assert_eq!(Head::parse(line), Err(NoAnswer::Line), "{line:?}");
        }
        assert_eq!(Head::parse(b"HTTP/1.1 400 Bad Request"), Err(NoAnswer::Line));
        assert_eq!(Head::parse(b"nearpage 2 ok 3"), Err(NoAnswer::Version { theirs: 2 }));
        // A refusal is understood in any version: it says which one would be answered.
        let refused =
            Head::Refused { why: "version 1 was asked for; version 2 is answered".into() };
        assert_eq!(
            Head::parse(refused.to_string().replace("nearpage 1", "nearpage 2").as_bytes()),
            Ok(refused)
        );
        assert_eq!(
            Head::parse(b"nearpage 1 ok 99999999999"),
            Err(NoAnswer::TooLong { bytes: 99_999_999_999 })
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in 0..=CONTENT_BYTES_MAX, name in "[a-z/0-9]{1,40}", why in "[ -~]{1,80}[!-~]") {
            for head in [Head::Content { bytes }, Head::NoFile, Head::Refused { why }] {
                prop_assert_eq!(Head::parse(head.to_string().as_bytes()), Ok(head));
            }
            let request = if name == FILES { Request::Files } else { Request::File(&name) };
            let line = request.to_string();
            prop_assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }

        #[test]
        fn any_line_is_read_or_refused(line in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (Request::parse(&line), Head::parse(&line));
        }
    }
}
