//! Policies: at which node a request begins, and which nodes it may use.
//!
//! ```text
//! policy                begins at                          may use
//! Local                 the node of its CPU                all nodes
//! Preferred             the first node of the set          all nodes
//! PreferredMany         the node of its CPU                the set; if that has nothing, all nodes
//! Bind                  the node of its CPU                the set
//! Interleave            the set's nodes in turn            all nodes
//! WeightedInterleave    as above, each as often as its     all nodes
//!                       weight says
//! ```
//!
//! From the node where it begins a request follows that node's zonelist, so a bound one looks at the nodes of its
//! set nearest first, not in the order of the set. Of a policy's set only nodes count that have memory and are
//! in the cpuset. All of this is data in the caller's memory, borrowed for one request; only a [`Cursor`] changes.
//!
//! Source: `mm/mempolicy.c`, 6.12.

use core::fmt;

use crate::reason::CallSite;
use crate::sync::{AtomicU32, Ordering};
use crate::topology::Topology;
use crate::units::{CpuId, NodeId, NodeIndex};

/// Nodes, as a bit each in the caller's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeSet<'a>(&'a [u64]);

impl<'a> NodeSet<'a> {
    /// Words that a set of nodes of this topology takes.
    pub fn words(topology: &Topology<'_>) -> usize {
        topology.len().div_ceil(64)
    }

    /// The set of the nodes with these ids.
    ///
    /// # Errors
    /// [`NodeSetError`]; `words` holds nothing of use then.
    pub fn new(
        topology: &Topology<'_>,
        ids: impl IntoIterator<Item = NodeId>,
        words: &'a mut [u64],
    ) -> Result<Self, NodeSetError> {
        let (given, needed) = (words.len(), Self::words(topology));
        if given < needed {
            return Err(NodeSetError::TooFewWords { given, needed });
        }
        words.fill(0);
        for id in ids {
            let node = topology.index_of(id).ok_or(NodeSetError::UnknownNode { node: id })?;
            words[node.0 as usize / 64] |= 1 << (node.0 % 64);
        }
        let set = Self(words);
        if set.is_empty() { Err(NodeSetError::Empty) } else { Ok(set) }
    }

    /// The set of the nodes whose bits, by node index, are set.
    #[cfg(test)]
    pub(crate) const fn of_words(words: &'a [u64]) -> Self {
        Self(words)
    }

    /// Whether a node is in the set.
    #[inline]
    pub fn contains(&self, node: NodeIndex) -> bool {
        self.0.get(node.0 as usize / 64).is_some_and(|word| word >> (node.0 % 64) & 1 != 0)
    }

    /// Whether no node is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NodeIndex> + Clone + use<'a> {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let rests = core::iter::successors(Some(word), |rest| Some(rest & (rest - 1)));
            let rests = rests.take(word.count_ones() as usize);
            rests.map(move |rest| NodeIndex((at * 64) as u16 + rest.trailing_zeros() as u16))
        })
    }
}

/// Why there is no such set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeSetError {
    /// No node was named.
    Empty,
    /// The topology has no such node.
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// The words that were given are fewer than [`NodeSet::words`] says.
    TooFewWords {
        /// Words that were given.
        given: usize,
        /// Words that are needed.
        needed: usize,
    },
}

impl fmt::Display for NodeSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the set of nodes is empty: at least one node is needed"),
            Self::UnknownNode { node } => write!(f, "node {node} is not in the topology"),
            Self::TooFewWords { given, needed } => {
                write!(f, "a set of nodes needs {needed} words of memory, and {given} were given")
            }
        }
    }
}

impl core::error::Error for NodeSetError {}

