//! A copy of a tree's files: a folder that stands in for `/` where a tool can be told to look elsewhere.

use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};

use nearpage_machine::{OutputFolder, shown};

use crate::process::{ProcessError, ProcessTree};

/// Files of one process: a machine of 1024 nodes has four a node.
const FILES_MAX: usize = 1 << 16;
/// Bytes of them together: those of 1024 nodes and 8192 CPUs have less. Whoever serves them fills the disk of who copies.
const BYTES_MAX: u64 = 256 << 20;

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
    /// The process's files are longer than any allocator's.
    #[error("the process offers more than {} MiB, the most that is copied", BYTES_MAX >> 20)]
    TooLong,
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

/// The file that marks a folder as a copy: a folder, and its name there.
const MARK: (&str, &str) = ("nearpage", "memory.json");

/// A folder that has the files of a process, written anew as often as wanted.
///
/// Tools that take another root (`lstopo --input`, `node_exporter --path.procfs`, `nearpage ... --sysroot`) read the process
/// there.
#[derive(Debug)]
pub struct ProcessCopy {
    process: ProcessTree,
    /// The folder, whatever becomes of its name.
    folder: OutputFolder,
    path: PathBuf,
}

impl ProcessCopy {
    /// A copy of a process in a folder, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`CopyError::NotEmpty`]: other files are there. [`CopyError::Write`]: it cannot be made, the path goes through a link of
    /// another user, or root would write where others may.
    pub fn new(process: ProcessTree, folder: impl Into<PathBuf>) -> Result<ProcessCopy, CopyError> {
        let path = folder.into();
        let failed = |error| CopyError::Write { path: shown(&path).to_string(), error };
        let folder = opened(&path).map_err(failed)?;
        folder.check_nobody_elses().map_err(failed)?;
        let is_empty = folder.is_empty().map_err(failed)?;
        let is_copy = || {
            let marked = OutputFolder::of(&folder.path(MARK.0.as_ref()).join(MARK.1), None);
            marked.is_ok_and(|(folder, name)| matches!(folder.find(&name), Ok(Some(_))))
        };
        if !is_empty && !is_copy() {
            return Err(CopyError::NotEmpty { path: shown(&path).to_string() });
        }
        Ok(ProcessCopy { process, folder, path })
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
        let (mut written, mut bytes) = (0, 0);
        for name in &names {
            // A node that went away since the list was made has no files.
            if let Some(content) = self.process.file(name)? {
                bytes += content.len() as u64;
                if bytes > BYTES_MAX {
                    return Err(CopyError::TooLong);
                }
                self.write_file(name, &content)?;
                written += 1;
            }
        }
        Ok(written)
    }

    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), CopyError> {
        let write = || -> io::Result<()> {
            let (folders, name) = name.rsplit_once('/').unwrap_or(("", name));
            let mut folder = None;
            for name in folders.split('/').filter(|name| !name.is_empty()) {
                folder =
                    Some(folder.as_ref().unwrap_or(&self.folder).folder_for_all(name.as_ref())?);
            }
            let folder = folder.as_ref().unwrap_or(&self.folder);
            let beside = format!("{name}.nearpage-new");
            let beside = beside.as_ref();
            // Of a copier that was killed.
            let _ = folder.remove(beside);
            folder.create_for_all(beside)?.write_all(content)?;
            folder.rename(beside, name.as_ref())
        };
        let path = || shown(&self.path.join(name)).to_string();
        write().map_err(|error| CopyError::Write { path: path(), error })
    }
}

/// Opens a folder, and makes what lacks of it.
fn opened(path: &Path) -> io::Result<OutputFolder> {
    match OutputFolder::of(&path.join(MARK.0), None) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            opened(parent)?.folder_for_all(name)
        }
        opened => Ok(opened?.0),
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
