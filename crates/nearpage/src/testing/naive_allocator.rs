//! The whole allocator as one would explain it, by Linux's rules and those of its RFCs: vectors, double-ended queues and
//! maps, one thread. Of nearpage's own rules it knows nothing: which page is handed out is no promise of theirs.
//!
//! It predicts every answer of a [`PageAllocator`](crate::alloc::PageAllocator) on a storage that is
//! [exact](crate::pcp::Storage::EXACT): the page that is handed out, the error with its numbers, how
//! many pages a drain moves, and all counters and lists after each call. It knows no fast path, no frame
//! words, no laziness and no big steps: each block moves alone.
//!
//! What has no state is shared, because it has tests of its own: watermark formulas and checks, sizes of
//! pagesets, the decisions of the tuning, the rules of GFP flags. Everything else is written a second
//! time, from the facts.
//!
//! | here | follows |
//! |---|---|
//! | `zone` | buddy, migratetypes, fallback (facts 1.6, 6) |
//! | `machine` | what follows from sizes and settings, zonelists by scores (facts 2, 3.2, 7.2) |
//! | `alloc` | scan (facts 4.2) |
//! | `slow` | what happens when that finds nothing (facts 4.4) |
//! | `hints` | the zonelist cache (facts 5.1, and nearpage's own) |
//! | `policy` | policies, cpusets, private nodes (facts 3.7, 3.8) |
//! | `limits` | hard and soft limits (nearpage's own) |
//! | `free` | frees, drains, decay (facts 7.4 to 7.7) |
//! | `owners`, `pieces` | pageblocks that CPUs own (facts 15.3) |
//! | `bulk` | bulk allocation and bulk free (facts 8) |
//! | `hotplug` | memory and CPUs that go and come (facts 13) |

mod alloc;
mod asked;
mod bulk;
mod free;
mod hints;
mod hotplug;
mod limits;
mod machine;
mod owners;
mod pieces;
mod policy;
mod refusals;
mod slow;
mod zone;

use std_alloc::collections::{BTreeMap, VecDeque};
use std_alloc::vec::Vec;

use crate::alloc::{Fallbacks, HotplugCounts, ScanCounts};
use crate::host::{CompactEffort, Compacted, NodeReclaimed};
use crate::model::Model;
use crate::pcp::tuning::Tuning;
use crate::units::{CpuId, NodeId, NodeIndex, PageCount, Pfn, PfnRange, ZoneKind};
use crate::watermark::Settings;

use refusals::Refusals;

pub use owners::Owners;
pub use pieces::Pieces;
pub use policy::{NaiveMode, NaivePlacement};
pub use zone::{Begins, NaiveZone, Pageblocks};

/// Calls to the host so far, and what it has to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCalls {
    /// Times that background reclaim of a node was woken.
    pub wakes: u64,
    /// Times that direct reclaim was asked for.
    pub reclaims: u64,
    /// Times that the last resort was asked for.
    pub out_of_memory: u64,
    /// Refused frees that it was told of.
    pub misuses: u64,
    /// How often direct reclaim will still say that it made progress.
    pub reclaims_that_help: u64,
    /// How often the last resort will still say that it freed something.
    pub kills_that_help: u64,
    /// Times that reclaim of one node was asked for.
    pub node_reclaims: u64,
    /// Times that compaction was asked for, by [`CompactEffort`].
    pub compactions: [u64; 3],
    /// What reclaim says that it could free.
    pub reclaimable: PageCount,
    /// Where the answers of compaction and of reclaim of one node begin.
    pub answers_from: u64,
}

impl HostCalls {
    /// Counts a call for compaction; the answers go round.
    pub fn compact(&mut self, effort: CompactEffort) -> Compacted {
        use Compacted::{Deferred, Failed, Skipped, Success};
        self.compactions[effort as usize] += 1;
        let at = self.answers_from + self.compactions.iter().sum::<u64>();
        [Skipped, Failed, Success, Success, Deferred][(at % 5) as usize]
    }

    /// Counts a call for reclaim of one node; the answers go round.
    pub fn node_reclaim(&mut self) -> NodeReclaimed {
        use NodeReclaimed::{Enough, NotTried, Nothing, Some};
        self.node_reclaims += 1;
        [NotTried, Nothing, Some, Enough][((self.answers_from + self.node_reclaims) % 4) as usize]
    }
}

