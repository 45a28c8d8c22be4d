//! The memory of nearpage below all: blocks of pages for spans and large requests, growth, trims.
//!
//! Calls into it run [`inside`](thread::inside): what it allocates for itself comes from [`Boot`](crate::Boot).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use nearpage::{
    Cursor, Gfp, LimitOf, Limits, NodeId, NodeSet, Order, Pfn, Placement, Reason, Request, Turn,
};
use nearpage_linux::{HugePages, Memory, MemoryError};

use crate::errno;
use crate::nodes;
use crate::options::{Options, Policy};
use crate::policy;
use crate::span::{self, Kind, UNIT_SHIFT};
use crate::thread;
use crate::usage;

/// Bytes of a node that are online at start, and the least that it grows by.
const FIRST_BYTES: u64 = 32 << 20;
/// The most that a node grows by.
const GROWTH_MAX: u64 = 512 << 20;
/// The least addresses that are worth a start.
const RESERVE_MIN: u64 = 64 << 20;
/// Spare bytes after which a trim is worth the time of who frees.
const TRIM_BYTES: u64 = 32 << 20;
/// The least time between two trims.
const TRIM_INTERVAL_NS: u64 = 200_000_000;
/// CPUs in the table of nodes.
const CPUS_MAX: usize = 4096;

/// Requests never wait: no thread here could free anything for them.
const FLAGS: Gfp = Gfp::HIGHUSER_MOVABLE.difference(Gfp::DIRECT_RECLAIM).union(Gfp::NOWARN);

struct Base {
    memory: Memory,
    policy: Policy,
    /// Words of the policy's set of nodes.
    words: [u64; 4],
    nodes: [NodeId; 64],
    node_count: usize,
    cursor: Cursor,
}

static BASE: OnceLock<Base> = OnceLock::new();
static NODE_OF_CPU: [AtomicU16; CPUS_MAX] = [const { AtomicU16::new(0) }; CPUS_MAX];
static HAS_MANY_NODES: AtomicBool = AtomicBool::new(false);
static TRIMMED_AT: AtomicU64 = AtomicU64::new(0);
static TRIMS: AtomicUsize = AtomicUsize::new(0);

/// Makes the memory and the tables for its addresses. The caller is inside.
pub(crate) fn make(options: &Options) -> Result<(), MemoryError> {
    let machine = nodes::machine(options, CPUS_MAX)?;
    let total = physical_bytes();
    let shares = machine.nodes.iter().filter(|node| node.has_memory).count().max(1) as u64;
    // Twice what there is: what is free and what is used may lie anywhere. Addresses cost nothing, unless they are limited.
    let mut reserve = (2 * total / shares).next_multiple_of(128 << 20);
    let memory = loop {
        let mut builder = Memory::builder()
            .machine(machine.clone())
            .bytes_per_node(FIRST_BYTES.min(reserve))
            .reserve_per_node(reserve)
            .hardened(options.hardened);
        if let Some(wanted) = options.huge {
            builder =
                builder.huge_pages(if wanted { HugePages::Advised } else { HugePages::Never });
        }
        match builder.build() {
            Ok(memory) => break memory,
            Err(error) if reserve < 2 * RESERVE_MIN => return Err(error),
            Err(_) => reserve /= 2,
        }
    };
    if options.limit != 0 {
        let limits = Limits { hard_bytes: Some(options.limit), soft_bytes: None };
        let _ = memory.set_limits(LimitOf::Allocator, limits);
    }
    let ranges = || memory.topology().nodes().iter().flat_map(|node| node.memory.iter());
    let start = ranges().map(|range| range.start.0).min().unwrap_or_default() << 12;
    let end = ranges().map(|range| range.end.0).max().unwrap_or_default() << 12;
    let tables = span::make_tables(start as usize, (end - start) as usize, options.hardened);
    if tables.is_none() {
        let error = std::io::Error::last_os_error();
        return Err(MemoryError::NoAddresses { bytes: (end - start) >> 9, error });
    }
    note_nodes(&memory);
    let base = base(memory, options);
    let is_emulated = machine.emulated;
    let named = base.nodes[..base.node_count].iter().filter(|node| !is_emulated && node.0 < 64);
    policy::note(options, named.fold(0, |set, node| set | 1 << node.0));
    let _ = BASE.set(base);
    Ok(())
}

/// Nodes that options name and the memory does not have, a bit each.
pub(crate) fn absent(options: &Options) -> u64 {
    let Some(memory) = memory() else { return 0 };
    let nodes = memory.topology().nodes().iter().filter(|node| node.id.0 < 64);
    options.nodes & !nodes.fold(0, |bits, node| bits | 1 << node.id.0)
}

