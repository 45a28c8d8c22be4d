//! The pageblocks that a CPU owns of a zone, each with a map of what is free in it.
//!
//! ```text
//! list (type, class)   pageblocks of which some pages are free     class 0: up to 127, 1: up to 511, 2: all
//! inbox                runs of pages that other CPUs freed, linked through their first frames; anybody adds
//! ```
//!
//! A pageblock of which nothing is free is on no list and nobody's: who frees a page of it first may take it
//! ([`crate::frame::Pageblock`] says who writes what).
//!
//! Everything but the inbox is for who has hold of it ([`Owned::enter`]): the CPU itself, or who drains it from
//! outside. A thread that finds somebody else at it goes to the zone instead; nobody waits.
//!
//! 64 bytes. Not here: how many pages there may be ([`super::swing`]), and the zone's lock.

use super::hold_word::HoldWord;
use super::inbox::Inbox;
use super::passing::Passing;
use super::stage::{Fate, Stage};
use super::swing::Swing;
use crate::frame::{FreeMap, Migratetype, NO_FRAME, Pageblock, ZoneFrames, first_of};
use crate::host::Access;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER, PageCount};

const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;
const TYPES: usize = Migratetype::PCP_COUNT;
const CLASSES: usize = 3;
/// Pageblocks with fewer free pages than this are in the first class.
const FULL_BELOW: u32 = PAGES / 4;
/// How exactly the fewest pages are known.
const LEAST_UNIT: u64 = 16;
/// How many pageblocks of a class are searched for a block of more than one page.
const SEARCHED: usize = 8;

/// The pageblocks.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct OwnedPageblocks {
    /// The other word of [`Inbox`].
    inbox_work: AtomicU64,
    /// The first frame of the pageblock that was listed last, or [`NO_FRAME`].
    heads: [[AtomicU32; CLASSES]; TYPES],
    free: AtomicU32,
    /// One word of [`Inbox`].
    inbox: AtomicU32,
    /// What [`super::swing`] keeps: how many pages there may be, and when the zone was visited last.
    size: AtomicU32,
    visited: AtomicU32,
    /// In units of [`LEAST_UNIT`] pages.
    least: AtomicU16,
    hold: HoldWord<AtomicU16>,
}

const _: () = assert!(size_of::<OwnedPageblocks>() == 64);

/// Hold of what a CPU owns; dropping it lets go.
pub(crate) struct Hold<'a>(&'a Owned<'a>);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.pageblocks.hold.let_go();
    }
}

/// What stands behind the lists of a pageset whose CPU owns pageblocks. All but the pageblocks' inbox is for who has hold of
/// the pageblocks.
#[derive(Debug)]
pub(crate) struct Owned<'m> {
    pub(crate) pageblocks: OwnedPageblocks,
    /// Pages on their way to who has their pageblocks, and those for which it has no room.
    stage: Stage<'m>,
    waiting: Runs,
    /// Pages that were freed so far past the lists, by whatever CPU.
    sent_pages: AtomicU64,
}

/// Pages on the stage by who owns their pageblocks: nobody, or other CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) of_nobody: u32,
    pub(crate) of_others: u32,
}

/// Runs of adjoining pages of one pageblock each, linked through their first frames: `next` is the next run, `prev` says how
/// many pages this one has.
#[derive(Debug)]
struct Runs {
    /// The first one, or [`NO_FRAME`].
    first: AtomicU32,
    pages: AtomicU32,
}

/// A chain of such runs under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
    pages: u32,
}

impl Chain {
    pub(crate) const NONE: Chain = Chain { first: NO_FRAME, last: NO_FRAME, pages: 0 };

    /// Adds a run before the others.
    pub(crate) fn push(&mut self, frames: &ZoneFrames<'_>, first: u32, pages: u32) {
        let frame = frames.frame(first);
        frame.set_next(self.first);
        frame.set_prev(pages);
        if self.last == NO_FRAME {
            self.last = first;
        }
        (self.first, self.pages) = (first, self.pages + pages);
    }

    /// Adds pages of the pageblock at `first`.
    pub(crate) fn push_map(&mut self, frames: &ZoneFrames<'_>, first: u32, map: FreeMap) {
        map.runs().for_each(|run| self.push(frames, first + run.start, run.end - run.start));
    }

