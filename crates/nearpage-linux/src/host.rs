//! The platform: how the core runs in a Linux process.

use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use nearpage::pagelock::PageLockError;
use nearpage::platform::{Lock, NodeReclaimed, Parked, ParkedThread, Platform, Shortage, Storage};
use nearpage::slab::ObjectError;
use nearpage::{Address, FreeError, PageCount};

use crate::futex;
use crate::memory::FRAME_SHIFT;
use crate::rseq::RingStorage;
use crate::slab::Objects;
use crate::tell::tell;

/// The lock of a zone: the standard library's, which sleeps on a futex, so that a holder that lost its CPU
/// does not stall whoever waits. Before that it is tried for a while: a hold is of at most 2016 pages, some
/// microseconds, and to be put to sleep and woken costs several times as much.
///
/// Each try takes the line of the lock from the holder, so what the holder works on lies on other lines: on other pairs
/// of lines, since processors fetch the second of a pair with the first.
#[derive(Debug)]
pub struct HostLock<T>(Mutex<OwnLines<T>>);

#[derive(Debug)]
#[repr(align(128))]
struct OwnLines<T>(T);

/// Proof of holding a [`HostLock`].
#[derive(Debug)]
pub struct HostGuard<'a, T>(MutexGuard<'a, OwnLines<T>>);

impl<T> Deref for HostGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T> DerefMut for HostGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.0
    }
}

