//! A start state whose Normal zones are divided into instances, as no recorded kernel has them.
//!
//! Each instance gets its share of what the recording counts for the whole zone: managed pages, free blocks of each
//! order and type, and pageblocks. What a CPU's pageset held lies in the instance at which the CPU begins.

use nearpage::{Node, NodeBuf, PageCount, Pfn, PfnRange, Topology, TopologyBuf, ZoneInstances};

use super::{Start, StartPageset, StartZone};
use crate::zones::ZoneMap;

impl Start {
    /// The same with Normal zones divided so; `None` if no zone is large enough for two instances.
    pub(crate) fn divided(&self, instances: ZoneInstances) -> Option<Start> {
        let nodes: Vec<Node<'_>> = self.topology.nodes.iter().map(NodeBuf::as_node).collect();
        let TopologyBuf { distances, address_map, .. } = &self.topology;
        let topology = Topology::new(&nodes, distances, *address_map).ok()?;
        let topology = topology.with_instances(instances);
        let most = topology.most_instances();
        if most < 2 {
            return None;
        }
        let (mut zones, mut parts) = (Vec::new(), Vec::new());
        for (index, zone) in self.zones.iter().enumerate() {
            let node = topology.index_of(zone.node)?;
            let spans: Vec<PfnRange> = topology.zone_spans(node, zone.kind).collect();
            let pages = spans.iter().map(|&span| {
                topology.ranges_in(node, span).map(|range| range.pages().0).sum::<u64>()
            });
            let shares = Shares(pages.collect());
            let count = spans.len();
            for (at, span) in spans.iter().enumerate() {
                let start = if at == 0 { Pfn(0) } else { span.start };
                let end = spans.get(at + 1).map_or(Pfn(u64::MAX), |next| next.start);
                let own = self.map.ranges(index);
                let own = own.map(|range| range.intersection(PfnRange { start, end }));
                parts.extend(
                    own.filter(|range| !range.is_empty()).map(|range| (range, zones.len())),
                );
                let is_home = |pageset: &StartPageset| pageset.cpu.0 as usize % most % count == at;
                zones.push(part(zone, &shares, at, is_home));
            }
        }
        Some(Start { zones, map: ZoneMap::of_parts(parts), state: None, ..self.clone() })
    }
}

/// An instance of a zone.
fn part(
    zone: &StartZone,
    shares: &Shares,
    at: usize,
    is_home: impl Fn(&StartPageset) -> bool,
) -> StartZone {
    let mut pagesets = zone.pagesets.clone();
    for pageset in pagesets.iter_mut().filter(|pageset| !is_home(pageset)) {
        pageset.count = PageCount(0);
    }
    StartZone {
        managed: PageCount(shares.of(zone.managed.0, at)),
        free: zone.free.map(|of_type| of_type.map(|blocks| shares.of(blocks, at))),
        pageblocks: zone.pageblocks.map(|blocks| shares.of(blocks, at)),
        pagesets,
        ..zone.clone()
    }
}

/// Pages of each instance.
struct Shares(Vec<u64>);

impl Shares {
    /// The share of one instance in a count. All shares add up to it.
    fn of(&self, count: u64, at: usize) -> u64 {
        let all: u64 = self.0.iter().sum();
        let up_to = |at: usize| {
            let pages: u64 = self.0[..at].iter().sum();
            (u128::from(count) * u128::from(pages) / u128::from(all.max(1))) as u64
        };
        up_to(at + 1) - up_to(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let shares = Shares(vec![1024, 1024, 3072, 7]);
        for count in [0, 1, 2, 5, 1000, u64::MAX] {
            let parts = (0..4).map(|at| u128::from(shares.of(count, at)));
            assert_eq!(parts.sum::<u128>(), u128::from(count));
        }
        assert_eq!([0, 1, 2, 3].map(|at| shares.of(5127, at)), [1024, 1024, 3072, 7]);
    }
}
