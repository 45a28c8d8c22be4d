//! Upkeep: stacks and slabs that nobody uses go back. Facts 9.5, 9.7.
//!
//! A host calls [`SlabAllocator::reap_cpu`] for each CPU every [`REAP_PERIOD_NS`], and
//! [`SlabAllocator::shrink_all`] when memory is short.

use core::fmt;
use core::sync::atomic::Ordering;

use nearpage::platform::{CountedList, Lock};
use nearpage::{
    CpuError, CpuId, NodeAccess, NodeId, NodeIndex, OfflineError, OnlineError, PageAllocator,
    PageCount, PfnRange, UnknownNode,
};

use crate::allocator::SlabAllocator;
use crate::cpu::{CpuStack, SlabCpu, is_touched};
use crate::hold::StoppedStacks;
use crate::lists::Few;
use crate::place::{Cache, KmemCache, Registry};
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tunables::{ALIEN_MAX, BATCH_MAX, SHARED_MAX, Tunables};

/// Between two rounds of a CPU. `mm/slab.c: REAPTIMEOUT_CPUC`.
pub const REAP_PERIOD_NS: u64 = 2_000_000_000;
/// Between two rounds of a node's shared stack and free slabs. `mm/slab.c: REAPTIMEOUT_LIST3`.
const REAP_LISTS_NS: u64 = 4_000_000_000;

/// The stacks of a CPU could not be had: another thread has stopped them, or the host may not stop that CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StacksBusy {
    /// The CPU.
    pub cpu: CpuId,
}

impl fmt::Display for StacksBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the object stacks of CPU {} cannot be emptied now: another thread empties them, or the kernel \
             refuses to stop what runs there",
            self.cpu
        )
    }
}

impl core::error::Error for StacksBusy {}

