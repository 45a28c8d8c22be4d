//! The state of a run: clocks, lines, locks, and who is running.
//!
//! **Time.** Each CPU has a clock in picoseconds, which charges move. In virtual time the CPU whose clock is lowest
//! runs until its clock passes that of the next one *and* it comes to a point: a lock, a wait, the beginning of a
//! new piece of work ([`World::point`]). Between two points a CPU runs ahead of others by no more than what it
//! charges there, so that lines may change hands in another order than by the clocks, within that bound.
//!
//! **Locks.** Who comes to a lock that is free only later waits until then: queues are in order of arrival, since
//! who arrives earlier runs earlier. Hunting schedulers stop tasks within holds too; then others block.
//!
//! The world is found through a thread-local pointer, since locks know no platform. One run, one thread.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ptr;

use corosensei::Yielder;
use nearpage::platform::Access;
use nearpage::{CpuId, Pfn};

use crate::costs::{Costs, by_class, picoseconds};
use crate::lines::{LineCounts, Lines, Source};
use crate::machine::Machine;
use crate::scheduler::Scheduler;

/// Why a task stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Another CPU's turn.
    Preempted,
    /// Until somebody wakes it.
    Blocked,
    /// Until that time (ps), or until somebody wakes it.
    Until(u64),
    /// Until somebody wakes it; its CPU does nothing else meanwhile.
    Spins,
}

/// A task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskId(pub u32);

/// How a lock, or all of them, fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockCounts {
    /// Times taken.
    pub acquisitions: u64,
    /// Of those, times that somebody else had it.
    pub waits: u64,
    /// Time that was waited (ps), hand-over included.
    pub waited_ps: u64,
    /// The longest single wait (ps).
    pub longest_wait_ps: u64,
    /// Time that it was held (ps).
    pub held_ps: u64,
    /// The longest single hold (ps).
    pub longest_hold_ps: u64,
    /// Most CPUs that waited at once.
    pub longest_queue: u64,
}

impl LockCounts {
    /// The sum of both; the longer of the waits, holds and queues.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            acquisitions: self.acquisitions + other.acquisitions,
            waits: self.waits + other.waits,
            waited_ps: self.waited_ps + other.waited_ps,
            longest_wait_ps: self.longest_wait_ps.max(other.longest_wait_ps),
            held_ps: self.held_ps + other.held_ps,
            longest_hold_ps: self.longest_hold_ps.max(other.longest_hold_ps),
            longest_queue: self.longest_queue.max(other.longest_queue),
        }
    }
}

/// A line that a host writes and the core does not know.
#[derive(Clone, Copy, Default)]
struct HostLine {
    last_cpu: Option<u32>,
}

#[derive(Default)]
struct LockState {
    /// The task that has it now.
    holder: Option<TaskId>,
    /// Tasks that are blocked for it.
    blocked: VecDeque<TaskId>,
    /// The one of them that was woken, whose turn it is: locks are queued.
    next: Option<TaskId>,
    /// When the last hold began, and when it ended or will.
    taken_at_ps: u64,
    free_at_ps: u64,
    last_cpu: Option<u32>,
    /// When those who waited got it: who comes earlier stands behind them.
    grants_ps: VecDeque<u64>,
    counts: LockCounts,
}

/// Costs in picoseconds, by class where distance matters.
struct Prices {
    own_hit: u64,
    node_hit: u64,
    transfer: Vec<u64>,
    memory: Vec<u64>,
    atomic: u64,
    handoff: Vec<u64>,
    reread: u64,
    home_service: u64,
    load_slowdown: f64,
    page_clear: Vec<u64>,
}

impl Prices {
    fn new(costs: &Costs, classes: usize) -> Self {
        Self {
            own_hit: picoseconds(costs.own_hit_ns.value),
            node_hit: picoseconds(costs.node_hit_ns.value),
            transfer: by_class(&costs.transfer_ns.value, classes),
            memory: by_class(&costs.memory_ns.value, classes),
            atomic: picoseconds(costs.atomic_ns.value),
            handoff: by_class(&costs.handoff_ns.value, classes),
            reread: picoseconds(costs.reread_ns.value),
            home_service: picoseconds(costs.home_service_ns.value),
            load_slowdown: costs.load_slowdown.value,
            page_clear: by_class(&costs.page_clear_ns.value, classes),
        }
    }
}

