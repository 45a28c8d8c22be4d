//! [`Memory`]: one allocator on real memory.
//!
//! Each node has a reserved range of addresses, aligned to sections; a frame number is an address divided
//! by 4096. Memory is brought online in that range, bound to its node as far as the kernel lets us, and
//! handed to the core, whose metadata lies on the node it describes.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nearpage::alloc::{BuildError, BulkFreeError, CpuError, DrainBusy, PageAllocator, Request};
use nearpage::check::{CheckError, Checked};
use nearpage::error::{AllocError, FreeError, OfflineError, OnlineError};
use nearpage::gfp::Gfp;
use nearpage::platform::Platform;
use nearpage::topology::Topology;
use nearpage::units::{CpuId, NodeId, Order, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange};
use nearpage::watermark::{Marks, SettingError, Settings};
use nearpage::zone::Zone;
use rustix::io::Errno;

use crate::builder::{HugePagesByNode, MemoryBuilder, for_a_process};
use crate::environment::{Environment, EnvironmentError};
use crate::fork::Registration;
use crate::growth::Growth;
use crate::host::Host;
use crate::huge::{HUGE_PAGE_BYTES, HugePages};
use crate::locked::LockedStorage;
use crate::numa::Binding;
use crate::placement::{Placement, PlacementReport};
use crate::prefault::Progress;
use crate::region::{Region, page_size, whole_pages};
use crate::rseq::{Area, RingStorage, Unavailable};
use crate::slab::Objects;
use crate::trim::trim_zone;

/// Bytes of a frame: 4 KiB whatever the kernel's page size is.
pub const FRAME_BYTES: u64 = 1 << FRAME_SHIFT;
/// Log2 of [`FRAME_BYTES`].
pub const FRAME_SHIFT: u32 = 12;
const PAGEBLOCK_FRAMES: u64 = PAGEBLOCK_ORDER.pages().0;

/// Which storage the pagesets have, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageInUse {
    /// Restartable sequences.
    Rseq,
    /// A try-lock per CPU, because restartable sequences are not available.
    LockedBecause(Unavailable),
    /// A try-lock per CPU, because it was asked for.
    LockedByChoice,
}

impl StorageInUse {
    /// Restartable sequences if they are wanted and available, or why not.
    pub(crate) fn choose(use_rseq: bool) -> Result<Area, StorageInUse> {
        if !use_rseq {
            return Err(Self::LockedByChoice);
        }
        Area::of_glibc().map_err(Self::LockedBecause)
    }

    /// What a memory of this process would have.
    pub fn of_this_process(environment: &Environment) -> StorageInUse {
        let chosen = Self::choose(environment.use_rseq.unwrap_or(true));
        chosen.map_or_else(|locked| locked, |_| Self::Rseq)
    }
}

impl fmt::Display for StorageInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rseq => f.write_str("rseq (restartable sequences, registered by the C library)"),
            Self::LockedBecause(why) => write!(f, "locked (a try-lock per CPU; {why})"),
            Self::LockedByChoice => {
                f.write_str("locked (a try-lock per CPU; NEARPAGE_RSEQ=off, or chosen)")
            }
        }
    }
}

