//! From early memory to an allocator: the topology, each node's metadata in its own memory, and what goes online.

use core::marker::PhantomData;
use core::ops::Range;

use nearpage::{AddressMap, Config, CpuId, Node, NodeId, NodeIndex, Pfn, PfnRange, Topology};

use super::deferred::Deferred;
use super::early::{EarlyError, EarlyMemory};
use super::spans::{Span, Spans};
use crate::Pages;
use crate::firmware::{Machine, Note};
use crate::platform::KernelPlatform;
use crate::seam::Kernel;

/// How the processor that this is compiled for divides addresses into zones, in pages of 4 KiB. A kernel with larger ones
/// ([`Kernel::PAGE_SHIFT`]) says [`AddressMap::Divided`] in its own.
pub const ADDRESS_MAP: AddressMap = if cfg!(target_arch = "x86_64") {
    AddressMap::X86
} else if cfg!(target_arch = "aarch64") {
    AddressMap::Divided { dma_end: FOUR_GIB, dma32_end: FOUR_GIB }
} else {
    AddressMap::Divided { dma_end: Pfn(0), dma32_end: FOUR_GIB }
};
const FOUR_GIB: Pfn = Pfn((4 << 30) >> 12);
/// Memory that may be plugged in has its metadata from the boot on: 78 bytes a frame with a heap. For so many times the memory
/// that is there, that takes 15 % of it.
const PLUGGABLE_TIMES: u64 = 8;

/// Early memory on its way to an allocator.
///
/// ```text
/// let boot = memory.begin::<Mine>(&mut machine, ADDRESS_MAP)?;    what is there becomes a topology
/// let pages = boot.pages(Config::new())?;                         an allocator, all of it offline
/// HEAP.start(pages, config, |node, bytes| boot.metadata(..))?;    whatever else has metadata of its own
/// let deferred = boot.finish(pages, bytes_a_node)?;               the rest goes online
/// ```
#[derive(Debug)]
pub struct Boot<'e, K, const RANGES: usize> {
    memory: &'e mut EarlyMemory<RANGES>,
    topology: Topology<'static>,
    kernel: PhantomData<fn() -> K>,
}

