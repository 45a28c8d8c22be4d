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
    shared: Vec<Arc<Files>>,
}

type Files = BTreeMap<String, RecordedFile>;

#[derive(Clone, Debug)]
struct RecordedFile {
    place: Place,
    content: Box<[u8]>,
}

/// Where a file stands in the recording.
#[derive(Clone, Debug)]
enum Place {
    /// By its name.
    Named(String),
    /// A line of a file that has a line for each of many.
    Line(Arc<str>, u32),
}

impl RecordedTree {
    /// A tree without files; `source` names it in messages.
    pub(super) fn new(source: impl Into<String>) -> RecordedTree {
        RecordedTree { source: source.into(), ..RecordedTree::default() }
    }

    /// The same files, which many trees may have now and none has for itself.
    pub(super) fn shared(self) -> RecordedTree {
        let mut shared = self.shared;
        shared.push(Arc::new(self.files));
        RecordedTree { source: self.source, files: Files::new(), shared }
    }

    /// Adds the files that another tree shares.
    pub(super) fn add(&mut self, other: &RecordedTree) {
        self.shared.extend(other.shared.iter().cloned());
    }

    fn file(&self, path: &str) -> Option<&RecordedFile> {
        let all = std::iter::once(&self.files).chain(self.shared.iter().map(|files| &**files));
        all.into_iter().find_map(|files| files.get(path))
    }

    /// Adds a file that stands at `place` of the recording, or replaces it.
    pub(super) fn insert(&mut self, path: &str, place: String, content: impl Into<Vec<u8>>) {
        let content = content.into().into();
        self.files.insert(path.into(), RecordedFile { place: Place::Named(place), content });
    }

    /// Adds a file of lines, of which the first stands in a line of another file.
    pub(super) fn insert_lines(
        &mut self,
        path: &str,
        (file, line): (&Arc<str>, usize),
        content: &str,
    ) {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let place = Place::Line(Arc::clone(file), line);
        self.files.insert(path.into(), RecordedFile { place, content: content.as_bytes().into() });
    }
}

impl FileTree for RecordedTree {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.file(path).map(|file| file.content.to_vec()))
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
        names.extend(self.shared.iter().flat_map(|files| entries(files)));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn display(&self, path: &str) -> String {
        match (path, self.file(path)) {
            ("", _) => self.source.clone(),
            (_, Some(RecordedFile { place: Place::Named(place), .. })) => place.clone(),
            (path, Some(RecordedFile { place: Place::Line(file, line), .. })) => {
                match path.strip_prefix("proc/sys/") {
                    Some(key) => format!("{file}:{line}: {}", key.replacen('/', ".", 1)),
                    None => format!("{file}:{line}: /{path}"),
                }
            }
            (path, None) => format!("{}: {path}", self.source),
        }
    }
}
