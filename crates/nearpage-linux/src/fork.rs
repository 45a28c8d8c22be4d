//! Forks while other threads work: `pthread_atfork(3)`.
//!
//! A child has one thread, and memory as it was in the instant of the fork. A lock that another thread held
//! then would stay held, with something half done behind it. So before a fork the forking thread takes hold
//! of all that changes in all memories of the process, in the order of the core's locks:
//!
//! ```text
//! the registry, so that no memory comes or goes
//! of each memory:  its settings' lock; each CPU's pagesets, as a drain from outside does; each zone's lock;
//!                  each bucket of the wait tables
//! ```
//!
//! and lets go after it, in parent and child. Whatever another thread had in its hands at that moment (blocks
//! that it owns, or a page on its way to or from a list) is nobody's in the child: such pages stay allocated, and
//! those that it had locked stay locked. Its wait tables are empty in the child: the threads that waited are not there.
//!
//! What it costs: a `membarrier` per CPU and memory with restartable sequences, some microseconds. A signal
//! handler that interrupts an allocation must not call `fork`; `_Fork` runs no handlers, and its child must
//! not use a memory.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearpage::alloc::{PageAllocator, SettingsLock};
use nearpage::pagelock::{Bucket, HeldBucket};
use nearpage::pcp::pageset::Pageset;
use nearpage::pcp::{LISTS, Storage};
use nearpage::platform::Platform;
use nearpage::units::CpuId;
use nearpage::zone::{Zone, ZoneGuard};

use crate::calls::SystemCall;
use crate::ffi;

/// How long a fork waits for threads that have a CPU's lists. On a crowded machine such a thread may not run for a while.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A fork's wait for a thread that has a CPU's lists.
pub(crate) struct Patience(Instant);

impl Patience {
    /// Begins to wait.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Lets other threads run; returns whether to try once more.
    pub fn is_left<S: Storage>(&self) -> bool {
        std::thread::yield_now();
        // Sequences need the kernel's help, which a sandbox that was entered later may deny.
        let is_denied = S::CHECKS_CPU && SystemCall::Membarrier.probe().is_err();
        !is_denied && self.0.elapsed() < WAIT_MAX
    }
}

/// The memories of this process.
static MEMORIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

struct Entry {
    id: u64,
    memory: Box<dyn Hold>,
}

/// What can be held still. The answer must be dropped before `self`.
pub(crate) trait Hold: Send {
    /// Keeps it as it is until the answer is dropped.
    fn hold(&self) -> Box<dyn Any>;
}

/// All that is held around a fork, dropped in this order.
struct Held {
    _memories: Vec<Box<dyn Any>>,
    _registry: MutexGuard<'static, Vec<Entry>>,
}

/// A memory that takes part in forks until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration(u64);

impl Registration {
    /// Lets an allocator take part. `storage` is one like the allocator's own, which may move.
    ///
    /// # Safety
    /// * The allocator's metadata stays where it is until the registration is dropped.
    pub unsafe fn new<P>(allocator: &PageAllocator<'static, P>, storage: P::Storage) -> Self
    where
        P: Platform + 'static,
        P::Storage: Send,
    {
        Self::of(Box::new(Stoppable {
            storage,
            settings: allocator.settings_lock(),
            cpus: allocator.cpus().map(|(_, _, pagesets)| pagesets).collect(),
            zones: allocator.zones(),
            buckets: allocator.wait_buckets().collect(),
        }))
    }

    /// Lets anything take part.
    pub fn of(memory: Box<dyn Hold>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ffi::at_forks(before, after);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        registry().push(Entry { id, memory });
        Self(id)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = {
            let mut registry = registry();
            let at = registry.iter().position(|entry| entry.id == self.0);
            at.map(|at| registry.remove(at))
        };
        // It may be the last owner of another memory, which then leaves the registry too.
        drop(entry);
    }
}

fn registry() -> MutexGuard<'static, Vec<Entry>> {
    MEMORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before() {
    let registry = registry();
    // What was made later stands on what was made before, and its locks come first: objects before pages.
    let memories = registry.iter().rev().map(|entry| entry.memory.hold()).collect();
    let held = Held { _memories: memories, _registry: registry };
    // A thread that ends has no place to keep it any more: then the child has what it finds.
    let _ = HELD.try_with(|cell| cell.replace(Some(held)));
}

extern "C" fn after() {
    let _ = HELD.try_with(|cell| cell.take());
}

/// What of an allocator other threads change; all of it lies in its metadata.
struct Stoppable<P: Platform + 'static> {
    storage: P::Storage,
    settings: SettingsLock<'static, P>,
    cpus: Vec<&'static [Pageset<'static, P>]>,
    zones: &'static [&'static Zone<'static, P>],
    buckets: Vec<&'static Bucket<P>>,
}

