//! `zonelist`: what the zonelist cache costs and saves on machines of many nodes, nearly all of them full.
//!
//! The nodes are emulated, all CPUs are on the first. `near`: the first node alone has room, so that no request
//! comes to the cache. `far`: the last node alone has room, and each request scans all others, or what hints
//! leave of them. A page is allocated and freed, again and again, so that beside the scan there is a pop and a
//! push only.

use nearpage::rules::CacheRule;
use nearpage::stats::ScanCounts;
use nearpage::{Gfp, Model, NodeId, Order, Request};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryBuilder, MemoryError};
use serde::Serialize;

use super::pairs;
use crate::addresses::SECTION_BYTES;
use crate::field::Context;
use crate::rows::{Key, Work};
use crate::source::{Blocks, GFP};
use crate::step::Step;
use crate::threads::Cpus;

/// The number of nodes of a large machine of today, and of the largest that the cache was made for.
const NODES: [u32; 2] = [28, 256];
const RULES: [(&str, CacheRule); 3] =
    [("off", CacheRule::Off), ("original", CacheRule::Original), ("keyed", CacheRule::Keyed)];
const BYTES_PER_NODE: u64 = 8 << 20;
/// Of all memories, for each rule and both places; a node has whole sections.
pub const ADDRESS_BYTES: u64 =
    (NODES[0] + NODES[1]) as u64 * 2 * RULES.len() as u64 * SECTION_BYTES;
/// Distances to all nodes but the last, and to that one.
const FAR: u8 = 20;
const FARTHEST: u8 = 40;

/// A memory whose nodes are full but one.
pub struct Filled {
    key: Key,
    memory: Memory,
    before: (ScanCounts, u64),
}

/// What the scans of one memory did, the first round, which does not count for times, included.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Scans {
    /// What was done.
    pub bench: Work,
    /// The rule.
    pub allocator: &'static str,
    /// Nodes.
    pub n: usize,
    /// Pages that were allocated.
    pub pages: u64,
    /// Zones behind the first that were asked.
    pub zones_visited: u64,
    /// Zones that were not, because of a hint.
    pub zones_skipped: u64,
    /// Scans that were repeated without hints.
    pub second_passes: u64,
    /// Times that hints were forgotten for their age.
    pub zaps: u64,
}

/// Makes the memories, each beginning as `begin` says, and fills them.
///
/// # Errors
///
/// [`MemoryError`].
pub fn fill(begin: impl Fn() -> MemoryBuilder, cpus: &Cpus) -> Result<Vec<Filled>, MemoryError> {
    let mut filled = Vec::new();
    for nodes in NODES {
        for (work, with_room) in [(Work::Near, 0), (Work::Far, nodes - 1)] {
            for (allocator, rule) in RULES {
                let key = Key { work, allocator, threads: 1, n: nodes as usize };
                let memory = memory(begin(), cpus, nodes, rule)?;
                (0..nodes)
                    .filter(|&node| node != with_room)
                    .for_each(|node| fill_node(&memory, node));
                let before = (scans(&memory), pages(&memory));
                filled.push(Filled { key, memory, before });
            }
        }
    }
    Ok(filled)
}

fn memory(
    builder: MemoryBuilder,
    cpus: &Cpus,
    nodes: u32,
    rule: CacheRule,
) -> Result<Memory, MemoryError> {
    let cpus_of = |id| if id == 0 { cpus.ids().to_vec() } else { Vec::new() };
    let node = |id| HostNode { id: NodeId(id), cpus: cpus_of(id), has_memory: true };
    let distance = |at: u32| match (at / nodes, at % nodes) {
        (from, to) if from == to => 10,
        (from, to) if from.max(to) == nodes - 1 => FARTHEST,
        _ => FAR,
    };
    let machine = HostMachine {
        nodes: (0..nodes).map(node).collect(),
        distances: (0..nodes * nodes).map(distance).collect(),
        emulated: true,
    };
    let model = Model::NEARPAGE.with(|changed| changed.zonelist_cache = rule);
    builder.machine(machine).bytes_per_node(BYTES_PER_NODE).model(model).build()
}

/// Takes all that a node gives. It stays taken until the memory goes.
fn fill_node(memory: &Memory, node: u32) {
    let request = Request::new(Order(0), GFP.union(Gfp::THISNODE)).on(NodeId(node));
    while memory.alloc_frames(request).is_ok() {}
}

fn scans(memory: &Memory) -> ScanCounts {
    memory.scan_counts(NodeId(0)).expect("the machine has a node 0")
}

fn pages(memory: &Memory) -> u64 {
    let text = memory.vmstat();
    let counts = text.lines().filter_map(|line| line.strip_prefix("pgalloc_")?.split_once(' '));
    counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// A pair on each memory.
pub fn steps<'a>(context: Context<'a>, filled: &'a [Filled]) -> Vec<Step<'a>> {
    let step =
        |filled: &'a Filled| pairs::step(context, filled.key, Blocks::<_, 0>(&filled.memory));
    filled.iter().map(step).collect()
}

impl Filled {
    /// What the scans did since it was filled.
    pub fn scans(&self) -> Scans {
        let (now, (then, pages_then)) = (scans(&self.memory), self.before);
        Scans {
            bench: self.key.work,
            allocator: self.key.allocator,
            n: self.key.n,
            pages: pages(&self.memory) - pages_then,
            zones_visited: now.zones_visited - then.zones_visited,
            zones_skipped: now.zones_skipped - then.zones_skipped,
            second_passes: now.second_passes - then.second_passes,
            zaps: now.zaps - then.zaps,
        }
    }

    /// Frees that were refused.
    pub fn misuses(&self) -> u64 {
        self.memory.misuses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_pages_come_from_the_last_node_past_all_others() {
        let cpus = Cpus::allowed().unwrap();
        for (_, rule) in RULES {
            let memory = memory(Memory::builder(), &cpus, 5, rule).unwrap();
            (0..4).for_each(|node| fill_node(&memory, node));
            for _ in 0..2 {
                let pfn = memory.alloc_frames(Request::new(Order(0), GFP)).unwrap();
                assert_eq!(memory.node_of(pfn), Some(NodeId(4)));
            }
            let counts = scans(&memory);
            let expected = if rule == CacheRule::Off { (8, 0) } else { (5, 3) };
            assert_eq!((counts.zones_visited, counts.zones_skipped), expected, "{rule:?}");
        }
    }
}
