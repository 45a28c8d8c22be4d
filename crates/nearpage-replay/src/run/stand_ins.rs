//! Which blocks of the core stand for the recorded ones.
//!
//! A frame of the trace names a block and nothing else. [`StandIns`] leads from it to a block of the core until it is
//! freed. A block that is freed without having been allocated was there before the window: then one of those stands for
//! it that the core's zone did not have free at the start.

use std::collections::VecDeque;

use nearpage::{CpuId, Migratetype, Order, Pfn};

use crate::blocks::{Blocks, CoreBlock};
use crate::machine::{Core, Held};
use crate::strays::{Kind, Strays};
use crate::zones::ZoneMap;

/// Blocks of the core, by recorded frame.
#[derive(Debug)]
pub(crate) struct StandIns {
    /// Which zone a frame of the core is of.
    map: ZoneMap,
    blocks: Blocks,
    strays: Strays,
    /// What was allocated before the window.
    pub(super) held: Held,
    /// Pages of bulk allocations whose frames are not told, and who allocated them, oldest first, by zone.
    untold: Vec<VecDeque<(Pfn, CpuId)>>,
    /// How many there were, by zone.
    pub(crate) untold_allocs: Vec<u64>,
}

/// Where a block was that the window does not tell of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Its zone, by position.
    pub(crate) zone: Option<usize>,
    /// The type of its pageblock.
    pub(crate) migratetype: Migratetype,
}

/// How the block that stands for a freed one was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// As it was allocated.
    Whole,
    /// A piece of one that was allocated, or one of which the piece was.
    Piece,
    /// It was allocated before the window, or without an event.
    Unknown,
    /// The same, and the kernel's state has it as free at the start: a page of a bulk allocation stands for it.
    Untold,
    /// The same, or nothing is known of the start: one was taken that was free until now.
    Taken,
    /// It is of no zone.
    Nowhere,
}

impl StandIns {
    /// A core in its start state, of which `held` is not free.
    pub(crate) fn new(core: &Core<'_>, held: Held) -> StandIns {
        let zones = core.zones().len();
        StandIns {
            map: core_map(core),
            blocks: Blocks::default(),
            strays: Strays::default(),
            held,
            untold: vec![VecDeque::new(); zones],
            untold_allocs: vec![0; zones],
        }
    }

    /// The zone of a frame of the core.
    pub(crate) fn zone_of_core(&self, pfn: Pfn) -> Option<usize> {
        self.map.zone_of(pfn)
    }