impl<T> Lock<T> for HostLock<T> {
    type Guard<'a>
        = HostGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(Mutex::new(OwnLines(value)))
    }

    fn lock(&self) -> HostGuard<'_, T> {
        // A pause is 10 to 50 ns. A wait of two long holds, or about what a sleep and a wake-up cost on a virtual
        // machine; with a third of it every third acquisition of two busy threads slept.
        const TRIES: u32 = 1000;
        // The core's own assertions may panic under the lock; they panic before they change anything.
        for _ in 0..TRIES {
            match self.0.try_lock() {
                Ok(guard) => return HostGuard(guard),
                Err(TryLockError::Poisoned(poisoned)) => return HostGuard(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        HostGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a user of memory can do when it gets short. Called with no lock held, from the thread that
/// allocates. The callbacks may free pages and drain, not allocate.
pub trait Pressure: Send + Sync {
    /// A node fell below its low watermark, or a soft limit was passed. Return soon: wake who reclaims. A panic in it is told
    /// on standard error, and the request goes on. Without restartable sequences a bulk request may be at its CPU's pagesets
    /// meanwhile: a drain from here finds them busy.
    fn background(&self, shortage: &Shortage) {
        let _ = shortage;
    }

    /// Give back memory now; returns how many pages were freed.
    fn direct(&self, shortage: &Shortage) -> PageCount {
        let _ = shortage;
        PageCount(0)
    }

    /// Give back memory of the node in the shortage, whose turn is before that of a node further away; asked only with
    /// [`node_reclaim_mode`](nearpage::Settings::node_reclaim_mode).
    fn node(&self, shortage: &Shortage) -> NodeReclaimed {
        let _ = shortage;
        NodeReclaimed::NotTried
    }

    /// The last resort before an allocation fails; returns whether something was freed.
    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        let _ = shortage;
        false
    }
}

/// No pressure callbacks.
#[derive(Debug, Default)]
pub struct NoPressure;

impl Pressure for NoPressure {}

/// What happens at a free of a page or an object that is not in the caller's hands, and at an unlock of a page that
/// is not locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnMisuse {
    /// It is counted, and the first ones are told on standard error. The page stays where it is.
    #[default]
    Report,
    /// The thread panics.
    Panic,
    /// The process aborts.
    Abort,
}

/// Misuses that are told on standard error before they are only counted.
const MISUSES_TOLD: u64 = 10;

/// A Linux process. `HARDENED` makes the test at a free one atomic exchange.
pub struct Host<S, const HARDENED: bool> {
    storage: S,
    pressure: Box<dyn Pressure>,
    on_misuse: OnMisuse,
    /// Boxed, so that nothing in a `Memory` changes: see `PageAllocator`.
    misuses: Box<AtomicU64>,
    objects: Objects,
    start: Instant,
}

impl<S, const HARDENED: bool> Host<S, HARDENED> {
    /// A host with this storage.
    pub fn new(storage: S, pressure: Box<dyn Pressure>, on_misuse: OnMisuse) -> Self {
        Self {
            storage,
            pressure,
            on_misuse,
            misuses: Box::new(AtomicU64::new(0)),
            objects: Objects::default(),
            start: Instant::now(),
        }
    }

    /// The host of a memory with this place for a slab allocator.
    pub(crate) fn with_objects(self, objects: &Objects) -> Self {
        Self { objects: objects.clone(), ..self }
    }

    /// Frees and unlocks that were refused so far.
    pub fn misuses(&self) -> u64 {
        self.misuses.load(Ordering::Relaxed)
    }

    fn report(&self, error: impl Display) {
        let before = self.misuses.fetch_add(1, Ordering::Relaxed);
        match self.on_misuse {
            OnMisuse::Report if before < MISUSES_TOLD => tell(error),
            OnMisuse::Report => {}
            OnMisuse::Panic => panic!("nearpage: {error}"),
            OnMisuse::Abort => {
                tell(error);
                std::process::abort();
            }
        }
    }
}

impl<const HARDENED: bool> Host<RingStorage, HARDENED> {
    /// A storage like this one's.
    pub(crate) fn storage_twin(&self) -> RingStorage {
        self.storage.twin()
    }
}

impl<S: Storage, const HARDENED: bool> Platform for Host<S, HARDENED> {
    type Lock<T> = HostLock<T>;
    type Storage = S;
    const HARDENED: bool = HARDENED;
    const PAGE_SHIFT: Option<u32> = Some(FRAME_SHIFT);
    // A page is locked for about as long as a copy of it takes; a sleep costs ten times as much.
    const PAGE_LOCK_SPINS: u32 = 5;

    #[inline(always)]
    fn storage(&self) -> &S {
        &self.storage
    }

    #[inline(always)]
    fn prefetch(&self, object: Address) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch neither faults nor changes memory, whatever the address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(core::ptr::without_provenance(object.0 as usize));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prfm pstl1keep, [{}]",
                in(reg) object.0,
                options(nostack, preserves_flags, readonly)
            );
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn relax(&self) {
        std::thread::yield_now();
    }

    /// A request may have taken pages by now that nobody would ever get after a panic.
    fn wake_reclaim(&self, shortage: Shortage) {
        let woken = AssertUnwindSafe(|| self.pressure.background(&shortage));
        if catch_unwind(woken).is_err() {
            tell("a pressure callback panicked where it was to wake background reclaim");
        }
    }

    fn direct_reclaim(&self, shortage: Shortage) -> PageCount {
        let freed = self.pressure.direct(&shortage);
        let wanted = shortage.order.pages();
        // Stacks that threads work with are the last to be emptied.
        if freed >= wanted { freed } else { PageCount(freed.0 + self.objects.shrink(self).0) }
    }

    fn node_reclaim(&self, shortage: Shortage) -> NodeReclaimed {
        self.pressure.node(&shortage)
    }

    fn out_of_memory(&self, shortage: Shortage) -> bool {
        self.pressure.out_of_memory(&shortage)
    }

    fn misuse(&self, error: &FreeError) {
        self.report(error);
    }

    fn lock_misuse(&self, error: &PageLockError) {
        self.report(error);
    }

    /// The word's address: the kernel finds the sleeper by it, or nobody.
    fn this_thread(&self, word: &AtomicU32) -> ParkedThread {
        ParkedThread(word.as_ptr().addr())
    }

    fn park(&self, word: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        let left = deadline_ns.map(|deadline| deadline.saturating_sub(self.now_ns()));
        futex::wait_while_zero(word, left);
        Parked::Awake
    }

    fn unpark(&self, thread: ParkedThread) {
        futex::wake_one(thread.0);
    }

    fn misuse_of_object(&self, error: &ObjectError) {
        self.report(error);
    }
}
