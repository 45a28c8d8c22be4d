//! Policies and cpusets: sets of nodes, and turns that are taken one by one.

use std_alloc::collections::BTreeMap;
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::NaiveAllocator;
use super::asked::{Asked, NaiveScope, Nodes};
use crate::alloc::{NodeAccess, Reason, Request};
use crate::error::{AllocError, SetOfNodes, UnknownNode};
use crate::gfp::Gfp;
use crate::units::{CpuId, NodeId, NodeIndex, Order, Pfn, ZoneKind};

/// Where pages are to come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are those of crate::policy::Policy")]
pub enum NaiveMode {
    Local,
    Preferred,
    PreferredMany,
    Bind,
    Interleave,
    WeightedInterleave,
}

/// How a request is placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NaivePlacement {
    /// The policy.
    pub mode: NaiveMode,
    /// Its set.
    pub nodes: Nodes,
    /// By node index.
    pub weights: Vec<u8>,
    /// Whose turn it is by number; otherwise it is the next one's.
    pub at: Option<u64>,
    /// Who gave last, and how often it is still to give.
    pub last: Option<(NodeIndex, u64)>,
    /// The cpuset.
    pub allowed: Option<Nodes>,
    /// On whose behalf.
    pub cpu: Option<CpuId>,
}

impl NaivePlacement {
    fn weight(&self, node: NodeIndex) -> u64 {
        match self.mode {
            NaiveMode::WeightedInterleave => {
                self.weights.get(node.0 as usize).map_or(1, |&weight| u64::from(weight.max(1)))
            }
            _ => 1,
        }
    }

    /// One turn among `members`, ascending and not empty.
    fn turn(&mut self, members: &[NodeIndex]) -> NodeIndex {
        if let Some(number) = self.at {
            let each = |&node: &NodeIndex| vec![node; self.weight(node) as usize];
            let round: Vec<NodeIndex> = members.iter().flat_map(each).collect();
            return round[(number % round.len() as u64) as usize];
        }
        let (node, left) = match self.last {
            Some((node, left)) if left > 0 && members.contains(&node) => (node, left),
            last => {
                let after = |node: &&NodeIndex| last.is_none_or(|(last, _)| **node > last);
                let node = *members.iter().find(after).unwrap_or(&members[0]);
                (node, self.weight(node))
            }
        };
        self.last = Some((node, left - 1));
        node
    }

    /// Pages for each member of so many turns, the one whose turn it is first, then ascending and round.
    fn turns(&mut self, members: &[NodeIndex], turns: u64) -> Vec<(NodeIndex, u64)> {
        let first = self.clone().turn(members);
        let at = self.at;
        let mut pages = BTreeMap::new();
        for turn in 0..turns {
            if let Some(number) = at {
                self.at = Some(number + turn);
            }
            *pages.entry(self.turn(members)).or_insert(0) += 1;
        }
        self.at = at;
        let (before, after): (Vec<_>, Vec<_>) =
            pages.into_iter().partition(|(node, _)| *node < first);
        after.into_iter().chain(before).collect()
    }
}

impl NaiveAllocator {
    /// Says who may use a node.
    pub fn set_access(&mut self, node: NodeId, access: NodeAccess) -> Result<(), UnknownNode> {
        let found = self.nodes.iter_mut().find(|known| known.id == node);
        found.ok_or(UnknownNode { node })?.is_private = access == NodeAccess::Private;
        self.build_zonelists();
        Ok(())
    }

    /// Allocates a block on a CPU where a policy and a cpuset say.
    pub fn alloc_with(
        &mut self,
        cpu: CpuId,
        placement: &mut NaivePlacement,
        request: Request,
    ) -> Result<Pfn, AllocError> {
        let asked = self.placed(cpu, placement, request)?;
        match mode_of(placement, request) {
            NaiveMode::Local | NaiveMode::Preferred | NaiveMode::Bind => self.alloc_asked(&asked),
            NaiveMode::PreferredMany => {
                let first = self.preferring(placement, &asked);
                self.alloc_asked(&first).or_else(|_| self.alloc_asked(&asked))
            }
            mode => {
                let members = self.members(placement);
                let chosen = placement.turn(&members);
                let pfn = self.alloc_asked(&self.beginning_at(chosen, &asked))?;
                let zone = self.zone_of(pfn).expect("a page has a zone");
                if mode == NaiveMode::Interleave && self.zones[zone].node == chosen {
                    self.zones[zone].events.interleave += 1;
                }
                Ok(pfn)
            }
        }
    }

    /// Allocates up to `count` single pages on a CPU where a policy and a cpuset say.
    pub fn alloc_bulk_with(
        &mut self,
        cpu: CpuId,
        placement: &mut NaivePlacement,
        request: Request,
        count: usize,
    ) -> Result<Vec<Pfn>, AllocError> {
        let asked = self.placed(cpu, placement, request)?;
        if request.order != Order(0) {
            return Err(AllocError::BulkOrder { order: request.order });
        }
        match mode_of(placement, request) {
            NaiveMode::Local | NaiveMode::Preferred | NaiveMode::Bind => {
                self.bulk_asked(&asked, count)
            }
            NaiveMode::PreferredMany => {
                let first = self.preferring(placement, &asked);
                let mut pages = self.bulk_asked(&first, count).unwrap_or_default();
                match self.bulk_asked(&asked, count - pages.len()) {
                    Ok(more) => pages.extend(more),
                    Err(error) if pages.is_empty() => return Err(error),
                    Err(_) => {}
                }
                Ok(pages)
            }
            _ => {
                let members = self.members(placement);
                let (mut pages, mut refused) = (vec![], None);
                for (node, share) in placement.turns(&members, count as u64) {
                    match self.bulk_asked(&self.beginning_at(node, &asked), share as usize) {
                        Ok(more) => pages.extend(more),
                        Err(error) => refused = Some(error),
                    }
                }
                match refused {
                    Some(error) if pages.is_empty() => Err(error),
                    _ => Ok(pages),
                }
            }
        }
    }

