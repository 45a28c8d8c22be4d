//! Sheaves and barns: how a CPU gets a full sheaf, and what becomes of one that is full. Facts 9.9.
//!
//! A CPU has a *main* and a *spare* sheaf. An allocation pops from main; an empty main changes places with a full
//! spare. A free pushes to main; a full main changes places with an empty spare. So the spare is always full or empty,
//! and both together are one stack of two sheaves whose lower half is the spare while that is full. The CPU's stack is
//! that stack: its limit is two sheaves, and the fast path is the same under all rules. The naive model of the tests has
//! two sheaves that change places, and gives the same addresses.
//!
//! An empty stack gets a full sheaf from the barn of the CPU's node, else a sheaf's worth of objects from slabs. A full
//! stack gives its upper half, which is main, to the barn; if the barn is full, or there is none, to the slabs. A freed
//! object of another node than the CPU's goes past all that, to its slab, one by one under the lock of the node's lists.
//!
//! What differs from Linux: a sheaf is an array in the metadata, so it is never lacking, and empty ones are not kept.
//! Sheaves and barns that nobody uses are reaped, as stacks are. Slabs are those of `slab-2010`: a freed object is put
//! back under the list lock, where Linux needs that lock only for the first and the last free object of a slab. Sheaves
//! that wait for a grace period (`kfree_rcu`) are not there.

use nearpage::platform::{Lock, Storage};
use nearpage::{Gfp, NodeIndex};

