//! A bundle: its captures, which are kept, and its trace and samples, which are too long for that.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use nearpage_bundle::{BundleError, Recording, RecordingKind};
use nearpage_kcore::State;
use nearpage_machine::work::Stopped;
use nearpage_machine::{each_tar_file, open_beneath, shown};
use nearpage_trace::{TraceError, unpacked};

use crate::error::ReplayError;
use crate::kernel_state::Moment;
use crate::packed::Packed;
use crate::samples::{Sample, parse_samples};
use crate::watch::Watch;

/// Names of the trace: as text, plain and packed, and as trace-cmd and perf keep it.
const TRACE_NAMES: [&str; 6] =
    ["trace.txt.zst", "trace.txt.gz", "trace.txt.bz2", "trace.txt", "trace.dat", "perf.data"];
const SAMPLES_NAMES: [&str; 3] = ["samples.txt.zst", "samples.txt.gz", "samples.txt"];
/// The most that samples are read of: half an hour of a machine with hundreds of pagesets.
const SAMPLES_BYTES_MAX: u64 = 256 << 20;

/// The kernel's own state in a capture.
const STATE: &str = "kernel.json";

/// The bundle that comes along: two nodes under a mixed load, in QEMU.
const SHIPPED: &[u8] = include_bytes!("../bundles/q612-n2-mixed.tar.zst");
const SHIPPED_NAME: &str = "q612-n2-mixed.tar.zst";

/// A recorded machine: captures before and after a load, and the trace of its page allocator between.
///
/// A bundle is a folder with `meta.json`, or a tar of one, plain or compressed by zstd, gzip or bzip2.
pub struct Bundle {
    pub(crate) recording: Recording,
    name: String,
    place: Place,
    /// A trace of its own, instead of the bundle's.
    trace: Option<Packed>,
    /// Whether its state of the kernel is read, if it has one.
    reads_state: bool,
}

/// Where the long files are.
enum Place {
    Folder(PathBuf),
    Archive(Packed),
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let trace = self.trace.as_ref().map(Packed::name);
        f.debug_struct("Bundle").field("name", &self.name).field("trace", &trace).finish()
    }
}

impl Bundle {
    /// Reads the captures of a bundle.
    ///
    /// What comes through a FIFO is kept in an unnamed temporary file, since a replay reads the trace more than once.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is a recording of another kind.
    pub fn open(path: &Path) -> Result<Bundle, ReplayError> {
        if path.is_dir() {
            let recording = Recording::read(path)?;
            return Bundle::of(recording, Place::Folder(path.into()));
        }
        let packed = Packed::open(path).map_err(|error| unreadable(path, error))?;
        Bundle::archived(packed)
    }

    /// Reads a bundle from the beginning of `source` to its end, such as standard input; `name` is for messages.
    /// The source is kept in an unnamed temporary file.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); and if the source cannot be kept.
    pub fn read(name: &str, source: impl Read) -> Result<Bundle, ReplayError> {
        let packed = Packed::kept(name.into(), source);
        Bundle::archived(packed.map_err(|error| unreadable(Path::new(name), error))?)
    }

    /// The small bundle that comes with this crate: Linux 6.12 with two nodes and two CPUs under a mixed load.
    pub fn shipped() -> Bundle {
        let packed = Packed::embedded(SHIPPED_NAME, SHIPPED);
        Bundle::archived(packed).expect("the bundle that comes along is whole")
    }

    fn archived(packed: Packed) -> Result<Bundle, ReplayError> {
        let content = io::BufReader::new(packed.reader());
        let recording = Recording::read_from(packed.name(), content)?;
        Bundle::of(recording, Place::Archive(packed))
    }

    fn of(recording: Recording, place: Place) -> Result<Bundle, ReplayError> {
        let name = match &place {
            Place::Folder(path) => shown(path).to_string(),
            Place::Archive(packed) => packed.name().into(),
        };
        if recording.kind != RecordingKind::Bundle {
            let expected = "a bundle: a folder with meta.json and trace.txt.zst, or a tar of one";
            let what = "is a recording without a trace".into();
            return Err(ReplayError::incomplete(&name, what, expected));
        }
        Ok(Bundle { recording, name, place, trace: None, reads_state: true })
    }

