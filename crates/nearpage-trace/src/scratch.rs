//! Bytes that are kept while something is read: in an unnamed temporary file, or in memory where there is no Unix.

use std::io::{self, Read, Write};

use content::Content;
#[cfg(unix)]
pub use maker::{MakeFile, make_scratch_files_by};

/// Bytes that are written once, one after the other, and read at any place.
#[derive(Debug)]
pub struct Scratch {
    content: Content,
    bytes: u64,
}

impl Scratch {
    /// A place for bytes, in the folder for temporary files ([`std::env::temp_dir`]), or of whoever makes files for this process.
    ///
    /// # Errors
    ///
    /// There can be no file.
    pub fn new() -> io::Result<Scratch> {
        Ok(Scratch { content: Content::new()?, bytes: 0 })
    }

    /// Keeps what comes from a stream.
    ///
    /// # Errors
    ///
    /// It cannot be read or kept.
    pub fn keep(mut stream: impl Read) -> io::Result<Scratch> {
        let mut scratch = Scratch::new()?;
        io::copy(&mut stream, &mut scratch)?;
        Ok(scratch)
    }

    /// A file of so many bytes.
    #[cfg(unix)]
    pub fn of(file: std::fs::File, bytes: u64) -> Scratch {
        Scratch { content: Content(file), bytes }
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of a place: fewer only at the end.
    ///
    /// # Errors
    ///
    /// What the system says, or an end that comes early.
    pub fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let mut reader = FromBegin { scratch: self, at };
        reader.read_exact(buffer)
    }

    /// A reader from the beginning, whoever else reads.
    pub fn reader(&self) -> impl Read {
        FromBegin { scratch: self, at: 0 }
    }
}

impl Write for Scratch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.content.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct FromBegin<'s> {
    scratch: &'s Scratch,
    at: u64,
}

impl Read for FromBegin<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.scratch.content.read_at(buffer, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// Who makes the files.
#[cfg(unix)]
mod maker {
    use std::fs::File;
    use std::io;
    use std::sync::OnceLock;

    /// Makes an unnamed file.
    pub type MakeFile = fn() -> io::Result<File>;

    static MAKE: OnceLock<MakeFile> = OnceLock::new();

    pub(super) fn scratch_file() -> io::Result<File> {
        MAKE.get().map_or_else(tempfile::tempfile, |make| make())
    }

    /// From now on this makes the unnamed files of the process, which may have given up the right to do so itself. The first call
    /// counts.
    pub fn make_scratch_files_by(make: MakeFile) {
        let _ = MAKE.set(make);
    }
}

#[cfg(unix)]
mod content {
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::unix::fs::FileExt;

    #[derive(Debug)]
    pub(super) struct Content(pub File);

    impl Content {
        pub fn new() -> io::Result<Content> {
            super::maker::scratch_file().map(Content)
        }

        pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        pub fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            self.0.read_at(buffer, at)
        }
    }
}

#[cfg(not(unix))]
mod content {
    use std::io::{self, Read};

    #[derive(Debug)]
    pub(super) struct Content(Vec<u8>);

    impl Content {
        pub fn new() -> io::Result<Content> {
            Ok(Content(Vec::new()))
        }

        pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Memory that is not there is an error here, as a full disk is.
            self.0.try_reserve(bytes.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        pub fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.0.len());
            (&self.0[at..]).read(buffer)
        }
    }
}
