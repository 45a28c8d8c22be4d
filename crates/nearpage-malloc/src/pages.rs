//! The memory of nearpage below all: blocks of pages for spans and large requests, growth, trims.
//!
//! Calls into it run [`inside`](thread::inside): what it allocates for itself comes from [`Boot`](crate::Boot).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use nearpage::{Gfp, LimitOf, Limits, NodeId, NodeSet, Order, Pfn, Placement, Reason, Request};
use nearpage_linux::internals::physical_bytes;
use nearpage_linux::{HugePages, Memory, MemoryError};

use crate::chunks::{self, CHUNK_ORDER, Run, Wanted};
use crate::errno;
use crate::nodes;
use crate::options::{Options, Policy};
use crate::policy;
use crate::runs;
use crate::span::{self, Kind, UNIT_ORDER, UNIT_SHIFT};
use crate::thread;
use crate::usage;

/// Bytes of a node that are online at start, and the least that it grows by.
const FIRST_BYTES: u64 = 32 << 20;
/// The most that a node grows by.
const GROWTH_MAX: u64 = 512 << 20;
/// The least addresses that are worth a start.
const RESERVE_MIN: u64 = 64 << 20;
/// Pages of a large block, at least: no two begin in one unit.
const LARGE_MIN: usize = (1 << UNIT_ORDER) + 1;
/// Free pages in a row that are worth a call of the kernel.
const WORTH: usize = 16;
/// Runs that go back to the kernel in one go.
const RUNS: usize = 8;
/// Looks after which free pages go back in any case, 0.4 s each.
const OLD: u32 = 12;
/// CPUs in the table of nodes.
const CPUS_MAX: usize = 4096;

/// Requests never wait: no thread here could free anything for them.
const FLAGS: Gfp = Gfp::HIGHUSER_MOVABLE.difference(Gfp::DIRECT_RECLAIM).union(Gfp::NOWARN);

struct Base {
    memory: Memory,
    policy: Policy,
    /// Words of the policy's set of nodes.
    words: [u64; 4],
    /// The policy's nodes, with their dense numbers.
    nodes: [(NodeId, u16); 64],
    node_count: usize,
    turn: AtomicUsize,
}

static BASE: OnceLock<Base> = OnceLock::new();
static NODE_OF_CPU: [AtomicU16; CPUS_MAX] = [const { AtomicU16::new(0) }; CPUS_MAX];
static HAS_MANY_NODES: AtomicBool = AtomicBool::new(false);
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
        let limits = Limits { hard_bytes: Some(options.limit), ..Limits::default() };
        let _ = memory.set_limits(LimitOf::Allocator, limits);
    }
    let ranges = || memory.topology().nodes().iter().flat_map(|node| node.memory.iter());
    let start = ranges().map(|range| range.start.0).min().unwrap_or_default() << 12;
    let end = ranges().map(|range| range.end.0).max().unwrap_or_default() << 12;
    let tables = span::make_tables(start as usize, (end - start) as usize, options.hardened);
    let tables = tables.and_then(|()| chunks::make_table(span::units_in_all()));
    if tables.is_none() {
        let error = std::io::Error::last_os_error();
        return Err(MemoryError::NoAddresses { bytes: (end - start) >> 9, error });
    }
    note_nodes(&memory);
    usage::set_target(options.rss.into());
    let base = base(memory, options);
    let is_emulated = machine.emulated;
    let named = base.nodes[..base.node_count].iter().filter(|node| !is_emulated && node.0.0 < 64);
    policy::note(options, named.fold(0, |set, node| set | 1 << node.0.0));
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
    let mut nodes = [(NodeId(0), 0); 64];
    let mut node_count = 0;
    for (index, node) in topology.nodes().iter().enumerate() {
        let is_named = options.nodes == 0 || node.id.0 < 64 && options.nodes >> node.id.0 & 1 == 1;
        if is_named && node_count < nodes.len() {
            nodes[node_count] = (node.id, index as u16);
            node_count += 1;
        }
    }
    // A policy without a node that is there is none; four words are enough for 256 nodes.
    let fits = NodeSet::words(topology) <= 4 && node_count > 0;
    let policy = if fits { options.policy } else { Policy::Local };
    Base { memory, policy, words: [0; 4], nodes, node_count, turn: AtomicUsize::new(0) }
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

/// A span of so many pages: its first unit.
pub(crate) fn take_span(order: u8) -> Option<usize> {
    let pages = 1 << order;
    let (first, _) = take(pages, 1 << UNIT_ORDER, Kind::Small)?;
    usage::note_taken((pages as u64) << 12, live_of_span(pages));
    span::unit_of(first.addr())
}

