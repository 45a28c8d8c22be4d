//! Upkeep of a memory: settings, drains, decay, trims.

use nearpage::{CpuId, DrainBusy, PageCount, SettingError, Settings};

use super::Memory;
use crate::settings::for_a_process;

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

    /// Lets the caches of all CPUs decay by one step. Without a [`Reclaim`](crate::Reclaim) thread, a program should call
    /// this once a second. Returns the pages that went back to their zones.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all). The CPUs before the busy one have decayed.
    pub fn decay(&self) -> Result<PageCount, DrainBusy> {
        let cpus = self.topology().nodes().iter().flat_map(|node| node.cpus);
        cpus.map(|&cpu| self.pages().decay_cpu(cpu))
            .try_fold(PageCount(0), |sum, pages| Ok(PageCount(sum.0 + pages?.0)))
    }

    /// Drains all caches, and gives the memory behind free blocks back to the kernel until only the high watermark is left.
    /// Returns the pages of those blocks, touched or not. They stay free, and are zeroes when they are next used. Blocks
    /// below 2 MiB keep their memory.
    pub fn trim(&self) -> PageCount {
        // A CPU that another thread drains just now needs no second drain.
        let _ = self.drain_all();
        self.trim_free()
    }

    /// As [`trim`](Self::trim), without the drain.
    pub(crate) fn trim_free(&self) -> PageCount {
        self.pages().trim(&self.region, &self.growth)
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
