//! The walker: every object is in exactly one place.
//!
//! An object lies in its slab, stands in one stack, or is in somebody's hands. The walker puts what stands in
//! stacks into the slabs, where a second one of the same object shows, and takes it out again. It takes time by the
//! number of slabs and may run only while nobody else allocates or frees. Upkeep by other threads waits for it: it goes
//! over all caches under the registry's lock too.

use core::fmt;

use super::cache::{Cache, CacheInfo};
use super::descriptor::SlabList;
use super::lists::{Codes, Lists};
use super::{KmemCache, ObjectStorage, SlabAllocator};
use crate::pcp::CountedList;
use crate::platform::{Lock, Platform};
use crate::units::{Address, CpuId, NodeIndex};

/// What the walker counted of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlabChecked {
    /// Objects that lie in slabs.
    pub in_slabs: u64,
    /// Objects in stacks of CPUs.
    pub in_stacks: u64,
    /// Objects on shared and alien stacks.
    pub shared: u64,
    /// Of those in stacks of CPUs and on shared stacks: objects of another node. A thread that was just putting an object
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
    /// Of a hardened host: an object is marked as in somebody's hands and is not, or the other way round.
    Hands {
        /// The cache.
        cache: &'static str,
        /// The slab.
        slab: Address,
    },
}

impl fmt::Display for SlabCheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the slab allocator is not in order: {self:?}")
    }
}

impl core::error::Error for SlabCheckError {}

