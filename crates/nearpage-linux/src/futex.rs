//! Sleeping on a word of memory: `futex(2)`.

use std::sync::atomic::AtomicU32;

use rustix::thread::futex::{Flags, Timespec, wait};

use crate::ffi;

/// Sleeps while `word` is 0, for at most `nanoseconds`; may return for no reason.
pub(crate) fn wait_while_zero(word: &AtomicU32, nanoseconds: Option<u64>) {
    const NANOSECONDS: u64 = 1_000_000_000;
    let timeout = nanoseconds.map(|time| Timespec {
        tv_sec: (time / NANOSECONDS).cast_signed(),
        tv_nsec: (time % NANOSECONDS).cast_signed(),
    });
    // The answer does not matter: whoever sleeps looks at the word again.
    let _ = wait(word, Flags::PRIVATE, 0, timeout.as_ref());
}

/// Wakes a thread that sleeps on the word at `address`. If there is no such word, or nobody sleeps, nothing happens;
/// if another thread sleeps on another word there by now, it wakes for no reason.
pub(crate) fn wake_one(address: usize) {
    ffi::futex_wake_one(address);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn nobody_sleeps_on_a_word_that_is_not_zero_or_longer_than_asked() {
        let start = Instant::now();
        wait_while_zero(&AtomicU32::new(1), None);
        wait_while_zero(&AtomicU32::new(0), Some(2_000_000));
        assert!(start.elapsed() >= Duration::from_millis(2) || cfg!(miri));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_sleeper_is_woken_and_a_word_that_is_gone_is_harmless() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    wait_while_zero(&word, None);
                }
            });
            std::thread::sleep(Duration::from_millis(5));
            word.store(1, Ordering::Release);
            wake_one(word.as_ptr().addr());
        });
        wake_one(0);
        wake_one(4096);
    }
}