/// Where pages are to come from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Policy<'a> {
    /// Near the CPU that asks.
    Local,
    /// From the first node of the set if it has pages.
    Preferred(NodeSet<'a>),
    /// From the set if it has pages without waiting.
    PreferredMany(NodeSet<'a>),
    /// From the set and from nowhere else, for requests that may use the highest zone kind of the machine (facts
    /// 3.8). Urgent requests that cannot wait, and those that help to free memory, leave the set rather than fail.
    Bind(NodeSet<'a>),
    /// From each node of the set in turn.
    Interleave {
        /// The set.
        nodes: NodeSet<'a>,
        /// Whose turn it is.
        turn: Turn<'a>,
    },
    /// From each node of the set in turn, as often as its weight says.
    WeightedInterleave {
        /// The set.
        nodes: NodeSet<'a>,
        /// By node index; 0, and what is missing, count as 1.
        weights: &'a [u8],
        /// Whose turn it is.
        turn: Turn<'a>,
    },
}

/// Whose turn it is to give.
#[derive(Clone, Copy, Debug)]
pub enum Turn<'a> {
    /// The node's after the one that gave last.
    Next(&'a Cursor),
    /// That of a place in an object, counted in blocks: the same place has the same node.
    At(u64),
}

/// How a request is placed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Placement<'a> {
    /// The policy. Requests with `__GFP_THISNODE` have none.
    pub policy: Policy<'a>,
    /// The cpuset: no other node gives. Urgent requests that cannot wait, and those that help to free memory,
    /// leave it rather than fail.
    pub allowed: Option<NodeSet<'a>>,
    /// The CPU on whose behalf the request is made; without, the one that asks. A request that names a node is
    /// made on behalf of that node.
    pub cpu: Option<CpuId>,
    /// The place in the program that asks, if its pages are to be counted apart.
    pub site: Option<&'a CallSite>,
}

impl<'a> Placement<'a> {
    /// By a policy, in all of the machine, for the CPU that asks.
    pub const fn by(policy: Policy<'a>) -> Self {
        Self { policy, allowed: None, cpu: None, site: None }
    }

    /// The same within a cpuset.
    #[must_use]
    pub const fn within(self, allowed: NodeSet<'a>) -> Self {
        Self { allowed: Some(allowed), ..self }
    }

    /// The same, counted for a place in the program.
    #[must_use]
    pub const fn counted_at(self, site: &'a CallSite) -> Self {
        Self { site: Some(site), ..self }
    }

    /// The same on behalf of a CPU.
    #[must_use]
    pub const fn for_cpu(self, cpu: CpuId) -> Self {
        Self { cpu: Some(cpu), ..self }
    }
}

/// Who gave last, and how often it is still to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    last: NodeIndex,
    left: u8,
}

/// A [`Position`] that threads may share: turns are neither lost nor taken twice.
#[derive(Debug)]
pub struct Cursor(AtomicU32);

impl Cursor {
    /// The first turn is the first node's.
    pub const fn new() -> Self {
        Self(AtomicU32::new(u16::MAX as u32))
    }

    /// Replaces the position by what follows; returns what it was.
    pub(crate) fn advance(&self, next: impl Fn(Position) -> Position) -> Position {
        let step = |word| Some(next(Position::unpack(word)).pack());
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        Position::unpack(before.unwrap_or_else(|word| word))
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

impl Position {
    fn unpack(word: u32) -> Self {
        Self { last: NodeIndex(word as u16), left: (word >> 16) as u8 }
    }

    fn pack(self) -> u32 {
        self.last.0 as u32 | (self.left as u32) << 16
    }
}

/// The nodes that take turns: those of a set that are `usable`, ascending, and round again.
#[derive(Clone, Copy)]
pub struct Round<'a, F> {
    /// The set.
    pub nodes: NodeSet<'a>,
    /// By node index; without, each node has one turn.
    pub weights: Option<&'a [u8]>,
    /// Whether a node takes part.
    pub usable: F,
}

impl<F: Fn(NodeIndex) -> bool> Round<'_, F> {
    fn members(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        self.nodes.iter().filter(|&node| (self.usable)(node))
    }

    fn weight(&self, node: NodeIndex) -> u8 {
        let weights = self.weights.unwrap_or_default();
        weights.get(node.0 as usize).copied().unwrap_or(1).max(1)
    }

