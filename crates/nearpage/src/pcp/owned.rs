//! The pageblocks that a CPU owns of a zone, each with a map of what is free in it.
//!
//! ```text
//! list (type, class)   pageblocks of which some pages are free     class 0: up to 127, 1: up to 511, 2: all
//! inbox                blocks that other CPUs freed, linked through their frames; anybody adds
//! ```
//!
//! A pageblock of which nothing is free is on no list and nobody's: who frees a page of it first may take it
//! ([`crate::frame::Pageblock`] says who writes what).
//!
//! Everything but the inbox is for who has hold of it ([`Owned::enter`]): the CPU itself, or who drains it from
//! outside. A thread that finds somebody else at it goes to the zone instead; nobody waits.
//!
//! 64 bytes. Not here: how many pages there may be ([`super::swing`]), and the zone's lock.

use super::passing::Passing;
use super::swing::Swing;
use crate::frame::{FrameState, FreeMap, Migratetype, NO_FRAME, Pageblock, ZoneFrames, first_of};
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering, OwnedCounter};
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER, PageCount};

const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;
const TYPES: usize = Migratetype::PCP_COUNT;
const CLASSES: usize = 3;
/// Pageblocks with fewer free pages than this are in the first class.
const FULL_BELOW: u32 = PAGES / 4;
/// Pages that a list gets at once, and half of what it holds at most.
pub(crate) const LIST_PAGES: u32 = 64;
/// How exactly the fewest pages are known.
const LEAST_UNIT: u64 = 16;
const USES_SHIFT: u32 = 32;
const PAGES_OF_INBOX: u64 = u32::MAX as u64;
/// How many pageblocks of a class are searched for a block of more than one page.
const SEARCHED: usize = 8;

/// The pageblocks.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct OwnedPageblocks {
    /// Pages in the inbox, about so many while somebody adds; and in the upper half, how often it was added to or emptied.
    inbox_work: AtomicU64,
    /// The first frame of the pageblock that was listed last, or [`NO_FRAME`].
    heads: [[AtomicU32; CLASSES]; TYPES],
    free: AtomicU32,
    /// Head of a block, or [`NO_FRAME`].
    inbox: AtomicU32,
    /// What [`super::swing`] keeps: how many pages there may be, and when the zone was visited last.
    size: AtomicU32,
    visited: AtomicU32,
    /// In units of [`LEAST_UNIT`] pages.
    least: AtomicU16,
    is_held: AtomicU16,
}

const _: () = assert!(size_of::<OwnedPageblocks>() == 64);

/// Hold of what a CPU owns; dropping it lets go.
pub(crate) struct Hold<'a>(&'a Owned);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // Pairs with the exchange in `enter`.
        self.0.pageblocks.is_held.store(0, Ordering::Release);
    }
}

/// What stands behind the lists of a pageset whose CPU owns pageblocks. All but the pageblocks' inbox is for who has hold of
/// the pageblocks.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) pageblocks: OwnedPageblocks,
    /// Single pages that the CPU freed and did not get lately, on their way to who has their pageblocks: linked through
    /// their frames, the last one first.
    homebound: Linked,
    /// Blocks that wait for more on the same way.
    waiting: Linked,
    /// Pages that were homebound so far.
    homebound_pages: OwnedCounter,
    /// Pages that went to the inbox so far as they were freed, not from another pageset.
    pub(crate) sent_pages: AtomicU64,
}

/// Blocks that are linked through their frames: the first one, or [`NO_FRAME`], and how many pages they are.
#[derive(Debug)]
struct Linked {
    first: AtomicU32,
    pages: AtomicU32,
}

impl Linked {
    const fn new() -> Self {
        Self { first: AtomicU32::new(NO_FRAME), pages: AtomicU32::new(0) }
    }

    fn get(&self) -> (u32, u32) {
        (self.first.load(Ordering::Relaxed), self.pages.load(Ordering::Relaxed))
    }

