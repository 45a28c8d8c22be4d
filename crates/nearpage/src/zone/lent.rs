//! Free pages that are lent to the host.

use core::ops::Range;

use crate::units::Order;

/// Which free pages are lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lending {
    /// Pages come in aligned pieces of this order. A piece above order 6 is a pageblock.
    pub unit: Order,
    /// Only pages that were free already when an earlier turn looked at them, by the number of this one.
    pub turn: Option<u32>,
}

/// Free pages that were taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lent {
    pub pages: Range<u32>,
    /// How many of them somebody had in hand since they were last taken.
    pub touched: u32,
}
