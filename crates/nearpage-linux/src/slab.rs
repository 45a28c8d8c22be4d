//! [`SlabAllocator`]: caches of objects on a [`Memory`].
//!
//! A [`KmemCache`] gives objects of one size as pointers, a [`TypedCache`] gives values that free themselves, and
//! [`SizeClasses`] memory of any size. Metadata lies on the node that it describes, as that of the pages does: a
//! line of 64 bytes for each frame, of which only those of slabs are ever touched.

/// Calls one expression on whichever shape there is.
macro_rules! with_shape {
    ($shape:expr, $core:ident => $body:expr) => {
        match $shape {
            $crate::slab::Shape::Rseq($core) => $body,
            $crate::slab::Shape::RseqHardened($core) => $body,
            $crate::slab::Shape::Locked($core) => $body,
            $crate::slab::Shape::LockedHardened($core) => $body,
        }
    };
}

mod cache;
mod classes;
mod hold;
mod typed;
mod upkeep;

use std::fmt;
use std::ptr::NonNull;

use nearpage::slab::{
    CacheOptions, CreateError, LiveObjects, SlabCheckError, SlabChecked, SlabConfig, StacksBusy,
};
use nearpage::{
    Address, CpuError, CpuId, NodeAccess, NodeId, NodeIndex, PageCount, UnknownNode, slab,
};

use crate::builder::metadata_region;
use crate::fork::Registration;
use crate::host::Host;
use crate::locked::LockedStorage;
use crate::memory::{Allocator, Memory, MemoryError, text};
use crate::numa::Binding;
use crate::region::Region;
use crate::rseq::RingStorage;

pub use cache::KmemCache;
pub use classes::SizeClasses;
pub use typed::{ObjectBox, TypedCache};
pub(crate) use upkeep::Objects;
use upkeep::Place;

/// The core's allocator, in one of the four shapes that a memory has.
pub(crate) type Core<'a, S, const HARDENED: bool> =
    slab::SlabAllocator<'a, 'static, Host<S, HARDENED>>;

/// The core's allocator, in the four shapes.
pub(crate) enum Shape<'a> {
    Rseq(Core<'a, RingStorage, false>),
    RseqHardened(Core<'a, RingStorage, true>),
    Locked(Core<'a, LockedStorage, false>),
    LockedHardened(Core<'a, LockedStorage, true>),
}

impl<'a> Shape<'a> {
    fn twin(&self) -> Shape<'a> {
        match self {
            Self::Rseq(core) => Shape::Rseq(core.twin()),
            Self::RseqHardened(core) => Shape::RseqHardened(core.twin()),
            Self::Locked(core) => Shape::Locked(core.twin()),
            Self::LockedHardened(core) => Shape::LockedHardened(core.twin()),
        }
    }

    /// A round of reaping for each CPU; the error is of the first whose stacks could not be had.
    fn reap(&self) -> Result<(), StacksBusy> {
        with_shape!(self, core => {
            let cpus = core.pages().topology().nodes().iter().flat_map(|node| node.cpus);
            cpus.map(|&cpu| core.reap_cpu(cpu)).fold(Ok(()), Result::and)
        })
    }
}

/// The same on that of a slab allocator.
macro_rules! with_slab {
    ($slab:expr, $core:ident => $body:expr) => { with_shape!(&$slab.shape, $core => $body) };
}

/// Caches of objects on a memory. A memory can have one in its life.
///
/// The memory's background thread ([`Reclaim::start`](crate::reclaim::Reclaim::start)) reaps it, and a request that
/// finds no memory has what it keeps given back. Without that thread, call [`reap`](Self::reap) every two seconds.
///
/// ```
/// use nearpage::slab::{CacheOptions, SlabConfig};
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(64 << 20).build()?;
/// let slab = memory.slab(SlabConfig::default())?;
/// let numbers = slab.typed::<u64>("numbers")?;
/// let seven = numbers.alloc(7)?;
/// assert_eq!(*seven, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SlabAllocator<'a> {
    // Dropped in this order: whoever looks after it, forks and the core refer to the metadata.
    _place: Place,
    _registration: Registration,
    shape: Shape<'a>,
    memory: &'a Memory,
    _metadata: Vec<Region>,
}

impl Memory {
    /// Makes the slab allocator of this memory.
    ///
    /// # Errors
    /// [`MemoryError`] if there is or was one already, or there is no memory for its metadata.
    pub fn slab(&self, config: SlabConfig) -> Result<SlabAllocator<'_>, MemoryError> {
        let mut maker = Maker { memory: self, config, binding: self.binding, metadata: Vec::new() };
        let (shape, registration) = match &self.allocator {
            Allocator::Rseq(pages) => {
                let area = pages.platform().storage_twin();
                let (core, registration) = maker.make(pages, area)?;
                (Shape::Rseq(core), registration)
            }
            Allocator::RseqHardened(pages) => {
                let area = pages.platform().storage_twin();
                let (core, registration) = maker.make(pages, area)?;
                (Shape::RseqHardened(core), registration)
            }
            Allocator::Locked(pages) => {
                let (core, registration) = maker.make(pages, LockedStorage::default())?;
                (Shape::Locked(core), registration)
            }
            Allocator::LockedHardened(pages) => {
                let (core, registration) = maker.make(pages, LockedStorage::default())?;
                (Shape::LockedHardened(core), registration)
            }
        };
        Ok(SlabAllocator {
            _place: Place::take(&self.objects, &shape),
            _registration: registration,
            shape,
            memory: self,
            _metadata: maker.metadata,
        })
    }
}

