//! The report on a request that failed, or might: what was asked, each zone's numbers, what each list held, and
//! what would have helped. One screen.

use core::fmt;

use super::allocator::PageAllocator;
use super::limits::Exceeded;
use super::request::Request;
use super::wanted::{Wanted, first_flags};
use crate::error::{AllocError, LimitOf};
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::host::Platform;
use crate::policy::Placement;
use crate::units::{MAX_ORDER, NodeId, ORDERS, Order, PageCount};
use crate::watermark::AllocFlags;
use crate::zone::Zone;

/// Zones that a report shows one by one.
const ZONES_MAX: usize = 8;

/// A report on a request, as of when it is displayed: nothing is allocated and nothing is changed.
pub struct AllocReport<'a, 'm, P: Platform> {
    allocator: &'a PageAllocator<'m, P>,
    wanted: Wanted<'a>,
}

impl<P: Platform> core::fmt::Debug for AllocReport<'_, '_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AllocReport")
            .field("order", &self.wanted.order)
            .field("gfp", &self.wanted.gfp)
            .field("node", &self.wanted.node)
            .finish_non_exhaustive()
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// A report on a request: to be displayed when it failed.
    ///
    /// # Errors
    /// [`AllocError`] if the request contradicts itself: that error is the whole story.
    pub fn report(&self, request: Request) -> Result<AllocReport<'_, 'm, P>, AllocError> {
        Ok(AllocReport { allocator: self, wanted: self.wanted(request)? })
    }

    /// A report on a request with a policy or a cpuset. Of a policy that takes turns it is that on a request near
    /// the CPU that asks.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn report_with<'a>(
        &'a self,
        placement: &Placement<'a>,
        request: Request,
    ) -> Result<AllocReport<'a, 'm, P>, AllocError> {
        Ok(AllocReport { allocator: self, wanted: self.placed(placement, request)? })
    }

    /// Pages of a zone that CPUs cache.
    fn cached_pages(&self, zone: &Zone<'m, P>) -> PageCount {
        let index = zone.index().0 as usize;
        PageCount(self.cpus().map(|(_, _, pagesets)| pagesets[index].count().0).sum())
    }
}

impl<P: Platform> fmt::Display for AllocReport<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_request(f)?;
        self.fmt_zones(f)?;
        self.fmt_blocks(f)?;
        self.fmt_others(f)?;
        self.fmt_help(f)
    }
}

