//! The byte of an object in the careful way: who has it.
//!
//! ```text
//!            malloc            free by its thread
//!   FREE -----------> TAKEN -----------------------> FREE
//!    ^                  |  free by another thread
//!    |  it came home    v
//!    +---------------- AWAY
//! ```
//!
//! Only the thread whose heap owns an object changes its byte without an exchange: it would cost more than all else of a free. If
//! another thread frees the same object within the same few nanoseconds, both may find it taken; then its byte is not `AWAY` when
//! it comes home, or not `FREE` when it is handed out, and the second free is told there.

use std::sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const AWAY: u8 = 2;

/// A byte that threads share. It orders nothing but itself.
pub(crate) trait Byte {
    fn load(&self) -> u8;
    fn store(&self, value: u8);
    /// Whether it was `from`, and is `to` now.
    fn exchange(&self, from: u8, to: u8) -> bool;
}

impl Byte for AtomicU8 {
    #[inline(always)]
    fn load(&self) -> u8 {
        self.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, value: u8) {
        self.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn exchange(&self, from: u8, to: u8) -> bool {
        self.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The object is handed out, by the thread whose heap owns it. `false`, and nothing changes, if it is not free.
#[inline(always)]
pub(crate) fn hand_out(byte: &impl Byte) -> bool {
    change(byte, FREE, TAKEN)
}

/// It is handed out in any case.
pub(crate) fn hand_out_anyhow(byte: &impl Byte) {
    byte.store(TAKEN);
}

/// It is freed by the thread whose heap owns it. `false`, and nothing changes, if nobody has it.
#[inline(always)]
pub(crate) fn free_here(byte: &impl Byte) -> bool {
    change(byte, TAKEN, FREE)
}

#[inline(always)]
fn change(byte: &impl Byte, from: u8, to: u8) -> bool {
    let is_so = byte.load() == from;
    if is_so {
        byte.store(to);
    }
    is_so
}

/// It is freed by another thread. `false`, and nothing changes, if nobody has it.
pub(crate) fn free_away(byte: &impl Byte) -> bool {
    byte.exchange(TAKEN, AWAY)
}

/// A large block, which no heap owns, is freed. `false`, and nothing changes, if nobody has it.
pub(crate) fn free_large(byte: &impl Byte) -> bool {
    byte.exchange(TAKEN, FREE)
}

/// It comes home. `false`, and nothing changes, if it is not on its way.
pub(crate) fn come_home(byte: &impl Byte) -> bool {
    byte.exchange(AWAY, FREE)
}

/// Whether somebody has it.
pub(crate) fn is_taken(byte: &impl Byte) -> bool {
    byte.load() == TAKEN
}

/// Models in all interleavings: `cargo xtask loom`.
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU8, AtomicUsize};
    use loom::thread;

    use super::*;

    impl Byte for AtomicU8 {
        fn load(&self) -> u8 {
            // An exchange: loom tries no other thread before a load.
            self.fetch_add(0, Ordering::Relaxed)
        }

        fn store(&self, value: u8) {
            // As an exchange, too: behind a plain store loom lets an exchange still succeed with what was there before.
            self.swap(value, Ordering::Relaxed);
        }

        fn exchange(&self, from: u8, to: u8) -> bool {
            self.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        }
    }

    /// The canary: it looks, and then it writes.
    struct Careless(AtomicU8);

    impl Byte for Careless {
        fn load(&self) -> u8 {
            Byte::load(&self.0)
        }

        fn store(&self, value: u8) {
            Byte::store(&self.0, value);
        }

        fn exchange(&self, from: u8, to: u8) -> bool {
            change(self, from, to)
        }
    }

    impl From<u8> for Careless {
        fn from(value: u8) -> Self {
            Self(AtomicU8::new(value))
        }
    }

    /// An object that is in somebody's hands, and what is refused of what is done with it.
    struct Object<B> {
        byte: B,
        refused: AtomicUsize,
    }

    impl<B: Byte + From<u8>> Object<B> {
        fn taken() -> Arc<Self> {
            let (byte, refused) = (B::from(FREE), AtomicUsize::new(0));
            assert!(hand_out(&byte));
            Arc::new(Self { byte, refused })
        }

        /// Counts what is refused; returns whether it is not.
        fn note(&self, is_done: bool) -> bool {
            self.refused.fetch_add(usize::from(!is_done), Ordering::Relaxed);
            is_done
        }
    }

    /// The owner's thread frees an object or not, and others free it too. Then what was sent comes home, and the object is handed
    /// out again, in both orders. Returns how much was refused.
    fn play<B: Byte + From<u8> + Send + Sync + 'static>(
        is_freed_here: bool,
        away: usize,
        is_home_first: bool,
    ) -> usize {
        let object = Object::<B>::taken();
        let others: Vec<_> = (0..away)
            .map(|_| {
                let object = object.clone();
                thread::spawn(move || object.note(free_away(&object.byte)))
            })
            .collect();
        let is_free = is_freed_here && object.note(free_here(&object.byte));
        let sent = others.into_iter().map(|other| other.join().expect("no panic"));
        let sent = sent.filter(|&is_sent| is_sent).count();
        let come_home = || {
            (0..sent).for_each(|_| {
                object.note(come_home(&object.byte));
            });
        };
        if is_home_first {
            come_home();
        }
        if is_free {
            object.note(hand_out(&object.byte));
        }
        if !is_home_first {
            come_home();
        }
        object.refused.load(Ordering::Relaxed)
    }

    #[test]
    fn one_free_is_never_refused() {
        for order in [true, false] {
            loom::model(move || assert_eq!(play::<AtomicU8>(true, 0, order), 0));
            loom::model(move || assert_eq!(play::<AtomicU8>(false, 1, order), 0));
        }
    }

    #[test]
    fn each_free_but_one_is_told_at_last_whoever_is_first() {
        for order in [true, false] {
            loom::model(move || assert_eq!(play::<AtomicU8>(true, 1, order), 1));
            loom::model(move || assert_eq!(play::<AtomicU8>(false, 2, order), 1));
            loom::model(move || assert_eq!(play::<AtomicU8>(true, 2, order), 2));
        }
    }

    #[test]
    #[should_panic(expected = "left: 0")]
    fn a_free_away_without_an_exchange_is_found() {
        loom::model(|| assert_eq!(play::<Careless>(true, 1, true), 1));
    }
}
