//! One zone of the naive model: what begins at each frame, and lists as maps from place to block.
//!
//! The same rules as [`NaiveBuddy`](crate::testing::naive_buddy::NaiveBuddy), which has nothing but
//! vectors to search. Here nothing is searched, so that millions of operations are affordable, and the
//! types of pageblocks are the machine's, because two zones may share a pageblock.

use std_alloc::collections::{BTreeMap, BTreeSet};
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::owners::Owners;
use crate::buddy::{FallbackModel, FallbackRules, HeldMovable};
use crate::frame::{ListEnd, Migratetype};
use crate::model::Model;
use crate::pcp::tuning::ZoneView;
use crate::units::{NodeIndex, ORDERS, Order, PageCount, Pfn, PfnRange, ZoneKind};
use crate::watermark::{AllocFlags, Marks, WatermarkCheck, watermark_fast, watermark_ok};
use crate::zone::{LockHolds, ZoneCounts};

const PAGEBLOCK: u64 = 512;

/// Migratetypes of all pageblocks of the machine.
#[derive(Debug)]
pub struct Pageblocks {
    first: u64,
    types: Vec<Migratetype>,
    /// Pageblocks that hold memory of several zones; their types do not change.
    shared: BTreeSet<u64>,
    /// What isolated pageblocks were before.
    before: BTreeMap<u64, Migratetype>,
}

impl Pageblocks {
    /// The pageblocks of `memory`, which is ascending and names zones; all movable.
    pub fn new(memory: &[(PfnRange, usize)]) -> Self {
        let first = |range: &PfnRange| range.start.0 / PAGEBLOCK;
        let end = |range: &PfnRange| range.end.0.div_ceil(PAGEBLOCK);
        let begin = memory.first().map_or(0, |(range, _)| first(range));
        let count = memory.last().map_or(0, |(range, _)| end(range) - begin);
        let mut shared = BTreeSet::new();
        for (at, (range, zone)) in memory.iter().enumerate() {
            for (other, _) in memory[..at].iter().filter(|(_, other)| other != zone) {
                if end(other) > first(range) {
                    shared.insert(first(range));
                }
            }
        }
        let types = vec![Migratetype::Movable; count as usize];
        Self { first: begin, types, shared, before: BTreeMap::new() }
    }

    /// The type of the pageblock of a frame; movable outside of the machine.
    pub fn of(&self, pfn: Pfn) -> Migratetype {
        let at = (pfn.0 / PAGEBLOCK).wrapping_sub(self.first) as usize;
        self.types.get(at).copied().unwrap_or(Migratetype::Movable)
    }

    /// Whether the pageblock of a frame holds memory of several zones.
    pub fn is_shared(&self, pfn: Pfn) -> bool {
        self.shared.contains(&(pfn.0 / PAGEBLOCK))
    }

    pub(super) fn set(&mut self, pfn: Pfn, migratetype: Migratetype) {
        self.types[(pfn.0 / PAGEBLOCK - self.first) as usize] = migratetype;
    }
}

/// What begins at a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    /// Nothing, or a block in a pageset.
    Nothing,
    /// A free block on the list of that type.
    Free(Order, Migratetype),
    /// A block in somebody's hands, asked for as that type.
    Held(Order, Migratetype),
}

impl Begins {
    fn to_bits(self) -> u16 {
        let pack = |state: u16, order: Order, of: Migratetype| {
            state << 8 | (order.0 as u16) << 4 | of as u16
        };
        match self {
            Self::Nothing => 0,
            Self::Free(order, migratetype) => pack(1, order, migratetype),
            Self::Held(order, migratetype) => pack(2, order, migratetype),
        }
    }

    fn from_bits(bits: u16) -> Self {
        let (order, of) = (Order((bits >> 4 & 15) as u8), Migratetype::ALL[(bits & 15) as usize]);
        match bits >> 8 {
            0 => Self::Nothing,
            1 => Self::Free(order, of),
            _ => Self::Held(order, of),
        }
    }
}

/// A free list: the head has the lowest place.
#[derive(Default, Debug)]
struct List(BTreeMap<i32, Pfn>);

