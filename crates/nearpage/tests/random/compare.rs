//! What an allocator and its model have to agree on.

use std::fmt::{Debug, Display};

use nearpage::rules::pagesets::LISTS;
use nearpage::stats::{Pageset, Zone};
use nearpage::testing::naive_allocator::{NaiveAllocator, NaivePageset, NaiveZone};
use nearpage::{
    BulkFreeError, CpuId, FrameState, FreeError, LimitOf, Migratetype, NodeId, Order,
    PageAllocator, Pfn, ZoneKind,
};
use std::ops::ControlFlow;

use crate::host::Host;

/// A difference, in words.
pub type Difference = String;

/// Both sides are equal, or a difference that names `what`.
pub fn same<T: PartialEq + Debug>(
    what: impl Display,
    got: T,
    expected: T,
) -> Result<(), Difference> {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what}: {got:?}, expected {expected:?}"))
}

/// Both refuse a free for the same reason. The state of a frame that is no head of a free or held block
/// depends on what it was before, and the head of a block that nobody ever touched is blank.
pub fn same_refusal(got: FreeError, expected: FreeError) -> Result<(), Difference> {
    let plain = |error: FreeError| match error {
        FreeError::NotAllocated { pfn, order, .. } => {
            FreeError::NotAllocated { pfn, order, state: FrameState::Blank }
        }
        other => other,
    };
    same("refused", plain(got), plain(expected))?;
    match (got, expected) {
        (
            FreeError::NotAllocated { state, .. },
            FreeError::NotAllocated { state: expected, .. },
        ) => {
            let agrees = match expected {
                FrameState::Free => matches!(state, FrameState::Free | FrameState::Blank),
                _ => matches!(state, FrameState::Cached | FrameState::Owned | FrameState::Blank),
            };
            if agrees { Ok(()) } else { same("state of the frame", state, expected) }
        }
        _ => Ok(()),
    }
}

/// Both bulk frees went alike.
pub fn same_bulk_free(
    got: Result<(), BulkFreeError>,
    expected: Result<(), BulkFreeError>,
) -> Result<(), Difference> {
    match (got, expected) {
        (Err(got), Err(expected)) => {
            same_refusal(got.first, expected.first)?;
            let numbers = |error: BulkFreeError| (error.freed, error.refused);
            same("pages freed and refused", numbers(got), numbers(expected))
        }
        (got, expected) => same("free_bulk", got, expected),
    }
}

/// All counters of zones and pagesets.
pub fn same_counters(
    allocator: &PageAllocator<'_, Host>,
    naive: &NaiveAllocator,
    cpus: &[CpuId],
) -> Result<(), Difference> {
    same("calls to the host", allocator.platform().calls.get(), naive.calls)?;
    same("what came and went", allocator.hotplug_counts(), naive.plugged)?;
    same("zones", allocator.zones().len(), naive.zones().len())?;
    for (zone, model) in allocator.zones().iter().zip(naive.zones()) {
        let id = allocator.topology().node(zone.node()).id;
        same_zone(zone, model).map_err(|it| format!("{}: {it}", zone_name(id, zone.kind())))?;
    }
    same_limits(allocator, naive)?;
    for node in allocator.topology().indexes() {
        let id = allocator.topology().node(node).id;
        let what = format_args!("scans for node {id}");
        same(what, allocator.scan_counts(node), naive.scan_counts(node))?;
        for to in allocator.topology().indexes() {
            let what = format_args!("fallbacks from node {id} to node {}", to.0);
            same(what, allocator.fallbacks(node, to), naive.fallbacks(node, to))?;
        }
    }
    for &cpu in cpus {
        let pagesets = allocator.pagesets(cpu).unwrap_or_default();
        same("pagesets of a CPU", pagesets.len(), naive.pagesets(cpu).len())?;
        for (zone, (pageset, model)) in pagesets.iter().zip(naive.pagesets(cpu)).enumerate() {
            same_pageset(pageset, model).map_err(|it| format!("CPU {cpu}, zone {zone}: {it}"))?;
        }
    }
    Ok(())
}

/// What is in use, by the zones and by the ledgers.
fn same_limits(
    allocator: &PageAllocator<'_, Host>,
    naive: &NaiveAllocator,
) -> Result<(), Difference> {
    let nodes = allocator.topology().indexes().map(Some);
    for node in nodes.chain([None]) {
        let id = |node| LimitOf::Node(allocator.topology().node(node).id);
        let of = node.map_or(LimitOf::Allocator, id);
        same(format_args!("pages in use of {of}"), allocator.in_use(of), Ok(naive.out(node)))?;
        if let Some(counted) = allocator.counted_in_use(of) {
            same(format_args!("pages in the ledger of {of}"), counted, naive.out(node))?;
        }
    }
    Ok(())
}

fn zone_name(node: NodeId, kind: ZoneKind) -> String {
    format!("node {node}, zone {}", kind.name())
}

