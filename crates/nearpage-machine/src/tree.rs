//! Where the files of /sys and /proc come from: this machine, a copied folder, or an archive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::beneath::{is_absent, names_beneath, open_beneath, open_own};
use crate::budget::{Budget, read_within};
use crate::shown::shown;
use crate::sos::{self, StandIns};

/// A file system with copies of /sys and /proc, or a sosreport, whose answers of commands stand in for files. Paths are relative to its root: `proc/meminfo`.
pub trait FileTree {
    /// The file's content, or `None` where there is no such file.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;

    /// The names of a folder's entries, in any order. A folder that does not exist has none.
    fn names(&self, path: &str) -> io::Result<Vec<String>>;

    /// The path as a message should show it.
    fn display(&self, path: &str) -> String;
}

/// A folder: `/` for this machine, or a copy of one, which may be anybody's: its files are opened beneath it.
#[derive(Clone, Debug)]
pub struct FolderTree {
    root: PathBuf,
    stand_ins: StandIns,
    file_bytes_max: u64,
}

impl FolderTree {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> FolderTree {
        let file_bytes_max = Budget::DEFAULT.file_bytes;
        FolderTree { root: root.into(), stand_ins: StandIns::default(), file_bytes_max }
    }

    /// The same, with files as long as a budget allows.
    #[must_use]
    pub fn within(self, budget: &Budget) -> FolderTree {
        FolderTree { file_bytes_max: budget.file_bytes, ..self }
    }
}

impl FolderTree {
    /// Opens a file; `None` where there is none. The links of this machine are its own: they are followed anywhere.
    fn open(&self, path: &str) -> io::Result<Option<File>> {
        if self.root != Path::new("/") {
            return found(open_beneath(&self.root, path)).map(Option::flatten);
        }
        found(open_own(&self.root.join(path)))
    }
}

impl FolderTree {
    fn read_file(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open(path)? else { return Ok(None) };
        read_within(file, self.file_bytes_max).map(Some)
    }
}

impl FileTree for FolderTree {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self.root == Path::new("/") {
            true => self.read_file(path),
            false => self.stand_ins.read_or_stand_in(path, |path| self.read_file(path)),
        }
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        names_beneath(&self.root, path)
    }

    fn display(&self, path: &str) -> String {
        match path {
            "" => shown(&self.root).to_string(),
            _ => shown(&self.root.join(path)).to_string(),
        }
    }
}

/// Files in memory: an archive that was unpacked, or a machine made up for a test.
#[derive(Clone, Debug, Default)]
pub struct MemoryTree {
    name: String,
    files: BTreeMap<String, Vec<u8>>,
    stand_ins: StandIns,
}

impl MemoryTree {
    /// A tree without files, called `name` in messages.
    pub fn new(name: impl Into<String>) -> MemoryTree {
        MemoryTree { name: name.into(), ..MemoryTree::default() }
    }

    /// Adds a file, or replaces it. `path` is relative to the root, as in [`FileTree`].
    pub fn insert(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), content.into());
        self.stand_ins = StandIns::default();
    }
}

impl FileTree for MemoryTree {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.stand_ins.read_or_stand_in(path, |path| Ok(self.files.get(path).cloned()))
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let below = format!("{path}/");
        let entries =
            self.files.range(below.clone()..).map_while(|(file, _)| file.strip_prefix(&below));
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.split('/').next()).map(String::from).collect();
        names.dedup();
        Ok(names)
    }

    fn display(&self, path: &str) -> String {
        match path {
            "" => self.name.clone(),
            _ => format!("{}: {path}", self.name),
        }
    }
}

/// Whether a file of a copy of /sys and /proc helps to describe a machine.
pub fn is_machine_file(path: &str) -> bool {
    const FOLDERS: [&str; 5] = [
        "sys/devices/system/node/",
        "sys/devices/system/cpu/",
        "sys/kernel/mm/transparent_hugepage/",
        "proc/sys/vm/",
        "proc/sys/kernel/osrelease",
    ];
    const FILES: [&str; 8] = [
        "proc/meminfo",
        "proc/zoneinfo",
        "proc/version",
        "proc/buddyinfo",
        "proc/pagetypeinfo",
        "proc/iomem",
        "proc/self/status",
        "proc/sys/kernel/numa_balancing",
    ];
    FOLDERS.iter().any(|folder| path.starts_with(folder))
        || FILES.contains(&path)
        || sos::ANSWERS.contains(&path)
}

/// Turns the error of an absent file into `None`, and passes on other errors.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::sysfs::Source;

    #[test]
    fn files_in_memory_have_folders() {
        let mut tree = MemoryTree::new("box.tar");
        for path in
            ["sys/node/node0/cpulist", "sys/node/node0/distance", "sys/node/online", "sys/nodes"]
        {
            tree.insert(path, "0");
        }
        assert_eq!(tree.names("sys/node").unwrap(), ["node0", "online"]);
        assert_eq!(tree.names("sys").unwrap(), ["node", "nodes"]);
        assert_eq!(tree.read("sys/node/online").unwrap().unwrap(), b"0");
        assert!(tree.read("sys/node").unwrap().is_none());
        assert_eq!(tree.display("sys/nodes"), "box.tar: sys/nodes");
    }

    #[test]
    fn absent_files_and_folders_are_no_errors() {
        let folder = tempfile::tempdir().unwrap();
        let tree = FolderTree::new(folder.path());
        assert!(tree.read("proc/meminfo").unwrap().is_none());
        assert!(tree.names("sys").unwrap().is_empty());
        std::fs::create_dir_all(folder.path().join("sys/a")).unwrap();
        std::fs::write(folder.path().join("sys/b"), "text").unwrap();
        let mut names = tree.names("sys").unwrap();
        names.sort();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(tree.read("sys/b").unwrap().unwrap(), b"text");
        assert!(tree.read("sys/b/c").unwrap().is_none());
        assert!(tree.read("sys/a").is_err());
    }

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let tree = FolderTree::new(folder.path());
        let fifo = folder.path().join("zoneinfo");
        let name = CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string that lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let _socket = UnixListener::bind(folder.path().join("meminfo")).unwrap();
        symlink("/dev/null", folder.path().join("link")).unwrap();
        let refused = |path: &str| {
            let error = Source::new(&tree).read(path).unwrap_err().to_string();
            error.strip_prefix(folder.path().to_str().unwrap()).unwrap().to_owned()
        };
        assert_eq!(refused("zoneinfo"), "/zoneinfo: a FIFO, expected a regular file");
        assert_eq!(refused("meminfo"), "/meminfo: a socket, expected a regular file");
        assert!(refused("link").starts_with("/link: a link that leads out of the folder"));
    }
}