impl List {
    fn insert(&mut self, pfn: Pfn, end: ListEnd) -> i32 {
        let place = match end {
            ListEnd::Head => self.0.first_key_value().map_or(0, |(place, _)| place - 1),
            ListEnd::Tail => self.0.last_key_value().map_or(0, |(place, _)| place + 1),
        };
        self.0.insert(place, pfn);
        place
    }

    pub(super) fn head(&self) -> Option<Pfn> {
        self.0.first_key_value().map(|(_, &pfn)| pfn)
    }
}

/// What is asked of a zone.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    pub order: Order,
    pub migratetype: Migratetype,
    /// Of the request: whether to mix pageblocks, and whether background reclaim is woken for that.
    pub flags: AllocFlags,
    pub blocks: u64,
}

/// A zone.
#[derive(Debug)]
pub struct NaiveZone {
    /// Its node.
    pub node: NodeIndex,
    /// Its kind.
    pub kind: ZoneKind,
    /// Which of how many instances of that kind on its node it is.
    pub place: (usize, usize),
    /// First to last frame that it could have.
    pub span: PfnRange,
    /// Pages that came online.
    pub managed: PageCount,
    /// Pages that went offline, less those that came since.
    pub gone: PageCount,
    /// Pages on free lists.
    pub free: PageCount,
    /// Watermarks without the boost.
    pub raw_marks: Marks,
    /// What they are raised by.
    pub boost: PageCount,
    /// The setting that limits the boost.
    pub boost_factor: u32,
    /// Pages of pageblocks that are kept for urgent requests.
    pub reserved: PageCount,
    /// Whether background reclaim is to be woken because of a boost.
    pub was_boosted: bool,
    /// Whether who prefers this zone first tries not to mix pageblocks.
    pub avoids_fragmentation: bool,
    /// Reserves by the highest kind of a request.
    pub reserve: [PageCount; ZoneKind::COUNT],
    /// Pressure.
    pub view: ZoneView,
    /// Lock holds.
    pub holds: LockHolds,
    /// Events.
    pub events: ZoneCounts,
    rules: FallbackRules,
    /// One past the last frame that came online.
    spanned_end: Pfn,
    /// By frame of the span.
    begins: Vec<u16>,
    /// By frame of the span: the place on its list of the free block that begins there.
    places: Vec<i32>,
    lists: [[List; Migratetype::COUNT]; ORDERS],
    /// Who owns pageblocks.
    pub owners: Owners,
}

impl Blocks {
    /// The lowest order of blocks that other types give.
    fn least_of_others(&self) -> u8 {
        if self.flags.contains(AllocFlags::NOFRAGMENT) { self.order.0.max(9) } else { self.order.0 }
    }
}

impl NaiveZone {
    /// A zone none of whose memory is online.
    pub fn new(node: NodeIndex, kind: ZoneKind, span: PfnRange, model: &Model) -> Self {
        let frames = span.pages().0 as usize;
        Self {
            node,
            kind,
            place: (0, 1),
            span,
            managed: PageCount(0),
            gone: PageCount(0),
            free: PageCount(0),
            raw_marks: Marks::default(),
            boost: PageCount(0),
            boost_factor: 0,
            reserved: PageCount(0),
            was_boosted: false,
            avoids_fragmentation: false,
            reserve: Default::default(),
            view: ZoneView::default(),
            holds: LockHolds::default(),
            events: ZoneCounts::default(),
            rules: model.fallback,
            spanned_end: span.start,
            begins: vec![0; frames],
            places: vec![0; frames],
            lists: Default::default(),
            owners: Owners::default(),
        }
    }

    /// What begins at a frame; nothing at frames outside the span.
    pub fn begins(&self, pfn: Pfn) -> Begins {
        if !self.span.contains(pfn) {
            return Begins::Nothing;
        }
        Begins::from_bits(self.begins[(pfn.0 - self.span.start.0) as usize])
    }

    /// Notes what begins at a frame.
    pub fn set_begins(&mut self, pfn: Pfn, begins: Begins) {
        self.begins[(pfn.0 - self.span.start.0) as usize] = begins.to_bits();
    }

