//! The slabs of one node, and its shared stack: what the list lock guards. Facts 9.3, 9.4; `mm/slab.c: struct
//! kmem_list3`, 2.6.35.

/// Up to a batch of numbers, gathered under a lock and dealt with after it.
#[derive(Clone, Copy, Debug)]
pub struct Few {
    items: [u32; BATCH_MAX],
    len: usize,
}

impl Few {
    /// None yet.
    pub const fn new() -> Self {
        Self { items: [0; BATCH_MAX], len: 0 }
    }

    /// Adds a number.
    #[inline]
    pub fn push(&mut self, item: u32) {
        self.items[self.len] = item;
        self.len += 1;
    }

    /// What was added.
    #[inline]
    pub fn as_slice(&self) -> &[u32] {
        &self.items[..self.len]
    }
}

/// What became of objects that went back to their slabs, apart from lying there.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Slabs that became empty, and that the node does not keep: taken off its lists, their pages to be freed.
    pub emptied: Few,
    /// Objects that are of another node.
    pub strays: Few,
    /// What is no object, or lay in its slab already.
    pub refused: Few,
}

impl Given {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { emptied: Few::new(), strays: Few::new(), refused: Few::new() }
    }
}

/// How the numbers of objects, slabs and descriptors of a cache are found.
#[derive(Clone, Copy)]
pub struct Codes<'m> {
    /// All descriptors.
    pub descriptors: DescriptorMap<'m>,
    /// The cache's objects.
    pub entries: EntryCode,
    /// Log2 of the page size in bytes.
    pub page_shift: u32,
}

impl<'m> Codes<'m> {
    /// Reads the descriptors of objects that will be put back, all at once: one after the other, with what is to be
    /// decided between them, each would be waited for.
    #[inline]
    fn look_ahead(&self, entries: &[u32]) {
        let mut seen = 0;
        for &entry in entries {
            let (frame, _) = self.entries.frame(entry, self.page_shift);
            seen ^= self.descriptors.get(frame).free();
        }
        core::hint::black_box(seen);
    }

    /// Where an object lies: the descriptor of its slab and its index there. `None` if no object of a slab with this
    /// geometry begins there; `slab` may be any number, of a slab that is gone.
    #[inline]
    pub fn find(
        &self,
        geometry: &Geometry,
        slab: u32,
        entry: u32,
    ) -> Option<(&'m Descriptor, u32)> {
        let (frame, offset) = self.entries.frame(entry, self.page_shift);
        let descriptor = self.descriptors.find(slab)?;
        let frame = frame.wrapping_sub(slab);
        if frame as u64 >= geometry.order.pages().0 {
            return None;
        }
        let offset = (frame << self.page_shift) + offset;
        Some((descriptor, geometry.index_at(offset.wrapping_sub(descriptor.first()))?))
    }
}

/// The state of a node under its list lock.
#[derive(Debug)]
pub struct Lists {
    /// How objects lie in the cache's slabs.
    pub geometry: Geometry,
    /// Slabs of which no object lies here.
    pub full: SlabList,
    /// Slabs of which some do.
    pub partial: SlabList,
    /// Slabs all of whose objects lie here.
    pub free: SlabList,
    /// Objects that lie in slabs.
    pub objects_free: u32,
    /// The most of them before empty slabs are given back.
    pub free_limit: u32,
    /// Free slabs were used since the last round of reaping.
    pub free_touched: bool,
    /// The shared stack was taken from since then.
    pub shared_touched: bool,
    /// When shared stack and free slabs are reaped next.
    pub next_reap_ns: u64,
    shared: [u32; SHARED_MAX],
    shared_len: u32,
    /// Entries that the shared stack holds at most.
    pub shared_limit: u32,
}

