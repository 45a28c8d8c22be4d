//! Where the text of a trace comes from, and the other long files of a bundle: read from the beginning, pass after pass.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use nearpage_bundle::BundleError;
use nearpage_machine::work::Stopped;
use nearpage_machine::{Budget, Unpacking, each_tar_file, open_beneath, shown};
use nearpage_trace::{TraceError, unpacked_within};

use crate::error::ReplayError;
use crate::packed::Packed;
use crate::watch::Watch;

/// Names of the trace: as text, plain and packed, and as trace-cmd and perf keep it.
const TRACE_NAMES: [&str; 6] =
    ["trace.txt.zst", "trace.txt.gz", "trace.txt.bz2", "trace.txt", "trace.dat", "perf.data"];

/// The long files of a bundle, or a trace alone.
pub(crate) struct Source {
    name: String,
    place: Place,
    /// A trace of its own, instead of the bundle's.
    trace: Option<Packed>,
    budget: Budget,
}

/// Where they are.
pub(crate) enum Place {
    Folder(PathBuf),
    Archive(Packed),
    /// There is no bundle.
    Alone(Packed),
}

/// What a trace has to do with captures of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kinship {
    /// It was recorded with them.
    Own,
    /// It was given for them.
    Given,
    /// There are none.
    Alone,
}

impl Source {
    /// The files at a place.
    pub(crate) fn new(place: Place, budget: &Budget) -> Source {
        let name = match &place {
            Place::Folder(path) => shown(path).to_string(),
            Place::Archive(packed) | Place::Alone(packed) => packed.name().into(),
        };
        Source { name, place, trace: None, budget: *budget }
    }

    /// The same with another trace.
    pub(crate) fn with_trace(self, trace: Packed) -> Source {
        Source { trace: Some(trace), ..self }
    }

    /// A pass over its files.
    pub(crate) fn unpacking(&self) -> Unpacking {
        Unpacking::new(&self.budget)
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of the trace, if it is not the bundle's own.
    pub(crate) fn other_trace(&self) -> Option<&str> {
        self.trace.as_ref().map(Packed::name)
    }

    /// What the trace has to do with captures.
    pub(crate) fn kinship(&self) -> Kinship {
        match (&self.trace, &self.place) {
            (Some(_), _) => Kinship::Given,
            (None, Place::Alone(_)) => Kinship::Alone,
            (None, Place::Folder(_) | Place::Archive(_)) => Kinship::Own,
        }
    }

    /// Bytes of the file that a pass over the trace reads; 0 if there is none.
    pub(crate) fn pass_bytes(&self) -> u64 {
        match (&self.trace, &self.place) {
            (Some(packed), _) | (None, Place::Archive(packed) | Place::Alone(packed)) => {
                packed.bytes()
            }
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
        let unpacking = self.unpacking();
        let read = |name: String, file: &mut dyn Read| {
            let text =
                unpacked_within(file, &unpacking).map_err(|error| unpack_error(&name, error))?;
            // The file of a binary trace has been read by now, and a packed one may be short: the text is what takes time.
            f(&name, &mut watch.aside(text))
        };
        let done = match (&self.trace, &self.place) {
            (Some(packed), _) | (None, Place::Alone(packed)) => {
                read(packed.name().into(), &mut watch.pass(packed.reader()))
            }
            (None, _) => {
                self.with_file(&TRACE_NAMES, &unpacking, |file| watch.pass(file), read).and_then(|done| {
                    let expected =
                        "trace.txt, trace.txt.zst, trace.txt.gz, trace.txt.bz2, trace.dat or perf.data";
                    done.ok_or_else(|| {
                        ReplayError::incomplete(&self.name, "has no trace".into(), expected)
                    })
                })
            }
        };
        unless_stopped(watch, done)
    }

    /// Calls `f` with the first of some files that a bundle has. `watched` puts the stored file under watch.
    pub(crate) fn with_file<'b, R, W: Read + 'b>(
        &'b self,
        names: &[&str],
        unpacking: &Unpacking,
        watched: impl FnOnce(Box<dyn Read + 'b>) -> W,
        f: impl FnOnce(String, &mut dyn Read) -> Result<R, ReplayError>,
    ) -> Result<Option<R>, ReplayError> {
        let archive = match &self.place {
            Place::Archive(packed) => packed,
            Place::Alone(_) => return Ok(None),
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
        let found =
            each_tar_file(unpacked_within(file, unpacking).map_err(broken)?, |path, content| {
                let is_wanted = path.rsplit('/').next().is_some_and(|name| names.contains(&name));
                let Some(f) = f.take_if(|_| is_wanted) else {
                    return Ok(ControlFlow::Continue(()));
                };
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
pub(crate) fn unless_stopped<R>(
    watch: &Watch<'_>,
    result: Result<R, ReplayError>,
) -> Result<R, ReplayError> {
    if watch.is_stopped() { Err(Stopped.into()) } else { result }
}

/// A file that cannot be opened or kept.
pub(crate) fn unreadable(path: &Path, error: io::Error) -> ReplayError {
    BundleError::Unreadable { input: shown(path).to_string(), error }.into()
}

/// A file that cannot be unpacked.
pub(crate) fn unpack_error(name: &str, source: io::Error) -> ReplayError {
    TraceError::Unreadable { input: name.into(), offset: 0, source }.into()
}
