//! What gives out pages: nearpage, and what it is measured beside.
//!
//! Everything is generic over these two traits and compiled for each allocator, so that a call costs in a
//! benchmark what it costs in a program that names its allocator.

use std::ptr::{NonNull, null_mut};

use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_linux::internals::BareLists;
use nearpage_linux::{FRAME_BYTES, Memory};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::counts::Counters;
use crate::measure::SAMPLE_OPERATIONS;

/// Pages that benchmarks ask for: as a user's data.
pub const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// An allocator.
pub trait Source: Sync {
    /// Names a block.
    type Block: Copy + Send;
    /// Stands where no block is yet.
    const BLANK: Self::Block;

    /// Allocates a block of order `ORDER`, or `None` if there is none.
    fn alloc<const ORDER: u8>(&self) -> Option<Self::Block>;

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// * The block comes from [`alloc`](Self::alloc) with the same order, and was not freed since.
    unsafe fn free<const ORDER: u8>(&self, block: Self::Block);

    /// Operations in a sample.
    fn sample_operations<const ORDER: u8>() -> usize {
        SAMPLE_OPERATIONS
    }

    /// What it has counted, if it counts.
    fn counters(&self) -> Option<Counters> {
        None
    }

    /// Frees that it has refused.
    fn misuses(&self) -> u64 {
        0
    }
}

impl Source for Memory {
    type Block = Pfn;
    const BLANK: Pfn = Pfn(0);

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<Pfn> {
        self.alloc_frames(const { Request::new(Order(ORDER), GFP) }).ok()
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: Pfn) {
        // SAFETY: passed on from the caller. A refusal is counted (`Memory::misuses`), and makes the
        // benchmark fail at its end.
        let _ = unsafe { self.free_frames(block, Order(ORDER)) };
    }

    fn counters(&self) -> Option<Counters> {
        Some(Counters::of(self))
    }

    fn misuses(&self) -> u64 {
        Memory::misuses(self)
    }
}

impl<S: Source> Source for &S {
    type Block = S::Block;
    const BLANK: S::Block = S::BLANK;

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<S::Block> {
        S::alloc::<ORDER>(self)
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: S::Block) {
        // SAFETY: passed on from the caller.
        unsafe { S::free::<ORDER>(self, block) };
    }

    fn sample_operations<const ORDER: u8>() -> usize {
        S::sample_operations::<ORDER>()
    }

    fn counters(&self) -> Option<Counters> {
        S::counters(self)
    }

    fn misuses(&self) -> u64 {
        S::misuses(self)
    }
}

/// glibc's malloc as it comes: blocks aligned to a page, and freed.
#[derive(Clone, Copy)]
pub struct Glibc;

/// The address of a block.
#[derive(Clone, Copy)]
pub struct Address(pub Option<NonNull<libc::c_void>>);

// SAFETY: an address is a number here; nobody reads or writes through it.
unsafe impl Send for Address {}

impl Source for Glibc {
    type Block = Address;
    const BLANK: Address = Address(None);

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<Address> {
        let mut block = null_mut();
        // SAFETY: the alignment is a power of two and a multiple of a pointer's size.
        let answer =
            unsafe { libc::posix_memalign(&mut block, FRAME_BYTES as usize, bytes::<ORDER>()) };
        (answer == 0).then_some(Address(NonNull::new(block)))
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: Address) {
        // SAFETY: passed on from the caller.
        unsafe { libc::free(block.0.map_or(null_mut(), NonNull::as_ptr)) };
    }
}

/// The kernel: a mapping for each block, with its pages in it.
#[derive(Clone, Copy)]
pub struct Mmap;

impl Source for Mmap {
    type Block = Address;
    const BLANK: Address = Address(None);

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<Address> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Without the pages, the call would be faster than what it is compared with, and its user slower.
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let block = unsafe { mmap_anonymous(null_mut(), bytes::<ORDER>(), protection, flags) };
        block.ok().map(|block| Address(NonNull::new(block)))
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: Address) {
        // SAFETY: passed on from the caller; the mapping is a block's, whole.
        let unmapped =
            unsafe { munmap(block.0.map_or(null_mut(), NonNull::as_ptr), bytes::<ORDER>()) };
        debug_assert!(unmapped.is_ok());
    }

    /// So many that a sample of any order is far longer than a look at the clock, and the run stays short.
    fn sample_operations<const ORDER: u8>() -> usize {
        (MMAP_SAMPLE_PAGES >> ORDER).max(1)
    }
}

/// Pages of a sample of mappings; of blocks that are larger, one.
pub const MMAP_SAMPLE_PAGES: usize = 64;

const fn bytes<const ORDER: u8>() -> usize {
    (FRAME_BYTES as usize) << ORDER
}

/// Something that is done again and again.
pub trait Pair: Sync {
    /// Allocates a block and frees it; false if there was none.
    fn pair(&self) -> bool;

    /// Pairs in a sample.
    fn sample_operations() -> usize {
        SAMPLE_OPERATIONS
    }
}

/// Blocks of one order from an allocator.
pub struct Blocks<S, const ORDER: u8>(pub S);

impl<S: Source, const ORDER: u8> Pair for Blocks<S, ORDER> {
    #[inline(always)]
    fn pair(&self) -> bool {
        let Some(block) = self.0.alloc::<ORDER>() else { return false };
        // A copy goes where the optimizer cannot see it: if the block itself came back from there, a
        // store and a load would be measured too.
        std::hint::black_box(block);
        // SAFETY: the block was just allocated with this order.
        unsafe { self.0.free::<ORDER>(block) };
        true
    }

    fn sample_operations() -> usize {
        S::sample_operations::<ORDER>()
    }
}

/// The limit: a pop and a push, and nothing around them.
impl Pair for &BareLists {
    #[inline(always)]
    fn pair(&self) -> bool {
        self.pop_and_push().is_some()
    }
}

/// A source that remembers, for tests.
#[cfg(test)]
pub mod counting {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::Source;

    /// Gives out ever new numbers, at most so many at once.
    pub struct Counting {
        most: usize,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        next: u32,
        held: BTreeSet<u32>,
        freed: Vec<u32>,
    }

    impl Counting {
        /// At most `most` blocks at once.
        pub fn new(most: usize) -> Self {
            Self { most, state: Mutex::default() }
        }

        /// Blocks that were not freed.
        pub fn held(&self) -> BTreeSet<u32> {
            self.state.lock().unwrap().held.clone()
        }

        /// Blocks that were, in that order.
        pub fn freed(&self) -> Vec<u32> {
            self.state.lock().unwrap().freed.clone()
        }
    }

    impl Source for Counting {
        type Block = u32;
        const BLANK: u32 = u32::MAX;

        fn alloc<const ORDER: u8>(&self) -> Option<u32> {
            let mut state = self.state.lock().unwrap();
            if state.held.len() == self.most {
                return None;
            }
            let block = state.next;
            state.next += 1;
            state.held.insert(block);
            Some(block)
        }

        unsafe fn free<const ORDER: u8>(&self, block: u32) {
            let mut state = self.state.lock().unwrap();
            assert!(state.held.remove(&block), "{block} was freed twice");
            state.freed.push(block);
        }
    }
}