impl Lists {
    /// The lists of a node for a cache that is not there yet.
    pub const fn new() -> Self {
        Self {
            geometry: Geometry::NONE,
            full: SlabList::EMPTY,
            partial: SlabList::EMPTY,
            free: SlabList::EMPTY,
            objects_free: 0,
            free_limit: 0,
            free_touched: false,
            shared_touched: false,
            next_reap_ns: 0,
            shared: [0; SHARED_MAX],
            shared_len: 0,
            shared_limit: 0,
        }
    }

    /// Begins anew, for a new cache.
    pub fn begin(&mut self, geometry: Geometry) {
        *self = Self { geometry, ..Self::new() };
    }

    /// What the shared stack holds, the oldest first.
    #[inline]
    pub fn shared(&self) -> &[u32] {
        &self.shared[..self.shared_len as usize]
    }

    /// Entries that the shared stack has room for.
    #[inline]
    pub fn shared_room(&self) -> u32 {
        self.shared_limit.saturating_sub(self.shared_len)
    }

    /// Puts entries on the shared stack, which has room for them.
    #[inline]
    pub fn share(&mut self, entries: &[u32]) {
        let start = self.shared_len as usize;
        self.shared[start..start + entries.len()].copy_from_slice(entries);
        self.shared_len += entries.len() as u32;
    }

    /// Takes from the top of the shared stack.
    #[inline]
    pub fn take_shared(&mut self, out: &mut [u32]) -> usize {
        let taken = out.len().min(self.shared_len as usize);
        self.shared_len -= taken as u32;
        let start = self.shared_len as usize;
        out[..taken].copy_from_slice(&self.shared[start..start + taken]);
        taken
    }

    /// Takes the oldest entries of the shared stack.
    pub fn take_shared_oldest(&mut self, out: &mut [u32]) -> usize {
        let taken = out.len().min(self.shared_len as usize);
        out[..taken].copy_from_slice(&self.shared[..taken]);
        self.shared.copy_within(taken..self.shared_len as usize, 0);
        self.shared_len -= taken as u32;
        taken
    }

    /// Objects for a refill: from the shared stack, else from slabs. In `out` the ones to use last come first,
    /// so that objects of a slab are used in ascending order.
    pub fn refill<'o>(&mut self, codes: &Codes<'_>, out: &'o mut [u32]) -> &'o [u32] {
        let shared = self.take_shared(out);
        if shared > 0 {
            self.shared_touched = true;
            return &out[..shared];
        }
        let end = out.len();
        let mut start = end;
        self.take(codes, end as u32, |entry| {
            start -= 1;
            out[start] = entry;
        });
        &out[start..]
    }

    /// Takes up to `most` objects out of slabs: partial ones first, then free ones.
    pub fn take(&mut self, codes: &Codes<'_>, most: u32, mut each: impl FnMut(u32)) -> u32 {
        let mut left = most;
        while left > 0 {
            let (slab, was_free) = match (self.partial.head(), self.free.head()) {
                (Some(slab), _) => (slab, false),
                (None, free) => {
                    self.free_touched = true;
                    let Some(slab) = free else { break };
                    (slab, true)
                }
            };
            let descriptor = codes.descriptors.get(slab);
            let (first, size) = (descriptor.first(), self.geometry.size);
            let taken = descriptor.take(left, |index| {
                each(codes.entries.at(slab, first + index * size, codes.page_shift));
            });
            left -= taken;
            self.objects_free -= taken;
            let is_full = descriptor.free() == 0;
            match (was_free, is_full) {
                (true, _) => self.free.remove(codes.descriptors, slab),
                (false, true) => self.partial.remove(codes.descriptors, slab),
                (false, false) => continue,
            }
            let list = if is_full { &mut self.full } else { &mut self.partial };
            list.push_head(codes.descriptors, slab);
        }
        most - left
    }

