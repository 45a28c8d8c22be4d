//! What the protocol of waits needs of the place that it runs in.

use nearpage::internals::Cell32;
use nearpage::platform::{Access, Lock};

/// How often a waiter may find that somebody else took the lock that it was woken for. The unfairness of
/// `sysctl vm.page_lock_unfairness`, 5.9 to 6.12.
pub const OVERTAKEN_MAX: u32 = 5;

/// What a host needs to find a parked thread again: an address, a number, whatever it likes. It may be used after
/// the thread has gone on, or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParkedThread(pub usize);

/// Why a thread that parked goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// It was woken, its time is up, or for no reason at all.
    Awake,
    /// Whoever runs it wants it to give up what it waits for.
    Cancelled,
}

/// What the protocol needs of the place that it runs in. Every [`PageLockPlatform`](crate::PageLockPlatform) has it; model checkers bring their own.
pub trait Parking {
    /// The word of a frame, and the signal of an entry.
    type Word: Cell32;
    /// The lock of a bucket.
    type Lock<T>: Lock<T>;
    /// As [`PageLockPlatform::this_thread`](crate::PageLockPlatform::this_thread).
    fn this_thread(&self, signal: &Self::Word) -> ParkedThread;
    /// As [`PageLockPlatform::park`](crate::PageLockPlatform::park).
    fn park(&self, signal: &Self::Word, deadline_ns: Option<u64>) -> Parked;
    /// As [`PageLockPlatform::unpark`](crate::PageLockPlatform::unpark).
    fn unpark(&self, thread: ParkedThread);
    /// As [`Platform::now_ns`](nearpage::platform::Platform::now_ns).
    fn now_ns(&self) -> u64;
    /// As [`Platform::touch`](nearpage::platform::Platform::touch).
    #[inline(always)]
    fn touch(&self, _line: *const (), _access: Access) {}
}