fn base(memory: Memory, options: &Options) -> Base {
    let topology = memory.topology();
    let mut nodes = [NodeId(0); 64];
    let mut node_count = 0;
    for node in topology.nodes() {
        let is_named = options.nodes == 0 || node.id.0 < 64 && options.nodes >> node.id.0 & 1 == 1;
        if is_named && node_count < nodes.len() {
            nodes[node_count] = node.id;
            node_count += 1;
        }
    }
    // A policy without a node that is there is none; four words are enough for 256 nodes.
    let fits = NodeSet::words(topology) <= 4 && node_count > 0;
    let policy = if fits { options.policy } else { Policy::Local };
    Base { memory, policy, words: [0; 4], nodes, node_count, cursor: Cursor::new() }
}

fn physical_bytes() -> u64 {
    // SAFETY: asks only.
    let (pages, page) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    (pages.max(1 << 16) as u64) * (page.max(4096) as u64)
}

fn note_nodes(memory: &Memory) {
    let nodes = memory.topology().nodes();
    HAS_MANY_NODES.store(nodes.len() > 1, Ordering::Relaxed);
    for (index, node) in nodes.iter().enumerate() {
        for cpu in node.cpus.iter().filter(|cpu| (cpu.0 as usize) < CPUS_MAX) {
            NODE_OF_CPU[cpu.0 as usize].store(index as u16, Ordering::Relaxed);
        }
    }
}

/// The memory; `None` before the start.
pub(crate) fn memory() -> Option<&'static Memory> {
    BASE.get().map(|base| &base.memory)
}

/// The dense number of the node of the CPU that the thread runs on; 0 if there is only one.
#[inline]
pub(crate) fn here() -> u16 {
    if !HAS_MANY_NODES.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: asks only. The C library reads the number that the kernel keeps for restartable sequences.
    let cpu = unsafe { libc::sched_getcpu() };
    NODE_OF_CPU.get(cpu as usize).map_or(0, |node| node.load(Ordering::Relaxed))
}

/// Whether spans should lie on the node of the thread that takes them.
pub(crate) fn is_local() -> bool {
    HAS_MANY_NODES.load(Ordering::Relaxed)
        && BASE.get().is_some_and(|base| matches!(base.policy, Policy::Local))
}

/// A block of pages, by its first unit and the dense number of its node.
pub(crate) fn take(order: u8) -> Option<(usize, u16)> {
    let base = BASE.get()?;
    thread::inside(|| {
        let pfn = base.near(Order(order)).or_else(|| base.anywhere(Order(order)))?;
        let address = base.memory.address(pfn).as_ptr().expose_provenance();
        let node = if HAS_MANY_NODES.load(Ordering::Relaxed) { base.node_index(pfn) } else { 0 };
        usage::note_taken(4096 << order);
        Some((span::unit_of(address)?, node))
    })
}

/// Gives a block back.
///
/// # Safety
/// * [`take`] gave it, and nobody uses its memory any more.
pub(crate) unsafe fn give_back(unit: usize, order: u8) {
    let Some(base) = BASE.get() else { return };
    let start = address(unit).addr() as u64;
    errno::kept(|| {
        thread::inside(|| {
            // SAFETY: the caller's promise.
            let _ = unsafe { base.memory.free_frames(Pfn(start >> 12), Order(order)) };
        });
        if usage::note_given_back(4096 << order) {
            base.trim_if_due();
        }
    });
}

/// The units of all nodes' memory that is online.
pub(crate) fn used_units() -> impl Iterator<Item = usize> {
    let nodes = memory().map(|memory| memory.topology().nodes()).unwrap_or_default();
    nodes.iter().flat_map(|node| {
        // What is online is the start of each range.
        let online = memory().map_or(0, |memory| memory.managed_pages(node.id).0) << 12;
        node.memory.iter().flat_map(move |range| {
            let first = ((range.start.0 << 12) as usize - span::start()) >> UNIT_SHIFT;
            first..first + (online >> UNIT_SHIFT) as usize
        })
    })
}

/// Pages that came from another node than the one that was nearest, by reason.
pub(crate) fn fallbacks() -> [u64; Reason::COUNT] {
    let mut sums = [0; Reason::COUNT];
    let Some(memory) = memory() else { return sums };
    thread::inside(|| {
        let nodes = memory.topology().nodes();
        for (from, to) in nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to))) {
            let Some(fallbacks) = memory.fallbacks(from.id, to.id) else { continue };
            for reason in Reason::ALL {
                sums[reason as usize] += fallbacks.pages(reason).0;
            }
        }
    });
    sums
}

/// The first byte of a unit.
pub(crate) fn address(unit: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(span::start() + (unit << UNIT_SHIFT))
}

