//! Why no allocator can be made.

use core::fmt;

use crate::model::PageblockOwners;
use crate::units::{CpuId, NodeId, PfnRange};
use crate::watermark::SettingError;

/// Why an allocator could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// No node of the topology has memory.
    NoMemory,
    /// A CPU id is too large for a table by id.
    CpuIdTooLarge {
        /// The id.
        cpu: CpuId,
    },
    /// A zone spans more frames than a frame number can tell apart: 2^32 - 1.
    ZoneTooLarge {
        /// The node.
        node: NodeId,
        /// The zone's span.
        span: PfnRange,
    },
    /// There are more zones than numbers for zones: 2^14.
    TooManyZones {
        /// Zones of the topology, its instances counted.
        zones: usize,
    },
    /// The memory of the topology lies too far apart for a table of sections.
    SpanTooLarge {
        /// From the first to the last frame.
        span: PfnRange,
    },
    /// The buffer for a node is smaller than [`metadata_size`](crate::metadata_size) says.
    BufferTooSmall {
        /// The node.
        node: NodeId,
        /// Bytes that were given.
        given: usize,
        /// Bytes that are needed.
        needed: usize,
    },
    /// A setting is out of range.
    Setting(SettingError),
    /// The model is one of other rules than the host has ([`Platform::Rules`](crate::platform::Platform::Rules)).
    OtherRules {
        /// Who owns pageblocks by the model.
        asked: PageblockOwners,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("no node of the topology has memory; at least one must"),
            Self::CpuIdTooLarge { cpu } => {
                write!(f, "CPU id {cpu} is too large; ids up to {} are accepted", CPU_ID_MAX)
            }
            Self::ZoneTooLarge { node, span } => write!(
                f,
                "a zone of node {node} spans frames {span}; at most 2^32 - 1 frames are accepted"
            ),
            Self::TooManyZones { zones } => {
                write!(f, "{zones} zones; at most 2^14 are accepted")
            }
            Self::SpanTooLarge { span } => write!(
                f,
                "memory lies in frames {span}; at most {SECTIONS_MAX} sections from first to last are accepted"
            ),
            Self::BufferTooSmall { node, given, needed } => write!(
                f,
                "the metadata buffer for node {node} has {given} bytes and needs {needed}"
            ),
            Self::Setting(error) => error.fmt(f),
            Self::OtherRules { asked } => write!(
                f,
                "the model has {asked:?} for owners of pageblocks; this host was compiled for other rules (`Platform::Rules`)"
            ),
        }
    }
}

impl core::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Setting(error) => Some(error),
            _ => None,
        }
    }
}

/// Largest CPU id: a table of pointers by id stays below 8 MiB.
pub(super) const CPU_ID_MAX: u32 = (1 << 20) - 1;
/// Most sections from the first to the last frame: 1 PiB of addresses, a table of 192 MiB.
pub(super) const SECTIONS_MAX: u64 = 1 << 23;
