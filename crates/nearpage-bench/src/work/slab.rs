//! `slab`: objects, as pages in the other benchmarks: pairs of three sizes, a million of 64 bytes held and freed in
//! random order, objects that travel from one CPU to another, and CPUs on a node without memory, now and as before
//! 2010. Each object is written to once.

use std::ptr::{NonNull, null_mut};

use nearpage::{Gfp, NodeId};
use nearpage_linux::{
    HostMachine, HostNode, KmemCache, Memory, MemoryBuilder, MemoryError, SlabAllocator,
};
use nearpage_slab::{CacheOptions, LocalNode, SlabConfig};

use super::cross;
use super::pairs;
use super::random;
use crate::field::Context;
use crate::rows::{Key, Work};
use crate::source::{Address, Pair, Source};
use crate::step::Step;
use crate::threads::Cpus;

/// The size of objects that are held, that travel, and that memoryless nodes ask for.
const OBJECT_BYTES: usize = 64;
/// Sizes of pairs.
const SIZES: [usize; 3] = [OBJECT_BYTES, 256, 1024];
const NAMES: [&str; 3] = ["bench-64", "bench-256", "bench-1024"];

/// Memories of their own: those of the field serve pages.
pub struct Memories {
    nearpage: Memory,
    locked: Memory,
    hardened: Memory,
    /// All CPUs are on a node with memory, and a second node has as much.
    near: Memory,
    /// All CPUs are on a node without memory.
    memoryless: Memory,
    memoryless_old: Memory,
}

impl Memories {
    /// Makes them.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn new(
        builder: impl Fn() -> MemoryBuilder,
        bytes: u64,
        cpus: &Cpus,
    ) -> Result<Self, MemoryError> {
        let builder = || builder().bytes_per_node(bytes);
        let nodes = |near| builder().machine(two_nodes(cpus, near)).build();
        Ok(Self {
            nearpage: builder().build()?,
            locked: builder().use_rseq(false).build()?,
            hardened: builder().hardened(true).build()?,
            near: nodes(true)?,
            memoryless: nodes(false)?,
            memoryless_old: nodes(false)?,
        })
    }

    /// How many [`new`](Self::new) makes, each node's counted for itself.
    pub fn count_on(nodes: usize) -> usize {
        // near has memory on both of its nodes, the memoryless ones on one.
        3 * nodes + 2 + 1 + 1
    }

    /// Their slab allocators.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn allocators(&self) -> Result<Allocators<'_>, MemoryError> {
        let (now, old) = (LocalNode::NearestMemory, LocalNode::OwnNode);
        Ok(Allocators {
            nearpage: of(&self.nearpage, now)?,
            locked: of(&self.locked, now)?,
            hardened: of(&self.hardened, now)?,
            near: of(&self.near, now)?,
            memoryless: of(&self.memoryless, now)?,
            memoryless_old: of(&self.memoryless_old, old)?,
        })
    }

    /// Frees that were refused.
    pub fn misuses(&self) -> u64 {
        let all = [
            &self.nearpage,
            &self.locked,
            &self.hardened,
            &self.near,
            &self.memoryless,
            &self.memoryless_old,
        ];
        all.into_iter().map(Memory::misuses).sum()
    }
}

/// All CPUs on node 0; memory on it and node 1, or on node 1 alone.
fn two_nodes(cpus: &Cpus, near: bool) -> HostMachine {
    let nodes = vec![
        HostNode { id: NodeId(0), cpus: cpus.ids().to_vec(), has_memory: near },
        HostNode { id: NodeId(1), cpus: Vec::new(), has_memory: true },
    ];
    HostMachine { nodes, distances: vec![10, 20, 20, 10], emulated: true }
}

fn of(memory: &Memory, local: LocalNode) -> Result<SlabAllocator<'_>, MemoryError> {
    memory.slab(SlabConfig::default().with_local(local))
}

/// The slab allocators of [`Memories`].
pub struct Allocators<'m> {
    nearpage: SlabAllocator<'m>,
    locked: SlabAllocator<'m>,
    hardened: SlabAllocator<'m>,
    near: SlabAllocator<'m>,
    memoryless: SlabAllocator<'m>,
    memoryless_old: SlabAllocator<'m>,
}

