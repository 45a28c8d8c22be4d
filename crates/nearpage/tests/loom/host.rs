//! The whole core on loom: a platform whose locks, and holds of a CPU's lists, are loom's. What happens between two of those
//! is one step: words that need no lock are not modelled.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::{CurrentCpu, Exclusion, Lock, Platform, SerialStorage};
use nearpage::{
    AddressMap, Config, CpuId, FreeError, Model, Node, NodeId, NodeIndex, PageAllocator, PfnRange,
    Topology,
};

use crate::model_lock::ModelLock;

/// Which locks a platform has.
pub trait Locks: 'static {
    type Lock<T>: Lock<T>;
}

/// Those that do what they should.
pub struct HonestLocks;

impl Locks for HonestLocks {
    type Lock<T> = ModelLock<T>;
}

loom::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
}

pub fn run_on(cpu: u32) {
    CPU.with(|on| on.set(cpu));
}

/// CPUs by thread, each held by one thread at a time.
pub struct Cpus;

/// Whether a CPU is held. No mutex of loom's: when it is given back is no step of loom's there, and nobody would be seen to
/// come meanwhile.
#[derive(Default)]
pub struct CpuHold(AtomicBool);

/// A held CPU.
pub struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CurrentCpu for Cpus {
    fn current_cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }
}

impl Exclusion for Cpus {
    type PerCpu = CpuHold;
    type OnCpu<'a> = Held<'a>;

    fn enter<'a>(&'a self, cpu: &'a CpuHold) -> Option<Held<'a>> {
        let taken = cpu.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Held(&cpu.0))
    }
}

/// What passes when somebody waits: after a few times a drain gives up.
const WAIT_NS: u64 = 100_000_000;

pub struct Host<K> {
    storage: SerialStorage<Cpus>,
    locks: PhantomData<fn() -> K>,
    /// Moves on while somebody waits: nobody waits for ever.
    now_ns: std::sync::atomic::AtomicU64,
}

impl<K: Locks> Platform for Host<K> {
    type Lock<T> = K::Lock<T>;
    type Storage = SerialStorage<Cpus>;
    type Rules = nearpage::rules::ByModel;
    type Waiters = ();

    fn storage(&self) -> &Self::Storage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn relax(&self) {
        self.now_ns.fetch_add(WAIT_NS, std::sync::atomic::Ordering::Relaxed);
        thread::yield_now();
    }

    fn misuse(&self, error: &FreeError) {
        panic!("{error}");
    }
}

/// Two nodes with a CPU and 4 MiB each.
const NODE_FRAMES: u64 = 1024;
pub const MEMORY: [PfnRange; 2] = [memory_at(1), memory_at(2)];
const CPUS: [CpuId; 2] = [CpuId(0), CpuId(1)];

const fn memory_at(section: u64) -> PfnRange {
    PfnRange::new(section * SECTION_FRAMES as u64, section * SECTION_FRAMES as u64 + NODE_FRAMES)
}

const fn node(at: usize) -> Node<'static> {
    let (memory, cpus) = (MEMORY.as_slice(), CPUS.as_slice());
    let (memory, cpus) = (memory.split_at(at).1.split_at(1).0, cpus.split_at(at).1.split_at(1).0);
    Node { id: NodeId(at as u32), memory, cpus, movable_from: None }
}

static NODES: [Node<'static>; 2] = [node(0), node(1)];

/// What others have references to for as long as it is there, and frees itself.
pub struct Leaked<T: ?Sized>(pub *mut T);

impl<T: ?Sized> Leaked<T> {
    pub fn new(value: Box<T>) -> Self {
        Self(Box::into_raw(value))
    }
}

impl<T: ?Sized> Deref for Leaked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it was a box, and nobody frees it before this is dropped.
        unsafe { &*self.0 }
    }
}

impl<T: ?Sized> Drop for Leaked<T> {
    fn drop(&mut self) {
        // SAFETY: it was a box, and whoever refers to it is gone: fields are dropped in their order.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Zeroes that are kept in `metadata`, which must go after all that is made of them.
pub fn zeroes(metadata: &mut Vec<Leaked<[u8]>>, bytes: usize) -> &'static mut [u8] {
    let zeroes = Leaked::new(vec![0; bytes].into_boxed_slice());
    // SAFETY: nobody else has the bytes, and the caller keeps them for long enough.
    let bytes = unsafe { &mut *zeroes.0 };
    metadata.push(zeroes);
    bytes
}

/// A page allocator for the two nodes, whose memory is offline.
pub fn page_allocator<K: Locks>(
    model: Model,
    metadata: &mut Vec<Leaked<[u8]>>,
) -> Leaked<PageAllocator<'static, Host<K>>> {
    let topology = Topology::new(&NODES, &[10, 20, 20, 10], AddressMap::Flat).expect("valid");
    page_allocator_of(topology, Config::new().with_model(model), metadata)
}

/// A page allocator for a machine whose memory is offline.
pub fn page_allocator_of<K: Locks>(
    topology: Topology<'static>,
    config: Config,
    metadata: &mut Vec<Leaked<[u8]>>,
) -> Leaked<PageAllocator<'static, Host<K>>> {
    let host = Host { storage: SerialStorage(Cpus), locks: PhantomData, now_ns: 0.into() };
    let buffer = |_: NodeIndex, bytes: usize| zeroes(metadata, bytes);
    let pages = PageAllocator::new(host, topology, config, buffer).expect("valid");
    Leaked::new(Box::new(pages))
}

/// The canary: locks under which a value is taken out, changed, and put back, with nobody kept out meanwhile.
pub struct LeakyLocks;

impl Locks for LeakyLocks {
    type Lock<T> = LeakyLock<T>;
}

pub struct LeakyLock<T>(Mutex<T>);

/// A copy, which overwrites what others made of the value.
pub struct LeakyGuard<'a, T> {
    lock: &'a Mutex<T>,
    copy: ManuallyDrop<T>,
}

impl<T> Lock<T> for LeakyLock<T> {
    type Guard<'a>
        = LeakyGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn lock(&self) -> LeakyGuard<'_, T> {
        let value = self.0.lock().expect("nobody panics with it");
        // SAFETY: what the core keeps under locks are numbers and references, of which there may be two.
        let copy = ManuallyDrop::new(unsafe { std::ptr::read(&raw const *value) });
        LeakyGuard { lock: &self.0, copy }
    }
}

impl<T> Deref for LeakyGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.copy
    }
}

impl<T> DerefMut for LeakyGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.copy
    }
}

impl<T> Drop for LeakyGuard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut value = self.lock.lock().expect("nobody panics with it");
        // SAFETY: as in `lock`; nothing of it needs to be dropped.
        unsafe { std::ptr::copy_nonoverlapping(&raw const *self.copy, &raw mut *value, 1) };
    }
}
