//! Allocation that takes no lock: for callers that may have interrupted anything, such as an NMI or a panic.

use super::RuleSet;
use super::allocator::PageAllocator;
use super::near::{hand_out, has_headroom};
use super::request::Request;
use crate::host::{Access, Platform};
use crate::pcp::Storage;
use crate::units::Pfn;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// A block that this CPU's pageset for the preferred zone holds already, on its list or in its quota, or none: nothing is
    /// claimed from the zone, no lock is waited for, no callback is called. Where the pageset itself is held, by what this call
    /// interrupted, there is none either.
    ///
    /// A storage whose operations may not be interrupted by themselves (restartable sequences) is not for such callers.
    pub fn alloc_cached(&self, request: Request) -> Option<Pfn> {
        let near = self.near(request)?;
        let pageset = near.pageset;
        // Behind an empty list stands what a refill takes: not here.
        if P::Storage::EXACT && !has_headroom(pageset, request.order) {
            return None;
        }
        let (_on, popped) = self.pop(pageset, near.list)?;
        // The caller owns a popped page, wherever its word lies.
        let number = popped.frame().or_else(|| P::Rules::take_held(self, pageset, request))?;
        self.platform.touch_page(pageset.frames().pfn(number), Access::Write);
        Some(hand_out(pageset.frames(), number, pageset.held_word(near.list), request.order))
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{Order, PageCount};

    #[test]
    fn what_is_cached_and_nothing_else() {
        TestMachine::new().node(0, 4096, &[0]).run(|allocator| {
            let request = Request::new(Order(0), Gfp::KERNEL);
            assert_eq!(allocator.alloc_cached(request), None, "nothing is cached yet");
            let mut pages: Vec<_> = (0..100).map(|_| allocator.alloc(request).unwrap()).collect();
            pages.drain(..30).for_each(|page| allocator.free(page, Order(0)).unwrap());
            let holds = allocator.zones()[0].work();
            let before = pages.len();
            pages.extend(core::iter::from_fn(|| allocator.alloc_cached(request)));
            assert!(pages.len() > before, "what was freed is cached");
            assert_eq!(allocator.zones()[0].work(), holds, "no lock was taken");
            assert_eq!(allocator.check().unwrap().allocated, PageCount(pages.len() as u64));
            pages.into_iter().for_each(|page| allocator.free(page, Order(0)).unwrap());
            allocator.check().unwrap();
        });
    }
}