/// Nobody runs: set-up and what comes after the run cost nothing.
const NOBODY: u32 = u32::MAX;

/// Lines of metadata, then those of frames, as the line table numbers them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// Address of the first byte of metadata, and bytes.
    pub(crate) metadata: (usize, usize),
    /// For each node its first byte of metadata, ascending.
    pub(crate) metadata_of_nodes: Vec<usize>,
    /// The first frame, and how many there are, holes included.
    pub(crate) frames: (u64, u64),
    /// For each node its first frame, ascending.
    pub(crate) frames_of_nodes: Vec<u64>,
}

/// The state of a run.
pub struct World {
    cpu_ids: Vec<CpuId>,
    node_of_cpu: Vec<u16>,
    /// Class of the distance, by node and node.
    class: Vec<u8>,
    nodes: usize,
    prices: Prices,
    line_shift: u32,
    frame_bytes: u64,
    layout: Layout,
    clocks: Vec<Cell<u64>>,
    /// When the last page of another node that each CPU cleared was done (ps).
    far_until: Vec<Cell<u64>>,
    current: Cell<u32>,
    task: Cell<TaskId>,
    slice_end_ps: Cell<u64>,
    /// When the executor looks at the run next ([`crate::samples`]).
    next_sample_ps: Cell<u64>,
    stops_at_touches: bool,
    yielder: Cell<*const Yielder<(), Stop>>,
    lines: RefCell<Lines>,
    line_counts: Cell<LineCounts>,
    /// When each node's memory controller is free again (ps).
    homes_free_at: RefCell<Vec<u64>>,
    host_lines: RefCell<Vec<HostLine>>,
    locks: RefCell<Vec<LockState>>,
    /// Since somebody last asked.
    longest_queue: Cell<u64>,
    locks_are_missing: Cell<bool>,
    pub(crate) scheduler: RefCell<Box<dyn Scheduler>>,
    pub(crate) woken: RefCell<Vec<(TaskId, u64)>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: Cell<*const World> = const { Cell::new(ptr::null()) };
}

/// Keeps a world installed on this thread.
pub(crate) struct Installed {
    before: *const World,
}

impl Drop for Installed {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Calls `f` with the world that is installed on this thread, if any is.
#[inline]
pub(crate) fn with_current<R>(f: impl FnOnce(&World) -> R) -> Option<R> {
    let world = CURRENT.get();
    // SAFETY: null, or a world that `Installed` keeps in place: it is not dropped before its guard, which `sim::simulate`
    // holds on this thread's stack in the same scope.
    unsafe { world.as_ref() }.map(f)
}

impl World {
    pub(crate) fn new(
        machine: &Machine,
        costs: &Costs,
        layout: Layout,
        scheduler: Box<dyn Scheduler>,
    ) -> Self {
        let classes = machine.distance_classes();
        let class_of = |distance: &u8| classes.partition_point(|class| class < distance) as u8;
        let (cpu_ids, node_of_cpu): (Vec<_>, Vec<_>) =
            machine.cpus().map(|(id, node)| (id, node as u16)).unzip();
        let (line_bytes, frame_bytes) = (costs.line_bytes.value, costs.frame_bytes.value);
        let metadata_lines = layout.metadata.1 / line_bytes as usize + 1;
        let frame_lines = layout.frames.1 * u64::from(frame_bytes) / u64::from(line_bytes) + 1;
        let lines = metadata_lines + frame_lines as usize;
        Self {
            clocks: cpu_ids.iter().map(|_| Cell::new(0)).collect(),
            far_until: cpu_ids.iter().map(|_| Cell::new(0)).collect(),
            lines: RefCell::new(Lines::new(lines, cpu_ids.len(), machine.nodes.len(), costs)),
            class: machine.distances.iter().map(class_of).collect(),
            nodes: machine.nodes.len(),
            cpu_ids,
            node_of_cpu,
            prices: Prices::new(costs, classes.len()),
            line_shift: line_bytes.trailing_zeros(),
            frame_bytes: frame_bytes.into(),
            layout,
            current: Cell::new(NOBODY),
            task: Cell::new(TaskId(0)),
            slice_end_ps: Cell::new(0),
            next_sample_ps: Cell::new(u64::MAX),
            stops_at_touches: scheduler.stops_at_touches(),
            yielder: Cell::new(ptr::null()),
            line_counts: Cell::default(),
            homes_free_at: RefCell::new(vec![0; machine.nodes.len()]),
            host_lines: RefCell::default(),
            locks: RefCell::default(),
            longest_queue: Cell::new(0),
            locks_are_missing: Cell::new(false),
            scheduler: RefCell::new(scheduler),
            woken: RefCell::default(),
        }
    }

