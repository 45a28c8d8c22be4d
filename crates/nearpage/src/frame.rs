//! Page frames: 4 bytes of metadata per page, and 8 more where frames are linked, in sections of 128 MiB.
//!
//! ```text
//! a section   64 bytes          one per pageblock: its migratetype, and whether zones share it
//!             64 * 64 bytes     one per pageblock: which of its pages are free under nearpage's own rules
//!             32768 * 4 bytes   words: state | order | migratetype | lock bits | zone     see `Word`
//! and where zones or pagesets link frames
//!             64 * 12 bytes     one per pageblock: its owner under the rules of the RFC of 2026
//!             32768 * 8 bytes   links: frame numbers, within the zone, of the neighbours on a list
//! ```
//!
//! Words and links lie apart because an allocation or a free through a pageset touches the word alone:
//! a line holds the words of 16 pages, and those of 128 MiB fit a second-level cache. In frames of 16
//! bytes, word and links together, filling and emptying 200 000 pages ran out of that cache. The words of
//! adjoining sections are one array ([`section`]), so that the fast path needs no look-up by section.
//!
//! **Who writes what.** The word of a free block's head, and all links on free lists, change under the
//! lock of the zone. The word of an allocated or cached page is written by its one holder: the thread
//! that popped or is freeing it. All fields are atomics because a buggy caller may free a page that
//! somebody else is using; such a race must be a report, never undefined behaviour. The lock bits of the page in
//! an allocated block are anybody's, by atomic exchange (`nearpage-pagelock`).
//!
//! **Zero means untouched.** A section of zeroes is valid: no frame is the head of anything, every
//! pageblock is movable. So a section costs no time and no resident memory until it is used.
//!
//! **A word that is not `Free` and not `Allocated` says nothing about where its page is**: pages inside
//! a larger block and pages that a refill took from one keep what their word held before. Only heads
//! of free blocks and allocated blocks are exact. This keeps a refill from touching each frame.

mod free_map;
mod owners;
mod pageblock_list;
mod per_pageblock;
pub mod section;

pub(crate) use free_map::{FreeMap, run_heads};
pub(crate) use owners::OwnedBlock;
pub use per_pageblock::MapWords;
pub use section::{Section, SectionFrames, SectionLists, SectionMap, SectionRun, ZoneFrames};

use crate::sync::{AtomicU32, Ordering};
use crate::units::{Order, ZoneIndex};

/// What a page may be moved for: pages of one type share pageblocks, so that movable memory can be
/// made free in large pieces. `include/linux/mmzone.h: enum migratetype`, 6.12 without CMA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Migratetype {
    /// Cannot be moved: kernel data.
    Unmovable = 0,
    /// Can be moved or given back: user data.
    Movable = 1,
    /// Cannot be moved, can be freed on request: caches.
    Reclaimable = 2,
    /// Reserved for urgent requests of higher order.
    HighAtomic = 3,
    /// Being taken offline; never allocated from.
    Isolate = 4,
}

impl Migratetype {
    /// Number of types: lists per order.
    pub const COUNT: usize = 5;
    /// Types that pagesets keep lists for (`MIGRATE_PCPTYPES`): the first three.
    pub const PCP_COUNT: usize = 3;
    /// All types in the order of their numbers.
    pub const ALL: [Migratetype; Self::COUNT] =
        [Self::Unmovable, Self::Movable, Self::Reclaimable, Self::HighAtomic, Self::Isolate];

    /// The type's number.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name as `/proc/pagetypeinfo` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
            Self::HighAtomic => "HighAtomic",
            Self::Isolate => "Isolate",
        }
    }

    /// Whether pageblocks of this type may merge with others of its kind at order 9 and above.
    #[inline]
    pub const fn is_mergeable(self) -> bool {
        (self as u8) < 3
    }

    #[inline]
    const fn from_bits(bits: u32) -> Migratetype {
        let bits = bits as usize & 7;
        Self::ALL[if bits < Self::COUNT { bits } else { Self::COUNT - 1 }]
    }
}

/// What the word of a frame says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameState {
    /// Not a head; see the module text.
    Blank = 0,
    /// Head of a free block on a list of the buddy.
    Free = 1,
    /// Freed by its holder; in a pageset, or was when it last was a head.
    Cached = 2,
    /// Head of a block in somebody's hands.
    Allocated = 3,
    /// Head of a free piece in the pageset of the CPU that owns its pageblock ([`crate::pcp::pieces`]).
    Owned = 4,
}

/// The packed word of a frame.
///
/// ```text
/// bit 0-2 state  3-6 order  7-9 migratetype  10 locked  11 waiters  12-25 zone  26-28 zero  29-31 tag
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Word(u32);

