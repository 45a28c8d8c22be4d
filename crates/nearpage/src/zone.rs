//! A zone: what its rules keep free pages in, with the watermarks that decide who may take from it.
//!
//! ```text
//! read by everybody, written rarely     headroom, flags, marks, reserves, where it lies
//! read on slow paths, written under     free pages, largest order, counts of lock holds
//!   the lock at each change
//! under the lock, and beside it         what the rules have
//! ```
//!
//! **Headroom.** The fast path must know whether a request would pass the watermark without reading
//! `free_pages`, a line that every lock hold writes. [`Zone::headroom_orders`] is one byte, written only
//! when it changes: the number of orders that pass the *high* watermark plus the largest reserve. A request
//! within it passes any check that it could face; a request outside it takes the exact check.

mod counter;
mod events;
mod guard;
mod lent;

pub use events::{LockHolds, LockWork, ZoneCounts};
pub(crate) use events::{WorkCounters, ZoneEvents};
pub(crate) use guard::ZoneGuard;
pub use lent::Lending;
pub(crate) use lent::Lent;

use counter::FreeCounter;

use core::ops::{ControlFlow, Range};

use crate::buddy::{FallbackRules, Force, Insertion, Isolated};
use crate::check_error::CheckError;
use crate::frame::{Migratetype, ZoneFrames};
use crate::host::{Lock, Platform};
use crate::limit::Ledger;
use crate::pcp::tuning::ZoneView;
use crate::places::zone_maps::ZoneMaps;
use crate::rule_set::{ByModel, HasMaps, RuleParts, rules};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, OwnedCounter};
use crate::units::{
    NodeId, NodeIndex, ORDERS, Order, PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange, ZoneIndex,
    ZoneKind,
};
use crate::watermark::{
    AllocFlags, Marks, WatermarkCheck, raised_boost, watermark_fast, watermark_ok,
};

/// Written at each change of the free pages, so on a pair of lines of its own: processors fetch the second of a pair with
/// the first. Where there are free lists, only the holder of the lock writes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Published {
    free: FreeCounter,
    /// One more than the largest order with a free block of types 0 to 2; 0 if there is none.
    orders: AtomicU8,
    /// The same for blocks reserved for urgent requests.
    reserved_orders: AtomicU8,
    acquisitions: OwnedCounter,
    most_pages: OwnedCounter,
    most_returned: OwnedCounter,
    work: WorkCounters,
}

/// One populated zone of one node.
#[repr(C, align(64))]
pub struct Zone<'m, P: Platform> {
    headroom: AtomicU8,
    flags: AtomicU8,
    kind: ZoneKind,
    node: NodeIndex,
    frames: ZoneFrames<'m>,
    span: PfnRange,
    /// Raw, without the boost.
    marks: [AtomicU64; 4],
    boost: AtomicU64,
    /// Highest boost in 1/10000 of the raw high mark.
    boost_factor: AtomicU32,
    reserve: [AtomicU64; ZoneKind::COUNT],
    managed: AtomicU64,
    /// The boost that background reclaim saw when it began.
    noted_boost: AtomicU64,
    gone: AtomicU64,
    published: Published,
    events: ZoneEvents,
    ledgers: Ledgers<'m>,
    guarded: P::Lock<GuardedOf<P>>,
    stock: <P::Rules as RuleParts>::Stock<'m>,
}

/// What the lock of a zone guards.
type GuardedOf<P> = <<P as Platform>::Rules as RuleParts>::Guarded;

