//! Where pages come from, how many there may be, and why they came from elsewhere: policies, cpusets,
//! limits and reasons of a [`Memory`].

use nearpage::stats::ScanCounts;
use nearpage::{
    AllocError, Fallbacks, LimitError, LimitOf, Limits, NodeId, PageCount, Pfn, Placement, Request,
    UnknownNode,
};

use super::texts::text;
use super::{Memory, PageBlock};

impl Memory {
    /// Allocates a block by a placement: a policy, a cpuset, or a CPU to allocate for. The sets of nodes in it must be made
    /// for this memory's [`topology`](Self::topology).
    ///
    /// ```
    /// # use nearpage::{CallSite, Gfp, NodeSet, Order, Placement, Policy, Request};
    /// # let memory = nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build()?;
    /// # let first = memory.topology().nodes()[0].id;
    /// static READ_AHEAD: CallSite = CallSite::new();
    ///
    /// let mut words = vec![0; NodeSet::words(memory.topology())];
    /// let nodes = NodeSet::new(memory.topology(), [first], &mut words)?;
    /// let near_disk = Placement::by(Policy::PreferredMany(nodes)).counted_at(&READ_AHEAD);
    /// let block = memory.alloc_with(&near_disk, Request::new(Order(0), Gfp::HIGHUSER_MOVABLE))?;
    /// assert_eq!((block.node(), READ_AHEAD.pages().0), (first, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
    ) -> Result<PageBlock<'_>, AllocError> {
        let pfn = self.alloc_frames_with(placement, request)?;
        Ok(self.block(pfn, request))
    }

    /// Allocates a block by a placement and returns its first frame; the caller must free it.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc_frames_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
    ) -> Result<Pfn, AllocError> {
        self.pages().alloc_with(placement, request)
    }

    /// Allocates up to `out.len()` single pages by a placement; see
    /// [`PageAllocator::alloc_bulk_with`](nearpage::PageAllocator::alloc_bulk_with).
    ///
    /// # Errors
    /// [`AllocError`] if not even one page could be had.
    pub fn alloc_frames_bulk_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        self.pages().alloc_bulk_with(placement, request, out)
    }

    /// Limits how much of a node, or of all nodes together, may be in use. Pages that CPUs cache count as in use. See
    /// [`nearpage::Limits`].
    ///
    /// A hard limit below current use reclaims nothing. It drains the caches of all CPUs, and every request fails until
    /// enough pages are freed.
    ///
    /// ```
    /// use nearpage::Limits;
    /// use nearpage::LimitOf;
    ///
    /// let memory = nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build()?;
    /// let limits = Limits { hard_bytes: Some(8 << 20), soft_bytes: Some(6 << 20), ..Limits::default() };
    /// memory.set_limits(LimitOf::Allocator, limits)?;
    /// let block = memory.alloc_pages(16)?;
    /// assert!(memory.in_use(LimitOf::Allocator)?.0 >= 16);
    /// # drop(block);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LimitError`]; the call then changes nothing.
    pub fn set_limits(&self, of: LimitOf, limits: Limits) -> Result<(), LimitError> {
        self.pages().set_limits(of, limits)
    }

    /// The limits of a node, or of all nodes together.
    ///
    /// # Errors
    /// [`UnknownNode`].
    pub fn limits(&self, of: LimitOf) -> Result<Limits, UnknownNode> {
        self.pages().limits(of)
    }

    /// Pages of a node, or of all nodes together, that callers have or CPUs cache.
    ///
    /// # Errors
    /// [`UnknownNode`].
    pub fn in_use(&self, of: LimitOf) -> Result<PageCount, UnknownNode> {
        self.pages().in_use(of)
    }

    /// Explains why a request fails, for the program to print: what it asks for, what each zone has, and what would help.
    ///
    /// # Errors
    /// [`AllocError`] if the request contradicts itself. The error then says all there is to say.
    pub fn report(&self, request: Request) -> Result<String, AllocError> {
        self.pages().report(None, request)
    }

    /// Explains why a request with a placement fails.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn report_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
    ) -> Result<String, AllocError> {
        self.pages().report(Some(placement), request)
    }

    /// Pages that were wanted from node `from` and came from node `to`, by reason. `None` if one of the nodes is unknown.
    pub fn fallbacks(&self, from: NodeId, to: NodeId) -> Option<Fallbacks> {
        let index = |node| self.topology().index_of(node);
        let (from, to) = (index(from)?, index(to)?);
        Some(self.pages().fallbacks(from, to))
    }

    /// The same for all pairs of nodes, as text: a line for each pair that has such pages.
    pub fn fallbacks_text(&self) -> String {
        text(|out| self.pages().write_fallbacks(out))
    }

    /// What scans of a node's zonelists did. `None` if the node is unknown.
    pub fn scan_counts(&self, node: NodeId) -> Option<ScanCounts> {
        let node = self.topology().index_of(node)?;
        Some(self.pages().scan_counts(node))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use nearpage::{CallSite, Gfp, NodeAccess, NodeSet, Order, Policy, Reason};

    use super::*;
    use crate::frame::FRAME_BYTES;
    use crate::memory::tests::memory;

    #[test]
    fn placed_requests_limits_and_what_is_told_of_them() {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let far = NodeId(3);
            let mut words = [0];
            let set = NodeSet::new(memory.topology(), [far], &mut words).unwrap();
            let bind = Placement::by(Policy::Bind(set));
            let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
            let block = memory.alloc_with(&bind, request).unwrap();
            assert_eq!(block.node(), far);
            let hard = Limits { hard_bytes: Some(100 * FRAME_BYTES + 1), ..Limits::default() };
            memory.set_limits(LimitOf::Node(far), hard).unwrap();
            let mut pages = [Pfn(0); 200];
            let mut got = 0;
            let error = loop {
                match memory.alloc_frames_bulk_with(&bind, request, &mut pages[got..]) {
                    Ok(more) => got += more,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, AllocError::LimitReached { .. }), "{error}");
            assert!((80..100).contains(&got), "{got}: what CPUs cache counts");
            let fallbacks = memory.fallbacks(NodeId(0), far).unwrap();
            assert!(fallbacks.pages(Reason::Policy).0 > 0);
            assert!(memory.fallbacks_text().starts_with("Node 0 -> Node 3 "));
            // SAFETY: the pages are this test's.
            unsafe { memory.free_frames_bulk(&pages[..got]) }.unwrap();
            memory.set_access(far, NodeAccess::Private).unwrap();
            assert_eq!(memory.alloc(request.on(far)).unwrap().node(), NodeId(0));
            assert!(memory.report(request).unwrap().starts_with("page allocation: order 0"));
            assert!(memory.pagetypeinfo().contains("Node    3, zone   Normal"));
        }
    }

    #[test]
    fn placed_blocks_are_cleared_if_asked() {
        let memory = memory(true);
        let request = Request::new(Order(2), Gfp::KERNEL);
        let local = Placement::by(Policy::Local);
        let mut block = memory.alloc_with(&local, request).unwrap();
        block.fill(7);
        let pfn = block.pfn();
        drop(block);
        let zeroes = Request { gfp: request.gfp.union(Gfp::ZERO), ..request };
        let block = memory.alloc_with(&local, zeroes).unwrap();
        assert!(block.pfn() == pfn && block.iter().all(|&byte| byte == 0));
    }

    /// Takes pages near node 0 in three ways, single and in bulk, and gives them back; returns how many a call
    /// site was to count, and how many came from node 3.
    fn take_and_give_back(memory: &Memory, site: &CallSite) -> (u64, u64) {
        let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE).on(NodeId(0));
        let counted = Placement::by(Policy::Local).counted_at(site);
        let mut bulk = [Pfn(0); 300];
        let (mut pages, mut of_site) = (Vec::new(), 0);
        for _ in 0..20 {
            pages.extend((0..40).map(|_| memory.alloc_frames(request).unwrap()));
            pages.extend((0..20).map(|_| memory.alloc_frames_with(&counted, request).unwrap()));
            let got = memory.alloc_frames_bulk_with(&counted, request, &mut bulk).unwrap();
            pages.extend(&bulk[..got]);
            of_site += 20 + got as u64;
            let in_use = memory.in_use(LimitOf::Node(NodeId(0))).unwrap();
            assert!(in_use.0 <= LIMIT_PAGES, "{in_use}");
        }
        let is_far = |page: &&Pfn| memory.node_of(**page) == Some(NodeId(3));
        let moved = pages.iter().filter(is_far).count() as u64;
        // SAFETY: the pages are this thread's.
        unsafe { memory.free_frames_bulk(&pages) }.unwrap();
        (of_site, moved)
    }

    const LIMIT_PAGES: u64 = 6000;

    #[test]
    fn a_limit_holds_and_reasons_add_up_while_threads_allocate() {
        for use_rseq in [true, false] {
            let (memory, site) = (memory(use_rseq), CallSite::new());
            let hard = Limits { hard_bytes: Some(LIMIT_PAGES * FRAME_BYTES), ..Limits::default() };
            memory.set_limits(LimitOf::Node(NodeId(0)), hard).unwrap();
            let work = || (0..10).map(|_| take_and_give_back(&memory, &site)).collect::<Vec<_>>();
            let rounds: Vec<(u64, u64)> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            let of_site: u64 = rounds.iter().map(|(of_site, _)| of_site).sum();
            let moved: u64 = rounds.iter().map(|(_, moved)| moved).sum();
            let fallbacks = memory.fallbacks(NodeId(0), NodeId(3)).unwrap();
            assert_eq!((site.pages().0, fallbacks.total().0), (of_site, moved));
            assert!(site.fallbacks().total().0 <= moved && moved > 0);
            assert!(fallbacks.pages(Reason::Limit).0 > 0, "{fallbacks:?}");
            memory.drain_all().unwrap();
            assert_eq!(memory.in_use(LimitOf::Allocator), Ok(PageCount(0)));
            assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
        }
    }

    /// Threads give back and ask again. Once more is out than allowed, whoever gets a page got one of those that the
    /// limit leaves.
    #[test]
    fn a_limit_below_what_is_out_is_kept_from_that_moment_on() {
        const THREADS: u64 = 4;
        const HELD: u64 = 1000;
        let limit = THREADS * HELD / 2;
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let of = LimitOf::Node(NodeId(0));
            // Neither waits nor drains.
            let gfp = Gfp::NOWAIT.union(Gfp::THISNODE).union(Gfp::NORETRY);
            let own = Request::new(Order(0), gfp).on(NodeId(0));
            // Counted out before it is given back, and in after it was got: never more than there is.
            let (held, is_set) = (AtomicU64::new(0), AtomicBool::new(false));
            let take = || {
                let was_set = is_set.load(Ordering::SeqCst);
                let pfn = memory.alloc_frames(own).ok()?;
                let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(!was_set || now <= limit, "{now} pages are held");
                Some(pfn)
            };
            let give = |pfn| {
                held.fetch_sub(1, Ordering::SeqCst);
                // SAFETY: the page is its thread's.
                unsafe { memory.free_frames(pfn, Order(0)) }.unwrap();
            };
            let all_hold = Barrier::new(THREADS as usize + 1);
            let (all_hold, is_set) = (&all_hold, &is_set);
            let work = |seed: u64| {
                let mut pages: Vec<Pfn> = (0..HELD).map(|_| take().unwrap()).collect();
                all_hold.wait();
                let (mut round, mut since) = (seed, 0);
                while since < 50 * HELD {
                    if round * 7 % 10 < 5 && pages.len() < HELD as usize {
                        pages.extend(take());
                    } else if let Some(pfn) = pages.pop() {
                        give(pfn);
                    }
                    round += 1;
                    since += u64::from(is_set.load(Ordering::Relaxed));
                }
                pages.into_iter().for_each(give);
            };
            thread::scope(|scope| {
                (0..THREADS).for_each(|seed| drop(scope.spawn(move || work(seed))));
                all_hold.wait();
                let hard = Limits { hard_bytes: Some(limit * FRAME_BYTES), ..Limits::default() };
                memory.set_limits(of, hard).unwrap();
                is_set.store(true, Ordering::SeqCst);
            });
            memory.drain_all().unwrap();
            assert_eq!(memory.in_use(of), Ok(PageCount(0)));
            assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
        }
    }

    #[test]
    fn cached_pages_are_behind_a_lowered_limit_too() {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let of = LimitOf::Node(NodeId(0));
            let own = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE)).on(NodeId(0));
            let mut blocks: Vec<_> = (0..300).map(|_| memory.alloc(own).unwrap()).collect();
            blocks.truncate(200);
            assert!(memory.in_use(of).unwrap().0 > 200, "some are cached");
            let hard = Limits { hard_bytes: Some(150 * FRAME_BYTES), ..Limits::default() };
            memory.set_limits(of, hard).unwrap();
            for left in (150..200).rev() {
                let error = memory.alloc(own).unwrap_err();
                assert!(matches!(error, AllocError::LimitReached { .. }), "{error}");
                blocks.pop();
                assert_eq!(memory.in_use(of).unwrap().0, left);
            }
            assert!(memory.alloc(own).is_err());
            blocks.pop();
            drop(memory.alloc(own).unwrap());
            assert_eq!(memory.in_use(of).unwrap().0, 150, "cached again");
        }
    }
}
