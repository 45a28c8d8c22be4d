//! The file of a page.
//!
//! A page takes its name when it is complete: [`PageFile::write`] writes beside it, and renames. So a reader finds the
//! older page or the new one, and what stops the work earlier (an error, Ctrl-C, a full disk) leaves no file behind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearpage_machine::{OutputFolder, Owner, open_found, shown};

/// A page could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// No file can be written at this path. The work need not begin.
    #[error("cannot write {path}: {source}")]
    Unwritable {
        /// The path, as messages show it.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The path names a file that the work reads.
    #[error("cannot write {path}: it is the input {input}, which the page would replace")]
    IsInput {
        /// The path, as messages show it.
        path: String,
        /// The input, by the name that it was given under.
        input: String,
    },
    /// The page was made and could not be written, or not all of it.
    #[error("cannot write {path}: {source}")]
    Unwritten {
        /// The path, as messages show it.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

/// The file that a page goes to.
#[derive(Clone, Debug)]
pub struct PageFile {
    /// The name that the page was asked for under.
    asked: PathBuf,
    place: Arc<Place>,
    older: Option<(u64, u64)>,
    is_for_all: bool,
}

#[derive(Debug)]
enum Place {
    /// A file behind symbolic links, by its folder: whatever becomes of the path, the page goes there.
    File(OutputFolder, OsString),
    /// A device or FIFO, found and not opened in earnest.
    Stream(File),
}

impl PageFile {
    /// Checks that a page can be written to `path`, before the work that makes the page. No file is made, and an older
    /// one stays as it is.
    ///
    /// `inputs` are files that the work reads; those that do not exist are passed over. A new page is for its owner alone: it
    /// may show what only root can read; it is of `owner`, who called `sudo`, where that user could have made it. One of the same
    /// user as the older one has its permissions.
    ///
    /// # Errors
    ///
    /// [`WriteError::Unwritable`]: `path` names a folder, a place where no file can be made or written, or what another user
    /// may have planted.
    /// [`WriteError::IsInput`]: `path` is one of `inputs`, also under another name.
    pub fn at(path: &Path, inputs: &[&Path], owner: Option<Owner>) -> Result<PageFile, WriteError> {
        let unwritable = |source| WriteError::Unwritable { path: shown(path).to_string(), source };
        // A page that replaced a symbolic link would leave the older one where the link points.
        let (folder, name, older) = OutputFolder::behind_links(path, owner).map_err(unwritable)?;
        let older = older.map(|older| Ok((older.metadata()?, older))).transpose();
        let older = older.map_err(unwritable)?;
        let id = older.as_ref().map(|(older, _)| (older.dev(), older.ino()));
        let (asked, place) = (path.into(), Place::File(folder, name).into());
        let file = PageFile { asked, place, older: id, is_for_all: false };
        let Some((metadata, older)) = older else {
            // Only the file system can say whether a file may be made here.
            file.beside(None).map_err(unwritable)?;
            return Ok(file);
        };
        no_input(path, id, inputs)?;
        // A FIFO waits for its reader when it is opened, and ends for the reader when it is closed.
        if !metadata.file_type().is_fifo() {
            open_found(&older, OpenOptions::new().append(true)).map_err(unwritable)?;
        }
        match metadata.is_file() {
            true => {
                file.beside(Some(&metadata)).map_err(unwritable)?;
                Ok(file)
            }
            false => Ok(PageFile { place: Place::Stream(older).into(), ..file }),
        }
    }

    /// All may read a new page, as the process's mask allows: for collectors of metrics.
    #[must_use]
    pub fn for_all(self) -> PageFile {
        PageFile { is_for_all: true, ..self }
    }

    /// Device and inode of the file that the page replaces, if there is one.
    pub fn older(&self) -> Option<(u64, u64)> {
        self.older
    }

    /// Writes the page. The file has it completely, or is as it was before.
    ///
    /// Devices and FIFOs get the page as it is written.
    ///
    /// # Errors
    ///
    /// [`WriteError::Unwritten`]: the page, or a part of it, cannot be written.
    pub fn write(&self, page: &str) -> Result<(), WriteError> {
        let write = || {
            let mut unfinished = self.begin()?;
            unfinished.file.write_all(page.as_bytes())?;
            if unfinished.part.is_some() {
                // Some file systems say only here that they are full.
                unfinished.file.sync_all()?;
            }
            unfinished.keep()
        };
        write().map_err(|source| {
            let path = shown(&self.asked).to_string();
            WriteError::Unwritten { path, source }
        })
    }

    /// A new file beside the older one, to be written and [kept](Unfinished::keep); or the device or FIFO itself.
    ///
    /// # Errors
    ///
    /// It cannot be made, or the path became something else or another user's meanwhile.
    pub fn begin(&self) -> io::Result<Unfinished> {
        match &*self.place {
            Place::Stream(stream) => {
                let file = open_found(stream, OpenOptions::new().write(true))?;
                Ok(Unfinished { file, place: self.place.clone(), part: None })
            }
            Place::File(folder, name) => self.beside(found_again(folder, name)?.as_ref()),
        }
    }

    /// A new file.
    fn beside(&self, older: Option<&Metadata>) -> io::Result<Unfinished> {
        let Place::File(folder, name) = &*self.place else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut numbers = 0..NAMES_MOST;
        loop {
            let mut part = name.clone();
            part.push(format!(".{}-{}.part", std::process::id(), numbers.start));
            let made = match self.is_for_all {
                true => folder.create_for_all(&part),
                false => folder.create(&part),
            };
            match made {
                Ok(file) => {
                    let made = Unfinished { file, place: self.place.clone(), part: Some(part) };
                    let uid = made.file.metadata()?.uid();
                    // Another user's may let that user write; and nothing but a program needs more bits than these.
                    if let Some(older) = older.filter(|older| older.uid() == uid) {
                        made.file.set_permissions(Permissions::from_mode(older.mode() & 0o777))?;
                    }
                    return Ok(made);
                }
                // Another thread's, or of a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match numbers.next() {
                        Some(_) => (),
                        None => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// What is there by now, which others may have put there: judged as at first.
fn found_again(folder: &OutputFolder, name: &OsStr) -> io::Result<Option<Metadata>> {
    let older = folder.find(name)?.map(|older| older.metadata()).transpose()?;
    match older.as_ref().is_none_or(Metadata::is_file) {
        true => Ok(older),
        false => Err(io::Error::other("it became something else than a file meanwhile")),
    }
}

/// So many unfinished pages of one process and name are tried before a page is given up.
const NAMES_MOST: u32 = 64;

/// A page that is being written. Dropped, it is removed.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    place: Arc<Place>,
    /// Its name meanwhile; a device or FIFO has none.
    part: Option<OsString>,
}

impl Unfinished {
    /// Where it is written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name.
    ///
    /// # Errors
    ///
    /// The path became something else or another user's meanwhile.
    pub fn keep(self) -> io::Result<()> {
        let (Place::File(folder, name), Some(part)) = (&*self.place, &self.part) else {
            return Ok(());
        };
        found_again(folder, name)?;
        // Dropped after the rename, this finds no file to remove.
        folder.rename(part, name)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let (Place::File(folder, _), Some(part)) = (&*self.place, &self.part) {
            // Without an error to return, and with nothing that the next page needs.
            let _ = folder.remove(part);
        }
    }
}

/// Refuses a page at a path where a file is, by device and inode, that is one of the inputs.
///
/// # Errors
///
/// [`WriteError::IsInput`].
pub fn no_input(
    path: &Path,
    older: Option<(u64, u64)>,
    inputs: &[&Path],
) -> Result<(), WriteError> {
    let is_older = |input: &&&Path| {
        let id = fs::metadata(input).map(|input| (input.dev(), input.ino()));
        older.is_some() && id.ok() == older
    };
    match inputs.iter().find(is_older) {
        None => Ok(()),
        Some(input) => Err(WriteError::IsInput {
            path: shown(path).to_string(),
            input: shown(input).to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_older_page_stays_until_the_new_one_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "an older and longer page").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = PageFile::at(&path, &[], None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "an older and longer page");
        file.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["page.html"]);
    }

    #[test]
    fn a_new_page_is_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        PageFile::at(&path, &[], None).unwrap().write("page").unwrap();
        assert_eq!(mode(), 0o600);
        fs::remove_file(&path).unwrap();
        PageFile::at(&path, &[], None).unwrap().for_all().write("page").unwrap();
        fs::write(folder.path().join("as-always"), "").unwrap();
        assert_eq!(mode(), fs::metadata(folder.path().join("as-always")).unwrap().mode() & 0o777);
    }

    /// What another user left there may have bits that make a program of root's page.
    #[test]
    fn a_new_page_has_permissions_of_the_same_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let mode = |owner: Option<u32>| {
            fs::write(&path, "older").unwrap();
            std::os::unix::fs::chown(&path, owner, None)?;
            fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
            PageFile::at(&path, &[], None).unwrap().write("page").unwrap();
            Ok::<_, io::Error>(fs::metadata(&path).unwrap().mode() & 0o7777)
        };
        assert_eq!(mode(None).unwrap(), 0o777);
        match mode(Some(12_345)) {
            Ok(found) => assert_eq!(found, 0o600),
            Err(_) => eprintln!("SKIPPED: only root gives files away"),
        }
    }

    /// Root does not follow a link of another user to its own files.
    #[test]
    fn a_planted_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("page.html"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        if std::os::unix::fs::lchown(&link, Some(12_345), None).is_err() {
            eprintln!("SKIPPED: a_planted_link_is_refused: only root gives files away");
            return;
        }
        let error = PageFile::at(&link, &[], None).unwrap_err().to_string();
        assert!(error.contains("of another user (uid 12345)"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    /// While the work goes on, another user plants what would let that user read root's page.
    #[test]
    fn what_is_planted_meanwhile_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let path = folder.path().join("page.html");
        let plant = |name: &str, options: &[&str]| {
            let mut command = std::process::Command::new("setpriv");
            command.args(["--reuid", "65534", "--clear-groups"]).args(options).arg(&path);
            let has_planted = command.output().is_ok_and(|ran| ran.status.success());
            if !has_planted {
                eprintln!(
                    "SKIPPED: what_is_planted_meanwhile_is_refused: {name}: needs root and setpriv"
                );
            }
            has_planted
        };
        for (name, options) in [
            ("FIFO", &["mkfifo", "-m", "666"][..]),
            ("file", &["install", "-m", "666", "/dev/null"]),
            ("link", &["ln", "-s", "/dev/null"]),
        ] {
            let file = PageFile::at(&path, &[], None).unwrap();
            if !plant(name, options) {
                return;
            }
            let error = file.write("of root").unwrap_err().to_string();
            assert!(error.contains("of another user (uid 65534)"), "{name}: {error}");
            assert_eq!(names(folder.path()), ["page.html"], "{name}");
            fs::remove_file(&path).unwrap();
        }
        // What is of this user, and no file any more, is not waited for.
        let file = PageFile::at(&path, &[], None).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = file.write("page").unwrap_err().to_string();
        assert!(error.contains("something else than a file"), "{error}");
    }

    /// Who may write above the folder exchanges it for a link.
    #[test]
    fn a_page_goes_to_the_folder_that_was_checked() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["folder", "other"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let file = PageFile::at(&root.path().join("folder/page.html"), &[], None).unwrap();
        fs::rename(root.path().join("folder"), root.path().join("moved")).unwrap();
        symlink("other", root.path().join("folder")).unwrap();
        file.write("page").unwrap();
        assert!(names(&root.path().join("other")).is_empty());
        assert_eq!(names(&root.path().join("moved")), ["page.html"]);
    }

    #[test]
    fn a_page_that_is_never_written_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = PageFile::at(&folder.path().join("page.html"), &[], None).unwrap();
        assert!(names(folder.path()).is_empty(), "already while the work goes on");
        drop(file);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_page_that_cannot_be_finished_leaves_the_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let file = PageFile::at(&path, &[], None).unwrap();
        // The name of a folder with something in it: the rename fails, after all is written.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "").unwrap();
        assert!(matches!(file.write("new"), Err(WriteError::Unwritten { .. })));
        assert_eq!(names(folder.path()), ["page.html"]);
        assert_eq!(names(&path), ["inside"]);
    }

    #[test]
    fn a_full_device_is_an_error_of_the_write() {
        let file = PageFile::at(Path::new("/dev/full"), &[], None).unwrap();
        let error = file.write("page").unwrap_err();
        assert!(matches!(error, WriteError::Unwritten { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot write /dev/full: No space left"), "{error}");
        let file = PageFile::at(Path::new("/dev/null"), &[], None).unwrap();
        file.write("page").unwrap();
    }

    #[test]
    fn inputs_are_refused_under_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let (input, link) = (folder.path().join("b.tar.zst"), folder.path().join("link"));
        fs::write(&input, "recorded").unwrap();
        symlink(&input, &link).unwrap();
        fs::hard_link(&input, folder.path().join("hard")).unwrap();
        let inputs = [Path::new("/none/such"), &input];
        for name in ["b.tar.zst", "link", "hard", "../b.tar.zst"] {
            let path = match name.strip_prefix("../") {
                Some(name) => folder.path().join("none").join("..").join(name),
                None => folder.path().join(name),
            };
            fs::create_dir_all(folder.path().join("none")).unwrap();
            let error = PageFile::at(&path, &inputs, None).unwrap_err();
            assert!(matches!(error, WriteError::IsInput { .. }), "{name}: {error:?}");
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "recorded");
        PageFile::at(&folder.path().join("other"), &inputs, None).unwrap().write("page").unwrap();
    }

    #[test]
    fn links_stay_links() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        symlink("target", &link).unwrap();
        for page in ["first", "second"] {
            PageFile::at(&link, &[], None).unwrap().write(page).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), page);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
    }

    #[test]
    fn errors_name_path_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            PageFile::at(&folder.path().join("none/page.html"), &[], None).unwrap_err().to_string();
        assert!(error.contains("none/page.html: No such file"), "{error}");
        assert!(PageFile::at(folder.path(), &[], None).is_err());
    }
}