    /// First frames of the blocks on one list, head first.
    pub fn list(&self, order: Order, migratetype: Migratetype) -> impl Iterator<Item = Pfn> {
        self.lists[order.0 as usize][migratetype.index()].0.values().copied()
    }

    /// Notes a hold of the lock in which pages left.
    pub fn note_hold(&mut self, pages: u64) {
        self.holds.acquisitions += 1;
        self.holds.most_pages = self.holds.most_pages.max(PageCount(pages));
    }

    /// Notes a hold of the lock in which pages came back.
    pub fn note_return(&mut self, pages: u64) {
        self.note_hold(pages);
        self.holds.most_returned = self.holds.most_returned.max(PageCount(pages));
    }

    /// The watermarks in force.
    pub fn marks(&self) -> Marks {
        self.raw_marks.boosted(self.boost)
    }

    /// Whether a request passes its watermark.
    pub fn passes(&self, order: Order, flags: AllocFlags, kind: ZoneKind) -> bool {
        self.passes_with(order, flags, self.reserve[kind.index()])
    }

    fn passes_with(&self, order: Order, flags: AllocFlags, reserve: PageCount) -> bool {
        watermark_fast(&self.check(order, flags, reserve), self.has_blocks())
    }

    /// Whether a request would pass with so many free pages more.
    pub fn would_pass(
        &self,
        order: Order,
        flags: AllocFlags,
        kind: ZoneKind,
        more: PageCount,
    ) -> bool {
        let mut check = self.check(order, flags, self.reserve[kind.index()]);
        check.free.0 += more.0;
        watermark_ok(&check, self.has_blocks())
    }

    fn check(&self, order: Order, flags: AllocFlags, reserve: PageCount) -> WatermarkCheck {
        WatermarkCheck {
            free: self.free,
            free_high_atomic: self.kept_back(),
            mark: self.marks().of(flags),
            boost: self.boost,
            reserve,
            order,
            flags,
        }
    }

    fn has_blocks(&self) -> impl Fn(Order, Migratetype) -> bool {
        |order, of| self.head(order, of).is_some()
    }

    /// Pages kept for urgent requests.
    pub fn kept_back(&self) -> PageCount {
        if self.rules.model == FallbackModel::Linux6_1 {
            return self.reserved;
        }
        let blocks = |order: usize| self.lists[order][Migratetype::HighAtomic.index()].0.len();
        PageCount((0..ORDERS).map(|order| (blocks(order) as u64) << order).sum())
    }

    /// After an urgent request of higher order was served: keeps the pageblock for others like it.
    pub fn keep_pageblock_of(&mut self, pfn: Pfn, order: Order, pageblocks: &mut Pageblocks) {
        let hundredth = self.managed.0 / 100;
        let most = match self.rules.model {
            FallbackModel::Linux6_1 => hundredth + PAGEBLOCK,
            FallbackModel::Linux6_12 if hundredth < PAGEBLOCK => 0,
            FallbackModel::Linux6_12 => hundredth.div_ceil(PAGEBLOCK) * PAGEBLOCK,
        };
        if self.reserved.0 >= most || pageblocks.of(pfn) == Migratetype::HighAtomic {
            return;
        }
        if order >= Order(9) {
            for at in (0..order.pages().0).step_by(PAGEBLOCK as usize) {
                pageblocks.set(pfn.plus(PageCount(at)), Migratetype::HighAtomic);
            }
            self.reserved.0 += order.pages().0;
            return;
        }
        if self.is_ours(pfn, pageblocks) {
            self.move_pageblock(pfn, Migratetype::HighAtomic, pageblocks);
            self.reserved.0 += PAGEBLOCK;
        }
    }

    /// Gives the pageblock of the smallest reserved block to a type.
    pub fn give_up_reserve(
        &mut self,
        ours: Migratetype,
        even_the_last: bool,
        pageblocks: &mut Pageblocks,
    ) -> bool {
        if self.reserved.0 <= PAGEBLOCK && !even_the_last {
            return false;
        }
        for order in (0..ORDERS as u8).map(Order) {
            let Some(pfn) = self.head(order, Migratetype::HighAtomic) else { continue };
            self.reserved.0 -= order.pages().0.max(PAGEBLOCK).min(self.reserved.0);
            if order >= Order(9) {
                self.move_whole(pfn, order, ours, pageblocks);
                return true;
            }
            if self.is_ours(pfn, pageblocks) {
                self.move_pageblock(pfn, ours, pageblocks);
                return true;
            }
        }
        false
    }

