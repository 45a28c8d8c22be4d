//! CPUs come and go.
//!
//! A CPU that is off has pagesets that nobody uses: what they held went back to the zones, and threads that still run
//! there go to the zones themselves. The fast path finds nobody's pageset in its place, and so needs no look at
//! whether the CPU is on. A thread that had found the CPU's own pageset just before may put one page there; the next
//! drain takes it.
//!
//! What is computed anew is what Linux computes: the sizes of all pagesets. Zonelists stay, so that the preference of
//! nodes without CPUs may be that of before (facts 13, 3.2).

use core::fmt;

use super::allocator::{Cpu, PageAllocator};
use super::drain::DrainBusy;
use crate::host::{Lock, Platform};
use crate::sync::Ordering;
use crate::units::{CpuId, PageCount};

/// Why a CPU was not switched on or off. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CpuError {
    /// The topology has no such CPU.
    Unknown {
        /// The CPU.
        cpu: CpuId,
    },
    /// It is on already.
    AlreadyOn {
        /// The CPU.
        cpu: CpuId,
    },
    /// It is off already.
    AlreadyOff {
        /// The CPU.
        cpu: CpuId,
    },
    /// Its pagesets could not be drained.
    Busy(DrainBusy),
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { cpu } => write!(f, "CPU {cpu} is not in the topology"),
            Self::AlreadyOn { cpu } => write!(f, "CPU {cpu} to switch on: it is on already"),
            Self::AlreadyOff { cpu } => write!(f, "CPU {cpu} to switch off: it is off already"),
            Self::Busy(busy) => busy.fmt(f),
        }
    }
}

impl core::error::Error for CpuError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Busy(busy) => Some(busy),
            _ => None,
        }
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Whether a CPU is in the topology and on. All are at first.
    pub fn is_cpu_on(&self, cpu: CpuId) -> bool {
        self.cpu(cpu).is_some_and(Cpu::is_on)
    }

    pub(super) fn cpus_on(&self) -> impl Iterator<Item = &'m Cpu<'m, P>> + use<'m, P> {
        self.cpus.iter().filter(|cpu| cpu.is_on())
    }

    /// Switches a CPU off: its pagesets are drained, and not used until it is on again. Returns the pages that went
    /// back.
    ///
    /// # Errors
    /// [`CpuError`].
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<PageCount, CpuError> {
        let known = self.cpu(cpu).ok_or(CpuError::Unknown { cpu })?;
        let mut state = self.state.lock();
        if !known.is_on() {
            return Err(CpuError::AlreadyOff { cpu });
        }
        self.switch(known, false);
        let drained = self.drain_cpu(cpu).map_err(|busy| {
            self.switch(known, true);
            CpuError::Busy(busy)
        })?;
        self.resize_pagesets(&state);
        state.plugged.cpu_offlines += 1;
        Ok(drained)
    }

    /// Switches a CPU on again.
    ///
    /// # Errors
    /// [`CpuError::Unknown`] and [`CpuError::AlreadyOn`].
    pub fn online_cpu(&self, cpu: CpuId) -> Result<(), CpuError> {
        let known = self.cpu(cpu).ok_or(CpuError::Unknown { cpu })?;
        let mut state = self.state.lock();
        if known.is_on() {
            return Err(CpuError::AlreadyOn { cpu });
        }
        self.switch(known, true);
        self.resize_pagesets(&state);
        state.plugged.cpu_onlines += 1;
        Ok(())
    }

    fn switch(&self, cpu: &'m Cpu<'m, P>, on: bool) {
        cpu.is_on.store(on, Ordering::Relaxed);
        self.set_homes(cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{NodeId, Order};

    #[test]
    fn a_cpu_that_is_off_keeps_nothing_and_its_threads_go_to_zones() {
        let machine = TestMachine::new().node(0, 8192, &[0]).node(1, 8192, &[1]);
        machine.run(|allocator| {
            let request = Request::new(Order(0), Gfp::KERNEL);
            let cached = || allocator.totals().cached_pages.0;
            allocator.platform().run_on(CpuId(1));
            let page = allocator.alloc(request).unwrap();
            allocator.free(page, Order(0)).unwrap();
            let before = cached();
            assert!(before > 0);
            assert_eq!(allocator.offline_cpu(CpuId(1)), Ok(PageCount(before)));
            assert_eq!(
                allocator.offline_cpu(CpuId(1)),
                Err(CpuError::AlreadyOff { cpu: CpuId(1) })
            );
            assert_eq!(allocator.offline_cpu(CpuId(7)), Err(CpuError::Unknown { cpu: CpuId(7) }));
            for node in [None, Some(NodeId(0)), Some(NodeId(1))] {
                let page = allocator.alloc(Request { node, ..request }).unwrap();
                let expected = node.unwrap_or(NodeId(1)).0 as u16;
                assert_eq!(allocator.topology().node_of_pfn(page).unwrap().0, expected);
                allocator.free(page, Order(0)).unwrap();
                assert_eq!(cached(), 0);
            }
            allocator.rebuild_zonelists();
            let page = allocator.alloc(request).unwrap();
            allocator.free(page, Order(0)).unwrap();
            assert_eq!(cached(), 0, "new zonelists do not switch it on");
            allocator.online_cpu(CpuId(1)).unwrap();
            assert_eq!(allocator.online_cpu(CpuId(1)), Err(CpuError::AlreadyOn { cpu: CpuId(1) }));
            let page = allocator.alloc(request).unwrap();
            allocator.free(page, Order(0)).unwrap();
            assert!(cached() > 0);
            allocator.check().unwrap();
        });
    }
}
