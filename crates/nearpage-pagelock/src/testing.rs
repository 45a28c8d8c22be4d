//! A platform for tests, whose threads the test plays (feature `testing`).

use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU32;
use std_alloc::vec::Vec;

use nearpage::FreeError;
use nearpage::platform::{Platform, SingleLock, SingleStorage};
use nearpage::testing::plain::PlainPlatform;

use crate::error::PageLockError;
use crate::parking::{Parked, ParkedThread};
use crate::platform::PageLockPlatform;
use crate::table::WaitState;

/// The plain platform, with page locks. A park lasts until its deadline, or for a nanosecond.
#[derive(Debug, Default)]
pub struct LockPlatform {
    /// What pages need.
    pub plain: PlainPlatform,
    /// The thread that the test plays.
    pub thread: Cell<ParkedThread>,
    /// Threads that were unparked, in order.
    pub unparked: RefCell<Vec<ParkedThread>>,
    /// Whether a thread that parks is told to give up.
    pub cancels: Cell<bool>,
    /// Refused unlocks so far.
    pub lock_misuses: Cell<u64>,
}

impl Platform for LockPlatform {
    type Lock<T> = SingleLock<T>;
    type Storage = SingleStorage;
    type Rules = nearpage::rules::ByModel;
    type Waiters = WaitState<Self>;

    fn storage(&self) -> &SingleStorage {
        self.plain.storage()
    }

    fn now_ns(&self) -> u64 {
        self.plain.now_ns()
    }

    fn misuse(&self, error: &FreeError) {
        self.plain.misuse(error);
    }
}

impl PageLockPlatform for LockPlatform {
    fn this_thread(&self, _word: &AtomicU32) -> ParkedThread {
        self.thread.get()
    }

    fn park(&self, _word: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        let later = self.plain.now_ns() + 1;
        self.plain.set_now_ns(deadline_ns.map_or(later, |deadline| deadline.max(later)));
        if self.cancels.get() { Parked::Cancelled } else { Parked::Awake }
    }

    fn unpark(&self, thread: ParkedThread) {
        self.unparked.borrow_mut().push(thread);
    }

    fn lock_misuse(&self, _error: &PageLockError) {
        self.lock_misuses.set(self.lock_misuses.get() + 1);
    }
}
