//! What happens when no zone has room above its low mark, step by step as facts 4.4 tell it.

use std_alloc::vec::Vec;

use super::NaiveAllocator;
use super::alloc::Seen;
use super::asked::{Asked, NaiveScope};
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::host::{CompactEffort, Compacted};
use crate::units::{NodeIndex, Order, Pfn, ZoneKind};
use crate::watermark::AllocFlags;

/// The way of one request.
struct Way {
    flags: AllocFlags,
    /// All rounds until now. Not one of Linux: there the kernel itself reclaims, and can be believed.
    rounds: u32,
    fruitless_rounds: u32,
    effort: CompactEffort,
    compactions: u32,
    /// What the last scan saw.
    seen: Seen,
}

/// A page, or that there is none.
type Outcome = Option<Pfn>;

impl NaiveAllocator {
    pub(super) fn slow(&mut self, asked: &Asked) -> Result<Pfn, Seen> {
        let is_pressing = asked.gfp.contains(Gfp::HIGH) && !asked.gfp.contains(Gfp::DIRECT_RECLAIM);
        let mut scope = asked.scope.clone();
        if is_pressing {
            scope.allowed = None;
        }
        let mut asked = self.rescoped(asked, scope);
        let mut way = Way {
            flags: slow_flags(&asked),
            rounds: 0,
            fruitless_rounds: 0,
            effort: CompactEffort::SyncLight,
            compactions: 0,
            seen: Seen::default(),
        };
        let never_fails = asked.gfp.contains(Gfp::NOFAIL.union(Gfp::DIRECT_RECLAIM));
        self.wake(&asked);
        if let Some(pfn) = self.look(&asked, way.flags, &mut way.seen) {
            return Ok(pfn);
        }
        let mut ended = self.compact_first(&asked, &mut way);
        loop {
            let outcome = match ended {
                Some(outcome) => Some(outcome),
                None => {
                    let is_limited = asked.scope.only.is_some() || asked.scope.allowed.is_some();
                    let leaves = is_limited && (is_pressing || has_full_rights(&asked));
                    if leaves {
                        let named = asked.scope.named.clone();
                        let scope = NaiveScope { named, ..NaiveScope::default() };
                        asked = self.rescoped(&asked, scope);
                    }
                    self.round(&asked, &mut way, leaves)
                }
            };
            match outcome {
                None => {}
                Some(Some(pfn)) => return Ok(pfn),
                Some(None) if !never_fails => return Err(way.seen),
                Some(None) => {
                    let flags = AllocFlags::MIN_RESERVE.union(AllocFlags::OVER_LIMIT);
                    if let Some(pfn) = self.look_out(&asked, flags, &mut way.seen) {
                        return Ok(pfn);
                    }
                    way.rounds = 0;
                }
            }
            ended = None;
            self.wake(&asked);
        }
    }

