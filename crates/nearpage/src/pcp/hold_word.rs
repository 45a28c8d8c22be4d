//! The word of who has hold of what stands behind a CPU's lists: one thread or nobody.

use crate::sync::{Cell16, Ordering, point};

/// The word. Memory of zeroes is one that nobody has.
#[derive(Debug)]
#[repr(transparent)]
pub struct HoldWord<W>(W);

impl<W: Cell16> HoldWord<W> {
    /// A word that nobody has.
    pub fn unheld() -> Self {
        Self(W::new(0))
    }

    /// Takes hold, unless somebody else has it; returns whether.
    #[inline]
    pub fn enter(&self) -> bool {
        point();
        // Pairs with the store of who lets go.
        self.0.swap(1, Ordering::Acquire) == 0
    }

    /// Lets go. For who has hold.
    #[inline]
    pub fn let_go(&self) {
        point();
        // Pairs with the exchange in `enter`.
        self.0.store(0, Ordering::Release);
    }
}
