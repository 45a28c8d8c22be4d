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
//! the waiters bit was merged in 4.10 (`PG_waiters`). Both are here, each with a switch ([`PageLockRules`](nearpage::rules::PageLockRules)).
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
//! **Order.** An unlock wakes all readers ([`Kind::Reader`](queue::Kind::Reader)) and the oldest of those who want the lock. Anybody
//! may take the lock until that one runs: then it queues again, at the end. After five times it is handed
//! the lock by whoever unlocks, so that nobody comes between ([`OVERTAKEN_MAX`](parking::OVERTAKEN_MAX)). For a reader who found the page locked
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
//! the page next ([`PageLocks::reset_page_locks`] takes such locks off).
#![no_std]
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(any(test, feature = "testing"))]
extern crate alloc as std_alloc;

mod bit_wait;
mod bits;
mod by_frame;
mod error;
mod hash;
mod page;
mod parking;
mod platform;
mod queue;
mod table;
mod wait;

#[doc(hidden)]
pub mod internals;
#[cfg(feature = "testing")]
pub mod testing;

pub use bit_wait::BitWord;
pub use by_frame::PageLocks;
pub use error::PageLockError;
pub use page::PageLock;
pub use parking::{Parked, ParkedThread, Parking};
pub use platform::PageLockPlatform;
pub use table::WaitState;
pub use wait::{Interrupted, Site, Wait};
