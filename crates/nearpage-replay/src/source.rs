//! The files of a bundle that are too long to be kept: its trace and its samples.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nearpage_machine::shown;
use nearpage_machine::sysfs::TextFile;
use nearpage_machine::sysfs::zoneinfo::{self, ZoneRecord};

use super::error::ReplayError;
use nearpage_bundle::{BundleError, Recording, RecordingKind};
use nearpage_trace::{TraceError, unpacked};

/// Names of the trace, plain and packed.
const TRACE_NAMES: [&str; 4] = ["trace.txt.zst", "trace.txt.gz", "trace.txt.bz2", "trace.txt"];
const SAMPLES_NAMES: [&str; 3] = ["samples.txt.zst", "samples.txt.gz", "samples.txt"];
/// The most that samples are read of: half an hour of a machine with hundreds of pagesets.
const SAMPLES_BYTES_MAX: u64 = 256 << 20;

/// A bundle whose captures were read, and where its long files are.
pub struct Bundle {
    /// The captures.
    pub recording: Recording,
    path: PathBuf,
    is_folder: bool,
    /// A trace of its own, instead of the bundle's.
    trace: Option<PathBuf>,
}

/// `/proc/zoneinfo` at one moment of the window.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its number, as the markers have it.
    pub number: u32,
    /// The zones.
    pub zones: Vec<ZoneRecord>,
}

impl Bundle {
    /// Reads the captures of a bundle. `trace` is read instead of its own trace, if given.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is a recording of another kind.
    pub fn open(path: &Path, trace: Option<&Path>) -> Result<Bundle, ReplayError> {
        let recording = Recording::read(path)?;
        if recording.kind != RecordingKind::Bundle {
            return Err(ReplayError::Incomplete {
                input: shown(path).to_string(),
                what: "is a recording without a trace".into(),
                expected: "a bundle: a folder with meta.json and trace.txt.zst, or a tar of one",
            });
        }
        let trace = trace.map(Path::to_path_buf);
        Ok(Bundle { recording, path: path.into(), is_folder: path.is_dir(), trace })
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        shown(&self.path).to_string()
    }

    /// Calls `f` with the text of the trace and its name.
    ///
    /// # Errors
    ///
    /// There is no trace, it cannot be opened or unpacked, or what `f` says.
    pub fn with_trace<R>(
        &self,
        f: impl FnOnce(&str, &mut dyn Read) -> Result<R, ReplayError>,
    ) -> Result<R, ReplayError> {
        let read = |name: String, file: &mut dyn Read| {
            let mut text = unpacked(file).map_err(|error| unpack_error(&name, error))?;
            f(&name, &mut text)
        };
        if let Some(path) = &self.trace {
            let mut file = File::open(path).map_err(|error| unreadable(path, error))?;
            return read(shown(path).to_string(), &mut file);
        }
        self.with_file(&TRACE_NAMES, read)?.ok_or_else(|| ReplayError::Incomplete {
            input: self.name(),
            what: "has no trace".into(),
            expected: "trace.txt, trace.txt.zst, trace.txt.gz or trace.txt.bz2",
        })
    }

    /// The samples; none if the bundle has none.
    ///
    /// # Errors
    ///
    /// They cannot be read, or are damaged.
    pub fn samples(&self) -> Result<Vec<Sample>, ReplayError> {
        let read = |name: String, file: &mut dyn Read| {
            let mut text = String::new();
            let unpacked = unpacked(file)
                .and_then(|unpacked| unpacked.take(SAMPLES_BYTES_MAX).read_to_string(&mut text));
            unpacked.map_err(|error| unpack_error(&name, error))?;
            parse_samples(&name, &text)
        };
        Ok(self.with_file(&SAMPLES_NAMES, read)?.unwrap_or_default())
    }

    /// Calls `f` with the first of some files that the bundle has.
    fn with_file<R>(
        &self,
        names: &[&str],
        f: impl FnOnce(String, &mut dyn Read) -> Result<R, ReplayError>,
    ) -> Result<Option<R>, ReplayError> {
        if self.is_folder {
            for name in names {
                let path = self.path.join(name);
                match File::open(&path) {
                    Ok(mut file) => return f(shown(&path).to_string(), &mut file).map(Some),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(unreadable(&path, error)),
                }
            }
            return Ok(None);
        }
        let file = File::open(&self.path).map_err(|error| unreadable(&self.path, error))?;
        let broken = |error| unpack_error(&self.name(), error);
        let mut archive = tar::Archive::new(unpacked(file).map_err(broken)?);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let path = entry.path().map_err(broken)?.into_owned();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if names.contains(&name) && entry.header().entry_type().is_file() {
                let name = format!("{}: {}", self.name(), shown(&path));
                return f(name, &mut entry).map(Some);
            }
        }
        Ok(None)
    }
}

fn unreadable(path: &Path, error: io::Error) -> ReplayError {
    BundleError::Unreadable { input: shown(path).to_string(), error }.into()
}

fn unpack_error(name: &str, error: io::Error) -> ReplayError {
    TraceError::Unreadable { input: name.into(), offset: 0, error }.into()
}

/// Reads texts that begin with `# sample 3 uptime 12.5`.
fn parse_samples(name: &str, text: &str) -> Result<Vec<Sample>, ReplayError> {
    let mut samples = Vec::new();
    for part in text.split("# sample ").skip(1) {
        let (heading, zones) = part.split_once('\n').unwrap_or((part, ""));
        let number = heading.split_whitespace().next().and_then(|word| word.parse().ok());
        let Some(number) = number else {
            return Err(ReplayError::Incomplete {
                input: name.into(),
                what: format!("found {heading:?} after # sample"),
                expected: "the number of the sample",
            });
        };
        let file = TextFile { name: format!("{name}: sample {number}"), text: zones.into() };
        let zones = zoneinfo::parse(&file).map_err(BundleError::from)?;
        samples.push(Sample { number, zones });
    }
    if samples.is_empty() && !text.trim().is_empty() {
        return Err(ReplayError::Incomplete {
            input: format!("{name}: byte 0"),
            what: "has no samples".into(),
            expected: "# sample K uptime S, then the text of /proc/zoneinfo",
        });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_apart() {
        let text = "# sample 1 uptime 2.5\nNode 0, zone      DMA\n  pages free     7\n# sample 2 uptime 3.0\n";
        let samples = parse_samples("s", text).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].number, samples[0].zones[0].free), (1, Some(7)));
        assert!(parse_samples("s", "# sample x\n").is_err());
        assert!(parse_samples("s", "\0\0").is_err());
        assert!(parse_samples("s", "\n").unwrap().is_empty());
    }
}
