//! Memory and CPUs that come and go, and nodes that become private.

use nearpage::{CpuError, CpuId, NodeAccess, NodeId, Order, PageCount, Pfn, PfnRange, UnknownNode};

use super::Memory;
use crate::error::MemoryError;
use crate::frame::{FRAME_BYTES, FRAME_SHIFT};
use crate::huge::{HUGE_PAGE_BYTES, HugePages};
use crate::region::{page_size, whole_pages};

const PAGEBLOCK_FRAMES: u64 = Order::PAGEBLOCK.pages().0;

/// Memory and CPUs that come and go. The memory tells its [slab allocator](crate::SlabAllocator) of each change. A CPU whose
/// stacks of objects are busy at that moment keeps its node until the next reap.
impl Memory {
    /// Brings the next `bytes` of a node's reserve online, rounded down to whole pages of the kernel. Returns the pages that
    /// came online.
    ///
    /// ```
    /// use nearpage_linux::Memory;
    ///
    /// let builder = Memory::builder().bytes_per_node(16 << 20).reserve_per_node(64 << 20);
    /// let memory = builder.build()?;
    /// let node = memory.topology().nodes()[0].id;
    /// assert_eq!(memory.bring_online(node, 32 << 20)?.0, 8192);
    /// assert_eq!(memory.reserve_left(node), 16 << 20);
    /// memory.take_offline(node, 32 << 20)?;
    /// # Ok::<(), nearpage_linux::MemoryError>(())
    /// ```
    ///
    /// # Errors
    /// [`MemoryError`] if `bytes` is less than a page or more than the reserve has left, or if the kernel gives no memory.
    pub fn bring_online(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        self.with_objects(|objects| objects.flush_stacks());
        let pages = self.bring_online_now(node, bytes)?;
        self.with_objects(|objects| objects.refresh_nodes());
        Ok(pages)
    }

    fn bring_online_now(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        let _growth = self.growth.hold();
        let range = self.range_of(node)?;
        let online = self.online_pages(range);
        let start = Pfn(range.start.0 + online.0);
        let least = page_size() as u64;
        if bytes < least {
            return Err(MemoryError::NoPage { node, asked: bytes, least, what: "bring online" });
        }
        let wanted = PfnRange { start, end: Pfn(start.0 + (whole_pages(bytes) >> FRAME_SHIFT)) };
        if wanted.end > range.end {
            let left = PageCount(range.pages().0 - online.0).to_bytes(FRAME_SHIFT);
            return Err(MemoryError::ReserveUsedUp { node, asked: bytes, left });
        }
        self.bring_all_online(&[(node, wanted)])
    }

    /// Takes the last `bytes` of a node's online memory offline, rounded up to pageblocks of 2 MiB, and gives them back to
    /// the kernel. [`bring_online`](Self::bring_online) brings them online again. Other threads may allocate and free
    /// meanwhile. Returns the pages that went offline.
    ///
    /// # Errors
    /// [`MemoryError`] if `bytes` is 0 or more than is online, or if a page of that part is in use. All of it then stays
    /// online.
    pub fn take_offline(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        self.with_objects(|objects| objects.shrink_all());
        let pages = self.take_offline_now(node, bytes)?;
        self.with_objects(|objects| objects.refresh_nodes());
        Ok(pages)
    }

    fn take_offline_now(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        let _growth = self.growth.hold();
        let range = self.range_of(node)?;
        let end = range.start + self.online_pages(range);
        let online = PageCount(end.0 - range.start.0);
        let pages = bytes.div_ceil(FRAME_BYTES);
        if bytes == 0 {
            return Err(MemoryError::NoPage { node, asked: 0, least: 1, what: "take offline" });
        }
        if pages > online.0 {
            let online = online.to_bytes(FRAME_SHIFT);
            return Err(MemoryError::NotOnline { node, asked: bytes, online });
        }
        // A node's range begins at a section, and so at a pageblock.
        let start = Pfn((end.0 - pages) / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES);
        let part = PfnRange { start, end };
        let rounded = part.pages().to_bytes(FRAME_SHIFT);
        let pages = self.pages().offline(part).map_err(|error| MemoryError::Offline {
            node,
            asked: bytes,
            rounded,
            error,
        })?;
        let offset = self.address(start).as_ptr().addr() - self.region.start().as_ptr().addr();
        self.region.retire(offset, pages.to_bytes(FRAME_SHIFT) as usize);
        Ok(pages)
    }