    /// A pageblock of the zone gets another type, with what is free in it.
    fn move_pageblock(&mut self, pfn: Pfn, to: Migratetype, pageblocks: &mut Pageblocks) {
        pageblocks.set(pfn, to);
        self.move_free_blocks(pfn, to);
    }

    /// A block from the reserve.
    pub fn take_reserved(&mut self, order: Order) -> Option<Pfn> {
        self.split_smallest(order, &[Migratetype::HighAtomic])
    }

    /// Orders, from 0 on, that pass the high mark whatever the highest kind of the request.
    pub fn headroom_orders(&self) -> u8 {
        let most = self.reserve.into_iter().max().unwrap_or_default();
        let passes = |order: &u8| self.passes_with(Order(*order), AllocFlags::WMARK_HIGH, most);
        (0..ORDERS as u8).take_while(passes).count() as u8
    }

    /// After a drain: a zone above its high mark is not below it.
    pub fn clear_below_high(&mut self) {
        if self.passes(Order(0), AllocFlags::WMARK_HIGH, ZoneKind::Movable) {
            self.view.below_high = false;
        }
    }

    /// Memory comes online.
    pub fn online(&mut self, range: PfnRange, pageblocks: &mut Pageblocks) {
        self.spanned_end = self.spanned_end.max(range.end);
        self.managed.0 += range.pages().0;
        self.gone.0 -= self.gone.0.min(range.pages().0);
        let mut pfn = range.start;
        while pfn < range.end {
            let fits =
                |order: &Order| pfn.is_aligned(*order) && pfn.plus(order.pages()) <= range.end;
            let order = (0..ORDERS as u8).rev().map(Order).find(fits).expect("one page fits");
            self.free_block(pfn, order, ListEnd::Tail, pageblocks);
            pfn = pfn.plus(order.pages());
        }
    }

    /// Frees a block, and lists it at the head unless the next merge is near.
    pub fn free(&mut self, pfn: Pfn, order: Order, pageblocks: &mut Pageblocks) {
        self.free_block(pfn, order, ListEnd::Head, pageblocks);
    }

    /// Frees blocks of one order that come back together.
    pub fn free_batch(&mut self, pages: &[Pfn], order: Order, pageblocks: &mut Pageblocks) {
        pages.iter().for_each(|&pfn| self.free(pfn, order, pageblocks));
    }

    fn free_block(&mut self, pfn: Pfn, order: Order, end: ListEnd, pageblocks: &mut Pageblocks) {
        if order == Order(10) && self.rules.model == FallbackModel::Linux6_12 {
            self.free_block(pfn, Order(9), end, pageblocks);
            self.free_block(Pfn(pfn.0 + PAGEBLOCK), Order(9), end, pageblocks);
            return;
        }
        let ours = pageblocks.of(pfn);
        let (mut pfn, mut order) = (pfn, order);
        while order < Order(10) {
            let buddy = Pfn(pfn.0 ^ order.pages().0);
            let Begins::Free(size, _) = self.begins(buddy) else { break };
            if size != order {
                break;
            }
            let theirs = pageblocks.of(buddy);
            let is_apart = |of: Migratetype| !of.is_mergeable();
            let differ = ours != theirs || ours == Migratetype::Isolate;
            if order == Order(9) && differ && (is_apart(ours) || is_apart(theirs)) {
                break;
            }
            self.unlist(buddy);
            if order == Order(9) && self.rules.model == FallbackModel::Linux6_12 {
                pageblocks.set(buddy, ours);
            }
            pfn = pfn.min(buddy);
            order.0 += 1;
        }
        let above = Order(order.0 + 1);
        let parent = Pfn(pfn.0 & !order.pages().0);
        let beside = self.begins(Pfn(parent.0 ^ above.pages().0));
        let is_near = order < Order(9) && matches!(beside, Begins::Free(size, _) if size == above);
        self.enlist(pfn, order, ours, if is_near { ListEnd::Tail } else { end });
    }

