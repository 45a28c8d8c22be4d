//! Holding an allocator still from outside: for hosts whose memory can be copied while threads run (`fork`).
//!
//! The parts are to be held in the order of the core's locks: settings, each CPU's pagesets, each zone, each bucket of
//! the wait tables. Holding any of them can make other threads wait, and changes nothing.

use super::allocator::{Cpu, PageAllocator};
use super::state::State;
use crate::host::{Lock, Platform};
use crate::pcp::Storage;
use crate::pcp::pageset::{List, OnCpu, Pageset};
use crate::units::CpuId;
use crate::waiters::WaiterTable;
use crate::zone::{Zone, ZoneGuard};

/// What of an allocator other threads change. It refers to the allocator's metadata, not to the value of the allocator,
/// which may move.
pub struct Stillness<'m, P: Platform> {
    state: &'m P::Lock<State<'m>>,
    cpus: &'m [Cpu<'m, P>],
    zones: &'m [&'m Zone<'m, P>],
    wait_tables: &'m [&'m WaiterTable<'m, P::Waiters>],
}

impl<P: Platform> core::fmt::Debug for Stillness<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stillness").field("zones", &self.zones.len()).finish_non_exhaustive()
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// What of this allocator other threads change.
    #[doc(hidden)]
    pub fn stillness(&self) -> Stillness<'m, P> {
        let Self { state, cpus, zones, wait_tables, .. } = *self;
        Stillness { state, cpus, zones, wait_tables }
    }
}

impl<'m, P: Platform> Stillness<'m, P> {
    /// Keeps settings, zonelists and what is online as they are until the answer is dropped. `None` while a thread takes a range:
    /// in a copy of the memory its pageblocks would stay isolated.
    pub fn try_hold_settings(&self) -> Option<impl Sized + use<'m, P>> {
        Some(self.state.lock()).filter(|state| state.ranges == 0)
    }

    /// The pagesets of each CPU of the topology, on or off.
    pub fn cpus(&self) -> impl Iterator<Item = CpuPagesets<'m, P>> + use<'m, P> {
        let known = self.cpus.iter().filter(|cpu| cpu.is_known());
        known.map(|cpu| CpuPagesets { pagesets: cpu.pagesets })
    }

    /// Takes the lock of each zone, one with each step of the iterator.
    pub fn hold_zones(&self) -> impl Iterator<Item = ZoneHold<'m, P>> + use<'m, P> {
        self.zones.iter().map(|zone| ZoneHold { _guard: zone.lock() })
    }

    /// The tables of who waits for pages, each once.
    pub fn wait_tables(
        &self,
    ) -> impl Iterator<Item = &'m WaiterTable<'m, P::Waiters>> + use<'m, P> {
        let tables = self.wait_tables;
        let is_first =
            move |at: &usize| !tables[..*at].iter().any(|table| core::ptr::eq(*table, tables[*at]));
        (0..tables.len()).filter(is_first).map(move |at| tables[at])
    }
}

/// The pagesets of one CPU.
pub struct CpuPagesets<'m, P: Platform> {
    pagesets: &'m [Pageset<'m, P>],
}

impl<P: Platform> core::fmt::Debug for CpuPagesets<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CpuPagesets").field("cpu", &self.cpu()).finish_non_exhaustive()
    }
}

impl<'m, P: Platform> CpuPagesets<'m, P> {
    /// The CPU.
    pub fn cpu(&self) -> CpuId {
        self.pagesets.first().map_or(CpuId::NONE, |pageset| pageset.owner().cpu)
    }

    /// Takes hold of the pagesets from outside, so that no thread on that CPU can use them until
    /// the answer is dropped; `None` if another thread has them now. `storage` is the allocator's, or one like it.
    pub fn try_stop<'s>(&self, storage: &'s P::Storage) -> Option<StoppedPagesets<'s, 'm, P>> {
        let pagesets = self.pagesets;
        let owner = pagesets.first()?.owner();
        let on = storage.stop(owner.cpu, &owner.exclusion, &|each| each_list(pagesets, each))?;
        if storage.current_cpu() != owner.cpu {
            owner.taken.begin();
        }
        Some(StoppedPagesets { storage, pagesets, on: Some(on) })
    }
}

/// A CPU whose pagesets nobody uses until this is dropped.
pub struct StoppedPagesets<'s, 'm: 's, P: Platform + 's> {
    storage: &'s P::Storage,
    pagesets: &'m [Pageset<'m, P>],
    on: Option<OnCpu<'s, P>>,
}

impl<'s, 'm: 's, P: Platform + 's> core::fmt::Debug for StoppedPagesets<'s, 'm, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StoppedPagesets")
            .field("pagesets", &self.pagesets.len())
            .finish_non_exhaustive()
    }
}

impl<'s, 'm: 's, P: Platform + 's> Drop for StoppedPagesets<'s, 'm, P> {
    fn drop(&mut self) {
        if let Some(on) = self.on.take() {
            self.storage.resume(on, &|each| each_list(self.pagesets, each));
        }
    }
}

/// A zone whose lock is held until this is dropped.
pub struct ZoneHold<'m, P: Platform> {
    _guard: ZoneGuard<'m, 'm, P>,
}

impl<P: Platform> core::fmt::Debug for ZoneHold<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ZoneHold").finish_non_exhaustive()
    }
}

/// Calls `each` with every list of a CPU.
fn each_list<'m, P: Platform>(pagesets: &[Pageset<'m, P>], each: &mut dyn FnMut(&List<'m, P>)) {
    pagesets.iter().flat_map(Pageset::lists).for_each(each);
}
