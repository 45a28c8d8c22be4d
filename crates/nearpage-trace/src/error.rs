//! Why a trace could not be read.

use std::io;

/// What a trace is expected to be.
pub(super) const EXPECTED: &str = "the text of ftrace's trace file, of trace-cmd report or of perf script, a trace.dat, a perf.data or a trace of Perfetto, plain or packed";

/// A trace that cannot be read. Offsets are of the text, unpacked, from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened, read or unpacked any further.
    #[error("{input}: byte {offset}: {source}")]
    Unreadable {
        /// Its name.
        input: String,
        /// How much of the text came before.
        offset: u64,
        /// Why not.
        source: io::Error,
    },
    /// Something that is no text of a trace.
    #[error("{input}: byte {offset}: found {found:?}, expected {expected}")]
    Syntax {
        /// Its name.
        input: String,
        /// Where.
        offset: u64,
        /// What stands there, shortened.
        found: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// A text without events.
    #[error("{input}: byte {offset}: the text ends without an event, expected {EXPECTED}")]
    Empty {
        /// Its name.
        input: String,
        /// Its length.
        offset: u64,
    },
    /// A text with events of which something is missing.
    #[error("{input}: byte {offset}: {lacks}")]
    Lacking {
        /// Its name.
        input: String,
        /// Where the first of them is.
        offset: u64,
        /// What it is, and what would print what is missing.
        lacks: &'static str,
    },
}
