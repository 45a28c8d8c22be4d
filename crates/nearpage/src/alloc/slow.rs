//! The ladder when no zone had room above its low mark. Facts 4.4.
//!
//! ```text
//! wake background reclaim; look down to the min mark
//! compact without waiting, for large blocks
//! round:  look without watermarks, for who helps to free memory
//!         reclaim: look; unreserve urgent pageblocks and drain pagesets, look
//!         compact: look
//!         another round, if reclaim or compaction may still help
//!         the last resort, and another round if it helped
//! ```
//!
//! Each step calls the host with no lock held. Requests differ in how far they climb: who cannot wait leaves at
//! the first round, `__GFP_NORETRY` after it, and `__GFP_NOFAIL` never leaves without a page. All others leave after
//! [`ROUNDS_MAX`] rounds, whatever the host says that it freed: Linux has no such bound, but its reclaim is its own.

use super::allocator::PageAllocator;
use super::scan::Refusals;
use super::stalls::{StallEvents, count};
use super::wanted::{Climbs, FirstZone, Wanted};
use crate::buddy::Force;
use crate::error::AllocError;
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::host::{CompactEffort, Compacted, Platform, Shortage};
use crate::units::{COSTLY_ORDER, Order, Pfn, ZoneKind};
use crate::watermark::AllocFlags;
use crate::zone::ZoneRules;

/// Rounds of reclaim without progress before giving up. `mm/internal.h: MAX_RECLAIM_RETRIES`, 6.12.
const ROUNDS_WITHOUT_PROGRESS_MAX: u32 = 16;
/// Rounds of a request in all: reclaim may free what the request cannot use (another node's pages), what others take
/// at once, or nothing at all, and say each time that it made progress. At 32 pages a round, as Linux asks for, this is
/// 32 MiB that came to nothing.
const ROUNDS_MAX: u32 = 256;
/// Rounds after a compaction that made a block which somebody else then took.
/// `mm/page_alloc.c: MAX_COMPACT_RETRIES`, 6.12.
const COMPACTIONS_MAX: u32 = 16;

impl<'m, P: Platform> PageAllocator<'m, P> {
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, wanted: &Wanted<'_>) -> Result<Pfn, AllocError> {
        let mut ladder = Ladder {
            allocator: self,
            wanted: begin(wanted),
            flags: slow_flags(wanted),
            refusals: Refusals::default(),
            rounds: 0,
            rounds_without_progress: 0,
            effort: CompactEffort::SyncLight,
            compactions: 0,
        };
        match ladder.climb() {
            End::Got(pfn) => Ok(pfn),
            End::NoPage => Err(self.out_of_memory(wanted, ladder.refusals)),
        }
    }

    /// Wakes background reclaim of each node in the zonelist.
    fn wake_reclaim(&self, wanted: &Wanted<'_>) {
        let mut last = None;
        for zone in self.zonelist(wanted) {
            if last.replace(zone.node()) != Some(zone.node()) {
                let node = self.node_id(zone.node());
                self.platform.wake_reclaim(Shortage { node, ..self.shortage(wanted) });
            }
        }
    }

    /// Gives a pageblock reserved for urgent requests to this one; returns whether there was any.
    fn unreserve(&self, wanted: &Wanted<'_>, force: Force) -> bool {
        let gave_up =
            self.zonelist(wanted).any(|zone| P::Rules::unreserve(zone, wanted.migratetype, force));
        if gave_up {
            count(&self.nodes[wanted.node.0 as usize].stalls.unreserved);
        }
        gave_up
    }

    fn out_of_memory(&self, wanted: &Wanted<'_>, refusals: Refusals) -> AllocError {
        if let Some((limit, pages)) = refusals.limit {
            return AllocError::LimitReached { limit, pages, order: wanted.order, gfp: wanted.gfp };
        }
        AllocError::OutOfMemory {
            node: self.node_id(wanted.node),
            order: wanted.order,
            gfp: wanted.gfp,
            zones: refusals.zones,
            free: refusals.free,
            below_watermark: refusals.below_watermark,
            fragmented: refusals.fragmented,
        }
    }
}

/// How the ladder ends.
enum End {
    Got(Pfn),
    NoPage,
}