    /// A pageblock gives nothing from now on; what is free in it counts as free all the same here.
    pub fn isolate(&mut self, pfn: Pfn, pageblocks: &mut Pageblocks) {
        let before = pageblocks.of(pfn);
        pageblocks.before.insert(pfn.0 / PAGEBLOCK, before);
        if before == Migratetype::HighAtomic {
            self.reserved.0 -= self.reserved.0.min(PAGEBLOCK);
        }
        self.retype(pfn, Migratetype::Isolate, pageblocks);
    }

    /// A pageblock is as it was before it was isolated.
    pub fn end_isolation(&mut self, pfn: Pfn, pageblocks: &mut Pageblocks) {
        let before = pageblocks.before.remove(&(pfn.0 / PAGEBLOCK)).expect("it is isolated");
        if before == Migratetype::HighAtomic {
            self.reserved.0 += PAGEBLOCK;
        }
        let first = Pfn(pfn.0 - pfn.0 % PAGEBLOCK);
        if matches!(self.begins(first), Begins::Free(Order(9), _)) {
            self.unlist(first);
            pageblocks.set(first, before);
            self.free(first, Order(9), pageblocks);
        } else {
            self.retype(first, before, pageblocks);
        }
    }

    fn retype(&mut self, pfn: Pfn, ours: Migratetype, pageblocks: &mut Pageblocks) {
        let (first, whole) = (Pfn(pfn.0 - pfn.0 % PAGEBLOCK), Pfn(pfn.0 - pfn.0 % (2 * PAGEBLOCK)));
        if matches!(self.begins(whole), Begins::Free(Order(10), _)) {
            self.unlist(whole);
            pageblocks.set(first, ours);
            self.free(Pfn(first.0 ^ PAGEBLOCK), Order(9), pageblocks);
            self.free(first, Order(9), pageblocks);
        } else {
            self.move_pageblock(first, ours, pageblocks);
        }
    }

    /// Frames of a range that are in no free block, ascending.
    pub fn held_in(&self, range: PfnRange) -> Vec<Pfn> {
        let (mut held, mut pfn) = (vec![], range.start);
        while pfn < range.end {
            pfn = match self.begins(pfn) {
                Begins::Free(order, _) => pfn.plus(order.pages()),
                _ => {
                    held.push(pfn);
                    pfn.plus(PageCount(1))
                }
            };
        }
        held
    }

    /// A range, all of it free and isolated, leaves.
    pub fn take_out(&mut self, range: PfnRange, pageblocks: &mut Pageblocks) {
        for pfn in (range.start.0..range.end.0).map(Pfn) {
            if let Begins::Free(..) = self.begins(pfn) {
                self.unlist(pfn);
            }
            pageblocks.before.remove(&(pfn.0 / PAGEBLOCK));
            self.owners.disown(pfn);
            pageblocks.set(pfn, Migratetype::Movable);
        }
        self.managed.0 -= range.pages().0;
        self.gone.0 += range.pages().0;
    }

    /// Takes blocks, one after the other as `rmqueue_bulk` does.
    pub fn take(&mut self, wanted: Blocks, pageblocks: &mut Pageblocks) -> Vec<Pfn> {
        let (mut taken, mut stealing) = (vec![], false);
        while (taken.len() as u64) < wanted.blocks
            && let Some(pfn) = self.take_one(wanted, &mut stealing, pageblocks)
        {
            taken.push(pfn);
        }
        taken
    }

    /// Takes the free block that begins at a frame.
    pub(super) fn take_at(&mut self, pfn: Pfn) {
        self.unlist(pfn);
    }

    /// Takes the first block of an order and a type.
    pub(super) fn take_first(&mut self, order: Order, of: Migratetype) -> Option<(Pfn, Order)> {
        let pfn = self.head(order, of)?;
        self.unlist(pfn);
        Some((pfn, order))
    }

    /// A whole pageblock from the lists of a type.
    pub(super) fn take_pageblock(&mut self, of: Migratetype) -> Option<Pfn> {
        self.split_smallest(Order(9), &[of])
    }

