//! Limits on the memory in use: of a node, and of the allocator. [`crate::limit`] says what counts and how exactly.

use super::allocator::PageAllocator;
use crate::error::{LimitError, LimitOf, UnknownNode};
use crate::gfp::Gfp;
use crate::host::{Lock, Platform, Shortage};
use crate::limit::Ledger;
use crate::pcp::pageset::Pageset;
use crate::units::{Order, PageCount};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents};

/// How much memory may be in use: with callers, or cached by CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// No more than this, in bytes, rounded down to pages. Only requests with `__GFP_NOFAIL` exceed it. What callers
    /// have already stays theirs; what they give back goes home as long as more than this is in use.
    pub hard_bytes: Option<u64>,
    /// Above this, in bytes, each taking of pages wakes background reclaim.
    pub soft_bytes: Option<u64>,
    /// No more than this, in bytes, should have memory of the host behind it: what is in use, and what is free and not yet given
    /// back to the host. The allocator only keeps the number; its host gives memory back.
    pub resident_bytes: Option<u64>,
}

/// A limit that a block would exceed.
pub(super) struct Exceeded {
    /// Whose limit.
    pub(super) of: LimitOf,
    /// The limit.
    pub(super) hard: PageCount,
    /// Pages by which the block would exceed it.
    pub(super) excess: PageCount,
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Limits the memory in use of a node or of the allocator. If more is in use than the hard limit allows, pagesets
    /// are drained and take nothing until enough came back, so that no request passes before. Pages that a CPU caches
    /// whose pagesets cannot be drained now ([`DrainBusy`](super::DrainBusy)) may still be handed out there.
    ///
    /// # Errors
    /// [`LimitError`]; nothing is changed then.
    pub fn set_limits(&self, of: LimitOf, limits: Limits) -> Result<(), LimitError> {
        let ledger = self.ledger(of)?;
        // One at a time.
        let _settings = self.state.lock();
        let pages = |bytes: Option<u64>| bytes.map(|bytes| PageCount(bytes >> self.page_shift()));
        let (hard, soft) = (pages(limits.hard_bytes), pages(limits.soft_bytes));
        let is_of_use = hard.is_some() || soft.is_some();
        if let (Some(hard), Some(soft)) = (hard, soft)
            && soft >= hard
        {
            return Err(LimitError::SoftNotBelowHard { of, soft, hard });
        }
        ledger.set_limits([hard, soft, pages(limits.resident_bytes)]);
        if is_of_use {
            self.zones.iter().for_each(|zone| zone.count_in_ledgers());
        }
        if ledger.refuses(PageCount(0)) {
            self.take_back_cached(of);
        }
        Ok(())
    }