/// A request on its way up.
struct Ladder<'a, 'm, P: Platform> {
    allocator: &'a PageAllocator<'m, P>,
    wanted: Wanted<'a>,
    flags: AllocFlags,
    /// What the last look saw.
    refusals: Refusals,
    /// Since the climb began, or began anew for who may not fail.
    rounds: u32,
    rounds_without_progress: u32,
    effort: CompactEffort,
    /// Those that made a block, since the effort last grew.
    compactions: u32,
}

impl<P: Platform> Ladder<'_, '_, P> {
    fn climb(&mut self) -> End {
        self.wake();
        let mut step = self.look().and_then(|()| self.compact_early());
        loop {
            step = match step.and_then(|()| self.round()) {
                Err(End::NoPage) if self.wanted.gfp.may_not_fail() => self.insist(),
                ended => ended,
            };
            if let Err(end) = step {
                return end;
            }
            self.wake();
        }
    }

    fn wake(&self) {
        if self.flags.contains(AllocFlags::KSWAPD) {
            self.allocator.wake_reclaim(&self.wanted);
        }
    }

    /// From what there is now; goes on if that is nothing.
    fn look(&mut self) -> Result<(), End> {
        self.look_with(self.flags)
    }

    fn look_with(&mut self, flags: AllocFlags) -> Result<(), End> {
        match self.allocator.get_page(&self.wanted, flags, FirstZone::Untried) {
            Ok(pfn) => Err(End::Got(pfn)),
            Err(refusals) => {
                self.refusals = refusals;
                Ok(())
            }
        }
    }

    /// Goes on if there is to be another round.
    fn round(&mut self) -> Result<(), End> {
        self.use_reserves()?;
        if !self.wanted.gfp.contains(Gfp::DIRECT_RECLAIM) {
            return self.drain_and_leave();
        }
        let progress = self.reclaim()?;
        let compacted = self.compact()?;
        if gives_up_early::<P>(&self.wanted) {
            return Err(End::NoPage);
        }
        self.rounds += 1;
        let goes_on = self.has_rounds_left()
            && (self.reclaim_may_help(progress) || progress && self.compaction_may_help(compacted));
        if goes_on { Ok(()) } else { self.last_resort() }
    }

    /// Who helps to free memory may have the last pages; but as long as one zone of the list has pages above
    /// its mark, no other is emptied. They, and urgent requests that cannot wait, now leave policy and cpuset.
    fn use_reserves(&mut self) -> Result<(), End> {
        let Wanted { gfp, scope, .. } = self.wanted;
        let opens = ignores_watermarks(gfp) && !self.flags.contains(AllocFlags::NO_WATERMARKS);
        if opens {
            let wakes = AllocFlags(self.flags.0 & AllocFlags::KSWAPD.0);
            self.flags = AllocFlags::NO_WATERMARKS.union(wakes);
        }
        let leaves = (ignores_watermarks(gfp) || is_pressing(gfp)) && scope.is_limited();
        if leaves {
            self.wanted.scope = scope.anywhere();
        }
        if opens || leaves { self.look() } else { Ok(()) }
    }

    /// For a request that may not reclaim: nearpage looks once more after a drain, unless the request prefers
    /// failing to more work.
    fn drain_and_leave(&mut self) -> Result<(), End> {
        let is_easy = self.wanted.gfp.contains(Gfp::NORETRY);
        if self.drains() && !is_easy {
            self.drain();
            self.look()?;
        }
        Err(End::NoPage)
    }

    /// Whether pagesets are drained in any case: for a limit they are, since what they hold counts.
    fn drains(&self) -> bool {
        self.allocator.model.departures.drains_before_failing || self.refusals.limit.is_some()
    }

    fn stalls(&self) -> &StallEvents {
        &self.allocator.nodes[self.wanted.node.0 as usize].stalls
    }

    fn drain(&self) {
        count(&self.stalls().drains);
        // A CPU that is being drained by somebody else needs no second drain.
        let _ = self.allocator.drain_all();
    }

