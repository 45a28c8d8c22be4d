//! A bundle: its captures, which are kept, and its trace and samples, which are too long for that.

use std::io::{self, Read};
use std::path::Path;

use nearpage_bundle::{BundleError, Recording, RecordingKind};
use nearpage_kcore::State;
use nearpage_machine::{Budget, read_within};
use nearpage_trace::{begins_trace, unpacked_within};

use crate::alone::{beginning, lost_sentence};
use crate::error::ReplayError;
use crate::kernel_state::Moment;
use crate::packed::Packed;
use crate::samples::{Sample, parse_samples};
use crate::source::{Place, Source, unless_stopped, unpack_error, unreadable};
use crate::watch::Watch;

const SAMPLES_NAMES: [&str; 3] = ["samples.txt.zst", "samples.txt.gz", "samples.txt"];

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
    source: Source,
    /// Whether its state of the kernel is read, if it has one.
    reads_state: bool,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let trace = self.other_trace();
        f.debug_struct("Bundle").field("name", &self.name()).field("trace", &trace).finish()
    }
}

/// Whether a file is a trace, by its first lines.
fn is_trace(packed: &Packed, budget: &Budget) -> bool {
    const BYTES: u64 = 64 << 10;
    beginning(packed, budget, BYTES).is_ok_and(|beginning| begins_trace(&beginning))
}

const EXPECTED: &str = "a bundle: a folder with meta.json and trace.txt.zst, or a tar of one; nearpage whatif --machine plays a trace \
                        alone, nearpage trace export --trace and trace summary take one";

impl Bundle {
    /// Reads the captures of a bundle.
    ///
    /// What comes through a FIFO is kept in an unnamed temporary file, since a replay reads the trace more than once.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is a recording of another kind.
    pub fn open(path: &Path, budget: &Budget) -> Result<Bundle, ReplayError> {
        if path.is_dir() {
            let recording = Recording::read(path, budget)?;
            return Bundle::of(recording, Place::Folder(path.into()), budget);
        }
        let packed = Packed::open(path).map_err(|error| unreadable(path, error))?;
        Bundle::archived(packed, budget)
    }

    /// Reads a bundle from the beginning of `source` to its end, such as standard input; `name` is for messages.
    /// The source is kept in an unnamed temporary file.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); and if the source cannot be kept.
    pub fn read(name: &str, source: impl Read, budget: &Budget) -> Result<Bundle, ReplayError> {
        let packed = Packed::kept(name.into(), source);
        Bundle::archived(packed.map_err(|error| unreadable(Path::new(name), error))?, budget)
    }

    /// The small bundle that comes with this crate: Linux 6.12 with two nodes and two CPUs under a mixed load.
    pub fn shipped() -> Bundle {
        let packed = Packed::embedded(SHIPPED_NAME, SHIPPED);
        Bundle::archived(packed, &Budget::DEFAULT).expect("the bundle that comes along is whole")
    }

    pub(crate) fn archived(packed: Packed, budget: &Budget) -> Result<Bundle, ReplayError> {
        let content = io::BufReader::new(packed.reader());
        let recording = Recording::read_from(packed.name(), content, budget);
        let recording = recording.map_err(|error| match error {
            BundleError::NoRecording { input } if is_trace(&packed, budget) => {
                let what = "is a trace without captures of its machine".into();
                ReplayError::incomplete(&input, what, EXPECTED)
            }
            error => error.into(),
        })?;
        Bundle::of(recording, Place::Archive(packed), budget)
    }

    /// A bundle that was read, and where its long files are.
    fn of(recording: Recording, place: Place, budget: &Budget) -> Result<Bundle, ReplayError> {
        let source = Source::new(place, budget);
        if recording.kind != RecordingKind::Bundle {
            let what = "is a recording without a trace".into();
            return Err(ReplayError::incomplete(source.name(), what, EXPECTED));
        }
        Ok(Bundle { recording, source, reads_state: true })
    }

