//! A CPU, and its stack for a cache.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};

use nearpage::internals::OwnedCounter;
use nearpage::platform::{CountedList, Platform, Storage};
use nearpage::{CpuId, NodeIndex};

use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tag::Tag;

/// A CPU: its node, and what makes its stacks exclusive.
pub(super) struct SlabCpu<P: Platform> {
    pub(super) id: CpuId,
    pub(super) node: NodeIndex,
    pub(super) effective: AtomicU16,
    /// Stacks of a CPU that is off stay empty.
    pub(super) is_on: AtomicBool,
    /// The node whose alien stack is drained in the next round of reaping.
    pub(super) reap_node: AtomicU16,
    pub(super) exclusion: <P::Storage as Storage>::PerCpu,
}

impl<P: Platform> SlabCpu<P> {
    pub(super) fn effective(&self) -> NodeIndex {
        NodeIndex(self.effective.load(Ordering::Relaxed))
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

/// A CPU's stack for a cache: one line, all that the fast path touches of a cache.
#[repr(C, align(64))]
pub(super) struct CpuStack<'m, P: SlabPlatform> {
    pub(super) stack: <P::Storage as ObjectStorage>::Stack<'m>,
    pub(super) exclusion: &'m <P::Storage as Storage>::PerCpu,
    /// What the frames of objects say that belong here: the cache, and the effective node of the CPU.
    pub(super) tag: AtomicU32,
    /// A refill since the last round of reaping.
    pub(super) refilled: AtomicU32,
    /// Pops until the last round of reaping.
    pub(super) pops_reaped: OwnedCounter,
}

impl<P: SlabPlatform> CpuStack<'_, P> {
    #[inline(always)]
    pub(super) fn tag(&self) -> Tag {
        Tag(self.tag.load(Ordering::Relaxed))
    }
}

/// Whether a stack was taken from since the last round of reaping.
pub(super) fn is_touched<P: SlabPlatform>(stack: &CpuStack<'_, P>) -> bool {
    stack.refilled.load(Ordering::Relaxed) != 0
        || stack.stack.counts().pops != stack.pops_reaped.get()
}