    /// Pages that were added.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first run: its first frame, and its pages.
    pub(crate) fn pop(&mut self, frames: &ZoneFrames<'_>) -> Option<(u32, u32)> {
        let first = Some(self.first).filter(|&first| first != NO_FRAME)?;
        let frame = frames.frame(first);
        let pages = frame.prev();
        (self.first, self.pages) = (frame.next(), self.pages.wrapping_sub(pages));
        Some((first, pages))
    }
}

impl<'m> Owned<'m> {
    pub(crate) fn new(stage: Stage<'m>) -> Self {
        let waiting = Runs { first: AtomicU32::new(NO_FRAME), pages: AtomicU32::new(0) };
        let pageblocks = OwnedPageblocks::new();
        Self { pageblocks, stage, waiting, sent_pages: AtomicU64::new(0) }
    }

    /// Takes hold, unless somebody else has it.
    pub(crate) fn enter(&self) -> Option<Hold<'_>> {
        // Only who has hold may have a `Hold`: dropping one lets go.
        self.pageblocks.hold.enter().then(|| Hold(self))
    }

    /// Takes hold until [`let_go`](Self::let_go), unless somebody else has it; returns whether.
    pub(crate) fn hold_on(&self) -> bool {
        self.enter().map(core::mem::forget).is_some()
    }

    /// Ends what [`hold_on`](Self::hold_on) began.
    pub(crate) fn let_go(&self) {
        drop(Hold(self));
    }

    /// Calls `each` with all runs of pages that are on the stage, or wait, or are in the inbox: the first one, and how many. Only
    /// while nobody uses them.
    pub(crate) fn for_each_homebound(
        &self,
        frames: &ZoneFrames<'_>,
        each: &mut dyn FnMut(u32, u32),
    ) {
        self.stage.for_each(each);
        for head in [&self.waiting.first, &self.pageblocks.inbox] {
            let mut chain = Chain { first: head.load(Ordering::Relaxed), ..Chain::NONE };
            while let Some((first, pages)) = chain.pop(frames) {
                each(first, pages);
            }
        }
    }

    /// Pages on their way, but for those on the pageset's list.
    pub(crate) fn homebound_pages(&self) -> PageCount {
        let pages = self.stage.pages() + self.waiting.pages.load(Ordering::Relaxed);
        PageCount(u64::from(pages) + self.pageblocks.inbox_pages().0)
    }

    /// Pages that were freed so far past the lists, by whatever CPU.
    pub(crate) fn sent_pages(&self) -> u64 {
        self.sent_pages.load(Ordering::Relaxed)
    }

    /// Notes such pages.
    pub(crate) fn note_sent(&self, pages: u32) {
        self.sent_pages.fetch_add(pages.into(), Ordering::Relaxed);
    }

    /// Pages here.
    pub(crate) fn count(&self) -> PageCount {
        PageCount(self.pageblocks.free().0 + self.homebound_pages().0)
    }
}

#[inline]
fn class_of(free: u32) -> Option<usize> {
    match free {
        0 => None,
        PAGES => Some(2),
        free if free < FULL_BELOW => Some(0),
        _ => Some(1),
    }
}

/// The type of the lists that a pageblock is on.
#[inline]
fn list_of(of: Migratetype) -> usize {
    if of.is_mergeable() { of.index() } else { Migratetype::Movable.index() }
}

impl OwnedPageblocks {
    pub(crate) fn new() -> Self {
        let [free, size, visited] = [const { AtomicU32::new(0) }; 3];
        Self {
            inbox_work: AtomicU64::new(0),
            heads: [const { [const { AtomicU32::new(NO_FRAME) }; CLASSES] }; TYPES],
            free,
            inbox: AtomicU32::new(NO_FRAME),
            size,
            visited,
            least: AtomicU16::new(0),
            hold: HoldWord::unheld(),
        }
    }

    /// How many pages there may be, and since when.
    pub(crate) fn swing(&self) -> Swing {
        let (size, visited) = (&self.size, &self.visited);
        Swing { size: size.load(Ordering::Relaxed), visited: visited.load(Ordering::Relaxed) }
    }

    /// Sets what [`swing`](Self::swing) returns; for who has hold.
    pub(crate) fn set_swing(&self, swing: Swing) {
        self.size.store(swing.size, Ordering::Relaxed);
        self.visited.store(swing.visited, Ordering::Relaxed);
    }

    /// How many pages there may be.
    pub(crate) fn size(&self) -> PageCount {
        PageCount(self.size.load(Ordering::Relaxed).into())
    }

    /// Free pages in the pageblocks.
    pub(crate) fn free(&self) -> PageCount {
        PageCount(self.free.load(Ordering::Relaxed).into())
    }