/// A node: its zonelists, as zone numbers.
#[derive(Debug)]
struct NaiveNode {
    id: NodeId,
    /// Whether only requests that name it reach it.
    is_private: bool,
    cpus: Vec<CpuId>,
    /// FALLBACK.
    fallback: Vec<usize>,
    /// NOFALLBACK.
    own: Vec<usize>,
    /// Zones that were full lately, by where CPUs begin and the highest kind of a request.
    full: BTreeMap<(usize, ZoneKind), Refusals>,
    scans: ScanCounts,
    /// Pages that came from a node although this one was preferred.
    fallbacks: BTreeMap<NodeIndex, Fallbacks>,
}

/// The pages of one zone that one CPU caches.
#[derive(Debug)]
pub struct NaivePageset {
    /// Whose it is.
    pub cpu: CpuId,
    /// By list: hottest first.
    pub lists: Vec<VecDeque<Pfn>>,
    /// What is in place of the lists, if CPUs own pageblocks.
    pub pieces: Option<Pieces>,
    /// Pages on all lists.
    pub count: PageCount,
    /// The state of the tuning.
    pub tuning: Tuning,
    /// Refills, and pages that they brought.
    pub refills: (u64, u64),
    /// Drains, and pages that they took.
    pub drains: (u64, u64),
}

/// A CPU: its pagesets by zone number.
#[derive(Debug)]
struct NaiveCpu {
    node: NodeIndex,
    is_on: bool,
    pagesets: Vec<NaivePageset>,
}

/// The model.
#[derive(Debug)]
pub struct NaiveAllocator {
    model: Model,
    settings: Settings,
    page_shift: u32,
    /// Whether zonelists were rebuilt at run time.
    booted: bool,
    nodes: Vec<NaiveNode>,
    /// Row by row.
    distances: Vec<u8>,
    zones: Vec<NaiveZone>,
    cpus: BTreeMap<CpuId, NaiveCpu>,
    pageblocks: Pageblocks,
    /// Memory of the topology, ascending: frames, zone number.
    memory: Vec<(PfnRange, usize)>,
    /// Where the ranges of each node begin.
    node_memory: Vec<Vec<Pfn>>,
    /// What of it is online, in any order.
    online: Vec<PfnRange>,
    /// Hard and soft, in pages, of nodes and of all.
    limits: BTreeMap<Option<NodeIndex>, (Option<u64>, Option<u64>)>,
    /// What came and went.
    pub plugged: HotplugCounts,
    /// Pages that came from elsewhere, from all nodes to all.
    pub all_fallbacks: Fallbacks,
    /// The host.
    pub calls: HostCalls,
    /// The time.
    pub now_ns: u64,
}

impl NaiveAllocator {
    /// The zones, by zone number.
    pub fn zones(&self) -> &[NaiveZone] {
        &self.zones
    }

    /// The pagesets of a CPU by zone number, or none if there is no such CPU.
    pub fn pagesets(&self, cpu: CpuId) -> &[NaivePageset] {
        self.cpus.get(&cpu).map_or(&[], |cpu| &cpu.pagesets)
    }

    /// What the scans for a node did.
    pub fn scan_counts(&self, node: NodeIndex) -> ScanCounts {
        self.nodes[node.0 as usize].scans
    }

    /// Pages that came from `to` although `from` was preferred, by reason.
    pub fn fallbacks(&self, from: NodeIndex, to: NodeIndex) -> Fallbacks {
        self.nodes[from.0 as usize].fallbacks.get(&to).copied().unwrap_or_default()
    }

    /// What begins at a frame.
    pub fn begins(&self, pfn: Pfn) -> Begins {
        self.zone_of(pfn).map_or(Begins::Nothing, |zone| self.zones[zone].begins(pfn))
    }

    /// The types of pageblocks.
    pub fn pageblocks(&self) -> &Pageblocks {
        &self.pageblocks
    }

    /// The number of the zone of a frame that is memory of the topology.
    fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        let at = self.memory.partition_point(|(range, _)| range.end <= pfn);
        let (range, zone) = self.memory.get(at)?;
        range.contains(pfn).then_some(*zone)
    }

    /// Whether a frame is online.
    pub fn is_online(&self, pfn: Pfn) -> bool {
        self.online.iter().any(|range| range.contains(pfn))
    }
}