/// A cache for each size, on each allocator.
pub struct Caches<'s> {
    nearpage: [KmemCache<'s>; 3],
    locked: [KmemCache<'s>; 3],
    hardened: [KmemCache<'s>; 3],
    near: [KmemCache<'s>; 3],
    memoryless: [KmemCache<'s>; 3],
    memoryless_old: [KmemCache<'s>; 3],
}

impl<'s> Caches<'s> {
    /// Makes the caches.
    pub fn of(allocators: &'s Allocators<'_>) -> Self {
        Self {
            nearpage: caches(&allocators.nearpage),
            locked: caches(&allocators.locked),
            hardened: caches(&allocators.hardened),
            near: caches(&allocators.near),
            memoryless: caches(&allocators.memoryless),
            memoryless_old: caches(&allocators.memoryless_old),
        }
    }

    fn variants(&self) -> [(&'static str, &[KmemCache<'s>; 3]); 3] {
        [
            ("nearpage", &self.nearpage),
            ("nearpage-locked", &self.locked),
            ("nearpage-hardened", &self.hardened),
        ]
    }
}

fn caches<'s>(slab: &'s SlabAllocator<'_>) -> [KmemCache<'s>; 3] {
    [0, 1, 2].map(|at| {
        let options = CacheOptions::new(NAMES[at], SIZES[at] as u64).align(64);
        slab.create(options).expect("there is room for three caches")
    })
}

/// All steps.
pub fn steps<'a>(context: Context<'a>, caches: &'a Caches<'_>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    let cpus = context.cpus.count();
    for threads in context.cpus.one_and_all() {
        for (at, &n) in SIZES.iter().enumerate() {
            let key = |allocator| Key { work: Work::ObjPair, allocator, threads, n };
            for (name, caches) in caches.variants() {
                steps.push(pairs::step(context, key(name), Objects(&caches[at])));
            }
            steps.push(pairs::step(context, key("glibc"), Glibc(n)));
        }
    }
    for (name, caches) in caches.variants() {
        steps.extend(held_and_travelling(context, name, Objects(&caches[0])));
    }
    steps.extend(held_and_travelling(context, "glibc", Glibc(OBJECT_BYTES)));
    let nodes = [
        (Work::ObjPairNear, &caches.near),
        (Work::ObjPairMemoryless, &caches.memoryless),
        (Work::ObjPairMemorylessOld, &caches.memoryless_old),
    ];
    for (work, caches) in nodes {
        let key = Key { work, allocator: "nearpage", threads: cpus, n: OBJECT_BYTES };
        steps.push(pairs::step(context, key, Objects(&caches[0])));
    }
    steps
}

fn held_and_travelling<'a, S: Source + Copy + 'a>(
    context: Context<'a>,
    name: &'static str,
    source: S,
) -> impl Iterator<Item = Step<'a>> + use<'a, S> {
    let travelling = (context.cpus.count() >= cross::THREADS)
        .then(|| cross::object_step(context, name, OBJECT_BYTES, source));
    let held = random::object_step(context, name, OBJECT_BYTES, source);
    [Some(held), travelling].into_iter().flatten()
}

/// Objects of a cache.
#[derive(Clone, Copy)]
struct Objects<'a, 's>(&'a KmemCache<'s>);

impl Source for Objects<'_, '_> {
    type Block = Address;
    const BLANK: Address = Address(None);

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<Address> {
        let object = self.0.alloc(Gfp::KERNEL).ok()?;
        // SAFETY: the object is ours, and of 64 bytes at least.
        unsafe { object.cast::<u64>().write(1) };
        Some(Address(Some(object.cast())))
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: Address) {
        if let Some(object) = block.0 {
            // SAFETY: passed on from the caller. A refusal is counted, and makes the benchmark fail at its end.
            let _ = unsafe { self.0.free(object.cast()) };
        }
    }
}

impl Pair for Objects<'_, '_> {
    #[inline(always)]
    fn pair(&self) -> bool {
        pair(self)
    }
}

/// glibc's malloc, of so many bytes.
#[derive(Clone, Copy)]
struct Glibc(usize);

impl Source for Glibc {
    type Block = Address;
    const BLANK: Address = Address(None);

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<Address> {
        // SAFETY: any size may be asked for.
        let object = NonNull::new(unsafe { libc::malloc(self.0) })?;
        // SAFETY: the object is ours, and of 64 bytes at least.
        unsafe { object.cast::<u64>().write(1) };
        Some(Address(Some(object)))
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: Address) {
        // SAFETY: passed on from the caller.
        unsafe { libc::free(block.0.map_or(null_mut(), NonNull::as_ptr)) };
    }
}

impl Pair for Glibc {
    #[inline(always)]
    fn pair(&self) -> bool {
        pair(self)
    }
}

#[inline(always)]
fn pair<S: Source>(source: &S) -> bool {
    let Some(object) = source.alloc::<0>() else { return false };
    // A copy goes where the optimizer cannot see it, as in `Blocks`.
    std::hint::black_box(object);
    // SAFETY: just allocated.
    unsafe { source.free::<0>(object) };
    true
}
