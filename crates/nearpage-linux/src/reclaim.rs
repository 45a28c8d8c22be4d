//! Reclaim: what happens when memory gets short, driven by the watermarks.
//!
//! Locks: a call copies the list of shrinkers before it asks them, so they run without a lock of this module.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::{NodeReclaimed, Shortage};
use nearpage::{Gfp, LimitOf, NodeId, PageCount};

use crate::ffi::thread_time;
use crate::fork::{self, Hold, Registration};
use crate::frame::{FRAME_BYTES, FRAME_SHIFT};
use crate::memory::Memory;
use crate::pressure::{Pressure, unless_within};
use crate::trim::{Trimmed, Turn};

/// The least pages to ask shrinkers for. `include/linux/swap.h: SWAP_CLUSTER_MAX`, 6.12.
const CLUSTER_PAGES: u64 = 32;

/// With a shorter interval the thread would do nothing else.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Of a CPU's time, trims get one in so many parts.
const CPU_SHARE: u32 = 50;

/// How often the thread looks at what is resident where that has a limit.
const RESIDENT_LOOK: Duration = Duration::from_millis(100);

/// Turns after which all that is free was seen and is gone.
const QUIET_TURNS: u32 = 3;

/// A part of the program that can give pages back: a cache.
pub trait Shrinker: Send + Sync {
    /// Frees about `pages` pages, of `node` if possible; returns how many it freed.
    ///
    /// The background thread calls this, and so does any thread whose request finds no memory. If the program allocates
    /// while it holds a lock, this may only try that lock. What it allocates itself is given if it is there, or refused: no
    /// shrinker is asked for it.
    fn shrink(&self, node: NodeId, pages: PageCount) -> PageCount;
}

/// What the background thread does on its own, besides what it is woken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimOptions {
    /// The interval at which caches decay and free memory is trimmed; at least a millisecond.
    pub interval: Duration,
    /// Whether memory that is free above the high watermark, and was so for an interval, goes back to the kernel. This takes at
    /// most a fiftieth of a CPU, and nothing while no page moves.
    pub trims: bool,
}

impl Default for ReclaimOptions {
    /// Every second, with trims.
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), trims: true }
    }
}

/// What reclaim did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimCounts {
    /// How often a node fell below its low watermark, or more than a soft limit was in use.
    pub wakeups: u64,
    /// Pages that shrinkers freed in the background.
    pub background_pages: u64,
    /// Requests that asked shrinkers themselves, because they found no memory.
    pub stalls: u64,
    /// The time that these requests spent in shrinkers, summed.
    pub stalled: Duration,
    /// Pages that shrinkers freed in stalls.
    pub direct_pages: u64,
    /// Pages that shrinkers freed so that a request stayed on its node.
    pub node_pages: u64,
    /// Pages that came online because a node was below its low watermark.
    pub grown_pages: u64,
    /// Pages whose memory went back to the kernel, each of which was in use since it last did. Under Linux's rules also those
    /// that were not.
    pub trimmed_pages: u64,
    /// Turns that looked for memory to give back: none while no page moves.
    pub trim_turns: u64,
    /// Panics in the background thread: of shrinkers, which are not asked again, and of upkeep that found a misuse.
    pub panics: u64,
}