/// What the core's allocator is made of.
struct Maker<'a> {
    memory: &'a Memory,
    config: SlabConfig,
    binding: Binding,
    metadata: Vec<Region>,
}

impl<'a> Maker<'a> {
    /// `storage` is for forks: one like the platform's own.
    fn make<S, const HARDENED: bool>(
        &mut self,
        pages: &'a nearpage::PageAllocator<'static, Host<S, HARDENED>>,
        storage: S,
    ) -> Result<(Core<'a, S, HARDENED>, Registration), MemoryError>
    where
        S: slab::ObjectStorage + Send + 'static,
    {
        let topology = self.memory.topology();
        let mut buffers = Vec::new();
        for index in topology.indexes() {
            let bytes = self
                .config
                .metadata_size::<Host<S, HARDENED>>(topology, index)
                .map_err(MemoryError::Build)?;
            if bytes > 0 {
                let region = metadata_region(topology.node(index).id, bytes, &mut self.binding)?;
                buffers.push((index, region));
            }
        }
        let buffer = |index: NodeIndex, bytes| {
            let (_, region) =
                buffers.iter().find(|(of, _)| *of == index).expect("metadata_size named this node");
            // SAFETY: the region is `bytes` long, usable, zero, and nobody else's: the core asks for each
            // node once. It stays mapped as long as the allocator is there (`SlabAllocator` drops it after),
            // and for ever if that is never dropped.
            unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), bytes) }
        };
        let core =
            slab::SlabAllocator::new(pages, self.config, buffer).map_err(MemoryError::Build)?;
        // The metadata lies in the regions; `SlabAllocator` drops the registration before them.
        let registration = hold::register(core.parts(), storage);
        self.metadata.extend(buffers.into_iter().map(|(_, region)| region));
        Ok((core, registration))
    }
}