const ORDER_SHIFT: u32 = 3;
const TYPE_SHIFT: u32 = 7;
const ZONE_SHIFT: u32 = 12;
/// The most zones: a word has 12 bits for one.
pub(crate) const ZONES_MAX: usize = 1 << 12;
const STATE_MASK: u32 = 0b111;
const ORDER_MASK: u32 = 0b1111 << ORDER_SHIFT;
const ZONE_MASK: u32 = (ZONES_MAX as u32 - 1) << ZONE_SHIFT;
/// Somebody has locked the page.
pub const LOCKED: u32 = 1 << 10;
/// Somebody waits for the lock of the page.
pub const WAITERS: u32 = 1 << 11;
/// An allocated block goes back only if nobody has or wants its lock.
const HELD_MASK: u32 = STATE_MASK | ORDER_MASK | LOCKED | WAITERS;

/// Which refill of a CPU's list an allocated page came from, as far as eight bits tell ([`Word::with_next_tag`]).
const TAG_SHIFT: u32 = 24;
const TAG_MASK: u32 = 0xff << TAG_SHIFT;
/// Tags that are not 0.
const TAGS: u32 = 255;

const _: () = assert!(crate::units::MAX_ORDER.0 < 16, "an order must fit four bits");

impl Word {
    /// A word that has never been written.
    pub const BLANK: Word = Word(0);

    const fn new(state: FrameState, order: Order, migratetype: u32, zone: ZoneIndex) -> Word {
        Word(
            state as u32
                | (order.0 as u32) << ORDER_SHIFT
                | migratetype << TYPE_SHIFT
                | (zone.0 as u32) << ZONE_SHIFT,
        )
    }

    /// The head of a free block on the list of `migratetype`.
    #[inline]
    pub const fn free(order: Order, migratetype: Migratetype, zone: ZoneIndex) -> Word {
        Word::new(FrameState::Free, order, migratetype as u32, zone)
    }

    /// The head of a block that was just handed out to a request for `migratetype`.
    #[inline]
    pub const fn allocated(order: Order, migratetype: Migratetype, zone: ZoneIndex) -> Word {
        Word::new(FrameState::Allocated, order, migratetype as u32, zone)
    }

    /// The head of a block that its holder gave back.
    #[inline]
    pub const fn cached(order: Order, zone: ZoneIndex) -> Word {
        Word::new(FrameState::Cached, order, 0, zone)
    }

    /// This word of a page that its holder gave back, with a mark of who looks at it in this turn. It goes when the page is
    /// handed out.
    pub(crate) const fn seen(self, turn: u32) -> Word {
        const TYPE_MASK: u32 = 0b111 << TYPE_SHIFT;
        Word(self.0 & !TYPE_MASK | (1 + turn % 7) << TYPE_SHIFT)
    }

    /// Whether somebody looked in another turn than this one.
    pub(crate) fn was_seen_before(self, turn: u32) -> bool {
        self.0 >> TYPE_SHIFT & 0b111 != 0 && self != self.seen(turn)
    }

    /// The head of a free piece of a pageset: of a pageblock that the pageset's CPU owns, or of another.
    pub(crate) const fn piece(
        is_owned: bool,
        order: Order,
        migratetype: Migratetype,
        zone: ZoneIndex,
    ) -> Word {
        let state = if is_owned { FrameState::Owned } else { FrameState::Cached };
        Word::new(state, order, migratetype as u32, zone)
    }

    /// What becomes of this word of an allocated block when its holder gives it back, if the order and the type in it
    /// are known: two instructions.
    #[inline(always)]
    pub const fn given_back(self, order: Order, migratetype: Migratetype) -> Word {
        let zone = ZoneIndex(0);
        let changed = Word::allocated(order, migratetype, zone).0 ^ Word::cached(order, zone).0;
        Word((self.0 ^ changed) & !TAG_MASK)
    }

    /// This word with the next tag, of 1 to 255. Pages that did not come from a pageset's list have 0.
    #[inline]
    pub(crate) const fn with_next_tag(self) -> Word {
        self.with_tag((self.0 >> TAG_SHIFT) % TAGS + 1)
    }

    /// This word with the tag before its own.
    #[inline]
    pub(crate) const fn with_last_tag(self) -> Word {
        self.with_tag(((self.0 >> TAG_SHIFT) + TAGS - 2) % TAGS + 1)
    }

    #[inline]
    const fn with_tag(self, tag: u32) -> Word {
        Word(self.0 & !TAG_MASK | tag << TAG_SHIFT)
    }

    /// Whether two words say the same but for their tags.
    #[inline(always)]
    pub(crate) const fn differs_by_tag_only(self, other: Word) -> bool {
        (self.0 ^ other.0) & !TAG_MASK == 0
    }

    /// The word of these bits.
    #[inline(always)]
    pub(crate) const fn of_bits(bits: u32) -> Word {
        Word(bits)
    }

