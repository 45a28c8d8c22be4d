//! The rights of a request that found no zone above `low`: what the last look at the zones goes down to.
//!
//! Source: facts 4.4 a; `mm/page_alloc.c: gfp_to_alloc_flags`, 6.12, without cpusets and CMA.

use super::AllocFlags;
use crate::gfp::Gfp;
use crate::units::Order;

impl AllocFlags {
    /// The rights of a request with these GFP flags under pressure: down to `min`, and below it for who is urgent.
    ///
    /// ```
    /// use nearpage::rules::watermarks::AllocFlags;
    /// use nearpage::{Gfp, Order};
    ///
    /// let atomic = AllocFlags::under_pressure(Gfp::ATOMIC, Order(0));
    /// assert!(atomic.contains(AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK));
    /// assert!(!AllocFlags::under_pressure(Gfp::KERNEL, Order(4)).intersects(AllocFlags::RESERVES));
    /// ```
    pub const fn under_pressure(gfp: Gfp, order: Order) -> AllocFlags {
        let urgent = gfp.contains(Gfp::HIGH);
        let cannot_wait = !gfp.intersects(Gfp::DIRECT_RECLAIM.union(Gfp::NOMEMALLOC));
        let mut flags = AllocFlags::WMARK_MIN;
        if urgent {
            flags = flags.union(AllocFlags::MIN_RESERVE);
        }
        if gfp.contains(Gfp::KSWAPD_RECLAIM) {
            flags = flags.union(AllocFlags::KSWAPD);
        }
        if cannot_wait {
            flags = flags.union(AllocFlags::NON_BLOCK);
        }
        if cannot_wait && urgent && order.0 > 0 {
            flags = flags.union(AllocFlags::HIGHATOMIC);
        }
        if gfp.contains(Gfp::MEMALLOC) && !gfp.contains(Gfp::NOMEMALLOC) {
            flags = flags.union(AllocFlags::NO_WATERMARKS);
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_the_flags() {
        let of = |gfp, order| AllocFlags::under_pressure(gfp, Order(order));
        let kswapd = AllocFlags::KSWAPD;
        assert_eq!(of(Gfp::KERNEL, 3), kswapd);
        let urgent = AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK | kswapd;
        assert_eq!(of(Gfp::ATOMIC, 0), urgent);
        assert_eq!(of(Gfp::ATOMIC, 1), urgent | AllocFlags::HIGHATOMIC);
        assert_eq!(of(Gfp::KERNEL | Gfp::HIGH, 0), AllocFlags::MIN_RESERVE | kswapd);
        assert_eq!(of(Gfp::ATOMIC | Gfp::NOMEMALLOC, 1), AllocFlags::MIN_RESERVE | kswapd);
        assert!(of(Gfp::KERNEL | Gfp::MEMALLOC, 0).contains(AllocFlags::NO_WATERMARKS));
        assert_eq!(of(Gfp::NOWAIT, 2), AllocFlags::NON_BLOCK | kswapd);
    }
}