impl<'m, P: Platform> AllocReport<'_, 'm, P> {
    fn fmt_request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wanted { order, gfp, migratetype, kind, node, .. } = self.wanted;
        let node = self.allocator.node_id(node);
        writeln!(
            f,
            "page allocation: order {order}, {gfp}, {} pages from zones up to {}, preferring node {node}",
            migratetype.name(),
            kind.name()
        )
    }

    fn zones(&self) -> impl Iterator<Item = &'m Zone<'m, P>> {
        self.allocator.zonelist(&self.wanted)
    }

    fn id(&self, zone: &Zone<'m, P>) -> NodeId {
        self.allocator.node_id(zone.node())
    }

    /// The right of the request: what the last look of the slow path, before any last resort, goes down to.
    fn flags(&self) -> AllocFlags {
        let has = |gfp, flags| if self.wanted.gfp.contains(gfp) { flags } else { AllocFlags(0) };
        has(Gfp::HIGH, AllocFlags::MIN_RESERVE)
    }

    fn passes(&self, zone: &Zone<'m, P>, order: Order, more: PageCount) -> bool {
        zone.would_pass(order, self.flags(), self.wanted.kind, more)
    }

    /// Whether a zone would give a block if so many more of its pages were free, and so many fewer were counted by
    /// each limit.
    fn gives(
        &self,
        zone: &Zone<'m, P>,
        order: Order,
        more: PageCount,
        back: impl Fn(LimitOf) -> PageCount,
    ) -> bool {
        let mut exceeded = self.allocator.limits_exceeded(zone, order);
        self.passes(zone, order, more) && exceeded.all(|limit| limit.excess <= back(limit.of))
    }

    /// Whether a zone would give a block now.
    fn has_room(&self, zone: &Zone<'m, P>, order: Order) -> bool {
        self.gives(zone, order, PageCount(0), |_| PageCount(0))
    }

    fn fmt_zones(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "in pages:              free      min      low     high    boost  reserve     kept   cached  managed"
        )?;
        for zone in self.zones().take(ZONES_MAX) {
            write!(f, "node {:>3} {:>8}", self.id(zone), zone.kind().name())?;
            let marks = zone.marks();
            let (reserve, kept) = (zone.reserve(self.wanted.kind), zone.kept_back());
            let cached = self.allocator.cached_pages(zone);
            let columns = [zone.free_pages(), marks.min, marks.low, marks.high, zone.boost()];
            for pages in columns.into_iter().chain([reserve, kept, cached, zone.managed()]) {
                write!(f, " {:>8}", pages.0)?;
            }
            writeln!(f, "  {}", self.verdict(zone))?;
        }
        Ok(())
    }

    fn verdict(&self, zone: &Zone<'m, P>) -> &'static str {
        if self.has_room(zone, self.wanted.order) {
            "has room"
        } else if self.passes(zone, self.wanted.order, PageCount(0)) {
            "limit"
        } else if self.passes(zone, Order(0), PageCount(0)) {
            "no block"
        } else {
            "too few"
        }
    }

    fn fmt_blocks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "free blocks by order ")?;
        (0..ORDERS).try_for_each(|order| write!(f, " {order:>6}"))?;
        writeln!(f)?;
        for zone in self.zones().take(ZONES_MAX) {
            // One look, since it goes through all pageblocks where there are maps.
            let area = zone.free_area();
            for migratetype in Migratetype::ALL {
                self.fmt_lists(zone, migratetype, &area[migratetype.index()], f)?;
            }
        }
        Ok(())
    }

    /// The lists of a type, unless they are all empty.
    fn fmt_lists(
        &self,
        zone: &Zone<'m, P>,
        migratetype: Migratetype,
        blocks: &[u32; ORDERS],
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        if *blocks == [0; ORDERS] {
            return Ok(());
        }
        let (id, kind) = (self.id(zone), zone.kind().name());
        write!(
            f,
            "{id:>3} {kind:>7} {:>9}",
            migratetype.name().get(..9).unwrap_or(migratetype.name())
        )?;
        blocks.iter().try_for_each(|blocks| write!(f, " {blocks:>6}"))?;
        writeln!(f)
    }

    fn fmt_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (zones, free) = self
            .zones()
            .skip(ZONES_MAX)
            .fold((0, 0), |(zones, free), zone| (zones + 1, free + zone.free_pages().0));
        if zones == 0 { Ok(()) } else { writeln!(f, "and {zones} zones with {free} free pages") }
    }

    /// What would have let this request succeed, the cheapest first: each by itself, if nothing else happens.
    fn fmt_help(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.wanted.order;
        if self.zones().any(|zone| self.has_room(zone, order)) {
            return writeln!(f, "there is room now: the same request would succeed");
        }
        self.fmt_limits(f)?;
        let drained = |zone: &Zone<'m, P>| {
            let more = self.allocator.cached_pages(zone);
            self.gives(zone, order, more, |of| self.cached_within(of))
        };
        if self.zones().any(drained) {
            writeln!(f, "a drain of the pagesets would help: enough pages are cached by CPUs")?;
        }
        if let Some(largest) = self.largest_order() {
            writeln!(f, "blocks up to order {largest} are there to be had")?;
        }
        self.fmt_reserve(f)?;
        self.fmt_elsewhere(f)?;
        self.fmt_reclaim(f)?;
        self.fmt_missing(f)
    }

    /// The highest order, below the one that was asked for, of which a zone would give a block.
    fn largest_order(&self) -> Option<Order> {
        let mut orders = (0..self.wanted.order.0.min(MAX_ORDER.0)).rev().map(Order);
        orders.find(|&order| self.zones().any(|zone| self.has_room(zone, order)))
    }

    /// Pages that CPUs cache of what a limit is of.
    fn cached_within(&self, of: LimitOf) -> PageCount {
        let counts = |zone: &&&Zone<'m, P>| match of {
            LimitOf::Allocator => true,
            LimitOf::Node(node) => self.id(zone) == node,
        };
        let zones = self.allocator.zones().iter().filter(counts);
        PageCount(zones.map(|zone| self.allocator.cached_pages(zone).0).sum())
    }

    /// The limits without which a zone would give the block, and how much higher they would have to be.
    fn fmt_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.wanted.order;
        let mut zones = self.zones();
        let Some(zone) = zones.find(|zone| self.passes(zone, order, PageCount(0))) else {
            return Ok(());
        };
        for Exceeded { of, hard, .. } in self.allocator.limits_exceeded(zone, order) {
            let used = self.allocator.in_use(of).unwrap_or_default();
            let cached = self.cached_within(of);
            writeln!(
                f,
                "the hard limit of {of}, {hard} pages, is in the way: {used} are in use, {cached} of them cached by CPUs"
            )?;
        }
        let mut lead = "";
        for Exceeded { of, hard, excess } in self.allocator.limits_exceeded(zone, order) {
            let bytes = PageCount(hard.0 + excess.0).to_bytes(self.allocator.page_shift());
            write!(f, "{lead}the limit of {of} raised by {excess} pages, to {bytes} bytes, ")?;
            lead = "and ";
        }
        // Somebody may have raised it meanwhile.
        if lead.is_empty() { Ok(()) } else { writeln!(f, "would let the request pass") }
    }

    /// The zone that would give the block to a request that can use no higher one.
    fn fmt_reserve(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (order, nothing) = (self.wanted.order, PageCount(0));
        let keeps = |zone: &&Zone<'m, P>| {
            !self.passes(zone, order, nothing)
                && zone.would_pass(order, self.flags(), zone.kind(), nothing)
                && !zone.is_limited(order.pages())
        };
        let Some(zone) = self.zones().find(keeps) else { return Ok(()) };
        let (id, kind) = (self.id(zone), zone.kind().name());
        writeln!(
            f,
            "node {id}, zone {kind} has room, but keeps it for requests that can use no higher zone"
        )
    }

    /// Whether reclaim would have helped a request that may not wait for it.
    fn fmt_reclaim(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wanted { order, gfp, .. } = self.wanted;
        let helps = |zone: &Zone<'m, P>| {
            let more = self.allocator.platform.reclaimable(self.id(zone), zone.kind());
            self.gives(zone, order, more, |_| more)
        };
        if gfp.contains(Gfp::DIRECT_RECLAIM) || !self.zones().any(helps) {
            return Ok(());
        }
        writeln!(f, "with __GFP_DIRECT_RECLAIM the request could have waited for reclaim")
    }

    /// Nodes that the request left out and that would give the block.
    fn fmt_elsewhere(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wanted { gfp, scope, .. } = self.wanted;
        let attempts = [
            ("__GFP_THISNODE", Wanted { gfp: gfp.difference(Gfp::THISNODE), ..self.wanted }),
            ("its policy", Wanted { scope: scope.beyond_policy(), ..self.wanted }),
            ("its cpuset", Wanted { scope: scope.beyond_cpuset(), ..self.wanted }),
            ("policy and cpuset", Wanted { scope: scope.anywhere(), ..self.wanted }),
        ];
        let helps = attempts.iter().find_map(|(what, freer)| Some((what, self.giver(freer)?)));
        if let Some((what, id)) = helps {
            return writeln!(f, "without {what} node {id} would have given it");
        }
        match self.private_giver() {
            Some(id) => {
                writeln!(f, "private node {id} would have given it to a request that names it")
            }
            None => Ok(()),
        }
    }

    /// The private node that would give the block to a request that names it, if this one does not.
    fn private_giver(&self) -> Option<NodeId> {
        let Wanted { order, kind, scope, .. } = self.wanted;
        let flags = self.flags();
        let gives = |zone: &&&Zone<'m, P>| {
            let (node, pages) = (zone.node(), order.pages());
            let is_closed = self.allocator.is_private(node) && !scope.names(node);
            let has_room = zone.would_pass(order, flags, kind, PageCount(0));
            is_closed && zone.kind() <= kind && has_room && !zone.is_limited(pages)
        };
        Some(self.id(self.allocator.zones().iter().find(gives)?))
    }

    /// The node that would give the block to a freer request.
    fn giver(&self, freer: &Wanted<'_>) -> Option<NodeId> {
        let gives = |zone: &&Zone<'m, P>| {
            let flags = first_flags(freer.gfp, *zone);
            zone.would_pass(freer.order, flags, freer.kind, PageCount(0))
                && !zone.is_limited(freer.order.pages())
        };
        Some(self.id(self.allocator.zonelist(freer).find(gives)?))
    }

    /// How many free pages were missing where the fewest were, if nothing else was.
    fn fmt_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wanted { order, kind, .. } = self.wanted;
        let missing = |zone: &Zone<'m, P>| {
            let needed =
                zone.marks().min.0 + zone.reserve(kind).0 + zone.kept_back().0 + order.pages().0;
            PageCount(needed.saturating_sub(zone.free_pages().0))
        };
        let zones = self.zones().map(|zone| (missing(zone), zone));
        let enough = zones.filter(|&(more, zone)| self.gives(zone, order, more, |_| more));
        let Some((missing, zone)) = enough.min_by_key(|pair| pair.0) else { return Ok(()) };
        let (id, kind) = (self.id(zone), zone.kind().name());
        writeln!(
            f,
            "{missing} more free pages in node {id}, zone {kind} would be enough above its min mark"
        )
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::string::{String, ToString};

    use super::*;
    use crate::alloc::Limits;
    use crate::policy::{NodeSet, Policy};
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;

    fn report(allocator: &PageAllocator<'_, PlainPlatform>, request: Request) -> String {
        allocator.report(request).unwrap_or_else(|error| panic!("{error}")).to_string()
    }

    const OWN: Gfp = Gfp::KERNEL.union(Gfp::THISNODE);

    #[test]
    fn a_report_says_what_was_asked_what_is_there_and_what_would_help() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(8, 4096, &[]);
        machine.run(|allocator| {
            let request = Request::new(Order(0), OWN);
            while allocator.alloc(request).is_ok() {}
            let text = report(allocator, request);
            let marks = allocator.zones()[0].marks();
            let expected = std_alloc::format!(
                "page allocation: order 0, GFP_KERNEL|__GFP_THISNODE, Unmovable pages from zones up to Normal, preferring node 0\n\
                 in pages:              free      min      low     high    boost  reserve     kept   cached  managed\n\
                 node   0   Normal {min:>8} {min:>8} {:>8} {:>8}        0        0        0        0     4096  too few\n",
                marks.low.0, marks.high.0, min = marks.min.0
            );
            assert!(text.starts_with(&expected), "{text}");
            assert!(text.contains("\n  0  Normal Unmovable "), "{text}");
            assert!(text.contains("without __GFP_THISNODE node 8 would have given it\n"), "{text}");
            assert!(text.ends_with(
                "1 more free pages in node 0, zone Normal would be enough above its min mark\n"
            ));
        });
    }

    #[test]
    fn a_report_knows_smaller_blocks_cached_pages_and_room_that_came_back() {
        TestMachine::new().node(0, 4096, &[0]).run(|allocator| {
            let mut pages = std_alloc::vec![];
            while let Ok(pfn) = allocator.alloc(Request::new(Order(0), Gfp::KERNEL)) {
                pages.push(pfn);
            }
            let single = Request::new(Order(0), Gfp::KERNEL);
            let mut free = |pfn| allocator.free(pfn, Order(0)).unwrap();
            let urgent = Request::new(Order(0), Gfp::NOWAIT);
            let waits = "with __GFP_DIRECT_RECLAIM the request could have waited for reclaim\n";
            assert!(!report(allocator, urgent).contains(waits));
            allocator.platform().says_reclaimable.set(PageCount(1));
            assert!(report(allocator, urgent).contains(waits));
            assert!(!report(allocator, single).contains(waits));
            free(pages.pop().unwrap());
            assert!(report(allocator, single).contains("a drain of the pagesets would help"));
            pages.iter().step_by(2).copied().for_each(&mut free);
            allocator.drain_all().unwrap();
            let text = report(allocator, Request::new(Order(9), Gfp::NOWAIT));
            assert!(text.contains("  no block\n"), "{text}");
            let is_free = |order: &u8| {
                allocator.zones()[0].free_area().iter().any(|of| of[*order as usize] > 0)
            };
            let largest = (0..9).rev().find(is_free).unwrap();
            let told = std_alloc::format!("blocks up to order {largest} are there to be had\n");
            assert!(text.ends_with(&told), "{text}");
            assert!(report(allocator, single).contains("there is room now"));
        });
    }

    #[test]
    fn a_report_names_the_limit_the_policy_and_the_cpuset_in_the_way() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(8, 4096, &[]);
        machine.run(|allocator| {
            let request = Request::new(Order(0), Gfp::KERNEL);
            let (set, other) = ([0b01], [0b10]);
            let (zero, eight) = (NodeSet::of_words(&set), NodeSet::of_words(&other));
            let bound = Placement::by(Policy::Bind(zero));
            while allocator.alloc_with(&bound, request).is_ok() {}
            let text = allocator.report_with(&bound, request).unwrap().to_string();
            assert!(text.contains("without its policy node 8 would have given it\n"), "{text}");
            let within = Placement::by(Policy::Local).within(zero);
            let text = allocator.report_with(&within, request).unwrap().to_string();
            assert!(text.contains("without its cpuset node 8 would have given it\n"), "{text}");
            let text = allocator.report_with(&bound.within(zero), request).unwrap().to_string();
            let both = "without policy and cpuset node 8 would have given it\n";
            assert!(text.contains(both), "{text}");
            let hard = Limits { hard_bytes: Some(20 << 12), ..Limits::default() };
            allocator.set_limits(LimitOf::Node(NodeId(8)), hard).unwrap();
            let bound = Placement::by(Policy::Bind(eight));
            while allocator.alloc_with(&bound, request).is_ok() {}
            let text = allocator.report_with(&bound, request).unwrap().to_string();
            let line = "the hard limit of node 8, 20 pages, is in the way: 20 are in use, 0 of them cached by CPUs\n\
                        the limit of node 8 raised by 1 pages, to 86016 bytes, would let the request pass\n";
            assert!(text.contains(line) && text.contains("  limit\n"), "{text}");
        });
    }

    /// Each number in a line.
    fn numbers(line: &str) -> std_alloc::vec::Vec<u64> {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
    }

    #[test]
    fn a_limit_in_the_way_is_the_only_help_and_says_by_how_much() {
        TestMachine::new().node(0, 32_768, &[0]).node(8, 32_768, &[]).run(|allocator| {
            let set = |of, pages: u64| {
                let hard = Limits { hard_bytes: Some(pages << 12), ..Limits::default() };
                allocator.set_limits(of, hard).unwrap();
            };
            let (zero, all) = (LimitOf::Node(NodeId(0)), LimitOf::Allocator);
            set(zero, 20);
            while allocator.alloc(Request::new(Order(0), OWN)).is_ok() {}
            for order in [0, 4].map(Order) {
                let request = Request::new(order, OWN);
                let text = report(allocator, request);
                let (_, help) = text.split_once("is in the way").unwrap();
                let mut lines = help.lines().skip(1);
                let raise = lines.next().unwrap();
                let more = order.pages().0;
                let bytes = (20 + more) << 12;
                let expected = std_alloc::format!(
                    "the limit of node 0 raised by {more} pages, to {bytes} bytes, would let the request pass"
                );
                assert_eq!(raise, expected, "{text}");
                assert_eq!(lines.next(), Some("without __GFP_THISNODE node 8 would have given it"));
                assert_eq!(lines.next(), None, "{text}");
                set(zero, 20 + more - 1);
                assert!(allocator.alloc(request).is_err());
                set(zero, 20 + more);
                allocator.free(allocator.alloc(request).unwrap(), order).unwrap();
                allocator.drain_all().unwrap();
                set(zero, 20);
            }
            // Two limits: neither alone would help.
            set(all, 18);
            let request = Request::new(Order(0), OWN);
            let text = report(allocator, request);
            let line = text.lines().last().unwrap();
            let expected = "the limit of node 0 raised by 1 pages, to 86016 bytes, and the limit of the allocator \
                            raised by 3 pages, to 86016 bytes, would let the request pass";
            assert_eq!(line, expected, "{text}");
            set(all, 21);
            assert!(allocator.alloc(request).is_err());
            set(zero, 21);
            assert!(allocator.alloc(request).is_ok());
        });
    }

    /// Whatever fills a machine: what a report says would be enough is enough.
    #[test]
    fn what_a_report_says_is_enough_is_enough() {
        for held in [0, 100, 3000, 4000] {
            TestMachine::new().node(0, 4096, &[0]).node(8, 4096, &[]).run(|allocator| {
                let request = Request::new(Order(3), OWN);
                let zero = LimitOf::Node(NodeId(0));
                let limits = Limits { hard_bytes: Some(held << 12), ..Limits::default() };
                allocator.set_limits(zero, limits).unwrap();
                let single = Request::new(Order(0), OWN);
                let pages: std_alloc::vec::Vec<_> =
                    core::iter::from_fn(|| allocator.alloc(single).ok()).collect();
                assert!(allocator.alloc(request).is_err());
                let text = report(allocator, request);
                let has = |hint: &str| text.lines().find(|line| line.contains(hint));
                if let Some(line) = has("raised by ") {
                    let hard_bytes = Some(numbers(line)[2]);
                    allocator.set_limits(zero, Limits { hard_bytes, ..Limits::default() }).unwrap();
                } else {
                    // By the last ones, so that they merge.
                    assert!(has("blocks up to order").is_none(), "{text}");
                    let missing = has("more free pages").map(|line| numbers(line)[0]);
                    let freed = missing.unwrap_or(pages.len() as u64) as usize;
                    for &pfn in pages.iter().rev().take(freed) {
                        allocator.free(pfn, Order(0)).unwrap();
                    }
                    allocator.drain_all().unwrap();
                }
                assert!(allocator.alloc(request).is_ok(), "{held}: {text}");
            });
        }
    }

    #[test]
    fn a_report_fits_a_screen() {
        let mut machine = TestMachine::new();
        for id in 0..30 {
            machine = machine.node(id, 2048, &[id]).movable(512);
        }
        machine.run(|allocator| {
            let text = report(allocator, Request::new(Order(10), Gfp::HIGHUSER_MOVABLE));
            assert!(text.lines().count() <= 50, "{text}");
            assert!(text.contains("and 52 zones with "), "{text}");
            let error = allocator.report(Request::new(Order(11), Gfp::KERNEL)).err();
            assert_eq!(error, Some(AllocError::OrderTooLarge { order: Order(11) }));
        });
    }

    #[test]
    fn private_nodes_are_named_where_no_other_helps() {
        TestMachine::new().node(0, 4096, &[0]).node(8, 4096, &[1]).run(|allocator| {
            for id in [NodeId(0), NodeId(8)] {
                allocator.set_access(id, crate::alloc::NodeAccess::Private).unwrap();
            }
            let request = Request::new(Order(0), Gfp::KERNEL);
            assert!(allocator.alloc(request).is_err());
            let told = allocator.report(request).unwrap().to_string();
            let help = "\nprivate node 0 would have given it to a request that names it\n";
            assert!(told.contains(help), "{told}");
        });
    }
}