    /// Turns in one round; 0 if nobody takes part.
    fn turns(&self) -> u64 {
        self.members().map(|node| self.weight(node) as u64).sum()
    }

    /// Whose turn is next, and how many it has before another's: never more than its weight says now.
    fn next(&self, position: Position) -> Option<Position> {
        let Position { last, left } = position;
        if left > 0 && self.members().any(|node| node == last) {
            return Some(Position { last, left: left.min(self.weight(last)) });
        }
        let node = self.members().find(|&node| node > last).or_else(|| self.members().next())?;
        Some(Position { last: node, left: self.weight(node) })
    }

    /// Whose turn is next.
    pub fn whose(&self, position: Position) -> Option<NodeIndex> {
        Some(self.next(position)?.last)
    }

    /// The position at which the turn with this number, from 0, is next.
    pub fn at(&self, number: u64) -> Option<Position> {
        let mut rest = number.checked_rem(self.turns())?;
        for node in self.members() {
            let weight = self.weight(node) as u64;
            if rest < weight {
                return Some(Position { last: node, left: (weight - rest) as u8 });
            }
            rest -= weight;
        }
        None
    }

    /// The position after that many turns.
    pub fn after(&self, position: Position, turns: u64) -> Position {
        // All rounds but the last are left out. Not the last too: it says who was the last to give, which
        // counts if a node comes between.
        let beyond_one = turns.checked_sub(1).and_then(|turns| turns.checked_rem(self.turns()));
        let mut rest = beyond_one.map_or(0, |turns| turns + 1);
        let mut position = position;
        while rest > 0
            && let Some(next) = self.next(position)
        {
            let taken = rest.min(next.left as u64) as u8;
            position = Position { left: next.left - taken, ..next };
            rest -= taken as u64;
        }
        position
    }

    /// Each node with its turns of the next `turns`, the one whose turn it is first.
    pub fn shares(
        &self,
        position: Position,
        turns: u64,
    ) -> impl Iterator<Item = (NodeIndex, u64)> + '_ {
        let all = self.turns().max(1);
        let (rounds, mut rest) = (turns / all, turns % all);
        let first = self.next(position);
        let start = first.map_or(NodeIndex(0), |first| first.last);
        let nodes = self.members().filter(move |&node| node >= start);
        nodes.chain(self.members().filter(move |&node| node < start)).map(move |node| {
            let weight = self.weight(node) as u64;
            let mut extra = rest.min(weight);
            if let Some(Position { last, left }) = first
                && last == node
            {
                // What it had given of its weight before comes again at the end of the round.
                let (left, at_the_end) =
                    (left as u64, rest.saturating_sub(all - (weight - left as u64)));
                rest -= at_the_end;
                extra = rest.min(left);
                rest -= extra;
                return (node, rounds * weight + extra + at_the_end);
            }
            rest -= extra;
            (node, rounds * weight + extra)
        })
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::collections::BTreeMap;
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::testing::random::Random;
    use crate::topology::{AddressMap, Node};