    /// Returns whether it made progress.
    fn reclaim(&mut self) -> Result<bool, End> {
        let shortage = self.allocator.shortage(&self.wanted);
        count(&self.stalls().reclaims[self.wanted.kind.index()]);
        let progress = self.allocator.platform.direct_reclaim(shortage).0 > 0;
        if progress {
            self.look()?;
            self.allocator.unreserve(&self.wanted, Force::KeepsLast);
        }
        if progress || self.drains() {
            self.drain();
            self.look()?;
        }
        Ok(progress)
    }

    fn has_rounds_left(&self) -> bool {
        self.rounds < ROUNDS_MAX
    }

    /// Whether to reclaim once more. Before giving up, urgent pageblocks go.
    /// `mm/page_alloc.c: should_reclaim_retry`, 6.12.
    fn reclaim_may_help(&mut self, progress: bool) -> bool {
        let counts = progress && self.wanted.order <= COSTLY_ORDER;
        self.rounds_without_progress = if counts { 0 } else { self.rounds_without_progress + 1 };
        if self.rounds_without_progress <= ROUNDS_WITHOUT_PROGRESS_MAX {
            let departs = self.allocator.model.departures.retries_after_progress;
            if progress && departs || self.reclaim_could_do() {
                return true;
            }
        }
        self.allocator.unreserve(&self.wanted, Force::TakesLast)
    }

    /// Whether some zone would pass its min mark if all was reclaimed that can be.
    fn reclaim_could_do(&self) -> bool {
        let Wanted { order, kind, .. } = self.wanted;
        let flags = AllocFlags(self.flags.0 & !AllocFlags::WMARK_MASK);
        self.allocator.zonelist(&self.wanted).any(|zone| {
            let node = self.allocator.node_id(zone.node());
            let more = self.allocator.platform.reclaimable(node, zone.kind());
            zone.would_pass(order, flags, kind, more)
        })
    }