    /// The same bundle with another trace: the text of ftrace's `trace` file, of `trace-cmd report` or of
    /// `perf script`, plain or packed.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn with_trace(self, path: &Path) -> Result<Bundle, ReplayError> {
        let trace = Packed::open(path).map_err(|error| unreadable(path, error))?;
        Ok(Bundle { trace: Some(trace), ..self })
    }

    /// The same bundle with a trace that is read from `source` to its end; `name` is for messages.
    ///
    /// # Errors
    ///
    /// The source cannot be read or kept.
    pub fn with_trace_from(self, name: &str, source: impl Read) -> Result<Bundle, ReplayError> {
        let trace = Packed::kept(name.into(), source);
        let trace = trace.map_err(|error| unreadable(Path::new(name), error))?;
        Ok(Bundle { trace: Some(trace), ..self })
    }

    /// The same bundle without the kernel's own state: what pagesets held at the start is guessed.
    #[must_use]
    pub fn without_state(self) -> Bundle {
        Bundle { reads_state: false, ..self }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The captures.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The name of the trace, if it is not the bundle's own.
    pub(crate) fn other_trace(&self) -> Option<&str> {
        self.trace.as_ref().map(Packed::name)
    }

    /// Bytes of the file that a pass over the trace reads; 0 if there is none.
    pub(crate) fn pass_bytes(&self) -> u64 {
        match (&self.trace, &self.place) {
            (Some(packed), _) | (None, Place::Archive(packed)) => packed.bytes(),
            (None, Place::Folder(folder)) => {
                let mut sizes = TRACE_NAMES
                    .iter()
                    .filter_map(|name| open_beneath(folder, name).ok()??.metadata().ok());
                sizes.next().map_or(0, |file| file.len())
            }
        }
    }

    /// Makes a pass: calls `f` with the text of the trace and its name.
    ///
    /// # Errors
    ///
    /// There is no trace, it cannot be opened or unpacked, or what `f` says; [`ReplayError::Stopped`].
    pub(crate) fn with_trace_text<R>(
        &self,
        watch: &Watch<'_>,
        f: impl FnOnce(&str, &mut dyn Read) -> Result<R, ReplayError>,
    ) -> Result<R, ReplayError> {
        let read = |name: String, file: &mut dyn Read| {
            let text = unpacked(file).map_err(|error| unpack_error(&name, error))?;
            // The file of a binary trace has been read by now, and a packed one may be short: the text is what takes time.
            f(&name, &mut watch.aside(text))
        };
        let done = match &self.trace {
            Some(packed) => read(packed.name().into(), &mut watch.pass(packed.reader())),
            None => self.with_file(&TRACE_NAMES, |file| watch.pass(file), read).and_then(|done| {
                let expected =
                    "trace.txt, trace.txt.zst, trace.txt.gz, trace.txt.bz2, trace.dat or perf.data";
                done.ok_or_else(|| {
                    ReplayError::incomplete(&self.name, "has no trace".into(), expected)
                })
            }),
        };
        unless_stopped(watch, done)
    }

    /// The samples; none if the bundle has none.
    ///
    /// # Errors
    ///
    /// They cannot be read, or are damaged; [`ReplayError::Stopped`].
    pub(crate) fn samples(&self, watch: &Watch<'_>) -> Result<Vec<Sample>, ReplayError> {
        let read = |name: String, file: &mut dyn Read| {
            let mut text = String::new();
            let unpacked = unpacked(file)
                .and_then(|unpacked| unpacked.take(SAMPLES_BYTES_MAX).read_to_string(&mut text));
            unpacked.map_err(|error| unpack_error(&name, error))?;
            parse_samples(&name, &text)
        };
        let samples = self.with_file(&SAMPLES_NAMES, |file| watch.aside(file), read);
        Ok(unless_stopped(watch, samples)?.unwrap_or_default())
    }

    /// Whether its state of the kernel may be read.
    pub(crate) fn reads_state(&self) -> bool {
        self.reads_state
    }

    /// The kernel's own state at a moment, if the bundle has it.
    ///
    /// # Errors
    ///
    /// It is damaged.
    pub(crate) fn state(&self, moment: Moment) -> Result<Option<State>, ReplayError> {
        let captures = self.recording.captures.iter();
        let capture = captures.filter(|_| self.reads_state).find(|of| of.name == moment.capture());
        let Some(capture) = capture else { return Ok(None) };
        let name = || format!("{}: {}", self.name, moment.file());
        let text =
            capture.tree.read(STATE).map_err(|error| unreadable(Path::new(&name()), error))?;
        let state = text.map(|text| serde_json::from_slice(&text)).transpose();
        state.map_err(|error| {
            let what = format!("is no state of a kernel: {error}");
            ReplayError::incomplete(&name(), what, "what nearpage record writes")
        })
    }

    /// Calls `f` with the first of some files that the bundle has. `watched` puts the stored file under watch.
    fn with_file<'b, R, W: Read + 'b>(
        &'b self,
        names: &[&str],
        watched: impl FnOnce(Box<dyn Read + 'b>) -> W,
        f: impl FnOnce(String, &mut dyn Read) -> Result<R, ReplayError>,
    ) -> Result<Option<R>, ReplayError> {
        let archive = match &self.place {
            Place::Archive(packed) => packed,
            Place::Folder(folder) => {
                for name in names {
                    let path = folder.join(name);
                    match open_beneath(folder, name) {
                        Ok(Some(file)) => {
                            return f(shown(&path).to_string(), &mut watched(Box::new(file)))
                                .map(Some);
                        }
                        Ok(None) => {}
                        Err(error) => return Err(unreadable(&path, error)),
                    }
                }
                return Ok(None);
            }
        };
        let broken = |error| unpack_error(&self.name, error);
        let file = watched(Box::new(archive.reader()));
        let (mut f, mut done) = (Some(f), None);
        let found = each_tar_file(unpacked(file).map_err(broken)?, |path, content| {
            let is_wanted = path.rsplit('/').next().is_some_and(|name| names.contains(&name));
            let Some(f) = f.take_if(|_| is_wanted) else { return Ok(ControlFlow::Continue(())) };
            done = Some(f(format!("{}: {}", self.name, shown(path)), content));
            Ok(ControlFlow::Break(()))
        });
        match done {
            Some(done) => done.map(Some),
            None => found.map(|()| None).map_err(broken),
        }
    }
}

/// What was read until the observer asked for an end is part of a file, and no answer.
fn unless_stopped<R>(watch: &Watch<'_>, result: Result<R, ReplayError>) -> Result<R, ReplayError> {
    if watch.is_stopped() { Err(Stopped.into()) } else { result }
}

fn unreadable(path: &Path, error: io::Error) -> ReplayError {
    BundleError::Unreadable { input: shown(path).to_string(), error }.into()
}

fn unpack_error(name: &str, source: io::Error) -> ReplayError {
    TraceError::Unreadable { input: name.into(), offset: 0, source }.into()
}

#[cfg(test)]
mod tests {
    use nearpage_machine::work::Unwatched;

    use super::*;

    #[test]
    fn a_bundle_is_read_from_any_reader() {
        let bundle = Bundle::read("standard input", SHIPPED).unwrap();
        let watch = Watch::new(&Unwatched, bundle.pass_bytes(), 2);
        for _ in 0..2 {
            let begin = bundle.with_trace_text(&watch, |name, text| {
                assert!(
                    name.starts_with("standard input: ") && name.ends_with("trace.txt"),
                    "{name}"
                );
                let mut begin = [0; 10];
                text.read_exact(&mut begin).expect("the trace is longer");
                Ok(begin)
            });
            assert_eq!(&begin.unwrap(), b"# tracer: ");
        }
        assert!(!bundle.samples(&watch).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_bundle_is_refused() {
        let refused = |content: &[u8]| Bundle::read("-", content).unwrap_err().to_string();
        assert!(refused(b"no bundle").contains("is no recording"));
        assert!(refused(&SHIPPED[..SHIPPED.len() / 2]).contains("-: "), "cut off");
        let error = Bundle::open(Path::new("/proc/version")).unwrap_err().to_string();
        assert!(error.contains("/proc/version") && error.contains("is no recording"), "{error}");
    }
}