rules! {
    /// What rules do to a zone.
    trait ZoneRules: RuleParts;

    /// One more than the largest orders of free blocks: of types 0 to 2, and of reserved ones; 0 if there is none.
    fn orders(zone: &Zone) -> (u8, u8)
        => { (ORDERS as u8, ORDERS as u8) } | published_orders;
    /// Whether a check passes, by the blocks that there are.
    fn would_pass(zone: &Zone, check: &WatermarkCheck) -> bool
        => passes_by_maps | { watermark_ok(check, zone.has_blocks()) };
    /// Free blocks by type and order.
    fn free_area(zone: &Zone) -> [[u32; ORDERS]; Migratetype::COUNT]
        => { zone.maps().free_area(zone.frames()) } | free_area_of_buddy;
    /// Calls `each` with the free blocks of an order and a type, until it breaks.
    fn each_free_block(
        zone: &Zone,
        order: Order,
        of: Migratetype,
        each: impl FnMut(Pfn) -> ControlFlow<()>,
    ) => each_block_of_maps | each_block_of_buddy;
    /// Pages of reserved pageblocks.
    fn reserved(zone: &Zone) -> PageCount
        => { PageCount(zone.maps().reserved()) } | { zone.lock_from_outside().buddy().reserved() };
    /// Blocks taken from pageblocks of other types.
    fn fallbacks(zone: &Zone) -> u64
        => { zone.maps().fallbacks() } | { zone.lock_from_outside().buddy().fallbacks() };
    /// Whether a pageblock is known to be free without a look at its words.
    fn is_whole(zone: &Zone, number: u32) -> bool
        => { zone.maps().is_whole(number >> PAGEBLOCK_ORDER.0) } | { false };
    /// Reserves the pageblock of a block that an urgent request of higher order got, or another one.
    fn reserve_for(zone: &Zone, number: u32, order: Order)
        => { zone.reserve_pageblock() } | reserve_in_buddy;
    /// Gives a reserved pageblock to type `ours`; returns whether there was one.
    fn unreserve(zone: &Zone, ours: Migratetype, force: Force) -> bool
        => unreserve_pageblock | { zone.lock().buddy().unreserve(zone.frames, ours, force) };
    /// Nobody gets a page of these pageblocks any more. Returns the first that was isolated already, and goes no further.
    fn isolate(zone: &Zone, pageblocks: impl Iterator<Item = u32>) -> Option<u32>
        => isolate_in_maps | isolate_in_buddy;
    /// Ends an isolation.
    fn end_isolation(zone: &Zone, pageblocks: impl Iterator<Item = u32>)
        => end_isolation_in_maps | end_isolation_in_buddy;
    /// What of isolated pageblocks is free.
    fn isolated(zone: &Zone, range: Range<u32>) -> Isolated
        => isolated_in_maps | { zone.lock().buddy().isolated(zone.frames, range) };
    /// Gives a pageblock another type, to arrange a state; returns whether that can be.
    fn set_type(zone: &Zone, number: u32, of: Migratetype) -> bool
        => set_pageblock_type | { zone.lock_from_outside().buddy().set_pageblock_type(zone.frames, number, of) };
    /// Takes a block, whatever the marks, to arrange a state.
    fn take_apart(zone: &Zone, platform: &P, order: Order, of: Migratetype) -> Option<u32>
        => take_apart_from_maps | { zone.take_apart_from_buddy(order, of) };
    /// Brings a block back, to arrange a state.
    fn bring(zone: &Zone, platform: &P, number: u32, order: Order, at: Insertion)
        => { zone.bring_to_maps(platform, number, order) }
        | { zone.lock_from_outside().buddy().free(zone.frames, number, order, at) };
    /// Takes the first free pages between two frames that are to be lent.
    fn lend(zone: &Zone, range: Range<u32>, lending: Lending) -> Option<Lent>
        => lend_of_maps | { zone.lend_of_buddy(range) };
    /// Ends what [`lend`](Self::lend) began.
    fn lent_are_back(zone: &Zone, pages: Range<u32>) => lent_to_maps | lent_to_buddy;
    /// Writes to words that all CPUs share by threads whose CPU has no quota; `None` where each is in a hold of the lock.
    fn shared_writes(zone: &Zone) -> Option<u64>
        => { Some(zone.maps().outside().shared_writes.get()) } | { None };
    /// Marks what is free, in a walk.
    fn mark_free(
        zone: &Zone,
        node: NodeId,
        mark: impl Fn(u32, Order) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> => { zone.mark_maps(mark) } | mark_buddy;
    /// Memory came: all of these frames are free. The caller has the lock, by `guard`.
    fn add_frames(zone: &Zone, guard: &mut ZoneGuard<'_, 'm, P>, range: Range<u32>)
        => { zone.add_to_maps(range) } | { guard.buddy().online(zone.frames, range) };
}

impl<'m, P: Platform<Rules: HasMaps>> Zone<'m, P> {
    /// Maps and bits of the free pages.
    #[inline(always)]
    pub(crate) fn maps(&self) -> &ZoneMaps<'m> {
        P::Rules::maps(&self.stock)
    }
}