    fn with_topology<R>(ids: &[u32], run: impl FnOnce(&Topology<'_>) -> R) -> R {
        let node = |&id| Node { id: NodeId(id), memory: &[], cpus: &[], movable_from: None };
        let nodes: Vec<Node<'_>> = ids.iter().map(node).collect();
        let count = ids.len();
        let distance = |at| if at / count == at % count { 10 } else { 20 };
        let distances: Vec<u8> = (0..count * count).map(distance).collect();
        run(&Topology::new(&nodes, &distances, AddressMap::Flat).unwrap())
    }

    #[test]
    fn sets_are_of_nodes_that_exist() {
        with_topology(&[0, 8, 252], |topology| {
            let mut words = [7; 1];
            let mut set = |ids: &[u32]| {
                let ids = ids.iter().copied().map(NodeId);
                NodeSet::new(topology, ids, &mut words).map(|set| set.iter().collect::<Vec<_>>())
            };
            assert_eq!(set(&[252, 0]), Ok(vec![NodeIndex(0), NodeIndex(2)]));
            assert_eq!(set(&[]), Err(NodeSetError::Empty));
            assert_eq!(set(&[8, 9]), Err(NodeSetError::UnknownNode { node: NodeId(9) }));
            let none = NodeSet::new(topology, [NodeId(0)], &mut []);
            assert_eq!(none, Err(NodeSetError::TooFewWords { given: 0, needed: 1 }));
        });
    }

    #[test]
    fn a_set_may_have_more_than_64_nodes() {
        let ids: Vec<u32> = (0..200).map(|at| at * 3).collect();
        with_topology(&ids, |topology| {
            let mut words = vec![0; NodeSet::words(topology)];
            let set = NodeSet::new(topology, ids.iter().copied().map(NodeId), &mut words).unwrap();
            assert!(set.iter().eq((0..200).map(NodeIndex)));
            assert!(set.contains(NodeIndex(199)) && !set.contains(NodeIndex(200)));
            assert!(!set.contains(NodeIndex(u16::MAX)));
        });
    }

    fn one_by_one<F: Fn(NodeIndex) -> bool>(
        round: &Round<'_, F>,
        cursor: &Cursor,
        turns: u64,
    ) -> Vec<NodeIndex> {
        let step = |position| round.after(position, 1);
        (0..turns).filter_map(|_| round.whose(cursor.advance(step))).collect()
    }

    #[test]
    fn nodes_take_turns_by_their_weights() {
        let words = [0b1_1010];
        let weights = [9, 3, 9, 0];
        let plain = Round { nodes: NodeSet(&words), weights: None, usable: |_| true };
        let weighted = Round { weights: Some(&weights), ..plain };
        let numbers =
            |nodes: Vec<NodeIndex>| nodes.into_iter().map(|node| node.0).collect::<Vec<_>>();
        assert_eq!(numbers(one_by_one(&plain, &Cursor::new(), 5)), [1, 3, 4, 1, 3]);
        assert_eq!(numbers(one_by_one(&weighted, &Cursor::new(), 7)), [1, 1, 1, 3, 4, 1, 1]);
        let at = |number| weighted.at(number).map(|position| position.last.0);
        assert_eq!([0, 2, 3, 4, 5, 8].map(at), [1, 1, 3, 4, 1, 3].map(Some));
        let nobody = Round { nodes: NodeSet(&words), weights: None, usable: |_| false };
        assert_eq!((nobody.at(3), nobody.shares(Position::unpack(0), 4).count()), (None, 0));
    }

    #[test]
    fn a_node_has_as_many_turns_at_once_as_one_by_one() {
        for seed in 0..2000 {
            let mut random = Random(seed);
            let words = [random.below(255) + 1];
            let is_weighted = random.below(2) == 0;
            let cursor = Cursor::new();
            for _ in 0..6 {
                // Nodes come and go, and weights change, while turns are taken.
                let weights: Vec<u8> = (0..8).map(|_| random.below(6) as u8).collect();
                let weights = is_weighted.then_some(&weights[..]);
                let gone = NodeIndex(random.below(12) as u16);
                let usable = |node| node != gone;
                let round = Round { nodes: NodeSet(&words), weights, usable };
                let turns = random.below(60);
                let start = cursor.advance(|position| position);
                let expected_end = round.after(start, turns);
                let mut shares: BTreeMap<NodeIndex, u64> = round.shares(start, turns).collect();
                shares.retain(|_, turns| *turns > 0);
                let mut expected = BTreeMap::new();
                for node in one_by_one(&round, &cursor, turns) {
                    *expected.entry(node).or_insert(0) += 1;
                }
                assert_eq!(shares, expected, "seed {seed}");
                assert_eq!(cursor.advance(|position| position), expected_end, "seed {seed}");
            }
        }
    }
}
