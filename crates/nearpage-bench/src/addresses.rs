//! Addresses that the memories of a run reserve side by side, and how many this process may reserve (`ulimit -v`).

use std::io;

use nearpage::internals::SECTION_FRAMES;
use nearpage_linux::FRAME_BYTES;
use nearpage_machine::size;

use crate::bench::Bench;

/// Memories of one size that are there at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memories {
    /// The benchmark that has the most.
    pub bench: Bench,
    /// How many, each node's counted for itself.
    pub count: u64,
    /// The size of each.
    pub bytes: u64,
    /// The least size that the benchmarks of the run can do with.
    pub least: u64,
    /// CPUs that a thread each works on.
    pub cpus: u64,
}

/// More memories than there are addresses for.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} reserves {} {} of this size at once, {} of addresses, and {bound}, expected {expected}",
    memories.bench,
    memories.count,
    if memories.count == 1 { "memory" } else { "memories" },
    size::format(memories.all()),
)]
pub struct NoAddresses {
    memories: Memories,
    /// What is less.
    bound: String,
    expected: String,
}

impl Memories {
    /// Whether a process that may reserve `limit` bytes, `None` without a limit, can have these memories. That it has
    /// room for everything beside them is not sure then.
    ///
    /// # Errors
    ///
    /// [`NoAddresses`] if it certainly cannot.
    pub fn check(&self, limit: Option<u64>) -> Result<(), NoAddresses> {
        match limit {
            Some(bytes) if bytes < self.all() => Err(self.beyond(bytes)),
            _ => Ok(()),
        }
    }

    /// What to say when the memories could not be made.
    pub fn refused(&self, limit: Option<u64>, error: &io::Error) -> NoAddresses {
        match limit {
            Some(limit) => self.beyond(limit),
            None => {
                let bound = format!("the kernel gives less: {error}");
                NoAddresses { memories: *self, bound, expected: "a smaller size".into() }
            }
        }
    }

    /// What to say where a limit is the reason.
    fn beyond(&self, limit: u64) -> NoAddresses {
        let bound = format!("`ulimit -v` allows {}", size::format(limit));
        let fitting = self.fitting(limit);
        let expected = if fitting >= self.least {
            format!("{}M or less", fitting / MEBIBYTE)
        } else {
            let (least, limit) = (size::format(self.least), self.limit_for(self.least) / 1024);
            format!(
                "`ulimit -v {limit}` or more, in which the least size that is accepted, {least}, fits"
            )
        };
        NoAddresses { memories: *self, bound, expected }
    }

    fn all(&self) -> u64 {
        self.count.saturating_mul(self.bytes.next_multiple_of(SECTION_BYTES))
    }

    /// The size, in whole sections, of which so many memories fit below a limit with all that is there beside them.
    fn fitting(&self, limit: u64) -> u64 {
        let each = limit.saturating_sub(self.beside()) / self.count.max(1);
        (each - each / TABLES) / SECTION_BYTES * SECTION_BYTES
    }

    /// The limit below which memories of a size fit.
    fn limit_for(&self, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(SECTION_BYTES);
        self.beside() + self.count * (bytes + bytes / (TABLES - 1) + MEBIBYTE)
    }

    /// The program, other memories, what glibc and the kernel give out, and a heap of glibc's a thread.
    fn beside(&self) -> u64 {
        (1 << 30) + self.cpus * (64 << 20)
    }
}

const MEBIBYTE: u64 = 1 << 20;
/// What a memory reserves is a multiple of this.
pub const SECTION_BYTES: u64 = SECTION_FRAMES as u64 * FRAME_BYTES;
/// Of a memory's size, no more than a part in so many is taken for tables.
const TABLES: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const GIBIBYTE: u64 = 1 << 30;

    fn told(limit: u64) -> Result<(), String> {
        let (bytes, least) = (2 * GIBIBYTE, 97 * MEBIBYTE);
        let memories = Memories { bench: Bench::Slab, count: 10, bytes, least, cpus: 2 };
        memories.check(Some(limit)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_size_that_fits_is_named_or_the_limit_in_which_one_does() {
        let start = "slab reserves 10 memories of this size \
                     at once, 20 GiB of addresses, and `ulimit -v`";
        assert_eq!(told(20 * GIBIBYTE), Ok(()));
        assert_eq!(
            told(8_000_000 << 10),
            Err(format!("{start} allows 7.6 GiB, expected 640M or less"))
        );
        let expected = "expected `ulimit -v 2542889` or more, in which the least size that is accepted, 97 MiB, fits";
        assert_eq!(told(2 * GIBIBYTE), Err(format!("{start} allows 2 GiB, {expected}")));
    }

    #[test]
    fn the_least_size_fits_the_limit_that_is_named_for_it() {
        for least in [36, 97, 1025] {
            let least = least * MEBIBYTE;
            let memories =
                Memories { bench: Bench::Bulk, count: 3, bytes: GIBIBYTE, least, cpus: 4 };
            assert!(memories.fitting(memories.limit_for(least) / 1024 * 1024) >= least);
        }
    }
}