    fn placed(
        &self,
        cpu: CpuId,
        placement: &NaivePlacement,
        request: Request,
    ) -> Result<Asked, AllocError> {
        let mut request = request;
        if request.node.is_none()
            && let Some(cpu) = placement.cpu
        {
            let node = self.cpus.get(&cpu).ok_or(AllocError::UnknownCpu { cpu })?.node;
            request = request.on(self.nodes[node.0 as usize].id);
        }
        let asked = self.asked(cpu, request)?;
        let empty = |set| Err(AllocError::EmptyNodeSet { set });
        let has_memory = |node: &NodeIndex| !self.nodes[node.0 as usize].own.is_empty();
        if placement.allowed.as_ref().is_some_and(|nodes| !nodes.iter().any(has_memory)) {
            return empty(SetOfNodes::Allowed);
        }
        let mut scope = NaiveScope { allowed: placement.allowed.clone(), ..NaiveScope::default() };
        let mode = mode_of(placement, request);
        if mode == NaiveMode::Local {
            return Ok(self.rescoped(&asked, scope));
        }
        let members = self.members(placement);
        let Some(&first) = members.first() else { return empty(SetOfNodes::Policy) };
        scope.named = placement.nodes.clone();
        if mode == NaiveMode::Bind && asked.kind >= self.policy_kind(&placement.nodes) {
            scope.only = Some(placement.nodes.clone());
        }
        let asked = self.rescoped(&asked, scope);
        Ok(if mode == NaiveMode::Preferred { self.beginning_at(first, &asked) } else { asked })
    }

    /// The nodes of the policy that have memory and are in the cpuset.
    fn members(&self, placement: &NaivePlacement) -> Vec<NodeIndex> {
        let is_allowed =
            |node: &NodeIndex| placement.allowed.as_ref().is_none_or(|nodes| nodes.contains(node));
        let has_memory = |node: &NodeIndex| !self.nodes[node.0 as usize].own.is_empty();
        placement.nodes.iter().copied().filter(has_memory).filter(is_allowed).collect()
    }

    /// From which kind on a set binds.
    fn policy_kind(&self, nodes: &Nodes) -> ZoneKind {
        let zones = || self.zones.iter().filter(|zone| zone.managed.0 > 0);
        let kernel = || zones().filter(|zone| zone.kind <= ZoneKind::Normal);
        let is_movable_only = !kernel().any(|zone| nodes.contains(&zone.node));
        if is_movable_only {
            return ZoneKind::Movable;
        }
        kernel().map(|zone| zone.kind).max().expect("there is one")
    }

    fn preferring(&self, placement: &NaivePlacement, asked: &Asked) -> Asked {
        let gfp = asked.gfp.difference(Gfp::DIRECT_RECLAIM).difference(Gfp::NOFAIL);
        let gfp = gfp.union(Gfp::NOWARN).union(Gfp::NORETRY);
        let only = Some(placement.nodes.clone());
        let asked = self.rescoped(asked, NaiveScope { only, ..asked.scope.clone() });
        Asked { gfp, ..asked }
    }

    fn beginning_at(&self, node: NodeIndex, asked: &Asked) -> Asked {
        let asked = Asked { node, ..asked.clone() };
        self.rescoped(&asked, asked.scope.clone())
    }

    /// The request with other nodes that it may use.
    pub(super) fn rescoped(&self, asked: &Asked, scope: NaiveScope) -> Asked {
        let lists = &self.nodes[asked.node.0 as usize];
        let is_private = |zone: &usize| self.nodes[self.zones[*zone].node.0 as usize].is_private;
        let is_own_only = asked.gfp.contains(Gfp::THISNODE);
        let is_usable = |zone: &usize| self.zones[*zone].kind <= asked.kind;
        let (private, general): (Vec<usize>, Vec<usize>) = self
            .turned(&lists.fallback, asked.cpu)
            .into_iter()
            .filter(is_usable)
            .partition(is_private);
        let begins_private = lists.is_private && scope.named.contains(&asked.node);
        let walk: Vec<usize> = if is_own_only {
            self.turned(&lists.own, asked.cpu).into_iter().filter(is_usable).collect()
        } else if scope.named.is_empty() {
            general.clone()
        } else if begins_private {
            private.iter().chain(&general).copied().collect()
        } else {
            general.iter().chain(&private).copied().collect()
        };
        let verdict = |zone: usize| {
            let counts_as_private = is_private(&zone) && !is_own_only;
            (zone, scope.excludes(self.zones[zone].node, counts_as_private))
        };
        let walk: Vec<(usize, Option<Reason>)> = walk.into_iter().map(verdict).collect();
        let zonelist =
            walk.iter().filter(|(_, out)| out.is_none()).map(|(zone, _)| *zone).collect();
        let head = general.first().or(private.first()).copied();
        let near = general.first().copied().filter(|_| !lists.is_private);
        Asked { zonelist, walk, head, near, scope, ..asked.clone() }
    }
}

fn mode_of(placement: &NaivePlacement, request: Request) -> NaiveMode {
    if request.gfp.contains(Gfp::THISNODE) { NaiveMode::Local } else { placement.mode }
}