/// Reclaim of a memory. Give a clone to [`MemoryBuilder::pressure`](crate::MemoryBuilder::pressure) and keep one.
///
/// Programs register [`Shrinker`]s. When a node falls below its low watermark, a background thread
/// ([`start`](Self::start)) brings a section of the node's reserve online. If the node has no reserve left, the thread asks
/// the shrinkers until the node is above its high watermark (`promo` with
/// [`memory_tiering`](nearpage::Settings::memory_tiering)). Above a soft limit it asks them until no more than the
/// limit is in use. Once per interval it lets caches decay, drains those of CPUs that do nothing, and gives memory above the high
/// watermark that was free for an interval back to the kernel. If more has memory behind it than
/// [`resident_bytes`](nearpage::Limits::resident_bytes) says, it looks ten times a second, and does not wait for the interval.
///
/// A request that finds no memory at all asks the shrinkers itself; this is counted as a stall. With
/// [`node_reclaim_mode`](nearpage::Settings::node_reclaim_mode) a request asks them before it goes to another
/// node. A child process has no background thread until it starts one.
///
/// ```
/// use std::sync::Arc;
///
/// use nearpage::{NodeId, PageCount};
/// use nearpage_linux::{Memory, Reclaim, ReclaimOptions, Shrinker};
///
/// /// A cache, which is empty here.
/// struct Cache;
///
/// impl Shrinker for Cache {
///     fn shrink(&self, _node: NodeId, _pages: PageCount) -> PageCount {
///         PageCount(0)
///     }
/// }
///
/// let reclaim = Reclaim::new();
/// let memory = Memory::builder().bytes_per_node(16 << 20).pressure(reclaim.clone()).build()?;
/// let memory = Arc::new(memory);
/// reclaim.add_shrinker(Arc::new(Cache));
/// let thread = reclaim.start(&memory, ReclaimOptions::default())?;
/// drop(memory.alloc_pages(1)?);
/// assert_eq!(reclaim.counts().stalls, 0);
/// drop(thread); // ends it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reclaim {
    shared: Arc<Shared>,
    _registration: Arc<Registration>,
}

#[derive(Default)]
struct Shared {
    shrinkers: Mutex<Vec<Arc<dyn Shrinker>>>,
    thread: Mutex<Option<Thread>>,
    is_wanted: AtomicBool,
    wakeups: AtomicU64,
    background_pages: AtomicU64,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    direct_pages: AtomicU64,
    node_pages: AtomicU64,
    grown_pages: AtomicU64,
    trimmed_pages: AtomicU64,
    trim_turns: AtomicU64,
    panics: AtomicU64,
}

impl fmt::Debug for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaim").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Default for Reclaim {
    fn default() -> Self {
        Self::new()
    }
}

impl Reclaim {
    /// A reclaim without shrinkers and without a thread.
    pub fn new() -> Self {
        let shared = Arc::<Shared>::default();
        let registration = Registration::of(Box::new(HeldShared(shared.clone())));
        Self { shared, _registration: Arc::new(registration) }
    }

    /// Adds a shrinker, which is asked after those that were added before.
    pub fn add_shrinker(&self, shrinker: Arc<dyn Shrinker>) {
        lock(&self.shared.shrinkers).push(shrinker);
    }

    /// What reclaim did so far.
    pub fn counts(&self) -> ReclaimCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.shared;
        ReclaimCounts {
            wakeups: get(&shared.wakeups),
            background_pages: get(&shared.background_pages),
            stalls: get(&shared.stalls),
            stalled: Duration::from_nanos(get(&shared.stalled_ns)),
            direct_pages: get(&shared.direct_pages),
            node_pages: get(&shared.node_pages),
            grown_pages: get(&shared.grown_pages),
            trimmed_pages: get(&shared.trimmed_pages),
            trim_turns: get(&shared.trim_turns),
            panics: get(&shared.panics),
        }
    }

    /// Starts the background thread of `memory`, which must be built with a clone of this. The thread ends when the returned
    /// value or the memory is dropped.
    ///
    /// A shrinker that panics in the background thread is never asked again. A shrinker that panics in a request unwinds
    /// through the request.
    ///
    /// # Errors
    /// The system's error if no thread can be started; [`InvalidInput`](io::ErrorKind::InvalidInput) if the interval is too
    /// short.
    pub fn start(
        &self,
        memory: &Arc<Memory>,
        options: ReclaimOptions,
    ) -> io::Result<ReclaimThread> {
        let interval = options.interval;
        if interval < INTERVAL_MIN {
            let why = format!(
                "an interval of {interval:?} between reclaims: {INTERVAL_MIN:?} or more is accepted"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            reclaim: self.clone(),
            memory: Arc::downgrade(memory),
            options,
            stop: stop.clone(),
        };
        let name = String::from("nearpage-reclaim");
        let handle = std::thread::Builder::new().name(name).spawn(move || worker.run())?;
        *lock(&self.shared.thread) = Some(handle.thread().clone());
        Ok(ReclaimThread { handle: Some(handle), stop, process: std::process::id() })
    }

    /// Asks the shrinkers, one after the other, until `pages` are freed; returns how many were.
    fn shrink(&self, node: NodeId, pages: u64) -> u64 {
        self.shrink_by(pages, |shrinker, pages| shrinker.shrink(node, pages))
    }

    /// The same in the background. A panic there would end the thread before it asked the other shrinkers.
    fn shrink_in_background(&self, node: NodeId, pages: u64) -> u64 {
        let freed = self.shrink_by(pages, |shrinker, pages| {
            let shrink = || unless_within(|| shrinker.shrink(node, pages)).unwrap_or(PageCount(0));
            let caught = catch_unwind(AssertUnwindSafe(shrink));
            caught.unwrap_or_else(|_| {
                add(&self.shared.panics, 1);
                self.forget(shrinker);
                PageCount(0)
            })
        });
        add(&self.shared.background_pages, freed);
        freed
    }

    fn shrink_by(
        &self,
        pages: u64,
        ask: impl Fn(&Arc<dyn Shrinker>, PageCount) -> PageCount,
    ) -> u64 {
        let shrinkers = lock(&self.shared.shrinkers).clone();
        let mut freed = 0;
        for shrinker in &shrinkers {
            if freed >= pages {
                break;
            }
            freed += ask(shrinker, PageCount(pages - freed)).0;
        }
        freed
    }

    fn forget(&self, shrinker: &Arc<dyn Shrinker>) {
        lock(&self.shared.shrinkers).retain(|other| !Arc::ptr_eq(other, shrinker));
    }
}

