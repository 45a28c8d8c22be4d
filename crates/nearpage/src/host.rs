//! The one seam: what the core needs from the place it runs in.
//!
//! A host implements [`Platform`] and [`crate::pcp::Storage`]; everything is static dispatch. The core
//! calls the platform with no lock held, except [`Platform::touch`] and [`Platform::touch_page`].

use crate::alloc::RuleSet;
use crate::error::FreeError;
use crate::gfp::Gfp;
use crate::pcp::Storage;
use crate::units::{NodeId, Order, PageCount, Pfn, ZoneKind};
use crate::waiters::Waiters;

/// A mutual exclusion lock around a value. Hosts with interrupts pass one that disables them.
pub trait Lock<T> {
    /// Access to the value; dropping it unlocks.
    type Guard<'a>: core::ops::DerefMut<Target = T>
    where
        Self: 'a,
        T: 'a;

    /// An unlocked lock.
    fn new(value: T) -> Self;

    /// Waits for the lock.
    fn lock(&self) -> Self::Guard<'_>;
}

/// How the core touches a cache line, for hosts that charge for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A plain read.
    Read,
    /// A plain write.
    Write,
    /// An atomic read-modify-write.
    Atomic,
}

/// Why memory is short: what the core tells a host that it asks for help.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shortage {
    /// The node that the request preferred, or that is below its watermark.
    pub node: NodeId,
    /// The highest zone kind that the request may use.
    pub kind: ZoneKind,
    /// The order asked for.
    pub order: Order,
    /// The flags of the request.
    pub gfp: Gfp,
}

/// How hard compaction tries. `include/linux/compaction.h: enum compact_priority`, 6.12.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CompactEffort {
    /// Never waits.
    Async,
    /// Waits for little.
    SyncLight,
    /// Waits for all that can be moved.
    SyncFull,
}

/// What compaction did. `include/linux/compaction.h: enum compact_result`, 6.12.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compacted {
    /// Nothing: there is not enough free memory to move pages to.
    Skipped,
    /// Nothing: it failed too often lately.
    Deferred,
    /// It went over the zones and made no block that is large enough.
    Failed,
    /// It made a block that is large enough.
    Success,
}

/// What reclaim of one node did. `mm/internal.h: NODE_RECLAIM_*`, 6.12.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeReclaimed {
    /// It did not try: it may not now, or somebody else does.
    NotTried,
    /// The node has nothing worth reclaiming.
    Nothing,
    /// It freed some pages, or none.
    Some,
    /// It freed as many as asked for.
    Enough,
}

/// A host of the core.
///
/// No callback may call back into the allocator that it was called from, except to free pages or drain.
pub trait Platform: Sized {
    /// The lock of a zone.
    type Lock<T>: Lock<T>;
    /// The storage of per-CPU pagesets.
    type Storage: Storage;
    /// The rules: [`Places`](crate::rules::Places), [`Linux`](crate::rules::Linux), or those of the model that an allocator is made with:
    /// [`ByModel`](crate::rules::ByModel). Models of other rules are refused, and what is for them is not compiled.
    type Rules: RuleSet;
    /// Who waits for locks of pages: `()` where nobody does, else what the crate `nearpage-pagelock` says.
    type Waiters: Waiters;
    /// Log2 of the page size in bytes, if this host knows it when it is compiled: then
    /// [`Config::page_shift`](crate::alloc::Config::page_shift) is not looked at. A shift by a number that is not known
    /// takes x86-64 three steps, and each free of an object needs one.
    const PAGE_SHIFT: Option<u32> = None;
    /// Whether the test at a free is one atomic exchange, so that two frees of one page in the same
    /// instant cannot both pass it.
    const HARDENED: bool = false;
    /// Whether [`wake_reclaim`](Self::wake_reclaim) leads to background reclaim. Only then do requests that mix
    /// pageblocks boost the watermarks: background reclaim ends a boost
    /// ([`lower_boost`](crate::zone::Zone::lower_boost)), nobody else does.
    const BACKGROUND_RECLAIM: bool = false;
    /// Whether [`compact`](Self::compact) can make larger blocks by moving pages.
    const COMPACTS: bool = false;

    /// The storage of per-CPU pagesets.
    fn storage(&self) -> &Self::Storage;

    /// Monotonic time in nanoseconds, from any start.
    fn now_ns(&self) -> u64;

    /// Passes time while another CPU holds what this one needs.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// Memory of a node fell below its low watermark: wake background reclaim. Returns at once.
    fn wake_reclaim(&self, _shortage: Shortage) {}

    /// Gives back memory in the caller's context; returns how many pages were freed. A request that finds none of them
    /// asks again, up to 256 times.
    fn direct_reclaim(&self, _shortage: Shortage) -> PageCount {
        PageCount(0)
    }

    /// Pages of a node's zone that [`direct_reclaim`](Self::direct_reclaim) could still free, as far as is
    /// known: as long as they would be enough, a request goes on asking.
    fn reclaimable(&self, _node: NodeId, _kind: ZoneKind) -> PageCount {
        PageCount(0)
    }

    /// Reclaims memory of the node in the shortage before another node is asked: only if
    /// [`node_reclaim_mode`](crate::watermark::Settings::node_reclaim_mode) is set.
    fn node_reclaim(&self, _shortage: Shortage) -> NodeReclaimed {
        NodeReclaimed::NotTried
    }

    /// Moves pages so that larger blocks become free.
    fn compact(&self, _shortage: Shortage, _effort: CompactEffort) -> Compacted {
        Compacted::Skipped
    }

    /// The last resort. Returns whether something was freed, so that trying again makes sense.
    fn out_of_memory(&self, _shortage: Shortage) -> bool {
        false
    }

    /// A free was refused. The page stays where it is; the host may report or abort.
    fn misuse(&self, _error: &FreeError) {}

    /// A cache line of the allocator's metadata that CPUs share is touched; empty everywhere but in the lab.
    #[inline(always)]
    fn touch(&self, _line: *const (), _access: Access) {}

    /// The metadata of a page is touched; empty everywhere but in the lab. Apart from [`touch`](Self::touch),
    /// since a kernel's frames are larger than nearpage's, and the lab shows kernels.
    #[inline(always)]
    fn touch_page(&self, _page: Pfn, _access: Access) {}
}
