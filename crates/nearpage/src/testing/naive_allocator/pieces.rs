//! Pageblocks that CPUs own: pagesets of pieces, as queues that are searched.

use std_alloc::collections::{BTreeMap, VecDeque};
use std_alloc::vec::Vec;

use super::asked::Asked;
use super::owners::{Owners, first_of};
use super::zone::{Begins, Blocks, NaiveZone, Pageblocks};
use super::{NaiveAllocator, NaivePageset};
use crate::frame::Migratetype;
use crate::model::PageblockOwners;
use crate::pcp::{list_order, list_type};
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

const PAGEBLOCK: u64 = 512;

/// A free piece, and whether it merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its first frame.
    pub pfn: Pfn,
    owned: bool,
}

/// The pieces of a pageset by order and type, hottest first.
pub type Pieces = BTreeMap<(Order, Migratetype), VecDeque<Piece>>;

fn list_of(of: Migratetype) -> Migratetype {
    if of.is_mergeable() { of } else { Migratetype::Movable }
}

/// Whether a pageblock is free in one block.
fn is_whole(zone: &NaiveZone, first: Pfn) -> bool {
    let whole = Pfn(first.0 - first.0 % (2 * PAGEBLOCK));
    matches!(zone.begins(first), Begins::Free(Order(9), _))
        || matches!(zone.begins(whole), Begins::Free(Order(10), _))
}

impl NaivePageset {
    /// The blocks that are compared with list number `list`.
    pub fn blocks(&self, list: usize) -> Vec<Pfn> {
        match &self.pieces {
            None => self.lists[list].iter().copied().collect(),
            Some(pieces) => {
                let list = pieces.get(&(list_order(list), list_type(list)));
                list.into_iter().flatten().map(|piece| piece.pfn).collect()
            }
        }
    }

    /// Whether a request for list number `list` needs a refill.
    pub(super) fn lacks(&self, list: usize) -> bool {
        match &self.pieces {
            None => self.lists[list].is_empty(),
            Some(pieces) => smallest(pieces, list).is_none(),
        }
    }

    /// Takes the hottest block for a list.
    pub(super) fn take(&mut self, list: usize) -> Option<Pfn> {
        let (order, of) = (list_order(list), list_type(list));
        let Some(pieces) = &mut self.pieces else { return self.lists[list].pop_front() };
        let found = smallest(pieces, list)?;
        let piece = pieces.get_mut(&(found, of))?.pop_front()?;
        for half in (order.0..found.0).rev().map(Order) {
            let rest = Piece { pfn: piece.pfn.plus(half.pages()), ..piece };
            pieces.entry((half, of)).or_default().push_front(rest);
        }
        Some(piece.pfn)
    }

    /// Puts a block at the hot end of a list.
    pub(super) fn put(&mut self, list: usize, pfn: Pfn, owners: &Owners) {
        let owned = owners.of(pfn) == Some(self.cpu);
        match &mut self.pieces {
            None => self.lists[list].push_front(pfn),
            Some(pieces) => {
                let of = (list_order(list), list_type(list));
                pieces.entry(of).or_default().push_front(Piece { pfn, owned });
            }
        }
    }

    fn add(&mut self, pfn: Pfn, order: Order, of: Migratetype, owners: &Owners) {
        let owned = owners.of(pfn) == Some(self.cpu);
        if let Some(pieces) = &mut self.pieces {
            pieces.entry((order, of)).or_default().push_back(Piece { pfn, owned });
        }
    }

    /// Merges, and gives pages back; returns how many.
    pub(super) fn drain_pieces(
        &mut self,
        zone: &mut NaiveZone,
        pageblocks: &mut Pageblocks,
        first_list: usize,
        pages: u64,
    ) -> u64 {
        let Some(pieces) = &mut self.pieces else { return 0 };
        merge(pieces, pageblocks);
        let mut drained = 0;
        while drained < pages {
            let Some((order, piece)) = next_to_drain(pieces, pages - drained, first_list) else {
                break;
            };
            zone.free(piece.pfn, order, pageblocks);
            drained += order.pages().0;
            let first = first_of(piece.pfn);
            if !piece.owned {
                continue;
            }
            if is_whole(zone, first) {
                zone.owners.disown(first);
            } else if zone.owners.of(first) == Some(self.cpu)
                && !zone.owners.fragments.iter().any(|&(_, _, listed)| listed == first)
            {
                zone.owners.list(self.cpu, list_of(pageblocks.of(first)), first);
            }
        }
        drained
    }
}

/// The smallest order that suffices for a list.
fn smallest(pieces: &Pieces, list: usize) -> Option<Order> {
    let has =
        |order: &Order| pieces.get(&(*order, list_type(list))).is_some_and(|of| !of.is_empty());
    (list_order(list).0..=9).map(Order).find(has)
}

fn merge(pieces: &mut Pieces, pageblocks: &Pageblocks) {
    for order in (0..9).map(Order) {
        let types = || Migratetype::ALL.into_iter().take(3);
        for of in types() {
            let listed: Vec<Piece> =
                pieces.get(&(order, of)).into_iter().flatten().copied().collect();
            for piece in listed {
                let buddy = Pfn(piece.pfn.0 ^ order.pages().0);
                let is_there = |pfn: Pfn| {
                    let has = |of| {
                        pieces.get(&(order, of)).is_some_and(|list: &VecDeque<Piece>| {
                            list.contains(&Piece { pfn, owned: true })
                        })
                    };
                    types().any(has)
                };
                if !is_there(piece.pfn) || !is_there(buddy) {
                    continue;
                }
                for of in types() {
                    let list = pieces.entry((order, of)).or_default();
                    list.retain(|listed| ![piece.pfn, buddy].contains(&listed.pfn));
                }
                let pfn = piece.pfn.min(buddy);
                let list = pieces.entry((Order(order.0 + 1), list_of(pageblocks.of(pfn))));
                list.or_default().push_back(Piece { pfn, owned: true });
            }
        }
    }
}