    /// Switches a CPU off: drains its caches and leaves them unused until the CPU is [on](Self::online_cpu) again. Threads
    /// that still run there allocate from the zones. Returns the drained pages.
    ///
    /// # Errors
    /// [`CpuError`].
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<PageCount, CpuError> {
        let pages = self.pages().offline_cpu(cpu)?;
        self.with_objects(|objects| objects.refresh_nodes());
        Ok(pages)
    }

    /// Switches a CPU on again.
    ///
    /// # Errors
    /// [`CpuError`].
    pub fn online_cpu(&self, cpu: CpuId) -> Result<(), CpuError> {
        self.pages().online_cpu(cpu)?;
        self.with_objects(|objects| objects.refresh_nodes());
        Ok(())
    }

    /// Sets which requests may use the memory of a node: all, or only those that name it.
    ///
    /// # Errors
    /// [`UnknownNode`]; the call then changes nothing.
    pub fn set_access(&self, node: NodeId, access: NodeAccess) -> Result<(), UnknownNode> {
        self.with_objects(|objects| objects.flush_stacks());
        self.pages().set_access(node, access)?;
        self.with_objects(|objects| objects.refresh_nodes());
        Ok(())
    }

    /// Brings parts of nodes' ranges online.
    pub(crate) fn bring_all_online(
        &self,
        parts: &[(NodeId, PfnRange)],
    ) -> Result<PageCount, MemoryError> {
        // An empty part may lie anywhere: it is the core's to refuse.
        for (node, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
            self.make_usable(*node, part.start, part.pages().to_bytes(FRAME_SHIFT))?;
        }
        let ranges: Vec<PfnRange> = parts.iter().map(|(_, part)| *part).collect();
        self.pages().online_all(&ranges).map_err(MemoryError::Online)
    }

    /// The range of a node; an empty one if the node has no addresses here.
    fn range_of(&self, node: NodeId) -> Result<PfnRange, MemoryError> {
        match self.node_ranges.iter().find(|(id, _)| *id == node) {
            Some((_, range)) => Ok(*range),
            None if self.topology().index_of(node).is_some() => Ok(PfnRange::new(0, 0)),
            None => Err(MemoryError::UnknownNode { node }),
        }
    }

    /// Puts memory behind addresses of a node, of the kind that was asked for.
    fn make_usable(&self, node: NodeId, start: Pfn, bytes: u64) -> Result<(), MemoryError> {
        let offset = self.address(start).as_ptr().addr() - self.region.start().as_ptr().addr();
        let no_memory = |error| MemoryError::NoMemory { node, bytes, error };
        let huge = self.huge_pages.of(node);
        if huge == HugePages::Explicit {
            if !bytes.is_multiple_of(HUGE_PAGE_BYTES) {
                return Err(MemoryError::NotHugePages { node, bytes });
            }
            self.region.map_huge(offset, bytes as usize).map_err(no_memory)?;
            let mut binding = self.binding;
            return binding
                .bind(self.address(start), bytes as usize, node)
                .map_err(|error| MemoryError::CannotBind { node, error });
        }
        self.region.make_usable(offset, bytes as usize).map_err(no_memory)?;
        match huge {
            HugePages::Advised => self.region.advise_huge(offset, bytes as usize, true),
            HugePages::Never => self.region.advise_huge(offset, bytes as usize, false),
            HugePages::AsConfigured | HugePages::Explicit => {}
        }
        Ok(())
    }

    /// Bytes of a node's reserve that are not online yet. 0 if there is no such node.
    pub fn reserve_left(&self, node: NodeId) -> u64 {
        let range = self.node_ranges.iter().find(|(id, _)| *id == node);
        let left = |range: PfnRange| PageCount(range.pages().0 - self.online_pages(range).0);
        range.map_or(0, |(_, range)| left(*range).to_bytes(FRAME_SHIFT))
    }

    /// Pages of a node's range that are online; they are its first ones.
    pub(crate) fn online_pages(&self, range: PfnRange) -> PageCount {
        let (mut low, mut high) = (range.start.0, range.end.0);
        while low < high {
            let middle = low + (high - low) / 2;
            let is_online = self.pages().is_online(Pfn(middle));
            if is_online { low = middle + 1 } else { high = middle }
        }
        PageCount(low - range.start.0)
    }
}