    /// Whether a hunting scheduler is at work: each touch is a point.
    #[inline]
    pub fn is_hunted(&self) -> bool {
        self.stops_at_touches
    }

    /// Plants a bug: locks let everybody in.
    pub fn plant_missing_locks(&self) {
        self.locks_are_missing.set(true);
    }

    /// Makes this the world of this thread until the answer is dropped.
    pub(crate) fn install(&self) -> Installed {
        Installed { before: CURRENT.replace(self) }
    }

    // ---- Who runs.

    /// The running CPU, by its position among all CPUs; `None` during set-up.
    #[inline]
    pub fn running(&self) -> Option<usize> {
        let current = self.current.get();
        (current != NOBODY).then_some(current as usize)
    }

    /// The id of the running CPU; of the first one during set-up.
    #[inline]
    pub fn cpu_id(&self) -> CpuId {
        self.cpu_ids[self.running().unwrap_or(0)]
    }

    /// The position of a CPU among all CPUs.
    pub fn position(&self, cpu: CpuId) -> Option<usize> {
        self.cpu_ids.iter().position(|&id| id == cpu)
    }

    /// All CPUs.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpu_ids
    }

    /// The position of the node of a CPU.
    pub fn node_of(&self, cpu: usize) -> usize {
        self.node_of_cpu[cpu] as usize
    }

    /// Whether a node has CPUs, by position.
    pub fn has_cpus(&self, node: usize) -> bool {
        self.node_of_cpu.contains(&(node as u16))
    }

    /// The running task.
    pub fn task(&self) -> TaskId {
        self.task.get()
    }

    /// Enters a task on a CPU; the yielder is set by the task itself when it first runs.
    pub(crate) fn dispatch(&self, cpu: usize, task: TaskId, yielder: *const Yielder<(), Stop>) {
        self.current.set(cpu as u32);
        self.task.set(task);
        self.yielder.set(yielder);
        let slice_end_ps = self.scheduler.borrow().slice_end_ps();
        self.slice_end_ps.set(slice_end_ps.min(self.next_sample_ps.get()));
    }

    pub(crate) fn next_sample_ps(&self) -> u64 {
        self.next_sample_ps.get()
    }

    pub(crate) fn set_next_sample_ps(&self, ps: u64) {
        self.next_sample_ps.set(ps);
    }

    /// The most CPUs that waited for one lock at once since the last call.
    pub(crate) fn take_longest_queue(&self) -> u64 {
        self.longest_queue.take()
    }

    pub(crate) fn set_yielder(&self, yielder: &Yielder<(), Stop>) {
        self.yielder.set(yielder);
    }

    pub(crate) fn yielder(&self) -> *const Yielder<(), Stop> {
        self.yielder.get()
    }

    pub(crate) fn leave(&self) {
        self.current.set(NOBODY);
    }

    // ---- Clocks.

    #[inline]
    pub(crate) fn clock_ps(&self, cpu: usize) -> u64 {
        self.clocks[cpu].get()
    }

    pub(crate) fn set_clock_ps(&self, cpu: usize, ps: u64) {
        self.clocks[cpu].set(ps);
    }

    /// Time on the running CPU, or the latest of all during set-up and after the run.
    pub fn now_ps(&self) -> u64 {
        match self.running() {
            Some(cpu) => self.clocks[cpu].get(),
            None => self.clocks.iter().map(Cell::get).max().unwrap_or(0),
        }
    }

