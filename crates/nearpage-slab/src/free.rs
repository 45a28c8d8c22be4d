//! Free: onto this CPU's stack if the object is of its node, else onto an alien stack. Facts 9.4.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::{Lock, Push, Storage};
use nearpage::{Address, NodeIndex};

use crate::allocator::SlabAllocator;
use crate::cpu::{CpuStack, SlabCpu};
use crate::descriptor::BIT_WORDS;
use crate::entry::EntryCode;
use crate::error::ObjectError;
use crate::events::NodeEvents;
use crate::lists::Given;
use crate::place::{Cache, KmemCache};
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tag::Tag;
use crate::tunables::{ALIEN_MAX, BATCH_MAX};

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// Frees an object of a cache. It goes back to its own node, whoever frees it.
    ///
    /// # Errors
    /// [`ObjectError`] if it is not an object of this cache; it is left alone then, and the host is told
    /// ([`SlabPlatform::misuse_of_object`]).
    #[inline(always)]
    pub fn free(&self, cache: &KmemCache<'m, P>, address: Address) -> Result<(), ObjectError> {
        let storage = self.storage();
        let cpu = storage.current_cpu();
        if let Some(entry) = cache.code.entry(address)
            && let Some(stack) = cache.stacks.get(cpu.0 as usize)
            && let Some(note) = self.pages.note(address.to_pfn(self.pages.page_shift()))
            && Tag::of(note) == stack.tag()
        {
            if P::HARDENED {
                self.take_back(cache.cache, cache.code, entry, note.number())?;
            }
            if let Some(on) = storage.enter(cpu, stack.exclusion)
                // Who excludes others knows the CPU's node only now; a sequence knows nothing of it.
                && (P::Storage::CHECKS_CPU || Tag::of(note) == stack.tag())
                && storage.push_object(&on, &stack.stack, entry).is_done()
            {
                return Ok(());
            }
            self.place(cache.cache, cache.code, Tag::of(note).node(), entry);
            return Ok(());
        }
        self.free_slow(cache.cache, cache.code, address)
    }

    /// A free of an object of another node, from a CPU that the topology does not have, or of something else.
    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        address: Address,
    ) -> Result<(), ObjectError> {
        let note = self.pages.note(address.to_pfn(self.frames.page_shift));
        let tag = note.map_or(Tag::NONE, Tag::of);
        if !tag.is_slab() {
            return Err(self.refuse(ObjectError::NotOfSlab { address }));
        }
        if tag.cache() != cache.index {
            let owner = self.caches.get(tag.cache() as usize).map_or("(none)", Cache::name);
            let given = cache.name();
            return Err(self.refuse(ObjectError::WrongCache { address, given, owner }));
        }
        let (Some(entry), Some(note)) = (code.entry(address), note) else {
            let cache = cache.name();
            return Err(self.refuse(ObjectError::NotAnObject { address, cache }));
        };
        if P::HARDENED {
            self.take_back(cache, code, entry, note.number())?;
        }
        self.place(cache, code, tag.node(), entry);
        Ok(())
    }

    pub(super) fn refuse(&self, error: ObjectError) -> ObjectError {
        self.pages.platform().misuse_of_object(&error);
        error
    }

    /// Puts an object of a node, which nobody holds any more, where it belongs for the CPU that this thread is on now.
    #[cold]
    #[inline(never)]
    pub(super) fn place(&self, cache: &Cache<'m, P>, code: EntryCode, node: NodeIndex, entry: u32) {
        match self.this_cpu() {
            Some(cpu) if cpu.effective() == node || self.keeps_remote(cpu) => {
                self.free_near(cache, code, cpu, cpu.effective(), entry)
            }
            Some(cpu) if self.rules.has_sheaves() => self.bypass(cache, cpu, node, entry),
            Some(cpu) => self.free_alien(cache, code, cpu, node, entry),
            None => self.give(cache, code, node, &[entry]),
        }
    }

    /// Whether a CPU keeps objects of other nodes on its stack.
    fn keeps_remote(&self, cpu: &SlabCpu<P>) -> bool {
        self.rules.keeps_remote(self.has_memory(cpu.effective()))
    }

    /// An object that belongs onto the stack of a CPU, which looks to a node: with room made if it is full; else to the
    /// lists.
    fn free_near(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        cpu: &'m SlabCpu<P>,
        node: NodeIndex,
        entry: u32,
    ) {
        if let Some(stack) = cache.stacks.get(cpu.id.0 as usize)
            && let Some(events) = self.events_of(cache, cpu.id)
        {
            let tag = cache.tag(node);
            let push = || match self.storage().enter(cpu.id, &cpu.exclusion) {
                // The CPU may have got another node meanwhile.
                Some(on) if stack.tag() == tag => {
                    self.storage().push_object(&on, &stack.stack, entry)
                }
                _ => Push::MOVED,
            };
            let mut pushed = push();
            if pushed == Push::DONE {
                return;
            }
            events.free_misses.add(1);
            if pushed == Push::FULL {
                match self.rules.has_sheaves() {
                    true => self.flush_sheaf(cache, cpu, stack, node),
                    false => self.flush_batch(cache, code, cpu, stack, node),
                }
                pushed = push();
            }
            if pushed == Push::DONE {
                events.slow_pushes.add(1);
                return;
            }
        }
        self.give_home(cache, &[entry]);
    }

    /// Moves the oldest batch of a CPU's stack to the shared stack of its node, as far as there is room; if there
    /// is none, to the slabs. Nothing if the CPU has got another node meanwhile. `mm/slab.c: cache_flusharray`.
    pub(super) fn flush_batch(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        cpu: &'m SlabCpu<P>,
        stack: &CpuStack<'m, P>,
        node: NodeIndex,
    ) {
        let mut oldest = [0; BATCH_MAX];
        let mut given = Given::new();
        let Some(on) = self.storage().enter(cpu.id, &cpu.exclusion) else { return };
        if stack.tag() != cache.tag(node) {
            return;
        }
        let mut lists = cache.node(node).lock();
        let batch = cache.batch() as usize;
        let room = lists.shared_room() as usize;
        let most = if room > 0 { batch.min(room) } else { batch };
        let taken = self.storage().pop_oldest(&on, &stack.stack, &mut oldest[..most]);
        let oldest = &oldest[..taken];
        if room > 0 {
            lists.share(oldest);
        } else {
            let owner_of = |frame| self.owner_of(frame);
            self.touch_slabs(code, oldest);
            lists.give(&self.codes(code), cache.tag(node), oldest, owner_of, &mut given);
        }
        let order = lists.geometry.order;
        drop(lists);
        drop(on);
        if let Some(events) = self.events_of(cache, cpu.id) {
            events.flushes.add(1);
        }
        self.settle(cache, code, node, order, &given);
    }

    /// Puts an object of another node onto the alien stack for it; a full one goes home first.
    fn free_alien(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        cpu: &'m SlabCpu<P>,
        home: NodeIndex,
        entry: u32,
    ) {
        let here = cache.node(cpu.effective());
        NodeEvents::add(&here.events.alien_frees, 1);
        if let Some(events) = self.events_of(cache, cpu.id) {
            events.free_misses.add(1);
        }
        let Some(alien) = here.alien(home) else {
            return self.give(cache, code, home, &[entry]);
        };
        let mut alien = alien.lock();
        if alien.limit == 0 {
            drop(alien);
            return self.give(cache, code, home, &[entry]);
        }
        NodeEvents::add(&here.events.alien_locks, 1);
        let mut overflow = [0; ALIEN_MAX];
        let mut len = 0;
        if alien.is_full() {
            NodeEvents::add(&here.events.alien_overflows, 1);
            len = alien.entries().len();
            overflow[..len].copy_from_slice(alien.entries());
            alien.clear();
        }
        alien.push(entry);
        drop(alien);
        if len > 0 {
            self.bring_home(cache, code, home, &overflow[..len]);
        }
    }

    /// Objects of an alien stack arrive: on the shared stack of their node as far as there is room, the others in
    /// their slabs. `mm/slab.c: __drain_alien_cache`.
    pub(super) fn bring_home(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        home: NodeIndex,
        entries: &[u32],
    ) {
        let mut given = Given::new();
        let mut lists = cache.node(home).lock();
        let shared = entries.len().min(lists.shared_room() as usize);
        lists.share(&entries[..shared]);
        let rest = &entries[shared..];
        let owner_of = |frame| self.owner_of(frame);
        self.touch_slabs(code, rest);
        lists.give(&self.codes(code), cache.tag(home), rest, owner_of, &mut given);
        let order = lists.geometry.order;
        drop(lists);
        self.settle(cache, code, home, order, &given);
    }
}

