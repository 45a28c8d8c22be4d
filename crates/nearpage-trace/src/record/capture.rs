//! What changes with every allocation: read between two markers, without allocating.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;

use super::error::RecordError;

/// The files of a capture, as they are read. `zoneinfo` is read again after those that a replay begins with: where
/// the two agree, nothing moved meanwhile.
pub(super) const NAMES: [&str; 7] =
    ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "zoneinfo.again", "slabinfo", "meminfo"];
/// Files that a kernel may lack.
const OPTIONAL: [&str; 1] = ["slabinfo"];
/// What texts may grow by while a command runs.
const ROOM_BYTES: usize = 16 << 10;

/// Open files, each read before.
pub(super) struct HotFiles {
    /// One for each name.
    files: Vec<Option<HotFile>>,
}

struct HotFile {
    path: PathBuf,
    file: File,
    /// Its length when it was first read.
    bytes: usize,
}

/// The texts of [`NAMES`]; of a file that the kernel lacks, an empty one.
pub(super) struct Snapshot {
    pub texts: Vec<Text>,
}

/// Memory that was touched before, and how much of it is filled.
pub(super) struct Text {
    memory: Vec<u8>,
    length: usize,
}

impl Text {
    fn with_room(bytes: usize) -> Text {
        Text { memory: vec![b' '; bytes], length: 0 }
    }

    /// What was read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl HotFiles {
    /// Opens all, and reads them once: the kernel keeps the buffers that it makes for that.
    ///
    /// # Errors
    ///
    /// One cannot be opened or read.
    pub(super) fn open() -> Result<HotFiles, RecordError> {
        let open = |name: &str| {
            let path = PathBuf::from("/proc").join(name.trim_end_matches(".again"));
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(_) if OPTIONAL.contains(&name) => return Ok(None),
                Err(error) => return Err(RecordError::file(&path, "open it")(error)),
            };
            let mut file = HotFile { path, file, bytes: 0 };
            let mut text = Text::with_room(0);
            file.read(&mut text)?;
            file.bytes = text.length;
            Ok(Some(file))
        };
        let files: Result<_, RecordError> = NAMES.into_iter().map(open).collect();
        Ok(HotFiles { files: files? })
    }

    /// Memory for a capture, touched.
    pub(super) fn snapshot(&self) -> Snapshot {
        let bytes = |file: &HotFile| file.bytes + file.bytes / 4 + ROOM_BYTES;
        let text = |file: &Option<HotFile>| Text::with_room(file.as_ref().map_or(0, bytes));
        Snapshot { texts: self.files.iter().map(text).collect() }
    }

    /// Reads all into memory that was made before.
    ///
    /// # Errors
    ///
    /// One cannot be read.
    pub(super) fn read(&mut self, snapshot: &mut Snapshot) -> Result<(), RecordError> {
        let pairs = self.files.iter_mut().zip(&mut snapshot.texts);
        pairs.filter_map(|(file, text)| Some((file.as_mut()?, text))).try_for_each(read_pair)
    }

    /// Memory for a sample.
    pub(super) fn sample_text(&self) -> Text {
        let zoneinfo = self.files[0].as_ref().expect("zoneinfo is needed");
        Text::with_room(zoneinfo.bytes + zoneinfo.bytes / 4 + ROOM_BYTES)
    }

    /// Reads zoneinfo alone.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(super) fn sample(&mut self, text: &mut Text) -> Result<(), RecordError> {
        self.files[0].as_mut().expect("zoneinfo is needed").read(text)
    }
}

fn read_pair((file, text): (&mut HotFile, &mut Text)) -> Result<(), RecordError> {
    file.read(text)
}

impl HotFile {
    fn read(&mut self, text: &mut Text) -> Result<(), RecordError> {
        let read = self.file.rewind().and_then(|()| read_all(&mut self.file, text));
        read.map_err(RecordError::file(&self.path, "read it"))
    }
}

/// Reads to the end, into the memory that is there as far as it goes.
fn read_all(source: &mut impl Read, text: &mut Text) -> io::Result<()> {
    text.length = 0;
    loop {
        if text.length == text.memory.len() {
            text.memory.resize(text.length * 2 + ROOM_BYTES, b' ');
        }
        match source.read(&mut text.memory[text.length..]) {
            Ok(0) => return Ok(()),
            Ok(got) => text.length += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_whole_into_any_room() {
        let long: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        for room in [0, 7, 200_000] {
            let mut text = Text::with_room(room);
            read_all(&mut &*long, &mut text).unwrap();
            assert!(text.bytes() == long, "{room}");
            read_all(&mut &b"short"[..], &mut text).unwrap();
            assert_eq!(text.bytes(), b"short");
        }
    }
}