impl<'m, P: Platform<Storage: ObjectStorage>> SlabAllocator<'_, 'm, P> {
    /// Walks over a cache. Only while no other thread allocates, frees or [shrinks](Self::shrink) objects of it: an object
    /// could be given out twice.
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

    /// Walks over all caches; sums. Only while no other thread uses them, as [`check`](Self::check).
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
        let mut checked = SlabChecked::default();
        for at in 0..self.node_count() {
            self.check_node(cache, info, NodeIndex(at as u16), &mut checked)?;
        }
        let put = self.put_stacks(cache, info, &mut checked);
        let hands = put.and_then(|()| self.check_hands(cache, info));
        self.take_stacks_out(cache, info);
        hands?;
        let all = checked.slabs * info.geometry.objects as u64;
        checked.held = all - checked.in_slabs - checked.in_stacks - checked.shared;
        Ok(checked)
    }

    fn check_node(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        node: NodeIndex,
        checked: &mut SlabChecked,
    ) -> Result<(), SlabCheckError> {
        let name = info.options.name;
        let objects = info.geometry.objects;
        let lists = cache.node(node).look();
        let mut found = 0;
        for (list, slabs, is_right) in lists_of(&lists) {
            let wrong = SlabCheckError::List { cache: name, node, list };
            let mut seen = 0;
            let mut next = slabs.head();
            while let Some(slab) = next {
                let descriptor = self.descriptors.get(slab);
                let here = Address::of(self.frames.pfn(slab), self.frames.page_shift);
                if descriptor.free() != descriptor.bits_set() {
                    return Err(SlabCheckError::Descriptor { cache: name, slab: here });
                }
                if seen == slabs.len() || !is_right(descriptor.free(), objects) {
                    return Err(wrong);
                }
                self.check_frames(cache, info, node, slab, here)?;
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
        Ok(())
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
        let first = self.pages.frame(self.frames.pfn(slab));
        let is_allocated = first.is_some_and(|frame| frame.word().is_allocated(order));
        let of_node = self.pages.node_of_block(self.frames.pfn(slab)) == Some(node);
        if is_allocated && of_node && (0..order.pages().0 as u32).all(is_marked) {
            return Ok(());
        }
        Err(SlabCheckError::Tag { cache: info.options.name, slab: here })
    }

    /// Puts all that stands in stacks into the slabs.
    fn put_stacks(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        checked: &mut SlabChecked,
    ) -> Result<(), SlabCheckError> {
        let name = info.options.name;
        let mut result = Ok(());
        for (stack, cpu) in cache.stacks.iter().zip(self.cpus) {
            let counts = stack.stack.counts();
            checked.in_stacks += counts.count as u64;
            if let Some(cpu) = cpu
                && counts.count > stack.stack.limit()
            {
                result = result.and(Err(SlabCheckError::OverLimit { cache: name, cpu: cpu.id }));
            }
        }
        let mut put = |entry, place| {
            if result.is_ok() {
                result = self.put_entry(cache, info, entry, place, &mut checked.foreign);
            }
            result.is_ok()
        };
        self.each_entry(cache, &mut put);
        let shared = |node: &&super::node::CacheNode<'m, P>| {
            let aliens: usize = node.aliens().map(|(_, alien)| alien.lock().entries().len()).sum();
            (node.look().shared().len() + aliens) as u64
        };
        checked.shared = cache.nodes.iter().map(shared).sum();
        result
    }

    fn put_entry(
        &self,
        cache: &Cache<'m, P>,
        info: &CacheInfo,
        entry: u32,
        place: StackPlace,
        foreign: &mut u64,
    ) -> Result<(), SlabCheckError> {
        let (name, address) = (info.options.name, info.code.address(entry));
        let owner = self.owner_of(info.code.frame(entry, self.frames.page_shift).0);
        let not_an_object = SlabCheckError::NotAnObject { cache: name, address };
        if !owner.tag.is_slab() || owner.tag.cache() != cache.index {
            return Err(not_an_object);
        }
        match place {
            StackPlace::Alien(home) if home != owner.tag.node() => {
                return Err(SlabCheckError::WrongAlien { cache: name, address });
            }
            StackPlace::Near(node) if node != owner.tag.node() => *foreign += 1,
            _ => {}
        }
        match self.codes(info.code).find(&info.geometry, owner.slab, entry) {
            None => Err(not_an_object),
            Some((descriptor, index)) if descriptor.put(index) => Ok(()),
            Some(_) => Err(SlabCheckError::Twice { cache: name, address }),
        }
    }

    /// Takes out of the slabs what [`put_stacks`](Self::put_stacks) put there. What stood there twice, or where it
    /// stopped, is out of order anyway.
    fn take_stacks_out(&self, cache: &Cache<'m, P>, info: &CacheInfo) {
        let codes: Codes<'_> = self.codes(info.code);
        self.each_entry(cache, &mut |entry, _| {
            let owner = self.owner_of(info.code.frame(entry, self.frames.page_shift).0);
            if owner.tag.is_slab()
                && let Some((descriptor, index)) = codes.find(&info.geometry, owner.slab, entry)
                && descriptor.contains(index)
            {
                descriptor.unput(index);
            }
            true
        });
    }

    /// Calls `each` with every entry in any stack, and where that is, until it says no.
    fn each_entry(&self, cache: &Cache<'m, P>, each: &mut dyn FnMut(u32, StackPlace) -> bool) {
        let mut goes_on = true;
        for (stack, cpu) in cache.stacks.iter().zip(self.cpus) {
            let Some(cpu) = cpu else { continue };
            P::Storage::each_entry(&stack.stack, &mut |entry| {
                goes_on = goes_on && each(entry, StackPlace::Near(cpu.effective()));
            });
        }
        for (index, node) in self.node_indexes().zip(cache.nodes) {
            for &entry in node.look().shared() {
                goes_on = goes_on && each(entry, StackPlace::Near(index));
            }
            for (home, alien) in node.aliens() {
                for &entry in alien.lock().entries() {
                    goes_on = goes_on && each(entry, StackPlace::Alien(home));
                }
            }
        }
    }

    /// Of hardened hosts, while the stacks are in the slabs: what is not there must be in somebody's hands.
    fn check_hands(&self, cache: &Cache<'m, P>, info: &CacheInfo) -> Result<(), SlabCheckError> {
        for node in cache.nodes {
            let lists = node.look();
            for (_, slabs, _) in lists_of(&lists) {
                let mut next = slabs.head();
                while let Some(slab) = next {
                    let descriptor = self.descriptors.get(slab);
                    let agrees = |index| match self.is_in_hands(slab, index) {
                        Some(held) => held != descriptor.contains(index),
                        None => true,
                    };
                    if !(0..info.geometry.objects).all(agrees) {
                        let slab = Address::of(self.frames.pfn(slab), self.frames.page_shift);
                        return Err(SlabCheckError::Hands { cache: info.options.name, slab });
                    }
                    next = slabs.after(self.descriptors, slab);
                }
            }
        }
        Ok(())
    }
}

/// Where an entry stands.
#[derive(Clone, Copy)]
enum StackPlace {
    /// In a stack of a CPU that looks to a node, or on the shared stack of a node.
    Near(NodeIndex),
    /// On an alien stack for a node.
    Alien(NodeIndex),
}

type ListRule = fn(u32, u32) -> bool;

/// The lists of a node, with what is true of slabs there: objects that lie in them, of how many.
fn lists_of(lists: &Lists) -> [(&'static str, SlabList, ListRule); 3] {
    [
        ("full", lists.full, |free, _| free == 0),
        ("partial", lists.partial, |free, objects| free > 0 && free < objects),
        ("free", lists.free, |free, objects| free == objects),
    ]
}