    /// The bits.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The state.
    #[inline]
    pub const fn state(self) -> FrameState {
        match self.0 & STATE_MASK {
            1 => FrameState::Free,
            2 => FrameState::Cached,
            3 => FrameState::Allocated,
            4 => FrameState::Owned,
            _ => FrameState::Blank,
        }
    }

    /// The order of the block that this frame is the head of.
    #[inline]
    pub const fn order(self) -> Order {
        Order(((self.0 & ORDER_MASK) >> ORDER_SHIFT) as u8)
    }

    /// The list that a free block is on; the type that an allocated block was asked for.
    #[inline]
    pub const fn migratetype(self) -> Migratetype {
        Migratetype::from_bits(self.0 >> TYPE_SHIFT)
    }

    /// The zone that the frame belongs to; meaningless while the word is blank.
    #[inline]
    pub const fn zone(self) -> ZoneIndex {
        ZoneIndex(((self.0 & ZONE_MASK) >> ZONE_SHIFT) as u16)
    }

    /// Whether this is the head of an allocated block of exactly `order` that nobody has locked or waits for.
    #[inline]
    pub const fn is_allocated(self, order: Order) -> bool {
        self.0 & HELD_MASK == FrameState::Allocated as u32 | (order.0 as u32) << ORDER_SHIFT
    }

    /// Whether the page is locked.
    #[inline]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Whether somebody waits for the lock of the page.
    #[inline]
    pub const fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// This word of a page that nobody has locked or waits for.
    #[inline]
    pub(crate) const fn without_lock(self) -> Word {
        Word(self.0 & !(LOCKED | WAITERS))
    }

    /// Whether this is the head of a free block of exactly `order` in `zone`.
    #[inline]
    pub const fn is_free(self, order: Order, zone: ZoneIndex) -> bool {
        let mask = STATE_MASK | ORDER_MASK | ZONE_MASK;
        self.0 & mask == Word::free(order, Migratetype::Unmovable, zone).0 & mask
    }
}

/// Where the walker found a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// On a list of the buddy.
    Free,
    /// In a pageset.
    Cached,
    /// In somebody's hands.
    Allocated,
}

/// Marks that the walker leaves in words of pages that are not allocated, where those have their tag, and in the order, and
/// takes away again. A marked word keeps its state and, since the place of a mark says it, may lose the order that it had.
mod marks {
    use super::{ORDER_MASK, ORDER_SHIFT, Place, Word};
    use crate::units::Order;

    const SHIFT: u32 = 26;
    const MASK: u32 = 0b11 << SHIFT;
    const FREE: u32 = 1;
    const CACHED: u32 = 2;

    impl Word {
        /// This word with a mark.
        pub(crate) const fn marked(self, place: Place, order: Order) -> Word {
            let place = match place {
                Place::Free => FREE,
                Place::Cached => CACHED,
                Place::Allocated => 0,
            };
            Word(self.0 & !ORDER_MASK | (order.0 as u32) << ORDER_SHIFT | place << SHIFT)
        }

        /// The mark.
        pub(crate) const fn mark(self) -> Option<(Place, Order)> {
            match (self.0 & MASK) >> SHIFT {
                _ if matches!(self.state(), super::FrameState::Allocated) => None,
                FREE => Some((Place::Free, self.order())),
                CACHED => Some((Place::Cached, self.order())),
                _ => None,
            }
        }

        /// This word without a mark; a blank one as if it had never been touched, but for its lock.
        pub(crate) const fn unmarked(self) -> Word {
            match self.state() {
                super::FrameState::Blank => Word(self.0 & (super::LOCKED | super::WAITERS)),
                super::FrameState::Allocated => self,
                _ => Word(self.0 & !MASK),
            }
        }
    }
}

impl core::fmt::Debug for Word {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}(order {}, zone {})", self.state(), self.order(), self.zone().0)
    }
}

/// End of a list of frame numbers; also "no frame". A zone has fewer frames than this.
pub const NO_FRAME: u32 = u32::MAX;

/// The word of one page frame, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct WordCell<'m>(&'m AtomicU32);

impl<'m> WordCell<'m> {
    /// The word's atomic, for what changes single bits of it.
    #[inline(always)]
    pub(crate) fn atomic(self) -> &'m AtomicU32 {
        self.0
    }

    /// The word now.
    #[inline(always)]
    pub fn get(self) -> Word {
        Word(self.0.load(Ordering::Relaxed))
    }

    /// Overwrites the word. Only the holder of the page or of the zone's lock may.
    #[inline(always)]
    pub fn set(self, word: Word) {
        self.0.store(word.0, Ordering::Relaxed);
    }

    /// Overwrites the word if it is `current`.
    pub(crate) fn replace(self, current: Word, word: Word) {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        // Whoever changed it meanwhile knows better.
        let _ = self.0.compare_exchange(current.0, word.0, order, failed);
    }

    /// Overwrites the word and returns what it held, in one atomic step: two frees of one page in
    /// the same instant cannot both find it allocated.
    #[inline(always)]
    pub fn swap(self, word: Word) -> Word {
        Word(self.0.swap(word.0, Ordering::Relaxed))
    }
}