/// Gives all free memory back to the kernel that can be; returns bytes.
pub(crate) fn trim() -> u64 {
    let Some(base) = BASE.get() else { return 0 };
    usage::note_trim();
    TRIMS.fetch_add(1, Ordering::Relaxed);
    thread::inside(|| base.memory.trim().0 << 12)
}

/// Serves the figures of the memory; `None` without a memory.
#[cfg(feature = "stats")]
pub(crate) fn serve_stats(
    path: &std::path::Path,
) -> Option<Result<nearpage_linux::StatsServer, nearpage_linux::StatsError>> {
    Some(BASE.get()?.memory.serve_stats_always(path))
}

/// How many trims there were.
pub(crate) fn trims() -> usize {
    TRIMS.load(Ordering::Relaxed)
}

/// Nanoseconds of a clock that never goes back, a few milliseconds coarse.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Base {
    /// A block by the policy, from memory that is online or can be brought.
    fn near(&self, order: Order) -> Option<Pfn> {
        let request = Request::new(order, FLAGS);
        let local = Request { gfp: FLAGS.union(Gfp::THISNODE), ..request };
        if self.policy == Policy::Local {
            if let Ok(pfn) = self.memory.alloc_frames(local) {
                return Some(pfn);
            }
            let node = self.memory.topology().nodes().get(here() as usize)?.id;
            return if self.grow(node) { self.memory.alloc_frames(local).ok() } else { None };
        }
        let mut words = self.words;
        let nodes = self.nodes[..self.node_count].iter().copied();
        let set = NodeSet::new(self.memory.topology(), nodes, &mut words).ok()?;
        let by = match self.policy {
            Policy::Interleave => {
                nearpage::Policy::Interleave { nodes: set, turn: Turn::Next(&self.cursor) }
            }
            Policy::Bind => nearpage::Policy::Bind(set),
            _ => nearpage::Policy::PreferredMany(set),
        };
        // A turn must not go to another node because its own has not grown yet.
        if let Some(node) = self.shortest() {
            self.grow(node);
        }
        self.memory.alloc_frames_with(&Placement::by(by), request).ok()
    }

    /// A node of the policy that has less free than a large block and can grow.
    fn shortest(&self) -> Option<NodeId> {
        let nodes = self.nodes[..self.node_count].iter().copied();
        nodes.into_iter().find(|node| {
            let free = self.memory.free_pages(*node).0;
            free < self.memory.watermarks(*node).high.0 + 2048
                && self.memory.reserve_left(*node) > 0
        })
    }

    /// What other nodes have, or can bring.
    fn anywhere(&self, order: Order) -> Option<Pfn> {
        if self.policy == Policy::Bind {
            return None;
        }
        let request = Request::new(order, FLAGS);
        if let Ok(pfn) = self.memory.alloc_frames(request) {
            return Some(pfn);
        }
        let nodes = self.memory.topology().nodes();
        let grown = nodes.iter().any(|node| self.grow(node.id));
        if grown { self.memory.alloc_frames(request).ok() } else { None }
    }

    /// Brings more of a node online: a fourth of what there is, within bounds.
    fn grow(&self, node: NodeId) -> bool {
        let online = self.memory.managed_pages(node).0 << 12;
        let left = self.memory.reserve_left(node);
        let more = (online / 4).clamp(FIRST_BYTES, GROWTH_MAX) & !((4 << 20) - 1);
        let mut more = more.min(left);
        while more >= 4 << 20 {
            if self.memory.bring_online(node, more).is_ok() {
                usage::want();
                return true;
            }
            // The kernel counts what a process may have.
            more = (more / 2) & !((4 << 20) - 1);
        }
        false
    }

    fn node_index(&self, pfn: Pfn) -> u16 {
        let node = self.memory.node_of(pfn);
        let nodes = self.memory.topology().nodes();
        nodes.iter().position(|other| Some(other.id) == node).unwrap_or_default() as u16
    }

    #[cold]
    fn trim_if_due(&self) {
        let (now, last) = (now_ns(), TRIMMED_AT.load(Ordering::Relaxed));
        if now.saturating_sub(last) < TRIM_INTERVAL_NS {
            return;
        }
        let is_mine =
            TRIMMED_AT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // What was used since the last look stays: the program may want it again at once.
        if is_mine && usage::spare().is_some_and(|spare| spare >= TRIM_BYTES) {
            trim();
        }
    }
}

/// Describes a block that [`take`] gave as a large one.
///
/// # Safety
/// * The block is the caller's.
pub(crate) unsafe fn describe_large(unit: usize, order: u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        span::describe(unit, order, Kind::Large);
        (*span::span(unit)).size = size as u32;
        (*span::span(unit)).start = address(unit);
    }
}