impl<P: Platform<Rules = ByModel>> Zone<'_, P> {
    #[inline(always)]
    fn has_maps(&self) -> bool {
        self.stock.is_some()
    }
}

impl<P: Platform> core::fmt::Debug for Zone<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Zone")
            .field("node", &self.node)
            .field("kind", &self.kind)
            .field("span", &self.span)
            .field("managed", &self.managed())
            .field("free", &self.free_pages())
            .field("marks", &self.marks())
            .finish_non_exhaustive()
    }
}

/// The ledgers that pages of a zone are counted in.
#[derive(Clone, Copy, Debug)]
pub struct Ledgers<'m> {
    /// The node's.
    pub node: &'m Ledger,
    /// That of all nodes.
    pub all: &'m Ledger,
}

/// `ZONE_BELOW_HIGH`: an allocation found the zone below its high watermark (facts 4.2, 7.4).
const BELOW_HIGH: u8 = 1;
/// `ZONE_RECLAIM_ACTIVE`: background reclaim works on this zone.
const RECLAIM_ACTIVE: u8 = 2;
/// `ZONE_BOOSTED_WATERMARK`: a request boosted the watermarks and has not woken background reclaim yet.
const BOOSTED: u8 = 4;
/// Requests that prefer this zone first try not to mix pageblocks.
const AVOIDS_FRAGMENTATION: u8 = 8;
/// Pages that leave and come back are counted in the ledgers.
const COUNTED: u8 = 16;

impl<'m, P: Platform> Zone<'m, P> {
    /// An empty zone: all memory of its span is offline.
    pub(crate) fn new(
        kind: ZoneKind,
        node: NodeIndex,
        frames: ZoneFrames<'m>,
        span: PfnRange,
        ledgers: Ledgers<'m>,
        rules: FallbackRules,
        maps: Option<ZoneMaps<'m>>,
    ) -> Self {
        let (guarded, stock) = (P::Rules::guarded(rules), P::Rules::stock(maps));
        // Where a counter is the truth, whoever changes it counts in the ledgers too.
        let is_counted = P::Rules::unused(&guarded, &stock).is_none();
        Self {
            headroom: AtomicU8::new(0),
            flags: AtomicU8::new(if is_counted { COUNTED } else { 0 }),
            kind,
            node,
            frames,
            span,
            marks: Default::default(),
            boost: AtomicU64::new(0),
            boost_factor: AtomicU32::new(0),
            reserve: Default::default(),
            managed: AtomicU64::new(0),
            noted_boost: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            published: Published::default(),
            events: ZoneEvents::default(),
            ledgers,
            guarded: P::Lock::new(guarded),
            stock,
        }
    }