/// The allocator, in the four shapes that it can have.
pub(crate) enum Allocator {
    Rseq(PageAllocator<'static, Host<RingStorage, false>>),
    RseqHardened(PageAllocator<'static, Host<RingStorage, true>>),
    Locked(PageAllocator<'static, Host<LockedStorage, false>>),
    LockedHardened(PageAllocator<'static, Host<LockedStorage, true>>),
}

/// Calls one expression on whichever shape there is.
macro_rules! with_allocator {
    ($memory:expr, $allocator:ident => $body:expr) => {
        match &$memory.allocator {
            $crate::memory::Allocator::Rseq($allocator) => $body,
            $crate::memory::Allocator::RseqHardened($allocator) => $body,
            $crate::memory::Allocator::Locked($allocator) => $body,
            $crate::memory::Allocator::LockedHardened($allocator) => $body,
        }
    };
}
pub(crate) use with_allocator;

mod placed;

/// An allocator on real memory of this machine.
///
/// Blocks come as [`PageBlock`]s, which free themselves; below them is the level of frames
/// ([`alloc_frames`](Self::alloc_frames)), for those who keep frame numbers.
///
/// ```
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(64 << 20).build()?;
/// let mut block = memory.alloc_pages(4)?;
/// block[0] = 1;
/// assert_eq!(block.len(), 4 * 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory {
    // Dropped in this order: forks and the allocator refer to the metadata, and all to the topology.
    pub(crate) _registration: Registration,
    pub(crate) allocator: Allocator,
    pub(crate) binding: Binding,
    pub(crate) storage: StorageInUse,
    pub(crate) node_ranges: Vec<(NodeId, PfnRange)>,
    pub(crate) huge_pages: HugePagesByNode,
    pub(crate) growth: Growth,
    pub(crate) objects: Objects,
    pub(crate) region: Region,
    pub(crate) _metadata: Vec<Region>,
    pub(crate) _topology: crate::builder::OwnedTopology,
}

impl Memory {
    /// Starts to describe a memory.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::new()
    }

    /// Allocates `pages` pages near the CPU that asks: the smallest block that has them. A block has 1, 2, 4 and so on up
    /// to 1024 pages, so that 0 pages are 1, and 5 are 8.
    ///
    /// # Errors
    /// [`AllocError`]; [`AllocError::TooManyPages`] above 1024.
    #[inline]
    pub fn alloc_pages(&self, pages: u64) -> Result<PageBlock<'_>, AllocError> {
        self.alloc(Request::new(order_of(pages)?, Gfp::HIGHUSER_MOVABLE))
    }

    /// Allocates a block. Its bytes are what was last written there, or zeroes with `__GFP_ZERO`.
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<PageBlock<'_>, AllocError> {
        let pfn = self.alloc_frames(request)?;
        Ok(self.block(pfn, request))
    }

