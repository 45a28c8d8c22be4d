//! What the core refuses, and why.

use core::fmt;

use crate::frame::FrameState;
use crate::gfp::Gfp;
use crate::units::{CpuId, MAX_ORDER, NodeId, Order, PageCount, Pfn, PfnRange};

/// Why an allocation failed. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocError {
    /// The order is above [`MAX_ORDER`].
    OrderTooLarge {
        /// The order asked for.
        order: Order,
    },
    /// Bulk gives single pages.
    BulkOrder {
        /// The order asked for.
        order: Order,
    },
    /// The flags contradict each other: two of DMA, HIGHMEM and DMA32, or MOVABLE with RECLAIMABLE.
    BadFlags {
        /// The flags.
        gfp: Gfp,
    },
    /// The topology has no such node.
    UnknownNode {
        /// The node asked for.
        node: NodeId,
    },
    /// `__GFP_THISNODE` on a node that has no memory for this request.
    MemorylessNode {
        /// The node asked for.
        node: NodeId,
        /// The flags.
        gfp: Gfp,
    },
    /// A request on behalf of a CPU that the topology does not have.
    UnknownCpu {
        /// The CPU.
        cpu: CpuId,
    },
    /// No node of a set has memory; of a policy's set, none that is in the cpuset.
    EmptyNodeSet {
        /// Which set.
        set: SetOfNodes,
    },
    /// A size in bytes that no block can have.
    SizeOverflow {
        /// The size asked for.
        bytes: u64,
    },
    /// More pages than a block can have.
    TooManyPages {
        /// How many were asked for.
        pages: u64,
    },
    /// No zone that the request may use has so many free pages one behind the other. What is in use is not moved away.
    NoRange {
        /// The node that was preferred.
        node: NodeId,
        /// Pages asked for.
        pages: PageCount,
        /// What the first was to be aligned to.
        align: Order,
        /// The flags.
        gfp: Gfp,
    },
    /// A zone had room, and a hard limit did not let the block leave.
    LimitReached {
        /// Whose limit.
        limit: LimitOf,
        /// The limit.
        pages: PageCount,
        /// The order asked for.
        order: Order,
        /// The flags.
        gfp: Gfp,
    },
    /// No zone that the request may use has a block above its watermark.
    OutOfMemory {
        /// The node that was preferred.
        node: NodeId,
        /// The order asked for.
        order: Order,
        /// The flags.
        gfp: Gfp,
        /// Zones looked at.
        zones: u16,
        /// Free pages in those zones, above and below their watermarks.
        free: PageCount,
        /// Zones refused because they were below their watermark.
        below_watermark: u16,
        /// Zones that passed their watermark and had no block of the order.
        fragmented: u16,
    },
}

/// A set of nodes that a request comes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetOfNodes {
    /// The policy's.
    Policy,
    /// The cpuset.
    Allowed,
}

/// What a limit is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitOf {
    /// A node.
    Node(NodeId),
    /// All nodes together.
    Allocator,
}

impl fmt::Display for LimitOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Allocator => f.write_str("the allocator"),
        }
    }
}

/// The topology has no such node. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownNode {
    /// The node asked for.
    pub node: NodeId,
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} is not in the topology", self.node)
    }
}

impl core::error::Error for UnknownNode {}

/// Why there are no such limits. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LimitError {
    /// The topology has no such node.
    UnknownNode(UnknownNode),
    /// The soft limit, in whole pages, is not below the hard limit: nothing would ever reach it.
    SoftNotBelowHard {
        /// Whose limits.
        of: LimitOf,
        /// The soft limit.
        soft: PageCount,
        /// The hard limit.
        hard: PageCount,
    },
}

impl From<UnknownNode> for LimitError {
    fn from(error: UnknownNode) -> Self {
        Self::UnknownNode(error)
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode(error) => error.fmt(f),
            Self::SoftNotBelowHard { of, soft, hard } => write!(
                f,
                "limits of {of}: the soft limit, {soft} pages, must be below the hard limit, {hard} pages"
            ),
        }
    }
}