    fn set(&self, (first, pages): (u32, u32)) {
        self.first.store(first, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// Adds a block before the others.
    fn push(&self, frames: &ZoneFrames<'_>, number: u32, order: Order) {
        let (first, pages) = self.get();
        frames.frame(number).set_next(first);
        self.set((number, pages + order.pages().0 as u32));
    }
}

impl Owned {
    pub(crate) fn new() -> Self {
        let (homebound, waiting) = (Linked::new(), Linked::new());
        let (homebound_pages, sent_pages) = (OwnedCounter::new(), AtomicU64::new(0));
        let pageblocks = OwnedPageblocks::new();
        Self { pageblocks, homebound, waiting, homebound_pages, sent_pages }
    }

    /// Takes hold, unless somebody else has it.
    pub(crate) fn enter(&self) -> Option<Hold<'_>> {
        // Pairs with the store of who lets go.
        let was_held = self.pageblocks.is_held.swap(1, Ordering::Acquire);
        // Only who has hold may have a `Hold`: dropping one lets go.
        (was_held == 0).then(|| Hold(self))
    }

    /// Calls `each` with all blocks that are homebound, or wait, or are in the inbox. Only while nobody uses them.
    pub(crate) fn for_each_homebound(&self, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        let inbox = self.pageblocks.inbox.load(Ordering::Relaxed);
        for mut next in [self.homebound.get().0, self.waiting.get().0, inbox] {
            while next != NO_FRAME {
                each(next);
                next = frames.frame(next).next();
            }
        }
    }

    /// Pages on their way.
    pub(crate) fn homebound_pages(&self) -> PageCount {
        let pages = [&self.homebound, &self.waiting].map(|linked| u64::from(linked.get().1));
        PageCount(pages.iter().sum::<u64>() + self.pageblocks.inbox_pages().0)
    }

    /// Pages that came here so far as they were freed.
    pub(crate) fn freed_pages(&self) -> u64 {
        self.homebound_pages.get().wrapping_add(self.sent_pages.load(Ordering::Relaxed))
    }

    /// Pages here.
    pub(crate) fn count(&self) -> PageCount {
        PageCount(self.pageblocks.free().0 + self.homebound_pages().0)
    }
}

/// Blocks of an order that a list gets at once.
pub(crate) fn blocks_of_a_refill(order: Order) -> u32 {
    (LIST_PAGES >> order.0).max(1)
}

/// Blocks of an order that a list holds at most.
pub(crate) fn list_limit(order: Order) -> u32 {
    2 * blocks_of_a_refill(order)
}

fn class_of(free: u32) -> Option<usize> {
    match free {
        0 => None,
        PAGES => Some(2),
        free if free < FULL_BELOW => Some(0),
        _ => Some(1),
    }
}

/// The type of the lists that a pageblock is on.
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
            is_held: AtomicU16::new(0),
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

    /// Pages in the inbox.
    pub(crate) fn inbox_pages(&self) -> PageCount {
        PageCount(self.inbox_work.load(Ordering::Relaxed) & PAGES_OF_INBOX)
    }

    /// How often somebody added to the inbox, or emptied it.
    pub(crate) fn inbox_uses(&self) -> u32 {
        (self.inbox_work.load(Ordering::Relaxed) >> USES_SHIFT) as u32
    }

    /// Notes how many pages there are in all, if they are the fewest since [`take_least`](Self::take_least).
    pub(crate) fn note_least(&self, pages: PageCount) {
        let units = (pages.0 / LEAST_UNIT).min(u16::MAX.into()) as u16;
        if units < self.least.load(Ordering::Relaxed) {
            self.least.store(units, Ordering::Relaxed);
        }
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
        self.inbox.load(Ordering::Relaxed) != NO_FRAME
    }

