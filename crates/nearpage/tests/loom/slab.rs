//! The slab allocator itself in all interleavings of its locks: objects on their way home against a free, a cache that is
//! shrunk against an allocation.
//!
//! Here runs the whole core, page allocator included, on a platform whose locks, and holds of a CPU's stacks, are
//! loom's. What happens between two of those is one step: words that need no lock are not modelled.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use nearpage::internals::{SECTION_FRAMES, Tunables};
use nearpage::platform::{CurrentCpu, Exclusion, Lock, Platform, SerialStorage};
use nearpage::rules::PageLockRules;
use nearpage::slab::{CacheOptions, KmemCache, ObjectError, SlabAllocator, SlabConfig, SlabRules};
use nearpage::{
    Address, AddressMap, Config, CpuId, FreeError, Gfp, Model, Node, NodeAccess, NodeId, NodeIndex,
    PageAllocator, PfnRange, Topology,
};

use crate::cells::ModelLock;
use crate::{assert_found, explore};

/// Preemptions in a run.
const PREEMPTIONS: usize = 4;

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

    fn misuse_of_object(&self, error: &ObjectError) {
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

/// A machine with a cache of 64 bytes; its memory goes last.
struct Machine<K: Locks> {
    cache: KmemCache<'static, Host<K>>,
    slab: SlabAllocator<'static, 'static, Host<K>>,
    _pages: Leaked<PageAllocator<'static, Host<K>>>,
    _metadata: Vec<Leaked<[u8]>>,
}

// SAFETY: loom's threads take turns on one thread of the system, and change only in its own operations.
unsafe impl<K: Locks> Send for Machine<K> {}
// SAFETY: as above.
unsafe impl<K: Locks> Sync for Machine<K> {}

/// What others have references to for as long as it is there, and frees itself.
pub struct Leaked<T: ?Sized>(*mut T);

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
fn zeroes(metadata: &mut Vec<Leaked<[u8]>>, bytes: usize) -> &'static mut [u8] {
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
    // One wait table, which nobody needs: they are many locks.
    let model = model.with(|changed| changed.page_lock = PageLockRules::LINUX);
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

impl<K: Locks> Machine<K> {
    fn new() -> Arc<Self> {
        Self::with(SlabConfig::default())
    }

    fn with(config: SlabConfig) -> Arc<Self> {
        let mut metadata = Vec::new();
        let pages = page_allocator(Model::NEARPAGE, &mut metadata);
        let mut buffer = |_: NodeIndex, bytes: usize| zeroes(&mut metadata, bytes);
        let config = config.with_caches_max(1);
        // SAFETY: the box goes after the slab allocator.
        let slab = SlabAllocator::new(unsafe { &*pages.0 }, config, &mut buffer).expect("valid");
        slab.online_all(&MEMORY).expect("memory of the topology");
        let cache = slab.create(CacheOptions::new("model", 64)).expect("valid");
        Arc::new(Self { cache, slab, _pages: pages, _metadata: metadata })
    }

    fn alloc(&self) -> Address {
        self.slab.alloc(&self.cache, Gfp::KERNEL).expect("there is memory")
    }

    fn free(&self, object: Address) {
        self.slab.free(&self.cache, object).expect("an object in use");
    }

    /// Every object is in one place, and these are held.
    fn assert_held(&self, held: &[Address]) {
        let checked = self.slab.check(&self.cache).expect("the walker finds nothing");
        assert_eq!(checked.held, held.len() as u64, "an object lost or doubled");
        assert!(held.iter().all(|&object| self.slab.owner(object).is_some()), "a slab was freed");
        self.slab.pages().check().expect("the walker finds nothing");
    }
}

/// A CPU of node 1 frees objects of node 0 while another round of reaping, of the same CPU, brings those before home.
fn free_against_drain<K: Locks>() {
    let machine = Machine::<K>::new();
    run_on(0);
    let objects: Vec<Address> = (0..15).map(|_| machine.alloc()).collect();
    run_on(1);
    // The stack for objects of node 0 is full; the next round is that of node 0.
    machine.slab.reap_cpu(CpuId(1)).expect("nobody has the stacks");
    let full = Tunables::of(SlabRules::Slab2010, 64, 2, 2, 4096).alien_limit as usize;
    objects[..full].iter().for_each(|&object| machine.free(object));
    let other = machine.clone();
    let drainer = thread::spawn(move || {
        run_on(1);
        other.slab.reap_cpu(CpuId(1)).expect("they will be had");
    });
    objects[full..].iter().for_each(|&object| machine.free(object));
    machine.slab.shrink(&machine.cache).expect("the stacks will be had");
    drainer.join().expect("it does not panic");
    machine.assert_held(&[]);
}

#[test]
fn objects_go_home_once_while_others_are_freed() {
    let model = free_against_drain::<HonestLocks>;
    explore("slab: a free against a drain of alien stacks", PREEMPTIONS, model);
}

/// A CPU allocates and frees, with what its stack has and with what it has not, while its cache is shrunk.
fn alloc_against_shrink<K: Locks>() {
    let machine = Machine::<K>::new();
    run_on(0);
    let first = machine.alloc();
    let other = machine.clone();
    let shrinker = thread::spawn(move || {
        run_on(1);
        other.slab.shrink(&other.cache).expect("the stacks will be had");
    });
    machine.free(first);
    let held = [machine.alloc(), machine.alloc()];
    shrinker.join().expect("it does not panic");
    assert_ne!(held[0], held[1], "an object was given twice");
    machine.assert_held(&held);
    held.iter().for_each(|&object| machine.free(object));
    machine.slab.shrink(&machine.cache).expect("nobody has the stacks");
    machine.assert_held(&[]);
    assert_eq!(machine.slab.counts(&machine.cache).slabs, 0);
}

#[test]
fn a_cache_is_shrunk_while_it_gives_objects() {
    let model = alloc_against_shrink::<HonestLocks>;
    explore("slab: an allocation against a shrink", PREEMPTIONS, model);
}

/// A CPU whose sheaves are full frees, and takes a sheaf back, while its cache is shrunk.
fn sheaves_against_shrink<K: Locks>() {
    let machine = Machine::<K>::with(SlabConfig::LINUX_7_1);
    run_on(0);
    let full = Tunables::of(SlabRules::Sheaves7_1, 64, 2, 2, 4096).limit;
    let mut objects: Vec<Address> = (0..=full).map(|_| machine.alloc()).collect();
    let last = objects.pop().expect("one more than sheaves hold");
    objects.drain(..).for_each(|object| machine.free(object));
    let other = machine.clone();
    let shrinker = thread::spawn(move || {
        run_on(1);
        other.slab.shrink(&other.cache).expect("the stacks will be had");
    });
    machine.free(last);
    let held = [machine.alloc(), machine.alloc()];
    shrinker.join().expect("it does not panic");
    machine.assert_held(&held);
    held.iter().for_each(|&object| machine.free(object));
    machine.slab.shrink(&machine.cache).expect("nobody has the stacks");
    machine.assert_held(&[]);
    assert_eq!(machine.slab.counts(&machine.cache).slabs, 0);
}

#[test]
fn a_sheaf_goes_to_the_barn_while_the_cache_is_shrunk() {
    let model = sheaves_against_shrink::<HonestLocks>;
    explore("slab: a sheaf to the barn against a shrink", PREEMPTIONS, model);
}

/// A CPU frees onto its full stack while its node becomes private, so that another one is its nearest.
fn free_against_refresh<K: Locks>() {
    let machine = Machine::<K>::new();
    run_on(0);
    let mut objects: Vec<Address> = (0..140).map(|_| machine.alloc()).collect();
    let last = objects.split_off(138);
    let full = u64::from(Tunables::of(SlabRules::Slab2010, 64, 2, 2, 4096).limit);
    while machine.slab.check(&machine.cache).expect("nobody else is there").in_stacks < full {
        machine.free(objects.pop().expect("they are more than a stack holds"));
    }
    let other = machine.clone();
    let changer = thread::spawn(move || {
        run_on(1);
        other.slab.set_access(NodeId(0), NodeAccess::Private).expect("there is such a node");
    });
    last.iter().for_each(|&object| machine.free(object));
    changer.join().expect("it does not panic");
    machine.assert_held(&objects);
    assert_eq!(machine.slab.check(&machine.cache).expect("checked before").foreign, 0);
    objects.iter().for_each(|&object| machine.free(object));
}

#[test]
fn no_object_stays_on_a_stack_of_another_node() {
    let model = free_against_refresh::<HonestLocks>;
    explore("slab: frees against a change of nodes", PREEMPTIONS, model);
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

#[test]
fn a_drain_that_keeps_nobody_out_is_found() {
    let test = "slab::a_drain_that_keeps_nobody_out_is_found";
    assert_found(test, "double free", free_against_drain::<LeakyLocks>);
}

#[test]
fn a_barn_that_keeps_nobody_out_is_found() {
    let test = "slab::a_barn_that_keeps_nobody_out_is_found";
    assert_found(test, "the walker finds nothing", sheaves_against_shrink::<LeakyLocks>);
}

#[test]
fn a_shrink_that_keeps_nobody_out_is_found() {
    let test = "slab::a_shrink_that_keeps_nobody_out_is_found";
    assert_found(test, "the walker finds nothing", alloc_against_shrink::<LeakyLocks>);
}
