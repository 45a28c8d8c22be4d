//! What two threads cost each other on this machine, whatever the allocator: each has a stack of its own pages.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use nearpage::Order;

use crate::region::POOL_PAGES;
use crate::source::PageSource;
use crate::task::Work;

/// Threads that get pages: as many as there are CPUs, and the one that sets up.
fn shares() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 1
}

thread_local! {
    static STACK: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// A stack a thread, and a word a page, which is written when the page comes and when it goes: as much memory as nearpage's
/// words of frames and lists take, and nothing to decide.
pub struct BareStacks {
    words: Vec<AtomicU32>,
    shared_out: AtomicUsize,
}

impl BareStacks {
    pub fn new() -> Self {
        let words = (0..POOL_PAGES).map(|_| AtomicU32::new(0)).collect();
        Self { words, shared_out: AtomicUsize::new(0) }
    }

    #[inline(always)]
    fn write(&self, page: u32, word: u32) {
        self.words[page as usize].store(word, Ordering::Relaxed);
    }
}

impl PageSource for BareStacks {
    type Block = u32;
    const BLANK: u32 = 0;

    #[inline(always)]
    fn alloc(&self, _order: Order) -> Option<u32> {
        let page = STACK.with_borrow_mut(Vec::pop)?;
        self.write(page, 1);
        Some(page)
    }

    #[inline(always)]
    unsafe fn free(&self, page: u32, _order: Order) {
        self.write(page, 0);
        STACK.with_borrow_mut(|stack| stack.push(page));
    }

    fn address(&self, page: u32) -> usize {
        self.words[page as usize].as_ptr().addr()
    }

    fn enter_thread(&self) {
        let pages = POOL_PAGES / shares();
        let share = self.shared_out.fetch_add(1, Ordering::Relaxed);
        let first = share * pages;
        // Later threads get none: they run out, and say so.
        let own = (first..POOL_PAGES.min(first + pages)).rev().map(|page| page as u32);
        STACK.set(own.collect());
    }

    fn runs(&self, work: Work) -> bool {
        matches!(
            work,
            Work::Pair { .. } | Work::Fill { .. } | Work::Replace { .. } | Work::Bulk { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::PAGE;

    #[test]
    fn threads_have_pages_of_their_own() {
        let bare = BareStacks::new();
        let pages = |bare: &BareStacks| {
            bare.enter_thread();
            (0..1000).map(|_| bare.alloc(PAGE).expect("it has more")).collect::<Vec<u32>>()
        };
        let mut all = pages(&bare);
        let other = std::thread::scope(|scope| scope.spawn(|| pages(&bare)).join());
        all.extend(other.expect("it ends"));
        let written = |&page: &u32| bare.words[page as usize].load(Ordering::Relaxed) == 1;
        assert!(all.iter().all(written));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
