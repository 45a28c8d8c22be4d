//! How much readers take of inputs that strangers made: all bounds of bytes, in one place.

use std::io::{self, ErrorKind, Read};

use crate::size;

/// What readers may take of one input. The fields are what a user who trusts an input may raise; the constants hold for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// What a packed stream may unpack to at any ratio, with all that is packed within it.
    pub unpacked_bytes: u64,
    /// What is kept in memory of what a file unpacks to or names, beside [`KEPT_RATIO`](Self::KEPT_RATIO) times its length.
    /// Captures of the largest machines have some 30 MiB, and a tenth packed.
    pub kept_bytes: u64,
    /// The window of a stream of xz or zstd, which is held beside all else. `xz -9` takes as much.
    pub window_bytes: u64,
    /// A file of a copied tree, a table of costs, a trace of the lab. A `/proc/zoneinfo` of thousands of CPUs has a few MiB.
    pub file_bytes: u64,
    /// A description of a machine, a recording that is no archive, the samples of a bundle. A plain archive that
    /// describes 512 CPUs has about half of the default, a compressed one far less.
    pub input_bytes: u64,
}

impl Budget {
    /// What holds where nobody says more.
    pub const DEFAULT: Budget = Budget {
        unpacked_bytes: 64 << 20,
        kept_bytes: 24 << 20,
        window_bytes: 64 << 20,
        file_bytes: 64 << 20,
        input_bytes: 256 << 20,
    };

    /// How much longer than itself a stream may unpack to beyond [`unpacked_bytes`](Self::unpacked_bytes). deflate cannot do
    /// more; texts of kernels shrink to a tenth.
    pub const RATIO: u64 = 1000;
    /// How often a file's length may be kept beside [`kept_bytes`](Self::kept_bytes).
    pub const KEPT_RATIO: u64 = 16;
    /// What may stand between the content of a member of an archive and that of the next: headers and long names.
    pub const HEADERS_BYTES: u64 = 256 << 10;
    /// A member that is kept costs so much beside its name and content.
    pub const MEMBER_BYTES: u64 = 256;
    /// A scenario of the lab. The longest that comes along has a few KiB.
    pub const SCENARIO_BYTES: u64 = 1 << 20;
    /// The slots of a tape of `top`, which is read as a whole.
    pub const TAPE_BYTES: u64 = 1 << 30;
    /// A line of a trace.
    pub const LINE_BYTES: usize = 1 << 20;
    /// Ids of the events of a `perf.data`.
    pub const IDS: u64 = 1 << 20;
    /// Of a time without events, a model's ticks in so many seconds at its end are made, in twice as many all.
    pub const GAP_SECONDS: u64 = 512;

    /// The same, with `bytes` wherever a field has less.
    #[must_use]
    pub const fn raised_to(self, bytes: u64) -> Budget {
        const fn larger(one: u64, other: u64) -> u64 {
            if one > other { one } else { other }
        }
        Budget {
            unpacked_bytes: larger(self.unpacked_bytes, bytes),
            kept_bytes: larger(self.kept_bytes, bytes),
            window_bytes: larger(self.window_bytes, bytes),
            file_bytes: larger(self.file_bytes, bytes),
            input_bytes: larger(self.input_bytes, bytes),
        }
    }
}

/// All of a content of at most `bytes_max`, a field of a budget.
///
/// # Errors
///
/// It cannot be read, or is longer: the message says what raises the field.
pub fn read_within(content: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    read(content, bytes_max, || too_long(bytes_max))
}

/// All of a content of at most `bytes_max`, which nothing raises.
///
/// # Errors
///
/// It cannot be read, or is longer.
pub fn read_at_most(content: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let message = || format!("longer than {}", size::format(bytes_max));
    read(content, bytes_max, || io::Error::new(ErrorKind::FileTooLarge, message()))
}

fn read(
    content: impl Read,
    bytes_max: u64,
    too_long: impl FnOnce() -> io::Error,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    content.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_long()) } else { Ok(bytes) }
}

/// The error of what is longer than a field of a budget.
fn too_long(bytes_max: u64) -> io::Error {
    let message = format!("longer than {}; --limit SIZE raises it", size::format(bytes_max));
    io::Error::new(ErrorKind::FileTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_raised_and_never_lowered() {
        assert_eq!(Budget::DEFAULT.raised_to(1), Budget::DEFAULT);
        let raised = Budget::DEFAULT.raised_to(100 << 20);
        assert_eq!((raised.file_bytes, raised.input_bytes), (100 << 20, 256 << 20));
        assert_eq!(read_within(&b"four"[..], 4).unwrap(), b"four");
        let longer = read_within(&b"fives"[..], 4).unwrap_err().to_string();
        assert_eq!(longer, "longer than 4 B; --limit SIZE raises it");
    }
}
