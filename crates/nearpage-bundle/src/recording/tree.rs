//! A capture of any kind as a tree of files.

use std::collections::BTreeMap;
use std::io;

use nearpage_machine::FileTree;

/// Files by their paths below `/`, each with the place in the recording where it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedTree {
    source: String,
    files: BTreeMap<String, RecordedFile>,
}

#[derive(Clone, Debug)]
struct RecordedFile {
    place: String,
    content: Vec<u8>,
}

impl RecordedTree {
    /// A tree without files; `source` names it in messages.
    pub(super) fn new(source: impl Into<String>) -> RecordedTree {
        RecordedTree { source: source.into(), files: BTreeMap::new() }
    }

    /// Adds a file that stands at `place` of the recording, or replaces it.
    pub(super) fn insert(&mut self, path: &str, place: String, content: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), RecordedFile { place, content: content.into() });
    }

    /// Adds a line to a file, which begins at `place` if it is not there yet.
    pub(super) fn append_line(&mut self, path: &str, place: impl FnOnce() -> String, line: &str) {
        let new = || RecordedFile { place: place(), content: Vec::new() };
        let file = self.files.entry(path.into()).or_insert_with(new);
        file.content.extend_from_slice(line.as_bytes());
        file.content.push(b'\n');
    }
}

impl FileTree for RecordedTree {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.get(path).map(|file| file.content.clone()))
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
        match (path, self.files.get(path)) {
            ("", _) => self.source.clone(),
            (_, Some(file)) => file.place.clone(),
            (path, None) => format!("{}: {path}", self.source),
        }
    }
}
