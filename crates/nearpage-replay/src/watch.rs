//! How far the passes over a trace are, and whether the caller wants them to stop.
//!
//! A pass reads the packed file of the trace from its beginning; progress is told in bytes of that file. The wish to
//! stop is asked for between two reads, so a pass ends within some 64 KiB of text.

use std::cell::Cell;
use std::io::{self, Read};

use nearpage_machine::work::Observer;

/// Bytes of a packed file between two reports.
const STEP_BYTES: u64 = 4096;

/// Some passes over one file.
pub(crate) struct Watch<'o> {
    observer: &'o dyn Observer,
    /// Bytes of one pass.
    pass_bytes: u64,
    /// Passes that are expected in all.
    passes: Cell<u64>,
    begun: Cell<u64>,
    done_bytes: Cell<u64>,
    told_bytes: Cell<u64>,
    is_stopped: Cell<bool>,
}

impl<'o> Watch<'o> {
    /// Passes over a file of so many bytes.
    pub(crate) fn new(observer: &'o dyn Observer, pass_bytes: u64, passes: u64) -> Watch<'o> {
        Watch {
            observer,
            pass_bytes,
            passes: Cell::new(passes),
            begun: Cell::new(0),
            done_bytes: Cell::new(0),
            told_bytes: Cell::new(0),
            is_stopped: Cell::new(false),
        }
    }

    /// More passes are needed than was known.
    pub(crate) fn expect_more(&self, passes: u64) {
        self.passes.set(self.passes.get() + passes);
    }

    /// Begins a pass that reads `file`.
    pub(crate) fn pass<R: Read>(&self, file: R) -> Watched<'_, 'o, R> {
        self.done_bytes.set(self.begun.get() * self.pass_bytes);
        self.begun.set(self.begun.get() + 1);
        Watched { file, watch: self, is_counted: true }
    }

    /// Reads a shorter file of the bundle: it can be stopped, and is no pass.
    pub(crate) fn aside<R: Read>(&self, file: R) -> Watched<'_, 'o, R> {
        Watched { file, watch: self, is_counted: false }
    }

    /// Whether the observer asked for an end. What was read since then is not to be used.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    fn note(&self, bytes: u64) -> io::Result<()> {
        let done = self.done_bytes.get() + bytes;
        self.done_bytes.set(done);
        let told = self.told_bytes.get();
        if bytes == 0 || done < told || done - told >= STEP_BYTES {
            self.told_bytes.set(done);
            let all = self.passes.get() * self.pass_bytes;
            if self.observer.progress(done.min(all), all).is_break() {
                self.is_stopped.set(true);
            }
        }
        // The reader above may turn this into an error of its own: `is_stopped` is what counts.
        if self.is_stopped() { Err(io::Error::other("stopped")) } else { Ok(()) }
    }
}

/// A file that is read under watch.
pub(crate) struct Watched<'w, 'o, R> {
    file: R,
    watch: &'w Watch<'o>,
    is_counted: bool,
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = match self.file.read(buffer) {
            // It has worked, and has nothing yet.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.watch.note(0)?;
                return Err(error);
            }
            got => got?,
        };
        self.watch.note(if self.is_counted { got as u64 } else { 0 })?;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn passes_add_up_and_are_stopped() {
        let told = Mutex::new(Vec::new());
        let observer = |done, all| {
            told.lock().unwrap().push((done, all));
            if done < 25_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let file = [7; 10_000];
        let watch = Watch::new(&observer, 10_000, 2);
        let mut read = Vec::new();
        watch.pass(&file[..9000]).read_to_end(&mut read).unwrap();
        watch.expect_more(1);
        watch.pass(&file[..]).read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 19_000);
        assert!(!watch.is_stopped());
        assert!(watch.pass(&file[..]).read_to_end(&mut read).is_err());
        assert!(watch.is_stopped());
        let told = told.into_inner().unwrap();
        assert!(told.is_sorted(), "{told:?}");
        assert_eq!((told[0].1, told.last().unwrap().1), (20_000, 30_000));
    }

    #[test]
    fn a_file_aside_is_no_progress() {
        let observer = |done, _| {
            assert_eq!(done, 0);
            ControlFlow::Break(())
        };
        let watch = Watch::new(&observer, 100, 1);
        assert!(watch.aside(&b"samples"[..]).read_to_end(&mut Vec::new()).is_err());
        assert!(watch.is_stopped());
    }
}
