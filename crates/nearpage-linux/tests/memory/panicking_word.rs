//! A word of the caller's that panics while it is waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nearpage_linux::Memory;
use nearpage_pagelock::BitWord;

/// A word that panics when it is asked once more than so often.
struct Panicking(AtomicU32);

impl BitWord for Panicking {
    const BITS: u32 = 1;

    fn is_clear(&self, _bit: u32) -> bool {
        assert!(self.0.fetch_sub(1, Ordering::Relaxed) > 0, "asked too often");
        false
    }
}

/// What waits lies on the stack of who waits, so nothing of it may stay in the table.
#[test]
fn a_word_that_panics_leaves_nobody_waiting() {
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq).build().unwrap();
        let block = memory.alloc_pages(1).unwrap();
        let word = block.as_ptr().cast::<Panicking>();
        // SAFETY: the block is ours, aligned, and outlives the word.
        let word: &Panicking = unsafe {
            word.write(Panicking(AtomicU32::new(0)));
            &*word.as_ptr()
        };
        // Before it is listed, just after that, and when it was woken.
        for times in 0..3 {
            word.0.store(times, Ordering::Relaxed);
            thread::scope(|scope| {
                let waits = || {
                    let wait = AssertUnwindSafe(|| memory.wait_on_bit(word, 0, None));
                    catch_unwind(wait).expect_err("the word panics");
                };
                let thread = scope.spawn(waits);
                while !thread.is_finished() {
                    memory.wake_up_bit(word, 0).unwrap();
                    thread::yield_now();
                }
            });
            memory.wake_up_bit(word, 0).unwrap();
            memory.check().expect("nobody is in a table");
        }
    }
}
