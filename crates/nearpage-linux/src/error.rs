//! Why a memory could not be made, or could not grow or shrink.

use std::io;

use nearpage::{BuildError, NodeId, OfflineError, OnlineError, TopologyError};
use nearpage_slab::SlabBuildError;
use rustix::io::Errno;

use crate::environment::EnvironmentError;
use crate::huge::HUGE_PAGE_BYTES;

/// Why a memory could not be made, or could not grow or shrink.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The environment is not understood, or the machine that it names cannot be read.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The nodes contradict each other.
    #[error("the topology is not one: {0}")]
    Topology(#[source] TopologyError),
    /// The core refused to make an allocator.
    #[error(transparent)]
    Build(BuildError),
    /// The slab allocator cannot be made.
    #[error(transparent)]
    Slab(SlabBuildError),
    /// There is no such node.
    #[error("node {node} is not in the topology")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// More was to come online than a node's reserve has left.
    #[error("{asked} bytes to bring online on node {node}: its reserve has {left} left")]
    ReserveUsedUp {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// Bytes left.
        left: u64,
    },
    /// A size below one page.
    #[error(
        "{asked} bytes to {what} on node {node}: that is no page; {least} or more are accepted"
    )]
    NoPage {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// The least that is accepted.
        least: u64,
        /// The operation.
        what: &'static str,
    },
    /// The kernel reserved no addresses.
    #[error(
        "{bytes} bytes of addresses could not be reserved: {error}; ask for less, or look at \
         `ulimit -v`"
    )]
    NoAddresses {
        /// Bytes asked for.
        bytes: u64,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// The kernel gave no memory for a node.
    #[error(
        "the kernel gave no {bytes} bytes for node {node}: {error}; ask for less, or look at \
         `ulimit -v`, vm.overcommit_memory, and for explicit huge pages vm.nr_hugepages"
    )]
    NoMemory {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        bytes: u64,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// Strict binding was asked for, and the kernel refused to bind.
    #[error(
        "strict binding to node {node} is refused: {error}; {}, and the mode `advisory` goes on without",
        binding_advice(error)
    )]
    CannotBind {
        /// The node.
        node: NodeId,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// A size of explicit huge pages that is not a multiple of theirs.
    #[error(
        "{bytes} bytes of explicit huge pages for node {node}: a multiple of {HUGE_PAGE_BYTES} is accepted"
    )]
    NotHugePages {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        bytes: u64,
    },
    /// Strict binding was asked for on nodes that the kernel does not know.
    #[error(
        "strict binding was asked for on emulated nodes, which the kernel does not know; the \
         modes `advisory` and `none` are accepted"
    )]
    CannotBindEmulated,
    /// The core refused the range.
    #[error(transparent)]
    Online(OnlineError),
    /// More was to go offline than is online.
    #[error("{asked} bytes to take offline on node {node}: it has {online} online")]
    NotOnline {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that are online.
        online: u64,
    },
    /// The core refused to take the range offline.
    #[error("{}{error}", rounding(*node, *asked, *rounded))]
    Offline {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// The same, rounded up to whole pageblocks.
        rounded: u64,
        /// The reason.
        #[source]
        error: OfflineError,
    },
}

/// What to do about a refusal of `mbind`.
fn binding_advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        // man 2 mbind: no node of the mask is online, in the cpuset and with memory.
        Some(Errno::INVAL) => {
            "the kernel has no such node with memory, or the cpuset of this process does not allow it \
             (`Mems_allowed_list` in /proc/self/status lists those it does)"
        }
        Some(Errno::NOSYS) => "this kernel was built without NUMA",
        _ => "containers allow mbind with CAP_SYS_NICE",
    }
}

/// What became of a size that is not one of whole pageblocks.
fn rounding(node: NodeId, asked: u64, rounded: u64) -> String {
    if asked == rounded {
        return String::new();
    }
    format!("{asked} bytes to take offline on node {node} are {rounded} in whole pageblocks; ")
}
