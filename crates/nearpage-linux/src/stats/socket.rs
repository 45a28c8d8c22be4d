//! A socket at a path, for one user only, and a note by which `/proc/PID/fd` leads to it.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;

use nearpage_machine::stats_socket::{NOTE_NAME, Peer};
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::StatsError;

/// Readers that wait to be accepted.
const BACKLOG: i32 = 16;

/// A socket that is bound to a path.
#[derive(Debug)]
pub(super) struct Bound {
    path: PathBuf,
    /// Device and inode of the socket: what has the path later may be another's.
    identity: (u64, u64),
    process: u32,
    /// The memory file that has the path in it; `None` on kernels that have no such files.
    _note: Option<OwnedFd>,
}

impl Bound {
    pub fn bind(path: &Path) -> Result<(Bound, UnixListener), StatsError> {
        let refused = |error: io::Error| StatsError::Refused { path: path.to_owned(), error };
        // A reader has another current folder.
        let path = std::path::absolute(path).map_err(refused)?;
        let listener = match listen_at(&path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                if let Some(by) = taken(&path) {
                    return Err(StatsError::Taken { path, by });
                }
                fs::remove_file(&path).and_then(|()| listen_at(&path))
            }
            listener => listener,
        };
        let listener = listener.map_err(refused)?;
        let metadata = fs::symlink_metadata(&path).map_err(refused)?;
        if metadata.mode() & 0o177 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(refused)?;
        }
        let identity = (metadata.dev(), metadata.ino());
        let note = note(&path);
        Ok((Bound { path, identity, process: process::id(), _note: note }, listener))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process bound it, and not the one that it was forked from.
    pub fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Removes the socket, if it is still this one.
    pub fn remove(&self) {
        let identity =
            fs::symlink_metadata(&self.path).map(|metadata| (metadata.dev(), metadata.ino()));
        if self.is_of_this_process() && identity.is_ok_and(|identity| identity == self.identity) {
            // Whoever removed it meanwhile did what was to be done.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        io::Error::new(ErrorKind::InvalidFilename, "the path of a socket has at most 107 bytes")
    })?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before it has a name: at no moment may others connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Whether there is something else than a socket of this user that nobody serves any more; and who serves there, if known.
fn taken(path: &Path) -> Option<Option<u32>> {
    let is_own_socket = fs::symlink_metadata(path).is_ok_and(|metadata| {
        metadata.file_type().is_socket() && metadata.uid() == rustix::process::geteuid().as_raw()
    });
    if !is_own_socket {
        return Some(None);
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
        stream => {
            let peer = stream.and_then(|stream| Peer::of(&stream));
            Some(peer.ok().and_then(|peer| peer.pid))
        }
    }
}

/// Without it the path must be told to readers: no reason to fail.
fn note(path: &Path) -> Option<OwnedFd> {
    let file = memfd_create(NOTE_NAME, MemfdFlags::CLOEXEC).ok()?;
    let mut file = fs::File::from(file);
    file.write_all(path.as_os_str().as_encoded_bytes()).ok()?;
    file.as_fd().try_clone_to_owned().ok()
}
