//! What stacks may keep: limits by object size, and a byte budget over all caches.
//!
//! The budget of the pagesets ([`pageset_budget_kbytes`](nearpage::Settings::pageset_budget_kbytes)) covers
//! the stacks of objects too: they may have half of it, dealt out in proportion to what the sizes alone would
//! allow, and the pagesets what is left. Like the pagesets' it is dealt out when caches come and go, so that no
//! counter is shared.

use core::sync::atomic::Ordering;

use nearpage::PageCount;
use nearpage::platform::{CountedList, Lock};

use crate::allocator::SlabAllocator;
use crate::barn::Barn;
use crate::cpu::{CpuStack, SlabCpu};
use crate::geometry::Geometry;
use crate::place::{Cache, CacheInfo, Registry};
use crate::platform::SlabPlatform;
use crate::reap::StacksBusy;
use crate::tunables::{Tunables, part_for};

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// The most bytes that all stacks keep.
    pub fn stack_bytes_max(&self) -> u64 {
        let bytes = |(_, info): (_, CacheInfo)| self.bytes_of(&info.tunables, &info.geometry);
        self.live_caches().map(bytes).sum()
    }

    /// Deals the budget out anew, and brings home what stacks hold above their new limits: to be called after the settings
    /// of the page allocator changed. The next round of reaping would notice too.
    ///
    /// # Errors
    /// [`StacksBusy`] of the first CPU whose stacks could not be had: what it holds above its limit goes home as
    /// it frees, or with the next call.
    pub fn apply_budget(&self) -> Result<(), StacksBusy> {
        self.deal_out_budget(&mut self.registry.lock())
    }

    fn bytes_of(&self, tunables: &Tunables, geometry: &Geometry) -> u64 {
        let cpus = self.cpus_on().count() as u64;
        tunables.most_kept(cpus, self.node_count() as u64) * geometry.size as u64
    }

    pub(super) fn deal_out_budget(&self, registry: &mut Registry) -> Result<(), StacksBusy> {
        registry.budget_kbytes = self.pages.settings().pageset_budget_kbytes;
        let page_bytes = 1 << self.frames.page_shift;
        let (cpus, nodes) = (self.cpu_count as usize, self.node_count());
        let full = |info: &CacheInfo| {
            Tunables::of(self.rules, info.geometry.size, cpus, nodes, page_bytes)
        };
        let wanted =
            self.live_caches().map(|(_, info)| self.bytes_of(&full(&info), &info.geometry));
        let wanted: u64 = wanted.sum();
        let pages = PageCount(wanted.div_ceil(page_bytes as u64));
        let granted = self.pages.share_budget(pages).to_bytes(self.frames.page_shift).min(wanted);
        let kept = |part| {
            let scaled = |info: &CacheInfo| full(info).scaled(part, wanted);
            self.live_caches().map(|(_, info)| self.bytes_of(&scaled(&info), &info.geometry)).sum()
        };
        let part = part_for(granted, wanted, kept);
        for (cache, info) in self.live_caches() {
            let tunables = full(&info).scaled(part, wanted);
            *cache.info.lock() = Some(CacheInfo { tunables, ..info });
            self.set_tunables(cache, &tunables, &info.geometry);
        }
        self.each_cpu(|cpu| self.trim_stacks(cpu))
    }

    /// Brings home what a CPU's stacks hold above their limits.
    fn trim_stacks(&self, cpu: &'m SlabCpu<P>) -> Result<(), StacksBusy> {
        let excess = |stack: &CpuStack<'m, P>| {
            let held = stack.stack.counts().count;
            held.saturating_sub(stack.stack.limit())
        };
        if self.caches.iter().all(|cache| excess(&cache.stacks[cpu.id.0 as usize]) == 0) {
            return Ok(());
        }
        self.with_stopped(cpu, |on, cache, stack| {
            self.flush_stack(on, cache, stack, excess(stack));
        })
    }

    fn set_tunables(&self, cache: &Cache<'m, P>, tunables: &Tunables, geometry: &Geometry) {
        cache.batch.store(tunables.batch, Ordering::Relaxed);
        for (stack, cpu) in cache.stacks.iter().zip(self.cpus) {
            let is_on = cpu.as_ref().is_some_and(SlabCpu::is_on);
            stack.stack.set_limit(if is_on { tunables.limit } else { 0 });
        }
        for (index, node) in self.node_indexes().zip(cache.nodes) {
            let mut lists = node.look();
            lists.shared_limit = tunables.shared_limit();
            lists.free_limit = tunables.free_limit(self.cpus_of(index) as u32, geometry.objects);
            let is_over = lists.shared().len() > lists.shared_limit as usize;
            drop(lists);
            if is_over {
                self.empty_shared(cache, index);
            }
            self.limit_barn(cache, index, tunables.barn_sheaves, tunables.batch);
            for (home, alien) in node.aliens() {
                let mut alien = alien.lock();
                alien.limit = if home == index { 0 } else { tunables.alien_limit };
                let is_over = alien.entries().len() > alien.limit as usize;
                drop(alien);
                if is_over {
                    self.drain_alien(cache, index, home);
                }
            }
        }
    }

    /// Makes the nodes of a place ready for a new cache.
    pub(super) fn begin_nodes(&self, cache: &Cache<'m, P>, geometry: &Geometry) {
        for node in cache.nodes {
            let mut lists = node.look();
            lists.begin(*geometry);
            drop(lists);
            if let Some(barn) = node.barn() {
                *barn.lock() = Barn::new();
            }
            node.begin_colours();
            node.events.begin();
        }
    }
}