    fn inbox(&self) -> Inbox<'_, AtomicU32, AtomicU64> {
        Inbox::new(&self.inbox, &self.inbox_work)
    }

    /// Pages in the inbox.
    pub(crate) fn inbox_pages(&self) -> PageCount {
        PageCount(self.inbox().pages())
    }

    /// How often somebody added to the inbox, or emptied it.
    pub(crate) fn inbox_uses(&self) -> u32 {
        self.inbox().uses()
    }

    /// Notes how many pages there are in all, if they are the fewest since [`take_least`](Self::take_least).
    pub(crate) fn note_least(&self, pages: PageCount) {
        if self.may_be_least(pages) {
            let units = (pages.0 / LEAST_UNIT).min(u16::MAX.into()) as u16;
            self.least.store(units, Ordering::Relaxed);
        }
    }

    /// Whether so many pages would be the fewest.
    pub(crate) fn may_be_least(&self, pages: PageCount) -> bool {
        pages.0 / LEAST_UNIT < self.least.load(Ordering::Relaxed).into()
    }

    /// The fewest pages since this was last asked; now there are `pages`.
    pub(crate) fn take_least(&self, pages: PageCount) -> PageCount {
        let least = u64::from(self.least.load(Ordering::Relaxed)) * LEAST_UNIT;
        self.least.store(u16::MAX, Ordering::Relaxed);
        self.note_least(pages);
        PageCount(least.min(pages.0))
    }

    /// Whether there may be something in the inbox.
    pub(crate) fn has_inbox(&self) -> bool {
        self.inbox().has_some()
    }

    /// Adds runs of pages that were freed elsewhere. Anybody may.
    pub(crate) fn send(&self, frames: &ZoneFrames<'_>, sent: Chain) {
        let last = frames.frame(sent.last);
        self.inbox().send(sent.first, sent.pages, |next| last.set_next(next));
    }

    /// Calls `each` with all pageblocks on the lists. Only while nobody uses them.
    pub(crate) fn for_each(&self, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(Migratetype, u32)) {
        for (of, classes) in Migratetype::ALL.into_iter().zip(&self.heads) {
            for head in classes {
                frames
                    .pageblocks_from(head.load(Ordering::Relaxed))
                    .for_each(|first| each(of, first));
            }
        }
    }
}

/// Pages on their way.
impl Hold<'_> {
    /// What there is hold of.
    pub(crate) fn owned(&self) -> &Owned<'_> {
        self.0
    }

    /// The stage.
    pub(crate) fn stage(&self) -> &Stage<'_> {
        &self.0.stage
    }

    /// Puts pages of one pageblock where they belong: among what is free in the pageblock if it is `cpu`'s, who has hold; else
    /// on the stage, or to those that wait for room there. Returns whether there was room.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(crate) fn put_or_keep(
        &self,
        frames: &ZoneFrames<'_>,
        cpu: CpuId,
        number: u32,
        pages: u32,
    ) -> bool {
        if frames.free_in_pageblock(number).owner() == Some(cpu) {
            self.put(frames, number, pages);
            return true;
        }
        if self.0.stage.add(number, pages) {
            return true;
        }
        let waiting = &self.0.waiting;
        let mut chain = Chain { first: waiting.first.load(Ordering::Relaxed), ..Chain::NONE };
        chain.push(frames, number, pages);
        waiting.first.store(chain.first, Ordering::Relaxed);
        waiting.pages.store(waiting.pages.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
        false
    }

    /// Frees what is on the stage of `cpu`'s own pageblocks, who has hold. `touch` is told each pageblock that is looked at or
    /// changed. Returns the pages that stay there.
    pub(crate) fn put_own(
        &self,
        frames: &ZoneFrames<'_>,
        cpu: CpuId,
        touch: impl Fn(u32, Access),
    ) -> Staged {
        let mut left = Staged { of_nobody: 0, of_others: 0 };
        self.0.stage.each_parcel(0, |first, parcel| {
            touch(first, Access::Read);
            match frames.free_in_pageblock(first).owner() {
                Some(owner) if owner == cpu => {
                    touch(first, Access::Write);
                    self.put_map(frames, first, &parcel.map(), parcel.pages());
                    return Fate::Gone;
                }
                Some(_) => left.of_others += parcel.pages(),
                None if parcel.pages() == PAGES && self.adopt_whole(frames, cpu, first) => {
                    return Fate::Gone;
                }
                None => left.of_nobody += parcel.pages(),
            }
            Fate::Kept
        });
        left
    }

    /// Makes a pageblock `cpu`'s, who has hold and all of its pages in its hands, if nobody owns it; returns whether.
    pub(crate) fn adopt_whole(&self, frames: &ZoneFrames<'_>, cpu: CpuId, first: u32) -> bool {
        let block = frames.free_in_pageblock(first);
        let may_own = block.owner().is_none()
            && frames.pageblock(first).is_mergeable()
            && !frames.is_pageblock_shared(first);
        if may_own {
            // Nobody else can want it: all of it is ours.
            block.set_owner(Some(cpu));
            let mut passed = Passing::new();
            passed.push(frames, first);
            self.add(frames, passed);
        }
        may_own
    }

    /// Takes all runs that wait.
    pub(crate) fn take_waiting(&self) -> Chain {
        let waiting = &self.0.waiting;
        let first = waiting.first.load(Ordering::Relaxed);
        waiting.first.store(NO_FRAME, Ordering::Relaxed);
        waiting.pages.store(0, Ordering::Relaxed);
        Chain { first, ..Chain::NONE }
    }

    /// Takes all runs out of the inbox.
    pub(crate) fn take_inbox(&self, frames: &ZoneFrames<'_>) -> Chain {
        let first = self.0.pageblocks.inbox().take(|number| {
            let frame = frames.frame(number);
            (frame.next(), frame.prev())
        });
        Chain { first, ..Chain::NONE }
    }
}