impl core::error::Error for LimitError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::UnknownNode(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OrderTooLarge { order } => {
                write!(f, "order {order} is too large: 0 to {MAX_ORDER} are possible")
            }
            Self::BulkOrder { order } => {
                write!(f, "order {order} in bulk: bulk requests are for single pages, order 0")
            }
            Self::BadFlags { gfp } => write!(
                f,
                "flags {gfp} contradict each other: at most one of __GFP_DMA, __GFP_HIGHMEM and \
                 __GFP_DMA32, and not both of __GFP_MOVABLE and __GFP_RECLAIMABLE"
            ),
            Self::UnknownNode { node } => UnknownNode { node }.fmt(f),
            Self::UnknownCpu { cpu } => write!(f, "CPU {cpu} is not in the topology"),
            Self::EmptyNodeSet { set: SetOfNodes::Policy } => f.write_str(
                "no node of the policy's set has memory and is allowed: at least one must",
            ),
            Self::EmptyNodeSet { set: SetOfNodes::Allowed } => {
                f.write_str("no node of the cpuset has memory: at least one must")
            }
            Self::MemorylessNode { node, gfp } => {
                write!(
                    f,
                    "node {node} has no memory for {gfp}, and __GFP_THISNODE allows no other node"
                )
            }
            Self::SizeOverflow { bytes } => write!(
                f,
                "{bytes} bytes are more than the largest block, {} pages",
                MAX_ORDER.pages()
            ),
            Self::TooManyPages { pages } => {
                write!(f, "{pages} pages in a block: 1 to {} are possible", MAX_ORDER.pages())
            }
            Self::NoRange { node, pages, align, gfp } => write!(
                f,
                "no {pages} pages in one piece, aligned to order {align}, for {gfp} preferring node {node}"
            ),
            Self::LimitReached { limit, pages, order, gfp } => write!(
                f,
                "no block of order {order} for {gfp}: with it, more than the {pages} pages of the hard limit of \
                 {limit} would be in use"
            ),
            Self::OutOfMemory { node, order, gfp, zones: 0, .. } => write!(
                f,
                "no block of order {order} for {gfp} preferring node {node}: there is no zone that it may use; \
                 memory that is offline, of a higher kind of zone, or of a private node that the request does \
                 not name does not count"
            ),
            Self::OutOfMemory { node, order, gfp, zones, free, below_watermark, fragmented } => {
                write!(
                    f,
                    "no block of order {order} for {gfp} preferring node {node}: zones that it may use: {zones}, with \
                     {free} free pages; below their watermark: {below_watermark}; without a block that large: {fragmented}"
                )
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// Why a free was refused. The page stays where it is: with its holder, or free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreeError {
    /// No memory of this allocator has this frame number.
    Foreign {
        /// The frame.
        pfn: Pfn,
    },
    /// The frame is not aligned to the order given.
    Misaligned {
        /// The frame.
        pfn: Pfn,
        /// The order given.
        order: Order,
    },
    /// The order given is above [`MAX_ORDER`].
    OrderTooLarge {
        /// The frame.
        pfn: Pfn,
        /// The order given.
        order: Order,
    },
    /// The frame is the head of an allocated block of another order.
    WrongOrder {
        /// The frame.
        pfn: Pfn,
        /// The order given.
        order: Order,
        /// The order that it was allocated with.
        allocated: Order,
    },
    /// The frame is not the head of an allocated block: it was freed before, or never allocated.
    NotAllocated {
        /// The frame.
        pfn: Pfn,
        /// The order given.
        order: Order,
        /// What the frame is instead.
        state: FrameState,
    },
    /// The page is locked, or somebody waits for its lock.
    Locked {
        /// The frame.
        pfn: Pfn,
        /// The order given.
        order: Order,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Foreign { pfn } => {
                write!(f, "free of frame {pfn}: it belongs to no memory of this allocator")
            }
            Self::Misaligned { pfn, order } => {
                write!(f, "free of frame {pfn}: not aligned to order {order}")
            }
            Self::OrderTooLarge { pfn, order } => {
                write!(
                    f,
                    "free of frame {pfn}: order {order} is too large, 0 to {MAX_ORDER} are possible"
                )
            }
            Self::WrongOrder { pfn, order, allocated } => write!(
                f,
                "free of frame {pfn} with order {order}: it was allocated with order {allocated}; the \
                 block stays allocated"
            ),
            Self::NotAllocated { pfn, order, state } => {
                let what = match state {
                    FrameState::Blank => "it is not the head of an allocated block",
                    FrameState::Free | FrameState::Cached | FrameState::Owned => {
                        "it is free already (double free), or inside a block"
                    }
                    FrameState::Allocated => {
                        "another thread freed it in the same instant (double free)"
                    }
                };
                write!(f, "free of frame {pfn} with order {order}: {what}")
            }
            Self::Locked { pfn, order } => write!(
                f,
                "free of frame {pfn} with order {order}: its page is locked or waited for; the block stays \
                 allocated"
            ),
        }
    }
}

impl core::error::Error for FreeError {}

