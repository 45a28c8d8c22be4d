//! Why a recording could not be read: what is wrong, where, and what would be accepted.

use std::io;

use nearpage_machine::SysfsError;

/// What a path of a recording may be.
pub(super) const EXPECTED: &str = "a bundle (a folder with meta.json, or a tar of one), an oracle JSON, or a folder \
     or tar with proc/ and sys/";

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// A file or folder cannot be opened or read.
    #[error("{input}: {error}")]
    Unreadable {
        /// Its name.
        input: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A file that cannot be unpacked.
    #[error("{input}: {what}: {error}")]
    Packed {
        /// Its name.
        input: String,
        /// What it was taken for.
        what: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// JSON that is damaged or incomplete.
    #[error("{input}:{line}:{column}: {problem}")]
    Json {
        /// The file.
        input: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// A file of a capture is damaged; the message has the place.
    #[error(transparent)]
    File(#[from] SysfsError),
    /// None of the kinds of recordings.
    #[error("{input}: is no recording, expected {EXPECTED}")]
    NoRecording {
        /// Its name.
        input: String,
    },
    /// No capture of the name.
    #[error("{input}: has no capture {wanted}, expected one of: {}", available.join(", "))]
    NoCapture {
        /// The recording.
        input: String,
        /// The name.
        wanted: String,
        /// The captures that there are.
        available: Vec<String>,
    },
    /// A capture without zones, or whose zones lack a value that every prediction needs.
    #[error("{input}: {what}, expected {expected}")]
    Incomplete {
        /// The file.
        input: String,
        /// What is missing.
        what: String,
        /// What is needed.
        expected: &'static str,
    },
}

impl BundleError {
    /// JSON that could not be read.
    pub(super) fn json(input: &str, error: &serde_json::Error) -> BundleError {
        // The message of serde_json ends with the place.
        let text = error.to_string();
        let problem = text.rsplit_once(" at line ").map_or(&*text, |(problem, _)| problem);
        BundleError::Json {
            input: input.into(),
            line: error.line().max(1),
            // The end of a text that ends with a newline is column 0 of the next line.
            column: error.column().max(1),
            problem: problem.into(),
        }
    }
}