impl Pressure for Reclaim {
    fn background(&self, _shortage: &Shortage) {
        // Release pairs with the Acquire of the thread, which looks at the zones after it.
        if self.shared.is_wanted.swap(true, Ordering::Release) {
            return;
        }
        add(&self.shared.wakeups, 1);
        if let Some(thread) = &*lock(&self.shared.thread) {
            thread.unpark();
        }
    }

    fn direct(&self, shortage: &Shortage) -> PageCount {
        let start = Instant::now();
        let freed = self.shrink(shortage.node, shortage.order.pages().0.max(CLUSTER_PAGES));
        add(&self.shared.stalls, 1);
        add(&self.shared.stalled_ns, start.elapsed().as_nanos() as u64);
        add(&self.shared.direct_pages, freed);
        PageCount(freed)
    }

    /// Only for requests that may wait and are not themselves part of freeing memory. `mm/vmscan.c: node_reclaim`, 6.12.
    fn node(&self, shortage: &Shortage) -> NodeReclaimed {
        if !shortage.gfp.contains(Gfp::DIRECT_RECLAIM) || shortage.gfp.contains(Gfp::MEMALLOC) {
            return NodeReclaimed::NotTried;
        }
        let wanted = shortage.order.pages().0;
        let freed = self.shrink(shortage.node, wanted.max(CLUSTER_PAGES));
        add(&self.shared.node_pages, freed);
        match freed {
            0 => NodeReclaimed::Nothing,
            _ if freed < wanted => NodeReclaimed::Some,
            _ => NodeReclaimed::Enough,
        }
    }
}

/// The background thread. Dropping this ends it.
#[derive(Debug)]
pub struct ReclaimThread {
    handle: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// The process that has the thread; a child has a copy of the handle only.
    process: u32,
}

impl Drop for ReclaimThread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.stop.store(true, Ordering::Relaxed);
        // The thread itself may drop this, with the memory's last owner.
        let is_other = handle.thread().id() != std::thread::current().id();
        if std::process::id() != self.process {
            fork::leave_to_parent(handle);
        } else if is_other {
            handle.thread().unpark();
            // A panic of the thread was reported when it happened.
            let _ = handle.join();
        }
    }
}

