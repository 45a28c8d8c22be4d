//! A file that passes read from its beginning, again and again, and several at once.

use std::io::{self, Read};
use std::path::Path;

use nearpage_machine::{Budget, Packing, Unpacking};
use nearpage_trace::Scratch;

/// A file as it is stored, packed or not.
pub(crate) struct Packed {
    name: String,
    content: Content,
}

enum Content {
    File(Scratch),
    Embedded(&'static [u8]),
}

impl Packed {
    /// Opens a file. What comes through a FIFO or a socket is kept in an unnamed temporary file: it comes only once.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or not be kept.
    #[cfg(unix)]
    pub(crate) fn open(path: &Path) -> io::Result<Packed> {
        use std::fs::{self, File};
        use std::os::unix::fs::FileTypeExt;

        let name = nearpage_machine::shown(path).to_string();
        let kind = fs::metadata(path)?.file_type();
        let file = File::open(path)?;
        if kind.is_fifo() || kind.is_socket() {
            return Packed::kept(name, file);
        }
        let bytes = file.metadata()?.len();
        Ok(Packed { name, content: Content::File(Scratch::of(file, bytes)) })
    }

    /// Opens a file, where there are none.
    ///
    /// # Errors
    ///
    /// Always.
    #[cfg(not(unix))]
    pub(crate) fn open(_: &Path) -> io::Result<Packed> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Keeps what is read.
    ///
    /// # Errors
    ///
    /// The source cannot be read, or the file not be written.
    pub(crate) fn kept(name: String, source: impl Read) -> io::Result<Packed> {
        Ok(Packed { name, content: Content::File(Scratch::keep(source)?) })
    }

    /// The first bytes of what it unpacks to; of a tar archive, its own.
    ///
    /// # Errors
    ///
    /// It cannot be read or unpacked.
    pub(crate) fn beginning(&self, budget: &Budget, most: u64) -> io::Result<Vec<u8>> {
        let begin = |stream: &mut dyn Read| {
            let mut begin = Vec::new();
            stream.take(most).read_to_end(&mut begin)?;
            Ok::<_, io::Error>(begin)
        };
        let own = begin(&mut self.reader())?;
        match Packing::of(&own) {
            None | Some(Packing::Tar) => Ok(own),
            Some(packing) => begin(&mut Unpacking::new(budget).stream(packing, self.reader())?),
        }
    }

    /// A file that is part of this program.
    pub(crate) fn embedded(name: &str, content: &'static [u8]) -> Packed {
        Packed { name: name.into(), content: Content::Embedded(content) }
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.content {
            Content::File(file) => file.bytes(),
            Content::Embedded(content) => content.len() as u64,
        }
    }

    /// Reads it from its beginning.
    pub(crate) fn reader(&self) -> Box<dyn Read + '_> {
        match &self.content {
            Content::File(file) => Box::new(file.reader()),
            Content::Embedded(content) => Box::new(*content),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn text(of: &Packed) -> String {
        let mut text = String::new();
        of.reader().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn each_reader_has_all_of_it() {
        let kept = Packed::kept("-".into(), &b"a trace"[..]).unwrap();
        let mut one = kept.reader();
        let mut begin = [0; 3];
        one.read_exact(&mut begin).unwrap();
        assert_eq!((&begin, &*text(&kept), kept.bytes()), (b"a t", "a trace", 7));
        let mut rest = String::new();
        one.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "race");
        assert_eq!(text(&Packed::embedded("e", b"within")), "within");
    }

    #[test]
    fn a_fifo_is_read_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let writer = std::thread::spawn({
            let path = path.clone();
            move || fs::write(path, "through a pipe").unwrap()
        });
        let packed = Packed::open(&path).unwrap();
        writer.join().unwrap();
        assert_eq!((&*text(&packed), &*text(&packed)), ("through a pipe", "through a pipe"));
    }
}
