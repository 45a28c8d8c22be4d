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

mod chain;
mod homebound;
mod lists;

pub(crate) use chain::Chain;

use super::hold_word::HoldWord;
use super::inbox::Inbox;
use super::stage::Stage;
use super::swing::Swing;
use crate::frame::{Migratetype, NO_FRAME, ZoneFrames};
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::{PAGEBLOCK_ORDER, PageCount};

const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;
const TYPES: usize = Migratetype::PCP_COUNT;
const CLASSES: usize = 3;
/// How exactly the fewest pages are known.
const LEAST_UNIT: u64 = 16;

/// The pageblocks.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct OwnedPageblocks {
    /// The word of an [`Inbox`].
    inbox: AtomicU64,
    /// The first frame of the pageblock that was listed last, or [`NO_FRAME`].
    heads: [[AtomicU32; CLASSES]; TYPES],
    free: AtomicU32,
    /// How often somebody added to the inbox or took all, as far as that was received.
    inbox_uses: AtomicU32,
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
    /// Pages on their way to who has their pageblocks.
    stage: Stage<'m>,
    /// Runs that have no room there, or were received and not looked at yet.
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

/// A chain of runs, kept.
#[derive(Debug)]
struct Runs {
    /// The first frame of the first, or [`NO_FRAME`].
    first: AtomicU32,
    pages: AtomicU32,
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
        let waiting = self.waiting.first.load(Ordering::Relaxed);
        for first in [waiting, self.pageblocks.inbox().first()] {
            let mut chain = Chain::of((first, 0));
            while let Some((first, pages)) = chain.pop(frames) {
                each(first, pages);
            }
        }
    }

    /// Pages on their way, but for those on the pageset's list.
    pub(crate) fn homebound_pages(&self) -> PageCount {
        let waiting = self.waiting.pages.load(Ordering::Relaxed);
        let pages = [self.stage.pages(), waiting, self.pageblocks.inbox().pages()];
        PageCount(pages.into_iter().map(u64::from).sum())
    }

    /// Pages that were freed so far past the lists, by whatever CPU.
    pub(crate) fn sent_pages(&self) -> u64 {
        self.sent_pages.load(Ordering::Relaxed)
    }

    /// Whether there may be something in the inbox, or something that came from there waits.
    pub(crate) fn has_received(&self) -> bool {
        self.waiting.first.load(Ordering::Relaxed) != NO_FRAME || self.pageblocks.inbox().has_some()
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

impl OwnedPageblocks {
    pub(crate) fn new() -> Self {
        let [free, inbox_uses, size, visited] = [const { AtomicU32::new(0) }; 4];
        Self {
            inbox: AtomicU64::new(Inbox::<AtomicU64>::EMPTY),
            heads: [const { [const { AtomicU32::new(NO_FRAME) }; CLASSES] }; TYPES],
            free,
            inbox_uses,
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

    fn inbox(&self) -> Inbox<'_, AtomicU64> {
        Inbox::new(&self.inbox)
    }

    /// How often somebody added to the inbox or took all: an exchange of a word each. What was added counts once it was received.
    pub(crate) fn inbox_uses(&self) -> u32 {
        self.inbox_uses.load(Ordering::Relaxed)
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

    /// Adds runs of pages that were freed elsewhere. Anybody may.
    pub(crate) fn send(&self, frames: &ZoneFrames<'_>, sent: Chain) {
        let last = frames.frame(sent.last);
        sent.mark(frames);
        self.inbox().send(sent.first, sent.pages(), |next| last.set_next(next));
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