/// Of hardened hosts: which objects are in somebody's hands.
impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    fn hand(&self, slab: u32, index: u32) -> Option<(&'m AtomicU64, u64)> {
        let section = self.hands.get(slab as usize / SECTION_FRAMES)?;
        let word = slab as usize % SECTION_FRAMES * BIT_WORDS + index as usize / 64;
        Some((section.get(word)?, 1 << (index % 64)))
    }

    /// Notes that an object leaves the allocator.
    pub(super) fn hand_out(&self, cache: &Cache<'m, P>, entry: u32) {
        let code = self.code_of(cache);
        let owner = self.owner_of(code.frame(entry, self.frames.page_shift).0);
        let found = self.codes(code).find(&cache.geometry.get(), owner.slab, entry);
        if let Some((word, bit)) = found.and_then(|(_, index)| self.hand(owner.slab, index)) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes an object out of its holder's hands, in one atomic step: of two frees in one instant one is refused.
    pub(super) fn take_back(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        entry: u32,
        slab: u32,
    ) -> Result<(), ObjectError> {
        let address = code.address(entry);
        let found = self.codes(code).find(&cache.geometry.get(), slab, entry);
        let Some((word, bit)) = found.and_then(|(_, index)| self.hand(slab, index)) else {
            return Err(self.refuse(ObjectError::NotAnObject { address, cache: cache.name() }));
        };
        if word.fetch_and(!bit, Ordering::Relaxed) & bit == 0 {
            return Err(self.refuse(ObjectError::NotAllocated { address, cache: cache.name() }));
        }
        Ok(())
    }

    /// Whether an object is in somebody's hands; `None` unless the host is hardened.
    pub(super) fn is_in_hands(&self, slab: u32, index: u32) -> Option<bool> {
        let (word, bit) = self.hand(slab, index)?;
        Some(word.load(Ordering::Relaxed) & bit != 0)
    }
}