/// The plan of an allocator gives frames links wherever its rules link them.
const LINKS_OF_EACH: &str = "each frame has links";

/// The metadata of one page frame, wherever its parts lie.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'m> {
    word: WordCell<'m>,
    /// Next and previous, by [`ListEnd`], where frames are linked.
    links: Option<&'m [AtomicU32; 2]>,
}

impl<'m> Frame<'m> {
    /// Where the word is.
    #[inline]
    pub fn cell(self) -> WordCell<'m> {
        self.word
    }

    /// The word now.
    #[inline]
    pub fn word(self) -> Word {
        self.word.get()
    }

    /// Overwrites the word: [`WordCell::set`].
    #[inline]
    pub fn set_word(self, word: Word) {
        self.word.set(word);
    }

    /// Next frame number on the list, or [`NO_FRAME`].
    #[inline]
    pub fn next(self) -> u32 {
        self.link(ListEnd::Head)
    }

    /// Previous frame number on the list, or [`NO_FRAME`].
    #[inline]
    pub fn prev(self) -> u32 {
        self.link(ListEnd::Tail)
    }

    /// Sets the next frame number.
    #[inline]
    pub fn set_next(self, number: u32) {
        self.set_link(ListEnd::Head, number);
    }

    /// Sets the previous frame number.
    #[inline]
    pub fn set_prev(self, number: u32) {
        self.set_link(ListEnd::Tail, number);
    }

    /// The neighbour on the side away from `end`: [`next`](Self::next) for the head,
    /// [`prev`](Self::prev) for the tail. So lists are written once for both ends.
    #[inline]
    pub fn link(self, end: ListEnd) -> u32 {
        self.links.expect(LINKS_OF_EACH)[end as usize].load(Ordering::Relaxed)
    }

    /// Sets what [`link`](Self::link) returns.
    #[inline]
    pub fn set_link(self, end: ListEnd, number: u32) {
        self.links.expect(LINKS_OF_EACH)[end as usize].store(number, Ordering::Relaxed);
    }
}

/// An end of a list of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ListEnd {
    /// Where a list is taken from.
    Head = 0,
    /// The other end.
    Tail = 1,
}

impl ListEnd {
    /// The other end.
    #[inline]
    pub const fn opposite(self) -> ListEnd {
        match self {
            Self::Head => Self::Tail,
            Self::Tail => Self::Head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All states, orders, types and a few zones: 5 × 11 × 5 × 4 words.
    #[test]
    fn words_hold_what_they_were_made_of() {
        for zone in [0, 1, 4095, ZONES_MAX as u16 - 1].map(ZoneIndex) {
            for order in (0..=10).map(Order) {
                for migratetype in Migratetype::ALL {
                    let word = Word::free(order, migratetype, zone);
                    assert_eq!(
                        (word.state(), word.order(), word.migratetype(), word.zone()),
                        (FrameState::Free, order, migratetype, zone)
                    );
                    assert!(word.is_free(order, zone) && !word.is_allocated(order));
                    assert!(!word.is_free(Order(order.0 ^ 1), zone));
                    assert!(!word.is_free(order, ZoneIndex(zone.0 ^ 1)));

                    let word = Word::allocated(order, migratetype, zone);
                    assert_eq!(
                        (word.state(), word.order(), word.migratetype(), word.zone()),
                        (FrameState::Allocated, order, migratetype, zone)
                    );
                    assert!(word.is_allocated(order) && !word.is_free(order, zone));
                    assert!(!word.is_allocated(Order(order.0 ^ 1)));
                }
                assert!(!Word::cached(order, zone).is_allocated(order));
            }
        }
        let (mut word, zone) =
            (Word::allocated(Order(3), Migratetype::Movable, ZoneIndex(9)), ZoneIndex(9));
        let mut tags = [0; TAGS as usize + 1];
        for _ in 0..2 * TAGS {
            let next = word.with_next_tag();
            assert!(next != word && next.differs_by_tag_only(word) && next.zone() == zone);
            assert!(next.with_next_tag().with_last_tag() == next && next.is_allocated(Order(3)));
            tags[(next.bits() >> TAG_SHIFT) as usize] += 1;
            word = next;
        }
        assert!(tags[0] == 0 && tags[1..].iter().all(|&times| times == 2));
        assert_eq!(Word::BLANK.state(), FrameState::Blank);
        assert!(
            !Word::BLANK.is_allocated(Order(0)) && !Word::BLANK.is_free(Order(0), ZoneIndex(0))
        );
    }
}
