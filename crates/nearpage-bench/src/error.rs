//! Why nothing, or not all, was measured.

use std::io;

use nearpage_linux::{FRAME_BYTES, MemoryError};
use nearpage_machine::size;
use nearpage_machine::work::Stopped;

use crate::addresses::NoAddresses;
use crate::bench::Bench;
use crate::step::StepError;
use crate::work::zonelist;

/// A zone has at most 2^32 - 1 frames: whole sections of what is below.
pub(crate) const BYTES_MAX: u64 = (1 << 32) * FRAME_BYTES - (1 << 30);

/// Why nothing, or not all, was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// This process does not learn where it may run.
    #[error("cannot tell which CPUs this process may use: {0}")]
    Cpus(#[source] io::Error),
    /// The memory on each node is of a size that does not do.
    #[error("{} on each node: {why}", size::format(*bytes))]
    Size {
        /// The size that was asked for.
        bytes: u64,
        /// What is wrong with it.
        #[source]
        why: SizeError,
    },
    /// Memories of a process cannot have these rules.
    #[error(
        "{0}: its CPUs own pageblocks and free to each other's pagesets, which no CPU of a process can reach, expected \
         another model"
    )]
    Model(&'static str),
    /// The environment, or this machine, does not let memories be made.
    #[error(transparent)]
    Environment(Box<MemoryError>),
    /// There are not enough addresses for emulated nodes.
    #[error(
        "zonelist: its memories reserve {reserved} of addresses, whatever the size of others is, and `ulimit -v` \
         allows {allowed}, expected `ulimit -v unlimited`, or the other benchmarks alone",
        reserved = size::format(*reserved),
        allowed = size::format(*allowed)
    )]
    NoAddressesForNodes {
        /// Bytes of addresses that the nodes need.
        reserved: u64,
        /// Bytes of addresses that this process may reserve.
        allowed: u64,
    },
    /// There are not enough addresses for a memory that holds so many pages.
    #[error(
        "{bench}: a memory that holds {pages} pages reserves {reserved} of addresses, whatever the size of others is, and \
         `ulimit -v` allows {allowed}, expected a higher limit, shorter rounds, or the other benchmarks alone",
        reserved = size::format(*reserved),
        allowed = size::format(*allowed)
    )]
    NoAddressesForPages {
        /// The benchmark.
        bench: Bench,
        /// Pages that it holds.
        pages: usize,
        /// Bytes of addresses that the memory needs.
        reserved: u64,
        /// Bytes of addresses that this process may reserve.
        allowed: u64,
    },
    /// There are no such nodes.
    #[error(
        "zonelist: emulated nodes: {error}; all its memories together reserve {reserved} of addresses, whatever the \
         size of others is",
        reserved = size::format(*reserved)
    )]
    Nodes {
        /// Bytes of addresses that the nodes need.
        reserved: u64,
        /// Why there are none.
        #[source]
        error: Box<MemoryError>,
    },
    /// A step could not be done.
    #[error("{bench}, {allocator}: {error}")]
    Step {
        /// The benchmark.
        bench: Bench,
        /// The allocator that was measured.
        allocator: &'static str,
        /// Why.
        #[source]
        error: StepError,
    },
    /// An allocator refused to take its own pages back.
    #[error("{bench}, {allocator}: {misuses} frees were refused")]
    Refused {
        /// The benchmark.
        bench: Bench,
        /// The allocator.
        allocator: &'static str,
        /// How many frees.
        misuses: u64,
    },
    /// The observer ended the run.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl BenchError {
    pub(crate) fn no_addresses_for_nodes(allowed: u64) -> Self {
        Self::NoAddressesForNodes { reserved: zonelist::ADDRESS_BYTES, allowed }
    }

    pub(crate) fn nodes(error: MemoryError) -> Self {
        Self::Nodes { reserved: zonelist::ADDRESS_BYTES, error: error.into() }
    }
}

/// What is wrong with the size of memories.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// The size is too small for a benchmark.
    #[error("{bench} holds {pages} pages at once, expected {} or more", size::format(*needed))]
    TooSmall {
        /// The benchmark.
        bench: Bench,
        /// Pages that it holds.
        pages: usize,
        /// Bytes that it needs.
        needed: u64,
    },
    /// The size is more than a node can have.
    #[error("a node has at most 2^32 - 1 frames of 4 KiB, expected {}G or less", BYTES_MAX >> 30)]
    TooLarge,
    /// There are not enough addresses for memories of this size.
    #[error(transparent)]
    NoAddresses(Box<NoAddresses>),
    /// There is no such memory.
    #[error(transparent)]
    Memory(Box<MemoryError>),
}