fn same_zone(zone: &Zone<'_, Host>, model: &NaiveZone) -> Result<(), Difference> {
    let reserve = ZoneKind::ALL.map(|kind| zone.reserve(kind));
    same("node and kind", (zone.node(), zone.kind()), (model.node, model.kind))?;
    same("free pages", zone.free_pages(), model.free)?;
    same("managed pages", zone.managed(), model.managed)?;
    same("pages gone", zone.gone(), model.gone)?;
    same("marks", zone.marks(), model.marks())?;
    same("boost", zone.boost(), model.boost)?;
    same("pages kept back", zone.kept_back(), model.kept_back())?;
    same("pages reserved", zone.reserved_pages(), model.reserved)?;
    same("reserve", reserve, model.reserve)?;
    same("pressure", zone.view(), model.view)?;
    same("headroom", zone.headroom_orders(), model.headroom_orders())?;
    same("lock holds", zone.holds(), model.holds)?;
    same("events", zone.counts(), model.events)
}

fn same_pageset(pageset: &Pageset<'_, Host>, model: &NaivePageset) -> Result<(), Difference> {
    let counts = pageset.counts();
    same("pages", pageset.count(), model.count)?;
    same("tuning", pageset.tuning(), model.tuning)?;
    same("refills", (counts.refills, counts.refilled_pages.0), model.refills)?;
    same("drains", (counts.drains, counts.drained_pages.0), model.drains)
}

/// All lists, in order, and all pageblocks.
pub fn same_lists(
    allocator: &PageAllocator<'_, Host>,
    naive: &NaiveAllocator,
    cpus: &[CpuId],
) -> Result<(), Difference> {
    for (zone, model) in allocator.zones().iter().zip(naive.zones()) {
        let id = allocator.topology().node(zone.node()).id;
        same_free_lists(zone, model)
            .and_then(|()| same_pageblocks(allocator, zone, naive))
            .map_err(|it| format!("{}: {it}", zone_name(id, zone.kind())))?;
    }
    for &cpu in cpus {
        let pagesets = allocator.pagesets(cpu).unwrap_or_default();
        for (zone, (pageset, model)) in pagesets.iter().zip(naive.pagesets(cpu)).enumerate() {
            for list in 0..LISTS {
                same_pageset_list(pageset, model, list)
                    .map_err(|it| format!("CPU {cpu}, zone {zone}, pageset list {list}: {it}"))?;
            }
        }
    }
    Ok(())
}

fn same_pageset_list(
    pageset: &Pageset<'_, Host>,
    model: &NaivePageset,
    list: usize,
) -> Result<(), Difference> {
    let expected = model.blocks(list);
    let (mut blocks, mut result) = (0, Ok(()));
    pageset.for_each_block(list, |pfn| {
        let place = same_at(blocks, Some(pfn), expected.get(blocks).copied());
        blocks += 1;
        if result.is_ok() {
            result = place;
        }
    });
    result?;
    same("blocks", blocks, expected.len())
}

fn same_free_lists(zone: &Zone<'_, Host>, model: &NaiveZone) -> Result<(), Difference> {
    for order in (0..=Order::MAX.0).map(Order) {
        for migratetype in Migratetype::ALL {
            let mut got = Vec::new();
            zone.for_each_free_block(order, migratetype, |pfn| {
                got.push(pfn);
                ControlFlow::Continue(())
            });
            let mut got = got.into_iter();
            let mut expected = model.list(order, migratetype);
            for place in 0.. {
                let block = got.next();
                let name = migratetype.name();
                same_at(place, block, expected.next())
                    .map_err(|it| format!("free list of order {order}, {name}: {it}"))?;
                if block.is_none() {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn same_at(place: usize, got: Option<Pfn>, expected: Option<Pfn>) -> Result<(), Difference> {
    same(format_args!("block {place}"), got, expected)
}

fn same_pageblocks(
    allocator: &PageAllocator<'_, Host>,
    zone: &Zone<'_, Host>,
    naive: &NaiveAllocator,
) -> Result<(), Difference> {
    for range in allocator.topology().ranges_in(zone.node(), zone.span()) {
        for pageblock in range.start.0 / 512..range.end.0.div_ceil(512) {
            let pfn = Pfn((pageblock * 512).max(range.start.0));
            let what = format_args!("type of the pageblock of frame {pfn}");
            same(what, zone.pageblock_type(pfn), naive.pageblocks().of(pfn))?;
        }
    }
    Ok(())
}

/// The walker finds nothing wrong, and as many pages as the model has.
pub fn checked(
    allocator: &PageAllocator<'_, Host>,
    naive: &NaiveAllocator,
) -> Result<(), Difference> {
    let got = allocator.check().map_err(|error| format!("check: {error}"))?;
    let free = naive.zones().iter().map(|zone| zone.free.0).sum();
    let free = nearpage::PageCount(free);
    same("free pages, by the walker", got.free, free)?;
    same("cached pages, by the walker", got.cached, naive.cached())?;
    same("allocated pages, by the walker", got.allocated, naive.held())
}
