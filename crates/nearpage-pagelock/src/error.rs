//! What page locks refuse, and why.

use core::fmt;

use nearpage::Pfn;

/// Why a page was not locked, unlocked or waited for. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PageLockError {
    /// No memory of this allocator has this frame number.
    Foreign {
        /// The frame.
        pfn: Pfn,
    },
    /// The page is in no allocated block.
    NotAllocated {
        /// The frame.
        pfn: Pfn,
    },
    /// An unlock of a page that is not locked.
    NotLocked {
        /// The frame.
        pfn: Pfn,
    },
    /// The word waited for, or woken by, lies in no memory of this allocator.
    OutsideMemory {
        /// Its address.
        address: u64,
    },
    /// The word has no such bit.
    NoSuchBit {
        /// The bit.
        bit: u32,
        /// Bits that the word has.
        bits: u32,
    },
    /// The time was up.
    TimedOut,
    /// The host cancelled the wait ([`Parked::Cancelled`](crate::Parked::Cancelled)).
    Cancelled,
}

impl fmt::Display for PageLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Foreign { pfn } => {
                write!(f, "page {pfn} has no lock: it belongs to no memory of this allocator")
            }
            Self::NotAllocated { pfn } => {
                write!(f, "page {pfn} has no lock: it is not in an allocated block")
            }
            Self::NotLocked { pfn } => write!(f, "unlock of page {pfn}: it is not locked"),
            Self::OutsideMemory { address } => write!(
                f,
                "bit of the word at {address:#x}: the address is in no memory of this allocator"
            ),
            Self::NoSuchBit { bit, bits } => {
                write!(f, "bit {bit} of a word of {bits} bits, which are counted from 0")
            }
            Self::TimedOut => {
                f.write_str("wait for a page, or for a bit of a word: the time was up")
            }
            Self::Cancelled => f.write_str("wait for a page, or for a bit of a word: cancelled"),
        }
    }
}

impl core::error::Error for PageLockError {}