/// What lives of a span: an eighth is rounding, or free.
fn live_of_span(pages: usize) -> u64 {
    (pages as u64 * 7) << 9
}

/// A large block for a request, at a multiple of `align`, and whether it is all zeroes.
pub(crate) fn take_large(size: usize, align: usize) -> Option<(*mut u8, bool)> {
    let pages = runs::rounded(size.div_ceil(4096).max(LARGE_MIN));
    let large = take(pages, (align / 4096).max(1), Kind::Large)?;
    usage::note_taken((pages as u64) << 12, size as u64);
    let unit = span::unit_of(large.0.addr())?;
    // SAFETY: the block is new, and begins in this unit.
    unsafe { (*span::span(unit)).size = size as u32 };
    Some(large)
}

fn take(pages: usize, align: usize, kind: Kind) -> Option<(*mut u8, bool)> {
    let base = BASE.get()?;
    let cut = |node: u16| {
        let mut chunks = chunks::of_node(node).lock();
        let (page, is_clean) = chunks.take(pages, align)?;
        let first = address_of(page);
        // SAFETY: the pages are new, and the lock of their chunk is held.
        unsafe { span::describe(first, pages, node, kind) };
        Some((first, is_clean))
    };
    let taken = thread::inside(|| base.take(pages.next_power_of_two().max(align), cut))?;
    Some(taken)
}

/// Gives back what begins in a unit.
///
/// # Safety
/// * [`take_span`] or [`take_large`] gave it, and nobody uses its memory any more.
pub(crate) unsafe fn give_back(unit: usize) {
    // SAFETY: the caller's promise: the descriptor is the caller's.
    let (start, pages, node, live) = unsafe {
        let span = &*span::span(unit);
        let (is_large, pages) = (span.kind == Kind::Large, span.pages as usize);
        let live = if is_large { span.size.into() } else { live_of_span(pages) };
        (span.start, pages, span.node, live)
    };
    let first = (start.addr() - span::start()) >> 12;
    {
        let mut chunks = chunks::of_node(node).lock();
        // SAFETY: the caller's promise, and the lock is held.
        unsafe { span::forget(unit) };
        chunks.give_back(Run { first, pages });
    }
    usage::note_given_back((pages as u64) << 12, live);
    if usage::must_give_back() {
        let wanted = Wanted { least: WORTH, age: 0 };
        errno::kept(|| thread::inside(|| discard(node, wanted)));
    }
}

/// Gives some dirty pages of a node to the kernel; returns bytes, and whether all chunks were looked at.
fn discard(node: u16, wanted: Wanted) -> (u64, bool) {
    let Some(base) = BASE.get() else { return (0, true) };
    let mut runs = [Run::default(); RUNS];
    let (count, is_round) = chunks::of_node(node).lock().borrow(wanted, &mut runs);
    let mut bytes = 0;
    for run in &runs[..count] {
        // SAFETY: the pages are borrowed: nobody has anything in them. They are zeroes after that.
        let answer = unsafe {
            libc::madvise(address_of(run.first).cast(), run.pages << 12, libc::MADV_DONTNEED)
        };
        let mut chunks = chunks::of_node(node).lock();
        if answer != 0 {
            chunks.give_back(*run);
            continue;
        }
        chunks.take_clean(*run);
        bytes += (run.pages as u64) << 12;
        let block = chunks.take_block(run.first);
        drop(chunks);
        if let Some((unit, order)) = block {
            let pfn = Pfn(address(unit).addr() as u64 >> 12);
            // SAFETY: a whole block of nearpage's that nobody uses.
            let _ = unsafe { base.memory.free_frames(pfn, Order(order)) };
        }
    }
    (bytes, is_round)
}

/// Gives dirty pages of all nodes to the kernel while `wants_more`; returns bytes.
fn discard_all(wanted: Wanted, wants_more: impl Fn() -> bool) -> u64 {
    let nodes = memory().map_or(0, |memory| memory.topology().nodes().len().min(chunks::NODES));
    let mut sum = 0;
    for node in 0..nodes as u16 {
        // The first round may have begun in the middle.
        let mut rounds = 0;
        while rounds < 2 && wants_more() {
            let (bytes, is_round) = thread::inside(|| discard(node, wanted));
            sum += bytes;
            rounds += u32::from(is_round);
        }
    }
    if sum > 0 {
        TRIMS.fetch_add(1, Ordering::Relaxed);
    }
    sum
}

