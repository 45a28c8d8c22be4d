//! What a CPU keeps of a zone where it owns pageblocks with maps, as values to compare.

use std_alloc::vec::Vec;

use crate::frame::Migratetype;
use crate::host::Platform;
use crate::model::PageblockOwners;
use crate::pcp::pageset::Pageset;
use crate::units::{CpuId, Pfn};
use crate::zone::Zone;

/// Adjoining pages: the first one, and how many.
pub type Run = (Pfn, u64);

/// What a CPU keeps of a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptState {
    /// Blocks by list, hottest first.
    pub lists: Vec<Vec<Pfn>>,
    /// Pageblocks that it owns, as they are listed: the type of the list, the first frame, and what is free.
    pub pageblocks: Vec<(Migratetype, Pfn, Vec<Run>)>,
    /// Pages on their way beside the list of homebound ones: on the stage, those that wait, and those in the inbox.
    pub on_their_way: Vec<Run>,
    /// How many pages there may be.
    pub size: u64,
    /// When the zone was visited last, in units of 2^20 ns.
    pub visited: u32,
}

impl KeptState {
    /// What `pageset` keeps, if CPUs own pageblocks with maps. Only while nobody uses it.
    pub fn of<P: Platform>(pageset: &Pageset<'_, P>) -> Option<Self> {
        let owned = pageset.owned()?;
        let frames = pageset.frames();
        let blocks = |list| {
            let mut blocks = Vec::new();
            pageset.for_each_block(list, |pfn| blocks.push(pfn));
            blocks
        };
        let (mut pageblocks, mut on_their_way) = (Vec::new(), Vec::new());
        owned.pageblocks.for_each(frames, &mut |of, first| {
            let runs = frames.free_in_pageblock(first).map().runs();
            let runs = runs.map(|run| (frames.pfn(first + run.start), run.len() as u64));
            pageblocks.push((of, frames.pfn(first), runs.collect()));
        });
        owned.for_each_homebound(frames, &mut |first, pages| {
            on_their_way.push((frames.pfn(first), pages.into()));
        });
        let swing = owned.pageblocks.swing();
        Some(Self {
            lists: (0..pageset.list_count()).map(blocks).collect(),
            pageblocks,
            on_their_way,
            size: swing.size.into(),
            visited: swing.visited,
        })
    }
}

/// The CPU that owns the pageblock of a frame of a zone, where CPUs own pageblocks with maps.
pub fn owner_of<P: Platform>(
    zone: &Zone<'_, P>,
    owners: PageblockOwners,
    pfn: Pfn,
) -> Option<CpuId> {
    let number = zone.frames().number(pfn);
    let has_map = owners == PageblockOwners::CpusWithMaps;
    let is_shared = zone.frames().is_pageblock_shared(number);
    if has_map && !is_shared { zone.frames().free_in_pageblock(number).owner() } else { None }
}