    /// Puts objects back into their slabs, those of cache and node `tag`, a batch at most. A slab that some objects lie in already stays where
    /// it is on its list; Linux moves it to the end each time, which touches four more lines for each object.
    pub fn give(
        &mut self,
        codes: &Codes<'_>,
        tag: Tag,
        entries: &[u32],
        owner_of: impl Fn(u32) -> Owner,
        given: &mut Given,
    ) {
        codes.look_ahead(entries);
        for &entry in entries {
            let (frame, _) = codes.entries.frame(entry, codes.page_shift);
            let owner = owner_of(frame);
            if owner.tag != tag {
                // An object that was freed twice may outlive its slab.
                let is_stray = owner.tag.is_slab() && owner.tag.cache() == tag.cache();
                if is_stray {
                    given.strays.push(entry)
                } else {
                    given.refused.push(entry)
                }
                continue;
            }
            match codes.find(&self.geometry, owner.slab, entry) {
                Some((descriptor, index)) if descriptor.put(index) => {
                    self.objects_free += 1;
                    self.settle(codes, owner.slab, descriptor.free(), given);
                }
                _ => given.refused.push(entry),
            }
        }
    }

    /// Puts a slab that has got an object back, the `free`th, on the list that it belongs to.
    fn settle(&mut self, codes: &Codes<'_>, slab: u32, free: u32, given: &mut Given) {
        let map = codes.descriptors;
        if free != self.geometry.objects && free != 1 {
            return;
        }
        if free == 1 {
            self.full.remove(map, slab)
        } else {
            self.partial.remove(map, slab)
        }
        if free != self.geometry.objects {
            self.partial.push_tail(map, slab);
        } else if self.objects_free > self.free_limit {
            self.objects_free -= self.geometry.objects;
            given.emptied.push(slab);
        } else {
            self.free.push_head(map, slab);
        }
    }

    /// Adds a new slab.
    pub fn add(&mut self, codes: &Codes<'_>, slab: u32) {
        self.free.push_tail(codes.descriptors, slab);
        self.objects_free += self.geometry.objects;
    }

    /// Adds a slab all of whose objects lie in it, to be used next.
    pub fn add_in_front(&mut self, codes: &Codes<'_>, slab: u32) {
        self.free.push_head(codes.descriptors, slab);
        self.objects_free += self.geometry.objects;
    }

    /// Takes up to `most` free slabs, a batch at most, off the end of their list: their pages are to be freed.
    pub fn take_free_slabs(
        &mut self,
        descriptors: DescriptorMap<'_>,
        most: usize,
        emptied: &mut Few,
    ) {
        for _ in 0..most.min(BATCH_MAX) {
            let Some(slab) = self.free.tail() else { break };
            self.free.remove(descriptors, slab);
            self.objects_free -= self.geometry.objects;
            emptied.push(slab);
        }
    }

    /// Slabs of the node.
    pub fn slabs(&self) -> u32 {
        self.full.len() + self.partial.len() + self.free.len()
    }

    /// Objects that are not in slabs: in somebody's hands, or in a stack.
    pub fn objects_out(&self) -> u64 {
        self.slabs() as u64 * self.geometry.objects as u64 - self.objects_free as u64
    }
}

/// Objects of another node, on their way home.
#[derive(Debug)]
pub struct Alien {
    entries: [u32; ALIEN_MAX],
    len: usize,
    /// Entries at most; 0 is none.
    pub limit: u32,
}

impl Alien {
    /// An empty stack without room.
    pub const fn new() -> Self {
        Self { entries: [0; ALIEN_MAX], len: 0, limit: 0 }
    }

    /// Whether it holds its limit.
    pub const fn is_full(&self) -> bool {
        self.len >= self.limit as usize
    }

    /// Adds an entry; there must be room.
    pub fn push(&mut self, entry: u32) {
        self.entries[self.len] = entry;
        self.len += 1;
    }

    /// What it holds.
    pub fn entries(&self) -> &[u32] {
        &self.entries[..self.len]
    }

    /// Forgets what it held.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}
use crate::descriptor::{Descriptor, DescriptorMap, SlabList};
use crate::entry::EntryCode;
use crate::geometry::Geometry;
use crate::tag::{Owner, Tag};
use crate::tunables::{ALIEN_MAX, BATCH_MAX, SHARED_MAX};
