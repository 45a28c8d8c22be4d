//! What is remembered of zones that refused.

use std_alloc::collections::BTreeSet;

use crate::units::Order;

const SECOND_NS: u64 = 1_000_000_000;

/// What is remembered of the zones of one list.
#[derive(Default, Debug)]
pub struct Refusals {
    /// Zone number, mark, order.
    pub(super) seen: BTreeSet<(usize, u32, Order)>,
    forgotten_at_ns: u64,
}

impl Refusals {
    /// Forgets everything, as when the list is built anew.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    pub(super) fn forget_if_old(&mut self, now_ns: u64) -> bool {
        let is_old = now_ns - self.forgotten_at_ns > SECOND_NS;
        if is_old {
            self.forgotten_at_ns = now_ns;
            self.forget();
        }
        is_old
    }
}