struct Worker {
    reclaim: Reclaim,
    memory: Weak<Memory>,
    options: ReclaimOptions,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn run(&self) {
        let look = self.options.interval.min(RESIDENT_LOOK);
        let mut state = Tidying { look, ..Tidying::default() };
        let (mut last, mut last_look) = (Instant::now(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            let left = self.options.interval.saturating_sub(last.elapsed());
            std::thread::park_timeout(left.min(state.look.saturating_sub(last_look.elapsed())));
            let Some(memory) = self.memory.upgrade() else { return };
            if self.reclaim.shared.is_wanted.swap(false, Ordering::Acquire) {
                self.outlive(|| self.balance(&memory));
            }
            if last.elapsed() >= self.options.interval {
                last = Instant::now();
                self.outlive(|| self.tidy(&memory, &mut state));
            }
            if last_look.elapsed() >= state.look {
                last_look = Instant::now();
                self.outlive(|| self.keep_resident_limits(&memory, &mut state));
            }
        }
    }

    /// Upkeep goes on after a panic: with [`OnMisuse::Panic`](crate::OnMisuse::Panic) a misuse that only the reaper finds
    /// panics here.
    fn outlive(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            add(&self.reclaim.shared.panics, 1);
        }
    }

    /// Brings each node that is at its low watermark or below to its target, as far as possible.
    fn balance(&self, memory: &Memory) {
        for node in memory.topology().nodes().iter().map(|node| node.id) {
            while is_low(memory, node) {
                if !self.grow(memory, node) {
                    self.reclaim_node(memory, node);
                    break;
                }
            }
            self.keep_soft_limit(memory, LimitOf::Node(node));
        }
        self.keep_soft_limit(memory, LimitOf::Allocator);
    }

    /// Asks shrinkers until no more than a soft limit is in use. Pages that CPUs cache count as in use.
    fn keep_soft_limit(&self, memory: &Memory, of: LimitOf) {
        let Ok(Some(soft)) = memory.limits(of).map(|limits| limits.soft_bytes) else { return };
        while !self.stop.load(Ordering::Relaxed) {
            let in_use = memory.in_use(of).unwrap_or_default().to_bytes(FRAME_SHIFT);
            let excess = in_use.saturating_sub(soft).div_ceil(FRAME_BYTES);
            let Some(node) = fullest(memory, of).filter(|_| excess > 0) else { return };
            let freed = self.reclaim.shrink_in_background(node, excess.max(CLUSTER_PAGES));
            if freed == 0 {
                return;
            }
            // A CPU that somebody else drains just now needs no second drain.
            let _ = memory.drain_all();
        }
    }

    /// Brings a section of the reserve online, or what is left of it; returns whether there was some.
    fn grow(&self, memory: &Memory, node: NodeId) -> bool {
        let section = PageCount(SECTION_FRAMES as u64);
        let bytes = memory.reserve_left(node).min(section.to_bytes(FRAME_SHIFT));
        let grown = if bytes > 0 { memory.bring_online(node, bytes).ok() } else { None };
        add(&self.reclaim.shared.grown_pages, grown.map_or(0, |pages| pages.0));
        grown.is_some()
    }

    fn reclaim_node(&self, memory: &Memory, node: NodeId) {
        loop {
            let missing = missing(memory, node);
            if missing == 0 || self.stop.load(Ordering::Relaxed) {
                return;
            }
            let mut freed = self.reclaim.shrink_in_background(node, missing.max(CLUSTER_PAGES));
            if freed < missing {
                let objects = memory.shrink_objects().0;
                add(&self.reclaim.shared.background_pages, objects);
                freed += objects;
            }
            // What shrinkers free lies in this CPU's caches first.
            let drained = memory.drain_all().map_or(0, |pages| pages.0);
            if freed + drained == 0 {
                return;
            }
        }
    }

    fn tidy(&self, memory: &Memory, state: &mut Tidying) {
        // A CPU that somebody else drains just now decays the next time.
        let decayed = memory.decay().unwrap_or_default();
        memory.reap_objects();
        if !self.options.trims {
            return;
        }
        let moves = memory.pages().moves();
        let is_quiet = moves == state.moves && decayed.0 == 0 && state.from == 0;
        state.quiet = if is_quiet { state.quiet + 1 } else { 0 };
        state.moves = moves;
        // One turn sees what moved last, and the next one gives it back.
        if state.quiet > QUIET_TURNS {
            return;
        }
        // A turn that ran out of time goes on under its number.
        state.number = state.number.wrapping_add(u32::from(state.from == 0));
        let time = Some(self.options.interval / CPU_SHARE);
        let number = Some(state.number);
        let trimmed = self.trim(memory, &Turn { number, time, from: state.from, ..Turn::ALL });
        state.from = trimmed.next;
    }

