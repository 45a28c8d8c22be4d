//! What a benchmark needs from an allocator, and nothing more.

use nearpage::Order;

use crate::task::Work;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;
/// One page.
pub const PAGE: Order = Order(0);
/// 2 MiB, aligned to 2 MiB.
pub const HUGE_PAGE: Order = Order(9);

/// Bytes in a block of `order`.
pub const fn block_bytes(order: Order) -> usize {
    PAGE_BYTES << order.0
}

/// An allocator of naturally aligned blocks of pages.
///
/// The benchmarks are generic over this trait, so that the calls in a timed loop are direct ones and
/// may be inlined. A source lives as long as the process, as a kernel's page allocator does.
pub trait PageSource: Send + Sync + 'static {
    /// How this allocator names a block: an address, or a frame number where that is its own term.
    type Block: Copy + Send + 'static;
    /// Fills arrays of blocks before they are written; never freed.
    const BLANK: Self::Block;

    /// Allocates one block; `None` if there is no memory left.
    fn alloc(&self, order: Order) -> Option<Self::Block>;

    /// Frees one block.
    ///
    /// # Safety
    ///
    /// * `block` came from this source, for the same `order`.
    /// * It was not freed since.
    unsafe fn free(&self, block: Self::Block, order: Order);

    /// Allocates pages into the front of `blocks`, and returns how many: at least one, unless
    /// `blocks` is empty or there is no memory left.
    fn alloc_bulk(&self, blocks: &mut [Self::Block]) -> usize {
        alloc_each(self, blocks)
    }

    /// Frees pages.
    ///
    /// # Safety
    ///
    /// * Each of `blocks` came from this source as a single page.
    /// * None was freed since, and none is listed twice.
    unsafe fn free_bulk(&self, blocks: &[Self::Block]) {
        for &block in blocks {
            // SAFETY: passed on from the caller, block by block.
            unsafe { self.free(block, PAGE) };
        }
    }

    /// The address that the user of `block` would write to.
    fn address(&self, block: Self::Block) -> usize;

    /// Called once on each benchmark thread before it uses this source.
    fn enter_thread(&self) {}

    /// Whether this source can do `work`; where it cannot, it has no row.
    fn runs(&self, _work: Work) -> bool {
        true
    }
}

/// Allocates pages one at a time into the front of `blocks`, and returns how many.
pub fn alloc_each<S: PageSource + ?Sized>(source: &S, blocks: &mut [S::Block]) -> usize {
    for (done, slot) in blocks.iter_mut().enumerate() {
        match source.alloc(PAGE) {
            Some(block) => *slot = block,
            None => return done,
        }
    }
    blocks.len()
}

/// What an allocator is in a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// nearpage or one of its variants.
    Nearpage,
    /// Not an allocator: a bound that no allocator can pass. It owns no memory.
    Limit,
    /// What nearpage is compared with.
    Peer,
    /// A pool of objects of one size, all made in advance: it has no blocks to split or merge. A pair
    /// is the same work for it; beyond that it is shown, and is not what the promises are about.
    Pool,
}

impl Role {
    /// The role of the allocator called `name`.
    pub fn of(name: &str) -> Role {
        match name {
            "nearpage" | "nearpage-locked" | "nearpage-hardened" => Role::Nearpage,
            "rseq-limit" | "bare-stacks" | "harness-floor" => Role::Limit,
            "dpdk" => Role::Pool,
            _ => Role::Peer,
        }
    }
}
