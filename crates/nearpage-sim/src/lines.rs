//! Where each cache line is: who wrote it last, and who still has a copy.
//!
//! ```text
//! line    version (32) | shared (1) | owner + 1 (16)      the owner wrote this version
//! copy    line + 1 (32) | version (32), bytes streamed     one slot of a cache, in two tables
//! ```
//!
//! A write makes a new version, which makes all copies of older ones worthless: so nobody keeps a list of sharers,
//! and a machine may have any number of CPUs. Each CPU has a private cache and each node a shared one, both
//! direct-mapped over lines of metadata. What streams through a node's cache (pages being cleared) is only
//! counted: a copy is gone once as much was streamed since as the cache holds.
//!
//! Not modelled: the order of accesses within a slice of a CPU's run (see [`crate::world`]), prefetching, and
//! misses of address translation.

use nearpage::platform::Access;

use crate::costs::Costs;

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The CPU's own cache.
    Own,
    /// The cache that the CPUs of the node share.
    Node,
    /// Another CPU, which had written it.
    Owner(u16),
    /// Memory of its home node.
    Memory,
}

/// What accesses of a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineCounts {
    /// Served by the CPU's own cache.
    pub own_hits: u64,
    /// Served by the node's cache.
    pub node_hits: u64,
    /// Moved between two CPUs of one node.
    pub moved_near: u64,
    /// Moved between nodes: from another CPU's cache, or from another node's memory.
    pub moved_far: u64,
    /// From the own node's memory.
    pub from_memory: u64,
}

impl LineCounts {
    /// All accesses.
    #[must_use]
    pub fn touched(self) -> u64 {
        self.own_hits + self.node_hits + self.moved_near + self.moved_far + self.from_memory
    }

    /// What happened since an earlier look.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            own_hits: self.own_hits - before.own_hits,
            node_hits: self.node_hits - before.node_hits,
            moved_near: self.moved_near - before.moved_near,
            moved_far: self.moved_far - before.moved_far,
            from_memory: self.from_memory - before.from_memory,
        }
    }
}

const OWNER_MASK: u64 = 0xffff;
const SHARED: u64 = 1 << 16;
const VERSION_SHIFT: u32 = 32;

/// All lines and caches of a machine.
pub struct Lines {
    lines: Vec<u64>,
    private: Caches,
    shared: Caches,
    /// Bytes that streamed through each node's cache.
    streamed: Vec<u64>,
}

/// Caches of one kind, one slot after the other.
struct Caches {
    /// Which version of which line lies in a slot; 0 for none.
    tags: Vec<u64>,
    /// What had streamed through the node's cache when the slot was last used. Where nothing streams, nobody looks.
    streamed: Vec<u64>,
    /// Slots of one cache: a power of two.
    slots: usize,
    /// Streamed bytes that a copy survives.
    bytes: u64,
}

impl Caches {
    fn new(caches: usize, kb: u32, line_bytes: u32) -> Self {
        // More slots than a scenario has lines of metadata in use would only cost memory.
        const SLOTS_MAX: usize = 1 << 12;
        let lines = ((kb as usize) << 10) / line_bytes as usize;
        let slots = lines.next_power_of_two().clamp(1, SLOTS_MAX);
        let all = || vec![0; caches * slots];
        Self { tags: all(), streamed: all(), slots, bytes: u64::from(kb) << 10 }
    }

    #[inline]
    fn slot(&self, cache: usize, line: u32) -> usize {
        // Fibonacci hashing: neighbouring lines and equal offsets in nodes' buffers spread.
        let hash = (line.wrapping_mul(0x9e37_79b9) >> 16) as usize;
        cache * self.slots + (hash & (self.slots - 1))
    }

    /// Whether a slot has that version of that line, and no more than `bytes` streamed since.
    #[inline]
    fn has(&self, slot: usize, tag: u64, streamed: u64, bytes: u64) -> bool {
        self.tags[slot] == tag && (streamed == 0 || streamed - self.streamed[slot] < bytes)
    }

    #[inline]
    fn use_now(&mut self, slot: usize, streamed: u64) {
        if streamed > 0 {
            self.streamed[slot] = streamed;
        }
    }

