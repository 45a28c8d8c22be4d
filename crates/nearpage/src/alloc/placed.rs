//! Requests with a policy or a cpuset. They end in the same scan as all others, which leaves out the zones that are
//! not theirs; a request whose nearest zone is its own takes the fast path before.

use super::allocator::{NodeLists, PageAllocator, REQUEST_KINDS};
use super::near::Near;
use super::request::Request;
use super::wanted::{FirstZone, Scope, Wanted, first_flags};
use crate::error::{AllocError, SetOfNodes};
use crate::gfp::Gfp;
use crate::host::Platform;
use crate::policy::{Cursor, NodeSet, Placement, Policy, Position, Round, Turn};
use crate::units::{NodeIndex, Order, PageCount, Pfn, ZoneKind};
use crate::zone::{Zone, ZoneEvents};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Allocates a block where a policy and a cpuset say.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and [`AllocError::EmptyNodeSet`] and [`AllocError::UnknownCpu`].
    pub fn alloc_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
    ) -> Result<Pfn, AllocError> {
        let pfn = self.alloc_placed(placement, request)?;
        if let Some(site) = placement.site {
            site.note_pages(request.order.pages());
        }
        Ok(pfn)
    }

    fn alloc_placed(&self, placement: &Placement<'_>, request: Request) -> Result<Pfn, AllocError> {
        let wanted = self.placed(placement, request)?;
        match policy_of(placement, request) {
            Policy::PreferredMany(nodes) => self.alloc_preferring(nodes, &wanted),
            Policy::Interleave { nodes, turn } => {
                let chosen = self.turn_of(nodes, None, turn, &wanted)?;
                let pfn = self.alloc_scoped(&Wanted { node: chosen, ..wanted })?;
                self.note_interleave(chosen, pfn);
                Ok(pfn)
            }
            Policy::WeightedInterleave { nodes, weights, turn } => {
                let chosen = self.turn_of(nodes, Some(weights), turn, &wanted)?;
                self.alloc_scoped(&Wanted { node: chosen, ..wanted })
            }
            Policy::Local | Policy::Preferred(_) | Policy::Bind(_) => self.alloc_scoped(&wanted),
        }
    }

    /// Allocates up to `out.len()` single pages where a policy and a cpuset say, and returns how many: as
    /// [`alloc_bulk`](Self::alloc_bulk) does. Of a request that is interleaved, each node gives the pages that it
    /// would have given had they been asked for one by one, in one piece; what a node does not have is left out.
    ///
    /// # Errors
    /// As [`alloc_with`](Self::alloc_with), and [`AllocError::BulkOrder`] for any order but 0.
    pub fn alloc_bulk_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        let got = self.alloc_bulk_placed(placement, request, out)?;
        if let Some(site) = placement.site {
            site.note_pages(PageCount(got as u64));
        }
        Ok(got)
    }

    fn alloc_bulk_placed(
        &self,
        placement: &Placement<'_>,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        let wanted = self.placed(placement, request)?;
        match policy_of(placement, request) {
            Policy::PreferredMany(nodes) => {
                let got = self.bulk_wanted(&preferring(nodes, &wanted), out).unwrap_or(0);
                match self.bulk_wanted(&wanted, &mut out[got..]) {
                    Err(error) if got == 0 => Err(error),
                    more => Ok(got + more.unwrap_or(0)),
                }
            }
            Policy::Interleave { nodes, turn } => {
                self.bulk_in_turns(nodes, None, turn, &wanted, out)
            }
            Policy::WeightedInterleave { nodes, weights, turn } => {
                self.bulk_in_turns(nodes, Some(weights), turn, &wanted, out)
            }
            Policy::Local | Policy::Preferred(_) | Policy::Bind(_) => {
                self.bulk_wanted(&wanted, out)
            }
        }
    }

    /// Checks a request and its placement. The node is the one to begin at, but for policies that take turns.
    pub(super) fn placed<'a>(
        &self,
        placement: &Placement<'a>,
        request: Request,
    ) -> Result<Wanted<'a>, AllocError> {
        let mut wanted = self.wanted(self.on_behalf(placement, request)?)?;
        wanted.scope.site = placement.site;
        let allowed = placement.allowed;
        if allowed.is_some_and(|nodes| self.first_usable(nodes, None).is_none()) {
            return Err(AllocError::EmptyNodeSet { set: SetOfNodes::Allowed });
        }
        wanted.scope.allowed = allowed;
        let nodes = match policy_of(placement, request) {
            Policy::Local => return Ok(wanted),
            Policy::Preferred(nodes) | Policy::PreferredMany(nodes) | Policy::Bind(nodes) => nodes,
            Policy::Interleave { nodes, .. } | Policy::WeightedInterleave { nodes, .. } => nodes,
        };
        let first = self.first_usable(nodes, allowed);
        let first = first.ok_or(AllocError::EmptyNodeSet { set: SetOfNodes::Policy })?;
        wanted.scope.named = Some(nodes);
        match placement.policy {
            Policy::Preferred(_) => wanted.node = first,
            Policy::Bind(_) if self.is_bound(nodes, wanted.kind) => wanted.scope.only = Some(nodes),
            _ => {}
        }
        Ok(wanted)
    }

    fn on_behalf(
        &self,
        placement: &Placement<'_>,
        request: Request,
    ) -> Result<Request, AllocError> {
        let (None, Some(cpu)) = (request.node, placement.cpu) else { return Ok(request) };
        let node = self.topology.node_of_cpu(cpu).ok_or(AllocError::UnknownCpu { cpu })?;
        Ok(request.on(self.node_id(node)))
    }

    /// The first node of a set that has memory and is in the cpuset.
    fn first_usable(&self, nodes: NodeSet<'_>, allowed: Option<NodeSet<'_>>) -> Option<NodeIndex> {
        nodes.iter().find(|&node| self.is_usable(node, allowed))
    }

    fn is_usable(&self, node: NodeIndex, allowed: Option<NodeSet<'_>>) -> bool {
        let own = |lists: &NodeLists<'m>| lists.zonelists[REQUEST_KINDS - 1].read().own();
        let is_node = (node.0 as usize) < self.nodes.len();
        let has_memory = is_node && !own(&self.lists[node.0 as usize]).is_empty();
        has_memory && allowed.is_none_or(|nodes| nodes.contains(node))
    }

    /// Whether a set binds requests for a kind: those that must take lower zones are not bound, since few nodes
    /// have such memory. `mm/mempolicy.c: apply_policy_zone`, 6.12.
    fn is_bound(&self, nodes: NodeSet<'_>, kind: ZoneKind) -> bool {
        let kernel_zones = || {
            let zones = self.zones.iter().filter(|zone| zone.managed().0 > 0);
            zones.filter(|zone| zone.kind() < ZoneKind::Movable)
        };
        let highest = kernel_zones().map(|zone| zone.kind()).max();
        let has_kernel_zone = kernel_zones().any(|zone| nodes.contains(zone.node()));
        kind >= if has_kernel_zone { highest.unwrap_or(kind) } else { ZoneKind::Movable }
    }

    /// A block for a request whose scope is known.
    pub(super) fn alloc_scoped(&self, wanted: &Wanted<'_>) -> Result<Pfn, AllocError> {
        let first = self.zonelist(wanted).next();
        let request = self.plain_request(wanted);
        let is_near = first.is_some_and(|first| self.is_nearest(first, wanted));
        let mut first_zone = FirstZone::Untried;
        if is_near {
            if let Some(pfn) = self.alloc_fast(request) {
                return Ok(pfn);
            }
            first_zone = self.first_zone_after_fast_path(request);
        }
        let found = first.and_then(|first| {
            let flags = first_flags(wanted.gfp, first);
            self.get_page(wanted, flags, first_zone).ok()
        });
        found.map_or_else(|| self.alloc_slow(wanted), Ok)
    }

    /// What the fast path is asked for.
    fn plain_request(&self, wanted: &Wanted<'_>) -> Request {
        Request { order: wanted.order, gfp: wanted.gfp, node: Some(self.node_id(wanted.node)) }
    }

    /// Whether the fast path looks at this zone for a request.
    fn is_nearest(&self, zone: &Zone<'m, P>, wanted: &Wanted<'_>) -> bool {
        let request = self.plain_request(wanted);
        let is_it = |near: Near<'m, P>| near.pageset.zone().index() == zone.index();
        self.near(request).is_some_and(is_it)
    }

    /// From the set if that has a block without waiting, else from anywhere.
    fn alloc_preferring(&self, nodes: NodeSet<'_>, wanted: &Wanted<'_>) -> Result<Pfn, AllocError> {
        self.alloc_scoped(&preferring(nodes, wanted)).or_else(|_| self.alloc_scoped(wanted))
    }

    /// The node whose turn it is.
    fn turn_of(
        &self,
        nodes: NodeSet<'_>,
        weights: Option<&[u8]>,
        turn: Turn<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<NodeIndex, AllocError> {
        let round = self.round(nodes, weights, wanted);
        let position = take_turns(&round, turn, 1);
        let chosen = position.and_then(|position| round.whose(position));
        chosen.ok_or(AllocError::EmptyNodeSet { set: SetOfNodes::Policy })
    }

    fn round<'r>(
        &'r self,
        nodes: NodeSet<'r>,
        weights: Option<&'r [u8]>,
        wanted: &Wanted<'r>,
    ) -> Round<'r, impl Fn(NodeIndex) -> bool + use<'r, 'm, P>> {
        let allowed = wanted.scope.allowed;
        Round { nodes, weights, usable: move |node| self.is_usable(node, allowed) }
    }

    fn bulk_in_turns(
        &self,
        nodes: NodeSet<'_>,
        weights: Option<&[u8]>,
        turn: Turn<'_>,
        wanted: &Wanted<'_>,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        if wanted.order != Order(0) {
            return Err(AllocError::BulkOrder { order: wanted.order });
        }
        let round = self.round(nodes, weights, wanted);
        let Some(start) = take_turns(&round, turn, out.len() as u64) else {
            return Err(AllocError::EmptyNodeSet { set: SetOfNodes::Policy });
        };
        let (mut got, mut refused) = (0, None);
        for (node, pages) in round.shares(start, out.len() as u64) {
            let part = &mut out[got..][..pages as usize];
            match self.bulk_wanted(&Wanted { node, ..*wanted }, part) {
                Ok(pages) => got += pages,
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if got == 0 => Err(error),
            _ => Ok(got),
        }
    }

    /// Counts a block that came from the node whose turn it was. `mm/mempolicy.c: alloc_pages_mpol`, 6.12; only
    /// plain turns count, and only single requests.
    fn note_interleave(&self, chosen: NodeIndex, pfn: Pfn) {
        let Some(frame) = self.map.get(pfn) else { return };
        let zone = self.zones[frame.word().zone().0 as usize];
        if zone.node() == chosen {
            ZoneEvents::add(&zone.events().interleave, 1);
        }
    }
}

