//! Files that commands make: for their owner alone, behind no link, in a folder that is opened once.
//!
//! What is made in another user's folder could be swapped for a link between two calls. So the folder is opened first, and
//! names are resolved in it. A root that `sudo` made gives a new file to the user who called it, but only where that user
//! could have made one: giving away a file in `/etc` would give away more.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fchown, fstat, mkdirat, openat,
    renameat, statat, unlinkat,
};

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
    /// The number of the folder's own user.
    uid: u32,
    mode: u32,
    owner: Option<Owner>,
}

impl OutputFolder {
    /// Opens the folder of a path; gives the name of the path in it, too. Files that are made in it are for `owner`, if they
    /// can be.
    ///
    /// # Errors
    ///
    /// There is no such folder, or the path has no name.
    pub fn of(path: &Path, owner: Option<Owner>) -> io::Result<(OutputFolder, OsString)> {
        let name = path.file_name().ok_or(ErrorKind::IsADirectory)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        let found = fstat(&folder)?;
        Ok((OutputFolder { folder, uid: found.st_uid, mode: found.st_mode, owner }, name))
    }

    /// Refuses what another user may have planted under a name: a file or link of that user, in a folder that all may write.
    ///
    /// # Errors
    ///
    /// As above, or it cannot be looked at.
    pub fn check(&self, name: &OsStr) -> io::Result<()> {
        let found = match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let caller = self.owner.map(|owner| owner.uid);
        let is_own = found.st_uid == rustix::process::geteuid().as_raw()
            || Some(found.st_uid) == caller
            || found.st_uid == self.uid;
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        if self.mode & 0o002 != 0 && !is_own && !is_device {
            let message = format!(
                "is of another user (uid {}), in a folder that all may write; expected another name",
                found.st_uid
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, message));
        }
        Ok(())
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
        if let Some((uid, gid)) = self.new_owner() {
            fchown(&file, Some(uid), Some(gid))?;
        }
        Ok(file.into())
    }

    /// Makes a folder that only this process's user may use, until it is [given](Self::give).
    ///
    /// # Errors
    ///
    /// Something has the name, or no folder may be made.
    pub fn create_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.folder, name, Mode::RWXU)?)
    }

    /// Gives a folder that was made here, with all that is in it, to its owner.
    ///
    /// # Errors
    ///
    /// It cannot be read, or not be given.
    pub fn give(&self, name: &OsStr) -> io::Result<()> {
        let Some((uid, gid)) = self.new_owner() else { return Ok(()) };
        // Its own folder comes last: until then nobody else can swap what is in it.
        let path = self.path(name);
        give_content(&path, uid, gid)?;
        Ok(chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
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

    /// A path by which this process finds this folder wherever it is moved, while this lives: for calls that take paths.
    pub fn here(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.folder.as_raw_fd().to_string())
    }

    /// A path of a name in it, likewise.
    pub fn path(&self, name: &OsStr) -> PathBuf {
        self.here().join(name)
    }

    /// Who gets what is made, if not this process's user.
    fn new_owner(&self) -> Option<(Uid, Gid)> {
        const STICKY_FOR_ALL: u32 = 0o1002;
        let owner = self.owner.filter(|_| rustix::process::geteuid().is_root())?;
        let is_for_all = self.mode & STICKY_FOR_ALL == STICKY_FOR_ALL;
        (self.uid == owner.uid || is_for_all)
            .then_some((Uid::from_raw(owner.uid), Gid::from_raw(owner.gid)))
    }
}

fn give_content(folder: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_content(&entry.path(), uid, gid)?;
        }
        chownat(CWD, entry.path(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
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
        assert!(folder.check("link".as_ref()).is_ok() && folder.check("none".as_ref()).is_ok());
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
            folder.create_folder("folder".as_ref()).unwrap();
            fs::create_dir(path.join("folder/in")).unwrap();
            fs::write(path.join("folder/in/file"), "").unwrap();
            symlink("/etc/hostname", path.join("folder/link")).unwrap();
            folder.give("folder".as_ref()).unwrap();
            for made in ["file", "folder", "folder/in", "folder/in/file", "folder/link"] {
                let found = fs::symlink_metadata(path.join(made)).unwrap();
                assert_eq!(found.uid(), expected, "{name}/{made}");
            }
        }
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
            folder.check(&name).err().map(|error| error.to_string())
        };
        for name in ["link", "file"] {
            assert_eq!(why(name, None), None, "the folder is root's alone");
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        for name in ["link", "file"] {
            assert!(why(name, None).unwrap().contains("another user (uid 12345)"), "{name}");
            assert_eq!(why(name, Some(OTHER)), None, "who called sudo may");
        }
    }
}
