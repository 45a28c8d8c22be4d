//! Files of a tree as text, with their names for messages.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::error::SysfsError;
use crate::idlist::{self, IdListError, IdListProblem};
use crate::tree::FileTree;

/// Reads the files of a tree.
pub struct Source<'a> {
    tree: &'a dyn FileTree,
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// A file's content and its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextFile {
    /// The name, for messages.
    pub name: String,
    /// The content.
    pub text: String,
}

impl<'a> Source<'a> {
    /// A reader of `tree`.
    pub fn new(tree: &'a dyn FileTree) -> Source<'a> {
        Source { tree }
    }

    /// The file, or `None` where there is none.
    ///
    /// # Errors
    ///
    /// The file is there and cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<TextFile>, SysfsError> {
        let name = self.tree.display(path);
        match self.tree.read(path) {
            // A byte that is not UTF-8 is a syntax error where it stands, not an unreadable file.
            Ok(content) => Ok(content.map(|bytes| {
                // Some programs that copy /sys end each file with a zero byte.
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                TextFile { name, text: String::from_utf8_lossy(&bytes[..end]).into_owned() }
            })),
            Err(error) => Err(SysfsError::Unreadable { file: name, error }),
        }
    }

    /// The file, or `None` if it does not exist or this process may not read it, as in many containers.
    ///
    /// # Errors
    ///
    /// The file is there, is not denied, and cannot be read.
    pub fn read_if_allowed(&self, path: &str) -> Result<Option<TextFile>, SysfsError> {
        match self.read(path) {
            Err(SysfsError::Unreadable { error, .. })
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Ok(None)
            }
            other => other,
        }
    }

    /// The numbers N of the entries `PREFIXN` of a folder, ascending.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Result<Vec<u32>, SysfsError> {
        let names = self
            .tree
            .names(folder)
            .map_err(|error| SysfsError::Unreadable { file: self.display(folder), error })?;
        let number = |name: &String| name.strip_prefix(prefix)?.parse().ok();
        let mut numbers: Vec<u32> =
            names.iter().filter_map(number).filter(|&n| n <= idlist::MAX_ID).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Whether a folder has any entry.
    pub(super) fn has_folder(&self, folder: &str) -> Result<bool, SysfsError> {
        let names = self.tree.names(folder);
        let names =
            names.map_err(|error| SysfsError::Unreadable { file: self.display(folder), error })?;
        Ok(!names.is_empty())
    }

    /// The path as a message should show it.
    pub fn display(&self, path: &str) -> String {
        self.tree.display(path)
    }
}

/// The file; `None` also for a file without bytes. The kernel ends even an empty list with a newline, so such a file is
/// hidden: containers mount /dev/null over files.
pub(super) fn unless_hidden(file: Option<TextFile>) -> Option<TextFile> {
    file.filter(|file| !file.text.is_empty())
}

impl TextFile {
    /// The error for `found` at a line and column, both from 1.
    pub fn syntax(
        &self,
        line: usize,
        column: usize,
        found: &str,
        expected: impl Into<String>,
    ) -> SysfsError {
        SysfsError::Syntax {
            file: self.name.clone(),
            line,
            column,
            found: idlist::excerpt(found),
            expected: expected.into(),
        }
    }

    /// The whole file as one list of ids.
    ///
    /// # Errors
    ///
    /// [`SysfsError::Syntax`] where it is none.
    pub fn ids(&self) -> Result<Vec<u32>, SysfsError> {
        idlist::parse(&self.text).map_err(|error| self.id_list(error))
    }

    /// The whole file as one mask of ids.
    pub(super) fn mask(&self) -> Result<Vec<u32>, SysfsError> {
        idlist::parse_mask(&self.text).map_err(|error| self.id_list(error))
    }

    fn id_list(&self, error: IdListError) -> SysfsError {
        let (found, expected) = match error.problem {
            IdListProblem::Syntax { found, expected } => (found, expected.to_string()),
            IdListProblem::TooLarge { found } => (found, format!("ids up to {}", idlist::MAX_ID)),
            IdListProblem::Backwards { first, last } => {
                (format!("{first}-{last}"), format!("{last}-{first}"))
            }
            IdListProblem::Repeated { id } => (id.to_string(), "each id once".into()),
            IdListProblem::NotAvailable { id, available } => (id.to_string(), available),
        };
        self.syntax(1, error.column, &found, expected)
    }

    /// The numbers of the file, separated by blanks.
    pub(super) fn numbers<T: FromStr>(&self, expected: &str) -> Result<Vec<T>, SysfsError> {
        words(&self.text)
            .map(|(column, word)| {
                word.parse().map_err(|_| self.syntax(1, column, word, expected.to_string()))
            })
            .collect()
    }

    /// The file as a single number.
    ///
    /// # Errors
    ///
    /// [`SysfsError::Syntax`] if it is none.
    pub fn number<T: FromStr>(&self, expected: &str) -> Result<T, SysfsError> {
        let word = self.text.trim();
        word.parse().map_err(|_| self.syntax(1, 1, word, expected.to_string()))
    }
}

/// The words of a line and their columns, from 1.
pub fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_ascii_whitespace().map(move |word| {
        let offset = word.as_ptr() as usize - line.as_ptr() as usize;
        (line[..offset].chars().count() + 1, word)
    })
}
