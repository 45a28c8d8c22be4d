//! The seam: what the core needs from the place that it runs in.

pub use crate::frame::ZoneFrames;
pub use crate::host::{
    Access, CompactEffort, Compacted, Lock, NodeReclaimed, Parked, ParkedThread, Platform, Shortage,
};
pub use crate::pcp::serial::{
    CpuLock, CurrentCpu, Exclusion, LinkedList, Locked, SerialStorage, Single, TryLock,
};
pub use crate::pcp::storage::{CountedList, EachList, ListCounts, Pop, Push, Storage};
pub use crate::single::{ChosenCpu, SingleLock, SingleStorage, SingleThreaded};
