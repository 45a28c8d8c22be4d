//! Files of a folder that somebody else made: opened beneath the folder, and judged after that.
//!
//! A link that leads out of the folder is refused, absolute or by `..`, also on the way. The kernel decides it
//! (`openat2` with `RESOLVE_BENEATH`); where it cannot, no link is followed at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// Opens a regular file of a folder to be read; `None` where there is none.
///
/// # Errors
///
/// It cannot be read, a link leads out of the folder, or it is no regular file. `/dev/null` passes for an empty one, since
/// containers mount it over files that they hide.
pub fn open_beneath(root: &Path, path: impl AsRef<Path>) -> io::Result<Option<File>> {
    let (root, path) = (folder(root)?, path.as_ref());
    // Its kind is read before it is opened: to open a device may already change something.
    let Some(found) = resolve(&root, path, OFlags::PATH)? else { return Ok(None) };
    let found = fstat(&found)?;
    check_kind(&found)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Some(file) = resolve(&root, path, flags)? else { return Ok(None) };
    let opened = fstat(&file)?;
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) {
        return Err(io::Error::other("it was replaced while it was opened"));
    }
    Ok(Some(file.into()))
}

/// Opens a file of this machine itself.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    check_own_kind(fs::metadata(path)?.file_type())?;
    // Reading a device must not wait either.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Refuses FIFOs, sockets and block devices: opening a FIFO waits for a writer. Character devices are allowed, because
/// containers mount /dev/null over files that they hide.
fn check_own_kind(kind: fs::FileType) -> io::Result<()> {
    let found = match kind {
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_block_device() => "a block device",
        _ => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{found}, expected a regular file")))
}

/// The size of this machine's pages.
pub(crate) fn page_bytes() -> Option<u64> {
    // SAFETY: sysconf reads a constant of the process and takes no pointer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

/// The names in a folder beneath another, in any order; none where there is no such folder.
pub(crate) fn names_beneath(root: &Path, path: &str) -> io::Result<Vec<String>> {
    let path = if path.is_empty() { "." } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = folder(root).and_then(|root| resolve(&root, Path::new(path), flags));
    let Some(folder) =
        opened.or_else(|error| if is_absent(&error) { Ok(None) } else { Err(error) })?
    else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        // Names in sysfs are ASCII: other names are skipped.
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Whether a file does not exist. Sysfs answers ENODEV or ENXIO for the file of a device that was removed since the
/// folder was listed.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

fn folder(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, root, flags, Mode::empty())?)
}

fn resolve(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let flags = flags | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = match openat2(root, path, flags, Mode::empty(), how) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => without_links(root, path, flags),
        opened => opened,
    };
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::XDEV | Errno::LOOP) => {
            let message =
                "a link that leads out of the folder, expected a file of the folder itself";
            Err(io::Error::new(ErrorKind::InvalidInput, message))
        }
        Err(error) if is_absent(&error.into()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Follows a path name by name, and no link.
fn without_links(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut at =
        openat(root, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let names: Vec<_> = path.components().filter(|name| *name != Component::CurDir).collect();
    let Some((last, folders)) = names.split_last() else {
        return openat(root, ".", flags, Mode::empty());
    };
    let step = |at: &OwnedFd, name: &Component<'_>, flags: OFlags| {
        let Component::Normal(name) = name else { return Err(Errno::XDEV) };
        let opened = openat(at, *name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        // With PATH a link itself is opened.
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::Symlink => Err(Errno::LOOP),
            _ => Ok(opened),
        }
    };
    for name in folders {
        at = step(&at, name, OFlags::PATH)?;
    }
    step(&at, last, flags)
}

/// Refuses what is no regular file: opening a FIFO waits for a writer, and opening a device may do anything.
fn check_kind(found: &Stat) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::CharacterDevice if is_null(found) => return Ok(()),
        FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "a link",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("{kind}, expected a regular file")))
}

fn is_null(found: &Stat) -> bool {
    (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev)) == (1, 3)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn text(root: &Path, path: &str) -> Result<Option<String>, String> {
        let file = open_beneath(root, path).map_err(|error| error.to_string())?;
        Ok(file.map(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        }))
    }

    #[test]
    fn links_are_followed_within_the_folder_alone() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a/file"), "text").unwrap();
        let links: [(&str, &str); 6] = [
            ("../file", "a/b/near"),
            ("a/b", "folder"),
            ("../secret", "up"),
            ("../../../secret", "a/b/up"),
            ("/etc", "absolute"),
            ("..", "above"),
        ];
        for (target, link) in links {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(outer.path().join("secret"), root.join("full")).unwrap();
        assert_eq!(text(&root, "a/b/near").unwrap().unwrap(), "text");
        assert_eq!(text(&root, "folder/near").unwrap().unwrap(), "text");
        assert_eq!(text(&root, "a/none").unwrap(), None);
        for path in
            ["up", "a/b/up", "absolute/passwd", "above/secret", "full", "../secret", "/etc/passwd"]
        {
            let refused = text(&root, path).unwrap_err();
            assert!(refused.contains("leads out of the folder"), "{path}: {refused}");
        }
        assert!(names_beneath(&root, "absolute").is_err());
        assert!(names_beneath(&root, "none").unwrap().is_empty());
        assert_eq!(names_beneath(&root, "a").unwrap().len(), 2);
    }

    #[test]
    fn without_the_call_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join("a/file"), "text").unwrap();
        symlink("file", root.path().join("a/link")).unwrap();
        symlink("a", root.path().join("folder")).unwrap();
        let root = folder(root.path()).unwrap();
        let open = |path: &str, flags| without_links(&root, Path::new(path), flags).map(drop);
        for flags in [OFlags::RDONLY, OFlags::PATH] {
            assert_eq!(open("a/file", flags), Ok(()));
            assert_eq!(open("./a/./file", flags), Ok(()));
            assert_eq!(open("a/link", flags), Err(Errno::LOOP));
            // The folder on the way is a link: it is none that is entered.
            assert!(open("folder/file", flags).is_err());
            assert_eq!(open("../x", flags), Err(Errno::XDEV));
            assert_eq!(open("/etc/passwd", flags), Err(Errno::XDEV));
        }
    }
}
