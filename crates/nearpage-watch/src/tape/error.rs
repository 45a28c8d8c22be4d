//! Why a tape cannot be played or written.

use std::io;

/// A tape cannot be played or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapeError {
    /// It is some other file.
    #[error("{name}: no recording of nearpage top: its first bytes are others")]
    NoTape {
        /// The file.
        name: String,
    },
    /// It is no file that keeps what is written to it, such as a device or a folder.
    #[error("{name}: no regular file: a recording of nearpage top is one")]
    NoFile {
        /// What was named.
        name: String,
    },
    /// It was written by a later version.
    #[error(
        "{name}: a recording of version {found}, expected {known}: play it with the nearpage that wrote it"
    )]
    Version {
        /// The file.
        name: String,
        /// Its version.
        found: u32,
        /// The version that can be played.
        known: u32,
    },
    /// It ends before the first sample.
    #[error("{name}: ends before its first sample")]
    Empty {
        /// The file.
        name: String,
    },
    /// Its header is no header.
    #[error("{name}: damaged: {what} is wrong")]
    Damaged {
        /// The file.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Another process writes to it.
    #[error("{name}: another process records to it")]
    Busy {
        /// The file.
        name: String,
    },
    /// It was made with another size.
    #[error(
        "{name}: has room for {found} bytes, expected {asked}: record to another file, or with its size"
    )]
    OtherSize {
        /// The file.
        name: String,
        /// Its size.
        found: u64,
        /// The size that was asked for.
        asked: u64,
    },
    /// It is longer than any tape, or a sample is larger than a slot.
    #[error("{name}: {what}")]
    TooLarge {
        /// The file.
        name: String,
        /// What is too large.
        what: &'static str,
    },
    /// It cannot be read or written.
    #[error("{name}: {error}")]
    Io {
        /// The file.
        name: String,
        /// What the system says.
        error: io::Error,
    },
}