/// The largest that fits, or the smallest; the coldest of the first type from that of `first_list` on.
fn next_to_drain(pieces: &mut Pieces, pages: u64, first_list: usize) -> Option<(Order, Piece)> {
    let is_there =
        |order: &Order| pieces.iter().any(|((size, _), list)| size == order && !list.is_empty());
    let orders: Vec<Order> = (0..=9).map(Order).filter(is_there).collect();
    let fitting = orders.iter().rev().find(|order| order.pages().0 <= pages);
    let order = *fitting.or(orders.first())?;
    let first = list_type(first_list).index();
    let types = (0..3).map(|step| Migratetype::ALL[(first + step) % 3]);
    for of in types {
        if let Some(piece) = pieces.get_mut(&(order, of)).and_then(VecDeque::pop_back) {
            return Some((order, piece));
        }
    }
    None
}

impl NaiveAllocator {
    pub(super) fn has_owners(&self) -> bool {
        self.model.owners == PageblockOwners::Cpus
    }

    /// The CPU whose pageset a page goes to.
    pub(super) fn free_target(&self, cpu: CpuId, zone: usize, pfn: Pfn) -> CpuId {
        let owner = self.zones[zone].owners.of(pfn).filter(|_| self.has_owners());
        owner.filter(|&owner| self.cpu_on(owner).is_some()).unwrap_or(cpu)
    }

    /// Refills a pageset of pieces.
    pub(super) fn refill_pieces(
        &mut self,
        zone: usize,
        asked: &Asked,
        list: usize,
        flags: AllocFlags,
    ) {
        let (order, of) = (asked.order, list_type(list));
        let rules = self.model.pcp;
        let Some(cpu) = self.cpus.get_mut(&asked.cpu) else { return };
        let pageset = &mut cpu.pagesets[zone];
        let view = self.zones[zone].view;
        let wanted = pageset.tuning.refill_blocks(&rules, order, pageset.count, view);
        let may_claim = pageset.count.0 + PAGEBLOCK <= pageset.tuning.high.0;
        let pages = wanted << order.0;
        let most = if may_claim { pages.max(PAGEBLOCK) } else { pages } >> order.0;
        let room = self.may_leave(zone, most, order, flags) << order.0;
        let Some(cpu) = self.cpus.get_mut(&asked.cpu) else { return };
        let (pageset, zone) = (&mut cpu.pagesets[zone], &mut self.zones[zone]);
        let (mut got, mut has_block, fit) = (0, false, pages.min(room));
        // Pieces of own pageblocks.
        'fragments: while room > 0 && got < fit {
            let is_ours =
                |(cpu, listed, _): &&(CpuId, Migratetype, Pfn)| (*cpu, *listed) == (asked.cpu, of);
            let Some(&(_, _, first)) = zone.owners.fragments.iter().find(is_ours) else { break };
            zone.owners.unlist(first);
            if is_whole(zone, first) {
                zone.owners.disown(first);
                continue;
            }
            for pfn in (first.0..first.0 + PAGEBLOCK).map(Pfn) {
                let Begins::Free(size, listed) = zone.begins(pfn) else { continue };
                if listed != of {
                    continue;
                }
                if got > 0 && got + size.pages().0 > fit {
                    zone.owners.list(asked.cpu, list_of(self.pageblocks.of(first)), first);
                    break 'fragments;
                }
                zone.take_at(pfn);
                pageset.add(pfn, size, of, &zone.owners);
                zone.owners.recovered += 1;
                got += size.pages().0;
                has_block |= size >= order;
            }
        }
        // A whole pageblock.
        if may_claim
            && got < pages
            && got + PAGEBLOCK <= room
            && let Some(first) = zone.take_pageblock(of)
        {
            zone.owners.disown(first);
            zone.owners.owners.insert(first, asked.cpu);
            zone.owners.claimed += 1;
            pageset.add(first, Order(9), of, &zone.owners);
            got += PAGEBLOCK;
            has_block = true;
        }
        // Smaller ones.
        while got < fit {
            let fits = |size: &Order| *size >= order && size.pages().0 <= fit - got;
            let mut sizes = (0..9).rev().map(Order).filter(fits);
            let Some(pfn) = sizes.find_map(|size| zone.take_first(size, of)) else { break };
            pageset.add(pfn.0, pfn.1, of, &zone.owners);
            got += pfn.1.pages().0;
            has_block = true;
        }
        // As without owners.
        if !has_block && room > 0 {
            let blocks = fit >> order.0;
            let migratetype = asked.migratetype;
            let wanted = Blocks { order, migratetype, flags, blocks };
            for pfn in zone.take(wanted, &mut self.pageblocks) {
                pageset.add(pfn, order, of, &zone.owners);
                got += order.pages().0;
            }
        }
        zone.note_hold(got);
        if got > 0 {
            pageset.refills.0 += 1;
            pageset.refills.1 += got;
            pageset.count = PageCount(pageset.count.0 + got);
        }
    }
}

/// Pieces for a pageset, if CPUs own pageblocks.
pub(super) fn pieces_for(owners: PageblockOwners) -> Option<Pieces> {
    (owners == PageblockOwners::Cpus).then(Pieces::new)
}
