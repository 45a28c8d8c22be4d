//! What a request may use, and what it must leave.

use std::collections::BTreeSet;

use nearpage::platform::Platform;
use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck, watermark_fast};
use nearpage::stats::Zone;
use nearpage::{
    CpuId, Gfp, LimitOf, Migratetype, NodeId, NodeIndex, Order, PageAllocator, PageCount, Request,
};

use crate::naive::{Wrong, holds};
use crate::run::Planted;

/// Whether a request may take what is kept from others.
pub fn is_urgent(gfp: Gfp) -> bool {
    let has = |flags| gfp.contains(flags);
    !has(Gfp::DIRECT_RECLAIM) || has(Gfp::HIGH) || has(Gfp::MEMALLOC) || has(Gfp::NOFAIL)
}

/// Whether a request that finds nothing has pagesets drained before it fails.
fn drains(gfp: Gfp) -> bool {
    gfp.contains(Gfp::DIRECT_RECLAIM) || !gfp.contains(Gfp::NORETRY)
}

/// The node of a request from a CPU.
fn node_of<P: Platform>(
    allocator: &PageAllocator<'_, P>,
    cpu: CpuId,
    request: Request,
) -> Option<NodeIndex> {
    let topology = allocator.topology();
    match request.node {
        Some(id) => topology.index_of(id),
        None => Some(topology.node_of_cpu(cpu).unwrap_or(allocator.zones()[0].node())),
    }
}

/// The zones that a request from a CPU may use.
pub fn usable<'m, P: Platform>(
    allocator: &PageAllocator<'m, P>,
    private: &BTreeSet<NodeId>,
    cpu: CpuId,
    request: Request,
) -> Vec<&'m Zone<'m, P>> {
    let topology = allocator.topology();
    let (Some(kind), Some(node)) = (request.gfp.zone_kind(), node_of(allocator, cpu, request))
    else {
        return vec![];
    };
    let is_usable = |zone: &&Zone<'m, P>| {
        let is_reached = match request.gfp.contains(Gfp::THISNODE) {
            true => zone.node() == node,
            false => !private.contains(&topology.node(zone.node()).id),
        };
        is_reached && zone.kind() <= kind && zone.managed() > PageCount(0)
    };
    allocator.zones().iter().copied().filter(is_usable).collect()
}

/// What there was before a request.
pub struct Before {
    /// By zone: pages that must be left free for others.
    least_free: Vec<u64>,
    /// By node, and of all: pages that may be out.
    most_out: Vec<(LimitOf, u64)>,
}

fn spare<P: Platform>(zone: &Zone<'_, P>) -> u64 {
    zone.free_pages().0.saturating_sub(zone.kept_back().0)
}

fn limited<P: Platform>(allocator: &PageAllocator<'_, P>) -> impl Iterator<Item = LimitOf> {
    let nodes = allocator.topology().nodes().iter().map(|node| LimitOf::Node(node.id));
    nodes.chain([LimitOf::Allocator])
}

impl Before {
    /// Looks before a request, of single pages in bulk or of a block.
    pub fn new<P: Platform>(
        allocator: &PageAllocator<'_, P>,
        request: Request,
        is_bulk: bool,
        planted: Planted,
    ) -> Option<Self> {
        if is_urgent(request.gfp) {
            return None;
        }
        let kind = request.gfp.zone_kind()?;
        let mut least_free = vec![];
        for zone in allocator.zones() {
            // Many at once: the reserve is that against the node's zone that the request prefers.
            let of_node = allocator.zones().iter().filter(|other| other.node() == zone.node());
            let populated = of_node.filter(|other| other.managed() > PageCount(0));
            let preferred = populated.map(|other| other.kind()).filter(|&other| other <= kind);
            let against = if is_bulk { preferred.max().unwrap_or(kind) } else { kind };
            let more = u64::from(matches!(planted, Planted::HigherReserve));
            let floor = zone.marks().min.0 + zone.reserve(against).0 + more;
            least_free.push(spare(zone).min(floor));
        }
        let most_out = limited(allocator).map(|of| {
            let out = allocator.in_use(of).expect("a known node").0;
            let hard = hard_limit(allocator, of);
            let less = u64::from(matches!(planted, Planted::LowerLimit));
            (of, hard.map_or(u64::MAX, |hard| hard.saturating_sub(less).max(out)))
        });
        Some(Self { least_free, most_out: most_out.collect() })
    }

