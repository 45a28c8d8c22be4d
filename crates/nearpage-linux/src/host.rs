//! The platform: how the core runs in a Linux process.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use nearpage::platform::{NodeReclaimed, Platform, Shortage, Storage};
use nearpage::{Address, FreeError, PageCount};
use nearpage_pagelock::{PageLockError, PageLockPlatform, Parked, ParkedThread, WaitState};
use nearpage_slab::{ObjectError, ObjectStorage, SlabPlatform};

use crate::frame::FRAME_SHIFT;
use crate::futex;
use crate::lock::HostLock;
use crate::misuse::{Misuse, MisuseLog, OnMisuse};
use crate::objects::Objects;
use crate::pressure::{NoPressure, Pressure, unless_within};
use crate::rseq::RingStorage;

/// A Linux process. `HARDENED` makes the test at a free one atomic exchange.
pub struct Host<S, const HARDENED: bool> {
    storage: S,
    pressure: Box<dyn Pressure>,
    on_misuse: OnMisuse,
    /// Boxed, so that nothing in a `Memory` changes: see `PageAllocator`.
    log: Box<HostLog>,
    objects: Objects,
    start: Instant,
}

/// What the host saw go wrong.
#[derive(Debug, Default)]
struct HostLog {
    misuses: MisuseLog,
    pressure_panics: AtomicU64,
}

impl<S, const HARDENED: bool> Host<S, HARDENED> {
    /// A host with this storage and nothing else.
    pub fn bare(storage: S) -> Self {
        Self::new(storage, Box::new(NoPressure), OnMisuse::default(), Objects::default())
    }

    /// A host with this storage, and with this place for a slab allocator.
    pub(crate) fn new(
        storage: S,
        pressure: Box<dyn Pressure>,
        on_misuse: OnMisuse,
        objects: Objects,
    ) -> Self {
        let (log, start) = (Box::default(), Instant::now());
        Self { storage, pressure, on_misuse, log, objects, start }
    }

    /// Frees and unlocks that were refused so far.
    pub(crate) fn misuses(&self) -> &MisuseLog {
        &self.log.misuses
    }

    /// Panics of callbacks that were to wake background reclaim.
    pub(crate) fn pressure_panics(&self) -> u64 {
        self.log.pressure_panics.load(Ordering::Relaxed)
    }

    fn report(&self, misuse: impl Into<Misuse>) {
        self.log.misuses.report(misuse.into(), &self.on_misuse);
    }
}

impl<const HARDENED: bool> Host<RingStorage, HARDENED> {
    /// A storage like this one's.
    pub(crate) fn storage_twin(&self) -> RingStorage {
        self.storage.twin()
    }
}

impl<S, const HARDENED: bool> fmt::Debug for Host<S, HARDENED> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("on_misuse", &self.on_misuse).finish_non_exhaustive()
    }
}

impl<S: Storage, const HARDENED: bool> Platform for Host<S, HARDENED> {
    type Lock<T> = HostLock<T>;
    type Storage = S;
    type Rules = nearpage::rules::ByModel;
    type Waiters = WaitState<Self>;
    const HARDENED: bool = HARDENED;
    const PAGE_SHIFT: Option<u32> = Some(FRAME_SHIFT);

    #[inline(always)]
    fn storage(&self) -> &S {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn relax(&self) {
        std::thread::yield_now();
    }

    /// A request may have taken pages by now that nobody would ever get after a panic.
    fn wake_reclaim(&self, shortage: Shortage) {
        let wake = || self.pressure.background(&shortage);
        let woken = AssertUnwindSafe(|| unless_within(wake));
        if catch_unwind(woken).is_err() {
            self.log.pressure_panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn direct_reclaim(&self, shortage: Shortage) -> PageCount {
        let freed = unless_within(|| self.pressure.direct(&shortage)).unwrap_or(PageCount(0));
        let wanted = shortage.order.pages();
        // Stacks that threads work with are the last to be emptied.
        if freed >= wanted {
            return freed;
        }
        let here = std::ptr::from_ref(self).addr();
        PageCount(freed.0 + self.objects.with(here, |objects| objects.shrink_all()).0)
    }

    fn node_reclaim(&self, shortage: Shortage) -> NodeReclaimed {
        unless_within(|| self.pressure.node(&shortage)).unwrap_or(NodeReclaimed::NotTried)
    }

    fn out_of_memory(&self, shortage: Shortage) -> bool {
        unless_within(|| self.pressure.out_of_memory(&shortage)).unwrap_or(false)
    }

    fn misuse(&self, error: &FreeError) {
        self.report(*error);
    }
}

impl<S: Storage, const HARDENED: bool> PageLockPlatform for Host<S, HARDENED> {
    // A page is locked for about as long as a copy of it takes; a sleep costs ten times as much.
    const PAGE_LOCK_SPINS: u32 = 5;

    fn lock_misuse(&self, error: &PageLockError) {
        self.report(*error);
    }

    /// The word's address: the kernel finds the sleeper by it, or nobody.
    fn this_thread(&self, word: &AtomicU32) -> ParkedThread {
        ParkedThread(word.as_ptr().addr())
    }

    fn park(&self, word: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        let left = deadline_ns.map(|deadline| deadline.saturating_sub(Platform::now_ns(self)));
        futex::wait_while_zero(word, left);
        Parked::Awake
    }

    fn unpark(&self, thread: ParkedThread) {
        futex::wake_one(thread.0);
    }
}

impl<S: ObjectStorage, const HARDENED: bool> SlabPlatform for Host<S, HARDENED> {
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

    fn misuse_of_object(&self, error: &ObjectError) {
        self.report(*error);
    }
}
