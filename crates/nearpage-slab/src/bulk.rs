//! Many objects at once.

use nearpage::platform::Storage;
use nearpage::{Address, AllocError, Gfp};

use crate::allocator::SlabAllocator;
use crate::cpu::CpuStack;
use crate::lists::Few;
use crate::place::KmemCache;
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tag::Tag;
use crate::tunables::BATCH_MAX;

/// Why some objects of a bulk free were refused. All others were freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkObjectError {
    /// Objects that were freed.
    pub freed: usize,
    /// Objects that were not.
    pub refused: usize,
    /// Why the first of them was not.
    pub first: super::ObjectError,
}

impl core::fmt::Display for BulkObjectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { freed, refused, first } = self;
        write!(f, "{refused} of {} objects were not freed; the first: {first}", freed + refused)
    }
}

impl core::error::Error for BulkObjectError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.first)
    }
}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// Allocates `out.len()` objects near the CPU that asks, as many as there are: fewer only if memory is short,
    /// and none is an error unless none were asked for.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_bulk(
        &self,
        cache: &KmemCache<'m, P>,
        gfp: Gfp,
        out: &mut [Address],
    ) -> Result<usize, AllocError> {
        let mut got = 0;
        while got < out.len() {
            got += self.pop_into(cache, &mut out[got..]);
            if got == out.len() {
                break;
            }
            // Fills the stack too.
            match self.alloc(cache, gfp) {
                Ok(object) => out[got] = object,
                Err(error) if got == 0 => return Err(error),
                Err(_) => break,
            }
            got += 1;
        }
        Ok(got)
    }

    /// Takes objects off this CPU's stack; returns how many.
    fn pop_into(&self, cache: &KmemCache<'m, P>, out: &mut [Address]) -> usize {
        let storage = self.storage();
        let cpu = storage.current_cpu();
        let Some(stack) = cache.stacks.get(cpu.0 as usize) else { return 0 };
        let Some(on) = storage.enter(cpu, stack.exclusion) else { return 0 };
        let mut entries = [0; BATCH_MAX];
        let mut got = 0;
        while got < out.len() {
            let want = (out.len() - got).min(BATCH_MAX);
            let popped = storage.pop_objects(&on, &stack.stack, &mut entries[..want]);
            for &entry in &entries[..popped] {
                if P::HARDENED {
                    self.hand_out(cache.cache, entry);
                }
                out[got] = cache.code.address(entry);
                got += 1;
            }
            if popped < want {
                break;
            }
        }
        got
    }

    /// Frees objects of a cache, of any nodes. All of them are looked at.
    ///
    /// # Errors
    /// [`BulkObjectError`] if some are no objects of this cache.
    pub fn free_bulk(
        &self,
        cache: &KmemCache<'m, P>,
        objects: &[Address],
    ) -> Result<(), BulkObjectError> {
        let (mut refused, mut first) = (0, None);
        for chunk in objects.chunks(BATCH_MAX) {
            let mut near =
                Near { slab: self, cache, tag: self.near_tag(cache), entries: Few::new() };
            for &object in chunk {
                if let Some(entry) = self.near_entry(cache, near.tag, object) {
                    near.entries.push(entry);
                } else if let Err(error) = self.free(cache, object) {
                    refused += 1;
                    first = first.or(Some(error));
                }
            }
        }
        match first {
            None => Ok(()),
            Some(first) => Err(BulkObjectError { freed: objects.len() - refused, refused, first }),
        }
    }

    /// What objects say that belong onto this CPU's stack; [`Tag::NONE`] if none do. Hardened hosts free one at a time.
    fn near_tag(&self, cache: &KmemCache<'m, P>) -> Tag {
        let stack = cache.stacks.get(self.storage().current_cpu().0 as usize);
        stack.filter(|_| !P::HARDENED).map_or(Tag::NONE, CpuStack::tag)
    }

    /// The entry of an object, if it says `tag`.
    fn near_entry(&self, cache: &KmemCache<'m, P>, tag: Tag, object: Address) -> Option<u32> {
        let note = self.pages.note(object.to_pfn(self.pages.page_shift()))?;
        if tag.is_slab() && Tag::of(note) == tag { cache.code.entry(object) } else { None }
    }

    /// Puts objects that say `tag` onto this CPU's stack, if that is still what belongs there: the thread may have
    /// moved to a CPU of another node since they were looked at.
    fn push_near(&self, cache: &KmemCache<'m, P>, tag: Tag, entries: &[u32]) {
        let storage = self.storage();
        let cpu = storage.current_cpu();
        let mut pushed = 0;
        if let Some(stack) = cache.stacks.get(cpu.0 as usize)
            && let Some(on) = storage.enter(cpu, stack.exclusion)
            && stack.tag() == tag
        {
            pushed = storage.push_objects(&on, &stack.stack, entries);
        }
        for &entry in &entries[pushed..] {
            let node = self.node_of_entry(cache.code, entry);
            self.place(cache.cache, cache.code, node, entry);
        }
    }
}

/// Objects that say `tag` on their way to this CPU's stack. They get there also if the host panics over an object that is
/// refused.
struct Near<'c, 'a, 'm, P: SlabPlatform> {
    slab: &'c SlabAllocator<'a, 'm, P>,
    cache: &'c KmemCache<'m, P>,
    tag: Tag,
    entries: Few,
}

impl<P: SlabPlatform> Drop for Near<'_, '_, '_, P> {
    fn drop(&mut self) {
        self.slab.push_near(self.cache, self.tag, self.entries.as_slice());
    }
}