/// Gives back what is above the target, and what is old.
pub(crate) fn look() {
    usage::note_look();
    chunks::note_look();
    discard_all(Wanted { least: WORTH, age: 0 }, || usage::excess() > 0);
    discard_all(Wanted { least: WORTH, age: OLD }, || true);
    // Pieces that stay cost more calls than they are worth, but once.
    discard_all(Wanted { least: 1, age: 4 * OLD }, || true);
}

/// Gives all free memory back to the kernel; returns bytes.
pub(crate) fn trim() -> u64 {
    usage::forget();
    discard_all(Wanted { least: 1, age: 0 }, || true)
}

fn address_of(page: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(span::start() + (page << 12))
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

impl Base {
    /// What `cut` finds in the chunks of the policy's nodes, or those of others if it allows that. New chunks are brought, of
    /// `pages` at least.
    fn take<T>(&self, pages: usize, cut: impl Fn(u16) -> Option<T>) -> Option<T> {
        let least = pages.trailing_zeros() as u8;
        let nodes = &self.nodes[..self.node_count];
        // Local has all, and prefers the first.
        let most = if self.policy == Policy::Local { 1 } else { nodes.len() };
        let first = match self.policy {
            Policy::Interleave => self.turn.fetch_add(1, Ordering::Relaxed),
            _ => nodes.iter().position(|node| node.1 == here()).unwrap_or_default(),
        };
        for (id, node) in (0..most).map(|at| nodes[(first + at) % nodes.len()]) {
            if let Some(taken) = cut(node) {
                return Some(taken);
            }
            if self.bring(id, least) {
                return cut(node);
            }
        }
        if self.policy == Policy::Bind {
            return None;
        }
        let all = self.memory.topology().nodes();
        if let Some(node) = self.bring_any(least) {
            return cut(node);
        }
        (0..all.len().min(chunks::NODES) as u16).find_map(cut)
    }

    /// Brings a chunk of a node, or less if there is no more.
    fn bring(&self, node: NodeId, least: u8) -> bool {
        let mut words = self.words;
        let Ok(set) = NodeSet::new(self.memory.topology(), [node], &mut words) else {
            return false;
        };
        let placement = Placement::by(nearpage::Policy::Bind(set));
        let alloc = |order| {
            let request = Request::new(Order(order), FLAGS);
            self.memory.alloc_frames_with(&placement, request).ok().map(|pfn| (pfn, order))
        };
        // The slow path of nearpage makes calls that a sandbox may forbid: it is not reached while the node can grow.
        if !self.has_room(node) {
            self.grow(node);
        }
        let taken =
            alloc(CHUNK_ORDER).or_else(|| if self.grow(node) { alloc(CHUNK_ORDER) } else { None });
        let taken = taken.or_else(|| (least..CHUNK_ORDER).rev().find_map(alloc));
        taken.is_some_and(|(pfn, order)| self.add(pfn, order).is_some())
    }

    /// Whether a node has a chunk and what it keeps.
    fn has_room(&self, node: NodeId) -> bool {
        let kept = self.memory.watermarks(node).high + Order(CHUNK_ORDER).pages();
        self.memory.free_pages(node) > kept + Order(CHUNK_ORDER).pages()
    }

    /// The same of any node, whose dense number it returns.
    fn bring_any(&self, least: u8) -> Option<u16> {
        let alloc = |order| {
            let request = Request::new(Order(order), FLAGS);
            self.memory.alloc_frames(request).ok().map(|pfn| (pfn, order))
        };
        let nodes = self.memory.topology().nodes();
        let grown = || nodes.iter().any(|node| self.grow(node.id));
        let taken = alloc(CHUNK_ORDER).or_else(|| if grown() { alloc(CHUNK_ORDER) } else { None });
        let taken = taken.or_else(|| (least..CHUNK_ORDER).rev().find_map(alloc));
        taken.and_then(|(pfn, order)| self.add(pfn, order))
    }

    /// Takes a block of nearpage's in; the dense number of its node.
    fn add(&self, pfn: Pfn, order: u8) -> Option<u16> {
        let node = if HAS_MANY_NODES.load(Ordering::Relaxed) { self.node_index(pfn) } else { 0 };
        let address = self.memory.address(pfn).as_ptr().expose_provenance();
        let unit = span::unit_of(address).filter(|_| (node as usize) < chunks::NODES)?;
        chunks::of_node(node).lock().add(unit, order).then_some(node)
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
}