    /// A block that a request got, cleared if it asked for that.
    #[inline]
    fn block(&self, pfn: Pfn, request: Request) -> PageBlock<'_> {
        let mut block = PageBlock { memory: self, pfn, order: request.order };
        if request.gfp.has(Gfp::ZERO) {
            block.fill(0);
        }
        block
    }

    /// Allocates a block and returns its first frame, which is the caller's to free. Its memory is not touched,
    /// whatever the flags say.
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline(always)]
    pub fn alloc_frames(&self, request: Request) -> Result<Pfn, AllocError> {
        // The common shape is inlined into the caller, the others are a call away.
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.alloc(request),
            _ => self.alloc_frames_otherwise(request),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_frames_otherwise(&self, request: Request) -> Result<Pfn, AllocError> {
        with_allocator!(self, allocator => allocator.alloc(request))
    }

    /// Allocates up to `out.len()` single pages; see [`PageAllocator::alloc_bulk`].
    ///
    /// # Errors
    /// [`AllocError`] if not even one page could be had.
    #[inline]
    pub fn alloc_frames_bulk(
        &self,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.alloc_bulk(request, out),
            _ => self.alloc_frames_bulk_otherwise(request, out),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_frames_bulk_otherwise(
        &self,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        with_allocator!(self, allocator => allocator.alloc_bulk(request, out))
    }

    /// Frees a block by its first frame.
    ///
    /// # Errors
    /// [`FreeError`] if the block is not allocated with this order; then nothing is changed.
    ///
    /// # Safety
    /// * The caller has the block: nobody uses its memory any more, and no [`PageBlock`] stands for it.
    #[inline(always)]
    pub unsafe fn free_frames(&self, first: Pfn, order: Order) -> Result<(), FreeError> {
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.free(first, order),
            _ => self.free_frames_otherwise(first, order),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_frames_otherwise(&self, first: Pfn, order: Order) -> Result<(), FreeError> {
        with_allocator!(self, allocator => allocator.free(first, order))
    }

    /// Frees single pages of any nodes.
    ///
    /// # Errors
    /// [`BulkFreeError`] if some were refused; the others were freed.
    ///
    /// # Safety
    /// * As [`free_frames`](Self::free_frames), for each page.
    pub unsafe fn free_frames_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        with_allocator!(self, allocator => allocator.free_bulk(pages))
    }

    /// The address of a frame.
    ///
    /// # Panics
    /// If the frame is outside the addresses of this memory; [`node_of`](Self::node_of) tells.
    #[inline]
    pub fn address(&self, pfn: Pfn) -> NonNull<u8> {
        let first = self.region.start().as_ptr().addr() as u64 >> FRAME_SHIFT;
        let number = pfn.0.wrapping_sub(first);
        let frames = self.region.bytes() as u64 >> FRAME_SHIFT;
        assert!(number < frames, "frame {pfn} is not of this memory");
        // SAFETY: the region is that long, and it was just checked that the frame lies in it.
        unsafe { self.region.start().add((number << FRAME_SHIFT) as usize) }
    }

    /// The frame that an address lies in.
    #[inline]
    pub fn frame_of(&self, address: NonNull<u8>) -> Pfn {
        Pfn(address.as_ptr().addr() as u64 >> FRAME_SHIFT)
    }

    /// The node whose range a frame lies in, or `None` for a frame of no node.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        self.node_ranges.iter().find(|(_, range)| range.contains(pfn)).map(|(node, _)| *node)
    }

    /// Brings `bytes` of a node's reserve online, rounded down to whole pages of the kernel, from where the last ones
    /// ended.
    ///
    /// # Errors
    /// [`MemoryError`] if that is no page, the node has not so much left, or the kernel gives no memory.
    pub fn bring_online(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
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
            let left = PageCount(range.pages().0 - online.0).bytes(FRAME_SHIFT);
            return Err(MemoryError::ReserveUsedUp { node, asked: bytes, left });
        }
        self.bring_all_online(&[(node, wanted)])
    }

    /// Takes the last `bytes` that are online on a node offline, rounded up to pageblocks of 2 MiB, and gives their memory
    /// back to the kernel; [`bring_online`](Self::bring_online) brings them again. Other threads allocate and free
    /// meanwhile. Returns pages.
    ///
    /// # Errors
    /// [`MemoryError`]: it is nothing, there is not so much online, or some of it is in use; then all of it stays.
    pub fn take_offline(&self, node: NodeId, bytes: u64) -> Result<PageCount, MemoryError> {
        let _growth = self.growth.hold();
        let range = self.range_of(node)?;
        let end = range.start.plus(self.online_pages(range));
        let online = PageCount(end.0 - range.start.0);
        let pages = bytes.div_ceil(FRAME_BYTES);
        if bytes == 0 {
            return Err(MemoryError::NoPage { node, asked: 0, least: 1, what: "take offline" });
        }
        if pages > online.0 {
            let online = online.bytes(FRAME_SHIFT);
            return Err(MemoryError::NotOnline { node, asked: bytes, online });
        }
        // A node's range begins at a section, and so at a pageblock.
        let start = Pfn((end.0 - pages) / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES);
        let part = PfnRange { start, end };
        let rounded = part.pages().bytes(FRAME_SHIFT);
        let pages = with_allocator!(self, allocator => allocator.offline(part))
            .map_err(|error| MemoryError::Offline { node, asked: bytes, rounded, error })?;
        let offset = self.address(start).as_ptr().addr() - self.region.start().as_ptr().addr();
        self.region.retire(offset, pages.bytes(FRAME_SHIFT) as usize);
        Ok(pages)
    }

    /// Switches a CPU off: its caches are drained and not used until it is [on](Self::online_cpu) again; threads that
    /// still run there go to the zones. Returns the pages that went back.
    ///
    /// # Errors
    /// [`CpuError`].
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<PageCount, CpuError> {
        with_allocator!(self, allocator => allocator.offline_cpu(cpu))
    }

    /// Switches a CPU on again.
    ///
    /// # Errors
    /// [`CpuError`].
    pub fn online_cpu(&self, cpu: CpuId) -> Result<(), CpuError> {
        with_allocator!(self, allocator => allocator.online_cpu(cpu))
    }

    /// Brings parts of nodes' ranges online that are not yet.
    pub(crate) fn bring_all_online(
        &self,
        parts: &[(NodeId, PfnRange)],
    ) -> Result<PageCount, MemoryError> {
        // An empty part may lie anywhere: it is the core's to refuse.
        for (node, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
            self.make_usable(*node, part.start, part.pages().bytes(FRAME_SHIFT))?;
        }
        let ranges: Vec<PfnRange> = parts.iter().map(|(_, part)| *part).collect();
        with_allocator!(self, allocator => allocator.online_all(&ranges))
            .map_err(MemoryError::Online)
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
        range.map_or(0, |(_, range)| left(*range).bytes(FRAME_SHIFT))
    }

    /// Gives all memory that is online its pages now, each node's by `threads` threads that run there.
    /// `progress` is called after each piece of some MiB, by any of them. Returns bytes.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` before Linux 5.14, `ENOMEM` where a node has no more memory and binding
    /// is strict.
    pub fn prefault(
        &self,
        threads: NonZeroUsize,
        progress: impl Fn(Progress) + Sync,
    ) -> io::Result<u64> {
        let online = |&(node, range): &(NodeId, PfnRange)| {
            (node, PfnRange { end: range.start.plus(self.online_pages(range)), ..range })
        };
        let ranges = self.node_ranges.iter().map(online).filter(|(_, range)| !range.is_empty());
        crate::prefault::prefault(self, ranges.collect(), threads, &progress)
    }

    /// Drains all caches and gives the memory of free blocks back to the kernel, as far as more is free than
    /// the high mark; returns the pages of those blocks, touched or not. They stay free, and are zeroes when
    /// they are used again. Blocks below 2 MiB stay as they are.
    pub fn trim(&self) -> PageCount {
        // A CPU that another thread drains just now needs no second drain.
        let _ = self.drain_all();
        self.trim_free()
    }

    /// As [`trim`](Self::trim), without the drain.
    pub(crate) fn trim_free(&self) -> PageCount {
        let zones = |pages: &mut dyn Iterator<Item = PageCount>| pages.map(|pages| pages.0).sum();
        PageCount(with_allocator!(self, allocator => zones(
            &mut allocator.zones().iter().map(|zone| trim_zone(self, zone))
        )))
    }

    /// The watermarks of a node, all zones together. Zeroes if there is no such node.
    pub fn watermarks(&self, node: NodeId) -> Marks {
        let mark = |of: fn(Marks) -> PageCount| with_allocator!(self, allocator => sum_of_zones(allocator, node, |zone| of(zone.marks())));
        Marks {
            min: mark(|marks| marks.min),
            low: mark(|marks| marks.low),
            high: mark(|marks| marks.high),
            promo: mark(|marks| marks.promo),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        with_allocator!(self, allocator => allocator.settings())
    }

    /// Changes the settings, and everything that follows from them, while others allocate. The same of them have no
    /// effect as for [`MemoryBuilder::settings`].
    ///
    /// # Errors
    /// [`SettingError`] for a value that is out of range; nothing is changed then.
    pub fn set_settings(&self, settings: Settings) -> Result<(), SettingError> {
        let settings = for_a_process(settings);
        with_allocator!(self, allocator => allocator.set_settings(settings))?;
        self.apply_object_budget();
        Ok(())
    }

    /// Pages of a node's range that are online; they are its first ones.
    pub(crate) fn online_pages(&self, range: PfnRange) -> PageCount {
        let (mut low, mut high) = (range.start.0, range.end.0);
        while low < high {
            let middle = low + (high - low) / 2;
            let is_online = with_allocator!(self, allocator => allocator.is_online(Pfn(middle)));
            if is_online { low = middle + 1 } else { high = middle }
        }
        PageCount(low - range.start.0)
    }

    /// Gives back all pages that CPUs cache; returns how many.
    ///
    /// # Errors
    /// [`DrainBusy`] if a CPU was being drained by another thread.
    pub fn drain_all(&self) -> Result<PageCount, DrainBusy> {
        with_allocator!(self, allocator => allocator.drain_all())
    }

    /// Gives back all pages that a CPU caches; returns how many.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all).
    pub fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        with_allocator!(self, allocator => allocator.drain_cpu(cpu))
    }

    /// Lets the caches of all CPUs decay by one step; to be called once a second. Returns the pages that
    /// went back.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all); the CPUs before were done.
    pub fn decay(&self) -> Result<PageCount, DrainBusy> {
        let cpus = self.topology().nodes().iter().flat_map(|node| node.cpus);
        cpus.map(|&cpu| with_allocator!(self, allocator => allocator.decay_cpu(cpu)))
            .try_fold(PageCount(0), |sum, pages| Ok(PageCount(sum.0 + pages?.0)))
    }

    /// Pages of a node that are free: neither handed out nor cached by a CPU. 0 if there is no such node.
    pub fn free_pages(&self, node: NodeId) -> PageCount {
        with_allocator!(self, allocator => sum_of_zones(allocator, node, Zone::free_pages))
    }

    /// Pages of a node that were brought online. 0 if there is no such node.
    pub fn managed_pages(&self, node: NodeId) -> PageCount {
        with_allocator!(self, allocator => sum_of_zones(allocator, node, Zone::managed))
    }

    /// Walks all frames; see [`PageAllocator::check`]. Only while no other thread uses this memory.
    ///
    /// # Errors
    /// The first thing found wrong; this memory must not be used any further.
    pub fn check(&self) -> Result<Checked, CheckError> {
        with_allocator!(self, allocator => allocator.check())
    }

    /// This memory as `/proc/zoneinfo` would print it.
    pub fn zoneinfo(&self) -> String {
        text(|out| with_allocator!(self, allocator => allocator.write_zoneinfo(out)))
    }

    /// The free blocks of this memory as `/proc/buddyinfo` would print them.
    pub fn buddyinfo(&self) -> String {
        text(|out| with_allocator!(self, allocator => allocator.write_buddyinfo(out)))
    }

    /// The free blocks and pageblocks of this memory by migratetype, as `/proc/pagetypeinfo` would print them.
    pub fn pagetypeinfo(&self) -> String {
        text(|out| with_allocator!(self, allocator => allocator.write_pagetypeinfo(out)))
    }

    /// The NUMA events of a node as `/sys/devices/system/node/nodeN/numastat` would print them, or `None` if
    /// there is no such node.
    pub fn numastat(&self, node: NodeId) -> Option<String> {
        let node = self.topology().index_of(node)?;
        Some(text(|out| with_allocator!(self, allocator => allocator.write_numastat(node, out))))
    }

    /// The counters of this memory as `/proc/vmstat` would print them, and those that only nearpage has:
    /// see [`PageAllocator::write_vmstat`].
    pub fn vmstat(&self) -> String {
        text(|out| with_allocator!(self, allocator => allocator.write_vmstat(out)))
    }

    /// The machine as the allocator sees it.
    pub fn topology(&self) -> &Topology<'_> {
        with_allocator!(self, allocator => allocator.topology())
    }

    /// Which storage the pagesets have, and why.
    pub fn storage(&self) -> StorageInUse {
        self.storage
    }

    /// Asks the kernel where up to `pages_max` pages of each node are, spread evenly over what is online.
    /// Pages that nobody touched yet are nowhere; see [`Placement`].
    ///
    /// # Errors
    /// What `move_pages` says: `EPERM` or `ENOSYS` where it is denied.
    pub fn verify_placement(&self, pages_max: u64) -> io::Result<PlacementReport> {
        let page_bytes = crate::region::page_size() as u64;
        let sample = |range: PfnRange| {
            let pages = self.online_pages(range).bytes(FRAME_SHIFT) / page_bytes;
            let count = pages.min(pages_max);
            let start = self.address(range.start);
            // SAFETY: the page lies within what is online of the node.
            let page = |at: u64| unsafe { start.add((at * pages / count * page_bytes) as usize) };
            Placement::of_pages(&(0..count).map(page).collect::<Vec<_>>())
        };
        let nodes = self.node_ranges.iter();
        let nodes = nodes.map(|(node, range)| Ok((*node, sample(*range)?)));
        Ok(PlacementReport { nodes: nodes.collect::<io::Result<_>>()? })
    }

    /// How memory is bound to its nodes.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Frees and unlocks that were refused so far.
    pub fn misuses(&self) -> u64 {
        with_allocator!(self, allocator => allocator.platform().misuses())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("nodes", &self.node_ranges)
            .field("storage", &self.storage)
            .field("binding", &self.binding)
            .finish_non_exhaustive()
    }
}

