//! The host that the core sees: a [`Platform`] built of a [`Kernel`].

use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use nearpage::platform::{Platform, SerialStorage, Shortage, TryLock};
use nearpage::{FreeError, PageCount};
use nearpage_pagelock::{PageLockError, PageLockPlatform, Parked, ParkedThread, WaitState};
use nearpage_slab::{ObjectError, ObjectStorage, SlabPlatform};

use crate::exclusion::ByInterrupts;
use crate::lock::TicketLock;
use crate::rings::Rings;
use crate::seam::Kernel;

/// The CPU of a [`Kernel`], for pagesets by try-lock.
pub struct ThisCpu<K>(PhantomData<fn() -> K>);

impl<K> Default for ThisCpu<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K> core::fmt::Debug for ThisCpu<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ThisCpu")
    }
}

impl<K: Kernel> nearpage::platform::CurrentCpu for ThisCpu<K> {
    #[inline(always)]
    fn current_cpu(&self) -> nearpage::CpuId {
        K::this_cpu()
    }
}

/// Pagesets by try-lock alone: for a kernel that cannot switch interrupts off, such as one in user mode. Who is interrupted
/// or moved in the midst of an operation keeps the lists; whoever comes meanwhile goes to the zone.
pub type ByTryLock<K> = Rings<TryLock<ThisCpu<K>>>;

/// Pagesets by interrupts-off, as rings: the common choice.
pub type ByRings<K> = Rings<ByInterrupts<K>>;

/// Pagesets by interrupts-off, as lists that are linked through the frames and whose tuning moves with each operation
/// ([`Storage::EXACT`](nearpage::platform::Storage::EXACT)), as Linux has them. No memory but the frames; several times the
/// instructions.
pub type ByLinks<K> = SerialStorage<ByInterrupts<K>>;

/// A kernel as a host of the core. `S` says how a CPU's pagesets are kept: [`ByRings`], [`ByLinks`] or [`ByTryLock`].
pub struct KernelPlatform<K, S = ByRings<K>> {
    storage: S,
    kernel: PhantomData<fn() -> K>,
}

impl<K, S: Default> Default for KernelPlatform<K, S> {
    fn default() -> Self {
        Self { storage: S::default(), kernel: PhantomData }
    }
}

impl<K, S> core::fmt::Debug for KernelPlatform<K, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KernelPlatform")
    }
}

impl<K: Kernel, S: ObjectStorage> Platform for KernelPlatform<K, S> {
    type Lock<T> = TicketLock<K, T>;
    type Storage = S;
    type Rules = K::Rules;
    type Waiters = WaitState<Self>;
    const PAGE_SHIFT: Option<u32> = Some(K::PAGE_SHIFT);
    const HARDENED: bool = K::HARDENED;

    #[inline(always)]
    fn storage(&self) -> &S {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        K::now_ns()
    }

    fn relax(&self) {
        K::pause();
    }

    fn wake_reclaim(&self, shortage: Shortage) {
        K::wake_reclaim(shortage);
    }

    fn direct_reclaim(&self, shortage: Shortage) -> PageCount {
        K::reclaim(shortage)
    }

    fn out_of_memory(&self, shortage: Shortage) -> bool {
        K::out_of_memory(shortage)
    }

    #[cold]
    fn misuse(&self, error: &FreeError) {
        K::misuse(error);
    }
}

impl<K: Kernel, S: ObjectStorage> SlabPlatform for KernelPlatform<K, S> {
    #[cold]
    fn misuse_of_object(&self, error: &ObjectError) {
        K::misuse_of_object(error);
    }
}

impl<K: Kernel, S: ObjectStorage> PageLockPlatform for KernelPlatform<K, S> {
    fn this_thread(&self, _word: &AtomicU32) -> ParkedThread {
        if K::PARKS { K::this_thread() } else { ParkedThread::default() }
    }

    fn park(&self, word: &AtomicU32, deadline_ns: Option<u64>) -> Parked {
        if !K::PARKS {
            K::pause();
            return Parked::Awake;
        }
        let left = |deadline: u64| Duration::from_nanos(deadline.saturating_sub(K::now_ns()));
        K::park(word, deadline_ns.map(left))
    }

    fn unpark(&self, thread: ParkedThread) {
        if K::PARKS {
            K::unpark(thread);
        }
    }

    #[cold]
    fn lock_misuse(&self, error: &PageLockError) {
        K::lock_misuse(error);
    }
}