/// Why memory could not be brought online. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OnlineError {
    /// The range has no page.
    Empty {
        /// The range.
        range: PfnRange,
    },
    /// Part of the range is not in the topology's memory.
    NotInTopology {
        /// The range.
        range: PfnRange,
    },
    /// Part of the range is online already.
    AlreadyOnline {
        /// The range.
        range: PfnRange,
    },
    /// The topology has no such node.
    UnknownNode {
        /// The node.
        node: NodeId,
    },
}

impl fmt::Display for OnlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { range } => {
                write!(f, "frames {range} to bring online: the range is empty")
            }
            Self::NotInTopology { range } => {
                write!(
                    f,
                    "frames {range} to bring online: not all of them are memory of the topology"
                )
            }
            Self::AlreadyOnline { range } => {
                write!(f, "frames {range} to bring online: some of them are online already")
            }
            Self::UnknownNode { node } => UnknownNode { node: *node }.fmt(f),
        }
    }
}

impl core::error::Error for OnlineError {}

/// Why memory could not be taken offline. It is online as before, all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OfflineError {
    /// The range has no page.
    Empty {
        /// The range.
        range: PfnRange,
    },
    /// Part of the range is not online.
    NotOnline {
        /// The range.
        range: PfnRange,
    },
    /// A pageblock lies partly in the range, or is shared by zones: only whole pageblocks go, as far as they are
    /// online.
    PartOfPageblock {
        /// The range.
        range: PfnRange,
        /// A frame of that pageblock within the range.
        pfn: Pfn,
    },
    /// Pages are in use: with callers, or cached by a CPU that could not be stopped.
    InUse {
        /// How many.
        pages: PageCount,
        /// The first of them.
        first: Pfn,
        /// A CPU that could not be drained, if there was one.
        undrained: Option<CpuId>,
    },
    /// The topology has no such node.
    UnknownNode {
        /// The node.
        node: NodeId,
    },
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { range } => {
                write!(f, "frames {range} to take offline: the range is empty")
            }
            Self::NotOnline { range } => {
                write!(f, "frames {range} to take offline: some of them are not online")
            }
            Self::PartOfPageblock { range, pfn } => write!(
                f,
                "frames {range} to take offline: the pageblock of frame {pfn} has other memory that is online, or \
                 memory of another zone; ranges of whole pageblocks of one zone are accepted"
            ),
            Self::InUse { pages, first, undrained } => {
                write!(
                    f,
                    "memory to take offline: {pages} pages are in use, the first is frame {first}"
                )?;
                match undrained {
                    Some(cpu) => write!(f, "; the pagesets of CPU {cpu} could not be drained"),
                    None => Ok(()),
                }
            }
            Self::UnknownNode { node } => UnknownNode { node }.fmt(f),
        }
    }
}

impl core::error::Error for OfflineError {}

/// Why a range of pages could not be allocated. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RangeError {
    /// No page was asked for, or more than frame numbers reach.
    Empty {
        /// Where they were to begin.
        start: Pfn,
        /// How many.
        pages: PageCount,
    },
    /// Part of the range is a hole of the machine, or offline.
    NotOnline {
        /// The first frame of that part.
        first: Pfn,
    },
    /// Part of the range is of another zone than its first page, or in a pageblock that zones share.
    OtherZone {
        /// The first frame of that part.
        first: Pfn,
    },
    /// Pages are in use: with callers, cached by a CPU that could not be stopped, or about to go to somebody who takes a range.
    InUse {
        /// How many.
        pages: PageCount,
        /// The first of them.
        first: Pfn,
        /// A CPU that could not be drained, if there was one.
        undrained: Option<CpuId>,
    },
    /// No zone has so many free pages one behind the other there.
    NoRoom {
        /// Where they were to lie.
        range: PfnRange,
        /// Pages asked for.
        pages: PageCount,
        /// What the first was to be aligned to.
        align: Order,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { start, pages } => {
                write!(
                    f,
                    "{pages} pages from frame {start} on: a range has pages, up to the last frame number"
                )
            }
            Self::NotOnline { first } => {
                write!(f, "a range of pages: frame {first} is not memory that is online")
            }
            Self::OtherZone { first } => write!(
                f,
                "a range of pages: frame {first} is another zone's, or shares its pageblock with one; a range lies in one zone"
            ),
            Self::InUse { pages, first, undrained } => {
                write!(
                    f,
                    "a range of pages: {pages} of them are in use, the first is frame {first}"
                )?;
                match undrained {
                    Some(cpu) => write!(f, "; the pagesets of CPU {cpu} could not be drained"),
                    None => Ok(()),
                }
            }
            Self::NoRoom { range, pages, align } => write!(
                f,
                "no {pages} free pages in one piece, aligned to order {align}, in frames {range}"
            ),
        }
    }
}

impl core::error::Error for RangeError {}