fn sum_of_zones<P: Platform>(
    allocator: &PageAllocator<'static, P>,
    node: NodeId,
    pages: impl Fn(&Zone<'static, P>) -> PageCount,
) -> PageCount {
    let index = allocator.topology().index_of(node);
    let of_node = allocator.zones().iter().filter(|zone| Some(zone.node()) == index);
    PageCount(of_node.map(|zone| pages(zone).0).sum())
}

pub(crate) fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("writing to a string cannot fail");
    text
}

/// The order of the smallest block with `pages` pages; 0 pages are 1.
pub(crate) fn order_of(pages: u64) -> Result<Order, AllocError> {
    let too_many = AllocError::TooManyPages { pages };
    let order = pages.checked_next_power_of_two().ok_or(too_many)?.trailing_zeros();
    if order > nearpage::units::MAX_ORDER.0 as u32 { Err(too_many) } else { Ok(Order(order as u8)) }
}

/// A block of pages that is the owner's alone, and is freed when dropped.
pub struct PageBlock<'a> {
    pub(crate) memory: &'a Memory,
    pfn: Pfn,
    order: Order,
}

impl PageBlock<'_> {
    /// The first frame.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The order.
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }

    /// The node that the block came from.
    pub fn node(&self) -> NodeId {
        self.memory.node_of(self.pfn).expect("a block lies in the range of a node")
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.memory.address(self.pfn)
    }

    /// Gives up ownership: the block stays allocated and is the caller's to free by its frame.
    #[inline]
    pub fn into_frames(self) -> Pfn {
        let pfn = self.pfn;
        std::mem::forget(self);
        pfn
    }

    fn bytes(&self) -> usize {
        self.order.pages().bytes(FRAME_SHIFT) as usize
    }
}