    fn trim(&self, memory: &Memory, turn: &Turn) -> Trimmed {
        let trimmed = memory.trim_turn(turn);
        add(&self.reclaim.shared.trim_turns, 1);
        add(&self.reclaim.shared.trimmed_pages, trimmed.pages.0);
        trimmed
    }

    /// Gives memory back, whatever its age, as far as more is resident than limits say.
    fn keep_resident_limits(&self, memory: &Memory, state: &mut Tidying) {
        let all = std::iter::once((LimitOf::Allocator, None));
        let nodes = memory.topology().nodes().iter().map(|node| node.id);
        let nodes = nodes.map(|node| (LimitOf::Node(node), Some(node)));
        let limit = |of| memory.limits(of).ok()?.resident_bytes.map(|bytes| bytes / FRAME_BYTES);
        let limits = all.chain(nodes).filter_map(|(of, node)| Some((of, node, limit(of)?)));
        let limits: Vec<_> = limits.collect();
        let interval = self.options.interval;
        if limits.is_empty() {
            state.look = interval;
            return;
        }
        let moves = memory.pages().moves();
        if moves == state.moves_looked_at {
            state.look = (2 * state.look).min(interval);
            return;
        }
        let next = interval.min(RESIDENT_LOOK);
        let start = thread_time();
        let mut is_more = false;
        for (of, node, limit) in limits {
            // Where the kernel does not tell, nobody knows.
            let resident = memory.resident(of).unwrap_or_default();
            let excess = resident.0.saturating_sub(limit);
            if excess > 0 {
                let (most, time) = (Some(PageCount(excess)), Some(next / CPU_SHARE));
                let trimmed = self.trim(memory, &Turn { node, most, time, ..Turn::ALL });
                // What is in use cannot go.
                is_more |= (1..excess).contains(&trimmed.pages.0);
            }
        }
        if !is_more {
            state.moves_looked_at = moves;
        }
        state.look = next.max((thread_time() - start) * CPU_SHARE);
    }
}

/// What the thread remembers of earlier turns.
#[derive(Debug, Default)]
struct Tidying {
    /// What had moved at the last turn.
    moves: u64,
    /// The same at the last look at what is resident that left nothing to do.
    moves_looked_at: u64,
    /// Turns since something moved.
    quiet: u32,
    /// The number of the last turn.
    number: u32,
    /// Where the next one begins.
    from: usize,
    /// The time between two looks at what is resident.
    look: Duration,
}

/// Whether a node is at its low watermark or below. A node without memory never is.
fn is_low(memory: &Memory, node: NodeId) -> bool {
    let has_memory = memory.managed_pages(node).0 > 0;
    has_memory && memory.free_pages(node) <= memory.watermarks(node).low
}

/// Pages until a node is balanced: until more are free than its target, which is `high`, or `promo` with tiering.
/// `mm/vmscan.c: pgdat_balanced`, 6.12.
fn missing(memory: &Memory, node: NodeId) -> u64 {
    let marks = memory.watermarks(node);
    let target = if memory.settings().memory_tiering { marks.promo } else { marks.high };
    (target.0 + 1).saturating_sub(memory.free_pages(node).0)
}

/// The node of a limit, or of all nodes the one with the most pages in use.
fn fullest(memory: &Memory, of: LimitOf) -> Option<NodeId> {
    let nodes = memory.topology().nodes().iter().map(|node| node.id);
    match of {
        LimitOf::Node(node) => Some(node),
        LimitOf::Allocator => {
            nodes.max_by_key(|&node| memory.in_use(LimitOf::Node(node)).unwrap_or_default())
        }
    }
}

/// Keeps the locks still around a fork.
struct HeldShared(Arc<Shared>);

impl Hold for HeldShared {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the mutexes.
        let shared: &'static Shared = unsafe { &*Arc::as_ptr(&self.0) };
        Box::new((lock(&shared.shrinkers), lock(&shared.thread)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