    /// The zone of the block that stands for the one at `pfn`.
    pub(crate) fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        self.map.zone_of(self.blocks.get(pfn)?.pfn)
    }

    /// Lets `block` stand for the one at `pfn`; returns the one that did so before.
    pub(crate) fn insert(&mut self, pfn: Pfn, block: CoreBlock) -> Option<CoreBlock> {
        self.blocks.insert(pfn, block)
    }

    /// Takes the block that stands for the one that begins at `pfn`.
    pub(crate) fn remove(&mut self, pfn: Pfn) -> Option<CoreBlock> {
        self.blocks.remove(pfn)
    }

    /// Keeps a page of a bulk allocation that has no recorded frame.
    pub(crate) fn keep_untold(&mut self, page: Pfn, cpu: CpuId) {
        if let Some(zone) = self.map.zone_of(page) {
            self.untold[zone].push_back((page, cpu));
            self.untold_allocs[zone] += 1;
        }
    }

    /// Takes such a page, and who allocated it.
    pub(crate) fn take_untold(&mut self) -> Option<(Pfn, CpuId)> {
        self.untold.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Whether a block stands for one that a recorded frame lies in.
    pub(crate) fn knows(&self, pfn: Pfn) -> bool {
        self.blocks.get(pfn).is_some() || self.blocks.around(pfn).is_some()
    }

    /// Takes a block that stands for a frame of the recorded block at `pfn`, if there is one.
    pub(crate) fn take_within(&mut self, pfn: Pfn, order: Order) -> Option<CoreBlock> {
        let around = || self.blocks.around(pfn).map(|(head, _)| head);
        let mut inside = (0..order.pages().0).map(|at| Pfn(pfn.0 + at));
        let head = inside.find(|&pfn| self.blocks.get(pfn).is_some()).or_else(around)?;
        self.blocks.remove(head)
    }

    /// Pages of the recording's free lists for which there was no place, over all zones.
    pub(crate) fn left_out_pages(&self) -> u64 {
        self.held.zones.iter().map(|zone| zone.left_out).sum()
    }

    /// Takes the block that stands for the freed one at `pfn`. Of one that is not known, `origin` says where it was.
    pub(crate) fn take(
        &mut self,
        core: &Core<'_>,
        pfn: Pfn,
        order: Order,
        origin: Origin,
    ) -> (Found, Option<CoreBlock>) {
        if !self.strays.is_empty()
            && let Some(kind) = self.blocks.get(pfn).and_then(|block| self.kind(core, block))
        {
            self.strays.remove(kind, pfn);
        }
        if let Some(block) = self.blocks.remove(pfn) {
            return match block.order == order {
                true => (Found::Whole, Some(block)),
                false => (Found::Piece, self.split(core, pfn, pfn, block, order)),
            };
        }
        if let Some((head, block)) = self.blocks.around(pfn) {
            self.blocks.remove(head);
            return (Found::Piece, self.split(core, head, pfn, block, order));
        }
        match origin.zone {
            Some(zone) if self.held.zones[zone].is_known() => self.known(core, zone, pfn, order),
            Some(zone) if self.held.zones[zone].is_all_free => {
                taken(core, zone, order, origin.migratetype)
            }
            Some(zone) => (Found::Unknown, self.unknown(core, zone, order, origin.migratetype)),
            None => (Found::Nowhere, None),
        }
    }

    /// Takes the block at a frame that was in use at the start, if all of it still is.
    pub(crate) fn take_held(
        &mut self,
        core: &Core<'_>,
        pfn: Pfn,
        order: Order,
    ) -> Option<CoreBlock> {
        let zone = self.map.zone_of(pfn)?;
        let pfn = self.held.zones[zone].take_at(core, pfn, order)?;
        Some(CoreBlock { pfn, order })
    }

    /// A block that no event allocated, of a zone of which it is known what was in use at the start. If this was not, it was
    /// taken since without an event: in bulk, or from the free lists.
    fn known(
        &mut self,
        core: &Core<'_>,
        zone: usize,
        pfn: Pfn,
        order: Order,
    ) -> (Found, Option<CoreBlock>) {
        if let Some(pfn) = self.held.zones[zone].take_at(core, pfn, order) {
            return (Found::Unknown, Some(CoreBlock { pfn, order }));
        }
        if let Some(block) = self.take_untold_of(zone, order) {
            return (Found::Untold, Some(block));
        }
        taken(core, zone, order, core.zones()[zone].pageblock_type(pfn))
    }

    /// Takes a page of a zone that a bulk allocation without a recorded frame had, for a block of a page.
    fn take_untold_of(&mut self, zone: usize, order: Order) -> Option<CoreBlock> {
        if order > Order(0) {
            return None;
        }
        let (pfn, _) = self.untold[zone].pop_front()?;
        Some(CoreBlock { pfn, order })
    }

    /// A block that was allocated before the window.
    fn unknown(
        &mut self,
        core: &Core<'_>,
        zone: usize,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<CoreBlock> {
        if let Some(block) = self.take_untold_of(zone, order) {
            return Some(block);
        }
        let pfn = self.held.zones[zone].take(core, order, migratetype)?;
        Some(CoreBlock { pfn, order })
    }

    /// Takes a piece of `order` at `pfn` out of the block that begins at `head`; the other pieces stay allocated.
    fn split(
        &mut self,
        core: &Core<'_>,
        head: Pfn,
        pfn: Pfn,
        block: CoreBlock,
        order: Order,
    ) -> Option<CoreBlock> {
        if order >= block.order {
            // Freed as more than it was allocated: what is known of it goes back.
            return Some(block);
        }
        let zone = core.zones()[self.map.zone_of(block.pfn)?];
        let split = core.split_block(block.pfn, block.order, order);
        split.expect("what stands for a live block is allocated");
        let mut freed = None;
        for at in (0..block.order.pages().0).step_by(1 << order.0) {
            let piece = CoreBlock { pfn: Pfn(block.pfn.0 + at), order };
            let retyped = core.retype_block(piece.pfn, order, zone.pageblock_type(piece.pfn));
            retyped.expect("a piece of an allocated block");
            if head.0 + at == pfn.0 {
                freed = Some(piece);
            } else {
                self.blocks.insert(Pfn(head.0 + at), piece);
            }
        }
        freed
    }

    /// Notes whether the block that stands for the one at `pfn`, recorded in `zone`, lies elsewhere.
    pub(crate) fn note_place(&mut self, core: &Core<'_>, pfn: Pfn, zone: Option<usize>) {
        if zone.is_some()
            && let Some(block) = self.blocks.get(pfn)
            && self.map.zone_of(block.pfn) != zone
            && let Some(kind) = self.kind(core, block)
        {
            self.strays.insert(kind, pfn);
        }
    }

    /// Lets a block of its recorded zone stand for the one at `pfn`, if there is one that stands for another: see
    /// [`Strays`]. `places` tells the zones of recorded frames.
    pub(crate) fn bring_home(&mut self, core: &Core<'_>, pfn: Pfn, order: Order, places: &ZoneMap) {
        let (Some(mine), Some(home)) = (self.blocks.get(pfn), places.zone_of(pfn)) else { return };
        let is_astray = |kind: &Kind| kind.0 != home && kind.1 == order;
        let Some(kind) = self.kind(core, mine).filter(is_astray) else { return };
        while let Some(other) = self.strays.take((home, kind.1, kind.2)) {
            let block = self.blocks.get(other);
            let of_home = |block: &CoreBlock| {
                block.order == order && self.map.zone_of(block.pfn) == Some(home)
            };
            if let Some(block) = block.filter(of_home) {
                self.blocks.insert(pfn, block);
                self.blocks.insert(other, mine);
                self.strays.remove(kind, pfn);
                self.note_place(core, other, places.zone_of(other));
                return;
            }
        }
    }

    fn kind(&self, core: &Core<'_>, block: CoreBlock) -> Option<Kind> {
        let zone = self.map.zone_of(block.pfn)?;
        let migratetype = core.zones()[zone].pageblock_type(block.pfn);
        Some((zone, block.order, migratetype.index() as u8))
    }
}

/// A block from the free lists of a zone, for one that was in use without an event.
fn taken(
    core: &Core<'_>,
    zone: usize,
    order: Order,
    migratetype: Migratetype,
) -> (Found, Option<CoreBlock>) {
    let taken = core.take_from_zone(core.zones()[zone].index(), order, migratetype);
    (Found::Taken, taken.map(|pfn| CoreBlock { pfn, order }))
}

/// Which zone a frame of a core is of.
fn core_map(core: &Core<'_>) -> ZoneMap {
    let mut parts = Vec::new();
    for (index, zone) in core.zones().iter().enumerate() {
        parts.extend(
            core.topology().ranges_in(zone.node(), zone.span()).map(|range| (range, index)),
        );
    }
    ZoneMap::of_parts(parts)
}