impl<'a> SlabAllocator<'a> {
    /// The memory below.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Makes a cache.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(&self, options: CacheOptions) -> Result<KmemCache<'_>, CreateError> {
        KmemCache::create(self, options)
    }

    /// Makes a cache of values.
    ///
    /// # Errors
    /// [`CreateError`], of values without a size too.
    pub fn typed<T>(&self, name: &'static str) -> Result<TypedCache<'_, T>, CreateError> {
        TypedCache::create(self, name)
    }

    /// Makes caches for all sizes.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn size_classes(&self) -> Result<SizeClasses<'_>, CreateError> {
        SizeClasses::create(self)
    }

    /// The node that objects come from for a CPU, or `None` if the topology has no such CPU.
    pub fn effective_node(&self, cpu: CpuId) -> Option<NodeId> {
        let node = with_slab!(self, core => core.effective_node(cpu))?;
        Some(self.memory.topology().node(node).id)
    }

    /// The cache and the object that an address is of, or `None`; in a time that depends on nothing.
    pub fn owner(&self, address: *const u8) -> Option<slab::ObjectOwner> {
        with_slab!(self, core => core.owner(address_of(address)))
    }

    /// Upkeep of all CPUs, to be called every 2 seconds: what nobody uses goes back.
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had; the others were reaped.
    pub fn reap(&self) -> Result<(), StacksBusy> {
        self.shape.reap()
    }

    /// Brings all free objects home and gives all free slabs back; returns pages. A [`Shrinker`](
    /// crate::reclaim::Shrinker) may call this.
    pub fn shrink_all(&self) -> PageCount {
        with_slab!(self, core => core.shrink_all())
    }

    /// Brings `bytes` of a node's reserve online, with what follows for objects: as [`Memory::bring_online`], with
    /// stacks emptied before and the nodes of CPUs computed after. A CPU whose stacks cannot be had just then keeps
    /// its node until [`refresh_nodes`](Self::refresh_nodes) is called again.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn bring_online(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        let _ = with_slab!(self, core => core.flush_stacks());
        let pages = self.memory.bring_online(node, bytes)?;
        let _ = self.refresh_nodes();
        Ok(pages)
    }

    /// Takes the last `bytes` that are online on a node offline, with what follows for objects: as
    /// [`Memory::take_offline`], with free slabs given back before and the nodes of CPUs computed after.
    ///
    /// # Errors
    /// [`MemoryError`]: a slab with an object in use is in use.
    pub fn take_offline(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        self.shrink_all();
        let pages = self.memory.take_offline(node, bytes)?;
        let _ = self.refresh_nodes();
        Ok(pages)
    }

    /// Says who may use the memory of a node, with what follows for objects: as [`Memory::set_access`], with stacks
    /// emptied before and the nodes of CPUs computed after.
    ///
    /// # Errors
    /// [`UnknownNode`]; nothing is changed then.
    pub fn set_access(&self, node: NodeId, access: NodeAccess) -> Result<(), UnknownNode> {
        with_slab!(self, core => core.set_access(node, access))
    }

    /// Switches a CPU off, with what follows for objects: as [`Memory::offline_cpu`], with its stacks emptied, and not used
    /// until it is [on](Self::online_cpu) again.
    ///
    /// # Errors
    /// [`CpuError`]; nothing is changed then.
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<PageCount, CpuError> {
        with_slab!(self, core => core.offline_cpu(cpu))
    }

    /// Switches a CPU on again, with its stacks.
    ///
    /// # Errors
    /// [`CpuError`]; nothing is changed then.
    pub fn online_cpu(&self, cpu: CpuId) -> Result<(), CpuError> {
        with_slab!(self, core => core.online_cpu(cpu))
    }

    /// Computes the nodes of CPUs anew: after memory came online by other ways than
    /// [`bring_online`](Self::bring_online).
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had; it keeps its node.
    pub fn refresh_nodes(&self) -> Result<(), StacksBusy> {
        with_slab!(self, core => core.refresh_nodes())
    }

    /// Deals the byte budget of the pagesets out anew, after it changed, and brings home what stacks hold above their new
    /// limits.
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had: what it holds above its limit goes home as it
    /// frees, or with the next call.
    pub fn apply_budget(&self) -> Result<(), StacksBusy> {
        with_slab!(self, core => core.apply_budget())
    }

    /// The most bytes that stacks keep.
    pub fn stack_bytes_max(&self) -> u64 {
        with_slab!(self, core => core.stack_bytes_max())
    }

    /// All caches as `/proc/slabinfo` would print them.
    pub fn slabinfo(&self) -> String {
        text(|out| with_slab!(self, core => core.write_slabinfo(out)))
    }

    /// What caches did: see [`slab::SlabAllocator::write_stats`].
    pub fn statistics(&self) -> String {
        text(|out| with_slab!(self, core => core.write_stats(out)))
    }

    /// Walks all caches; see [`slab::SlabAllocator::check_all`]. Nothing is changed; while other threads use caches, what is
    /// told may be wrong. The memory's background thread waits meanwhile.
    ///
    /// # Errors
    /// The first thing found wrong; this memory must not be used any further, if no other thread used it.
    pub fn check(&self) -> Result<SlabChecked, SlabCheckError> {
        with_slab!(self, core => core.check_all())
    }
}

impl Drop for SlabAllocator<'_> {
    fn drop(&mut self) {
        self.shrink_all();
    }
}

impl fmt::Debug for SlabAllocator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlabAllocator").field("memory", self.memory).finish_non_exhaustive()
    }
}

/// A cache that was not destroyed, and why.
pub type NotDestroyed<'s> = (KmemCache<'s>, LiveObjects);

fn address_of(pointer: *const u8) -> Address {
    Address(pointer.addr() as u64)
}

impl Memory {
    /// The pointer to an address of this memory that the core handed out.
    #[inline(always)]
    pub(crate) fn pointer(&self, address: Address) -> NonNull<u8> {
        let start = self.region.start().as_ptr();
        // SAFETY: the core handed the address out, so it lies in the region, which is not at 0.
        unsafe { NonNull::new_unchecked(start.with_addr(address.0 as usize)) }
    }
}
