//! [`SlabAllocator`]: caches of objects on a memory.

use std::fmt;

use nearpage::{CpuId, NodeId, PageCount};
use nearpage_slab::{ObjectOwner, SlabCheckError, SlabChecked, SlabConfig, StacksBusy};

use super::address::address_of;
use super::calls::{Core, SlabCalls};
use super::hold;
use crate::error::MemoryError;
use crate::fork::Registration;
use crate::host::Host;
use crate::locked::LockedStorage;
use crate::memory::{Memory, text};
use crate::metadata::Metadata;
use crate::objects::Place;
use crate::pages::{Allocator, PagesOn};
use crate::rseq::Sequences;
use crate::storage::{RingAccess, Rings};

/// The core's allocator: of the common type, or of any other.
pub(super) enum Shape<'a> {
    Rseq(Core<'a, Sequences, false>),
    Other(Box<dyn SlabCalls + 'a>),
}

impl<'a> Shape<'a> {
    fn calls(&self) -> &(dyn SlabCalls + 'a) {
        match self {
            Self::Rseq(core) => core,
            Self::Other(core) => &**core,
        }
    }
}

/// Caches of objects on a memory. A memory can have one slab allocator in its life.
///
/// The memory looks after it. The background thread ([`Reclaim::start`](crate::Reclaim::start)) reaps it every two seconds; a
/// program without that thread should call [`reap`](Self::reap). A request that finds no memory takes back the pages that
/// caches keep. When memory or CPUs come and go, a node becomes private, or settings change, the memory tells the slab
/// allocator.
///
/// Its metadata lies on the node that it describes: a line of 64 bytes for each frame. Only the lines of slabs are ever
/// touched.
///
/// ```
/// use nearpage_slab::{CacheOptions, SlabConfig};
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
    _metadata: Metadata,
}

impl Memory {
    /// Makes the slab allocator of this memory.
    ///
    /// # Errors
    /// [`MemoryError`] if there is or was one already, or there is no memory for its metadata.
    pub fn slab(&self, config: SlabConfig) -> Result<SlabAllocator<'_>, MemoryError> {
        let maker = Maker { memory: self, config };
        let Made { shape, metadata, registration } = match &self.allocator {
            Allocator::Rseq(pages) => {
                maker.make(pages, pages.platform().storage_twin(), Shape::Rseq)
            }
            Allocator::RseqHardened(pages) => {
                maker.make(pages, pages.platform().storage_twin(), other)
            }
            Allocator::Locked(pages) => maker.make(pages, LockedStorage::default(), other),
            Allocator::LockedHardened(pages) => maker.make(pages, LockedStorage::default(), other),
        }?;
        let calls = shape.calls();
        Ok(SlabAllocator {
            _place: Place::take(&self.objects, calls.twin(), calls.platform_address()),
            _registration: registration,
            shape,
            memory: self,
            _metadata: metadata,
        })
    }
}

/// A slab allocator that is not of the common type.
fn other<A: RingAccess, const HARDENED: bool>(core: Core<'_, A, HARDENED>) -> Shape<'_> {
    Shape::Other(Box::new(core))
}

/// An allocator, and what belongs to it.
struct Made<'a> {
    shape: Shape<'a>,
    metadata: Metadata,
    registration: Registration,
}

/// What the core's allocator is made of.
struct Maker<'a> {
    memory: &'a Memory,
    config: SlabConfig,
}

