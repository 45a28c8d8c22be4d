//! Objects on their way home against a free, a cache that is shrunk against an allocation.

use loom::sync::Arc;
use loom::thread;
use nearpage::{Address, CpuId, Gfp, Model, NodeAccess, NodeId, NodeIndex, PageAllocator};
use nearpage_slab::internals::Tunables;
use nearpage_slab::{
    CacheOptions, KmemCache, ObjectError, SlabAllocator, SlabConfig, SlabPlatform, SlabRules,
};

use crate::explore::{assert_found, explore};
use crate::host::{
    HonestLocks, Host, Leaked, LeakyLocks, Locks, MEMORY, page_allocator, run_on, zeroes,
};

/// Preemptions in a run.
const PREEMPTIONS: usize = 4;

impl<K: Locks> SlabPlatform for Host<K> {
    fn misuse_of_object(&self, error: &ObjectError) {
        panic!("{error}");
    }
}

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