    /// [`now_ps`](Self::now_ps) in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ps() / 1000
    }

    /// The running CPU is busy for a while.
    #[inline]
    pub fn charge_ps(&self, ps: u64) {
        if let Some(cpu) = self.running() {
            self.clocks[cpu].set(self.clocks[cpu].get() + ps);
        }
    }

    /// The running CPU is busy for a while.
    pub fn charge_ns(&self, ns: f64) {
        self.charge_ps(picoseconds(ns));
    }

    /// The running CPU has nothing to do until then.
    pub fn idle_until_ps(&self, ps: u64) {
        if let Some(cpu) = self.running() {
            self.clocks[cpu].set(self.clocks[cpu].get().max(ps));
        }
    }

    // ---- Points.

    /// A point: who is behind runs first.
    #[inline]
    pub fn point(&self) {
        let current = self.current.get();
        if current == NOBODY || self.clocks[current as usize].get() < self.slice_end_ps.get() {
            return;
        }
        self.point_beyond_slice(current as usize);
    }

    #[inline(never)]
    fn point_beyond_slice(&self, cpu: usize) {
        let clock_ps = self.clocks[cpu].get();
        // Who was woken meanwhile may be due: the executor knows.
        let goes_on =
            self.woken.borrow().is_empty() && self.scheduler.borrow_mut().goes_on(cpu, clock_ps);
        // A stop for a sample changes nobody's turn: this CPU is the next one again.
        let is_first = || self.scheduler.borrow().earliest_ps().is_none_or(|ps| clock_ps < ps);
        let is_sampled = clock_ps >= self.next_sample_ps.get() && is_first();
        if !goes_on || is_sampled {
            self.stop(Stop::Preempted);
        }
    }

    fn stop(&self, why: Stop) {
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "only a task can wait; nobody is running");
        // SAFETY: the pointer is that of the running task's coroutine: `dispatch` and `set_yielder` set it each time
        // that a task goes on, and we are within that task.
        unsafe { (*yielder).suspend(why) };
    }

    /// The running task waits until it is woken.
    pub fn block(&self) {
        self.stop(Stop::Blocked);
    }

    /// The running task waits until that time, or until it is woken; its CPU may run others.
    pub fn sleep_until_ps(&self, ps: u64) {
        self.stop(Stop::Until(ps));
    }

    /// Wakes a blocked task.
    pub fn wake(&self, task: TaskId) {
        self.woken.borrow_mut().push((task, self.now_ps()));
        // The executor looks at the list at the next stop; whoever is woken may be due before us.
        self.slice_end_ps.set(0);
        self.point();
    }

    // ---- Lines.

    /// Class of the distance between two nodes, by position.
    #[inline]
    pub fn class(&self, from: usize, to: usize) -> usize {
        self.class[from * self.nodes + to] as usize
    }

    /// A line of metadata is touched.
    #[inline]
    pub(crate) fn touch(&self, address: usize, access: Access) {
        let (start, bytes) = self.layout.metadata;
        let offset = address.wrapping_sub(start);
        if self.current.get() == NOBODY || offset >= bytes {
            return;
        }
        let home = || self.layout.metadata_of_nodes.partition_point(|&first| first <= offset) - 1;
        self.access((offset >> self.line_shift) as u32, access, home);
    }

    /// The metadata of a page is touched.
    #[inline]
    pub(crate) fn touch_page(&self, page: Pfn, access: Access) {
        let (first, _) = self.layout.frames;
        if self.current.get() == NOBODY {
            return;
        }
        let metadata_lines = (self.layout.metadata.1 >> self.line_shift) as u64 + 1;
        let line = metadata_lines + (((page.0 - first) * self.frame_bytes) >> self.line_shift);
        self.access(line as u32, access, || self.node_of_page(page));
    }

    /// The position of the node that a page is of.
    pub fn node_of_page(&self, page: Pfn) -> usize {
        self.layout.frames_of_nodes.partition_point(|&first| first <= page.0) - 1
    }

    fn access(&self, line: u32, access: Access, home: impl Fn() -> usize) {
        let cpu = self.current.get() as usize;
        if self.stops_at_touches {
            self.point();
        }
        let node = self.node_of_cpu[cpu] as usize;
        let source = self.lines.borrow_mut().access(cpu, node, line, access);
        if source != Source::Own {
            return self.fetch(cpu, node, source, home);
        }
        let counts = self.line_counts.get();
        self.line_counts.set(LineCounts { own_hits: counts.own_hits + 1, ..counts });
        let atomic = access == Access::Atomic;
        let ps = if atomic { self.prices.atomic } else { self.prices.own_hit };
        self.clocks[cpu].set(self.clocks[cpu].get() + ps);
    }

    /// A line comes from elsewhere.
    fn fetch(&self, cpu: usize, node: usize, source: Source, home: impl Fn() -> usize) {
        let mut counts = self.line_counts.get();
        let prices = &self.prices;
        let (count, from, price) = match source {
            Source::Own | Source::Node => (&mut counts.node_hits, None, &[prices.node_hit][..]),
            Source::Owner(owner) => {
                let from = self.node_of(owner.into());
                let is_near = from == node;
                let count = if is_near { &mut counts.moved_near } else { &mut counts.moved_far };
                (count, Some(from), &*prices.transfer)
            }
            Source::Memory => {
                let from = home();
                let is_near = from == node;
                let count = if is_near { &mut counts.from_memory } else { &mut counts.moved_far };
                (count, Some(from), &*prices.memory)
            }
        };
        *count += 1;
        self.line_counts.set(counts);
        let Some(from) = from else { return self.charge_ps(price[0]) };
        let is_served = prices.home_service > 0;
        let waits = if is_served { self.home_queue_ps(cpu, home(), 1) } else { 0 };
        let class = self.class(node, from);
        self.charge_ps(waits + self.loaded(cpu, class, price[class]));
    }

    /// Waits for the memory of a node, which then is busy for so many lines.
    fn home_queue_ps(&self, cpu: usize, home: usize, lines: u64) -> u64 {
        if self.prices.home_service == 0 {
            return 0;
        }
        // A home serves in the order of clocks: who asks earlier goes first.
        self.point();
        let mut free_at = self.homes_free_at.borrow_mut();
        let now = self.clocks[cpu].get();
        let begin = free_at[home].max(now);
        free_at[home] = begin + lines * self.prices.home_service;
        begin - now
    }

    /// Clears a page: it streams through the CPU's cache.
    pub fn clear_page(&self, page: Pfn, page_bytes: u64) {
        let Some(cpu) = self.running() else { return };
        let (node, home) = (self.node_of(cpu), self.node_of_page(page));
        let waits = self.home_queue_ps(cpu, home, page_bytes >> self.line_shift);
        self.stream(page_bytes);
        let class = self.class(node, home);
        self.charge_ps(waits + self.loaded(cpu, class, self.prices.page_clear[class]));
        if class > 0 {
            self.far_until[cpu].set(self.clocks[cpu].get());
        }
    }

    /// A cost that grows with the load between nodes: with the other CPUs that clear pages of other nodes now.
    fn loaded(&self, cpu: usize, class: usize, ps: u64) -> u64 {
        if class == 0 || self.prices.load_slowdown == 0.0 {
            return ps;
        }
        let now = self.clocks[cpu].get();
        let others = self.far_until.iter().filter(|until| until.get() > now).count();
        (ps as f64 * (1.0 + self.prices.load_slowdown * others as f64)) as u64
    }

    /// So many bytes go through the cache of the running CPU's node.
    pub fn stream(&self, bytes: u64) {
        if let Some(cpu) = self.running() {
            self.lines.borrow_mut().stream(self.node_of(cpu), bytes);
        }
    }

    /// What all accesses so far did.
    pub fn line_counts(&self) -> LineCounts {
        self.line_counts.get()
    }

    /// Takes a line of the host's own exclusively, by number, for one atomic operation. Nobody waits for
    /// anybody: it is not a lock.
    pub fn take_line(&self, line: usize) {
        let Some(cpu) = self.running() else { return };
        let mut lines = self.host_lines.borrow_mut();
        if lines.len() <= line {
            lines.resize(line + 1, HostLine::default());
        }
        let HostLine { last_cpu } = lines[line];
        let now = self.clocks[cpu].get();
        let price = match last_cpu {
            Some(last) if last as usize != cpu => {
                let class = self.class(self.node_of(cpu), self.node_of(last as usize));
                self.loaded(cpu, class, self.prices.transfer[class])
            }
            _ => 0,
        };
        let end = now + price + self.prices.atomic;
        lines[line] = HostLine { last_cpu: Some(cpu as u32) };
        self.clocks[cpu].set(end);
        let mut counts = self.line_counts.get();
        *(if price > 0 { &mut counts.moved_far } else { &mut counts.own_hits }) += 1;
        self.line_counts.set(counts);
    }

    // ---- Locks.

    /// Takes a lock, whose number is in `id` (0: it has none yet).
    pub(crate) fn acquire(&self, id: &Cell<u32>) {
        let Some(cpu) = self.running() else { return };
        self.point();
        let index = self.lock_index(id);
        if self.locks_are_missing.get() {
            return;
        }
        // A CPU may be stopped within a hold: who wants the lock then is woken at the end of it, by a later clock.
        let asked = self.clocks[cpu].get();
        let me = self.task();
        loop {
            let mut locks = self.locks.borrow_mut();
            let lock = &mut locks[index];
            if lock.holder.is_none() && lock.next.is_none_or(|next| next == me) {
                break;
            }
            lock.blocked.push_back(me);
            drop(locks);
            self.stop(Stop::Spins);
        }
        let mut locks = self.locks.borrow_mut();
        let lock = &mut locks[index];
        lock.next = None;
        let now = self.clocks[cpu].get();
        while lock.grants_ps.front().is_some_and(|&granted| granted <= now) {
            lock.grants_ps.pop_front();
        }
        let begin = lock.free_at_ps.max(now);
        let waiting = (lock.grants_ps.len() + lock.blocked.len()) as u64;
        let waited = begin > asked;
        let taken = begin + self.lock_price(lock, cpu, waited, waiting);
        lock.counts.acquisitions += 1;
        if waited {
            lock.grants_ps.push_back(taken);
            lock.counts.waits += 1;
            lock.counts.waited_ps += taken - asked;
            lock.counts.longest_wait_ps = lock.counts.longest_wait_ps.max(taken - asked);
            lock.counts.longest_queue = lock.counts.longest_queue.max(waiting + 1);
            self.longest_queue.set(self.longest_queue.get().max(waiting + 1));
        }
        lock.holder = Some(self.task());
        lock.last_cpu = Some(cpu as u32);
        lock.taken_at_ps = taken;
        self.clocks[cpu].set(taken);
    }

    fn lock_index(&self, id: &Cell<u32>) -> usize {
        if id.get() == 0 {
            let mut locks = self.locks.borrow_mut();
            locks.push(LockState::default());
            id.set(locks.len() as u32);
        }
        id.get() as usize - 1
    }

    /// The cost of taking a lock once it is free.
    fn lock_price(&self, lock: &LockState, cpu: usize, waited: bool, waiting: u64) -> u64 {
        let Some(last) = lock.last_cpu else { return self.prices.atomic };
        if last as usize == cpu {
            return self.prices.atomic;
        }
        let class = self.class(self.node_of(cpu), self.node_of(last as usize));
        if waited {
            self.prices.handoff[class] + waiting * self.prices.reread
        } else {
            self.prices.transfer[class] + self.prices.atomic
        }
    }

    /// Ends a hold.
    pub(crate) fn release(&self, id: &Cell<u32>) {
        let Some(cpu) = self.running() else { return };
        let woken = {
            let mut locks = self.locks.borrow_mut();
            let lock = &mut locks[id.get() as usize - 1];
            lock.holder = None;
            lock.free_at_ps = self.clocks[cpu].get();
            let held_ps = lock.free_at_ps.saturating_sub(lock.taken_at_ps);
            lock.counts.held_ps += held_ps;
            lock.counts.longest_hold_ps = lock.counts.longest_hold_ps.max(held_ps);
            let woken = lock.blocked.pop_front();
            // Where all interleavings are looked for, whoever comes first may take it.
            lock.next = woken.filter(|_| !self.stops_at_touches);
            woken
        };
        if let Some(task) = woken {
            self.wake(task);
        }
        if self.stops_at_touches {
            self.point();
        }
    }

    /// How all locks fared together.
    pub fn lock_counts(&self) -> LockCounts {
        let locks = self.locks.borrow();
        locks.iter().fold(LockCounts::default(), |sum, lock| sum.plus(lock.counts))
    }

    /// How one lock fared.
    pub(crate) fn counts_of(&self, id: u32) -> LockCounts {
        let locks = self.locks.borrow();
        (id as usize).checked_sub(1).map_or_else(LockCounts::default, |at| locks[at].counts)
    }
}