    #[inline]
    fn put(&mut self, slot: usize, tag: u64, streamed: u64) {
        self.tags[slot] = tag;
        self.use_now(slot, streamed);
    }
}

impl Lines {
    /// So many untouched lines.
    pub fn new(lines: usize, cpus: usize, nodes: usize, costs: &Costs) -> Self {
        let line_bytes = costs.line_bytes.value;
        Self {
            lines: vec![0; lines],
            private: Caches::new(cpus, costs.private_cache_kb.value, line_bytes),
            shared: Caches::new(nodes, costs.node_cache_kb.value, line_bytes),
            streamed: vec![0; nodes],
        }
    }

    /// Notes that bytes went through the cache of a node.
    pub fn stream(&mut self, node: usize, bytes: u64) {
        self.streamed[node] += bytes;
    }

    /// A CPU of a node accesses a line; says where it came from.
    #[inline]
    pub fn access(&mut self, cpu: usize, node: usize, line: u32, access: Access) -> Source {
        let state = self.lines[line as usize];
        let tag = tag_of(line, state);
        let (streamed, bytes) = (self.streamed[node], self.shared.bytes);
        let own = self.private.slot(cpu, line);
        let has_own = self.private.has(own, tag, streamed, bytes);
        let me = cpu as u64 + 1;
        if has_own && (access == Access::Read || state & (OWNER_MASK | SHARED) == me) {
            self.private.use_now(own, streamed);
            return Source::Own;
        }
        let near = self.shared.slot(node, line);
        let source = match state & OWNER_MASK {
            // A write to a line that others share: their copies must go.
            0 if has_own => Source::Memory,
            owner if has_own && owner == me => Source::Memory,
            owner if has_own => Source::Owner(owner as u16 - 1),
            owner if owner != 0 && owner != me && state & SHARED == 0 => {
                Source::Owner(owner as u16 - 1)
            }
            _ if self.shared.has(near, tag, streamed, bytes) => Source::Node,
            _ => Source::Memory,
        };
        let state = match access {
            // The owner's copy is clean from now on: memory has it too.
            Access::Read => state | SHARED,
            Access::Write | Access::Atomic => {
                (state >> VERSION_SHIFT).wrapping_add(1) << VERSION_SHIFT | me
            }
        };
        self.lines[line as usize] = state;
        let tag = tag_of(line, state);
        self.private.put(own, tag, streamed);
        self.shared.put(near, tag, streamed);
        source
    }
}

/// What names a version of a line in a cache. Never 0.
#[inline]
fn tag_of(line: u32, state: u64) -> u64 {
    (u64::from(line) + 1) << 32 | state >> VERSION_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        // CPUs 0 and 1 on node 0, CPU 2 on node 1.
        Lines::new(16, 3, 2, &Costs::flat())
    }

    #[test]
    fn lines_move_to_who_writes_and_are_shared_by_who_reads() {
        let mut lines = lines();
        assert_eq!(lines.access(0, 0, 3, Access::Read), Source::Memory);
        assert_eq!(lines.access(0, 0, 3, Access::Read), Source::Own);
        assert_eq!(lines.access(1, 0, 3, Access::Read), Source::Node);
        assert_eq!(lines.access(2, 1, 3, Access::Write), Source::Memory);
        assert_eq!(lines.access(2, 1, 3, Access::Atomic), Source::Own);
        assert_eq!(lines.access(0, 0, 3, Access::Read), Source::Owner(2));
        assert_eq!(lines.access(1, 0, 3, Access::Read), Source::Node);
        assert_eq!(lines.access(2, 1, 3, Access::Read), Source::Own);
        assert_eq!(lines.access(2, 1, 3, Access::Write), Source::Memory, "others have copies");
    }

    #[test]
    fn what_streams_through_a_cache_takes_copies_out() {
        let mut lines = lines();
        lines.access(0, 0, 5, Access::Read);
        lines.stream(0, 1 << 19);
        assert_eq!(lines.access(0, 0, 5, Access::Read), Source::Own);
        lines.stream(0, 1 << 20);
        assert_eq!(lines.access(0, 0, 5, Access::Read), Source::Memory);
    }
}