    /// The same bundle with another trace: the text of ftrace's `trace` file, of `trace-cmd report` or of
    /// `perf script`, plain or packed.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn with_trace(self, path: &Path) -> Result<Bundle, ReplayError> {
        let trace = Packed::open(path).map_err(|error| unreadable(path, error))?;
        Ok(Bundle { source: self.source.with_trace(trace), ..self })
    }

    /// The same bundle with a trace that is read from `source` to its end; `name` is for messages.
    ///
    /// # Errors
    ///
    /// The source cannot be read or kept.
    pub fn with_trace_from(self, name: &str, source: impl Read) -> Result<Bundle, ReplayError> {
        let trace = Packed::kept(name.into(), source);
        let trace = trace.map_err(|error| unreadable(Path::new(name), error))?;
        Ok(Bundle { source: self.source.with_trace(trace), ..self })
    }

    /// The same bundle without the kernel's own state: what pagesets held at the start is guessed.
    #[must_use]
    pub fn without_state(self) -> Bundle {
        Bundle { reads_state: false, ..self }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The captures.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Its trace and other long files.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// What of its load was not recorded, in a sentence.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.recording().lost_events;
        (lost > 0).then(|| lost_sentence(lost))
    }

    /// The name of the trace, if it is not the bundle's own.
    pub(crate) fn other_trace(&self) -> Option<&str> {
        self.source.other_trace()
    }

    /// As [`Source::pass_bytes`].
    pub(crate) fn pass_bytes(&self) -> u64 {
        self.source.pass_bytes()
    }

    /// As [`Source::with_trace_text`].
    pub(crate) fn with_trace_text<R>(
        &self,
        watch: &Watch<'_>,
        f: impl FnOnce(&str, &mut dyn Read) -> Result<R, ReplayError>,
    ) -> Result<R, ReplayError> {
        self.source.with_trace_text(watch, f)
    }

    /// The samples; none if the bundle has none.
    ///
    /// # Errors
    ///
    /// They cannot be read, or are damaged; [`ReplayError::Stopped`].
    pub(crate) fn samples(&self, watch: &Watch<'_>) -> Result<Vec<Sample>, ReplayError> {
        let unpacking = self.source.unpacking();
        let read = |name: String, file: &mut dyn Read| {
            let text = unpacked_within(file, &unpacking)
                .and_then(|text| read_within(text, unpacking.budget().input_bytes))
                .and_then(|text| String::from_utf8(text).map_err(io::Error::other));
            parse_samples(&name, &text.map_err(|error| unpack_error(&name, error))?)
        };
        let watched = |file| watch.aside(file);
        let samples = self.source.with_file(&SAMPLES_NAMES, &unpacking, watched, read);
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
        let name = || format!("{}: {}", self.name(), moment.file());
        let text =
            capture.tree.read(STATE).map_err(|error| unreadable(Path::new(&name()), error))?;
        let state = text.map(|text| serde_json::from_slice(&text)).transpose();
        state.map_err(|error| {
            let what = format!("is no state of a kernel: {error}");
            ReplayError::incomplete(&name(), what, "what nearpage record writes")
        })
    }
}

#[cfg(test)]
mod tests {
    use nearpage_machine::work::Unwatched;

    use super::*;

    #[test]
    fn a_bundle_is_read_from_any_reader() {
        let bundle = Bundle::read("standard input", SHIPPED, &Budget::DEFAULT).unwrap();
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
        let refused =
            |content: &[u8]| Bundle::read("-", content, &Budget::DEFAULT).unwrap_err().to_string();
        assert!(refused(b"no bundle").contains("is no recording"));
        assert!(refused(&SHIPPED[..SHIPPED.len() / 2]).contains("-: "), "cut off");
        let error =
            Bundle::open(Path::new("/proc/version"), &Budget::DEFAULT).unwrap_err().to_string();
        assert!(error.contains("/proc/version") && error.contains("is no recording"), "{error}");
    }
}
