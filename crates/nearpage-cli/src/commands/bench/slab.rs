//! `slab`: objects, as pages in the other benchmarks: pairs of three sizes, a million of 64 bytes held and freed in
//! random order, objects that travel from one CPU to another, and CPUs on a node without memory, now and as before
//! 2010. Each object is written to once.

use std::ptr::{NonNull, null_mut};

use nearpage::gfp::Gfp;
use nearpage::slab::{CacheOptions, LocalNode, SlabConfig};
use nearpage::units::NodeId;
use nearpage_linux::slab::{KmemCache, SlabAllocator};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryError};

use super::cross;
use super::field::Context;
use super::pairs;
use super::random;
use super::rows::{Key, Work};
use super::source::{Address, Pair, Source};
use super::step::Step;
use super::threads::Cpus;

/// The size of objects where there is one.
pub const OBJECT_BYTES: usize = 64;
/// Sizes of pairs.
const SIZES: [usize; 3] = [64, 256, 1024];
const NAMES: [&str; 3] = ["bench-64", "bench-256", "bench-1024"];

/// A memory whose CPUs are all on its first node, with memory on both nodes or on the second alone, and caches.
///
/// They live as long as the process, which ends soon.
fn caches(
    memory: &'static Memory,
    config: SlabConfig,
) -> Result<[KmemCache<'static>; 3], MemoryError> {
    let slab: &'static SlabAllocator<'static> = Box::leak(Box::new(memory.slab(config)?));
    let cache = |at: usize| {
        let options = CacheOptions::new(NAMES[at], SIZES[at] as u64).align(64);
        slab.create(options).expect("there is room for three caches")
    };
    Ok([cache(0), cache(1), cache(2)])
}

/// Caches of memories of their own: those of the field serve pages.
pub struct Caches {
    nearpage: [KmemCache<'static>; 3],
    locked: [KmemCache<'static>; 3],
    hardened: [KmemCache<'static>; 3],
    near: [KmemCache<'static>; 3],
    memoryless: [KmemCache<'static>; 3],
    memoryless_old: [KmemCache<'static>; 3],
}

impl Caches {
    /// Makes the memories.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn new(bytes: u64, cpus: &Cpus) -> Result<&'static Self, MemoryError> {
        let builder = || Memory::builder().bytes_per_node(bytes);
        let of = |builder: nearpage_linux::MemoryBuilder, local| {
            let memory: &'static Memory = Box::leak(Box::new(builder.build()?));
            caches(memory, SlabConfig { local, ..SlabConfig::default() })
        };
        let nodes = |near| builder().machine(two_nodes(cpus, near));
        let (now, old) = (LocalNode::NearestMemory, LocalNode::OwnNode);
        Ok(Box::leak(Box::new(Self {
            nearpage: of(builder(), now)?,
            locked: of(builder().use_rseq(false), now)?,
            hardened: of(builder().hardened(true), now)?,
            near: of(nodes(true), now)?,
            memoryless: of(nodes(false), now)?,
            memoryless_old: of(nodes(false), old)?,
        })))
    }

    /// Memories of `bytes` that [`new`](Self::new) makes, each node's counted for itself.
    pub fn memories_on(nodes: usize) -> usize {
        // near has memory on both of its nodes, the memoryless ones on one.
        3 * nodes + 2 + 1 + 1
    }

    fn variants(&self) -> [(&'static str, &[KmemCache<'static>; 3]); 3] {
        [
            ("nearpage", &self.nearpage),
            ("nearpage-locked", &self.locked),
            ("nearpage-hardened", &self.hardened),
        ]
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
        all.iter().map(|caches| caches[0].slab().memory().misuses()).sum()
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

/// All steps.
pub fn steps<'a>(context: Context<'a>, caches: &'static Caches) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    let cpus = context.cpus.count();
    for threads in context.thread_counts() {
        for (at, &n) in SIZES.iter().enumerate() {
            let key = |allocator| Key { work: Work::ObjPair, allocator, threads, n };
            for (name, caches) in caches.variants() {
                steps.push(pairs::step(context, key(name), Objects(&caches[at])));
            }
            steps.push(pairs::step(context, key("glibc"), Glibc(n)));
        }
    }
    for (name, caches) in caches.variants() {
        let source = Box::leak(Box::new(Objects(&caches[0])));
        steps.push(random::object_step(context, name, source));
        if cpus >= cross::THREADS {
            steps.push(cross::object_step(context, name, source));
        }
    }
    let glibc: &'static Glibc = &Glibc(OBJECT_BYTES);
    steps.push(random::object_step(context, "glibc", glibc));
    if cpus >= cross::THREADS {
        steps.push(cross::object_step(context, "glibc", glibc));
    }
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

/// Objects of a cache.
struct Objects(&'static KmemCache<'static>);

impl Source for Objects {
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

impl Pair for Objects {
    #[inline(always)]
    fn pair(&self) -> bool {
        pair(self)
    }
}

/// glibc's malloc, of so many bytes.
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
