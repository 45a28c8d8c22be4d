//! `buddy-slab-allocator`: its buddy with per-page metadata, under a spin lock, which is how its own
//! global allocator takes whole pages.

use buddy_slab_allocator::BuddyAllocator;
use nearpage::Order;
use spin::Mutex;

use crate::contestant::{Contestant, enlist};
use crate::region::{POOL_PAGES, Region};
use crate::source::{HUGE_PAGE, PAGE, PAGE_BYTES, PageSource, block_bytes};

type Buddy = BuddyAllocator<PAGE_BYTES>;

struct BuddySlab(Mutex<Buddy>);

pub fn build() -> Result<Box<dyn Contestant>, String> {
    let region = Region::reserve().map_err(|error| error.to_string())?;
    let buddy = aligned_buddy(&region).ok_or("its metadata does not fit in front of the pool")?;
    Ok(enlist(BuddySlab(Mutex::new(buddy))))
}

/// The buddy puts its metadata first and its pages behind, and finds 2 MiB blocks only if the first
/// page is aligned to 2 MiB: the metadata must end where the aligned pool begins.
fn aligned_buddy(region: &Region) -> Option<Buddy> {
    let pool_bytes = POOL_PAGES * PAGE_BYTES;
    let metadata = Buddy::required_meta_size(pool_bytes).next_multiple_of(PAGE_BYTES);
    (metadata..Region::FRONT_BYTES).step_by(PAGE_BYTES).find_map(|front| {
        let mut buddy = Buddy::new();
        // SAFETY: the range belongs to `region`, which nothing else uses and which is never unmapped.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(region.front(front), front + pool_bytes);
            buddy.init(bytes).ok()?;
        }
        let first = buddy.section(0)?.start;
        first.is_multiple_of(block_bytes(HUGE_PAGE)).then_some(buddy)
    })
}

impl PageSource for BuddySlab {
    type Block = usize;
    const BLANK: usize = 0;

    #[inline]
    fn alloc(&self, order: Order) -> Option<usize> {
        self.0.lock().alloc_pages(1 << order.0, block_bytes(order)).ok()
    }

    #[inline]
    unsafe fn free(&self, block: usize, order: Order) {
        self.0.lock().dealloc_pages(block, 1 << order.0);
    }

    fn alloc_bulk(&self, blocks: &mut [usize]) -> usize {
        let mut buddy = self.0.lock();
        for (done, slot) in blocks.iter_mut().enumerate() {
            match buddy.alloc_pages(1, block_bytes(PAGE)) {
                Ok(block) => *slot = block,
                Err(_) => return done,
            }
        }
        blocks.len()
    }

    unsafe fn free_bulk(&self, blocks: &[usize]) {
        let mut buddy = self.0.lock();
        for &block in blocks {
            buddy.dealloc_pages(block, 1);
        }
    }

    fn address(&self, block: usize) -> usize {
        block
    }
}
