//! A capture of any kind as a tree of files.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use nearpage_machine::FileTree;

/// Files by their paths below `/`, each with the place in the recording where it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedTree {
    source: String,
    files: Files,
    /// Those that captures share.
    shared: Arc<Files>,
}

type Files = BTreeMap<String, RecordedFile>;

#[derive(Clone, Debug)]
struct RecordedFile {
    place: String,
    content: Vec<u8>,
}

impl RecordedTree {
    /// A tree without files; `source` names it in messages.
    pub(super) fn new(source: impl Into<String>) -> RecordedTree {
        RecordedTree { source: source.into(), ..RecordedTree::default() }
    }

    /// The same files, which many trees may have now and none has for itself.
    pub(super) fn shared(self) -> RecordedTree {
        RecordedTree { source: self.source, files: Files::new(), shared: Arc::new(self.files) }
    }

    fn file(&self, path: &str) -> Option<&RecordedFile> {
        self.files.get(path).or_else(|| self.shared.get(path))
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
        Ok(self.file(path).map(|file| file.content.clone()))
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let below = format!("{path}/");
        let entries = |files: &'_ Files| -> Vec<String> {
            let entries =
                files.range(below.clone()..).map_while(|(file, _)| file.strip_prefix(&below));
            let mut names: Vec<&str> =
                entries.filter_map(|entry| entry.split('/').next()).collect();
            names.dedup();
            names.into_iter().map(String::from).collect()
        };
        let mut names = entries(&self.files);
        names.extend(entries(&self.shared));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn display(&self, path: &str) -> String {
        match (path, self.file(path)) {
            ("", _) => self.source.clone(),
            (_, Some(file)) => file.place.clone(),
            (path, None) => format!("{}: {path}", self.source),
        }
    }
}
