//! Which storage a memory has, and why.

use std::fmt;

use crate::environment::Environment;
use crate::rseq::{Area, RseqUnavailable};

/// How the CPUs' caches are kept to one thread at a time, and why so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageInUse {
    /// Restartable sequences.
    Rseq,
    /// A try-lock per CPU, because restartable sequences are not available.
    LockedBecause(RseqUnavailable),
    /// A try-lock per CPU, by choice.
    LockedByChoice,
}

impl StorageInUse {
    /// Restartable sequences if they are wanted and available, or why not.
    pub(crate) fn choose(use_rseq: bool) -> Result<Area, StorageInUse> {
        if !use_rseq {
            return Err(Self::LockedByChoice);
        }
        Area::of_glibc().map_err(Self::LockedBecause)
    }

    /// The storage that a memory of this process would have.
    pub fn of_this_process(environment: &Environment) -> StorageInUse {
        let chosen = Self::choose(environment.use_rseq.unwrap_or(true));
        chosen.map_or_else(|locked| locked, |_| Self::Rseq)
    }
}

impl fmt::Display for StorageInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rseq => f.write_str("rseq (restartable sequences, registered by the C library)"),
            Self::LockedBecause(why) => write!(f, "locked (a try-lock per CPU; {why})"),
            Self::LockedByChoice => {
                f.write_str("locked (a try-lock per CPU; NEARPAGE_RSEQ=off, or chosen)")
            }
        }
    }
}