/// From now on only what comes counts as use of a stack.
fn untouch<P: SlabPlatform>(stack: &CpuStack<'_, P>) {
    stack.refilled.store(0, Ordering::Relaxed);
    stack.pops_reaped.set(stack.stack.counts().pops);
}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// One round of reaping for a CPU: of each cache, one alien stack goes home, a fifth of a stack that nobody
    /// took from goes back, and so do free slabs that nobody used. `mm/slab.c: cache_reap`. The turn of a node that no
    /// CPU looks to, which Linux never reaps, comes with its alien stack. A CPU whose node changed, or that was
    /// switched on or off, is dealt with first, and so is a new budget.
    ///
    /// # Errors
    /// [`StacksBusy`]. A CPU that the topology does not have has no stacks, and one that is off none to reap.
    pub fn reap_cpu(&self, cpu: CpuId) -> Result<(), StacksBusy> {
        let Some(Some(cpu)) = self.cpus.get(cpu.0 as usize) else { return Ok(()) };
        let mut registry = self.registry.lock();
        let budget_kbytes = self.pages.settings().pageset_budget_kbytes;
        if self.refresh_cpu(cpu)? || registry.budget_kbytes != budget_kbytes {
            self.settle_nodes(&mut registry)?;
        }
        if !cpu.is_on() {
            return Ok(());
        }
        let node = cpu.effective();
        let reap_node = NodeIndex(cpu.reap_node.load(Ordering::Relaxed));
        let next = (reap_node.0 as usize + 1) % self.node_count();
        cpu.reap_node.store(next as u16, Ordering::Relaxed);
        let is_unattended = self.cpus_of(reap_node) == 0;
        for (cache, _) in self.live_caches() {
            self.drain_alien(cache, node, reap_node);
            self.reap_lists(cache, node);
            if is_unattended {
                self.drain_aliens(cache, reap_node);
                self.reap_lists(cache, reap_node);
            }
        }
        self.reap_stacks(cpu)
    }

    fn reap_stacks(&self, cpu: &'m SlabCpu<P>) -> Result<(), StacksBusy> {
        let stacks = || self.live_caches().map(|(cache, _)| &cache.stacks[cpu.id.0 as usize]);
        let held = |stack: &CpuStack<'m, P>| stack.stack.counts().count;
        // Most CPUs are either busy or empty: neither needs to be stopped.
        if !stacks().any(|stack| !is_touched(stack) && held(stack) > 0) {
            stacks().for_each(untouch);
            return Ok(());
        }
        self.with_stopped(cpu, |on, cache, stack| {
            let limit = stack.stack.limit();
            if is_touched(stack) {
                untouch(stack);
            } else {
                self.flush_stack(on, cache, stack, Tunables::reaped(limit, held(stack)));
            }
        })
    }

    /// Stops a CPU and calls `each` with each of its stacks that may hold something.
    pub(super) fn with_stopped(
        &self,
        cpu: &'m SlabCpu<P>,
        each: impl Fn(
            &<P::Storage as nearpage::platform::Storage>::OnCpu<'_>,
            &'m Cache<'m, P>,
            &'m CpuStack<'m, P>,
        ),
    ) -> Result<(), StacksBusy> {
        self.stop(cpu)?.each(each);
        Ok(())
    }

    /// Waits a while for whoever has the CPU's stacks.
    fn stop<'s>(&'s self, cpu: &'m SlabCpu<P>) -> Result<StoppedStacks<'s, 'm, P>, StacksBusy> {
        const TRIES: u32 = 10_000;
        for _ in 0..TRIES {
            if let Some(stopped) = StoppedStacks::stop(self.storage(), self.caches, cpu) {
                return Ok(stopped);
            }
            self.pages.platform().relax();
        }
        Err(StacksBusy { cpu: cpu.id })
    }

    /// Brings up to `most` of the oldest objects of a stopped CPU's stack home to their slabs.
    pub(super) fn flush_stack(
        &self,
        on: &<P::Storage as nearpage::platform::Storage>::OnCpu<'_>,
        cache: &Cache<'m, P>,
        stack: &CpuStack<'m, P>,
        most: u32,
    ) {
        let mut left = most as usize;
        let mut oldest = [0; BATCH_MAX];
        while left > 0 {
            let want = left.min(BATCH_MAX);
            let taken = self.storage().pop_oldest(on, &stack.stack, &mut oldest[..want]);
            if taken == 0 {
                break;
            }
            self.give_home(cache, &oldest[..taken]);
            left -= taken;
        }
    }

    /// Brings all objects of all stacks of CPUs home: to be called before zonelists change. Meanwhile threads go
    /// on; what they put onto stacks after that is brought home by [`refresh_nodes`](Self::refresh_nodes), where
    /// it must.
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had; the others are empty.
    pub fn flush_stacks(&self) -> Result<(), StacksBusy> {
        self.flush_all(&self.registry.lock())
    }

    fn flush_all(&self, _registry: &Registry) -> Result<(), StacksBusy> {
        self.each_cpu(|cpu| {
            self.with_stopped(cpu, |on, cache, stack| {
                self.flush_stack(on, cache, stack, u32::MAX);
            })
        })
    }

    pub(super) fn each_cpu(
        &self,
        act: impl Fn(&'m SlabCpu<P>) -> Result<(), StacksBusy>,
    ) -> Result<(), StacksBusy> {
        let mut busy = Ok(());
        for cpu in self.cpus.iter().flatten() {
            busy = busy.and(act(cpu));
        }
        busy
    }

    /// Computes the effective nodes of all CPUs anew, and which of them are on: to be called after zonelists changed, and
    /// after CPUs were switched. Stacks of CPUs whose node is another one now, or that are off, are emptied; so are
    /// shared and alien stacks of nodes that no CPU looks to, whose free slabs go back.
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had; it keeps its node until the next call, or until it
    /// is [reaped](Self::reap_cpu).
    pub fn refresh_nodes(&self) -> Result<(), StacksBusy> {
        let mut registry = self.registry.lock();
        let refreshed = self.each_cpu(|cpu| self.refresh_cpu(cpu).map(drop));
        refreshed.and(self.settle_nodes(&mut registry))
    }

    /// Empties the stacks of a CPU if its node is another one now, or if it was switched on or off; returns whether.
    fn refresh_cpu(&self, cpu: &'m SlabCpu<P>) -> Result<bool, StacksBusy> {
        let (node, is_on) = (self.effective_of(cpu.node), self.pages.is_cpu_on(cpu.id));
        if (node, is_on) == (cpu.effective(), cpu.is_on()) {
            return Ok(false);
        }
        self.with_stopped(cpu, |on, cache, stack| {
            // Before the CPU goes on: else it would fill its stacks, from the node that it had.
            if !is_on {
                stack.stack.set_limit(0);
            }
            cpu.is_on.store(is_on, Ordering::Relaxed);
            cpu.effective.store(node.0, Ordering::Relaxed);
            self.flush_stack(on, cache, stack, u32::MAX);
            stack.tag.store(cache.tag(node).0, Ordering::Relaxed);
        })?;
        Ok(true)
    }

    /// What follows from the nodes of CPUs: limits, and nodes that no CPU looks to keep nothing ready.
    fn settle_nodes(&self, registry: &mut Registry) -> Result<(), StacksBusy> {
        let dealt_out = self.deal_out_budget(registry);
        let is_without_barn = |&node: &NodeIndex| !self.rules.has_barn(self.has_memory(node));
        for node in self.node_indexes().filter(is_without_barn) {
            self.live_caches().for_each(|(cache, _)| self.empty_barn(cache, node));
        }
        for node in self.node_indexes().filter(|&node| self.cpus_of(node) == 0) {
            for (cache, _) in self.live_caches() {
                self.drain_aliens(cache, node);
                self.shrink_node(cache, node);
            }
        }
        dealt_out
    }

    /// Switches a CPU off with all that follows for objects: its stacks are emptied and not used until it is on again, and
    /// a node that it was the last CPU of keeps no free objects. As [`PageAllocator::offline_cpu`], whose pages are
    /// returned. Stacks that cannot be had just then are emptied when the CPU is [reaped](Self::reap_cpu).
    ///
    /// # Errors
    /// [`CpuError`]; nothing is changed then.
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<PageCount, CpuError> {
        let pages = self.pages.offline_cpu(cpu)?;
        let _ = self.refresh_nodes();
        Ok(pages)
    }

    /// Switches a CPU on again, with its stacks.
    ///
    /// # Errors
    /// [`CpuError`]; nothing is changed then.
    pub fn online_cpu(&self, cpu: CpuId) -> Result<(), CpuError> {
        self.pages.online_cpu(cpu)?;
        let _ = self.refresh_nodes();
        Ok(())
    }

    /// Brings memory online with all that follows for objects: stacks are emptied, zonelists made, effective nodes
    /// computed. As [`PageAllocator::online_all`](nearpage::PageAllocator::online_all).
    ///
    /// # Errors
    /// [`OnlineError`] of the page allocator. A CPU whose stacks cannot be had keeps its node until
    /// [`refresh_nodes`](Self::refresh_nodes) is called again.
    pub fn online_all(&self, ranges: &[PfnRange]) -> Result<PageCount, OnlineError> {
        let _ = self.flush_stacks();
        let online = self.pages.online_all(ranges)?;
        let _ = self.refresh_nodes();
        Ok(online)
    }

    /// Says who may use the memory of a node, with all that follows for objects: what stacks hold goes home before, and
    /// effective nodes are computed after. As [`PageAllocator::set_access`].
    ///
    /// # Errors
    /// [`UnknownNode`]; nothing is changed then.
    pub fn set_access(&self, node: NodeId, access: NodeAccess) -> Result<(), UnknownNode> {
        // Stacks that cannot be had are emptied when their CPU gets another node.
        let _ = self.flush_stacks();
        self.pages.set_access(node, access)?;
        let _ = self.refresh_nodes();
        Ok(())
    }

    /// Takes memory offline with all that follows for objects: free ones are brought home and free slabs given back,
    /// and effective nodes computed after. As [`PageAllocator::offline_all`](
    /// nearpage::PageAllocator::offline_all).
    ///
    /// # Errors
    /// [`OfflineError`] of the page allocator: a slab with an object in use is in use.
    pub fn offline_all(&self, ranges: &[PfnRange]) -> Result<PageCount, OfflineError> {
        self.around_offline(|pages| pages.offline_all(ranges))
    }

    /// Takes all memory of a node offline, likewise.
    ///
    /// # Errors
    /// [`OfflineError`] of the page allocator.
    pub fn offline_node(&self, node: NodeId) -> Result<PageCount, OfflineError> {
        self.around_offline(|pages| pages.offline_node(node))
    }

    fn around_offline(
        &self,
        offline: impl FnOnce(&PageAllocator<'m, P>) -> Result<PageCount, OfflineError>,
    ) -> Result<PageCount, OfflineError> {
        self.shrink_all();
        let pages = offline(self.pages)?;
        // A CPU whose stacks cannot be had keeps its node until the next call.
        let _ = self.refresh_nodes();
        Ok(pages)
    }

    /// Brings the objects of an alien stack home.
    pub(super) fn drain_alien(&self, cache: &Cache<'m, P>, here: NodeIndex, home: NodeIndex) {
        let mut entries = [0; ALIEN_MAX];
        let Some(alien) = cache.node(here).alien(home) else { return };
        let mut alien = alien.lock();
        let len = alien.entries().len();
        entries[..len].copy_from_slice(alien.entries());
        alien.clear();
        drop(alien);
        if len > 0 {
            self.bring_home(cache, self.code_of(cache), home, &entries[..len]);
        }
    }

    /// Brings the objects of all alien stacks of a node home.
    fn drain_aliens(&self, cache: &Cache<'m, P>, here: NodeIndex) {
        for (home, _) in cache.node(here).aliens() {
            self.drain_alien(cache, here, home);
        }
    }

    /// A node's shared stack and free slabs, if their time has come.
    fn reap_lists(&self, cache: &Cache<'m, P>, node: NodeIndex) {
        let now = self.pages.platform().now_ns();
        let mut shared = [0; SHARED_MAX];
        let mut emptied = Few::new();
        let mut lists = cache.node(node).lock();
        if now < lists.next_reap_ns {
            return;
        }
        lists.next_reap_ns = now + REAP_LISTS_NS;
        let mut taken = 0;
        if !core::mem::take(&mut lists.shared_touched) {
            let most = Tunables::reaped(lists.shared_limit, lists.shared().len() as u32) as usize;
            taken = lists.take_shared_oldest(&mut shared[..most]);
        }
        if !core::mem::take(&mut lists.free_touched) {
            let objects = lists.geometry.objects.max(1);
            let most = lists.free_limit.div_ceil(5 * objects);
            lists.take_free_slabs(self.descriptors, most as usize, &mut emptied);
        }
        let order = lists.geometry.order;
        drop(lists);
        self.give_home(cache, &shared[..taken]);
        self.free_slabs(cache, node, order, emptied.as_slice());
        self.reap_barn(cache, node);
    }

    /// Brings all free objects of a cache home and gives its free slabs back; returns pages.
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had; all else went back.
    pub fn shrink(&self, cache: &KmemCache<'m, P>) -> Result<PageCount, StacksBusy> {
        self.shrink_cache(cache.cache)
    }

    pub(super) fn shrink_cache(&self, cache: &Cache<'m, P>) -> Result<PageCount, StacksBusy> {
        self.shrink_alone(&self.registry.lock(), cache)
    }

    /// With the registry, so that no other upkeep has a CPU's stacks for longer than this waits.
    pub(super) fn shrink_alone(
        &self,
        _registry: &Registry,
        cache: &Cache<'m, P>,
    ) -> Result<PageCount, StacksBusy> {
        let stopped = self.each_cpu(|cpu| {
            let stack = &cache.stacks[cpu.id.0 as usize];
            if stack.stack.counts().count == 0 {
                return Ok(());
            }
            self.with_stopped(cpu, |on, other, stack| {
                if other.index == cache.index {
                    self.flush_stack(on, other, stack, u32::MAX);
                }
            })
        });
        let pages = self.shrink_nodes(cache);
        stopped.map(|()| pages)
    }

    /// Brings all free objects of all caches home and gives all free slabs back; returns pages. May be called by
    /// a host that is asked for memory ([`Platform::direct_reclaim`](nearpage::platform::Platform::direct_reclaim)).
    pub fn shrink_all(&self) -> PageCount {
        let registry = self.registry.lock();
        // A CPU that another thread stops just now is emptied by it.
        let _ = self.flush_all(&registry);
        let pages = self.live_caches().map(|(cache, _)| self.shrink_nodes(cache).0);
        PageCount(pages.sum())
    }

    pub(super) fn shrink_nodes(&self, cache: &Cache<'m, P>) -> PageCount {
        // Before any slabs: objects come home to other nodes.
        for node in self.node_indexes() {
            self.drain_aliens(cache, node);
            self.empty_barn(cache, node);
        }
        let slabs: u64 = self.node_indexes().map(|node| self.shrink_node(cache, node)).sum();
        PageCount(slabs << cache.geometry.get().order.0)
    }

    fn shrink_node(&self, cache: &Cache<'m, P>, node: NodeIndex) -> u64 {
        let before = cache.node(node).events.reaped.load(Ordering::Relaxed);
        self.empty_shared(cache, node);
        self.empty_barn(cache, node);
        // What others free meanwhile may stay, so that this ends.
        let mut left = cache.node(node).look().free.len() as usize;
        while left > 0 {
            let mut emptied = Few::new();
            let mut lists = cache.node(node).lock();
            lists.take_free_slabs(self.descriptors, left.min(BATCH_MAX), &mut emptied);
            let order = lists.geometry.order;
            drop(lists);
            if emptied.as_slice().is_empty() {
                break;
            }
            left -= emptied.as_slice().len();
            self.free_slabs(cache, node, order, emptied.as_slice());
        }
        cache.node(node).events.reaped.load(Ordering::Relaxed) - before
    }

    /// Brings the objects of a node's shared stack home, as many as it holds at first.
    pub(super) fn empty_shared(&self, cache: &Cache<'m, P>, node: NodeIndex) {
        let mut left = cache.node(node).look().shared().len();
        while left > 0 {
            let mut shared = [0; BATCH_MAX];
            let most = left.min(BATCH_MAX);
            let taken = cache.node(node).lock().take_shared(&mut shared[..most]);
            if taken == 0 {
                break;
            }
            left -= taken;
            self.give_home(cache, &shared[..taken]);
        }
    }
}
