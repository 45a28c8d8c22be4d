//! Reading a tree of /sys and /proc as far as it can be understood.

use std::io;

use nearpage_machine::FileTree;
use nearpage_machine::sysfs::{Source, SysfsError, TextFile};

/// The most reads for one answer. A copy in which every file is wrong need not name each.
const READS_MAX: usize = 32;

/// A tree without the files that were refused, so that the others are judged all the same.
pub(super) struct Reader<'a> {
    tree: &'a dyn FileTree,
    refused: Vec<SysfsError>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(tree: &'a dyn FileTree) -> Self {
        Self { tree, refused: Vec::new() }
    }

    /// The answer of `read`. If it refuses a file, it reads again without that file. `None` if it needs the file.
    pub(super) fn ask<T>(
        &mut self,
        read: impl Fn(&dyn FileTree) -> Result<T, SysfsError>,
    ) -> Option<T> {
        for _ in 0..READS_MAX {
            match read(self) {
                Ok(answer) => return Some(answer),
                Err(error) if self.is_told(&error) => return None,
                Err(error) => self.refused.push(error),
            }
        }
        None
    }

    /// The answer of `parse` about a file; `None` if the file is missing or refused.
    pub(super) fn file<T>(
        &mut self,
        path: &str,
        parse: impl Fn(&TextFile) -> Result<T, SysfsError>,
    ) -> Option<T> {
        let read = |tree: &dyn FileTree| {
            Source::new(tree).read_if_allowed(path)?.as_ref().map(&parse).transpose()
        };
        self.ask(read).flatten()
    }

    /// The errors of the refused files.
    pub(super) fn refused(&self) -> &[SysfsError] {
        &self.refused
    }

    /// Whether an error follows from a file that was refused before.
    fn is_told(&self, error: &SysfsError) -> bool {
        error.file().map_or(!self.refused.is_empty(), |file| self.is_refused(file))
    }

    fn is_refused(&self, file: &str) -> bool {
        self.refused.iter().any(|error| error.file() == Some(file))
    }
}

impl FileTree for Reader<'_> {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        if self.is_refused(&self.display(path)) { Ok(None) } else { self.tree.read(path) }
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        if self.is_refused(&self.display(path)) { Ok(Vec::new()) } else { self.tree.names(path) }
    }

    fn display(&self, path: &str) -> String {
        self.tree.display(path)
    }
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;
    use nearpage_machine::read_machine;

    use super::*;

    const ONLINE: &str = "sys/devices/system/node/online";

    /// Two nodes with a CPU each.
    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new("box");
        for node in 0..2 {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.insert(format!("{folder}/cpulist"), node.to_string());
        }
        tree
    }

    fn refused(reader: Reader<'_>) -> Vec<String> {
        reader.refused().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_are_left_out_one_after_the_other() {
        let mut tree = tree();
        tree.insert(ONLINE, "0-x");
        tree.insert("proc/sys/vm/min_free_kbytes", "many");
        let mut reader = Reader::new(&tree);
        assert_eq!(reader.ask(read_machine).unwrap().nodes.len(), 2);
        let online = reader.ask(|tree| Source::new(tree).read(ONLINE));
        assert_eq!(online, Some(None), "it was refused");
        let refused = refused(reader);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("box: sys/devices/system/node/online:1:1: "), "{refused:?}");
        assert!(refused[1].starts_with("box: proc/sys/vm/min_free_kbytes:1:1: "), "{refused:?}");
    }

    #[test]
    fn what_nothing_stands_in_for_is_told_once() {
        let mut tree = tree();
        tree.insert("sys/devices/system/node/node1/cpulist", "1-");
        tree.insert("sys/devices/system/node/online", "0-1,3");
        let mut reader = Reader::new(&tree);
        assert_eq!(reader.ask(read_machine), None);
        let refused = refused(reader);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("node1/cpulist:1:1: found \"1-\""), "{refused:?}");
        assert!(refused[1].contains("node3/cpulist: missing"), "{refused:?}");
    }

    #[test]
    fn reading_ends() {
        let mut tree = tree();
        for cpu in 0..100 {
            tree.insert(format!("sys/devices/system/cpu/cpu{cpu}/online"), "1");
            let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache/index0");
            tree.insert(format!("{cache}/type"), "Data");
            tree.insert(format!("{cache}/size"), "large");
        }
        tree.insert("sys/devices/system/node/node0/cpulist", "0,2-99");
        let mut reader = Reader::new(&tree);
        assert_eq!(reader.ask(read_machine), None);
        assert_eq!(reader.refused().len(), READS_MAX);
    }
}