use crate::allocator::SlabAllocator;
use crate::barn::Barn;
use crate::cpu::{CpuStack, SlabCpu};
use crate::events::NodeEvents;
use crate::place::Cache;
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tunables::{BARN_SHEAVES, SHEAF_MAX, Tunables};

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// The barn of a node, if it has one now.
    fn barn(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
    ) -> Option<<P::Lock<Barn> as Lock<Barn>>::Guard<'m>> {
        let place = cache.node(node);
        let barn = place.barn().filter(|_| self.rules.has_barn(self.has_memory(node)))?.lock();
        NodeEvents::add(&place.events.barn_locks, 1);
        Some(barn)
    }

    /// Whether a node has memory that slabs may lie in.
    pub(super) fn has_memory(&self, node: NodeIndex) -> bool {
        self.pages.memory_node(node) == Some(node)
    }

    /// An object for a CPU whose sheaves are empty: of a full sheaf from the barn, else of a sheaf's worth of objects from
    /// slabs: those of its node, a new one there, those of other nodes, a new one anywhere. `None` if the request has to
    /// take one object by itself.
    pub(super) fn next_sheaf(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Option<u32> {
        if let Some(entry) = self.sheaf_from_barn(cache, cpu, node) {
            return Some(entry);
        }
        if !self.rules.refills(gfp.contains(Gfp::DIRECT_RECLAIM)) {
            return None;
        }
        if self.has_memory(node) {
            let here = self.refill(cache, cpu, node, node, None).or_else(|| {
                let slab = self.grow(cache, node, gfp).ok()?;
                self.refill(cache, cpu, node, node, Some(slab))
            });
            if here.is_some() {
                return here;
            }
        }
        if gfp.contains(Gfp::THISNODE) { None } else { self.sheaf_from_afar(cache, cpu, node, gfp) }
    }

    fn sheaf_from_barn(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        node: NodeIndex,
    ) -> Option<u32> {
        let mut sheaf = [0; SHEAF_MAX];
        let mut barn = self.barn(cache, node)?;
        barn.touched = true;
        let got = barn.take(&mut sheaf);
        drop(barn);
        self.fill_stack(cache, cpu, node, got)
    }

    fn sheaf_from_afar(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Option<u32> {
        let others = self.pages.fallback_zones(node).map(|zone| zone.node());
        for other in others.filter(|&other| other != node) {
            if cache.node(other).has_objects()
                && let Some(entry) = self.refill(cache, cpu, node, other, None)
            {
                return Some(entry);
            }
        }
        let (slab, from) = self.new_slab(cache, node, Self::gfp_of_pages(cache, gfp)).ok()?;
        self.refill(cache, cpu, node, from, Some(slab))
    }

    /// Moves the upper half of a CPU's full stack, its main sheaf, to the barn of its node, or to the slabs. Nothing
    /// if the CPU has got another node meanwhile.
    pub(super) fn flush_sheaf(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        stack: &CpuStack<'m, P>,
        node: NodeIndex,
    ) {
        let mut sheaf = [0; SHEAF_MAX];
        let Some(on) = self.storage().enter(cpu.id, &cpu.exclusion) else { return };
        if stack.tag() != cache.tag(node) {
            return;
        }
        let most = (cache.batch() as usize).min(SHEAF_MAX);
        let mut barn = self.barn(cache, node).filter(|barn| barn.has_room());
        let taken = self.storage().pop_objects(&on, &stack.stack, &mut sheaf[..most]);
        let main = &mut sheaf[..taken];
        main.reverse();
        // Another thread of this CPU may have left less than a sheaf.
        let is_full = taken == most;
        if let Some(barn) = barn.as_mut().filter(|_| is_full) {
            barn.put(main);
        }
        let is_stored = is_full && barn.is_some();
        drop(barn);
        drop(on);
        if let Some(events) = self.events_of(cache, cpu.id) {
            events.flushes.add(1);
            // These were no allocations.
            events.pops_before.add(taken as u64);
        }
        if !is_stored {
            self.give_home(cache, main);
        }
    }

    /// A freed object of another node than the CPU's: past the sheaves, to its slab.
    pub(super) fn bypass(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        home: NodeIndex,
        entry: u32,
    ) {
        let here = &cache.node(cpu.effective()).events;
        NodeEvents::add(&here.bypasses, 1);
        if let Some(events) = self.events_of(cache, cpu.id) {
            events.free_misses.add(1);
        }
        self.give(cache, self.code_of(cache), home, &[entry]);
    }

    /// Says how many sheaves of how many objects a node's barn keeps. Sheaves of another size go home.
    pub(super) fn limit_barn(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        sheaves: u32,
        objects: u32,
    ) {
        let Some(barn) = cache.node(node).barn() else { return };
        let mut barn = barn.lock();
        barn.limit = sheaves.min(BARN_SHEAVES as u32);
        let is_stale = barn.sheaves().any(|sheaf| sheaf.len() != objects as usize);
        drop(barn);
        if is_stale {
            self.empty_barn(cache, node);
        }
    }

    /// Brings the objects of a node's barn home, as many sheaves as it holds at first.
    pub(super) fn empty_barn(&self, cache: &Cache<'m, P>, node: NodeIndex) {
        let Some(barn) = cache.node(node).barn() else { return };
        let full = barn.lock().len();
        self.take_from_barn(cache, node, full);
    }

    /// A round of reaping: a fifth of a barn that nobody took from goes home.
    pub(super) fn reap_barn(&self, cache: &Cache<'m, P>, node: NodeIndex) {
        let Some(place) = cache.node(node).barn() else { return };
        let mut barn = place.lock();
        let is_used = core::mem::take(&mut barn.touched);
        let most = Tunables::reaped(barn.limit, barn.len() as u32) as usize;
        drop(barn);
        if !is_used {
            self.take_from_barn(cache, node, most);
        }
    }

    fn take_from_barn(&self, cache: &Cache<'m, P>, node: NodeIndex, sheaves: usize) {
        let Some(barn) = cache.node(node).barn() else { return };
        for _ in 0..sheaves {
            let mut sheaf = [0; SHEAF_MAX];
            let taken = barn.lock().take_oldest(&mut sheaf).len();
            self.give_home(cache, &sheaf[..taken]);
        }
    }
}

#[cfg(test)]
mod tests;
