//! A copy of a tree's files: a folder that stands in for `/` where a tool can be told to look elsewhere.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nearpage_machine::{OutputFolder, shown};

use crate::process::{ProcessError, ProcessTree};

/// Files of one process: a machine of 1024 nodes has four a node.
const FILES_MAX: usize = 1 << 16;

/// Why a process was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The process cannot be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The folder has other files in it.
    #[error(
        "{path}: it is not empty; a folder that is, or is not there yet, or one of an earlier copy is accepted"
    )]
    NotEmpty {
        /// The folder.
        path: String,
    },
    /// The process names files that would lie outside the folder.
    #[error("the process offers a file named {name:?}: names of files below the root are accepted")]
    Name {
        /// The name.
        name: String,
    },
    /// The process names more files than any allocator has.
    #[error("the process offers {count} files; at most {FILES_MAX} are copied")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A file cannot be written.
    #[error("{path}: {error}")]
    Write {
        /// The file.
        path: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

/// The name of the file that marks a folder as a copy.
const MARK: &str = "nearpage/memory.json";

/// A folder that has the files of a process, written anew as often as wanted.
///
/// Tools that take another root (`lstopo --input`, `node_exporter --path.procfs`, `nearpage ... --sysroot`) read the process
/// there.
#[derive(Debug)]
pub struct ProcessCopy {
    process: ProcessTree,
    folder: PathBuf,
}

impl ProcessCopy {
    /// A copy of a process in a folder, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`CopyError::NotEmpty`]: other files are there. [`CopyError::Write`]: it cannot be made, or root would write into
    /// another user's folder, where links may lead anywhere.
    pub fn new(process: ProcessTree, folder: impl Into<PathBuf>) -> Result<ProcessCopy, CopyError> {
        let folder = folder.into();
        let failed = |error| CopyError::Write { path: shown(&folder).to_string(), error };
        fs::create_dir_all(&folder).map_err(failed)?;
        let uid = fs::metadata(&folder).map_err(failed)?.uid();
        if rustix::process::geteuid().is_root() && uid != 0 {
            let why = format!("the folder is of another user (uid {uid}); expected one of root's");
            return Err(failed(io::Error::new(ErrorKind::PermissionDenied, why)));
        }
        let is_empty = fs::read_dir(&folder).map_err(failed)?.next().is_none();
        if !is_empty && !folder.join(MARK).is_file() {
            return Err(CopyError::NotEmpty { path: shown(&folder).to_string() });
        }
        Ok(ProcessCopy { process, folder })
    }

    /// Writes all files; returns how many. Each takes its name in one step: no reader finds half of one.
    ///
    /// # Errors
    ///
    /// [`CopyError`]. Files that were written stay.
    pub fn write(&self) -> Result<usize, CopyError> {
        let names = self.process.files()?;
        if names.len() > FILES_MAX {
            return Err(CopyError::TooMany { count: names.len() });
        }
        if let Some(name) = names.iter().find(|name| !is_below(name)) {
            return Err(CopyError::Name { name: name.chars().take(80).collect() });
        }
        let mut written = 0;
        for name in &names {
            // A node that went away since the list was made has no files.
            if let Some(content) = self.process.file(name)? {
                self.write_file(name, &content)?;
                written += 1;
            }
        }
        Ok(written)
    }

    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), CopyError> {
        let path = self.folder.join(name);
        let write = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let (folder, name) = OutputFolder::of(&path, None)?;
            let mut beside = name.clone();
            beside.push(".nearpage-new");
            // Of a copier that was killed.
            let _ = folder.remove(&beside);
            folder.create_for_all(&beside)?.write_all(content)?;
            folder.rename(&beside, &name)
        };
        write().map_err(|error| CopyError::Write { path: shown(&path).to_string(), error })
    }
}

/// Whether a name leads to a place below the root and nowhere else.
fn is_below(name: &str) -> bool {
    let path = Path::new(name);
    let is_plain = |component| matches!(component, Component::Normal(_));
    !name.is_empty() && !name.ends_with('/') && path.components().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere() {
        for name in ["proc/zoneinfo", "a", "sys/devices/system/node/node0/meminfo"] {
            assert!(is_below(name), "{name}");
        }
        for name in ["", "/etc/passwd", "../x", "a/../../x", "a/", "."] {
            assert!(!is_below(name), "{name}");
        }
    }
}
