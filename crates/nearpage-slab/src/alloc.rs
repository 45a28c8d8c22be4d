//! Allocation: this CPU's stack, then a batch from its node, then a new slab, then other nodes. Facts 9.3.

use core::sync::atomic::Ordering;

use nearpage::platform::{Access, Storage};
use nearpage::{
    Address, AllocError, FrameState, FreeError, Gfp, NodeId, NodeIndex, Order, Request,
};

use crate::allocator::SlabAllocator;
use crate::config::NOT_FOR_SLABS;
use crate::cpu::{CpuStack, SlabCpu, is_touched};
use crate::entry::EntryCode;
use crate::events::{NodeEvents, RemoteReason};
use crate::place::{Cache, KmemCache};
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tag::{Owner, Tag, owner_in};
use crate::tunables::{BATCH_IDLE, BATCH_MAX};

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// Allocates an object near the CPU that asks. Its memory is not touched: who sees it clears it if `gfp` has
    /// `__GFP_ZERO`, as with pages.
    ///
    /// # Errors
    /// [`AllocError`] of the pages for a new slab.
    #[inline(always)]
    pub fn alloc(&self, cache: &KmemCache<'m, P>, gfp: Gfp) -> Result<Address, AllocError> {
        let storage = self.storage();
        let cpu = storage.current_cpu();
        if let Some(stack) = cache.stacks.get(cpu.0 as usize)
            && let Some(on) = storage.enter(cpu, stack.exclusion)
            && let Some(entry) = storage.pop_object(&on, &stack.stack).frame()
        {
            if P::HARDENED {
                self.hand_out(cache.cache, entry);
            }
            return Ok(cache.code.address(entry));
        }
        self.alloc_slow(cache.cache, gfp)
    }

    /// Allocates an object on a node: as [`alloc`](Self::alloc) if that is the effective node of this CPU. With
    /// `__GFP_THISNODE` it comes from no other; without, nothing comes from a [private](nearpage::NodeAccess::Private)
    /// node, as with pages: unless all nodes are private, when what partial slabs have is given still.
    ///
    /// # Errors
    /// [`AllocError`] of the pages for a new slab, or of the node.
    pub fn alloc_node(
        &self,
        cache: &KmemCache<'m, P>,
        gfp: Gfp,
        node: NodeId,
    ) -> Result<Address, AllocError> {
        let index = self.pages.topology().index_of(node).ok_or(AllocError::UnknownNode { node })?;
        let is_open = gfp.contains(Gfp::THISNODE) || self.pages.memory_node(index).is_some();
        let index = if is_open { index } else { self.effective_of(index) };
        let is_here = || self.this_cpu().is_some_and(|cpu| cpu.effective() == index);
        // No object of sheaves fits a node that none can be of.
        let may_fit = !self.rules.has_sheaves() || self.has_memory(index);
        if may_fit && is_here() {
            let object = self.alloc(cache, gfp);
            // Meanwhile the thread may have moved to a CPU of another node.
            let is_right = match object {
                Ok(object) => self.is_on(object, index),
                Err(_) => is_here(),
            };
            // What lies in sheaves may be of any node.
            let is_strict = gfp.contains(Gfp::THISNODE) || self.rules.has_sheaves();
            if is_right || !is_strict {
                return object;
            }
            if let Ok(object) = object {
                self.free(cache, object).expect("it was just given out");
            }
        }
        let entry = self.alloc_on(cache.cache, index, gfp, RemoteReason::Asked)?;
        Ok(self.handed_out(cache.cache, entry))
    }

    /// Whether an object lies on a node.
    fn is_on(&self, object: Address, node: NodeIndex) -> bool {
        let note = self.pages.note(object.to_pfn(self.frames.page_shift));
        note.is_some_and(|note| Tag::of(note).node() == node)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, cache: &Cache<'m, P>, gfp: Gfp) -> Result<Address, AllocError> {
        let Some(cpu) = self.this_cpu() else {
            let node = self.effective_of(self.pages.this_node());
            let entry = self.alloc_on(cache, node, gfp, RemoteReason::Exhausted)?;
            return Ok(self.handed_out(cache, entry));
        };
        let node = cpu.effective();
        if let Some(events) = self.events_of(cache, cpu.id) {
            events.alloc_misses.add(1);
        }
        let found = if self.rules.has_sheaves() {
            self.next_sheaf(cache, cpu, node, gfp)
        } else {
            self.refill(cache, cpu, node, node, None).or_else(|| {
                let slab = self.grow(cache, node, gfp).ok()?;
                self.refill(cache, cpu, node, node, Some(slab))
            })
        };
        if let Some(entry) = found {
            return Ok(self.handed_out(cache, entry));
        }
        let entry = self.alloc_on(cache, node, gfp, self.reason_at(node))?;
        Ok(self.handed_out(cache, entry))
    }

    /// Why objects of a CPU that looks to a node are of another one.
    fn reason_at(&self, node: NodeIndex) -> RemoteReason {
        if self.has_memory(node) { RemoteReason::Exhausted } else { RemoteReason::Memoryless }
    }

    /// The address of an entry that leaves the allocator.
    #[inline]
    pub(super) fn handed_out(&self, cache: &Cache<'m, P>, entry: u32) -> Address {
        if P::HARDENED {
            self.hand_out(cache, entry);
        }
        self.code_of(cache).address(entry)
    }

    /// Takes a batch from the lists of the node `from`, to which a new slab is added: one entry for the caller, the others
    /// go onto the stack of the CPU, which looks to `node`.
    pub(super) fn refill(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        node: NodeIndex,
        from: NodeIndex,
        new: Option<u32>,
    ) -> Option<u32> {
        let stack = cache.stacks.get(cpu.id.0 as usize)?;
        let batch = cache.batch();
        let want = if self.rules.has_sheaves() { batch } else { batch_for(batch, stack) } as usize;
        let mut out = [0; BATCH_MAX];
        let codes = self.codes(self.code_of(cache));
        let mut lists = cache.node(from).lock();
        new.into_iter().for_each(|slab| lists.add(&codes, slab));
        let is_shared = !lists.shared().is_empty();
        let got = lists.refill(&codes, &mut out[..want]);
        if !is_shared {
            self.touch_slabs(codes.entries, got);
        }
        drop(lists);
        // Else the CPU waits for the objects' lines one by one as they are written to, and for none of them here.
        let prefetch = |&entry| self.pages.platform().prefetch(codes.entries.address(entry));
        got.iter().rev().for_each(prefetch);
        if from != node {
            let reason = self.reason_at(node);
            cache.node(node).events.note_remote(reason, got.len() as u64);
        }
        self.fill_stack(cache, cpu, node, got)
    }

    /// Puts what a refill got onto the stack of a CPU that looks to a node, but for the last entry, which is the caller's.
    pub(super) fn fill_stack(
        &self,
        cache: &Cache<'m, P>,
        cpu: &'m SlabCpu<P>,
        node: NodeIndex,
        got: &[u32],
    ) -> Option<u32> {
        let stack = cache.stacks.get(cpu.id.0 as usize)?;
        let (&entry, rest) = got.split_last()?;
        stack.refilled.store(1, Ordering::Relaxed);
        let events = self.events_of(cache, cpu.id)?;
        events.refills.add(1);
        let pushed = match self.storage().enter(cpu.id, &cpu.exclusion) {
            // The CPU may have got another node meanwhile.
            Some(on) if stack.tag() == cache.tag(node) => {
                self.storage().push_objects(&on, &stack.stack, rest)
            }
            _ => 0,
        };
        events.slow_pushes.add(pushed as u64);
        if pushed < rest.len() {
            // Another thread of this CPU filled the stack meanwhile, or this one is not there any more.
            self.give_home(cache, &rest[pushed..]);
        }
        Some(entry)
    }

    /// One object from the lists of a node, without the stacks; from others if it has none. Where no pages are found, reclaim
    /// may have brought objects home from the stacks of other CPUs: it looks once more, and a request that may not fail again
    /// and again.
    fn alloc_on(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        gfp: Gfp,
        reason: RemoteReason,
    ) -> Result<u32, AllocError> {
        let here = self.this_cpu().map(SlabCpu::effective);
        let (entry, from) = loop {
            match self.try_alloc_on(cache, node, gfp) {
                Err(error @ (AllocError::OutOfMemory { .. } | AllocError::LimitReached { .. })) => {
                    if !Self::gfp_of_pages(cache, gfp).may_not_fail() {
                        break self.take_any(cache, node, gfp).ok_or(error)?;
                    }
                    self.gather(cache);
                }
                tried => break tried?,
            }
        };
        if let Some(here) = here.filter(|&here| here != from) {
            cache.node(here).events.note_remote(reason, 1);
        }
        Ok(entry)
    }

    /// Between two tries of a request that may not fail: what others freed meanwhile may stand in stacks, where the next
    /// try does not look.
    #[cold]
    fn gather(&self, cache: &Cache<'m, P>) {
        // A CPU whose stacks cannot be had keeps them until the next time.
        let _ = self.shrink_cache(cache);
        self.pages.platform().relax();
    }

    /// One object, and whose it is.
    fn try_alloc_on(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Result<(u32, NodeIndex), AllocError> {
        let mut found = None;
        // With sheaves a node without memory has no lists to look at.
        let has_lists = !self.rules.has_sheaves() || self.has_memory(node);
        if has_lists || gfp.contains(Gfp::THISNODE) {
            found = self.take_one(cache, node, None);
            if found.is_none() {
                match self.grow(cache, node, gfp) {
                    Ok(slab) => found = self.take_one(cache, node, Some(slab)),
                    Err(error) if gfp.contains(Gfp::THISNODE) => return Err(error),
                    Err(_) => {}
                }
            }
        }
        match found {
            Some(entry) => Ok((entry, node)),
            None => self.fall_back(cache, node, gfp),
        }
    }

    /// One object from the lists of a node, to which a new slab is added.
    fn take_one(&self, cache: &Cache<'m, P>, node: NodeIndex, new: Option<u32>) -> Option<u32> {
        let codes = self.codes(self.code_of(cache));
        let mut entry = None;
        let mut lists = cache.node(node).lock();
        new.into_iter().for_each(|slab| lists.add(&codes, slab));
        lists.take(&codes, 1, |taken| entry = Some(taken));
        self.touch_slabs(codes.entries, entry.as_slice());
        entry
    }

    /// An object of whichever node has one, in the order of fallback; of the node alone for who wants no other.
    fn take_any(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Option<(u32, NodeIndex)> {
        let is_bound = gfp.contains(Gfp::THISNODE);
        let fallback = self.pages.fallback_zones(node).map(|zone| zone.node());
        let mut nodes = fallback.filter(|&of| !is_bound || of == node);
        nodes.find_map(|node| {
            let has_objects = cache.node(node).has_objects();
            let entry = has_objects.then(|| self.take_one(cache, node, None)).flatten()?;
            Some((entry, node))
        })
    }

    /// An object of whichever node has one, in the order of fallback; else of a new slab wherever there are
    /// pages. `mm/slab.c: fallback_alloc`.
    fn fall_back(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Result<(u32, NodeIndex), AllocError> {
        if let Some(found) = self.take_any(cache, node, gfp) {
            return Ok(found);
        }
        let gfp = Self::gfp_of_pages(cache, gfp.difference(Gfp::THISNODE));
        let (slab, from) = self.new_slab(cache, node, gfp)?;
        let entry = self.take_one(cache, from, Some(slab)).expect("a new slab has objects");
        Ok((entry, from))
    }

    /// The flags of the pages for a request: with those of the cache.
    pub(super) fn gfp_of_pages(cache: &Cache<'m, P>, gfp: Gfp) -> Gfp {
        let this_node = Gfp(gfp.0 & Gfp::THISNODE.0);
        let of_cache = Gfp(cache.gfp.load(Ordering::Relaxed));
        gfp.union(of_cache).difference(NOT_FOR_SLABS).union(this_node)
    }

    /// Makes a slab of pages of exactly this node; it stands on no list yet. Who may go to other nodes tries no harder here:
    /// reclaim is for when no node has memory.
    pub(super) fn grow(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Result<u32, AllocError> {
        let gfp = Self::gfp_of_pages(cache, gfp);
        let gfp = if gfp.contains(Gfp::THISNODE) {
            gfp
        } else {
            let easy = Gfp::THISNODE.union(Gfp::NORETRY).union(Gfp::NOWARN);
            gfp.difference(Gfp::RECLAIM.union(Gfp::NOFAIL)).union(easy)
        };
        let grown = self.new_slab(cache, node, gfp);
        if grown.is_err() {
            NodeEvents::add(&cache.node(node).events.grow_failures, 1);
        }
        Ok(grown?.0)
    }

    /// Makes a slab of pages near a node, with flags of [`gfp_of_pages`](Self::gfp_of_pages); returns whose they are. Asks
    /// once, also for who may not fail: objects may come back before pages do.
    pub(super) fn new_slab(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        gfp: Gfp,
    ) -> Result<(u32, NodeIndex), AllocError> {
        let geometry = cache.geometry.get();
        let order = geometry.order;
        let colour = cache.node(node).next_colour(geometry.colours);
        let id = self.pages.topology().node(node).id;
        let pfn = self.pages.alloc_once(Request { order, gfp, node: Some(id) })?;
        let node = self.pages.node_of_block(pfn).unwrap_or(node);
        let slab = self.frames.number(pfn);
        self.pages.set_notes(pfn, order, cache.tag(node).0, slab);
        self.descriptors.get(slab).begin(&geometry, colour.min(geometry.colours));
        NodeEvents::add(&cache.node(node).events.grown, 1);
        Ok((slab, node))
    }

    /// Gives the pages of slabs of a node back, which stand on no list any more. A refusal is told to the host: somebody
    /// locked pages, or freed them, that were not theirs. A slab whose page is locked goes back onto its list, to be given
    /// back another time.
    pub(super) fn free_slabs(
        &self,
        cache: &Cache<'m, P>,
        node: NodeIndex,
        order: Order,
        slabs: &[u32],
    ) {
        let mut freed = 0;
        for (at, &slab) in slabs.iter().enumerate() {
            let pfn = self.frames.pfn(slab);
            if self.pages.is_locked(pfn) {
                self.keep_slab(cache, node, order, slab);
                NodeEvents::add(&cache.node(node).events.reaped, freed);
                // The host may panic when it is told: what nobody else knows of goes before that.
                self.free_slabs(cache, node, order, &slabs[at + 1..]);
                return self.pages.platform().misuse(&FreeError::Locked { pfn, order });
            }
            self.pages.set_notes(pfn, order, Tag::NONE.0, 0);
            match self.pages.free(pfn, order) {
                Ok(()) => freed += 1,
                // Of a page that was unlocked before the reason was looked for, the reason says that it is allocated.
                Err(
                    FreeError::Locked { .. }
                    | FreeError::NotAllocated { state: FrameState::Allocated, .. },
                ) => self.keep_slab(cache, node, order, slab),
                Err(_) => {}
            }
        }
        NodeEvents::add(&cache.node(node).events.reaped, freed);
    }

    /// Puts a slab whose objects are all free back onto its list. In front: who takes slabs to give them back takes them
    /// off the end, and is to come to the others.
    #[cold]
    fn keep_slab(&self, cache: &Cache<'m, P>, node: NodeIndex, order: Order, slab: u32) {
        self.pages.set_notes(self.frames.pfn(slab), order, cache.tag(node).0, slab);
        cache.node(node).lock().add_in_front(&self.codes(self.code_of(cache)), slab);
    }

    /// What the frame with this number says of its slab. Of a frame whose slab comes or goes meanwhile, nothing.
    #[inline]
    pub(super) fn owner_of(&self, frame: u32) -> Owner {
        let owner = self.pages.note(self.frames.pfn(frame)).and_then(owner_in);
        owner.unwrap_or(Owner { tag: Tag::NONE, slab: 0 })
    }

    /// The slabs of these entries are changed under the lock of a node's lists, for hosts that charge for it: Linux finds
    /// a slab by the frame, and changes it.
    #[inline(always)]
    pub(super) fn touch_slabs(&self, code: EntryCode, entries: &[u32]) {
        for &entry in entries {
            let (frame, _) = code.frame(entry, self.frames.page_shift);
            self.pages.platform().touch_page(self.frames.pfn(frame), Access::Write);
        }
    }
}

/// Objects of a refill: fewer if nobody took from the stack lately.
fn batch_for<P: SlabPlatform>(batch: u32, stack: &CpuStack<'_, P>) -> u32 {
    if is_touched(stack) { batch } else { batch.min(BATCH_IDLE) }
}