impl std::ops::Deref for PageBlock<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block is `bytes` long, lies in memory that is online (readable, and zero or what was
        // last written there), and belongs to this owner alone until it is dropped.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl std::ops::DerefMut for PageBlock<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the owner is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl fmt::Debug for PageBlock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBlock({}, order {})", self.pfn, self.order)
    }
}

impl Drop for PageBlock<'_> {
    #[inline]
    fn drop(&mut self) {
        // An error means that somebody freed the frames, or has locked the first page, behind our back. It has been
        // reported, as the memory was told to ([`OnMisuse`](crate::OnMisuse)); there is nobody here to hand it to.
        // SAFETY: this owner has the block, and its end is the end of all use of its memory.
        let _ = unsafe { self.memory.free_frames(self.pfn, self.order) };
    }
}

/// Why a memory could not be made, or could not grow.
#[derive(Debug)]
pub enum MemoryError {
    /// The environment, or the machine that it names, cannot be understood.
    Environment(EnvironmentError),
    /// The topology is not one.
    Topology(nearpage::topology::TopologyError),
    /// The core refused.
    Build(BuildError),
    /// There is no such node.
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// More was asked than a node's reserve has left.
    ReserveUsedUp {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// Bytes left.
        left: u64,
    },
    /// A size that is no page.
    NoPage {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// The least that is accepted.
        least: u64,
        /// What they were to do.
        what: &'static str,
    },
    /// The kernel gave no addresses for what should be reserved.
    NoAddresses {
        /// Bytes asked for.
        bytes: u64,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// The kernel gave no memory for a node.
    NoMemory {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        bytes: u64,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// Strict binding was asked for, and the kernel refused to bind.
    CannotBind {
        /// The node.
        node: NodeId,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// Memory of explicit huge pages that is not a multiple of their size.
    NotHugePages {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        bytes: u64,
    },
    /// Strict binding was asked for on nodes that the kernel does not know.
    CannotBindEmulated,
    /// The core refused the range.
    Online(OnlineError),
    /// More was to go offline than is online.
    NotOnline {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that are online.
        online: u64,
    },
    /// The core did not let the range go.
    Offline {
        /// The node.
        node: NodeId,
        /// Bytes asked for.
        asked: u64,
        /// Bytes of the whole pageblocks that they lie in: what was to go.
        rounded: u64,
        /// Why not.
        error: OfflineError,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(error) => error.fmt(f),
            Self::Topology(error) => write!(f, "the topology is not one: {error}"),
            Self::Build(error) => error.fmt(f),
            Self::UnknownNode { node } => write!(f, "node {node} is not in the topology"),
            Self::ReserveUsedUp { node, asked, left } => {
                write!(
                    f,
                    "{asked} bytes to bring online on node {node}: its reserve has {left} left"
                )
            }
            Self::NoPage { node, asked, least, what } => write!(
                f,
                "{asked} bytes to {what} on node {node}: that is no page; {least} or more are accepted"
            ),
            Self::NoAddresses { bytes, error } => write!(
                f,
                "{bytes} bytes of addresses could not be reserved: {error}; ask for less, or look at \
                 `ulimit -v`"
            ),
            Self::NoMemory { node, bytes, error } => write!(
                f,
                "the kernel gave no {bytes} bytes for node {node}: {error}; ask for less, or look at \
                 `ulimit -v`, vm.overcommit_memory, and for explicit huge pages vm.nr_hugepages"
            ),
            Self::CannotBind { node, error } => {
                write!(f, "strict binding to node {node} is refused: {error}; ")?;
                f.write_str(binding_advice(error))?;
                f.write_str(", and the mode `advisory` goes on without")
            }
            Self::NotHugePages { node, bytes } => write!(
                f,
                "{bytes} bytes of explicit huge pages for node {node}: a multiple of {HUGE_PAGE_BYTES} is accepted"
            ),
            Self::CannotBindEmulated => f.write_str(
                "strict binding was asked for on emulated nodes, which the kernel does not know; the \
                 modes `advisory` and `none` are accepted",
            ),
            Self::Online(error) => error.fmt(f),
            Self::NotOnline { node, asked, online } => write!(
                f,
                "{asked} bytes to take offline on node {node}: it has {online} online"
            ),
            Self::Offline { asked, rounded, error, .. } if asked == rounded => error.fmt(f),
            Self::Offline { node, asked, rounded, error } => write!(
                f,
                "{asked} bytes to take offline on node {node} are {rounded} in whole pageblocks; {error}"
            ),
        }
    }
}

/// What to do about a refusal of `mbind`.
fn binding_advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        // man 2 mbind: no node of the mask is online, in the cpuset and with memory.
        Some(Errno::INVAL) => {
            "the kernel has no such node with memory, or the cpuset of this process does not allow it \
             (`Mems_allowed_list` in /proc/self/status lists those it does)"
        }
        Some(Errno::NOSYS) => "this kernel was built without NUMA",
        _ => "containers allow mbind with CAP_SYS_NICE",
    }
}