    /// Adds a chain of blocks that were freed elsewhere: `first` to `last`, linked by their frames. Anybody may.
    pub(crate) fn send(&self, frames: &ZoneFrames<'_>, first: u32, last: u32, pages: u32) {
        self.inbox_work.fetch_add((1 << USES_SHIFT) + u64::from(pages), Ordering::Relaxed);
        let mut head = self.inbox.load(Ordering::Relaxed);
        loop {
            frames.frame(last).set_next(head);
            // Releases the links and what was written to the pages; `Hold::receive` acquires it.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match self.inbox.compare_exchange_weak(head, first, done, failed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
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

/// Blocks on their way.
impl Hold<'_> {
    /// What there is hold of.
    pub(crate) fn owned(&self) -> &Owned {
        self.0
    }

    /// Adds a page to those that are homebound.
    pub(crate) fn push_homebound(&self, frames: &ZoneFrames<'_>, number: u32) {
        self.0.homebound.push(frames, number, Order(0));
        self.0.homebound_pages.add(1);
    }

    /// Takes some of those that are homebound, as many as `out` has room for. Returns how many.
    pub(crate) fn take_homebound(&self, frames: &ZoneFrames<'_>, out: &mut [u32]) -> usize {
        let (mut next, pages) = self.0.homebound.get();
        let mut got = 0;
        while got < out.len() && next != NO_FRAME {
            out[got] = next;
            next = frames.frame(next).next();
            got += 1;
        }
        self.0.homebound.set((next, pages - got as u32));
        got
    }

    /// Lets a block wait for more on the same way.
    pub(crate) fn wait(&self, frames: &ZoneFrames<'_>, number: u32, order: Order) {
        self.0.waiting.push(frames, number, order);
    }

    /// The blocks that wait: the first one, or [`NO_FRAME`], and their pages.
    pub(crate) fn waiting(&self) -> (u32, u32) {
        self.0.waiting.get()
    }

    /// Sets what [`waiting`](Self::waiting) returns.
    pub(crate) fn set_waiting(&self, waiting: (u32, u32)) {
        self.0.waiting.set(waiting);
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

    fn add_free(&self, pages: u32) {
        let free = &self.0.pageblocks.free;
        free.store(free.load(Ordering::Relaxed).wrapping_add(pages), Ordering::Relaxed);
    }

    fn list(&self, frames: &ZoneFrames<'_>, first: u32) {
        let block = frames.free_in_pageblock(first);
        let Some(class) = class_of(block.free()) else { return };
        let of = list_of(frames.pageblock(first));
        let head = self.head(of, class);
        frames.link_pageblock(first, head.load(Ordering::Relaxed));
        head.store(first, Ordering::Relaxed);
        block.set_listed(Some(of));
    }

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
    fn put(&self, frames: &ZoneFrames<'_>, number: u32, pages: u32) {
        let first = first_of(number);
        let at = number - first;
        self.change(frames, first, |block| {
            block.add(at..at + pages);
        });
    }

    /// Makes a block free if its pageblock is `cpu`'s, who has hold; returns whether it is.
    ///
    /// # Panics
    /// If one of its pages is free already.
    pub(crate) fn put_if_own(
        &self,
        frames: &ZoneFrames<'_>,
        cpu: CpuId,
        number: u32,
        order: Order,
    ) -> bool {
        let is_own = frames.free_in_pageblock(number).owner() == Some(cpu);
        if is_own {
            self.put(frames, number, order.pages().0 as u32);
        }
        is_own
    }

    /// Makes pages of a pageblock of the CPU free.
    ///
    /// # Panics
    /// If one of them is free already.
    pub(crate) fn put_map(&self, frames: &ZoneFrames<'_>, first: u32, pages: FreeMap) {
        self.change(frames, first, |block| block.add_map(pages));
    }

    /// The emptiest pageblock: of those that are whole, if there is one.
    fn emptiest(&self) -> Option<u32> {
        let places = (0..CLASSES).rev().flat_map(|class| (0..TYPES).map(move |of| (class, of)));
        { places }.find_map(|(class, of)| self.listed(of, class))
    }

    /// Takes single pages of a type, of the fullest pageblock: up to `most`, as runs for `sink(first, pages)`. Returns the pages.
    pub(crate) fn take_pages(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        most: u32,
        sink: &mut dyn FnMut(u32, u32),
    ) -> u32 {
        let mut taken = 0;
        while taken < most {
            let Some(first) = self.fullest(frames, of) else { break };
            self.change(frames, first, |block| {
                while taken < most
                    && let Some(run) = block.take_run(most - taken)
                {
                    let pages = run.end - run.start;
                    sink(first + run.start, pages);
                    taken += pages;
                }
            });
        }
        taken
    }

    fn fullest(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let found = (0..CLASSES).find_map(|class| self.listed(of.index(), class));
        let first = found.or_else(|| self.whole_of_another_type(frames, of))?;
        // Of one that is about to go nothing is taken: who isolated it drains this CPU soon.
        (frames.pageblock(first) != Migratetype::Isolate).then_some(first)
    }

    /// Makes a pageblock of another type, of which all is free, one of this type.
    fn whole_of_another_type(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let others = Migratetype::ALL[..TYPES].iter().filter(|&&other| other != of);
        let whole = |&other: &Migratetype| Some((self.listed(other.index(), CLASSES - 1)?, other));
        let (first, other) = { others }.find_map(whole)?;
        if !frames.change_pageblock(first, other, of) {
            return None;
        }
        self.unlist(frames, first, CLASSES - 1);
        self.list(frames, first);
        Some(first)
    }

    /// Takes a block of a type, up to the order of a pageblock.
    pub(crate) fn take_block(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        order: Order,
    ) -> Option<u32> {
        let first = self
            .fullest_with(frames, of, order)
            .or_else(|| self.whole_of_another_type(frames, of))?;
        let block = self.change(frames, first, |block| block.take_block(order))?;
        Some(first + block.start)
    }

    fn fullest_with(&self, frames: &ZoneFrames<'_>, of: Migratetype, order: Order) -> Option<u32> {
        let has = |&first: &u32| {
            frames.pageblock(first) != Migratetype::Isolate
                && frames.free_in_pageblock(first).map().first_block(order).is_some()
        };
        (0..CLASSES).find_map(|class| {
            let head = self.head(of.index(), class).load(Ordering::Relaxed);
            frames.pageblocks_from(head).take(SEARCHED).find(has)
        })
    }

    /// Takes all blocks out of the inbox, and calls `each` with them.
    pub(crate) fn receive(&self, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32, Order)) {
        let of = &self.0.pageblocks;
        if !of.has_inbox() {
            return;
        }
        // Pairs with the exchange in `send`.
        let mut next = of.inbox.swap(NO_FRAME, Ordering::Acquire);
        let mut pages = 0;
        while next != NO_FRAME {
            let frame = frames.frame(next);
            let (number, word) = (next, frame.word());
            debug_assert!(word.state() == FrameState::Cached, "it was freed");
            next = frame.next();
            pages += word.order().pages().0;
            each(number, word.order());
        }
        of.inbox_work.fetch_add((1 << USES_SHIFT) - pages, Ordering::Relaxed);
    }
}
