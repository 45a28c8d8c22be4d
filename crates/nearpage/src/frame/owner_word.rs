//! The word that says which CPU owns a pageblock: one more than its number, or 0.

use crate::sync::{Cell16, Ordering, point};
use crate::units::CpuId;

/// The word. Memory of zeroes is nobody.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnerWord<W>(W);

impl<W: Cell16> OwnerWord<W> {
    /// That of a pageblock that nobody owns.
    pub fn nobodys() -> Self {
        Self(W::new(0))
    }

    /// The CPU that owns the pageblock. Acquires what who set it wrote before.
    #[inline]
    pub fn owner(&self) -> Option<CpuId> {
        point();
        let number = self.0.load(Ordering::Acquire);
        number.checked_sub(1).map(|cpu| CpuId(cpu as u32))
    }

    /// Makes a CPU the owner, or nobody. Releases what was written before.
    #[inline]
    pub fn set_owner(&self, cpu: Option<CpuId>) {
        let number = cpu.map_or(0, |cpu| cpu.0 as u16 + 1);
        point();
        self.0.store(number, Ordering::Release);
    }
}
