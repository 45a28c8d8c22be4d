//! Files that commands make: for their owner alone, behind no link, in a folder that is opened once.
//!
//! What is made in another user's folder could be swapped for a link between two calls. So a folder is opened first, and
//! names are resolved in it; what is there is opened before it is judged, and used by its descriptor. No link on the way is followed
//! that another user may have planted. A root that `sudo` made
//! gives a new file to the user who called it, but only where that user could have made one: giving away a file in `/etc`
//! would give away more.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, PROC_SUPER_MAGIC, Stat, Uid, fchown, fstat,
    fstatfs, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::shown::shown;

/// A user, and the group of the files that the user makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The number of the user.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
}

/// A folder in which files are made.
#[derive(Debug)]
pub struct OutputFolder {
    folder: OwnedFd,
    mode: u32,
    owner: Option<Owner>,
    /// Who gets what is made, if not this process's user.
    receiver: Option<Owner>,
}

impl OutputFolder {
    /// Opens the folder of a path; gives the name of the path in it, too. Files that are made in it are for `owner`, if they
    /// can be.
    ///
    /// # Errors
    ///
    /// There is no such folder, the path has no name, or it goes through a link of another user.
    pub fn of(path: &Path, owner: Option<Owner>) -> io::Result<(OutputFolder, OsString)> {
        const STICKY_FOR_ALL: u32 = 0o1002;
        let name = path.file_name().ok_or(ErrorKind::IsADirectory)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = walked(folder.unwrap_or(Path::new(".")), owner)?;
        let found = fstat(&folder)?;
        let (uid, mode) = (found.st_uid, found.st_mode);
        let is_for_all = mode & STICKY_FOR_ALL == STICKY_FOR_ALL;
        let receiver = owner.filter(|owner| uid == owner.uid || is_for_all);
        let receiver = receiver.filter(|_| geteuid().is_root());
        Ok((OutputFolder { folder, mode, owner, receiver }, name))
    }

    /// As [`of`](Self::of), but where the path is a link it goes on to what that leads to, and opens what is there as
    /// [`find`](Self::find) does: also a pipe or terminal without a path, to which only a link of the kernel leads.
    ///
    /// # Errors
    ///
    /// As both, or there are too many links.
    pub fn behind_links(
        path: &Path,
        owner: Option<Owner>,
    ) -> io::Result<(OutputFolder, OsString, Option<File>)> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MOST {
            let (folder, name) = Self::of(&path, owner)?;
            let found = folder.find(&name)?;
            let link = match found {
                Some(found) if found.metadata()?.is_symlink() => found,
                found => return Ok((folder, name, found)),
            };
            if is_of_kernel(&folder.folder)? {
                let behind =
                    openat(&folder.folder, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                if FileType::from_raw_mode(fstat(&behind)?.st_mode) != FileType::RegularFile {
                    return Ok((folder, name, Some(behind.into())));
                }
            }
            path = path.parent().unwrap_or(Path::new("")).join(target(&link)?);
        }
        Err(Errno::LOOP.into())
    }