    /// Nothing was taken that must be left.
    pub fn check<P: Platform>(&self, allocator: &PageAllocator<'_, P>) -> Result<(), Wrong> {
        for (zone, &least) in allocator.zones().iter().zip(&self.least_free) {
            let (number, left) = (zone.index().0, spare(zone));
            holds(left >= least, || {
                let of = (zone.kind(), zone.managed(), zone.marks());
                format!("zone {number} has {left} free, less than {least}: {of:?}")
            })?;
        }
        for &(of, most) in &self.most_out {
            let out = allocator.in_use(of).expect("a known node").0;
            holds(out <= most, || format!("{out} pages of {of} are out, more than {most}"))?;
        }
        Ok(())
    }
}

fn hard_limit<P: Platform>(allocator: &PageAllocator<'_, P>, of: LimitOf) -> Option<u64> {
    let hard = allocator.limits(of).expect("a known node").hard_bytes;
    hard.map(|bytes| bytes >> allocator.page_shift())
}

/// A request found nothing: whether no zone had it, after a drain.
pub fn refusal_is_right<P: Platform>(
    allocator: &PageAllocator<'_, P>,
    zones: &[&Zone<'_, P>],
    request: Request,
) -> Result<(), Wrong> {
    let (order, gfp) = (request.order, request.gfp);
    let gives_up_early = gfp.contains(Gfp::NORETRY) || !gfp.contains(Gfp::DIRECT_RECLAIM);
    if order > Order(0) && gives_up_early {
        return Ok(());
    }
    if drains(gfp) {
        allocator.drain_all().expect("nobody else drains");
    }
    for zone in zones {
        if passes(zone, request)
            && has_block(zone, order)
            && is_within_limits(allocator, zone, order)
        {
            let (number, free) = (zone.index().0, zone.free_pages());
            return Err(format!("refused, although zone {number} has {free} free pages"));
        }
    }
    Ok(())
}

fn passes<P: Platform>(zone: &Zone<'_, P>, request: Request) -> bool {
    let flags = AllocFlags::under_pressure(request.gfp, request.order);
    let Some(kind) = request.gfp.zone_kind() else { return false };
    let check = WatermarkCheck {
        free: zone.free_pages(),
        free_high_atomic: zone.kept_back(),
        mark: zone.marks().min,
        boost: zone.boost(),
        reserve: zone.reserve(kind),
        order: request.order,
        flags,
    };
    let may_ignore_marks = flags.contains(AllocFlags::NO_WATERMARKS);
    // What is kept back is for those who cannot wait.
    let is_there = spare(zone) >= request.order.pages().0;
    (may_ignore_marks || watermark_fast(&check, |_, _| true)) && is_there
}

/// Whether a zone says that it has a free block of an ordinary type.
fn has_block<P: Platform>(zone: &Zone<'_, P>, order: Order) -> bool {
    if order == Order(0) {
        return true;
    }
    let orders = (order.0..=Order::MAX.0).map(Order);
    let ordinary = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
    { orders }.any(|order| ordinary.iter().any(|&of| zone.free_blocks(order, of) > 0))
}

fn is_within_limits<P: Platform>(
    allocator: &PageAllocator<'_, P>,
    zone: &Zone<'_, P>,
    order: Order,
) -> bool {
    let node = LimitOf::Node(allocator.topology().node(zone.node()).id);
    [node, LimitOf::Allocator].into_iter().all(|of| {
        let out = allocator.in_use(of).expect("a known node").0;
        hard_limit(allocator, of).is_none_or(|hard| out + order.pages().0 <= hard)
    })
}
