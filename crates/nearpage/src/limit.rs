//! Limits: how many pages may be out of the zones of a node, or of all nodes.
//!
//! ```text
//! out of its zone = with callers + cached by CPUs
//! ```
//!
//! A ledger counts them. It is written under zone locks, when pages leave a zone or come back, never on the fast
//! path; who takes pages from a zone claims them before, from the node's ledger and then from that of all
//! nodes. So a hard limit is exact: at no time are more pages out than it allows, but for those that requests with
//! `__GFP_NOFAIL` took. What it costs: pages that CPUs cache count too. They are drained before a request fails for a
//! limit, so that callers lack at most what could not be drained at that moment.
//!
//! A limit that is set below what is out closes the pagesets that it is of: they are drained, and what is freed goes
//! to its zone until no more is out than allowed. Until then nobody finds a page, cached or not. The fast path pays
//! nothing for it: to a free a closed list looks like a full one.
//!
//! Zones count only from the first limit on: until then no ledger is written.

use crate::sync::{AtomicU64, Ordering};
use crate::units::{Order, PageCount};

/// "No limit".
const NONE: u64 = u64::MAX;

/// Pages that are out, and how many may be.
#[derive(Debug)]
#[repr(align(64))]
pub struct Ledger {
    out: AtomicU64,
    hard: AtomicU64,
    soft: AtomicU64,
    resident: AtomicU64,
}

impl Default for Ledger {
    fn default() -> Self {
        let none = || AtomicU64::new(NONE);
        Self { out: AtomicU64::new(0), hard: none(), soft: none(), resident: none() }
    }
}

impl Ledger {
    /// Pages that are out.
    pub fn out(&self) -> PageCount {
        PageCount(self.out.load(Ordering::Relaxed))
    }

    /// The hard and the soft limit, and how many should have memory behind them.
    pub fn limits(&self) -> [Option<PageCount>; 3] {
        [&self.hard, &self.soft, &self.resident].map(|limit| {
            let pages = limit.load(Ordering::Relaxed);
            (pages != NONE).then_some(PageCount(pages))
        })
    }

    /// Sets what [`limits`](Self::limits) returns. Pages that are out beyond it stay out, until their holders give them back.
    pub fn set_limits(&self, limits: [Option<PageCount>; 3]) {
        for (cell, limit) in [&self.hard, &self.soft, &self.resident].into_iter().zip(limits) {
            cell.store(limit.map_or(NONE, |pages| pages.0), Ordering::Relaxed);
        }
    }

    /// Whether the hard limit does not allow so many more.
    pub fn refuses(&self, pages: PageCount) -> bool {
        let hard = self.hard.load(Ordering::Relaxed);
        hard != NONE && self.out().0.saturating_add(pages.0) > hard
    }

    /// Whether more are out than the soft limit says.
    pub fn is_above_soft(&self) -> bool {
        self.out().0 > self.soft.load(Ordering::Relaxed)
    }

    /// Counts as many of `blocks` blocks as the hard limit allows as out; returns how many.
    pub fn claim(&self, blocks: u32, order: Order) -> u32 {
        let hard = self.hard.load(Ordering::Relaxed);
        let mut claimed = 0;
        let claim = |out: u64| {
            let room = hard.saturating_sub(out) >> order.0;
            claimed = blocks.min(room.min(u32::MAX as u64) as u32);
            Some(out + order.pages_in(claimed).0)
        };
        let _ = self.out.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim);
        claimed
    }

    /// Counts pages as out, whatever the limit.
    pub fn add(&self, pages: PageCount) {
        self.out.fetch_add(pages.0, Ordering::Relaxed);
    }

    /// Counts pages as back.
    pub fn sub(&self, pages: PageCount) {
        self.out.fetch_sub(pages.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_claimed_than_the_limit_allows() {
        let ledger = Ledger::default();
        let page = Order(0);
        assert_eq!(ledger.claim(25, Order(2)), 25);
        ledger.set_limits([Some(PageCount(130)), Some(PageCount(129)), None]);
        assert_eq!(ledger.claim(29, page), 29);
        assert!(!ledger.is_above_soft() && !ledger.refuses(PageCount(1)));
        assert!(ledger.refuses(PageCount(2)));
        assert_eq!((ledger.claim(5, Order(1)), ledger.claim(5, page)), (0, 1));
        assert!(ledger.is_above_soft() && ledger.refuses(PageCount(1)));
        ledger.add(PageCount(7));
        assert_eq!((ledger.claim(1, page), ledger.out()), (0, PageCount(137)));
        ledger.sub(PageCount(37));
        assert_eq!(ledger.claim(1000, Order(3)), 3, "whole blocks only");
        assert_eq!(ledger.out(), PageCount(124));
        assert_eq!(ledger.limits(), [Some(PageCount(130)), Some(PageCount(129)), None]);
    }
}
