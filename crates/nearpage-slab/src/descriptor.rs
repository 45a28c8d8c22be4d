//! One line of 64 bytes for each slab, in a table by frame: the core does not touch the memory of objects.
//!
//! ```text
//! 0   next, prev        frame numbers of the neighbours on a list of the node
//! 8   first             offset of the first object in the block, by colour
//! 12  free              objects that lie in the slab
//! 16  bits[6]           one bit an object: it lies in the slab
//! ```
//!
//! Linux links the free objects of a slab by an array of indexes in the slab itself. A bit instead of four bytes,
//! apart from the objects, means that a million objects that come back in random order change 1 MiB of lines
//! that lie together and not 16 000 pages; and freeing an object twice shows in its bit.
//!
//! A descriptor means something while its frame is the first of a slab; it changes under the lock of the slab's
//! node. Zeroes are a descriptor of no slab, so the table costs nothing where there are none.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearpage::internals::{AnyBytes, SECTION_FRAMES};

use crate::geometry::{Geometry, OBJECTS_MAX};

/// The end of a list.
const NO_SLAB: u32 = u32::MAX;
/// Words of bits.
pub const BIT_WORDS: usize = OBJECTS_MAX as usize / 64;

/// What is known of a slab.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Descriptor {
    next: AtomicU32,
    prev: AtomicU32,
    first: AtomicU32,
    free: AtomicU32,
    bits: [AtomicU64; BIT_WORDS],
}

const _: () = assert!(size_of::<Descriptor>() == 64);

/// The descriptors of the frames of one section.
#[repr(transparent)]
pub struct DescriptorSection(pub [Descriptor; SECTION_FRAMES]);

// SAFETY: an array of structures of atomics: integers of any value.
#[allow(unsafe_code)]
unsafe impl AnyBytes for DescriptorSection {}

impl Descriptor {
    /// Describes a new slab, all of whose objects lie in it.
    pub fn begin(&self, geometry: &Geometry, colour: u32) {
        self.first.store(geometry.first_of_colour(colour), Ordering::Relaxed);
        self.set_free(geometry.objects);
        for (at, word) in self.bits.iter().enumerate() {
            let left = geometry.objects.saturating_sub(at as u32 * 64).min(64);
            let bits = if left == 64 { u64::MAX } else { (1 << left) - 1 };
            word.store(bits, Ordering::Relaxed);
        }
    }

    fn set_free(&self, free: u32) {
        self.free.store(free, Ordering::Relaxed);
    }

    /// Objects that lie in the slab.
    #[inline]
    pub fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Where the first object begins, from the beginning of the block.
    #[inline]
    pub fn first(&self) -> u32 {
        self.first.load(Ordering::Relaxed)
    }

    /// Takes up to `most` objects, lowest first, and calls `each` with their indexes; returns how many.
    #[inline]
    pub fn take(&self, most: u32, mut each: impl FnMut(u32)) -> u32 {
        let mut left = most;
        for (at, word) in self.bits.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            while bits != 0 && left > 0 {
                each(at as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
                left -= 1;
            }
            word.store(bits, Ordering::Relaxed);
            if left == 0 {
                break;
            }
        }
        let taken = most - left;
        self.set_free(self.free() - taken);
        taken
    }

    /// Puts object `index` back; returns false if it lies there already.
    #[inline]
    pub fn put(&self, index: u32) -> bool {
        let word = &self.bits[index as usize / 64 % BIT_WORDS];
        let (bits, bit) = (word.load(Ordering::Relaxed), 1 << (index % 64));
        if bits & bit != 0 {
            return false;
        }
        word.store(bits | bit, Ordering::Relaxed);
        self.set_free(self.free() + 1);
        true
    }

    /// Whether object `index` lies in the slab.
    pub fn contains(&self, index: u32) -> bool {
        self.bits[index as usize / 64 % BIT_WORDS].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    /// Bits that are set: what [`free`](Self::free) should say.
    pub fn bits_set(&self) -> u32 {
        self.bits.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }
}

/// All descriptors of a machine, by frame number.
#[derive(Clone, Copy)]
pub struct DescriptorMap<'m>(pub &'m [Option<&'m DescriptorSection>]);

impl<'m> DescriptorMap<'m> {
    /// The descriptor of frame `number`.
    ///
    /// # Panics
    /// If no section covers it: slabs lie in memory of the machine.
    #[inline]
    pub fn get(&self, number: u32) -> &'m Descriptor {
        self.find(number).expect("a slab lies in a section")
    }

    /// The descriptor of frame `number`, or `None` where the machine has no memory: for numbers that somebody gave us.
    #[inline]
    pub fn find(&self, number: u32) -> Option<&'m Descriptor> {
        let section = (*self.0.get(number as usize / SECTION_FRAMES)?)?;
        section.0.get(number as usize % SECTION_FRAMES)
    }
}

/// A list of slabs, linked through their descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlabList {
    head: u32,
    tail: u32,
    len: u32,
}

impl SlabList {
    /// A list without slabs.
    pub const EMPTY: SlabList = SlabList { head: NO_SLAB, tail: NO_SLAB, len: 0 };

    /// The first slab.
    #[inline]
    pub fn head(&self) -> Option<u32> {
        (self.head != NO_SLAB).then_some(self.head)
    }

    /// The last slab.
    #[inline]
    pub fn tail(&self) -> Option<u32> {
        (self.tail != NO_SLAB).then_some(self.tail)
    }

    /// Slabs on the list.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The slab after `slab`.
    pub fn after(&self, map: DescriptorMap<'_>, slab: u32) -> Option<u32> {
        let next = map.get(slab).next.load(Ordering::Relaxed);
        (next != NO_SLAB).then_some(next)
    }

    /// Puts a slab in front.
    pub fn push_head(&mut self, map: DescriptorMap<'_>, slab: u32) {
        let descriptor = map.get(slab);
        descriptor.next.store(self.head, Ordering::Relaxed);
        descriptor.prev.store(NO_SLAB, Ordering::Relaxed);
        match self.head() {
            Some(head) => map.get(head).prev.store(slab, Ordering::Relaxed),
            None => self.tail = slab,
        }
        self.head = slab;
        self.len += 1;
    }

    /// Puts a slab at the end.
    pub fn push_tail(&mut self, map: DescriptorMap<'_>, slab: u32) {
        let descriptor = map.get(slab);
        descriptor.next.store(NO_SLAB, Ordering::Relaxed);
        descriptor.prev.store(self.tail, Ordering::Relaxed);
        match self.tail() {
            Some(tail) => map.get(tail).next.store(slab, Ordering::Relaxed),
            None => self.head = slab,
        }
        self.tail = slab;
        self.len += 1;
    }

    /// Takes a slab of this list out.
    pub fn remove(&mut self, map: DescriptorMap<'_>, slab: u32) {
        let descriptor = map.get(slab);
        let next = descriptor.next.load(Ordering::Relaxed);
        let prev = descriptor.prev.load(Ordering::Relaxed);
        match prev {
            NO_SLAB => self.head = next,
            prev => map.get(prev).next.store(next, Ordering::Relaxed),
        }
        match next {
            NO_SLAB => self.tail = prev,
            next => map.get(next).prev.store(prev, Ordering::Relaxed),
        }
        self.len -= 1;
    }
}