    /// The zone's kind.
    #[inline]
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }

    /// The node.
    #[inline]
    pub fn node(&self) -> NodeIndex {
        self.node
    }

    /// The zone's dense index.
    #[inline]
    pub fn index(&self) -> ZoneIndex {
        self.frames.zone()
    }

    /// The zone's frames.
    #[inline]
    pub(crate) fn frames(&self) -> &ZoneFrames<'m> {
        &self.frames
    }

    /// First to last frame, holes included.
    pub fn span(&self) -> PfnRange {
        self.span
    }

    /// How often rare things happened so far.
    pub fn counts(&self) -> ZoneCounts {
        self.events.counts()
    }

    /// Rare events, to be counted.
    pub(crate) fn events(&self) -> &ZoneEvents {
        &self.events
    }

    /// The type of the pageblock of a frame.
    ///
    /// # Panics
    /// If the frame is not within the zone's span, or lies in a hole of the machine.
    pub fn pageblock_type(&self, pfn: Pfn) -> Migratetype {
        assert!(self.span.contains(pfn), "a frame of the zone");
        self.frames.pageblock(self.frames.number(pfn))
    }

    /// Free pages of the zone: those in pagesets, and in quotas of CPUs, are not free.
    #[inline]
    pub fn free_pages(&self) -> PageCount {
        self.published.free.pages()
    }

    /// Pages that requests without rights to reserves cannot have: they lie in pageblocks reserved for urgent
    /// requests.
    pub fn kept_back(&self) -> PageCount {
        self.published.free.kept_back()
    }

    /// Pages that the zone was given.
    pub fn managed(&self) -> PageCount {
        PageCount(self.managed.load(Ordering::Relaxed))
    }

    /// Pages that went offline, less those that came since: the zone has them no more.
    pub fn gone(&self) -> PageCount {
        PageCount(self.gone.load(Ordering::Relaxed))
    }

    /// The number of orders, from 0, whose requests pass every watermark with room to spare.
    #[inline(always)]
    pub fn headroom_orders(&self) -> u8 {
        self.headroom.load(Ordering::Relaxed)
    }

    /// Whether so many single pages pass every watermark with room to spare.
    #[inline(always)]
    pub fn has_headroom_for(&self, pages: usize) -> bool {
        let orders = self.headroom_orders();
        orders > 0 && pages <= 1 << (orders - 1)
    }

    /// The watermarks in force, boost included.
    pub fn marks(&self) -> Marks {
        self.raw_marks().boosted(self.boost())
    }

    fn raw_marks(&self) -> Marks {
        let mark = |at: usize| PageCount(self.marks[at].load(Ordering::Relaxed));
        Marks { min: mark(0), low: mark(1), high: mark(2), promo: mark(3) }
    }

    /// What the watermarks are raised by, since requests mixed pageblocks. Only on hosts with
    /// [`Platform::BACKGROUND_RECLAIM`].
    pub fn boost(&self) -> PageCount {
        PageCount(self.boost.load(Ordering::Relaxed))
    }

    /// Ends a boost, or a part of it: to be called by background reclaim when it has balanced the zone, with
    /// the boost that it saw when it began. `mm/vmscan.c: balance_pgdat`, 6.12.
    pub(crate) fn lower_boost(&self, pages: PageCount) {
        if pages == PageCount(0) {
            return;
        }
        // The guard publishes the headroom that the lower marks leave.
        let _guard = self.lock();
        self.boost.store(self.boost().0.saturating_sub(pages.0), Ordering::Relaxed);
    }

    /// Notes the boost, as background reclaim begins.
    pub(crate) fn note_boost(&self) {
        self.noted_boost.store(self.boost().0, Ordering::Relaxed);
    }

    /// The boost that was last noted.
    pub(crate) fn noted_boost(&self) -> PageCount {
        PageCount(self.noted_boost.load(Ordering::Relaxed))
    }

    /// Raises the boost once for each of `claims` attempts to mix a pageblock. The caller holds the lock.
    /// Returns whether the zone is one that is boosted.
    fn raise_boost(&self, claims: u32) -> bool {
        let factor = self.boost_factor.load(Ordering::Relaxed);
        let (managed, high) = (self.managed(), self.raw_marks().high);
        let mut boost = self.boost();
        for _ in 0..claims {
            let Some(raised) = raised_boost(boost, managed, high, factor) else { return false };
            boost = raised;
        }
        self.boost.store(boost.0, Ordering::Relaxed);
        true
    }

    /// Under nearpage's own rules: a request took pages of another type's pageblocks.
    pub(crate) fn boost_for_fallback(&self, flags: AllocFlags) {
        if self.raise_boost(1) {
            self.publish_headroom();
            if flags.contains(AllocFlags::KSWAPD) {
                self.put(BOOSTED, true);
            }
        }
    }

    /// Whether a request boosted the watermarks since this was last asked.
    pub(crate) fn take_boosted(&self) -> bool {
        self.has(BOOSTED) && {
            self.put(BOOSTED, false);
            true
        }
    }

    /// Whether requests that prefer this zone first try not to mix pageblocks.
    #[inline]
    pub fn avoids_fragmentation(&self) -> bool {
        self.has(AVOIDS_FRAGMENTATION)
    }

    /// Sets [`avoids_fragmentation`](Self::avoids_fragmentation).
    pub(crate) fn set_avoids_fragmentation(&self, avoids: bool) {
        self.put(AVOIDS_FRAGMENTATION, avoids);
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn put(&self, flag: u8, value: bool) {
        if value {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Pages kept from requests whose highest zone kind is `kind`.
    #[inline]
    pub fn reserve(&self, kind: ZoneKind) -> PageCount {
        PageCount(self.reserve[kind.index()].load(Ordering::Relaxed))
    }

    /// What the tuning of pagesets wants to know.
    pub fn view(&self) -> ZoneView {
        let flags = self.flags.load(Ordering::Relaxed);
        ZoneView {
            below_high: flags & BELOW_HIGH != 0,
            reclaim_active: flags & RECLAIM_ACTIVE != 0,
        }
    }

    /// Notes that an allocation found the zone below its high watermark.
    pub(crate) fn set_below_high(&self) {
        self.put(BELOW_HIGH, true);
    }

    /// Clears the note if the zone is above its high watermark again; after a drain.
    pub(crate) fn clear_below_high(&self) {
        if self.view().below_high
            && self.passes(Order(0), AllocFlags::WMARK_HIGH, ZoneKind::Movable)
        {
            self.put(BELOW_HIGH, false);
        }
    }

    /// Says whether background reclaim works on this zone.
    pub(crate) fn set_reclaim_active(&self, active: bool) {
        self.put(RECLAIM_ACTIVE, active);
    }

    /// Whether a request for `order` with `flags`, whose highest zone kind is `kind`, may take from here:
    /// the exact check of facts 2.4.
    pub fn passes(&self, order: Order, flags: AllocFlags, kind: ZoneKind) -> bool {
        watermark_fast(&self.check(order, flags, kind), self.has_blocks())
    }

    /// Whether the request would pass, without the exceptions for single pages, if so many `more` pages were
    /// free.
    pub fn would_pass(
        &self,
        order: Order,
        flags: AllocFlags,
        kind: ZoneKind,
        more: PageCount,
    ) -> bool {
        let mut check = self.check(order, flags, kind);
        check.free.0 = check.free.0.saturating_add(more.0);
        P::Rules::would_pass(self, &check)
    }

    /// One more than the largest orders of free blocks, as they were last published.
    pub(crate) fn published_orders(&self) -> (u8, u8) {
        let Published { orders, reserved_orders, .. } = &self.published;
        (orders.load(Ordering::Relaxed), reserved_orders.load(Ordering::Relaxed))
    }

    pub(crate) fn check(&self, order: Order, flags: AllocFlags, kind: ZoneKind) -> WatermarkCheck {
        WatermarkCheck {
            free: self.free_pages(),
            free_high_atomic: self.kept_back(),
            mark: self.marks().of(flags),
            boost: self.boost(),
            reserve: self.reserve(kind),
            order,
            flags,
        }
    }

    /// Whether there is a free block of an order and type. Only the largest order is published: whether a
    /// block is large enough needs no more.
    pub(crate) fn has_blocks(&self) -> impl Fn(Order, Migratetype) -> bool {
        let (orders, reserved_orders) = P::Rules::orders(self);
        move |order, migratetype| {
            order.0 + 1 == if migratetype.is_mergeable() { orders } else { reserved_orders }
        }
    }

    /// Pages that may be taken before the mark in `flags` is reached.
    pub fn room(&self, flags: AllocFlags, kind: ZoneKind) -> PageCount {
        let floor = self.marks().of(flags).0 + self.reserve(kind).0 + self.kept_back().0;
        PageCount(self.free_pages().0.saturating_sub(floor))
    }

    /// Sets watermarks and reserves, and ends a boost. `boost_factor` limits later ones
    /// ([`raised_boost`]). The caller holds the lock that serializes settings.
    pub(crate) fn set_marks(
        &self,
        marks: Marks,
        reserve: [PageCount; ZoneKind::COUNT],
        boost_factor: u32,
    ) {
        // The guard publishes the headroom that the new marks leave.
        let _guard = self.lock();
        let boost_factor = if P::BACKGROUND_RECLAIM { boost_factor } else { 0 };
        self.boost_factor.store(boost_factor, Ordering::Relaxed);
        self.boost.store(0, Ordering::Relaxed);
        for (cell, mark) in self.marks.iter().zip([marks.min, marks.low, marks.high, marks.promo]) {
            cell.store(mark.0, Ordering::Relaxed);
        }
        for (cell, pages) in self.reserve.iter().zip(reserve) {
            cell.store(pages.0, Ordering::Relaxed);
        }
    }

    /// Whether [`count_in_ledgers`](Self::count_in_ledgers) was called.
    pub fn is_counted(&self) -> bool {
        self.has(COUNTED)
    }

    /// Pages that are out of this zone, as of a moment ago.
    pub fn out(&self) -> PageCount {
        PageCount(self.managed().0.saturating_sub(self.free_pages().0))
    }

    /// Whether a limit does not allow so many more pages to leave.
    pub fn is_limited(&self, pages: PageCount) -> bool {
        let Ledgers { node, all } = self.ledgers;
        self.has(COUNTED) && (node.refuses(pages) || all.refuses(pages))
    }

    /// Whether more is out than a hard limit allows: a limit that was lowered, or requests with `__GFP_NOFAIL`.
    pub fn is_over_limit(&self) -> bool {
        self.is_limited(PageCount(0))
    }

    /// Whether a soft limit is exceeded.
    pub fn is_above_soft_limit(&self) -> bool {
        let Ledgers { node, all } = self.ledgers;
        self.has(COUNTED) && (node.is_above_soft() || all.is_above_soft())
    }

    /// The line that every hold of the lock writes, for [`Platform::touch`].
    #[inline(always)]
    pub(crate) fn published_line(&self) -> *const () {
        (&raw const self.published).cast()
    }

    /// The line of flags and marks, written rarely, for [`Platform::touch`].
    #[inline(always)]
    pub(crate) fn marks_line(&self) -> *const () {
        (&raw const self.marks).cast()
    }

    /// How often the lock was taken to move pages, as of a moment ago: reading does not take it.
    pub fn holds(&self) -> LockHolds {
        let Published { acquisitions, most_pages, most_returned, .. } = &self.published;
        LockHolds {
            acquisitions: acquisitions.get(),
            most_pages: PageCount(most_pages.get()),
            most_returned: PageCount(most_returned.get()),
        }
    }

    /// All holds of the lock, and what was done in them, as of a moment ago: reading does not take it.
    pub fn work(&self) -> LockWork {
        self.published.work.read()
    }

    /// From now on, the most of a hold in [`work`](Self::work) is that of later ones.
    pub(crate) fn forget_most_work(&self) {
        let _guard = self.lock_from_outside();
        self.published.work.forget_most();
    }
}
