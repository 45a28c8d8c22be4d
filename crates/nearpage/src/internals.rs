//! What the crates beside this one take from within it. Nothing here is promised to stay as it is.
//!
//! None of it lets safe code break an allocator: what is here reads, holds still, or checks what it is asked to do.

pub use crate::alloc::{
    Carver, CpuPagesets, NoLock, PageNote, Plan, Stillness, StoppedPagesets, ZoneHold,
};
pub use crate::arena::{AnyBytes, Arena, Need, OutOfMetadata};
pub use crate::buddy::Insertion;
pub use crate::frame::{LOCKED, WAITERS};
pub use crate::places::{
    bitmap::Bitmap,
    map::{Map, Put},
};
#[cfg(loom)]
pub use crate::sync::model;
pub use crate::sync::{Cell16, Cell32, Cell64, OwnedCounter};
pub use crate::units::{SECTION_FRAMES, SECTION_SHIFT};
pub use crate::waiters::{WaiterTable, Waiters};
pub use crate::zonelist::versions::Versions;
