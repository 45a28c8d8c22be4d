//! What a walk over an allocator found.

use core::fmt;

use crate::buddy::BuddyError;
use crate::frame::Word;
use crate::units::{CpuId, NodeId, PageCount, Pfn, ZoneKind};
use crate::waiters::AwaitedBit;

/// What the walker counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Pages on free lists.
    pub free: PageCount,
    /// Pages in pagesets.
    pub cached: PageCount,
    /// Pages in somebody's hands.
    pub allocated: PageCount,
}

/// What the walker found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The buddy of a zone is not in order.
    Buddy {
        /// The zone's node.
        node: NodeId,
        /// The zone's kind.
        kind: ZoneKind,
        /// What is wrong.
        error: BuddyError,
    },
    /// A pageset list does not hold what its count says.
    ListCount {
        /// The CPU.
        cpu: CpuId,
        /// The list.
        list: usize,
        /// The count.
        counted: u32,
        /// Blocks found.
        found: u32,
    },
    /// A pageset does not hold what its count says.
    PagesetCount {
        /// The CPU.
        cpu: CpuId,
        /// The count.
        counted: PageCount,
        /// Pages found on its lists.
        found: PageCount,
    },
    /// A pageblock that is whole, and has free pages of its own in its map.
    WholeInPart {
        /// Its first frame.
        pfn: Pfn,
    },
    /// A pageblock is on the list of those that a CPU owns and that have pieces in the zone, and is not the CPU's, or the
    /// list is broken.
    OwnedBlock {
        /// The CPU.
        cpu: CpuId,
        /// The pageblock.
        pfn: Pfn,
    },
    /// A block stands in two places, or on a list although somebody holds it.
    Twice {
        /// The block.
        pfn: Pfn,
        /// What its word says.
        word: Word,
    },
    /// A block lies within another.
    Overlap {
        /// The inner block.
        pfn: Pfn,
        /// What its word says.
        word: Word,
        /// The outer block.
        within: Pfn,
    },
    /// A frame is online and in no place at all.
    Lost {
        /// The frame.
        pfn: Pfn,
        /// What its word says.
        word: Word,
    },
    /// The pages found in a zone are not those that it was given.
    Total {
        /// The zone's node.
        node: NodeId,
        /// The zone's kind.
        kind: ZoneKind,
        /// Pages that the zone was given.
        managed: PageCount,
        /// What was found.
        found: Checked,
    },
    /// A page that nobody holds is locked, or said to be waited for.
    Locked {
        /// The page.
        pfn: Pfn,
        /// What its word says.
        word: Word,
    },
    /// Somebody waits for a page in the wrong bucket, or the page's word does not say so.
    Waiter {
        /// What is waited for.
        key: AwaitedBit,
    },
    /// The published free pages of a zone are not those on its lists.
    Published {
        /// The zone's node.
        node: NodeId,
        /// The zone's kind.
        kind: ZoneKind,
        /// What is published.
        published: PageCount,
        /// What is there.
        free: PageCount,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buddy { node, kind, error } => {
                write!(f, "node {node}, zone {}: {error}", kind.name())
            }
            Self::ListCount { cpu, list, counted, found } => {
                write!(f, "CPU {cpu}, list {list}: {found} blocks, counted {counted}")
            }
            Self::PagesetCount { cpu, counted, found } => {
                write!(f, "CPU {cpu}: {found} pages in a pageset, counted {counted}")
            }
            Self::WholeInPart { pfn } => {
                write!(f, "the pageblock at frame {pfn} is whole, and free in part")
            }
            Self::OwnedBlock { cpu, pfn } => {
                write!(f, "the pageblock at frame {pfn} is listed as CPU {cpu}'s, and is not")
            }
            Self::Twice { pfn, word } => {
                write!(f, "frame {pfn}: in two places; its word is {word:?}")
            }
            Self::Overlap { pfn, word, within } => {
                write!(f, "frame {pfn}, {word:?}: lies within the block at {within}")
            }
            Self::Lost { pfn, word } => write!(f, "frame {pfn}, {word:?}: online and nowhere"),
            Self::Total { node, kind, managed, found } => {
                write!(
                    f,
                    "node {node}, zone {}: {managed} pages managed, found {found:?}",
                    kind.name()
                )
            }
            Self::Locked { pfn, word } => {
                write!(f, "frame {pfn}, {word:?}: locked or waited for, and in nobody's hands")
            }
            Self::Waiter { key } => write!(f, "a waiter that nobody would wake: {key:?}"),
            Self::Published { node, kind, published, free } => write!(
                f,
                "node {node}, zone {}: {published} free pages published, {free} on the lists",
                kind.name()
            ),
        }
    }
}

impl core::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Buddy { error, .. } => Some(error),
            _ => None,
        }
    }
}
