//! The counter of a zone's free pages, and what of them is kept back for urgent requests: one word.
//!
//! Where there are free lists, who holds the zone's lock stores it. Under nearpage's own rules it is the truth, and pages are
//! claimed from it and given back to it by anybody.

use super::{Ledgers, Zone, ZoneEvents};
use crate::host::{Access, Platform};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{ORDERS, Order, PageCount, ZoneKind};
use crate::watermark::AllocFlags;

const KEPT_SHIFT: u32 = 32;
const PAGES_MASK: u64 = (1 << KEPT_SHIFT) - 1;

/// Free pages, and above them those of them that are kept back. A zone has fewer than 2^32 frames.
#[derive(Debug, Default)]
pub(super) struct FreeCounter(AtomicU64);

impl FreeCounter {
    pub(super) fn pages(&self) -> PageCount {
        PageCount(self.0.load(Ordering::Relaxed) & PAGES_MASK)
    }

    pub(super) fn kept_back(&self) -> PageCount {
        PageCount(self.0.load(Ordering::Relaxed) >> KEPT_SHIFT)
    }

    pub(super) fn store(&self, pages: PageCount, kept_back: PageCount) {
        self.0.store(pages.0 | kept_back.0 << KEPT_SHIFT, Ordering::Relaxed);
    }

    /// Takes up to `most` pages that are not kept back and above `floor`, or exactly `least` above `last`; 0 if there are not
    /// so many. `counts_kept`: what is kept back counts for `last`.
    fn claim(&self, (least, most): (u64, u64), floor: u64, last: u64, counts_kept: bool) -> u64 {
        let mut claimed = 0;
        let claim = |word: u64| {
            let (pages, kept) = (word & PAGES_MASK, word >> KEPT_SHIFT);
            let spare = pages.saturating_sub(kept);
            claimed = most.min(spare.saturating_sub(floor));
            if claimed < least {
                let counted = if counts_kept { pages } else { spare };
                let may = spare >= least && counted >= least + last;
                claimed = if may { least } else { 0 };
            }
            (claimed > 0).then(|| word - claimed)
        };
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, claim);
        claimed
    }

    fn give(&self, pages: u64) {
        self.0.fetch_add(pages, Ordering::AcqRel);
    }

    /// Keeps more of the free pages back, if there are so many; returns whether.
    fn keep_back(&self, pages: u64) -> bool {
        let keep = |word: u64| {
            let spare = (word & PAGES_MASK).saturating_sub(word >> KEPT_SHIFT);
            (spare >= pages).then(|| word + (pages << KEPT_SHIFT))
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, keep).is_ok()
    }
}

/// Under nearpage's own rules.
impl<P: Platform> Zone<'_, P> {
    /// Takes pages off the counter, and counts them as out: `least` of them if that leaves what the request's rights say, and
    /// more only above what `min` and the reserves leave, up to `most`. Fewer than `least` are none. The limits of both ledgers
    /// hold. So a mark holds to the page, however many ask at once.
    pub(crate) fn claim_pages(
        &self,
        platform: &P,
        (flags, kind): (AllocFlags, ZoneKind),
        least: u64,
        most: u64,
    ) -> u64 {
        let allowed = self.claim_in_ledgers(flags, least, most);
        if allowed == 0 {
            return 0;
        }
        platform.touch(self.published_line(), Access::Atomic);
        let floor = self.marks().min.0 + self.reserve(kind).0;
        let last = match flags.contains(AllocFlags::NO_WATERMARKS) {
            true => 0,
            false => self.check(Order(0), flags, kind).left_free().0,
        };
        let counts_kept = flags.intersects(AllocFlags::RESERVES);
        let claimed = self.published.free.claim((least, allowed), floor, last, counts_kept);
        self.sub_in_ledgers(allowed - claimed);
        self.publish_headroom();
        claimed
    }

    fn claim_in_ledgers(&self, flags: AllocFlags, least: u64, most: u64) -> u64 {
        let Ledgers { node, all } = self.ledgers;
        let most = most.min(u32::MAX.into()) as u32;
        let of_node = node.claim(most, Order(0));
        let allowed = all.claim(of_node, Order(0));
        node.sub(PageCount((of_node - allowed).into()));
        let lacking = least.saturating_sub(allowed.into());
        if lacking == 0 {
            return allowed.into();
        }
        if flags.contains(AllocFlags::OVER_LIMIT) {
            node.add(PageCount(lacking));
            all.add(PageCount(lacking));
            return least;
        }
        self.sub_in_ledgers(allowed.into());
        ZoneEvents::add(&self.events.limit_refused, 1);
        0
    }

    fn sub_in_ledgers(&self, pages: u64) {
        if pages > 0 {
            self.ledgers.node.sub(PageCount(pages));
            self.ledgers.all.sub(PageCount(pages));
        }
    }

    /// Gives pages back, whose bits are set.
    pub(crate) fn give_pages(&self, platform: &P, pages: u64) {
        if pages == 0 {
            return;
        }
        platform.touch(self.published_line(), Access::Atomic);
        self.published.free.give(pages);
        self.sub_in_ledgers(pages);
        self.publish_headroom();
        self.clear_below_high();
    }

    /// Takes free pages out of the zone, for isolation: nobody has them then, and no ledger changes. All, or none.
    pub(crate) fn capture_pages(&self, pages: u64) -> bool {
        let captured = self.published.free.claim((pages, pages), 0, 0, false) == pages;
        self.publish_headroom();
        captured
    }

    /// Ends what [`capture_pages`](Self::capture_pages) began, or adds memory that came.
    pub(crate) fn release_pages(&self, pages: u64) {
        self.published.free.give(pages);
        self.publish_headroom();
    }

    /// Counts captured pages as out.
    pub(crate) fn captured_are_out(&self, pages: u64) {
        self.ledgers.node.add(PageCount(pages));
        self.ledgers.all.add(PageCount(pages));
    }

    /// Keeps free pages back for urgent requests; returns whether there are so many.
    pub(crate) fn keep_back(&self, pages: u64) -> bool {
        let kept = self.published.free.keep_back(pages);
        self.publish_headroom();
        kept
    }

    /// Pages that were kept back are free for everybody.
    pub(crate) fn keep_back_no_more(&self, pages: u64) {
        self.published.free.0.fetch_sub(pages << KEPT_SHIFT, Ordering::AcqRel);
        self.publish_headroom();
    }

    /// Pages that were kept back are taken off the counter, and counted as out; the caller has the zone's lock.
    pub(crate) fn claim_kept_back(&self, flags: AllocFlags, pages: u64) -> bool {
        if self.kept_back().0 < pages || self.claim_in_ledgers(flags, pages, pages) < pages {
            return false;
        }
        self.published.free.0.fetch_sub(pages | pages << KEPT_SHIFT, Ordering::AcqRel);
        self.publish_headroom();
        true
    }

    /// Ends what [`claim_kept_back`](Self::claim_kept_back) began.
    pub(crate) fn give_kept_back(&self, pages: u64) {
        self.published.free.0.fetch_add(pages | pages << KEPT_SHIFT, Ordering::AcqRel);
        self.sub_in_ledgers(pages);
        self.publish_headroom();
    }

    /// Any order may be had while there are pages: who finds none goes on as if there had been no block.
    pub(crate) fn publish_headroom(&self) {
        let headroom = self.headroom_now(self.free_pages().0, ORDERS as u8);
        if self.headroom.load(Ordering::Relaxed) != headroom {
            self.headroom.store(headroom, Ordering::Relaxed);
        }
    }
}