    /// One block.
    fn take_one(
        &mut self,
        wanted: Blocks,
        stealing: &mut bool,
        pageblocks: &mut Pageblocks,
    ) -> Option<Pfn> {
        let ours = wanted.migratetype;
        if !*stealing {
            if let Some(found) = self.split_smallest(wanted.order, &[ours]) {
                return Some(found);
            }
            let found = match self.rules.model {
                FallbackModel::Linux6_12 => self.claim(wanted, pageblocks),
                FallbackModel::Linux6_1 => self.take_over(wanted, pageblocks),
            };
            if found {
                return self.split_smallest(wanted.order, &[ours]);
            }
        }
        if self.rules.model == FallbackModel::Linux6_1
            || wanted.flags.contains(AllocFlags::NOFRAGMENT)
        {
            return None;
        }
        let stolen = self.split_smallest(wanted.order, donors(ours));
        *stealing |= stolen.is_some();
        stolen
    }

    /// Takes the head of the lowest order that any of `types` has, and lists the rest again.
    fn split_smallest(&mut self, order: Order, types: &[Migratetype]) -> Option<Pfn> {
        let (found, from) = (order.0..ORDERS as u8)
            .map(Order)
            .find_map(|found| Some((found, self.first_of(found, types)?)))?;
        let pfn = self.head(found, from)?;
        self.unlist(pfn);
        for half in (order.0..found.0).rev().map(Order) {
            self.enlist(pfn.plus(half.pages()), half, from, ListEnd::Head);
        }
        Some(pfn)
    }

    /// 6.12: makes whole pageblocks ours, or one of which at least half agrees with us.
    fn claim(&mut self, wanted: Blocks, pageblocks: &mut Pageblocks) -> bool {
        let ours = wanted.migratetype;
        for order in (wanted.least_of_others()..ORDERS as u8).rev().map(Order) {
            let Some(donor) = self.first_of(order, donors(ours)) else { continue };
            if order < Order(4) && ours == Migratetype::Movable {
                return false;
            }
            let pfn = self.head(order, donor).expect("the donor has one");
            if order >= Order(9) {
                self.move_whole(pfn, order, ours, pageblocks);
                return true;
            }
            self.boost_for(wanted.flags);
            if self.is_ours(pfn, pageblocks) && self.agrees(pfn, donor, ours) {
                pageblocks.set(pfn, ours);
                self.move_free_blocks(pfn, ours);
                return true;
            }
        }
        false
    }

    /// 6.1: moves the free blocks of a pageblock to our lists, or one block.
    fn take_over(&mut self, wanted: Blocks, pageblocks: &mut Pageblocks) -> bool {
        let ours = wanted.migratetype;
        let found = |order: u8| Some((Order(order), self.first_of(Order(order), donors(ours))?));
        let Some(mut from) = (wanted.least_of_others()..ORDERS as u8).rev().find_map(found) else {
            return false;
        };
        let takes_all = from.0 >= Order(4) || ours != Migratetype::Movable;
        if !takes_all {
            from = (wanted.order.0..ORDERS as u8).find_map(found).expect("the one just found");
        }
        let (order, donor) = from;
        let pfn = self.head(order, donor).expect("the donor has one");
        if pageblocks.of(pfn) == Migratetype::HighAtomic {
            self.relist(pfn, order, ours);
            return true;
        }
        if order < Order(9) {
            self.boost_for(wanted.flags);
        }
        if order >= Order(9) {
            self.move_whole(pfn, order, ours, pageblocks);
        } else if takes_all && self.is_ours(pfn, pageblocks) {
            let agrees = self.agrees(pfn, pageblocks.of(pfn), ours);
            self.move_free_blocks(pfn, ours);
            if agrees {
                pageblocks.set(pfn, ours);
            }
        } else {
            self.relist(pfn, order, ours);
        }
        true
    }