/// Pageblocks.
impl Hold<'_> {
    fn head(&self, of: usize, class: usize) -> &AtomicU32 {
        &self.0.pageblocks.heads[of][class]
    }

    /// The pageblock of a type and class that was listed last.
    fn listed(&self, of: usize, class: usize) -> Option<u32> {
        Some(self.head(of, class).load(Ordering::Relaxed)).filter(|&head| head != NO_FRAME)
    }

    #[inline]
    fn add_free(&self, pages: u32) {
        let free = &self.0.pageblocks.free;
        free.store(free.load(Ordering::Relaxed).wrapping_add(pages), Ordering::Relaxed);
    }

    #[inline]
    fn list(&self, frames: &ZoneFrames<'_>, first: u32) {
        let block = frames.free_in_pageblock(first);
        let Some(class) = class_of(block.free()) else { return };
        let of = list_of(frames.pageblock(first));
        let head = self.head(of, class);
        frames.link_pageblock(first, head.load(Ordering::Relaxed));
        head.store(first, Ordering::Relaxed);
        block.set_listed(Some(of));
    }

    #[inline]
    fn unlist(&self, frames: &ZoneFrames<'_>, first: u32, class: usize) {
        let block = frames.free_in_pageblock(first);
        if let Some(next) = frames.unlink_pageblock(first) {
            // The pageblock may have another type by now: it is isolated.
            let of = block.listed().expect("it is on a list");
            self.head(of, class).store(next, Ordering::Relaxed);
        }
        block.set_listed(None);
    }

    /// Changes what is free in a pageblock of the CPU. If nothing is any more, it is nobody's afterwards.
    #[inline]
    fn change<R>(
        &self,
        frames: &ZoneFrames<'_>,
        first: u32,
        change: impl FnOnce(Pageblock<'_>) -> R,
    ) -> R {
        let block = frames.free_in_pageblock(first);
        let (free, listed) = (block.free(), block.listed().is_some());
        let answer = change(block);
        self.add_free(block.free().wrapping_sub(free));
        let (before, after) = (class_of(free).filter(|_| listed), class_of(block.free()));
        if before != after {
            if let Some(class) = before {
                self.unlist(frames, first, class);
            }
            match after {
                Some(_) => self.list(frames, first),
                None => block.set_owner(None),
            }
        }
        answer
    }

    /// Lists pageblocks that have become the CPU's.
    pub(crate) fn add(&self, frames: &ZoneFrames<'_>, mut passed: Passing) {
        while let Some(first) = passed.pop(frames) {
            let block = frames.free_in_pageblock(first);
            if block.free() == 0 {
                block.add(0..PAGES);
            }
            self.adopt(frames, first);
        }
    }

    /// Lists a pageblock that has become the CPU's, if some of it is free.
    pub(crate) fn adopt(&self, frames: &ZoneFrames<'_>, first: u32) {
        self.add_free(frames.free_in_pageblock(first).free());
        self.list(frames, first);
    }

    /// Takes the emptiest pageblocks off the lists, those that are whole first, until no more than `most` pages are left here
    /// or there is none. They are about to be the zone's.
    pub(crate) fn take_above(&self, frames: &ZoneFrames<'_>, most: PageCount) -> Passing {
        let mut passing = Passing::new();
        while self.0.pageblocks.free() > most
            && let Some(first) = self.emptiest()
        {
            let block = frames.free_in_pageblock(first);
            self.add_free(block.free().wrapping_neg());
            if let Some(class) = class_of(block.free()) {
                self.unlist(frames, first, class);
            }
            if block.is_whole() {
                block.remove(0..PAGES);
            }
            passing.push(frames, first);
        }
        passing
    }

    /// Makes adjoining pages of a pageblock of the CPU free.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    fn put(&self, frames: &ZoneFrames<'_>, number: u32, pages: u32) {
        let first = first_of(number);
        let at = number - first;
        self.change(frames, first, |block| {
            block.add(at..at + pages);
        });
    }

    /// Makes pages of a pageblock of the CPU free, so many.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(crate) fn put_map(&self, frames: &ZoneFrames<'_>, first: u32, map: &FreeMap, pages: u32) {
        self.change(frames, first, |block| block.add_map(map, pages));
    }

    /// The emptiest pageblock: of those that are whole, if there is one.
    fn emptiest(&self) -> Option<u32> {
        let places = (0..CLASSES).rev().flat_map(|class| (0..TYPES).map(move |of| (class, of)));
        { places }.find_map(|(class, of)| self.listed(of, class))
    }

    /// Takes single pages of a type, of the fullest pageblock: up to `most`, as at most `max_runs` runs for `sink(first, pages)`.
    /// Returns the pages.
    pub(crate) fn take_pages(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        (most, max_runs): (u32, u32),
        sink: &mut dyn FnMut(u32, u32),
    ) -> u32 {
        let (mut taken, mut runs) = (0, 0);
        while taken < most && runs < max_runs {
            let Some(first) = self.fullest(frames, of) else { break };
            self.change(frames, first, |block| {
                while taken < most
                    && runs < max_runs
                    && let Some(run) = block.take_run(most - taken)
                {
                    let pages = run.end - run.start;
                    sink(first + run.start, pages);
                    (taken, runs) = (taken + pages, runs + 1);
                }
            });
        }
        taken
    }

    fn fullest(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let found = (0..CLASSES).find_map(|class| self.usable(frames, of, class).next());
        found.or_else(|| self.whole_of_another_type(frames, of))
    }

    /// Makes a pageblock of another type, of which all is free, one of this type.
    fn whole_of_another_type(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let others = Migratetype::ALL[..TYPES].iter().filter(|&&other| other != of);
        let whole = |&other| Some((self.usable(frames, other, CLASSES - 1).next()?, other));
        let (first, other) = { others }.find_map(whole)?;
        if !frames.change_pageblock(first, other, of) {
            return None;
        }
        self.unlist(frames, first, CLASSES - 1);
        self.list(frames, first);
        Some(first)
    }

    /// Takes a block of a type; none above the order of a pageblock.
    pub(crate) fn take_block(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        order: Order,
    ) -> Option<u32> {
        if order > PAGEBLOCK_ORDER {
            return None;
        }
        let first = self
            .fullest_with(frames, of, order)
            .or_else(|| self.whole_of_another_type(frames, of))?;
        let block = self.change(frames, first, |block| block.take_block(order))?;
        Some(first + block.start)
    }

    fn fullest_with(&self, frames: &ZoneFrames<'_>, of: Migratetype, order: Order) -> Option<u32> {
        let has = |first: &u32| frames.free_in_pageblock(*first).map().first_block(order).is_some();
        (0..CLASSES).find_map(|class| self.usable(frames, of, class).find(has))
    }

    /// Pageblocks of a type and class that were listed last. Of one that is about to go nothing is taken: who isolated it drains
    /// this CPU soon.
    fn usable<'f>(
        &self,
        frames: &'f ZoneFrames<'_>,
        of: Migratetype,
        class: usize,
    ) -> impl Iterator<Item = u32> + use<'f> {
        let head = self.head(of.index(), class).load(Ordering::Relaxed);
        let is_usable = |&first: &u32| frames.pageblock(first) != Migratetype::Isolate;
        frames.pageblocks_from(head).take(SEARCHED).filter(is_usable)
    }
}
