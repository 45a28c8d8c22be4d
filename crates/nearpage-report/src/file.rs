//! The file of a page.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nearpage_machine::shown::shown;

/// A page could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {error}")]
pub struct WriteError {
    path: String,
    error: io::Error,
}

/// Where a page goes to.
#[derive(Clone, Debug)]
pub struct PageFile {
    path: PathBuf,
}

impl PageFile {
    /// A file that can be written: said before the work is done, not after. What it holds stays until then.
    ///
    /// # Errors
    ///
    /// There can be no such file, or it cannot be written.
    pub fn at(path: &Path) -> Result<PageFile, WriteError> {
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(_) => Ok(PageFile { path: path.into() }),
            Err(error) => Err(write_error(path, error)),
        }
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// It cannot be written, or not all of it.
    pub fn write(&self, page: &str) -> Result<(), WriteError> {
        fs::write(&self.path, page).map_err(|error| write_error(&self.path, error))
    }
}

fn write_error(path: &Path, error: io::Error) -> WriteError {
    WriteError { path: shown(path).to_string(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_page_stays_until_the_new_one_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "an older and longer page").unwrap();
        let file = PageFile::at(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "an older and longer page");
        file.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn errors_name_path_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let error = PageFile::at(&folder.path().join("none/page.html")).unwrap_err().to_string();
        assert!(error.contains("none/page.html: No such file"), "{error}");
        assert!(PageFile::at(folder.path()).is_err());
    }
}