    /// Brings home what CPUs cache of what a limit is of, and closes their lists.
    fn take_back_cached(&self, of: LimitOf) {
        let concerned = |zone: &Zone<'m, P>| match of {
            LimitOf::Allocator => true,
            LimitOf::Node(node) => self.node_id(zone.node()) == node,
        };
        let close = || {
            let pagesets = self.known_cpus().flat_map(|cpu| cpu.pagesets);
            pagesets.filter(|pageset| concerned(pageset.zone())).for_each(Pageset::close);
        };
        // A refill that asked the old limit has put its pages on a list once its zone's lock was ours.
        let zones = self.zones.iter().filter(|zone| concerned(zone));
        zones.for_each(|zone| drop(zone.lock()));
        close();
        // A CPU that cannot be stopped keeps what it has: a request that is refused tries once more.
        self.stop_and_drain_where(concerned);
        // A slow event that asked the old limit may have opened its lists since.
        close();
    }

    /// The limits of a node or of the allocator.
    ///
    /// # Errors
    /// [`UnknownNode`] if the topology has no such node.
    pub fn limits(&self, of: LimitOf) -> Result<Limits, UnknownNode> {
        let page_shift = self.page_shift();
        let bytes = |pages: Option<PageCount>| pages.map(|pages| pages.0 << page_shift);
        let [hard_bytes, soft_bytes, resident_bytes] = self.ledger(of)?.limits().map(bytes);
        Ok(Limits { hard_bytes, soft_bytes, resident_bytes })
    }

    /// Pages in use of a node or of all nodes: with callers, or cached by CPUs. From the first limit on these are the
    /// ledgers'; before that, pages that are isolated, on their way offline, look as if they were in use.
    ///
    /// # Errors
    /// [`UnknownNode`] if the topology has no such node.
    pub fn in_use(&self, of: LimitOf) -> Result<PageCount, UnknownNode> {
        let node = match of {
            LimitOf::Allocator => None,
            LimitOf::Node(node) => Some(self.node_index(node).ok_or(UnknownNode { node })?),
        };
        if let Some(counted) = self.counted_in_use(of) {
            return Ok(counted);
        }
        let concerned = |zone: &&&Zone<'m, P>| node.is_none_or(|node| zone.node() == node);
        Ok(PageCount(self.zones.iter().filter(concerned).map(|zone| zone.out().0).sum()))
    }

    /// The same as the ledgers have it, which limits go by; `None` before there was a limit, and for an unknown node.
    pub fn counted_in_use(&self, of: LimitOf) -> Option<PageCount> {
        let is_counted = self.zones.first().is_some_and(|zone| zone.is_counted());
        self.ledger(of).ok().filter(|_| is_counted).map(Ledger::out)
    }

    fn ledger(&self, of: LimitOf) -> Result<&'m Ledger, UnknownNode> {
        match of {
            LimitOf::Allocator => Ok(&self.ledgers[self.nodes.len()]),
            LimitOf::Node(node) => {
                let index = self.node_index(node).ok_or(UnknownNode { node })?;
                Ok(&self.ledgers[index.0 as usize])
            }
        }
    }

    /// The limit that kept a zone from giving a block, if one did, and its pages.
    pub(super) fn limit_reached(
        &self,
        zone: &Zone<'m, P>,
        order: Order,
    ) -> Option<(LimitOf, PageCount)> {
        self.limits_exceeded(zone, order).next().map(|limit| (limit.of, limit.hard))
    }

    /// The limits that a block from a zone would exceed: the node's, and that of the allocator.
    pub(super) fn limits_exceeded(
        &self,
        zone: &Zone<'m, P>,
        order: Order,
    ) -> impl Iterator<Item = Exceeded> + use<'m, P> {
        let node = (LimitOf::Node(self.node_id(zone.node())), zone.node().0 as usize);
        let ledgers = self.ledgers;
        let is_counted = zone.is_counted();
        let both = [node, (LimitOf::Allocator, self.nodes.len())].into_iter();
        both.filter(move |_| is_counted).filter_map(move |(of, at)| {
            let [hard, ..] = ledgers[at].limits();
            let (hard, out) = (hard?, ledgers[at].out());
            let excess = PageCount((out.0 + order.pages().0).saturating_sub(hard.0));
            (excess.0 > 0).then_some(Exceeded { of, hard, excess })
        })
    }

    /// Wakes background reclaim after pages were taken above a soft limit.
    pub(crate) fn wake_above_soft_limit(&self, zone: &Zone<'m, P>, flags: AllocFlags) {
        if flags.contains(AllocFlags::KSWAPD) && zone.is_above_soft_limit() {
            ZoneEvents::add(&zone.events().soft_limit_wakes, 1);
            let (node, kind) = (self.node_id(zone.node()), zone.kind());
            self.platform.wake_reclaim(Shortage { node, kind, order: Order(0), gfp: Gfp(0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::string::ToString;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::{Config, Request};
    use crate::error::AllocError;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, NodeId, NodeIndex, Pfn};

    const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);

    fn hard(pages: u64) -> Limits {
        Limits { hard_bytes: Some(pages << 12), ..Limits::default() }
    }

    /// A refill takes more pages at once than a limit leaves: single blocks come of it.
    #[test]
    fn a_hard_limit_is_exact_where_cpus_have_quotas() {
        let config = Config { model: Model::NEARPAGE, ..Config::default() };
        TestMachine::new().node(0, 8192, &[0, 1]).config(config).run(|allocator| {
            for limit in [1, 63, 64, 100, 511, 513, 1000] {
                allocator.set_limits(LimitOf::Node(NodeId(0)), hard(limit)).unwrap();
                for order in [0, 3] {
                    let request = Request::new(Order(order), Gfp::KERNEL);
                    let take = || allocator.alloc(request).ok();
                    let blocks: Vec<Pfn> = core::iter::from_fn(take).collect();
                    assert_eq!(blocks.len() as u64, limit >> order, "of order {order}");
                    let free = |block| allocator.free(block, Order(order)).unwrap();
                    blocks.into_iter().for_each(free);
                    allocator.drain_all().unwrap();
                    allocator.check().unwrap();
                }
            }
        });
    }

    #[test]
    fn a_hard_limit_is_exact_and_its_error_names_it() {
        TestMachine::new().node(0, 8192, &[0, 1]).node(8, 8192, &[2]).run(|allocator| {
            // Pages that were out before count too, those that another CPU caches are fetched.
            let early = allocator.alloc(PAGE).unwrap();
            allocator.set_limits(LimitOf::Node(NodeId(8)), hard(1000)).unwrap();
            allocator.set_limits(LimitOf::Allocator, hard(1500)).unwrap();
            allocator.platform().run_on(CpuId(1));
            let eight = PAGE.on(NodeId(8));
            let own = Request { gfp: Gfp::KERNEL.union(Gfp::THISNODE), ..eight };
            let mut pages: Vec<Pfn> = core::iter::from_fn(|| allocator.alloc(own).ok()).collect();
            assert_eq!(pages.len(), 1000);
            let text = allocator.alloc(own).unwrap_err().to_string();
            assert!(text.contains("1000 pages of the hard limit of node 8"), "{text}");
            pages.extend(core::iter::from_fn(|| allocator.alloc(eight).ok()));
            assert_eq!(pages.len(), 1499, "one page is CPU 0's");
            let fallbacks = allocator.fallbacks(NodeIndex(1), NodeIndex(0));
            assert_eq!(fallbacks.pages(crate::alloc::Reason::Limit), PageCount(499));
            let refused = allocator.alloc(PAGE);
            let (limit, order, gfp) = (LimitOf::Allocator, Order(0), Gfp::KERNEL);
            let expected = AllocError::LimitReached { limit, pages: PageCount(1500), order, gfp };
            assert_eq!(refused, Err(expected));
            let insists = Request { gfp: Gfp::KERNEL.union(Gfp::NOFAIL), ..PAGE };
            pages.push(allocator.alloc(insists).unwrap());
            assert_eq!(allocator.in_use(LimitOf::Allocator), Ok(PageCount(1501)));
            // More is out than allowed, so the page goes home.
            allocator.free(early, Order(0)).unwrap();
            assert_eq!(allocator.in_use(LimitOf::Allocator), Ok(PageCount(1500)));
            assert_eq!(allocator.alloc(PAGE), Err(expected));
            let cached = pages.pop().unwrap();
            allocator.free(cached, Order(0)).unwrap();
            // The page is cached, so it is in use already: to hand it out again exceeds nothing.
            assert_eq!(allocator.in_use(LimitOf::Allocator), Ok(PageCount(1500)));
            assert!(allocator.alloc(PAGE).is_ok());
            assert_eq!(allocator.alloc(PAGE), Err(expected));
            pages.drain(..2).for_each(|pfn| allocator.free(pfn, Order(0)).unwrap());
            allocator.drain_all().unwrap();
            assert_eq!(allocator.in_use(LimitOf::Allocator), Ok(PageCount(1498)));
            assert!(allocator.alloc(PAGE).is_ok() && allocator.alloc(PAGE).is_ok());
            assert_eq!(allocator.alloc(PAGE), Err(expected));
        });
    }

    #[test]
    fn below_a_lowered_limit_nothing_passes_until_enough_came_back() {
        for of in [LimitOf::Node(NodeId(0)), LimitOf::Allocator] {
            TestMachine::new().node(0, 8192, &[0, 1]).node(8, 8192, &[2]).run(|allocator| {
                let own = Request { gfp: Gfp::KERNEL.union(Gfp::THISNODE), ..PAGE }.on(NodeId(0));
                let mut pages = Vec::new();
                for cpu in [0, 1, 2].map(CpuId) {
                    allocator.platform().run_on(cpu);
                    pages.extend((0..200).map(|_| allocator.alloc(own).unwrap()));
                    pages.drain(..100).for_each(|pfn| allocator.free(pfn, Order(0)).unwrap());
                }
                let in_use = || allocator.in_use(of).unwrap().0;
                assert!(in_use() > 300, "some are cached");
                allocator.set_limits(of, hard(200)).unwrap();
                assert_eq!(in_use(), 300);
                let refused = |cpu| {
                    allocator.platform().run_on(CpuId(cpu));
                    let mut out = [Pfn(0); 4];
                    assert!(allocator.alloc(own).is_err() && in_use() >= 200);
                    assert!(allocator.alloc_bulk(own, &mut out).is_err());
                };
                for left in (200..300).rev() {
                    (0..3).for_each(refused);
                    allocator.free(pages.pop().unwrap(), Order(0)).unwrap();
                    assert_eq!(in_use(), left, "each goes home");
                }
                (0..3).for_each(refused);
                allocator.free_bulk(&pages.split_off(pages.len() - 2)).unwrap();
                assert_eq!(in_use(), 200, "they are cached as ever");
                assert!(allocator.alloc(own).is_ok() && allocator.alloc(own).is_ok());
                refused(2);
                allocator.check().unwrap();
            });
        }
    }

    #[test]
    fn a_limit_that_goes_lets_go() {
        TestMachine::new().node(0, 8192, &[0]).run(|allocator| {
            allocator.set_limits(LimitOf::Node(NodeId(0)), hard(0)).unwrap();
            assert!(allocator.alloc(PAGE).is_err());
            assert_eq!(allocator.limits(LimitOf::Node(NodeId(0))), Ok(hard(0)));
            allocator.set_limits(LimitOf::Node(NodeId(0)), Limits::default()).unwrap();
            assert!(allocator.alloc(PAGE).is_ok());
            let unknown = UnknownNode { node: NodeId(5) };
            let refused = allocator.set_limits(LimitOf::Node(NodeId(5)), hard(1));
            assert_eq!(refused, Err(LimitError::UnknownNode(unknown)));
            assert_eq!(allocator.in_use(LimitOf::Node(NodeId(5))), Err(unknown));
        });
    }

    #[test]
    fn a_soft_limit_is_below_the_hard_one() {
        TestMachine::new().node(0, 8192, &[0]).run(|allocator| {
            let both = |soft| Limits { soft_bytes: Some(soft), ..hard(100) };
            allocator.set_limits(LimitOf::Allocator, both((100 << 12) - 1)).unwrap();
            let (soft, hard) = (PageCount(100), PageCount(100));
            let refused = LimitError::SoftNotBelowHard { of: LimitOf::Allocator, soft, hard };
            assert_eq!(allocator.set_limits(LimitOf::Allocator, both(100 << 12)), Err(refused));
            assert_eq!(allocator.limits(LimitOf::Allocator), Ok(both(99 << 12)));
        });
    }

    #[test]
    fn takes_above_a_soft_limit_wake_reclaim() {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            TestMachine::new().node(0, 16384, &[0]).config(config).run(|allocator| {
                let soft = Limits { soft_bytes: Some(2048 << 12), ..Limits::default() };
                allocator.set_limits(LimitOf::Node(NodeId(0)), soft).unwrap();
                let in_use = || allocator.in_use(LimitOf::Node(NodeId(0))).unwrap();
                let wakes = || allocator.platform().wakes.get();
                let block = Request { order: Order(9), ..PAGE };
                let mut expected = 0;
                while in_use() < PageCount(6144) {
                    let before = in_use();
                    allocator.alloc(block).unwrap();
                    expected += u64::from(in_use() > before.max(PageCount(2048)));
                    assert_eq!(wakes(), expected, "{before:?}");
                }
                assert!(expected > 0);
                // A request that may not wake reclaim wakes nobody.
                while in_use() < PageCount(12_288) {
                    allocator.alloc(Request { gfp: Gfp(0), ..block }).unwrap();
                }
                assert_eq!(wakes(), expected);
                let stats = allocator.node_stats(NodeIndex(0));
                assert_eq!((stats.soft_limit_wakes, stats.limit_refused), (expected, 0));
            });
        }
    }
}
