//! Forks while other threads work: `pthread_atfork(3)`.
//!
//! A child has one thread, and memory as it was in the instant of the fork. A lock that another thread held
//! then would stay held, with something half done behind it. So before a fork the forking thread takes hold
//! of all that changes in all memories of the process, in the order of the core's locks:
//!
//! ```text
//! the registry, so that no memory comes or goes
//! of each memory:  the place of its slab allocator, and the parts of the one that is there; the lock of its growth;
//!                  its settings' lock; each CPU's pagesets, as a drain from outside does; each zone's lock;
//!                  each bucket of the wait tables, or the first of a table that nobody ever used
//! ```
//!
//! and lets go after it, in parent and child. Whatever another thread had in its hands at that moment (blocks
//! that it owns, or pages on their way between a list, a quota and the maps, at most 128) is nobody's in the child: such pages stay allocated, and
//! those that it had locked stay locked. Its wait tables are empty in the child: the threads that waited are not there.
//!
//! What it costs: a `membarrier` per CPU and memory with restartable sequences, some microseconds. A signal
//! handler that interrupts an allocation must not call `fork`; `_Fork` runs no handlers, and its child must
//! not use a memory.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nearpage::PageAllocator;
use nearpage::internals::{CpuPagesets, Stillness, StoppedPagesets, ZoneHold};
use nearpage::platform::{Platform, Storage};
use nearpage_pagelock::PageLockPlatform;
use nearpage_pagelock::internals::{HeldBucket, hold_buckets};

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
        P: PageLockPlatform + 'static,
        P::Storage: Send,
    {
        Self::of(Box::new(Stoppable { storage, stillness: allocator.stillness() }))
    }

    /// Lets anything take part. Its locks come before those of all that was made before.
    pub fn of(memory: Box<dyn Hold>) -> Self {
        Self::insert(memory, None)
    }

    /// Lets something take part whose locks come right behind those of `outer`.
    pub fn inside(outer: &Registration, memory: Box<dyn Hold>) -> Self {
        Self::insert(memory, Some(outer.0))
    }

    fn insert(memory: Box<dyn Hold>, outer: Option<u64>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ffi::at_forks(before, after);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut registry = registry();
        let at = registry.iter().position(|entry| Some(entry.id) == outer);
        let at = at.unwrap_or(registry.len());
        registry.insert(at, Entry { id, memory });
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

/// A value behind a lock that forks hold: a child finds it whole, and the lock free.
#[derive(Debug)]
pub struct AtForks<T: Send + 'static> {
    value: Arc<Mutex<T>>,
    _registration: Registration,
}

impl<T: Send + 'static> AtForks<T> {
    /// The value, behind its lock. It is made after what its holder has locked.
    pub fn new(value: T) -> Self {
        let value = Arc::new(Mutex::new(value));
        let _registration = Registration::of(Box::new(HeldValue(value.clone())));
        Self { value, _registration }
    }

    /// The value, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct HeldValue<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> Hold for HeldValue<T> {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the lock.
        let value: &'static Mutex<T> = unsafe { &*Arc::as_ptr(&self.0) };
        Box::new(value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Lets go of a parent's thread in the child of a fork. To drop the handle would detach a thread by an address, which by then may be
/// that of a thread of the child's own.
pub(crate) fn leave_to_parent<T>(thread: JoinHandle<T>) {
    std::mem::forget(thread);
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

/// An allocator that can be held still. Its parts lie in its metadata.
struct Stoppable<P: PageLockPlatform + 'static> {
    storage: P::Storage,
    stillness: Stillness<'static, P>,
}

// SAFETY: references to what threads share (pagesets, zones, buckets and the lock are made for that), and a
// storage that is `Send`.
unsafe impl<P: PageLockPlatform + 'static> Send for Stoppable<P> where P::Storage: Send {}

/// Dropped in this order.
struct Stopped<P: PageLockPlatform + 'static> {
    _buckets: StoppedBuckets<P>,
    _zones: Vec<ZoneHold<'static, P>>,
    _cpus: Vec<StoppedPagesets<'static, 'static, P>>,
    _settings: Box<dyn Any>,
}

impl<P: PageLockPlatform + 'static> Hold for Stoppable<P>
where
    P::Storage: Send,
{
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`.
        let storage: &'static P::Storage = unsafe { &*std::ptr::from_ref(&self.storage) };
        let settings = loop {
            match self.stillness.try_hold_settings() {
                Some(settings) => break Box::new(settings),
                None => std::thread::yield_now(),
            }
        };
        let cpus = self.stillness.cpus().filter_map(|cpu| stop(&cpu, storage)).collect();
        let zones = self.stillness.hold_zones().collect();
        let buckets = self.stillness.wait_tables().flat_map(hold_buckets).collect();
        let buckets = StoppedBuckets { buckets, process: std::process::id() };
        Box::new(Stopped { _buckets: buckets, _zones: zones, _cpus: cpus, _settings: settings })
    }
}

/// Buckets of wait tables that nobody uses until this is dropped.
struct StoppedBuckets<P: PageLockPlatform + 'static> {
    buckets: Vec<HeldBucket<'static, P>>,
    process: u32,
}

impl<P: PageLockPlatform + 'static> Drop for StoppedBuckets<P> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // SAFETY: this process is a child, whose only thread forked: those that wait are threads of its parent.
            self.buckets.iter_mut().for_each(|bucket| unsafe { bucket.forget_all() });
        }
    }
}

/// Takes hold of a CPU's pagesets. `None` if they cannot be had: then another thread has them, which the child will not
/// get back, or the kernel does not let us.
fn stop<P: Platform>(
    cpu: &CpuPagesets<'static, P>,
    storage: &'static P::Storage,
) -> Option<StoppedPagesets<'static, 'static, P>> {
    let patience = Patience::begin();
    loop {
        let stopped = cpu.try_stop(storage);
        if stopped.is_some() || !patience.is_left::<P::Storage>() {
            return stopped;
        }
    }
}