    /// Large blocks are compacted for before anything is reclaimed: what is missing may be order, not memory.
    fn compact_early(&mut self) -> Result<(), End> {
        let Wanted { order, gfp, migratetype, .. } = self.wanted;
        let is_costly = order > COSTLY_ORDER;
        let is_worth_it = is_costly || order > Order(0) && migratetype != Migratetype::Movable;
        if !is_worth_it || !gfp.contains(Gfp::DIRECT_RECLAIM) || ignores_watermarks(gfp) {
            return Ok(());
        }
        let compacted = self.compact_with(CompactEffort::Async)?;
        if is_costly && gfp.contains(Gfp::NORETRY) {
            let did_nothing = matches!(compacted, Compacted::Skipped | Compacted::Deferred);
            if did_nothing || gfp.contains(Gfp::THISNODE) {
                return Err(End::NoPage);
            }
            self.effort = CompactEffort::Async;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<Compacted, End> {
        self.compact_with(self.effort)
    }

    fn compact_with(&mut self, effort: CompactEffort) -> Result<Compacted, End> {
        if !P::COMPACTS || self.wanted.order == Order(0) {
            return Ok(Compacted::Skipped);
        }
        let shortage = self.allocator.shortage(&self.wanted);
        let compacted = self.allocator.platform.compact(shortage, effort);
        if compacted != Compacted::Skipped {
            count(&self.stalls().compactions);
            self.look()?;
        }
        Ok(compacted)
    }

    /// Whether to compact once more, harder if need be.
    /// `mm/page_alloc.c: should_compact_retry`, 6.12.
    fn compaction_may_help(&mut self, compacted: Compacted) -> bool {
        if !P::COMPACTS || self.wanted.order == Order(0) {
            return false;
        }
        let is_costly = self.wanted.order > COSTLY_ORDER;
        match compacted {
            Compacted::Skipped => return self.reclaim_could_do(),
            Compacted::Success => {
                let most = if is_costly { COMPACTIONS_MAX / 4 } else { COMPACTIONS_MAX };
                self.compactions += 1;
                if self.compactions <= most {
                    return true;
                }
            }
            Compacted::Deferred | Compacted::Failed => {}
        }
        let harder = match self.effort {
            CompactEffort::Async => CompactEffort::SyncLight,
            CompactEffort::SyncLight if !is_costly => CompactEffort::SyncFull,
            CompactEffort::SyncLight | CompactEffort::SyncFull => return false,
        };
        (self.effort, self.compactions) = (harder, 0);
        true
    }

    /// Somebody gives something up. Goes on if that helped.
    fn last_resort(&mut self) -> Result<(), End> {
        // Somebody else may have been given up for meanwhile.
        self.look_with(AllocFlags::WMARK_HIGH)?;
        if !may_kill(&self.wanted) {
            return Err(End::NoPage);
        }
        let shortage = self.allocator.shortage(&self.wanted);
        let helped = self.allocator.platform.out_of_memory(shortage);
        if helped {
            count(&self.stalls().last_resorts);
        }
        if self.wanted.gfp.contains(Gfp::NOFAIL) {
            self.look_far(AllocFlags::NO_WATERMARKS)?;
            self.exceed_limit()?;
        }
        self.rounds_without_progress = 0;
        if helped && self.has_rounds_left() { Ok(()) } else { Err(End::NoPage) }
    }

    /// If a limit keeps pages from a request that may not fail, it exceeds the limit, with the last pages if need be:
    /// nobody else would end its climb.
    fn exceed_limit(&mut self) -> Result<(), End> {
        if self.refusals.limit.is_none() {
            return Ok(());
        }
        self.look_far(AllocFlags::MIN_RESERVE.union(AllocFlags::OVER_LIMIT))?;
        self.look_far(AllocFlags::NO_WATERMARKS.union(AllocFlags::OVER_LIMIT))
    }

    /// A request that may not fail gets a part of the reserves, whatever the limits, and begins anew, unless its caller
    /// does that.
    fn insist(&mut self) -> Result<(), End> {
        self.look_far(AllocFlags::MIN_RESERVE.union(AllocFlags::OVER_LIMIT))?;
        if self.wanted.climbs == Climbs::One {
            return Err(End::NoPage);
        }
        self.allocator.platform.relax();
        self.rounds = 0;
        Ok(())
    }

    /// To leave the cpuset is better than to fail where failing is not allowed.
    fn look_far(&mut self, flags: AllocFlags) -> Result<(), End> {
        self.look_with(flags)?;
        let inside = self.wanted.scope;
        if !inside.has_cpuset() {
            return Ok(());
        }
        self.wanted.scope = inside.beyond_cpuset();
        let looked = self.look_with(flags);
        self.wanted.scope = inside;
        looked
    }
}

/// The request as it enters the ladder: urgent ones that cannot wait are not kept in a cpuset. Facts 3.7.
fn begin<'a>(wanted: &Wanted<'a>) -> Wanted<'a> {
    let scope = wanted.scope;
    let scope = if is_pressing(wanted.gfp) { scope.beyond_cpuset() } else { scope };
    Wanted { scope, ..*wanted }
}

/// Whether the request is urgent and cannot wait.
fn is_pressing(gfp: Gfp) -> bool {
    gfp.contains(Gfp::HIGH) && !gfp.contains(Gfp::DIRECT_RECLAIM)
}

/// The flags that the slow path begins with. The right to the last pages is used later, by `use_reserves`.
fn slow_flags(wanted: &Wanted<'_>) -> AllocFlags {
    let flags = AllocFlags::under_pressure(wanted.gfp, wanted.order);
    flags.difference(AllocFlags::NO_WATERMARKS)
}

/// Whether the request may take the last pages: it helps to free others. Facts 4.4 e.
fn ignores_watermarks(gfp: Gfp) -> bool {
    gfp.contains(Gfp::MEMALLOC) && !gfp.contains(Gfp::NOMEMALLOC)
}

/// Requests that prefer failing to more work, and large ones that more work rarely helps. Facts 4.4 i.
fn gives_up_early<P: Platform>(wanted: &Wanted<'_>) -> bool {
    let tries_hard = P::COMPACTS && wanted.gfp.contains(Gfp::RETRY_MAYFAIL);
    wanted.gfp.contains(Gfp::NORETRY) || wanted.order > COSTLY_ORDER && !tries_hard
}