    /// Raises the watermarks because a pageblock is about to be mixed.
    fn boost_for(&mut self, flags: AllocFlags) {
        let most = self.raw_marks.high.0 * u64::from(self.boost_factor) / 10_000;
        if most == 0 || self.managed.0 < 2048 {
            return;
        }
        self.boost.0 = (self.boost.0 + PAGEBLOCK).min(most.max(PAGEBLOCK));
        self.was_boosted |= flags.contains(AllocFlags::KSWAPD);
    }

    fn move_whole(
        &mut self,
        pfn: Pfn,
        order: Order,
        ours: Migratetype,
        pageblocks: &mut Pageblocks,
    ) {
        for at in (0..order.pages().0).step_by(PAGEBLOCK as usize) {
            pageblocks.set(pfn.plus(PageCount(at)), ours);
        }
        self.relist(pfn, order, ours);
    }

    fn move_free_blocks(&mut self, pfn: Pfn, ours: Migratetype) {
        for pfn in pageblock(pfn) {
            if let Begins::Free(order, _) = self.begins(pfn) {
                self.relist(pfn, order, ours);
            }
        }
    }

    fn relist(&mut self, pfn: Pfn, order: Order, ours: Migratetype) {
        self.unlist(pfn);
        self.enlist(pfn, order, ours, ListEnd::Tail);
    }

    /// Whether at least half of a pageblock is free or of a kind with us.
    fn agrees(&self, pfn: Pfn, theirs: Migratetype, ours: Migratetype) -> bool {
        let (mut free, mut movable) = (0, 0);
        for pfn in pageblock(pfn) {
            match self.begins(pfn) {
                Begins::Free(order, _) => free += order.pages().0,
                Begins::Held(order, Migratetype::Movable)
                    if self.rules.held == HeldMovable::ByWord =>
                {
                    movable += order.pages().0;
                }
                _ => {}
            }
        }
        let alike = match (ours, theirs) {
            (Migratetype::Movable, _) => movable,
            (_, Migratetype::Movable) => PAGEBLOCK - free - movable,
            _ => 0,
        };
        free + alike >= PAGEBLOCK / 2
    }

    /// Whether the pageblock of a frame is wholly inside the zone, and no other zone has memory in it.
    fn is_ours(&self, pfn: Pfn, pageblocks: &Pageblocks) -> bool {
        let first = Pfn(pfn.0 - pfn.0 % PAGEBLOCK);
        let is_inside = self.span.start <= first && first.0 + PAGEBLOCK <= self.spanned_end.0;
        is_inside && !pageblocks.is_shared(pfn)
    }

    fn head(&self, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        self.lists[order.0 as usize][migratetype.index()].head()
    }

    fn first_of(&self, order: Order, types: &[Migratetype]) -> Option<Migratetype> {
        types.iter().copied().find(|&of| self.head(order, of).is_some())
    }

    fn enlist(&mut self, pfn: Pfn, order: Order, of: Migratetype, end: ListEnd) {
        let place = self.lists[order.0 as usize][of.index()].insert(pfn, end);
        self.places[(pfn.0 - self.span.start.0) as usize] = place;
        self.set_begins(pfn, Begins::Free(order, of));
        self.free.0 += order.pages().0;
    }

    fn unlist(&mut self, pfn: Pfn) {
        let Begins::Free(order, of) = self.begins(pfn) else { panic!("{pfn} is not free") };
        let place = self.places[(pfn.0 - self.span.start.0) as usize];
        let removed = self.lists[order.0 as usize][of.index()].0.remove(&place);
        assert_eq!(removed, Some(pfn));
        self.set_begins(pfn, Begins::Nothing);
        self.free.0 -= order.pages().0;
    }
}

/// The frames of the pageblock of `pfn`.
fn pageblock(pfn: Pfn) -> impl Iterator<Item = Pfn> {
    let first = pfn.0 - pfn.0 % PAGEBLOCK;
    (first..first + PAGEBLOCK).map(Pfn)
}

/// Who gives when a type has nothing, first choice first.
fn donors(ours: Migratetype) -> &'static [Migratetype] {
    use Migratetype::{Movable, Reclaimable, Unmovable};
    match ours {
        Unmovable => &[Reclaimable, Movable],
        Movable => &[Reclaimable, Unmovable],
        Reclaimable => &[Unmovable, Movable],
        _ => &[],
    }
}
