//! Upkeep of a memory: settings, drains, decay, trims.

use nearpage::alloc::DrainBusy;
use nearpage::units::{CpuId, PageCount};
use nearpage::watermark::{SettingError, Settings};

use super::Memory;
use crate::settings::for_a_process;

impl Memory {
    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.pages().settings()
    }

    /// Changes the settings, and everything that follows from them, while others allocate. The same of them have no
    /// effect as for [`MemoryBuilder::settings`](crate::MemoryBuilder::settings).
    ///
    /// # Errors
    /// [`SettingError`] for a value that is out of range; nothing is changed then.
    pub fn set_settings(&self, settings: Settings) -> Result<(), SettingError> {
        let settings = for_a_process(settings);
        self.pages().set_settings(settings)?;
        self.with_objects(|objects| objects.apply_budget());
        Ok(())
    }

    /// Gives back all pages that CPUs cache; returns how many.
    ///
    /// # Errors
    /// [`DrainBusy`] if a CPU was being drained by another thread.
    pub fn drain_all(&self) -> Result<PageCount, DrainBusy> {
        self.pages().drain_all()
    }

    /// Gives back all pages that a CPU caches; returns how many.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all).
    pub fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        self.pages().drain_cpu(cpu)
    }

    /// Lets the caches of all CPUs decay by one step; to be called once a second. Returns the pages that
    /// went back.
    ///
    /// # Errors
    /// As [`drain_all`](Self::drain_all); the CPUs before were done.
    pub fn decay(&self) -> Result<PageCount, DrainBusy> {
        let cpus = self.topology().nodes().iter().flat_map(|node| node.cpus);
        cpus.map(|&cpu| self.pages().decay_cpu(cpu))
            .try_fold(PageCount(0), |sum, pages| Ok(PageCount(sum.0 + pages?.0)))
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
