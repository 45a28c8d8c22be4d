//! The walker: every object is in exactly one place.
//!
//! An object lies in its slab, stands in one stack, or is in somebody's hands. What stands in stacks must not lie in its
//! slab, which is a look at its bit; and not in a second stack, which is looked for by rounds over all stacks
//! ([`twice`](super::twice)). The walker changes nothing. It may run while others allocate and free; what they move
//! meanwhile it may see in two places or in none, which is a false report and harms nobody. It takes time by the number
//! of slabs, and by the square of what stacks hold.

use core::fmt;

use nearpage::platform::{CountedList, Lock};
use nearpage::{Address, CpuId, NodeIndex};

use crate::allocator::SlabAllocator;
use crate::descriptor::SlabList;
use crate::lists::Lists;
use crate::place::{Cache, CacheInfo, KmemCache};
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::twice::Lowest;

/// What the walker counted of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SlabChecked {
    /// Objects that lie in slabs.
    pub in_slabs: u64,
    /// Objects in stacks of CPUs.
    pub in_stacks: u64,
    /// Objects on shared and alien stacks.
    pub shared: u64,
    /// Objects in barns.
    pub in_barns: u64,
    /// Of those in stacks of CPUs, on shared stacks and in barns: objects of another node, which sheaves may hold. A thread that was just putting an object
    /// back when its CPU's node changed leaves one there, on hosts whose sequences do not exclude others; it goes home with
    /// the next flush.
    pub foreign: u64,
    /// Objects in somebody's hands.
    pub held: u64,
    /// Slabs.
    pub slabs: u64,
}

/// What the walker found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SlabCheckError {
    /// A list does not hold what its count says, or a slab stands on a list that its objects do not allow.
    List {
        /// The cache.
        cache: &'static str,
        /// The node.
        node: NodeIndex,
        /// `full`, `partial` or `free`.
        list: &'static str,
    },
    /// The descriptor of a slab says another number of objects than its bits.
    Descriptor {
        /// The cache.
        cache: &'static str,
        /// The slab.
        slab: Address,
    },
    /// The frames of a slab do not say so.
    Tag {
        /// The cache.
        cache: &'static str,
        /// The slab.
        slab: Address,
    },
    /// A node counts another number of objects in its slabs than lie there.
    Count {
        /// The cache.
        cache: &'static str,
        /// The node.
        node: NodeIndex,
        /// What it counts.
        counted: u64,
        /// What lies there.
        found: u64,
    },
    /// Something in a stack is no object of its cache.
    NotAnObject {
        /// The cache.
        cache: &'static str,
        /// The address.
        address: Address,
    },
    /// An object stands in two places.
    Twice {
        /// The cache.
        cache: &'static str,
        /// The object.
        address: Address,
    },
    /// An object on an alien stack is of another node than the stack.
    WrongAlien {
        /// The cache.
        cache: &'static str,
        /// The object.
        address: Address,
    },
    /// A stack holds more than its limit.
    OverLimit {
        /// The cache.
        cache: &'static str,
        /// The CPU.
        cpu: CpuId,
    },
    /// A barn holds too many sheaves or an empty one, or stands on a node that has none by the rules.
    Barn {
        /// The cache.
        cache: &'static str,
        /// The node.
        node: NodeIndex,
    },
    /// More objects lie in slabs and stacks than the slabs have.
    TooMany {
        /// The cache.
        cache: &'static str,
        /// Objects of all slabs.
        objects: u64,
        /// What lies in slabs and stacks.
        found: u64,
    },
    /// Of a hardened host: an object is marked as in somebody's hands and is in its slab or in a stack.
    Hands {
        /// The cache.
        cache: &'static str,
        /// The slab.
        slab: Address,
    },
    /// Of a hardened host: not as many objects are marked as in somebody's hands as are in no slab and no stack.
    HandsCount {
        /// The cache.
        cache: &'static str,
        /// Objects that are marked.
        counted: u64,
        /// Objects that are nowhere else.
        found: u64,
    },
}

impl fmt::Display for SlabCheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the slab allocator is not in order: {self:?}")
    }
}

