//! What page locks need of their host, beside what pages need.

use core::sync::atomic::AtomicU32;

use nearpage::platform::{Access, Platform};

use crate::error::PageLockError;
use crate::parking::{Parked, ParkedThread, Parking};
use crate::table::WaitState;

/// A host of pages that can be locked. Its [`Platform::Waiters`] are a [`WaitState`].
pub trait PageLockPlatform: Platform<Waiters = WaitState<Self>> {
    /// How often a thread looks at a locked page again before it parks; from look to look it waits twice as long. 0
    /// where nobody else runs meanwhile.
    const PAGE_LOCK_SPINS: u32 = 0;

    /// The calling thread, which may park on `word` from now on.
    fn this_thread(&self, _word: &AtomicU32) -> ParkedThread {
        ParkedThread::default()
    }

    /// Lets the calling thread sleep while `word`, which is its own, is 0: until it is unparked, until the time
    /// is `deadline_ns` ([`now_ns`](Platform::now_ns)), or for any shorter time. The word is written before the
    /// thread is unparked. A host that cannot park passes time instead.
    fn park(&self, _word: &AtomicU32, _deadline_ns: Option<u64>) -> Parked {
        self.relax();
        Parked::Awake
    }

    /// Wakes a thread, if it is parked on the word that its answer to [`this_thread`](Self::this_thread) was made
    /// of. That word may be gone, and the thread may be parked for another reason or have ended: so the host
    /// must not look at the word, and waking for no reason must be harmless.
    fn unpark(&self, _thread: ParkedThread) {}

    /// A page lock was misused: a page unlocked that is not locked. Nothing was changed; the host may report or
    /// abort.
    fn lock_misuse(&self, _error: &PageLockError) {}
}

impl<P: PageLockPlatform> Parking for P {
    type Word = AtomicU32;
    type Lock<T> = P::Lock<T>;

    fn this_thread(&self, signal: &AtomicU32) -> ParkedThread {
        PageLockPlatform::this_thread(self, signal)
    }

    fn park(&self, signal: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        PageLockPlatform::park(self, signal, deadline_ns)
    }

    fn unpark(&self, thread: ParkedThread) {
        PageLockPlatform::unpark(self, thread);
    }

    fn now_ns(&self) -> u64 {
        Platform::now_ns(self)
    }

    #[inline(always)]
    fn touch(&self, line: *const (), access: Access) {
        Platform::touch(self, line, access);
    }
}
