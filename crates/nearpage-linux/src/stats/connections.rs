//! Readers, in one thread and bounded memory, whatever they do.
//!
//! A connection asks, is answered, and may ask again. One that leaves a request half sent or an answer unread for too long is
//! dropped; one that only waits is dropped when another wants its place.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearpage_machine::stats_socket::{CONTENT_BYTES_MAX, Head, Peer, REQUEST_BYTES_MAX, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use rustix::process::geteuid;

/// Readers at once.
const READERS_MAX: usize = 16;
/// How long a reader may leave a request half sent, or an answer half read.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody is accepted after an error, such as too many open files.
const REST: Duration = Duration::from_millis(100);

/// All readers of a socket.
pub(super) struct Connections {
    listener: UnixListener,
    /// Readable when the server must end.
    ends: Arc<OwnedFd>,
    readers: VecDeque<Reader>,
    rests_until: Option<Instant>,
}

struct Reader {
    stream: UnixStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    /// Until when what is half done must be done.
    deadline: Option<Instant>,
    /// Nothing more is read from it.
    is_last: bool,
}

impl Connections {
    pub fn new(listener: UnixListener, ends: Arc<OwnedFd>) -> Connections {
        Connections { listener, ends, readers: VecDeque::new(), rests_until: None }
    }

    /// Serves until it is told to end or `content` has nothing to serve any more (`None`). Of a file that does not exist the
    /// content is `Some(None)`.
    pub fn serve(&mut self, content: impl Fn(Request<'_>) -> Option<Option<String>>) {
        // The system cannot wait: nobody can be served, and nothing else suffers.
        while let Ok(ready) = self.wait() {
            if ready[0] {
                return;
            }
            let mut is_there = true;
            for (reader, _) in self.readers.iter_mut().zip(&ready[2..]).filter(|(_, ready)| **ready)
            {
                match reader.advance(&content) {
                    Turn::GoesOn => {}
                    Turn::IsOver => reader.deadline = Some(Instant::now()),
                    Turn::NothingToServe => is_there = false,
                }
            }
            if !is_there {
                return;
            }
            let now = Instant::now();
            self.readers.retain(|reader| reader.deadline.is_none_or(|deadline| deadline > now));
            if ready[1] {
                self.accept(now);
            }
        }
    }

    /// Who is ready: the end, the listener, then each reader.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let rests = self.rests_until.filter(|until| *until > Instant::now());
        let listens = if rests.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut waits =
            vec![PollFd::new(&*self.ends, PollFlags::IN), PollFd::new(&self.listener, listens)];
        waits.extend(
            self.readers.iter().map(|reader| PollFd::new(&reader.stream, reader.waits_for())),
        );
        let deadlines = self.readers.iter().filter_map(|reader| reader.deadline).chain(rests);
        let left = deadlines.min().map(|next| next.saturating_duration_since(Instant::now()));
        // A millisecond more: a turn before the deadline would do nothing.
        let left = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
        match poll(&mut waits, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(waits.iter().map(|wait| !wait.revents().is_empty()).collect())
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..READERS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.rests_until = Some(now + REST);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: UnixStream, now: Instant) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut reader = Reader {
            stream,
            request: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            deadline: None,
            is_last: false,
        };
        if let Err(why) = reader.check_user() {
            reader.refuse(why);
            // It fits into any socket's buffer; who does not read it is not waited for.
            let _ = reader.send();
            return;
        }
        if self.readers.len() >= READERS_MAX {
            let idle = self.readers.iter().position(|reader| reader.deadline.is_none());
            // All are being answered, and done or dropped within seconds.
            let Some(idle) = idle else {
                reader.refuse(format!("{READERS_MAX} readers are being answered; try again"));
                let _ = reader.send();
                return;
            };
            self.readers.remove(idle);
        }
        // A reader that never asks must not seem idle from the start: it has its time, too.
        reader.deadline = Some(now + PATIENCE);
        self.readers.push_back(reader);
    }
}

/// How a reader's turn went.
enum Turn {
    GoesOn,
    IsOver,
    NothingToServe,
}

impl Reader {
    /// Readers are of this process's user, or root.
    fn check_user(&self) -> Result<(), String> {
        let (own, peer) = match Peer::of(&self.stream) {
            Ok(peer) => (geteuid().as_raw(), peer.user),
            Err(error) => return Err(format!("the system does not tell who you are: {error}")),
        };
        if peer == own || peer == 0 {
            return Ok(());
        }
        Err(format!("you are user {peer}; readers of user {own} and root are answered"))
    }

    fn refuse(&mut self, why: String) {
        self.answer = Head::Refused { why }.to_string().into_bytes();
        self.sent = 0;
        self.is_last = true;
        self.request.clear();
    }

    fn is_answered(&self) -> bool {
        self.sent == self.answer.len()
    }

    fn waits_for(&self) -> PollFlags {
        match (self.is_answered(), self.is_last) {
            (false, _) => PollFlags::OUT,
            (true, false) => PollFlags::IN,
            (true, true) => PollFlags::empty(),
        }
    }

    /// Reads, answers and sends as far as can be.
    fn advance(&mut self, content: &impl Fn(Request<'_>) -> Option<Option<String>>) -> Turn {
        loop {
            match self.send() {
                Ok(true) => {}
                Ok(false) => return Turn::GoesOn,
                Err(_) => return Turn::IsOver,
            }
            let Some(end) = self.request.iter().position(|byte| *byte == b'\n') else {
                if self.is_last {
                    return Turn::IsOver;
                }
                match self.read() {
                    Ok(()) => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.deadline = match self.request.is_empty() {
                            true => None,
                            false => self.deadline.or(Some(Instant::now() + PATIENCE)),
                        };
                        return Turn::GoesOn;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => return Turn::IsOver,
                }
            };
            let line: Vec<u8> = self.request.drain(..=end).collect();
            if self.answer(&line, content).is_none() {
                return Turn::NothingToServe;
            }
            self.deadline = Some(Instant::now() + PATIENCE);
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; REQUEST_BYTES_MAX];
        let length = self.stream.read(&mut buffer)?;
        self.request.extend_from_slice(&buffer[..length]);
        self.is_last |= length == 0;
        if self.request.len() >= REQUEST_BYTES_MAX && !self.request.contains(&b'\n') {
            self.refuse(format!("a request has at most {REQUEST_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn answer(
        &mut self,
        line: &[u8],
        content: &impl Fn(Request<'_>) -> Option<Option<String>>,
    ) -> Option<()> {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => {
                self.refuse(error.to_string());
                return Some(());
            }
        };
        let content = content(request)?;
        let head = match &content {
            None => Head::NoFile,
            Some(text) if text.len() as u64 > CONTENT_BYTES_MAX => {
                self.refuse(format!(
                    "it has {} bytes; at most {CONTENT_BYTES_MAX} are sent",
                    text.len()
                ));
                return Some(());
            }
            Some(text) => Head::Content { bytes: text.len() as u64 },
        };
        self.answer = head.to_string().into_bytes();
        self.answer.extend_from_slice(content.unwrap_or_default().as_bytes());
        self.sent = 0;
        Some(())
    }

    /// Sends what can be sent; true if all of the answer is.
    fn send(&mut self) -> io::Result<bool> {
        while !self.is_answered() {
            match send(&self.stream, &self.answer[self.sent..], SendFlags::NOSIGNAL) {
                Ok(length) => self.sent += length,
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A large answer is not kept for a reader that only waits.
        (self.answer, self.sent) = (Vec::new(), 0);
        Ok(true)
    }
}
