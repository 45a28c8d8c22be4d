//! The file of the bundle: claimed before anything else, as it was unless it is finished.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek};
use std::path::{Path, PathBuf};

use nearpage_machine::shown;

use super::compress::zstd;
use super::error::RecordError;
use super::system;

const ENDING: &str = ".tar.zst";
/// How many numbers are tried behind a name.
const NUMBERS_TRIED: u32 = 10_000;

/// The file of a bundle, empty as yet.
pub struct Output {
    path: PathBuf,
    file: File,
    end: End,
}

/// What becomes of the file when it is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is left.
    Finished,
    /// It was there before, and is emptied.
    Emptied,
    /// It is removed.
    Removed,
}

impl Output {
    /// Makes the file. One that exists is taken only if it is empty, as `mktemp` leaves it.
    ///
    /// # Errors
    ///
    /// There is no such folder, it may not be written, or something is there.
    pub fn claim(path: &Path) -> Result<Output, RecordError> {
        let refused = |why: String| RecordError::NoOutput { path: path.into(), why };
        let found = fs::metadata(path);
        let end = if found.is_ok() { End::Emptied } else { End::Removed };
        if let Ok(found) = found {
            if !found.is_file() {
                return Err(refused(
                    "is no file; expected a name for the bundle, which is made".into(),
                ));
            }
            if found.len() > 0 {
                return Err(refused(
                    "exists and is not empty; remove it, or give another name".into(),
                ));
            }
        }
        match OpenOptions::new().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok(Output { path: path.into(), file, end }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = shown(folder_of(path));
                Err(refused(format!("there is no folder {folder}; make it first (mkdir -p)")))
            }
            Err(error) if is_for_root(&error) => Err(RecordError::NotRoot),
            Err(error) => Err(refused(format!("cannot be written: {error}"))),
        }
    }

    /// Makes a file in this folder whose name nobody has: `nearpage-NAME.tar.zst`, or with a number.
    ///
    /// # Errors
    ///
    /// This folder may not be written.
    pub fn claim_new(name: &str) -> Result<Output, RecordError> {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        for number in 1..NUMBERS_TRIED {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            let path = PathBuf::from(format!("nearpage-{name}{number}{ENDING}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Output { path, file, end: End::Removed }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if is_for_root(&error) => return Err(RecordError::NotRoot),
                Err(error) => {
                    let why = format!("cannot be written: {error}; -o names another place");
                    return Err(RecordError::NoOutput { path, why });
                }
            }
        }
        let path = format!("nearpage-{name}{ENDING}").into();
        Err(RecordError::NoOutput { path, why: "exists, with all numbers; -o names it".into() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the bundle.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_suffix(ENDING).map(str::to_owned).unwrap_or(name)
    }

    /// A file beside it that has no name, so that nothing is left of it.
    pub(super) fn scratch(&self) -> Result<File, RecordError> {
        nameless(folder_of(&self.path))
    }

    /// Compresses the archive into it. Gives its bytes.
    pub(super) fn finish(mut self, archive: &mut File) -> Result<u64, RecordError> {
        let written = archive.rewind().and_then(|()| zstd(archive, &mut self.file));
        let bytes = written.and_then(|()| self.file.metadata());
        let bytes = bytes.map_err(RecordError::file(&self.path, "write it"))?.len();
        self.end = End::Finished;
        Ok(bytes)
    }
}

/// Whether what is refused here would not be to root, who is needed anyway: another place for the bundle does not help.
fn is_for_root(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && !system::is_root()
}

impl Drop for Output {
    fn drop(&mut self) {
        // Nobody is left to be told if this fails.
        let _ = match self.end {
            End::Finished => Ok(()),
            End::Emptied => self.file.set_len(0),
            End::Removed => fs::remove_file(&self.path),
        };
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file for what the command prints: in memory where there is such a place, so that no disk is written.
pub(super) fn memory_file() -> Result<File, RecordError> {
    let in_memory = Path::new("/dev/shm");
    nameless(in_memory).or_else(|_| nameless(&std::env::temp_dir()))
}

fn nameless(folder: &Path) -> Result<File, RecordError> {
    let path = folder.join(format!(".nearpage.{}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let removed = made.and_then(|file| fs::remove_file(&path).map(|()| file));
    removed.map_err(RecordError::file(&path, "make it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(path: &Path) -> String {
        Output::claim(path).err().unwrap().to_string()
    }

    #[test]
    fn a_bundle_takes_nobodys_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.zst");
        assert!(why(folder.path()).contains("is no file"));
        assert!(why(&folder.path().join("b/a.tar.zst")).contains("there is no folder"));
        fs::write(&path, "x").unwrap();
        assert!(why(&path).contains("is not empty"));
        assert_eq!(fs::read(&path).unwrap(), b"x");
        fs::write(&path, "").unwrap();
        let output = Output::claim(&path).unwrap();
        assert_eq!(output.name(), "a");
        drop(output);
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        drop(Output::claim(&path).unwrap());
        assert!(!path.exists());
    }
}