/// Whether the last resort would be taken for this request. Facts 4.4 m.
fn may_kill(wanted: &Wanted<'_>) -> bool {
    wanted.order <= COSTLY_ORDER
        && !wanted.gfp.contains(Gfp::RETRY_MAYFAIL)
        && !wanted.gfp.contains(Gfp::THISNODE)
        && wanted.kind >= ZoneKind::Normal
}

#[cfg(test)]
mod tests {
    use super::ROUNDS_MAX;
    use crate::alloc::{Config, Limits, Request};
    use crate::error::LimitOf;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::{NodeId, NodeIndex, Order, PageCount};

    #[test]
    fn progress_that_gives_no_page_comes_to_an_end() {
        for model in [Model::NEARPAGE, Model::LINUX_6_12] {
            let config = Config { model, ..Config::default() };
            TestMachine::new().node(0, 4096, &[0]).config(config).run(|allocator| {
                let alloc = || allocator.alloc(Request::new(Order(0), Gfp::KERNEL));
                while alloc().is_ok() {}
                let host = allocator.platform();
                // A shrinker that frees on another node, or counts what it does not free.
                host.says_freed.set(PageCount(1));
                host.says_reclaimable.set(PageCount(1 << 20));
                host.reclaims.set(0);
                assert!(alloc().is_err());
                assert_eq!(host.reclaims.get(), u64::from(ROUNDS_MAX), "{}", model.name);
                host.says_killed.set(true);
                assert!(alloc().is_err());
                assert_eq!(host.reclaims.get(), 2 * u64::from(ROUNDS_MAX), "{}", model.name);
                let not_failing = Request::new(Order(0), Gfp::KERNEL.union(Gfp::NOFAIL));
                assert!(allocator.alloc(not_failing).is_ok());
            });
        }
    }

    #[test]
    fn last_pages_are_taken_last() {
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 4096, &[1]);
        machine.run(|allocator| {
            let near = |gfp| allocator.alloc(Request::new(Order(0), gfp).on(NodeId(0)));
            let node_of = |pfn| allocator.topology().node_of_pfn(pfn);
            while near(Gfp::KERNEL.union(Gfp::THISNODE)).is_ok() {}
            let helper = Gfp::KERNEL.union(Gfp::MEMALLOC);
            assert_eq!(near(helper).map(node_of), Ok(Some(NodeIndex(1))));
            while near(Gfp::KERNEL).is_ok() {}
            assert_eq!(near(helper).map(node_of), Ok(Some(NodeIndex(0))));
            assert!(near(helper.union(Gfp::NOMEMALLOC)).is_err());
        });
    }

    #[test]
    fn who_may_not_fail_gets_the_reserves() {
        TestMachine::new().node(0, 4096, &[0]).run(|allocator| {
            let alloc = |gfp| allocator.alloc(Request::new(Order(0), gfp));
            let free = || allocator.zones()[0].free_pages();
            while alloc(Gfp::KERNEL).is_ok() {}
            assert!(alloc(Gfp::NOWAIT.union(Gfp::NOFAIL)).is_err(), "who cannot wait may fail");
            let kills = allocator.platform().out_of_memory.get();
            while free() > PageCount(0) {
                alloc(Gfp::KERNEL.union(Gfp::NOFAIL)).unwrap();
            }
            assert!(allocator.platform().out_of_memory.get() > kills);
        });
    }

    #[test]
    fn who_may_not_fail_gets_the_last_pages_over_a_limit() {
        TestMachine::new().node(0, 4096, &[0]).run(|allocator| {
            let alloc = |gfp| allocator.alloc(Request::new(Order(0), gfp));
            let free = || allocator.zones()[0].free_pages();
            let helper = Gfp::KERNEL.union(Gfp::MEMALLOC);
            while free() > PageCount(64) {
                alloc(helper).unwrap();
            }
            let hard_bytes = Some(100 * 4096);
            let limits = Limits { hard_bytes, ..Limits::default() };
            allocator.set_limits(LimitOf::Allocator, limits).unwrap();
            // What the CPU has cached is there for others.
            while alloc(helper).is_ok() {}
            assert!(free() > PageCount(0));
            while free() > PageCount(0) {
                alloc(Gfp::KERNEL.union(Gfp::NOFAIL)).unwrap();
            }
        });
    }
}