    fn wake(&mut self, asked: &Asked) {
        if asked.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            self.calls.wakes += self.nodes_on_the_way(asked);
        }
    }

    fn look(&mut self, asked: &Asked, flags: AllocFlags, seen: &mut Seen) -> Option<Pfn> {
        match self.scan(asked, flags) {
            Ok(pfn) => Some(pfn),
            Err(now) => {
                *seen = now;
                None
            }
        }
    }

    /// In the cpuset, and then out of it.
    fn look_out(&mut self, asked: &Asked, flags: AllocFlags, seen: &mut Seen) -> Option<Pfn> {
        let found = self.look(asked, flags, seen);
        if found.is_some() || asked.scope.allowed.is_none() {
            return found;
        }
        let outside = NaiveScope { allowed: None, ..asked.scope.clone() };
        self.look(&self.rescoped(asked, outside), flags, seen)
    }

    /// Large blocks: compaction that does not wait. `Some` is the end.
    fn compact_first(&mut self, asked: &Asked, way: &mut Way) -> Option<Outcome> {
        let is_large = asked.order > Order(3);
        let is_middling = asked.order > Order(0) && asked.migratetype != Migratetype::Movable;
        let may = asked.gfp.contains(Gfp::DIRECT_RECLAIM) && !has_full_rights(asked);
        if !may || !is_large && !is_middling {
            return None;
        }
        let compacted = self.calls.compact(CompactEffort::Async);
        if compacted != Compacted::Skipped
            && let Some(pfn) = self.look(asked, way.flags, &mut way.seen)
        {
            return Some(Some(pfn));
        }
        if is_large && asked.gfp.contains(Gfp::NORETRY) {
            let did_nothing = matches!(compacted, Compacted::Skipped | Compacted::Deferred);
            if did_nothing || asked.gfp.contains(Gfp::THISNODE) {
                return Some(None);
            }
            way.effort = CompactEffort::Async;
        }
        None
    }

    /// One round. `Some` is the end, `None` means that there will be another.
    fn round(&mut self, asked: &Asked, way: &mut Way, has_left: bool) -> Option<Outcome> {
        let gets_rights = has_full_rights(asked) && !way.flags.contains(AllocFlags::NO_WATERMARKS);
        if gets_rights {
            let wakes = AllocFlags(way.flags.0 & AllocFlags::KSWAPD.0);
            way.flags = AllocFlags::NO_WATERMARKS.union(wakes);
        }
        if (gets_rights || has_left)
            && let Some(pfn) = self.look(asked, way.flags, &mut way.seen)
        {
            return Some(Some(pfn));
        }
        if !asked.gfp.contains(Gfp::DIRECT_RECLAIM) {
            if way.seen.limit.is_none() || asked.gfp.contains(Gfp::NORETRY) {
                return Some(None);
            }
            self.drain_all();
            return Some(self.look(asked, way.flags, &mut way.seen));
        }

        self.calls.reclaims += 1;
        let progress = take_one(&mut self.calls.reclaims_that_help);
        if progress {
            if let Some(pfn) = self.look(asked, way.flags, &mut way.seen) {
                return Some(Some(pfn));
            }
            self.give_up_a_reserve(asked, false);
        }
        if progress || way.seen.limit.is_some() {
            self.drain_all();
            if let Some(pfn) = self.look(asked, way.flags, &mut way.seen) {
                return Some(Some(pfn));
            }
        }

        let mut compacted = Compacted::Skipped;
        if asked.order > Order(0) {
            compacted = self.calls.compact(way.effort);
        }
        if compacted != Compacted::Skipped
            && let Some(pfn) = self.look(asked, way.flags, &mut way.seen)
        {
            return Some(Some(pfn));
        }

        let is_large = asked.order > Order(3);
        if asked.gfp.contains(Gfp::NORETRY) || is_large && !asked.gfp.contains(Gfp::RETRY_MAYFAIL) {
            return Some(None);
        }
        way.rounds += 1;
        if way.rounds < 256 {
            if self.should_reclaim_again(asked, way, progress) {
                return None;
            }
            if progress && self.should_compact_again(asked, way, compacted) {
                return None;
            }
        }
        self.kill(asked, way)
    }

    fn should_reclaim_again(&mut self, asked: &Asked, way: &mut Way, progress: bool) -> bool {
        if progress && asked.order <= Order(3) {
            way.fruitless_rounds = 0;
        } else {
            way.fruitless_rounds += 1;
        }
        let again = self.would_do_if_all_was_reclaimed(asked, way);
        way.fruitless_rounds <= 16 && again || self.give_up_a_reserve(asked, true)
    }

    fn would_do_if_all_was_reclaimed(&self, asked: &Asked, way: &Way) -> bool {
        let flags = way.flags.difference(AllocFlags(AllocFlags::WMARK_MASK));
        let (order, kind, more) = (asked.order, asked.kind, self.calls.reclaimable);
        asked.zonelist.iter().any(|&zone| self.zones[zone].would_pass(order, flags, kind, more))
    }

    fn should_compact_again(&self, asked: &Asked, way: &mut Way, compacted: Compacted) -> bool {
        if asked.order == Order(0) {
            return false;
        }
        let is_large = asked.order > Order(3);
        if compacted == Compacted::Skipped {
            return self.would_do_if_all_was_reclaimed(asked, way);
        }
        if compacted == Compacted::Success {
            way.compactions += 1;
            if way.compactions <= if is_large { 4 } else { 16 } {
                return true;
            }
        }
        let hardest = if is_large { CompactEffort::SyncLight } else { CompactEffort::SyncFull };
        if way.effort >= hardest {
            return false;
        }
        way.compactions = 0;
        way.effort = match way.effort {
            CompactEffort::Async => CompactEffort::SyncLight,
            _ => CompactEffort::SyncFull,
        };
        true
    }

    fn kill(&mut self, asked: &Asked, way: &mut Way) -> Option<Outcome> {
        if let Some(pfn) = self.look(asked, AllocFlags::WMARK_HIGH, &mut way.seen) {
            return Some(Some(pfn));
        }
        let may = asked.order <= Order(3)
            && !asked.gfp.contains(Gfp::RETRY_MAYFAIL)
            && !asked.gfp.contains(Gfp::THISNODE)
            && asked.kind >= ZoneKind::Normal;
        if !may {
            return Some(None);
        }
        self.calls.out_of_memory += 1;
        let helped = take_one(&mut self.calls.kills_that_help);
        if asked.gfp.contains(Gfp::NOFAIL) {
            if let Some(pfn) = self.look_out(asked, AllocFlags::NO_WATERMARKS, &mut way.seen) {
                return Some(Some(pfn));
            }
            if way.seen.limit.is_some() {
                for rights in [AllocFlags::MIN_RESERVE, AllocFlags::NO_WATERMARKS] {
                    let flags = rights.union(AllocFlags::OVER_LIMIT);
                    if let Some(pfn) = self.look_out(asked, flags, &mut way.seen) {
                        return Some(Some(pfn));
                    }
                }
            }
        }
        way.fruitless_rounds = 0;
        if helped && way.rounds < 256 { None } else { Some(None) }
    }

    /// The first zone that can, gives a reserved pageblock.
    fn give_up_a_reserve(&mut self, asked: &Asked, even_the_last: bool) -> bool {
        asked.zonelist.iter().any(|&zone| {
            let pageblocks = &mut self.pageblocks;
            self.zones[zone].give_up_reserve(asked.migratetype, even_the_last, pageblocks)
        })
    }

    /// Nodes whose background reclaim is woken: each time the node changes along the zonelist.
    fn nodes_on_the_way(&self, asked: &Asked) -> u64 {
        let mut nodes: Vec<NodeIndex> =
            asked.zonelist.iter().map(|&zone| self.zones[zone].node).collect();
        nodes.dedup();
        nodes.len() as u64
    }
}

fn has_full_rights(asked: &Asked) -> bool {
    asked.gfp.contains(Gfp::MEMALLOC) && !asked.gfp.contains(Gfp::NOMEMALLOC)
}

/// The min mark, and the reserves that the flags open.
fn slow_flags(asked: &Asked) -> AllocFlags {
    let has = |flags| asked.gfp.contains(flags);
    let mut flags = AllocFlags::WMARK_MIN;
    if has(Gfp::KSWAPD_RECLAIM) {
        flags = flags.union(AllocFlags::KSWAPD);
    }
    if has(Gfp::HIGH) {
        flags = flags.union(AllocFlags::MIN_RESERVE);
    }
    if !has(Gfp::DIRECT_RECLAIM) && !has(Gfp::NOMEMALLOC) {
        flags = flags.union(AllocFlags::NON_BLOCK);
        if has(Gfp::HIGH) && asked.order > Order(0) {
            flags = flags.union(AllocFlags::HIGHATOMIC);
        }
    }
    flags
}

/// Whether one was left to take.
fn take_one(left: &mut u64) -> bool {
    let had = *left > 0;
    *left -= u64::from(had);
    had
}