impl<const RANGES: usize> EarlyMemory<RANGES> {
    /// Makes a topology of what was told so far. Memory that no table places is given to the first node, with a note. Memory that
    /// may be plugged in belongs to it, up to 8 times as much as there is ([`Note::PluggableLeftOut`]).
    ///
    /// # Errors
    /// [`EarlyError`].
    ///
    /// # Safety
    /// * Memory that was added and is not reserved is memory, mapped as [`Kernel::phys_to_virt`] says, and nobody's.
    /// * It stays so for ever; the same holds for all that is added later.
    pub unsafe fn begin<K: Kernel>(
        &mut self,
        machine: &mut Machine,
        address_map: AddressMap,
    ) -> Result<Boot<'_, K, RANGES>, EarlyError> {
        machine.place_strays();
        self.own(machine);
        let has_memory = self.memory.as_slice().iter().any(|span| !frames::<K>(span).is_empty());
        if !has_memory || self.free_bytes() == 0 {
            return Err(EarlyError::NoMemory);
        }
        let machine = &*machine;
        let ids = || machine.nodes().iter().copied().filter(|&id| self.is_used(machine, id));
        let count = ids().count().max(1);
        let id_of = |at: usize| ids().nth(at).unwrap_or(NodeId(0));
        let mut chosen = [NodeId(0); crate::firmware::NODES_MAX];
        for (at, place) in chosen.iter_mut().enumerate().take(count) {
            *place = id_of(at);
        }
        let chosen = &chosen[..count];
        let nodes =
            self.slice::<K, _>(count, |memory, at| memory.node::<K>(machine, chosen, at))?;
        let distances = self.slice::<K, _>(count * count, |_, at| {
            Ok(machine.distance(chosen[at / count], chosen[at % count]))
        })?;
        let topology =
            Topology::new(nodes, distances, address_map).map_err(EarlyError::Topology)?;
        Ok(Boot { memory: self, topology, kernel: PhantomData })
    }

    /// Says whose all memory is.
    fn own(&mut self, machine: &mut Machine) {
        let Self { memory, owned, left_out, .. } = self;
        let nothing = |_| ();
        let there: u64 = memory.as_slice().iter().map(Span::bytes).sum();
        let (mut room, mut refused) = (there.saturating_mul(PLUGGABLE_TIMES), 0_u64);
        for (area, node, may_be_plugged) in machine.areas() {
            for part in memory.parts(area.clone()) {
                owned.add_largest(part.start..part.end, node.0, nothing);
            }
            if may_be_plugged {
                let bytes = area.end - area.start;
                let taken = bytes.min(room);
                room -= taken;
                refused = refused.saturating_add(bytes - taken);
                owned.add_largest(area.start..area.start + taken, node.0, nothing);
            }
        }
        if refused > 0 {
            machine.note(Note::PluggableLeftOut { bytes: refused });
        }
        let first = machine.nodes().first().copied();
        for span in memory.as_slice() {
            let mut at = span.start;
            while let Some(gap) = { machine.unplaced(at..span.end).next() } {
                at = gap.end;
                if first.is_some() {
                    machine.note(Note::UnplacedMemory { start: gap.start, end: gap.end });
                }
                owned.add_largest(gap, first.unwrap_or_default().0, nothing);
            }
        }
        for span in memory.as_slice() {
            owned.gaps(span.start..span.end).for_each(|gap| left_out.note(gap.end - gap.start));
        }
        if left_out.ranges > 0 {
            machine.note(Note::MemoryLeftOut(*left_out));
        }
    }

    /// Whether a node has memory, may get some, or has CPUs.
    fn is_used(&self, machine: &Machine, id: NodeId) -> bool {
        self.owned.as_slice().iter().any(|span| span.tag == id.0)
            || machine.cpus().iter().any(|cpu| cpu.node == id)
    }

    fn node<K: Kernel>(
        &mut self,
        machine: &Machine,
        chosen: &[NodeId],
        at: usize,
    ) -> Result<Node<'static>, EarlyError> {
        let id = chosen[at];
        let ranges = |memory: &Self| memory.frames_of::<K>(id).count();
        let count = ranges(self);
        let memory = self.slice::<K, _>(count, |memory, at| {
            // What was taken meanwhile is still of the node.
            Ok(memory.frames_of::<K>(id).nth(at).unwrap_or(PfnRange::new(0, 0)))
        })?;
        let mine = || {
            let cpus = machine.cpus().iter().enumerate();
            cpus.filter(|(_, cpu)| cpu.node == id).map(|(at, _)| CpuId(at as u32))
        };
        // A machine of whose CPUs nothing is known has the one that runs this, on its first node.
        let lone = machine.cpus().is_empty() && at == 0;
        let count = if lone { 1 } else { mine().count() };
        let cpus =
            self.slice::<K, _>(count, |_, at| Ok(mine().nth(at).unwrap_or_else(K::this_cpu)))?;
        Ok(Node { id, memory, cpus, movable_from: None })
    }

    fn frames_of<K: Kernel>(&self, id: NodeId) -> impl Iterator<Item = PfnRange> + '_ {
        let of = move |span: &&Span| span.tag == id.0;
        self.owned.as_slice().iter().filter(of).map(frames::<K>).filter(|range| !range.is_empty())
    }

    /// A slice for ever, made one by one.
    fn slice<K: Kernel, T>(
        &mut self,
        count: usize,
        mut make: impl FnMut(&mut Self, usize) -> Result<T, EarlyError>,
    ) -> Result<&'static mut [T], EarlyError> {
        if count == 0 {
            return Ok(&mut []);
        }
        let bytes = (count * size_of::<T>()).max(1) as u64;
        let start = K::phys_to_virt(self.alloc(bytes, align_of::<T>() as u64)?).cast::<T>();
        for at in 0..count {
            let value = make(self, at)?;
            // SAFETY: `alloc` took this memory, which was nobody's, says who called `begin`, for `count` aligned values.
            unsafe { start.add(at).write(value) };
        }
        // SAFETY: as above, and all of them were written.
        Ok(unsafe { core::slice::from_raw_parts_mut(start, count) })
    }

    /// Zeroes for ever, of a node's memory if that has room.
    fn zeroes<K: Kernel>(
        &mut self,
        node: NodeId,
        bytes: usize,
    ) -> Result<&'static mut [u8], EarlyError> {
        if bytes == 0 {
            return Ok(&mut []);
        }
        let page = 1 << K::PAGE_SHIFT;
        // Taken apart, since what is allocated from is changed.
        let owned = core::mem::replace(&mut self.owned, Spans::new());
        let mut of_node = owned.as_slice().iter().copied().filter(|span| span.tag == node.0);
        let near = self.alloc_in(&mut of_node, bytes as u64, page);
        self.owned = owned;
        let start = match near {
            Err(EarlyError::NoRoom { .. }) => self.alloc(bytes as u64, page)?,
            near => near?,
        };
        let start = K::phys_to_virt(start);
        // SAFETY: as for a slice; any bytes are bytes.
        unsafe {
            start.write_bytes(0, bytes);
            Ok(core::slice::from_raw_parts_mut(start, bytes))
        }
    }
}

