//! Blocks put aside where nobody waits: for what cannot be masked (NMI, a panic), and may have interrupted any holder of any
//! lock.
//!
//! Such a handler takes a block from its CPU's pageset ([`alloc_cached`](nearpage::PageAllocator::alloc_cached)) or from what
//! was put aside for it, and puts what it frees aside again. Ordinary code fills and empties the place now and then.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::platform::Platform;
use nearpage::{FreeError, Order, PageAllocator, Pfn, Request};

/// Places for `N` blocks. No call waits for another.
///
/// ```
/// use nearpage::{Order, Pfn};
/// use nearpage_kernel::Aside;
///
/// static FREED: Aside<64> = Aside::new();
/// assert!(FREED.put(Pfn(7), Order(0)));
/// assert_eq!(FREED.take(Order(1)), None);
/// assert_eq!(FREED.take(Order(0)), Some(Pfn(7)));
/// ```
#[derive(Debug)]
pub struct Aside<const N: usize> {
    /// Frame, order and a bit that says that there is one; 0 for none.
    places: [AtomicU64; N],
}

const IS_THERE: u64 = 1 << 63;
const ORDER_BITS: u32 = 4;

fn word(block: Pfn, order: Order) -> u64 {
    IS_THERE | block.0 << ORDER_BITS | u64::from(order.0)
}

fn block_of(word: u64) -> Option<(Pfn, Order)> {
    let order = Order((word & 0xf) as u8);
    (word & IS_THERE != 0).then_some((Pfn((word & !IS_THERE) >> ORDER_BITS), order))
}

impl<const N: usize> Aside<N> {
    /// Nothing.
    pub const fn new() -> Self {
        Self { places: [const { AtomicU64::new(0) }; N] }
    }

    /// Puts a block aside; `false` if there is no place, or no block of this order or at this frame can be, and it stays the
    /// caller's.
    pub fn put(&self, block: Pfn, order: Order) -> bool {
        let can_be = order <= Order::MAX && block.0 < IS_THERE >> ORDER_BITS;
        can_be
            && self.places.iter().any(|place| {
                // Release pairs with the Acquire of who takes it: whatever was written to the block is seen.
                place
                    .compare_exchange(0, word(block, order), Ordering::Release, Ordering::Relaxed)
                    .is_ok()
            })
    }

    /// Takes a block of an order, if there is one.
    pub fn take(&self, order: Order) -> Option<Pfn> {
        self.places.iter().find_map(|place| {
            let seen = place.load(Ordering::Relaxed);
            let (block, _) = block_of(seen).filter(|&(_, of)| of == order)?;
            // Acquire pairs with the Release in `put`.
            let taken = place.compare_exchange(seen, 0, Ordering::Acquire, Ordering::Relaxed);
            taken.ok().map(|_| block)
        })
    }

    /// Fills all places with blocks of a request; returns how many came. May wait, as any allocation.
    pub fn fill<P: Platform>(&self, pages: &PageAllocator<'_, P>, request: Request) -> usize {
        let mut came = 0;
        while let Some(place) = self.places.iter().find(|place| place.load(Ordering::Relaxed) == 0)
        {
            let Ok(block) = pages.alloc(request) else { break };
            let new = word(block, request.order);
            if place.compare_exchange(0, new, Ordering::Release, Ordering::Relaxed).is_err() {
                // Somebody put one there meanwhile. A refusal was told to the kernel.
                let _ = pages.free(block, request.order);
                break;
            }
            came += 1;
        }
        came
    }

    /// Frees all that is there; returns how many. May wait, as any free.
    ///
    /// # Errors
    /// [`FreeError`] of a block that was not the caller's to put there; it is gone from here, and the rest stays.
    pub fn free_all<P: Platform>(&self, pages: &PageAllocator<'_, P>) -> Result<usize, FreeError> {
        let mut freed = 0;
        for place in &self.places {
            // Acquire pairs with the Release in `put`.
            if let Some((block, order)) = block_of(place.swap(0, Ordering::Acquire)) {
                pages.free(block, order)?;
                freed += 1;
            }
        }
        Ok(freed)
    }
}

impl<const N: usize> Default for Aside<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use nearpage::Gfp;
    use nearpage::testing::machine::TestMachine;

    use super::*;

    #[test]
    fn blocks_come_back_as_they_were_put() {
        TestMachine::new().node(0, 4096, &[0]).run(|pages| {
            let aside = Aside::<4>::new();
            let request = Request::new(Order(1), Gfp::KERNEL);
            assert_eq!(aside.fill(pages, request), 4);
            assert!(!aside.put(Pfn(1), Order(0)), "it is full");
            let block = aside.take(Order(1)).expect("there are four");
            assert_eq!(aside.take(Order(0)), None);
            assert_eq!(aside.free_all(pages), Ok(3));
            assert!(aside.put(block, Order(1)));
            assert!(!aside.put(Pfn(7), Order(16)), "it would look like another");
            assert!(!aside.put(Pfn(u64::MAX), Order(0)), "it would look like another");
            assert!(aside.put(Pfn(u64::MAX >> 8), Order(0)), "never managed");
            assert_eq!(pages.check().expect("in order").allocated.0, 2);
            assert!(aside.free_all(pages).is_err());
            assert_eq!(pages.check().expect("in order").allocated.0, 0);
            assert_eq!(aside.free_all(pages), Ok(0));
        });
    }
}