impl<'a> Maker<'a> {
    /// `storage` is for forks: one like the platform's own.
    fn make<A: RingAccess, const HARDENED: bool>(
        &self,
        pages: &'a PagesOn<A, HARDENED>,
        storage: Rings<A>,
        shape: fn(Core<'a, A, HARDENED>) -> Shape<'a>,
    ) -> Result<Made<'a>, MemoryError> {
        let topology = self.memory.topology();
        let mut binding = self.memory.binding;
        let metadata = Metadata::new(topology, &mut binding, |node| {
            let bytes = self.config.metadata_size::<Host<Rings<A>, HARDENED>>(topology, node);
            bytes.map_err(MemoryError::Slab)
        })?;
        // SAFETY: the core asks for each node once. `SlabAllocator` drops the metadata after the allocator, and if it is
        // never dropped, that is not either.
        let buffer = |node, bytes| unsafe { metadata.of_node(node, bytes) };
        let core = nearpage_slab::SlabAllocator::new(pages, self.config, buffer)
            .map_err(MemoryError::Slab)?;
        // `SlabAllocator` drops the registration before the metadata.
        let registration = hold::register(core.parts(), storage, &self.memory.objects_at_forks);
        Ok(Made { shape: shape(core), metadata, registration })
    }
}

impl<'a> SlabAllocator<'a> {
    pub(super) fn shape(&self) -> &Shape<'a> {
        &self.shape
    }

    /// The memory below.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    fn calls(&self) -> &(dyn SlabCalls + 'a) {
        self.shape.calls()
    }

    /// The node that a CPU gets objects from. `None` if the CPU is unknown.
    pub fn effective_node(&self, cpu: CpuId) -> Option<NodeId> {
        let node = self.calls().effective_node(cpu)?;
        Some(self.memory.topology().node(node).id)
    }

    /// The cache and the object that an address belongs to, in constant time. `None` if it belongs to no object.
    pub fn owner(&self, address: *const u8) -> Option<ObjectOwner> {
        self.calls().owner(address_of(address))
    }

    /// Returns objects and slabs that the caches did not use lately. Without a [`Reclaim`](crate::Reclaim) thread, a program
    /// should call this every two seconds.
    ///
    /// # Errors
    /// [`StacksBusy`] for the first CPU whose stacks are busy; the other CPUs are reaped.
    pub fn reap(&self) -> Result<(), StacksBusy> {
        self.calls().reap()
    }

    /// Returns all free objects to their slabs and all free slabs to the memory; returns the freed pages. A
    /// [`Shrinker`](crate::Shrinker) may call this.
    pub fn shrink_all(&self) -> PageCount {
        self.calls().shrink_all()
    }

    /// Computes again from which node each CPU gets objects. The memory does so when it grows or shrinks, when a node
    /// becomes private, and when a CPU is switched. A CPU whose stacks were busy then keeps its old node until this or
    /// [`reap`](Self::reap) is called.
    ///
    /// # Errors
    /// [`StacksBusy`] for the first CPU whose stacks are busy; it keeps its node.
    pub fn refresh_nodes(&self) -> Result<(), StacksBusy> {
        self.calls().refresh_nodes()
    }

    /// Divides the byte budget of the CPUs' caches again, and returns objects above the new limits to their slabs. The memory
    /// does so when its settings change.
    ///
    /// # Errors
    /// [`StacksBusy`] for the first CPU whose stacks are busy. Its objects above the limit go back as it frees, or with the
    /// next call.
    pub fn apply_budget(&self) -> Result<(), StacksBusy> {
        self.calls().apply_budget()
    }

    /// The most bytes of objects that the CPUs' stacks may keep.
    pub fn stack_bytes_max(&self) -> u64 {
        self.calls().stack_bytes_max()
    }

    /// All caches, in the layout of `/proc/slabinfo`.
    pub fn slabinfo(&self) -> String {
        text(|out| self.calls().write_slabinfo(out))
    }

    /// What the caches did; see [`nearpage_slab::SlabAllocator::write_stats`].
    pub fn statistics(&self) -> String {
        text(|out| self.calls().write_stats(out))
    }

    /// Walks all caches and changes nothing; see [`nearpage_slab::SlabAllocator::check_all`]. Results may be inaccurate while other
    /// threads use caches. The memory's background thread waits meanwhile.
    ///
    /// # Errors
    /// The first contradiction. If no other thread used the caches, the memory must not be used after it.
    pub fn check(&self) -> Result<SlabChecked, SlabCheckError> {
        self.calls().check_all()
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
