//! Upkeep of a memory: settings, drains, decay, trims.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use nearpage::{
    CpuId, DrainBusy, LimitOf, PageCount, PfnRange, SettingError, Settings, UnknownNode,
};

use super::Memory;
use crate::ffi;
use crate::frame::FRAME_SHIFT;
use crate::region::page_size;
use crate::settings::for_a_process;
use crate::trim::{Trimmed, Trims, Turn};

impl Memory {
    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.pages().settings()
    }

    /// The `min_free_kbytes` in force: as set, or derived from the memory that is online.
    pub fn min_free_kbytes(&self) -> u64 {
        self.pages().min_free_kbytes()
    }

    /// Changes the settings. Watermarks and caches follow at once, while other threads allocate. Settings that
    /// [`MemoryBuilder::settings`](crate::MemoryBuilder::settings) ignores are ignored here too.
    ///
    /// # Errors
    /// [`SettingError`] for a value that is out of range; the call then changes nothing.
    pub fn set_settings(&self, settings: Settings) -> Result<(), SettingError> {
        let settings = for_a_process(settings);
        self.pages().set_settings(settings)?;
        self.with_objects(|objects| objects.apply_budget());
        Ok(())
    }

    /// Returns all pages that CPUs cache to their zones; returns how many.
    ///
    /// # Errors
    /// [`DrainBusy`] if another thread was draining one of the CPUs. The other CPUs are drained.
    pub fn drain_all(&self) -> Result<PageCount, DrainBusy> {
        self.pages().drain_all()
    }

    /// Returns all pages that a CPU caches to their zones; returns how many.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all).
    pub fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        self.pages().drain_cpu(cpu)
    }

    /// Lets the caches of all CPUs decay by one step, and drains those that nobody used since the last step. Without a
    /// [`Reclaim`](crate::Reclaim) thread, a program should call this once a second. Returns the pages that went back to their
    /// zones.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all). The CPUs before the busy one have decayed.
    pub fn decay(&self) -> Result<PageCount, DrainBusy> {
        let cpus = self.topology().nodes().iter().flat_map(|node| node.cpus);
        let step = |(&cpu, seen): (&CpuId, &AtomicU64)| {
            let (moves, cached) = self.pages().moves_of(cpu);
            let is_idle = seen.swap(moves, Ordering::Relaxed) == moves;
            if is_idle && cached.0 > 0 { self.drain_cpu(cpu) } else { self.pages().decay_cpu(cpu) }
        };
        cpus.zip(self.moves_seen.iter())
            .map(step)
            .try_fold(PageCount(0), |sum, pages| Ok(PageCount(sum.0 + pages?.0)))
    }

    /// Drains all caches, and gives the memory behind free pages back to the kernel until only the high watermark is left.
    /// Returns how many of those pages were in use since the kernel last got them. They stay free, and are zeroes when they are
    /// next used. Under Linux's rules, and where a node has [huge pages](crate::HugePages), blocks below 2 MiB keep their
    /// memory.
    pub fn trim(&self) -> PageCount {
        // A CPU that another thread drains just now needs no second drain.
        let _ = self.drain_all();
        self.trim_turn(&Turn::ALL).pages
    }

    /// Gives memory of free pages back to the kernel.
    pub(crate) fn trim_turn(&self, turn: &Turn) -> Trimmed {
        let (region, growth, huge_pages) = (&self.region, &self.growth, &self.huge_pages);
        self.pages().trim(&Trims { region, growth, huge_pages }, turn)
    }

    /// Pages of a node, or of all nodes together, that have memory of the kernel behind them now, as `mincore` tells: those in
    /// use that were touched, and those that are free and were not given back yet.
    ///
    /// ```
    /// use nearpage::LimitOf;
    /// use nearpage_linux::{HugePages, Memory};
    ///
    /// let memory = Memory::builder().bytes_per_node(16 << 20).huge_pages(HugePages::Never).build()?;
    /// let mut block = memory.alloc_pages(8)?;
    /// block.fill(1);
    /// assert_eq!(memory.resident(LimitOf::Allocator)?.0, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The refusal of `mincore`; [`NotFound`](io::ErrorKind::NotFound) for an unknown node.
    pub fn resident(&self, of: LimitOf) -> io::Result<PageCount> {
        if let LimitOf::Node(node) = of
            && self.topology().index_of(node).is_none()
        {
            return Err(io::Error::new(io::ErrorKind::NotFound, UnknownNode { node }));
        }
        let ranges = self.node_ranges.iter().filter(|(node, _)| match of {
            LimitOf::Allocator => true,
            LimitOf::Node(wanted) => *node == wanted,
        });
        let bytes: io::Result<u64> = ranges.map(|(_, range)| self.resident_bytes(*range)).sum();
        Ok(PageCount(bytes? >> FRAME_SHIFT))
    }

    fn resident_bytes(&self, range: PfnRange) -> io::Result<u64> {
        /// So many pages are asked about at once.
        const PAGES: usize = 1 << 14;
        let mut has_memory = [0_u8; PAGES];
        let (_stays_online, page) = (self.growth.keep(), page_size());
        let bytes = self.online_pages(range).to_bytes(FRAME_SHIFT) as usize;
        let mut resident = 0;
        for at in (0..bytes).step_by(PAGES * page) {
            let part = (bytes - at).min(PAGES * page);
            let start = self.address(range.start + PageCount((at >> FRAME_SHIFT) as u64));
            let pages = &mut has_memory[..part.div_ceil(page)];
            ffi::mincore(start, part, pages)?;
            resident += pages.iter().filter(|&&page| page & 1 == 1).count();
        }
        Ok((resident * page) as u64)
    }

    /// A round of reaping of the slab allocator, if its time has come.
    pub(crate) fn reap_objects(&self) {
        self.objects.reap(self.pages().platform_address());
    }

    /// Gives back what caches of objects keep; returns pages.
    pub(crate) fn shrink_objects(&self) -> PageCount {
        self.with_objects(|objects| objects.shrink_all())
    }
}
