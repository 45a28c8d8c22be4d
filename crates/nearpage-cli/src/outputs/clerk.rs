//! A process that makes the outputs of another one, and its end of the socket between them.
//!
//! A question is a byte for what, a byte for which output, and a name. An answer is a byte for how it went, then either device and
//! inode of an older file or the number and text of an error; a descriptor comes along with it.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use rustix::cmsg_space;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};

use super::{Answer, Desk, Kind, Question};

/// The longest message: an error with its text.
const MESSAGE_BYTES: usize = 4096;

/// The clerk, as who asks sees it. It ends when this is closed, and removes what is unfinished.
#[derive(Debug)]
pub(crate) struct Clerk {
    outputs: Vec<(Kind, PathBuf)>,
    /// One question at a time.
    socket: Mutex<OwnedFd>,
}

impl Clerk {
    /// Starts a clerk at a desk. `confine` runs in it, before the first question.
    ///
    /// # Errors
    ///
    /// There can be no further process.
    pub(crate) fn start(
        outputs: &[(Kind, PathBuf)],
        desk: Desk,
        confine: impl FnOnce(),
    ) -> io::Result<Clerk> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let asker = getpid();
        // SAFETY: commands do this before they start threads. The C library, and nearpage's malloc, let the child of a process
        // with threads use them, too.
        match unsafe { fork() }? {
            ForkResult::Parent { .. } => {
                desk.leave();
                Ok(Clerk { outputs: outputs.into(), socket: Mutex::new(own) })
            }
            ForkResult::Child => {
                drop(own);
                // Not even a panic may go on with the command.
                let work = std::panic::AssertUnwindSafe(|| serve(desk, &other, asker, confine));
                let _ = std::panic::catch_unwind(work);
                // SAFETY: ends this process; what runs at the end of a command belongs to the other one.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// The number of an output.
    pub(super) fn number(&self, kind: Kind, path: &Path) -> io::Result<usize> {
        let is_it = |output: &(Kind, PathBuf)| output.0 == kind && output.1 == path;
        let number = self.outputs.iter().position(is_it);
        number.ok_or_else(|| {
            io::Error::new(ErrorKind::PermissionDenied, "it is no output of this command line")
        })
    }

    pub(super) fn ask(&self, question: Question<'_>) -> io::Result<Answer> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let question = encoded(question);
        retry_on_intr(|| send(&*socket, &question, SendFlags::NOSIGNAL))?;
        let mut bytes = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            recvmsg(&*socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next().map(File::from),
            _ => None,
        });
        let older = decoded(&bytes[..received.bytes])?;
        Ok(Answer { older, file })
    }
}

/// Answers until nobody asks any more.
fn serve(mut desk: Desk, socket: &OwnedFd, asker: Pid, confine: impl FnOnce()) {
    // Signals to the group are the command's: what it has finished by then is still kept or removed.
    let _ = SigSet::all().thread_block();
    let _ = prctl::set_name(c"nearpage-clerk");
    confine();
    let mut bytes = [0; MESSAGE_BYTES];
    while let Ok((length @ 1.., _)) = recv(socket, &mut bytes, RecvFlags::empty()) {
        let answer = question(&bytes[..length]).and_then(|question| {
            // To open a FIFO may take forever.
            let may_wait = matches!(question, Question::Begin(_));
            if may_wait {
                let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            }
            if getppid() != asker {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let answer = desk.answer(question);
            if may_wait {
                let _ = prctl::set_pdeathsig(None);
            }
            answer
        });
        if reply(socket, answer).is_err() {
            return;
        }
    }
}

fn reply(socket: &OwnedFd, answer: io::Result<Answer>) -> Result<usize, Errno> {
    let mut bytes = Vec::with_capacity(MESSAGE_BYTES);
    let mut file = None;
    match answer {
        Ok(answer) => {
            bytes.push(OK);
            if let Some((device, inode)) = answer.older {
                bytes.extend(device.to_le_bytes());
                bytes.extend(inode.to_le_bytes());
            }
            file = answer.file;
        }
        Err(error) => {
            bytes.push(FAILED);
            bytes.extend(error.raw_os_error().unwrap_or(0).to_le_bytes());
            bytes.extend(error.to_string().bytes());
            bytes.truncate(MESSAGE_BYTES);
        }
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))
}

const OK: u8 = 0;
const FAILED: u8 = 1;

/// Device and inode of an older file, or the error.
fn decoded(answer: &[u8]) -> io::Result<Option<(u64, u64)>> {
    let lost = || io::Error::other("the process that makes the outputs has ended");
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    match answer.split_first().ok_or_else(lost)? {
        (&OK, older) => Ok(older
            .split_at_checked(8)
            .and_then(|(device, inode)| Some((number(device)?, number(inode)?)))),
        (_, error) => {
            let (code, text) = error.split_first_chunk().ok_or_else(lost)?;
            Err(match i32::from_le_bytes(*code) {
                0 => io::Error::other(String::from_utf8_lossy(text)),
                code => io::Error::from_raw_os_error(code),
            })
        }
    }
}

fn encoded(question: Question<'_>) -> Vec<u8> {
    let (what, number, name) = match question {
        Question::Scratch => (b's', 0, ""),
        Question::Check(number) => (b'c', number, ""),
        Question::Begin(number) => (b'b', number, ""),
        Question::Add(number, name) => (b'a', number, name),
        Question::Keep(number) => (b'k', number, ""),
        Question::Drop(number) => (b'd', number, ""),
        Question::End => (b'e', 0, ""),
    };
    // A command has a few outputs.
    [&[what, number as u8], name.as_bytes()].concat()
}

fn question(bytes: &[u8]) -> io::Result<Question<'_>> {
    let wrong = || io::Error::from(ErrorKind::InvalidInput);
    let ([what, number], name) = bytes.split_first_chunk().ok_or_else(wrong)?;
    let number = usize::from(*number);
    Ok(match what {
        b's' => Question::Scratch,
        b'c' => Question::Check(number),
        b'b' => Question::Begin(number),
        b'a' => Question::Add(number, std::str::from_utf8(name).map_err(|_| wrong())?),
        b'k' => Question::Keep(number),
        b'd' => Question::Drop(number),
        b'e' => Question::End,
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::time::{Duration, Instant};

    use super::*;

    fn clerk(outputs: &[(Kind, PathBuf)]) -> Clerk {
        Clerk::start(outputs, Desk::new(outputs), || {}).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn outputs_are_made_and_named_by_the_clerk() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let outputs = [
            (Kind::Page, path("page")),
            (Kind::New, path("new")),
            (Kind::Tape, path("tape")),
            (Kind::Folder, path("folder")),
        ];
        let clerk = clerk(&outputs);
        let ask = |question| clerk.ask(question).unwrap();
        assert_eq!(ask(Question::Check(0)).older, None);
        let write = |question, text: &str| {
            let mut file = ask(question).file.unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write(Question::Begin(0), "first");
        assert!(!path("page").exists(), "not before it is whole");
        ask(Question::Keep(0));
        assert_eq!(fs::read_to_string(path("page")).unwrap(), "first");
        let found = fs::metadata(path("page")).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        assert_eq!(ask(Question::Check(0)).older, Some((found.dev(), found.ino())));
        // What others put there meanwhile is judged.
        write(Question::Begin(0), "second");
        fs::remove_file(path("page")).unwrap();
        symlink("/etc/passwd", path("page")).unwrap();
        let error = clerk.ask(Question::Keep(0)).unwrap_err().to_string();
        assert!(error.contains("something else than a file"), "{error}");
        fs::remove_file(path("page")).unwrap();
        write(Question::Begin(1), "new");
        assert!(clerk.ask(Question::Begin(1)).unwrap_err().to_string().contains("File exists"));
        write(Question::Begin(2), "tape");
        ask(Question::Begin(3));
        write(Question::Add(3, "meta.json"), "{}");
        write(Question::Add(3, "before/zoneinfo"), "Node");
        for name in ["../out", "before/../../out", "/etc/out", "other/file", "meta.json", "before"]
        {
            assert!(clerk.ask(Question::Add(3, name)).is_err(), "{name}");
        }
        assert!(!path("folder").exists());
        ask(Question::Keep(3));
        assert_eq!(names(&path("folder")), ["before", "meta.json"]);
        let mut scratch = ask(Question::Scratch).file.unwrap();
        scratch.write_all(b"long").unwrap();
        scratch.rewind().unwrap();
        let mut text = String::new();
        scratch.read_to_string(&mut text).unwrap();
        assert_eq!((&*text, scratch.metadata().unwrap().nlink()), ("long", 0));
        assert_eq!(names(folder.path()), ["folder", "new", "tape"]);
        // Nothing else is made.
        assert!(clerk.ask(Question::Begin(4)).is_err() && clerk.ask(Question::Keep(1)).is_err());
        assert!(clerk.number(Kind::Page, &path("other")).is_err());
        assert!(clerk.number(Kind::New, &path("page")).is_err());
    }

    #[test]
    fn what_is_unfinished_goes_with_who_asked_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let outputs = [(Kind::Page, path("page")), (Kind::Folder, path("folder"))];
        for is_told in [true, false] {
            let clerk = clerk(&outputs);
            clerk.ask(Question::Check(0)).unwrap();
            clerk.ask(Question::Begin(0)).unwrap();
            clerk.ask(Question::Begin(1)).unwrap();
            clerk.ask(Question::Add(1, "before/zoneinfo")).unwrap();
            assert_eq!(names(folder.path()).len(), 2);
            if is_told {
                clerk.ask(Question::End).unwrap();
            }
            drop(clerk);
            let until = Instant::now() + Duration::from_secs(20);
            while !is_told && !names(folder.path()).is_empty() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
        }
    }

    #[test]
    fn errors_are_those_of_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("there"), "").unwrap();
        let outputs = [
            (Kind::Page, path("none/page")),
            (Kind::Folder, path("there")),
            (Kind::Page, "/dev/full".into()),
        ];
        let clerk = clerk(&outputs);
        let error = clerk.ask(Question::Check(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = clerk.ask(Question::Begin(1)).unwrap_err();
        assert_eq!(error.to_string(), "it is there already");
        clerk.ask(Question::Check(2)).unwrap();
        let mut full = clerk.ask(Question::Begin(2)).unwrap().file.unwrap();
        assert!(full.write_all(b"x").is_err());
        clerk.ask(Question::Keep(2)).unwrap();
    }
}
