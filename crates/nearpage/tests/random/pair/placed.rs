//! Requests with policies and cpusets, and nodes that become private.

use std::collections::BTreeSet;

use nearpage::testing::generate::any_size;
use nearpage::testing::naive_allocator::{NaiveMode, NaivePlacement};
use nearpage::{
    CallSite, CpuId, Cursor, Fallbacks, NodeAccess, NodeId, NodeIndex, NodeSet, PageCount, Pfn,
    Placement, Policy, Reason, Request, Turn,
};

use super::{BULK_MAX, Pair};
use crate::compare::{Difference, same};

/// A placement as both sides know it.
pub struct Prepared {
    naive: NaivePlacement,
    cursor: Cursor,
    site: CallSite,
    /// What the site must have counted.
    counted: Fallbacks,
    pages: PageCount,
}

impl Pair<'_, '_> {
    /// A few placements, of which the run uses one after the other.
    pub(super) fn prepare_placements(&mut self) {
        let prepared = |naive| {
            let (cursor, site, counted, pages) = Default::default();
            Prepared { naive, cursor, site, counted, pages }
        };
        self.placements = (0..6).map(|_| prepared(self.any_placement())).collect();
    }

    fn any_placement(&mut self) -> NaivePlacement {
        use NaiveMode::{Bind, Interleave, Local, Preferred, PreferredMany, WeightedInterleave};
        let modes = [Local, Preferred, PreferredMany, Bind, Bind, Interleave, WeightedInterleave];
        let count = self.node_ids().len() as u64;
        NaivePlacement {
            mode: self.random.one_of(&modes),
            nodes: self.any_nodes(),
            weights: (0..self.random.below(count + 1))
                .map(|_| self.random.below(5) as u8)
                .collect(),
            at: self.one_in(4).then(|| self.random.below(1000)),
            last: None,
            allowed: self.one_in(3).then(|| self.any_nodes()),
            cpu: self.one_in(4).then(|| self.any_cpu()),
        }
    }

    fn any_cpu(&mut self) -> CpuId {
        let is_known = !self.cpus.is_empty() && !self.one_in(20);
        if is_known { self.random.one_of(&self.cpus) } else { CpuId(7777) }
    }

    /// A set with at least one node.
    fn any_nodes(&mut self) -> BTreeSet<NodeIndex> {
        let count = self.node_ids().len() as u64;
        let some = 1 + self.random.below(count);
        (0..some).map(|_| NodeIndex(self.random.below(count) as u16)).collect()
    }

    /// Calls `each` with a placement for both sides.
    fn with_placement<R>(
        &mut self,
        each: impl FnOnce(&mut Self, &Placement<'_>, &mut NaivePlacement) -> Result<R, Difference>,
    ) -> Result<R, Difference> {
        let at = self.random.below(self.placements.len() as u64) as usize;
        let mut prepared = self.placements.swap_remove(at);
        if let Some(place) = &mut prepared.naive.at {
            *place = self.random.below(1000);
        }
        let topology = self.allocator.topology();
        let ids = |nodes: &BTreeSet<NodeIndex>| -> Vec<NodeId> {
            nodes.iter().map(|&node| topology.node(node).id).collect()
        };
        let words = NodeSet::words(topology);
        let (mut of_policy, mut of_cpuset) = (vec![u64::MAX; words], vec![u64::MAX; words]);
        let nodes = NodeSet::new(topology, ids(&prepared.naive.nodes), &mut of_policy);
        let nodes = nodes.expect("a set of nodes");
        let allowed = prepared.naive.allowed.as_ref().map(|nodes| {
            NodeSet::new(topology, ids(nodes), &mut of_cpuset).expect("a set of nodes")
        });
        let turn = prepared.naive.at.map_or(Turn::Next(&prepared.cursor), Turn::At);
        let weights = &prepared.naive.weights.clone();
        let policy = match prepared.naive.mode {
            NaiveMode::Local => Policy::Local,
            NaiveMode::Preferred => Policy::Preferred(nodes),
            NaiveMode::PreferredMany => Policy::PreferredMany(nodes),
            NaiveMode::Bind => Policy::Bind(nodes),
            NaiveMode::Interleave => Policy::Interleave { nodes, turn },
            NaiveMode::WeightedInterleave => Policy::WeightedInterleave { nodes, weights, turn },
        };
        let mut placement = Placement::by(policy).counted_at(&prepared.site);
        (placement.allowed, placement.cpu) = (allowed, prepared.naive.cpu);
        let (before, pages) = (self.naive.all_fallbacks, self.tally.pages);
        let result = each(self, &placement, &mut prepared.naive)?;
        for reason in Reason::ALL {
            let more = PageCount(self.naive.all_fallbacks.pages(reason).0 - before.pages(reason).0);
            prepared.counted.record(reason, more);
            self.moved.by_policy += more.0;
        }
        prepared.pages.0 += self.tally.pages - pages;
        same("reasons of a call site", prepared.site.fallbacks(), prepared.counted)?;
        same("pages of a call site", prepared.site.pages(), prepared.pages)?;
        self.placements.push(prepared);
        Ok(result)
    }

    pub(super) fn alloc_placed(&mut self, request: Request) -> Result<bool, Difference> {
        self.with_placement(|pair, placement, naive| {
            pair.narrate(format_args!("alloc_with({naive:?}, {request:?})"));
            let got = pair.allocator.alloc_with(placement, request);
            same("answer", got, pair.naive.alloc_with(pair.cpu, naive, request))?;
            pair.tally.count("requests with a policy");
            pair.allocated("alloc_with", request, got);
            Ok(got.is_ok())
        })
    }

    pub(super) fn alloc_bulk_placed(&mut self, request: Request) -> Result<(), Difference> {
        let count = if self.one_in(50) { 0 } else { any_size(&mut self.random, 1, BULK_MAX) };
        self.with_placement(|pair, placement, naive| {
            pair.narrate(format_args!("alloc_bulk_with({naive:?}, {request:?}, {count})"));
            let mut out = vec![Pfn(0); count as usize];
            let got = pair.allocator.alloc_bulk_with(placement, request, &mut out);
            let got = got.map(|count| out[..count].to_vec());
            let expected = pair.naive.alloc_bulk_with(pair.cpu, naive, request, count as usize);
            same("answer", &got, &expected)?;
            pair.tally.count("bulk requests with a policy");
            pair.allocated_bulk("alloc_bulk_with", got);
            Ok(())
        })
    }

    /// A node becomes private, or general again.
    pub(super) fn change_access(&mut self) -> Result<(), Difference> {
        let is_known = !self.one_in(10);
        let node = if is_known { self.random.one_of(&self.node_ids()) } else { NodeId(9999) };
        let access = if self.one_in(3) { NodeAccess::Private } else { NodeAccess::General };
        self.narrate(format_args!("set_access({node}, {access:?})"));
        same(
            "answer",
            self.allocator.set_access(node, access),
            self.naive.set_access(node, access),
        )?;
        self.done("set_access", 0);
        match access {
            NodeAccess::Private => self.moved.private.insert(node),
            NodeAccess::General => self.moved.private.remove(&node),
        };
        Ok(())
    }
}