/// The policy in force: a request for one node has none.
fn policy_of<'a>(placement: &Placement<'a>, request: Request) -> Policy<'a> {
    if request.gfp.contains(Gfp::THISNODE) { Policy::Local } else { placement.policy }
}

/// The first attempt of `PreferredMany`: from the set, without waiting, and without more work than looking.
fn preferring<'a>(nodes: NodeSet<'a>, wanted: &Wanted<'a>) -> Wanted<'a> {
    let gfp = wanted.gfp.difference(Gfp::DIRECT_RECLAIM.union(Gfp::NOFAIL));
    let gfp = gfp.union(Gfp::NOWARN).union(Gfp::NORETRY);
    let scope = Scope { only: Some(nodes), ..wanted.scope };
    Wanted { gfp, scope, ..*wanted }
}

/// Takes turns; returns the position before.
fn take_turns<F: Fn(NodeIndex) -> bool>(
    round: &Round<'_, F>,
    turn: Turn<'_>,
    turns: u64,
) -> Option<Position> {
    match turn {
        Turn::At(number) => round.at(number),
        Turn::Next(cursor) => {
            Some(Cursor::advance(cursor, |position| round.after(position, turns)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use std_alloc::string::ToString;

    use super::*;
    use crate::alloc::NodeAccess;
    use crate::reason::{CallSite, Reason};
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::units::{CpuId, NodeId};
    use crate::vmstat::ZoneStats;

    type Allocator<'m> = PageAllocator<'m, PlainPlatform>;

    const PAGE: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
    const ZERO: NodeIndex = NodeIndex(0);
    const ONE: NodeIndex = NodeIndex(1);
    const TWO: NodeIndex = NodeIndex(2);

    /// Three nodes, 1 nearer to 0 than 2 is; the test runs on CPU 0 of node 0.
    fn on_three_nodes<R>(run: impl FnOnce(&Allocator<'_>) -> R) -> R {
        let machine = TestMachine::new().node(0, 8192, &[0]).node(1, 8192, &[1]).node(2, 8192, &[]);
        machine.distances(&[10, 20, 30, 20, 10, 15, 30, 15, 10]).run(run)
    }

    /// Nodes of `count` pages.
    fn nodes_of(allocator: &Allocator<'_>, placement: &Placement<'_>, count: usize) -> Vec<u16> {
        let node = |pfn| allocator.topology().node_of_pfn(pfn).unwrap().0;
        (0..count).map(|_| node(allocator.alloc_with(placement, PAGE).unwrap())).collect()
    }

    fn numa(stats: ZoneStats) -> [u64; 4] {
        [stats.numa_hit, stats.numa_local, stats.numa_other, stats.numa_interleave]
    }

    #[test]
    fn counters_are_those_of_the_kernel() {
        // Facts 14: touched pages from node 0 under each policy.
        let of_all = |policy: &dyn Fn(&Allocator<'_>) -> Vec<u16>| {
            on_three_nodes(|allocator| {
                policy(allocator);
                [ZERO, ONE, TWO].map(|node| numa(allocator.node_stats(node)))
            })
        };
        let (one, all, last_two) = ([0b010], [0b111], [0b110]);
        let by = |policy| {
            move |allocator: &Allocator<'_>| nodes_of(allocator, &Placement::by(policy), 300)
        };
        let none = [0; 4];
        assert_eq!(of_all(&by(Policy::Local)), [[300, 300, 0, 0], none, none]);
        let on_one = [none, [300, 0, 300, 0], none];
        assert_eq!(of_all(&by(Policy::Bind(NodeSet::of_words(&one)))), on_one);
        assert_eq!(of_all(&by(Policy::Preferred(NodeSet::of_words(&one)))), on_one);
        assert_eq!(of_all(&by(Policy::PreferredMany(NodeSet::of_words(&last_two)))), on_one);
        let (cursor, nodes) = (Cursor::new(), NodeSet::of_words(&all));
        let interleave = Policy::Interleave { nodes, turn: Turn::Next(&cursor) };
        let thirds = of_all(&by(interleave));
        assert_eq!(thirds, [[100, 100, 0, 100], [100, 0, 100, 100], [100, 0, 100, 100]]);
        let cursor = Cursor::new();
        let turn = Turn::Next(&cursor);
        let weighted = Policy::WeightedInterleave { nodes, weights: &[3, 2, 1], turn };
        let shares = of_all(&by(weighted));
        assert_eq!(shares, [[150, 150, 0, 0], [100, 0, 100, 0], [50, 0, 50, 0]]);
    }

    #[test]
    fn a_bound_request_follows_distances_and_ends_with_its_set() {
        on_three_nodes(|allocator| {
            let set = [0b110];
            let bind = Placement::by(Policy::Bind(NodeSet::of_words(&set)));
            let mut nodes = Vec::new();
            let error = loop {
                match allocator.alloc_with(&bind, PAGE) {
                    Ok(pfn) => nodes.push(allocator.topology().node_of_pfn(pfn).unwrap()),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, AllocError::OutOfMemory { zones: 2, .. }), "{error}");
            let low = nodes.iter().position(|&node| node == TWO).unwrap();
            assert!(nodes[..low].iter().all(|&node| node == ONE) && low > 7000);
            let none = allocator.node_stats(ZERO);
            assert_eq!((none.pgalloc, none.cached_pages), (PageCount(0), PageCount(0)));
            let fallbacks = allocator.fallbacks(ZERO, TWO);
            assert_eq!(fallbacks.pages(Reason::Policy), fallbacks.total());
            let of_one = nodes.iter().filter(|&&node| node == ONE).count() as u64;
            assert_eq!(allocator.fallbacks(ZERO, ONE).pages(Reason::Policy), PageCount(of_one));
            // Urgent and unable to wait, or helping: better elsewhere than not at all.
            let urgent = Request { gfp: Gfp::ATOMIC, ..PAGE };
            assert!(allocator.alloc_with(&bind, urgent).is_ok());
        });
    }

    #[test]
    fn a_cpuset_leaves_out_nodes_under_every_policy() {
        on_three_nodes(|allocator| {
            let (all, last_two, only_zero) = ([0b111], [0b110], [0b001]);
            let nodes = NodeSet::of_words(&all);
            let allowed = NodeSet::of_words(&last_two);
            let cursor = Cursor::new();
            let interleave = Policy::Interleave { nodes, turn: Turn::Next(&cursor) };
            let local = Placement::by(Policy::Local).within(allowed);
            assert_eq!(nodes_of(allocator, &local, 2), [1, 1]);
            assert_eq!(allocator.fallbacks(ZERO, ONE).pages(Reason::Cpuset), PageCount(2));
            assert_eq!(
                nodes_of(allocator, &Placement::by(interleave).within(allowed), 3),
                [1, 2, 1]
            );
            let nowhere =
                Placement::by(Policy::Bind(NodeSet::of_words(&only_zero))).within(allowed);
            let refused = allocator.alloc_with(&nowhere, PAGE);
            assert_eq!(refused, Err(AllocError::EmptyNodeSet { set: SetOfNodes::Policy }));
        });
    }

    #[test]
    fn a_call_site_counts_its_own_pages() {
        on_three_nodes(|allocator| {
            let (set, here, there) = ([0b110], CallSite::new(), CallSite::new());
            let bind = Placement::by(Policy::Bind(NodeSet::of_words(&set)));
            let local = Placement::by(Policy::Local).counted_at(&here);
            nodes_of(allocator, &bind.counted_at(&there), 3);
            nodes_of(allocator, &bind, 4);
            nodes_of(allocator, &local, 5);
            let large = Request { order: Order(4), ..PAGE };
            allocator.alloc_with(&bind.counted_at(&there), large).unwrap();
            allocator.alloc_bulk_with(&bind.counted_at(&there), PAGE, &mut [Pfn(0); 7]).unwrap();
            assert_eq!((here.pages(), here.fallbacks().total()), (PageCount(5), PageCount(0)));
            assert_eq!(there.pages(), PageCount(3 + 16 + 7));
            assert_eq!(there.fallbacks().pages(Reason::Policy), there.pages());
            assert_eq!(allocator.fallbacks(ZERO, ONE).total(), PageCount(4 + 3 + 16 + 7));
        });
    }

    #[test]
    fn a_request_may_be_made_for_another_cpu() {
        on_three_nodes(|allocator| {
            let for_one = Placement::by(Policy::Local).for_cpu(CpuId(1));
            assert_eq!(nodes_of(allocator, &for_one, 1), [1]);
            let nobody = Placement::by(Policy::Local).for_cpu(CpuId(9));
            let refused = AllocError::UnknownCpu { cpu: CpuId(9) };
            assert_eq!(allocator.alloc_with(&nobody, PAGE), Err(refused));
        });
    }

    #[test]
    fn a_private_node_gives_only_to_who_names_it() {
        on_three_nodes(|allocator| {
            allocator.set_access(NodeId(2), NodeAccess::Private).unwrap();
            while allocator.alloc(PAGE).is_ok() {}
            let none = allocator.node_stats(TWO);
            assert_eq!((none.pgalloc, none.cached_pages), (PageCount(0), PageCount(0)));
            let two = [0b100];
            let named = NodeSet::of_words(&two);
            for policy in
                [Policy::Bind(named), Policy::Preferred(named), Policy::PreferredMany(named)]
            {
                assert_eq!(nodes_of(allocator, &Placement::by(policy), 1), [2]);
            }
            let own = Request { gfp: PAGE.gfp.union(Gfp::THISNODE), ..PAGE }.on(NodeId(2));
            let node = |pfn| allocator.topology().node_of_pfn(pfn);
            assert_eq!(node(allocator.alloc(own).unwrap()), Some(TWO));
            assert!(allocator.alloc(PAGE.on(NodeId(2))).is_err(), "that prefers it, and no more");
            allocator.set_access(NodeId(2), NodeAccess::General).unwrap();
            assert_eq!(node(allocator.alloc(PAGE).unwrap()), Some(TWO));
        });
    }

    #[test]
    fn where_all_nodes_are_private_the_error_says_so() {
        on_three_nodes(|allocator| {
            for node in [0, 1, 2].map(NodeId) {
                allocator.set_access(node, NodeAccess::Private).unwrap();
            }
            let error = allocator.alloc(PAGE).unwrap_err();
            assert!(matches!(error, AllocError::OutOfMemory { zones: 0, .. }), "{error:?}");
            assert!(error.to_string().contains("private node that the request does not name"));
        });
    }

    #[test]
    fn what_a_private_node_kept_from_those_near_it_is_counted() {
        on_three_nodes(|allocator| {
            allocator.set_access(NodeId(0), NodeAccess::Private).unwrap();
            let pfn = allocator.alloc(PAGE).unwrap();
            assert_eq!(allocator.topology().node_of_pfn(pfn), Some(ONE));
            let fallbacks = allocator.fallbacks(ZERO, ONE);
            assert_eq!(fallbacks.pages(Reason::PrivateNode), PageCount(1));
        });
    }

    #[test]
    fn bulk_is_interleaved_as_if_asked_for_one_by_one() {
        on_three_nodes(|allocator| {
            let (all, cursor) = ([0b111], Cursor::new());
            let nodes = NodeSet::of_words(&all);
            let interleave = Placement::by(Policy::Interleave { nodes, turn: Turn::Next(&cursor) });
            let mut out = [Pfn(0); 100];
            assert_eq!(allocator.alloc_bulk_with(&interleave, PAGE, &mut out), Ok(100));
            let hits = [ZERO, ONE, TWO].map(|node| allocator.node_stats(node));
            assert_eq!(hits.map(|stats| stats.numa_hit), [34, 33, 33]);
            assert_eq!(
                hits.map(|stats| stats.numa_interleave),
                [0; 3],
                "only single requests count"
            );
            assert_eq!(nodes_of(allocator, &interleave, 2), [1, 2]);
        });
    }

    #[test]
    fn a_cpuset_does_not_poison_hints() {
        on_three_nodes(|allocator| {
            let set = [0b100];
            let bound = Placement::by(Policy::Local).within(NodeSet::of_words(&set));
            while allocator.alloc(Request { gfp: PAGE.gfp.union(Gfp::THISNODE), ..PAGE }).is_ok() {}
            for _ in 0..3 {
                assert_eq!(nodes_of(allocator, &bound, 1), [2]);
                let pfn = allocator.alloc(PAGE).unwrap();
                assert_eq!(allocator.topology().node_of_pfn(pfn), Some(ONE));
            }
            assert_eq!(allocator.scan_counts(ZERO).zones_skipped, 0);
        });
    }
}