impl core::error::Error for SlabCheckError {}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// Walks over a cache. While other threads allocate, free or [shrink](Self::shrink) objects of it, what is told may be
    /// wrong; nothing is changed.
    ///
    /// # Errors
    /// The first thing that is not in order.
    pub fn check(&self, cache: &KmemCache<'m, P>) -> Result<SlabChecked, SlabCheckError> {
        let _registry = self.registry.lock();
        match cache.cache.info() {
            Some(info) => self.check_cache(cache.cache, &info),
            None => Ok(SlabChecked::default()),
        }
    }

    /// Walks over all caches; sums. What is told may be wrong while other threads use them, as with
    /// [`check`](Self::check).
    ///
    /// # Errors
    /// The first thing that is not in order.
    pub fn check_all(&self) -> Result<SlabChecked, SlabCheckError> {
        let _registry = self.registry.lock();
        let mut all = SlabChecked::default();
        for (cache, info) in self.live_caches() {
            let checked = self.check_cache(cache, &info)?;
            all.in_slabs += checked.in_slabs;
            all.in_stacks += checked.in_stacks;
            all.shared += checked.shared;
            all.in_barns += checked.in_barns;
            all.foreign += checked.foreign;
            all.held += checked.held;
            all.slabs += checked.slabs;
        }
        Ok(all)
    }

    fn check_cache(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
    ) -> Result<SlabChecked, SlabCheckError> {
        let name = info.options.name;
        let (mut checked, mut in_hands) = (SlabChecked::default(), 0);
        for at in 0..self.node_count() {
            in_hands += self.check_node(cache, info, NodeIndex(at as u16), &mut checked)?;
        }
        self.check_stacks(cache, info, &mut checked)?;
        self.check_twice(cache, info)?;
        let objects = checked.slabs * info.geometry.objects as u64;
        let found = checked.in_slabs + checked.in_stacks + checked.shared + checked.in_barns;
        let held = objects.checked_sub(found);
        checked.held = held.ok_or(SlabCheckError::TooMany { cache: name, objects, found })?;
        if P::HARDENED && in_hands != checked.held {
            let (counted, found) = (in_hands, checked.held);
            return Err(SlabCheckError::HandsCount { cache: name, counted, found });
        }
        Ok(checked)
    }

    /// Walks over the slabs of a node; returns how many of their objects are marked as in somebody's hands.
    fn check_node(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        node: NodeIndex,
        checked: &mut SlabChecked,
    ) -> Result<u64, SlabCheckError> {
        let name = info.options.name;
        let objects = info.geometry.objects;
        let lists = cache.node(node).look();
        let (mut found, mut in_hands) = (0, 0);
        for (list, slabs, is_right) in lists_of(&lists) {
            let wrong = SlabCheckError::List { cache: name, node, list };
            let mut seen = 0;
            let mut next = slabs.head();
            while let Some(slab) = next {
                let descriptor = self.descriptors.get(slab);
                let here = Address::from_pfn(self.frames.pfn(slab), self.frames.page_shift);
                if descriptor.free() != descriptor.bits_set() {
                    return Err(SlabCheckError::Descriptor { cache: name, slab: here });
                }
                if seen == slabs.len() || !is_right(descriptor.free(), objects) {
                    return Err(wrong);
                }
                self.check_frames(cache, info, node, slab, here)?;
                in_hands += self.check_hands(info, slab, here)?;
                found += descriptor.free() as u64;
                seen += 1;
                next = slabs.after(self.descriptors, slab);
            }
            if seen != slabs.len() {
                return Err(wrong);
            }
        }
        let counted = lists.objects_free as u64;
        if counted != found {
            return Err(SlabCheckError::Count { cache: name, node, counted, found });
        }
        checked.in_slabs += found;
        checked.slabs += lists.slabs() as u64;
        Ok(in_hands)
    }

    fn check_frames(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        node: NodeIndex,
        slab: u32,
        here: Address,
    ) -> Result<(), SlabCheckError> {
        let order = info.geometry.order;
        let is_marked = |at| {
            let owner = self.owner_of(slab + at);
            owner.tag == cache.tag(node) && owner.slab == slab
        };
        let first = self.frames.pfn(slab);
        let is_allocated = self.pages.allocated_order(first) == Some(order);
        let of_node = self.pages.node_of_block(first) == Some(node);
        if is_allocated && of_node && (0..order.pages().0 as u32).all(is_marked) {
            return Ok(());
        }
        Err(SlabCheckError::Tag { cache: info.options.name, slab: here })
    }

    /// Of hardened hosts: how many objects of a slab are marked as in somebody's hands; none that lies in the slab may.
    fn check_hands(
        &self,
        info: &CacheInfo,
        slab: u32,
        here: Address,
    ) -> Result<u64, SlabCheckError> {
        let descriptor = self.descriptors.get(slab);
        let mut in_hands = 0;
        for index in 0..info.geometry.objects {
            if self.is_in_hands(slab, index) == Some(true) {
                if descriptor.contains(index) {
                    return Err(SlabCheckError::Hands { cache: info.options.name, slab: here });
                }
                in_hands += 1;
            }
        }
        Ok(in_hands)
    }

    /// Looks at all that stands in stacks, each for itself.
    fn check_stacks(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        checked: &mut SlabChecked,
    ) -> Result<(), SlabCheckError> {
        for (stack, cpu) in cache.stacks.iter().zip(self.cpus) {
            if let Some(cpu) = cpu
                && stack.stack.counts().count > stack.stack.limit()
            {
                return Err(SlabCheckError::OverLimit { cache: info.options.name, cpu: cpu.id });
            }
        }
        for (node, place) in self.node_indexes().zip(cache.nodes) {
            let Some(barn) = place.barn().map(Lock::lock) else { continue };
            let has_barn = self.rules.has_barn(self.has_memory(node));
            let most = if has_barn { barn.limit as usize } else { 0 };
            let is_over = barn.len() > most;
            if is_over || barn.sheaves().any(|sheaf| sheaf.is_empty()) {
                return Err(SlabCheckError::Barn { cache: info.options.name, node });
            }
        }
        self.each_entry(cache, &mut |entry, place| {
            let home = self.check_entry(cache, info, entry)?;
            let near = match place {
                StackPlace::Cpu(node) => {
                    checked.in_stacks += 1;
                    node
                }
                StackPlace::Shared(node) => {
                    checked.shared += 1;
                    node
                }
                StackPlace::Barn(node) => {
                    checked.in_barns += 1;
                    node
                }
                StackPlace::Alien(node) => {
                    checked.shared += 1;
                    let (cache, address) = (info.options.name, info.code.address(entry));
                    let wrong = SlabCheckError::WrongAlien { cache, address };
                    return if node == home { Ok(()) } else { Err(wrong) };
                }
            };
            checked.foreign += (near != home) as u64;
            Ok(())
        })
    }

    /// Looks at an entry in a stack: it is an object, and neither lies in its slab nor is in somebody's hands. Returns the
    /// node that it is of.
    fn check_entry(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        entry: u32,
    ) -> Result<NodeIndex, SlabCheckError> {
        let (name, address) = (info.options.name, info.code.address(entry));
        let owner = self.owner_of(info.code.frame(entry, self.frames.page_shift).0);
        let is_of_cache = owner.tag.is_slab() && owner.tag.cache() == cache.index;
        let found = self.codes(info.code).find(&info.geometry, owner.slab, entry);
        let Some((descriptor, index)) = found.filter(|_| is_of_cache) else {
            return Err(SlabCheckError::NotAnObject { cache: name, address });
        };
        if descriptor.contains(index) {
            return Err(SlabCheckError::Twice { cache: name, address });
        }
        if self.is_in_hands(owner.slab, index) == Some(true) {
            let slab = Address::from_pfn(self.frames.pfn(owner.slab), self.frames.page_shift);
            return Err(SlabCheckError::Hands { cache: name, slab });
        }
        Ok(owner.tag.node())
    }

    /// Looks for an object that stands in two stacks.
    fn check_twice(&self, cache: &Cache<'m, P>, info: &CacheInfo) -> Result<(), SlabCheckError> {
        let mut lowest = Lowest::new();
        loop {
            self.each_entry(cache, &mut |entry, _| {
                let (cache, address) = (info.options.name, info.code.address(entry));
                let twice = SlabCheckError::Twice { cache, address };
                if lowest.is_second(entry) { Err(twice) } else { Ok(()) }
            })?;
            if !lowest.goes_on() {
                return Ok(());
            }
        }
    }

    /// Calls `each` with every entry in any stack, and where that is, until it finds something.
    fn each_entry(&self, cache: &Cache<'m, P>, each: EachEntry<'_>) -> Result<(), SlabCheckError> {
        let mut result = Ok(());
        for (stack, cpu) in cache.stacks.iter().zip(self.cpus) {
            let Some(cpu) = cpu else { continue };
            P::Storage::each_entry(&stack.stack, &mut |entry| {
                if result.is_ok() {
                    result = each(entry, StackPlace::Cpu(cpu.effective()));
                }
            });
        }
        result?;
        for (index, node) in self.node_indexes().zip(cache.nodes) {
            for &entry in node.look().shared() {
                each(entry, StackPlace::Shared(index))?;
            }
            if let Some(barn) = node.barn() {
                let barn = barn.lock();
                barn.sheaves()
                    .flatten()
                    .try_for_each(|&entry| each(entry, StackPlace::Barn(index)))?;
            }
            for (home, alien) in node.aliens() {
                for &entry in alien.lock().entries() {
                    each(entry, StackPlace::Alien(home))?;
                }
            }
        }
        Ok(())
    }
}

/// Where an entry stands.
#[derive(Clone, Copy)]
enum StackPlace {
    /// In a stack of a CPU that looks to a node.
    Cpu(NodeIndex),
    /// On the shared stack of a node.
    Shared(NodeIndex),
    /// In the barn of a node.
    Barn(NodeIndex),
    /// On an alien stack for a node.
    Alien(NodeIndex),
}

type EachEntry<'e> = &'e mut dyn FnMut(u32, StackPlace) -> Result<(), SlabCheckError>;

type ListRule = fn(u32, u32) -> bool;

/// The lists of a node, with what is true of slabs there: objects that lie in them, of how many.
fn lists_of(lists: &Lists) -> [(&'static str, SlabList, ListRule); 3] {
    [
        ("full", lists.full, |free, _| free == 0),
        ("partial", lists.partial, |free, objects| free > 0 && free < objects),
        ("free", lists.free, |free, objects| free == objects),
    ]
}