/// The whole frames of a span.
fn frames<K: Kernel>(span: &Span) -> PfnRange {
    let page = 1_u64 << K::PAGE_SHIFT;
    let start = span.start.div_ceil(page);
    PfnRange { start: Pfn(start), end: Pfn((span.end / page).max(start)) }
}

impl<K: Kernel, const RANGES: usize> Boot<'_, K, RANGES> {
    /// The machine.
    pub fn topology(&self) -> &Topology<'static> {
        &self.topology
    }

    /// An allocator for all memory of the machine, which is offline. Each node's metadata lies in its own memory.
    ///
    /// # Errors
    /// [`EarlyError::Build`], [`EarlyError::NoRoom`] if the metadata does not fit.
    pub fn pages(&mut self, config: Config) -> Result<&'static Pages<'static, K>, EarlyError> {
        let topology = self.topology;
        // What does not fit is told by a buffer that is too small, so the reason is kept.
        let mut failed = None;
        let buffer = |node, bytes| {
            self.metadata(node, bytes).unwrap_or_else(|error| {
                failed = Some(error);
                &mut []
            })
        };
        let pages = Pages::<K>::new(KernelPlatform::default(), topology, config, buffer);
        let mut pages = Some(pages.map_err(|error| failed.unwrap_or(EarlyError::Build(error)))?);
        let made = self.memory.slice::<K, _>(1, |_, _| Ok(pages.take()))?;
        // There is one, and it was put there just now.
        made[0].as_ref().ok_or(EarlyError::NoMemory)
    }

    /// Zeroes for metadata of a node, in its own memory if there is room, for ever.
    ///
    /// # Errors
    /// [`EarlyError::NoRoom`].
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn metadata(
        &mut self,
        node: NodeIndex,
        bytes: usize,
    ) -> Result<&'static mut [u8], EarlyError> {
        self.memory.zeroes::<K>(self.topology.node(node).id, bytes)
    }

    /// Brings all memory online that is not taken: of each node at most `bytes_a_node` now, what is above later, in parts, by
    /// any CPU ([`Deferred::step`]). `u64::MAX` leaves nothing for later. From then on all memory is the allocator's: nothing of
    /// [`EarlyMemory`] is free.
    ///
    /// # Errors
    /// [`EarlyError`].
    pub fn finish(
        self,
        pages: &'static Pages<'static, K>,
        bytes_a_node: u64,
    ) -> Result<&'static Deferred<K>, EarlyError> {
        let deferred = self.memory.slice::<K, _>(1, |_, _| Ok(Deferred::new(pages)))?;
        let deferred: &'static Deferred<K> = &deferred[0];
        // Each range may be cut in two, and the piece that is allocated here cuts one more.
        let free = || self.topology.nodes().iter().flat_map(|node| self.free_of(node.id));
        let most = 2 * free().count() + 2;
        let nothing = PfnRange::new(0, 0);
        let now = self.memory.slice::<K, _>(most, |_, _| Ok(nothing))?;
        let mut count = 0;
        let mut add = |range: PfnRange| {
            if !range.is_empty() {
                now[count] = range;
                count += 1;
            }
        };
        for node in self.topology.nodes() {
            let mut left = bytes_a_node >> K::PAGE_SHIFT;
            for range in self.free_of(node.id) {
                let pages = range.pages().0.min(left);
                left -= pages;
                let middle = Pfn(range.start.0 + pages);
                add(PfnRange { start: range.start, end: middle });
                let later = PfnRange { start: middle, end: range.end };
                // What there is no room to remember goes online now.
                if !deferred.add(later) {
                    add(later);
                }
            }
        }
        // All at once: watermarks are computed from those before, and so the same on every boot.
        pages.online_all(&now[..count]).map_err(EarlyError::Online)?;
        self.memory.reserve(0, u64::MAX)?;
        Ok(deferred)
    }

    /// What is free of a node's memory.
    fn free_of(&self, id: NodeId) -> impl Iterator<Item = PfnRange> + '_ {
        let page = 1_u64 << K::PAGE_SHIFT;
        let EarlyMemory { memory, taken, owned, .. } = &*self.memory;
        let owned = owned.as_slice().iter().filter(move |span| span.tag == id.0);
        let there = owned.flat_map(|span| memory.parts(span.start..span.end));
        there
            .flat_map(move |span| {
                let whole = frames::<K>(&span);
                let bytes: Range<u64> = whole.start.0 * page..whole.end.0 * page;
                // A gap that does not begin with a page loses the page that it begins in.
                taken
                    .gaps(bytes)
                    .map(|gap| frames::<K>(&Span { start: gap.start, end: gap.end, tag: 0 }))
            })
            .filter(|range| !range.is_empty())
    }
}
