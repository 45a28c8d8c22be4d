//! The lock of a page, and what waits for it.
//!
//! ```text
//! word of a frame    bit 10 locked   bit 11 waiters: somebody is in the wait table for this page
//! wait table         256 buckets, in the memory of the node whose pages they are for
//! bucket             how many wait | lock | first, last      entries of all keys that hash here, oldest first
//! entry              signal | links, key, kind, thread       on the stack of the thread that waits
//! ```
//!
//! An uncontended lock and unlock are one atomic exchange each of the frame's word. The table is touched only if
//! somebody waits. Linux answered the same regression with either half: tables per node were proposed in 2016,
//! the waiters bit was merged in 4.10 (`PG_waiters`). Both are here, each with a switch ([`PageLockRules`]).
//!
//! **Who writes what.** The lock bits change by atomic exchange. Entries, links and the waiters bit change under
//! the lock of the bucket; the signal of an entry is its thread's, who sleeps while it is 0, and is written once,
//! under the lock of the bucket, by whoever wakes it. No other lock is taken under a bucket's, and no call to the
//! host is made under it: threads are unparked afterwards.
//!
//! **No lost wake-up.** Who waits puts its entry into the bucket, then sets the waiters bit and looks at the lock
//! bit, in one exchange. Who unlocks clears the lock bit, in one exchange, and then reads the waiters bit. They are
//! exchanges of one word, so one comes first: either the waiter finds the page unlocked, or the unlocker
//! finds a waiter, and both then meet at the bucket's lock. Without the waiters bit, and for bits of other words,
//! the number of entries in the bucket takes its place, with a full fence on either side.
//!
//! **Order.** An unlock wakes all readers ([`Kind::Reader`]) and the oldest of those who want the lock. Anybody
//! may take the lock until that one runs: then it queues again, at the end. After five times it is handed
//! the lock by whoever unlocks, so that nobody comes between ([`OVERTAKEN_MAX`]). For a reader who found the page locked
//! again so often, or still, since unlocks from before its wait woke it, whoever unlocks looks whether the page is unlocked;
//! a reader never has the lock. This is the protocol of Linux 5.9
//! and later (`mm/filemap.c: folio_wait_bit_common`, facts 10.3), without references to pages: who waits for a page
//! sees to it that it is not freed, and a free of a page that is locked or waited for is refused.
//!
//! **Leaving.** A wait that ends early (time is up, cancelled, dropped) takes its entry out under the bucket's
//! lock. If it has been woken already it must not go away with the wake-up: it takes the lock if it can, which
//! is success, or, dropped, passes it on.
//!
//! Not done: priority inheritance; a lock on more than one page. The lock bits of a page inside a larger block work
//! like those of its head, but a free looks at the head only: one that is left locked is found locked by whoever gets
//! the page next ([`reset_page_locks`](crate::alloc::PageAllocator::reset_page_locks) takes such locks off).

mod bits;
mod hash;
mod queue;
mod table;
mod wait;

pub use bits::{LockBits, WaitersBit, lock_idle, unlock_idle};
pub use hash::{BUCKETS, Key};
pub use queue::{Bucket, HeldBucket};
pub use table::{WaitCounts, WaitTable};
pub use wait::{Awaited, Interrupted, PageSite, Site, Unlocked, Wait, try_lock, try_unlock};

use crate::host::{Access, Lock, Parked, ParkedThread, Platform};
use crate::sync::{AtomicU32, Cell32};

/// How often a waiter may find that somebody else took the lock that it was woken for. The unfairness of
/// `sysctl vm.page_lock_unfairness`, 5.9 to 6.12.
pub const OVERTAKEN_MAX: u32 = 5;

/// Which pages share a wait table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitTables {
    /// Those of a node, as proposed in 2016.
    #[default]
    PerNode,
    /// All: Linux since 4.9.
    Global,
    /// Those of a zone: Linux until 4.8, whose tables were larger.
    PerZone,
}

/// What differs between kernels in how pages are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageLockRules {
    /// Which pages share a wait table.
    pub tables: WaitTables,
    /// Whether an unlock learns from the frame's word that nobody waits.
    pub waiters_bit: WaitersBit,
}

impl PageLockRules {
    /// Linux since 4.10: one table, and the waiters bit.
    pub const LINUX: Self = Self { tables: WaitTables::Global, waiters_bit: WaitersBit::On };
    /// nearpage: tables per node, and the waiters bit.
    pub const NEARPAGE: Self = Self { tables: WaitTables::PerNode, waiters_bit: WaitersBit::On };
}

/// What the protocol needs of the place that it runs in. Every [`Platform`] has it; model checkers bring their own.
pub trait Parking {
    /// The word of a frame, and the signal of an entry.
    type Word: Cell32;
    /// The lock of a bucket.
    type Lock<T>: Lock<T>;
    /// As [`Platform::this_thread`].
    fn this_thread(&self, signal: &Self::Word) -> ParkedThread;
    /// As [`Platform::park`].
    fn park(&self, signal: &Self::Word, deadline_ns: Option<u64>) -> Parked;
    /// As [`Platform::unpark`].
    fn unpark(&self, thread: ParkedThread);
    /// As [`Platform::now_ns`].
    fn now_ns(&self) -> u64;
    /// As [`Platform::touch`].
    #[inline(always)]
    fn touch(&self, _line: *const (), _access: Access) {}
}

impl<P: Platform> Parking for P {
    type Word = AtomicU32;
    type Lock<T> = P::Lock<T>;

    fn this_thread(&self, signal: &AtomicU32) -> ParkedThread {
        Platform::this_thread(self, signal)
    }

    fn park(&self, signal: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        Platform::park(self, signal, deadline_ns)
    }

    fn unpark(&self, thread: ParkedThread) {
        Platform::unpark(self, thread);
    }

    fn now_ns(&self) -> u64 {
        Platform::now_ns(self)
    }

    #[inline(always)]
    fn touch(&self, line: *const (), access: Access) {
        Platform::touch(self, line, access);
    }
}
