//! Who owns pageblocks.

use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

use crate::frame::Migratetype;
use crate::units::{CpuId, Pfn};

const PAGEBLOCK: u64 = 512;

/// Who owns pageblocks of a zone, by their first frames; and those that have pieces in the zone, last listed first.
#[derive(Default, Debug)]
pub struct Owners {
    pub(super) owners: BTreeMap<Pfn, CpuId>,
    pub(super) fragments: Vec<(CpuId, Migratetype, Pfn)>,
    /// Pageblocks that CPUs took whole.
    pub claimed: u64,
    /// Pieces of own pageblocks that CPUs took back from the zone.
    pub recovered: u64,
    /// Blocks that another CPU than the owner freed.
    pub sent_home: u64,
}

impl Owners {
    /// The owner of a frame's pageblock.
    pub fn of(&self, pfn: Pfn) -> Option<CpuId> {
        self.owners.get(&first_of(pfn)).copied()
    }

    /// Nobody owns the pageblock any more.
    pub fn disown(&mut self, first: Pfn) {
        self.owners.remove(&first);
        self.unlist(first);
    }

    /// The pageblock is on no list.
    pub(super) fn unlist(&mut self, first: Pfn) {
        self.fragments.retain(|&(_, _, listed)| listed != first);
    }

    /// The pageblock is the first on its owner's list.
    pub(super) fn list(&mut self, cpu: CpuId, of: Migratetype, first: Pfn) {
        self.fragments.insert(0, (cpu, of, first));
    }
}

/// The first frame of a pageblock.
pub(super) fn first_of(pfn: Pfn) -> Pfn {
    Pfn(pfn.0 - pfn.0 % PAGEBLOCK)
}