// SAFETY: references to what threads share (`Pageset`, `Zone`, `Bucket` and the lock are made for that), and a
// storage that is `Send`.
unsafe impl<P: Platform + 'static> Send for Stoppable<P> where P::Storage: Send {}

/// Dropped in this order.
struct Stopped<P: Platform + 'static> {
    _buckets: StoppedBuckets<P>,
    _zones: Vec<ZoneGuard<'static, 'static, P>>,
    _cpus: Vec<StoppedCpu<P>>,
    _settings: Box<dyn Any>,
}

impl<P: Platform + 'static> Hold for Stoppable<P>
where
    P::Storage: Send,
{
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`.
        let storage: &'static P::Storage = unsafe { &*std::ptr::from_ref(&self.storage) };
        let settings = Box::new(self.settings.hold());
        let cpus = self.cpus.iter().filter_map(|pagesets| StoppedCpu::stop(storage, pagesets));
        let cpus = cpus.collect();
        let zones = self.zones.iter().map(|zone| zone.lock()).collect();
        let buckets = self.buckets.iter().map(|bucket| bucket.hold()).collect();
        let buckets = StoppedBuckets { buckets, process: std::process::id() };
        Box::new(Stopped { _buckets: buckets, _zones: zones, _cpus: cpus, _settings: settings })
    }
}

/// Buckets of wait tables that nobody uses until this is dropped.
struct StoppedBuckets<P: Platform + 'static> {
    buckets: Vec<HeldBucket<'static, P>>,
    process: u32,
}

impl<P: Platform + 'static> Drop for StoppedBuckets<P> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            self.buckets.iter_mut().for_each(HeldBucket::forget_all);
        }
    }
}

/// A CPU whose pagesets nobody uses until this is dropped.
struct StoppedCpu<P: Platform + 'static> {
    storage: &'static P::Storage,
    pagesets: &'static [Pageset<'static, P>],
    on: Option<<P::Storage as Storage>::OnCpu<'static>>,
}

impl<P: Platform + 'static> StoppedCpu<P> {
    /// `None` if it cannot be had: then another thread has it, which the child will not get back, or the
    /// kernel does not let us.
    fn stop(
        storage: &'static P::Storage,
        pagesets: &'static [Pageset<'static, P>],
    ) -> Option<Self> {
        let owner = pagesets.first()?.owner();
        let cpu: CpuId = owner.cpu;
        let patience = Patience::begin();
        loop {
            let on = storage.stop(cpu, &owner.exclusion, &|each| each_list(pagesets, each));
            if on.is_some() {
                return Some(Self { storage, pagesets, on });
            }
            if !patience.is_left::<P::Storage>() {
                return None;
            }
        }
    }
}

impl<P: Platform + 'static> Drop for StoppedCpu<P> {
    fn drop(&mut self) {
        if let Some(on) = self.on.take() {
            self.storage.resume(on, &|each| each_list(self.pagesets, each));
        }
    }
}

/// Calls `each` with every list of a CPU.
fn each_list<P: Platform>(
    pagesets: &[Pageset<'static, P>],
    each: &mut dyn FnMut(&<P::Storage as Storage>::List<'static>),
) {
    let lists = |pageset| -> &[_; LISTS] { Pageset::lists(pageset) };
    pagesets.iter().flat_map(lists).for_each(each);
}