    /// Opens what has a name, itself if it is a link, neither to be read nor written ([`open_found`] does that). `None` where
    /// nothing has the name.
    ///
    /// # Errors
    ///
    /// Another user may have planted it: it is a link of that user, or a file in a folder that all may write. Or it cannot be looked
    /// at.
    pub fn find(&self, name: &OsStr) -> io::Result<Option<File>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        let found = fstat(&file)?;
        let may_be_planted = match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => !may_lead(&found, &fstat(&self.folder)?, self.owner),
            FileType::CharacterDevice | FileType::BlockDevice => false,
            _ => self.mode & 0o002 != 0 && !is_trusted(found.st_uid, self.owner),
        };
        match may_be_planted {
            true => Err(planted("it", found.st_uid)),
            false => Ok(Some(file.into())),
        }
    }

    /// Refuses what was found here and is another user's, wherever this folder lies.
    ///
    /// # Errors
    ///
    /// It is.
    pub fn check_own(&self, found: &File) -> io::Result<()> {
        let uid = fstat(found)?.st_uid;
        if is_trusted(uid, self.owner) { Ok(()) } else { Err(planted("it", uid)) }
    }

    /// Refuses this folder if another user than this process's may put something there, where that is root.
    ///
    /// # Errors
    ///
    /// It is of another user, or others may write it.
    pub fn check_nobody_elses(&self) -> io::Result<()> {
        let found = fstat(&self.folder)?;
        let for_others = if found.st_gid == 0 { 0o002 } else { 0o022 };
        if !geteuid().is_root() || found.st_uid == 0 && found.st_mode & for_others == 0 {
            return Ok(());
        }
        let message = format!(
            "others than root may write the folder (uid {}, mode {:o}); expected one of root's",
            found.st_uid,
            found.st_mode & 0o7777
        );
        Err(io::Error::new(ErrorKind::PermissionDenied, message))
    }

    /// The folder of this name in it; where nothing has the name, one that all may enter whom the process's mask allows.
    ///
    /// # Errors
    ///
    /// Something else has the name, a link too, or no folder may be made.
    pub fn folder_for_all(&self, name: &OsStr) -> io::Result<OutputFolder> {
        match mkdirat(&self.folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.entered(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file that only its owner may read and write.
    ///
    /// # Errors
    ///
    /// Something has the name, a link too, or no file may be made.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        self.create_with(name, Mode::RUSR | Mode::WUSR)
    }

    /// Makes a file that all may read whom the process's mask allows, such as the user of a collector.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_for_all(&self, name: &OsStr) -> io::Result<File> {
        self.create_with(name, Mode::from_raw_mode(0o666))
    }

    fn create_with(&self, name: &OsStr, mode: Mode) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&self.folder, name, flags | OFlags::CLOEXEC, mode)?;
        give(&file, self.receiver)?;
        Ok(file.into())
    }

    /// Makes a folder that only this process's user may use, until it is [given](Self::give). What is made in it goes there,
    /// whatever is done to its name meanwhile.
    ///
    /// # Errors
    ///
    /// Something has the name, no folder may be made, or it was replaced at once.
    pub fn create_folder(&self, name: &OsStr) -> io::Result<OutputFolder> {
        mkdirat(&self.folder, name, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.folder, name, flags, Mode::empty())?;
        let found = fstat(&folder)?;
        let (owner, receiver) = (self.owner, self.receiver);
        let made = OutputFolder { folder, mode: found.st_mode, owner, receiver };
        match found.st_uid == geteuid().as_raw() && made.mode & 0o077 == 0 && made.is_empty()? {
            true => Ok(made),
            false => Err(io::Error::other("another folder took its place as it was made")),
        }
    }

    /// Gives this folder, which was made in another, to whom that one's files are for. Until then nobody else enters it.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn give(&self) -> io::Result<()> {
        give(&self.folder, self.receiver)
    }

    /// Whether nothing has a name, or an empty file or folder. A link is neither.
    pub fn is_vacant(&self, name: &OsStr) -> bool {
        let Ok(found) = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return true };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => found.st_size == 0,
            FileType::Directory => {
                self.entered(name).and_then(|folder| folder.is_empty()).unwrap_or(false)
            }
            _ => false,
        }
    }

    /// Whether a name is still that of a folder which was made here.
    pub fn holds(&self, name: &OsStr, made: &OutputFolder) -> bool {
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        match (found, fstat(&made.folder)) {
            (Ok(found), Ok(made)) => (found.st_dev, found.st_ino) == (made.st_dev, made.st_ino),
            _ => false,
        }
    }

    /// Gives a name to what has another.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    /// Removes a file, or an empty folder.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name, AtFlags::empty())
            .or_else(|_| unlinkat(&self.folder, name, AtFlags::REMOVEDIR))?)
    }

    /// Removes all that is in this folder.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn clear(&self) -> io::Result<()> {
        for name in self.names()? {
            if self.remove(&name).is_err() {
                self.entered(&name)?.clear()?;
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// A path by which this process finds this folder wherever it is moved, while this lives: for calls that take paths.
    pub fn here(&self) -> PathBuf {
        by_descriptor(&self.folder)
    }

    /// A path of a name in it, likewise.
    pub fn path(&self, name: &OsStr) -> PathBuf {
        self.here().join(name)
    }

    fn entered(&self, name: &OsStr) -> io::Result<OutputFolder> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.folder, name, flags, Mode::empty())?;
        let mode = fstat(&folder)?.st_mode;
        let (owner, receiver) = (self.owner, self.receiver);
        Ok(OutputFolder { folder, mode, owner, receiver })
    }

    /// Whether nothing is in it.
    ///
    /// # Errors
    ///
    /// It may not be read.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.names()?.is_empty())
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(openat(&self.folder, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

/// Links that are followed on one way, as Linux does. `include/linux/namei.h: MAXSYMLINKS`.
const LINKS_MOST: u32 = 40;

/// Opens the folder of a path, one name after the other.
fn walked(path: &Path, owner: Option<Owner>) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = |folder: BorrowedFd<'_>, name: &OsStr, more: OFlags| {
        openat(folder, name, flags | more, Mode::empty())
    };
    let begin = |path: &Path| {
        let name = if path.is_absolute() { "/" } else { "." };
        open(CWD, name.as_ref(), OFlags::DIRECTORY)
    };
    let names = |path: &Path| -> Vec<OsString> {
        let names = path
            .components()
            .filter(|name| !matches!(name, Component::RootDir | Component::CurDir));
        names.map(|name| name.as_os_str().to_owned()).rev().collect()
    };
    let (mut folder, mut rest, mut links) = (begin(path)?, names(path), 0);
    while let Some(name) = rest.pop() {
        let next = open(folder.as_fd(), &name, OFlags::NOFOLLOW)?;
        let found = fstat(&next)?;
        folder = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => next,
            FileType::Symlink => {
                if !may_lead(&found, &fstat(&folder)?, owner) {
                    return Err(planted(&format!("{} on the way", shown(&name)), found.st_uid));
                }
                links += 1;
                if links > LINKS_MOST {
                    return Err(Errno::LOOP.into());
                }
                // The text of such a link need not be a path.
                if is_of_kernel(&folder)? {
                    open(folder.as_fd(), &name, OFlags::DIRECTORY)?
                } else {
                    let target = target(next.as_fd())?;
                    rest.extend(names(&target));
                    if target.is_absolute() { begin(&target)? } else { folder }
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        };
    }
    Ok(folder)
}

/// Whether only this process's user, root or who called `sudo` can have made what has this owner.
fn is_trusted(uid: u32, owner: Option<Owner>) -> bool {
    uid == 0 || uid == geteuid().as_raw() || owner.is_some_and(|owner| owner.uid == uid)
}

/// Whether a link may be followed. Other users than root also follow those that a folder's user made in it, where nobody else can.
fn may_lead(link: &Stat, folder: &Stat, owner: Option<Owner>) -> bool {
    let is_of_folder = link.st_uid == folder.st_uid && folder.st_mode & 0o022 == 0;
    is_trusted(link.st_uid, owner) || is_of_folder && !geteuid().is_root()
}

fn planted(what: &str, uid: u32) -> io::Error {
    let message = format!(
        "{what} is of another user (uid {uid}), who may have planted it; expected another name"
    );
    io::Error::new(ErrorKind::PermissionDenied, message)
}

/// What a link says.
fn target(link: impl AsFd) -> io::Result<PathBuf> {
    Ok(OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes()).into())
}