impl std::error::Error for MemoryError {}

impl From<EnvironmentError> for MemoryError {
    fn from(error: EnvironmentError) -> Self {
        Self::Environment(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{HostMachine, HostNode};
    use crate::numa::BindMode;

    /// Two nodes, 0 and 3, of 64 MiB; all CPUs are on node 0.
    pub(super) fn memory(use_rseq: bool) -> Memory {
        let cpus = (0..256).map(CpuId).collect();
        let near = HostNode { id: NodeId(0), cpus, has_memory: true };
        let far = HostNode { id: NodeId(3), cpus: Vec::new(), has_memory: true };
        let distances = vec![10, 20, 20, 10];
        let machine = HostMachine { nodes: vec![near, far], distances, emulated: true };
        let builder = Memory::builder().machine(machine).use_rseq(use_rseq);
        builder.bytes_per_node(64 << 20).build().unwrap()
    }

    fn value(text: &str, name: &str) -> u64 {
        let mut lines =
            text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
        lines.next().and_then(|value| value.trim().parse().ok()).expect(name)
    }

    #[test]
    fn nothing_is_lost_or_counted_twice_by_many_threads() {
        const THREADS: u64 = 8;
        const BLOCKS: u64 = 100_000;
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let memory = &memory;
                    scope.spawn(move || {
                        let far = Request::new(Order(0), Gfp::KERNEL).on(NodeId(3));
                        let request =
                            if thread % 2 == 0 { far } else { Request { node: None, ..far } };
                        // Bursts beyond what a list holds, and orders beyond what pagesets cache.
                        let mut held = Vec::new();
                        for block in 0..BLOCKS {
                            let order = if block % 64 == 0 { Order(4) } else { Order(0) };
                            held.push(memory.alloc(Request { order, ..request }).unwrap());
                            if block % 700 == 0 {
                                held.clear();
                            }
                        }
                    });
                }
            });
            with_allocator!(memory, allocator => allocator.check()).unwrap();
            let (storage, text) = (memory.storage(), memory.vmstat());
            let large = BLOCKS.div_ceil(64);
            let pages = THREADS * (BLOCKS - large + 16 * large);
            assert_eq!(value(&text, "pgalloc_normal"), pages, "{storage}");
            assert_eq!(value(&text, "pgfree"), pages, "{storage}");
            let cached = value(&text, "nr_pcp_pages");
            assert_eq!(value(&text, "nr_free_pages") + cached, 2 * (64 << 20) / 4096, "{storage}");
            let (near, far) = (memory.numastat(NodeId(0)), memory.numastat(NodeId(3)));
            let (near, far) = (near.unwrap(), far.unwrap());
            let half = THREADS / 2 * BLOCKS;
            assert_eq!((value(&near, "numa_hit"), value(&near, "local_node")), (half, half));
            assert_eq!((value(&far, "numa_hit"), value(&far, "other_node")), (half, half));
        }
    }

    #[test]
    fn blocks_are_cleared_if_asked() {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let request = Request::new(Order(2), Gfp::KERNEL);
            let mut block = memory.alloc(request).unwrap();
            block.fill(7);
            let pfn = block.pfn();
            drop(block);
            let request = Request { gfp: request.gfp.or(Gfp::ZERO), ..request };
            let block = memory.alloc(request).unwrap();
            assert_eq!(block.pfn(), pfn, "the block that was freed last");
            assert!(block.iter().all(|byte| *byte == 0));
        }
    }

    /// No machine has node 1000, which is how a cpuset that forbids a node looks too.
    #[test]
    fn a_node_that_cannot_be_bound_says_why() {
        let node = HostNode { id: NodeId(1000), cpus: vec![CpuId(0)], has_memory: true };
        let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: false };
        let error = Memory::builder().machine(machine).bind(BindMode::Strict).build().unwrap_err();
        let is_refused = |what: &io::Error| Errno::from_io_error(what) == Some(Errno::INVAL);
        let MemoryError::CannotBind { node: NodeId(1000), error: what } = &error else {
            panic!("{error}");
        };
        let names_cpuset = error.to_string().contains("Mems_allowed_list");
        assert!(names_cpuset || !is_refused(what), "{error}");
        assert!(error.to_string().ends_with("the mode `advisory` goes on without"), "{error}");
    }

    /// What happens then is the setting's choice, not that of the build.
    #[test]
    fn a_block_that_was_freed_behind_its_back_is_reported() {
        let memory = memory(true);
        let block = memory.alloc_pages(1).unwrap();
        // SAFETY: nobody uses the block any more; that it still stands for the page is what is tested.
        unsafe { memory.free_frames(block.pfn(), block.order()) }.unwrap();
        drop(block);
        assert_eq!(memory.misuses(), 1);
        memory.check().unwrap();
    }

    #[test]
    fn texts_are_of_this_memory() {
        let memory = memory(true);
        let _block = memory.alloc_pages(16).unwrap();
        let zoneinfo = memory.zoneinfo();
        assert_eq!(value(&zoneinfo, "managed"), 0);
        assert_eq!(zoneinfo.lines().filter(|line| line.starts_with("Node ")).count(), 10);
        assert_eq!(zoneinfo.matches("managed  16384\n").count(), 2);
        let buddyinfo = memory.buddyinfo();
        let ends: Vec<&str> = buddyinfo.lines().map(|line| line.trim_end()).collect();
        let (near, far) = ("     1      1      1     15", "     0      0      0     16");
        assert!(
            ends[0].starts_with("Node 0, zone   Normal ") && ends[0].ends_with(near),
            "{ends:?}"
        );
        assert!(
            ends[1].starts_with("Node 3, zone   Normal ") && ends[1].ends_with(far),
            "{ends:?}"
        );
        assert_eq!(memory.numastat(NodeId(1)), None);
    }

    #[test]
    fn placement_is_sampled_over_what_is_online() {
        let machine = HostMachine::from(&nearpage_machine::read_this_machine().unwrap());
        let memory = Memory::builder().machine(machine).bytes_per_node(16 << 20).build().unwrap();
        let untouched = memory.verify_placement(100).unwrap();
        assert!(untouched.nodes.iter().all(|(_, placement)| placement.placed() == 0));
        let node = untouched.nodes[0].0;
        let all = Request::new(Order(0), Gfp::KERNEL.or(Gfp::THISNODE)).on(node);
        let mut blocks = Vec::new();
        while let Ok(mut block) = memory.alloc(all) {
            block[0] = 1;
            blocks.push(block);
        }
        let placement = &memory.verify_placement(100).unwrap().nodes[0].1;
        assert!(placement.placed() > 90 && placement.placed() <= 100, "{placement:?}");
        assert_eq!(placement.placed() + placement.untouched, 100);
    }

    #[test]
    fn pages_are_free_cached_or_held() {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let (near, far) = (NodeId(0), NodeId(3));
            let blocks: Vec<_> = (0..100).map(|_| memory.alloc_pages(1).unwrap()).collect();
            memory.drain_all().unwrap();
            assert_eq!([near, far].map(|node| memory.free_pages(node).0), [16_284, 16_384]);
            assert_eq!([near, far].map(|node| memory.managed_pages(node).0), [16_384, 16_384]);
            assert_eq!(memory.managed_pages(NodeId(1)), PageCount(0));
            drop(blocks);
            let checked = memory.check().unwrap();
            assert_eq!(checked.free.0 + checked.cached.0, 2 * 16_384);
            assert!(checked.cached.0 > 0, "{checked:?}");
        }
    }
}