/// Whether a folder is of /proc, where links are the kernel's.
fn is_of_kernel(folder: impl AsFd) -> io::Result<bool> {
    Ok(fstatfs(folder)?.f_type == PROC_SUPER_MAGIC)
}

/// Opens a file that was [found](OutputFolder::find) in earnest: that file, whatever has its name by now.
///
/// # Errors
///
/// The kernel refuses it; a link, too.
pub fn open_found(found: &File, options: &OpenOptions) -> io::Result<File> {
    options.open(by_descriptor(found))
}

fn by_descriptor(file: impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_fd().as_raw_fd().to_string())
}

fn give(file: impl AsFd, receiver: Option<Owner>) -> io::Result<()> {
    match receiver {
        Some(Owner { uid, gid }) => {
            Ok(fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    const OTHER: Owner = Owner { uid: 12_345, gid: 12_346 };

    fn is_root(test: &str) -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("SKIPPED: {test}: only root gives files away");
        }
        is_root
    }

    #[test]
    fn new_files_are_private_and_behind_no_link() {
        let root = tempfile::tempdir().unwrap();
        let (folder, name) = OutputFolder::of(&root.path().join("a"), None).unwrap();
        folder.create(&name).unwrap();
        assert_eq!(fs::metadata(root.path().join("a")).unwrap().mode() & 0o7777, 0o600);
        assert!(folder.create(&name).is_err());
        symlink(root.path().join("target"), root.path().join("link")).unwrap();
        assert!(folder.create("link".as_ref()).is_err());
        assert!(!root.path().join("target").exists());
        let find = |name: &str| folder.find(name.as_ref()).unwrap();
        assert!(find("link").unwrap().metadata().unwrap().is_symlink() && find("none").is_none());
        // The folder is found again under another name.
        let moved = root.path().with_extension("moved");
        fs::rename(root.path(), &moved).unwrap();
        folder.create("b".as_ref()).unwrap();
        assert!(moved.join("b").exists() && folder.path("b".as_ref()).exists());
        folder.rename("b".as_ref(), "c".as_ref()).unwrap();
        folder.remove("c".as_ref()).unwrap();
        assert!(!moved.join("c").exists());
        fs::rename(&moved, root.path()).unwrap();
    }

    #[test]
    fn files_go_to_who_called_sudo_where_that_user_could_make_them() {
        if !is_root("files_go_to_who_called_sudo_where_that_user_could_make_them") {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        for (name, mode, is_of_other, expected) in [
            ("of-root", 0o755, false, 0),
            ("for-all", 0o1777, false, OTHER.uid),
            ("for-all-without-sticky", 0o777, false, 0),
            ("home", 0o700, true, OTHER.uid),
        ] {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            if is_of_other {
                chown(&path, Some(OTHER.uid), Some(OTHER.gid)).unwrap();
            }
            let (folder, file) = OutputFolder::of(&path.join("file"), Some(OTHER)).unwrap();
            folder.create(&file).unwrap();
            let made = folder.create_folder("folder".as_ref()).unwrap();
            let inner = made.create_folder("in".as_ref()).unwrap();
            inner.create("file".as_ref()).unwrap();
            inner.give().unwrap();
            let of_folder = || fs::metadata(path.join("folder")).unwrap();
            assert_eq!((of_folder().uid(), of_folder().mode() & 0o777), (0, 0o700), "not yet");
            made.give().unwrap();
            for made in ["file", "folder", "folder/in", "folder/in/file"] {
                let found = fs::symlink_metadata(path.join(made)).unwrap();
                assert_eq!(found.uid(), expected, "{name}/{made}");
            }
        }
    }

    /// Who may write in the folder exchanges what root makes there for a link, as soon as it has its name.
    #[test]
    fn a_folder_that_is_exchanged_for_a_link_is_still_written_to_itself() {
        let root = tempfile::tempdir().unwrap();
        let (target, output) = (root.path().join("target"), root.path().join("output"));
        fs::create_dir(&target).unwrap();
        fs::write(target.join("of-root"), "secret").unwrap();
        fs::create_dir(&output).unwrap();
        let owner = rustix::process::geteuid().is_root().then_some(OTHER);
        if let Some(OTHER) = owner {
            chown(&output, Some(OTHER.uid), None).unwrap();
        }
        let (folder, name) = OutputFolder::of(&output.join("made"), owner).unwrap();
        let made = folder.create_folder(&name).unwrap();
        assert!(folder.holds(&name, &made));
        fs::rename(output.join("made"), output.join("moved")).unwrap();
        symlink(&target, output.join("made")).unwrap();
        let inner = made.create_folder("in".as_ref()).unwrap();
        inner.create("file".as_ref()).unwrap();
        inner.give().unwrap();
        made.give().unwrap();
        assert!(!folder.holds(&name, &made) && !folder.is_vacant(&name));
        assert!(output.join("moved/in/file").exists());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
        let uid = rustix::process::geteuid().as_raw();
        for path in [target.clone(), target.join("of-root")] {
            assert_eq!(fs::metadata(&path).unwrap().uid(), uid, "{path:?}");
        }
        made.clear().unwrap();
        assert!(folder.is_vacant("moved".as_ref()));
        assert_eq!(fs::read(target.join("of-root")).unwrap(), b"secret");
        // A link within is removed, and not entered.
        symlink(&target, output.join("moved/link")).unwrap();
        made.clear().unwrap();
        assert!(target.join("of-root").exists() && folder.is_vacant("moved".as_ref()));
    }

    #[test]
    fn what_was_found_is_opened_whatever_has_its_name() {
        let root = tempfile::tempdir().unwrap();
        let (folder, name) = OutputFolder::of(&root.path().join("file"), None).unwrap();
        fs::write(root.path().join("file"), "first").unwrap();
        let found = folder.find(&name).unwrap().unwrap();
        fs::rename(root.path().join("file"), root.path().join("other")).unwrap();
        fs::write(root.path().join("file"), "second").unwrap();
        let first = open_found(&found, OpenOptions::new().read(true)).unwrap();
        assert_eq!(io::read_to_string(first).unwrap(), "first");
        symlink("other", root.path().join("link")).unwrap();
        let link = folder.find("link".as_ref()).unwrap().unwrap();
        assert!(open_found(&link, OpenOptions::new().read(true)).is_err());
    }

    #[test]
    fn what_another_user_planted_is_refused() {
        if !is_root("what_another_user_planted_is_refused") {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        symlink("/etc/hostname", root.path().join("link")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        for name in ["link", "file"] {
            std::os::unix::fs::lchown(root.path().join(name), Some(OTHER.uid), None).unwrap();
        }
        let why = |name: &str, owner| {
            let (folder, name) = OutputFolder::of(&root.path().join(name), owner).unwrap();
            folder.find(&name).err().map(|error| error.to_string())
        };
        assert_eq!(why("file", None), None, "the folder is root's alone");
        for mode in [0o755, 0o2775, 0o1777] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(why("link", None).unwrap().contains("another user (uid 12345)"), "{mode:o}");
        }
        assert!(why("file", None).unwrap().contains("another user (uid 12345)"));
        for name in ["link", "file"] {
            assert_eq!(why(name, Some(OTHER)), None, "who called sudo may");
        }
        // A folder of another user is no reason to believe that user.
        chown(root.path(), Some(OTHER.uid), None).unwrap();
        assert!(why("link", None).is_some() && why("file", None).is_some());
    }

    /// A folder on the way may be another user's link to root's.
    #[test]
    fn no_folder_is_found_through_a_link_of_another_user() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("target")).unwrap();
        symlink("target/../target", root.path().join("link")).unwrap();
        symlink(root.path().join("link"), root.path().join("further")).unwrap();
        symlink("round", root.path().join("round")).unwrap();
        let through = |link: &str, owner| {
            let (folder, name) = OutputFolder::of(&root.path().join(link).join("file"), owner)?;
            folder.create(&name)?;
            folder.remove(&name)
        };
        through("link/.", None).unwrap();
        through("further", None).unwrap();
        assert!(through("round", None).is_err() && through("none", None).is_err());
        if is_root("no_folder_is_found_through_a_link_of_another_user") {
            std::os::unix::fs::lchown(root.path().join("link"), Some(OTHER.uid), None).unwrap();
            for link in ["link", "further"] {
                let message = through(link, None).unwrap_err().to_string();
                assert!(
                    message.contains("link on the way is of another user (uid 12345)"),
                    "{message}"
                );
            }
            through("further", Some(OTHER)).unwrap();
        }
    }

    #[test]
    fn links_are_followed_to_where_they_lead() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("in")).unwrap();
        symlink("in/second", root.path().join("first")).unwrap();
        symlink("../file", root.path().join("in/second")).unwrap();
        symlink("round", root.path().join("round")).unwrap();
        let behind = |name: &str| OutputFolder::behind_links(&root.path().join(name), None);
        let (folder, name, found) = behind("first").unwrap();
        assert!(found.is_none());
        folder.create(&name).unwrap();
        assert!(root.path().join("file").exists() && behind("first").unwrap().2.is_some());
        assert_eq!(behind("round").unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        // A pipe has no path.
        let (_, end) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        let (_, _, found) = OutputFolder::behind_links(path.as_ref(), None).unwrap();
        assert_eq!(
            found.unwrap().metadata().unwrap().ino(),
            File::from(OwnedFd::from(end)).metadata().unwrap().ino()
        );
    }
}
