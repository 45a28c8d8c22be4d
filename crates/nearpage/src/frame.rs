//! Page frames: 12 bytes of metadata per page, in sections of 128 MiB.
//!
//! ```text
//! Section   64 bytes            one per pageblock: its migratetype, and whether zones share it
//!           32768 * 4 bytes     words: state | order | migratetype | lock bits | zone     see `Word`
//!           32768 * 8 bytes     links: frame numbers, within the zone, of the neighbours on a list
//! ```
//!
//! Words and links lie apart because an allocation or a free through a pageset touches the word alone:
//! a line holds the words of 16 pages, and those of 128 MiB fit a second-level cache. In frames of 16
//! bytes, word and links together, filling and emptying 200 000 pages ran out of that cache.
//!
//! **Who writes what.** The word of a free block's head, and all links on free lists, change under the
//! lock of the zone. The word of an allocated or cached page is written by its one holder: the thread
//! that popped or is freeing it. All fields are atomics because a buggy caller may free a page that
//! somebody else is using; such a race must be a report, never undefined behaviour. The lock bits of the page in
//! an allocated block are anybody's, by atomic exchange ([`crate::pagelock`]).
//!
//! **Zero means untouched.** A section of zeroes is valid: no frame is the head of anything, every
//! pageblock is movable. So a section costs no time and no resident memory until it is used.
//!
//! **A word that is not `Free` and not `Allocated` says nothing about where its page is**: pages inside
//! a larger block and pages that a refill took from one keep what their word held before. Only heads
//! of free blocks and allocated blocks are exact. This keeps a refill from touching each frame.

use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn, SECTION_FRAMES, SECTION_SHIFT, ZoneIndex};

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
}

/// The packed word of a frame.
///
/// ```text
/// bit 0-2 state  3-6 order  7-9 migratetype  10 locked  11 waiters  12-27 zone  28-31 zero
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Word(u32);

const ORDER_SHIFT: u32 = 3;
const TYPE_SHIFT: u32 = 7;
const ZONE_SHIFT: u32 = 12;
const STATE_MASK: u32 = 0b111;
const ORDER_MASK: u32 = 0b1111 << ORDER_SHIFT;
const ZONE_MASK: u32 = (u16::MAX as u32) << ZONE_SHIFT;
/// Somebody has locked the page ([`crate::pagelock`]).
pub(crate) const LOCKED: u32 = 1 << 10;
/// Somebody waits for the lock of the page.
pub(crate) const WAITERS: u32 = 1 << 11;
/// An allocated block goes back only if nobody has or wants its lock.
const HELD_MASK: u32 = STATE_MASK | ORDER_MASK | LOCKED | WAITERS;

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

    /// The bits.
    #[cfg(test)]
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
        ZoneIndex((self.0 >> ZONE_SHIFT) as u16)
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

/// Marks that the walker leaves in bits 28 to 31 and in the order, and takes away again. A marked word keeps
/// its state and, since the place of a mark says it, may lose the order that it had.
mod marks {
    use super::{ORDER_MASK, ORDER_SHIFT, Place, Word};
    use crate::units::Order;

    const SHIFT: u32 = 28;
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
            match self.0 >> SHIFT {
                FREE => Some((Place::Free, self.order())),
                CACHED => Some((Place::Cached, self.order())),
                _ => None,
            }
        }

        /// This word without a mark; a blank one as if it had never been touched, but for its lock.
        pub(crate) const fn unmarked(self) -> Word {
            match self.state() {
                super::FrameState::Blank => Word(self.0 & (super::LOCKED | super::WAITERS)),
                _ => Word(self.0 & !(u32::MAX << SHIFT)),
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

/// The metadata of one page frame, wherever its parts lie.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'m> {
    word: &'m AtomicU32,
    /// Next and previous, by [`ListEnd`].
    links: &'m [AtomicU32; 2],
}

impl<'m> Frame<'m> {
    /// The cell of the word, for what changes single bits of it.
    #[inline(always)]
    pub(crate) fn cell(self) -> &'m AtomicU32 {
        self.word
    }
}

impl Frame<'_> {
    /// The word now.
    #[inline]
    pub fn word(self) -> Word {
        Word(self.word.load(Ordering::Relaxed))
    }

    /// Overwrites the word. Only the holder of the page or of the zone's lock may.
    #[inline]
    pub fn set_word(self, word: Word) {
        self.word.store(word.0, Ordering::Relaxed);
    }

    /// Overwrites the word and returns what it held, in one atomic step: two frees of one page in
    /// the same instant cannot both find it allocated.
    #[inline]
    pub fn swap_word(self, word: Word) -> Word {
        Word(self.word.swap(word.0, Ordering::Relaxed))
    }

    /// Overwrites the word if it is `current`.
    pub(crate) fn replace_word(self, current: Word, word: Word) {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        // Whoever changed it meanwhile knows better.
        let _ = self.word.compare_exchange(current.0, word.0, order, failed);
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
        self.links[end as usize].load(Ordering::Relaxed)
    }

    /// Sets what [`link`](Self::link) returns.
    #[inline]
    pub fn set_link(self, end: ListEnd, number: u32) {
        self.links[end as usize].store(number, Ordering::Relaxed);
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

const PAGEBLOCKS: usize = SECTION_FRAMES >> PAGEBLOCK_ORDER.0;

/// Bit of a pageblock's byte: frames of several zones lie in it, so that no lock guards its type and it
/// stays movable.
const SHARED: u8 = 0x80;

/// The metadata of 128 MiB: a migratetype per pageblock, then the words of all frames, then their links.
#[repr(C, align(64))]
pub struct Section {
    pageblocks: [AtomicU8; PAGEBLOCKS],
    loose: [LooseMap; PAGEBLOCKS],
    words: [AtomicU32; SECTION_FRAMES],
    links: [[AtomicU32; 2]; SECTION_FRAMES],
}

const _: () = assert!(
    size_of::<Section>() == 128 + 128 * PAGEBLOCKS + 12 * SECTION_FRAMES,
    "12 bytes a frame, and a quarter of one for the maps"
);

/// Which pages of a pageblock are loose: free, and not merged yet (`buddy::loose`). Written under the lock of
/// the zone; a pageblock that zones share has none.
#[repr(C, align(128))]
pub struct LooseMap {
    bits: [AtomicU64; PAGEBLOCK_PAGES / 64],
    pages: AtomicU32,
    /// Next and previous pageblock on the list, by [`ListEnd`]; they mean something while there are pages.
    links: [AtomicU32; 2],
}

const PAGEBLOCK_PAGES: usize = 1 << PAGEBLOCK_ORDER.0;

impl LooseMap {
    /// Adds the page at `at` (modulo a pageblock); returns how many there are now.
    ///
    /// # Panics
    /// If it is there already: it was freed twice.
    #[inline]
    pub fn insert(&self, at: u32) -> u32 {
        let word = &self.bits[at as usize % PAGEBLOCK_PAGES / 64];
        let (before, bit) = (word.load(Ordering::Relaxed), 1 << (at % 64));
        assert!(before & bit == 0, "freed twice");
        word.store(before | bit, Ordering::Relaxed);
        let pages = self.len() + 1;
        self.pages.store(pages, Ordering::Relaxed);
        pages
    }

    /// Takes all pages out.
    pub fn clear(&self) {
        self.bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.pages.store(0, Ordering::Relaxed);
    }

    /// Takes out the first adjoining pages, at most `most` and not over a bound of 64; returns the first
    /// of them and how many.
    #[inline]
    pub fn take_run(&self, most: u32) -> Option<(u32, u32)> {
        let index = self.bits.iter().position(|word| word.load(Ordering::Relaxed) != 0)?;
        let bits = self.bits[index].load(Ordering::Relaxed);
        let first = bits.trailing_zeros();
        let run = (bits >> first).trailing_ones().min(most);
        let taken = if run == 64 { u64::MAX } else { ((1 << run) - 1) << first };
        self.bits[index].store(bits & !taken, Ordering::Relaxed);
        self.pages.store(self.len() - run, Ordering::Relaxed);
        Some((index as u32 * 64 + first, run))
    }

    /// How many pages there are.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty map is not listed, so nobody asks")]
    pub fn len(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    /// The pages, ascending.
    pub fn pages(&self) -> impl Iterator<Item = u32> + use<'_> {
        let is_in = |page: &u32| {
            self.bits[*page as usize / 64].load(Ordering::Relaxed) >> (page % 64) & 1 == 1
        };
        (0..PAGEBLOCK_PAGES as u32).filter(is_in)
    }

    /// As [`Frame::link`].
    #[inline]
    pub fn link(&self, end: ListEnd) -> u32 {
        self.links[end as usize].load(Ordering::Relaxed)
    }

    /// As [`Frame::set_link`].
    #[inline]
    pub fn set_link(&self, end: ListEnd, number: u32) {
        self.links[end as usize].store(number, Ordering::Relaxed);
    }
}

impl Section {
    /// The frame at `offset`, modulo the size of a section.
    #[inline(always)]
    fn frame(&self, offset: usize) -> Frame<'_> {
        let offset = offset % SECTION_FRAMES;
        Frame { word: &self.words[offset], links: &self.links[offset] }
    }

    /// The byte of the pageblock of the frame at `offset`, modulo the size of a section.
    #[inline(always)]
    fn pageblock_byte(&self, offset: u32) -> &AtomicU8 {
        &self.pageblocks[(offset as usize % SECTION_FRAMES) >> PAGEBLOCK_ORDER.0]
    }

    #[inline]
    fn pageblock(&self, offset: u32) -> Migratetype {
        let stored = self.pageblock_byte(offset).load(Ordering::Relaxed);
        Migratetype::from_bits(swap_first_two(stored) as u32)
    }

    #[inline]
    fn set_pageblock(&self, offset: u32, migratetype: Migratetype) {
        let pageblock = self.pageblock_byte(offset);
        debug_assert!(pageblock.load(Ordering::Relaxed) & SHARED == 0, "its type is nobody's");
        pageblock.store(swap_first_two(migratetype as u8), Ordering::Relaxed);
    }
}

/// A pageblock's migratetype as it is stored: movable and unmovable change places, so that a byte of
/// zero, untouched memory, is movable, as Linux starts every pageblock.
#[inline]
const fn swap_first_two(bits: u8) -> u8 {
    bits ^ 1
}

/// All sections of a machine by section number: the way from a PFN to its frame.
#[derive(Clone, Copy)]
pub struct SectionMap<'m> {
    first: u64,
    sections: &'m [Option<&'m Section>],
}

impl<'m> SectionMap<'m> {
    /// A map whose first entry is section number `first`; `None` where there is no memory.
    pub const fn new(first: u64, sections: &'m [Option<&'m Section>]) -> Self {
        Self { first, sections }
    }

    #[inline]
    fn section(&self, pfn: Pfn) -> Option<&'m Section> {
        let at = usize::try_from(pfn.section().wrapping_sub(self.first)).ok()?;
        *self.sections.get(at)?
    }

    #[inline]
    fn managed_section(&self, pfn: Pfn) -> &'m Section {
        self.section(pfn).expect("a managed frame has a section")
    }

    /// The frame of `pfn`, or `None` where no section covers it.
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Option<Frame<'m>> {
        Some(self.section(pfn)?.frame(pfn.section_offset()))
    }

    /// The migratetype of the pageblock of `pfn`.
    ///
    /// # Panics
    /// If no section covers `pfn`.
    #[inline]
    pub fn pageblock(&self, pfn: Pfn) -> Migratetype {
        self.managed_section(pfn).pageblock(pfn.section_offset() as u32)
    }

    /// Sets the migratetype of the pageblock of `pfn`. Only under the lock of its zone.
    ///
    /// # Panics
    /// If no section covers `pfn`.
    #[inline]
    pub fn set_pageblock(&self, pfn: Pfn, migratetype: Migratetype) {
        self.managed_section(pfn).set_pageblock(pfn.section_offset() as u32, migratetype);
    }
}

/// The frames of one zone by frame number: the distance from the beginning of the zone's first section. So a
/// number's low bits are those of its PFN, and its high bits say which section. 32 bits reach 16 TiB of 4 KiB
/// pages per zone.
#[derive(Clone, Copy)]
pub struct ZoneFrames<'m> {
    /// From the zone's first section on.
    sections: &'m [Option<&'m Section>],
    /// The first PFN of the first of them.
    base: Pfn,
    /// The zone, where words have it: saves a shift on the fast path.
    zone_bits: u32,
    first: u32,
}

impl<'m> ZoneFrames<'m> {
    /// The frames of `zone`, whose first PFN is `start`.
    pub fn new(map: SectionMap<'m>, start: Pfn, zone: ZoneIndex) -> Self {
        let first = usize::try_from(start.section().wrapping_sub(map.first)).ok();
        Self {
            sections: first.and_then(|first| map.sections.get(first..)).unwrap_or_default(),
            base: Pfn(start.section() << SECTION_SHIFT),
            zone_bits: (zone.0 as u32) << ZONE_SHIFT,
            first: start.section_offset() as u32,
        }
    }

    /// The number of the zone's first frame.
    #[inline]
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// The zone.
    #[inline]
    pub const fn zone(&self) -> ZoneIndex {
        ZoneIndex((self.zone_bits >> ZONE_SHIFT) as u16)
    }

    /// The PFN of frame `number`.
    #[inline]
    pub const fn pfn(&self, number: u32) -> Pfn {
        Pfn(self.base.0 + number as u64)
    }

    /// The number of `pfn`, which lies in this zone.
    #[inline]
    pub const fn number(&self, pfn: Pfn) -> u32 {
        (pfn.0 - self.base.0) as u32
    }

    /// [`Word::allocated`] of a block of this zone.
    #[inline(always)]
    pub const fn allocated(&self, order: Order, migratetype: Migratetype) -> Word {
        Word(Word::allocated(order, migratetype, ZoneIndex(0)).0 | self.zone_bits)
    }

    /// [`Word::cached`] of a block of this zone.
    #[inline(always)]
    pub const fn cached(&self, order: Order) -> Word {
        Word(Word::cached(order, ZoneIndex(0)).0 | self.zone_bits)
    }

    /// Whether `word` is that of the head of an allocated block of exactly `order` in this zone that nobody has
    /// locked or waits for.
    #[inline(always)]
    pub const fn is_allocated(&self, word: Word, order: Order) -> bool {
        let mask = HELD_MASK | ZONE_MASK;
        word.0 & mask == self.allocated(order, Migratetype::Unmovable).0
    }

    #[inline(always)]
    fn try_section(&self, number: u64) -> Option<&'m Section> {
        *self.sections.get(usize::try_from(number >> SECTION_SHIFT).ok()?)?
    }

    #[inline(always)]
    fn managed_section(&self, number: u32) -> &'m Section {
        self.try_section(number as u64).expect("a managed frame has a section")
    }

    /// Overwrites the words of frames with `word` and writes their PFNs to `out`, as far as both reach.
    ///
    /// # Panics
    /// As [`frame`](Self::frame).
    #[inline]
    pub fn hand_out_all(
        &self,
        numbers: impl IntoIterator<Item = u32>,
        word: Word,
        out: &mut [Pfn],
    ) {
        let mut here: Option<(u32, &Section)> = None;
        for (slot, number) in out.iter_mut().zip(numbers) {
            // Most frames lie in the section of the one before.
            let section = match here {
                Some((index, section)) if index == number >> SECTION_SHIFT => section,
                _ => self.managed_section(number),
            };
            here = Some((number >> SECTION_SHIFT, section));
            let cell = &section.words[number as usize % SECTION_FRAMES];
            debug_assert!(
                Word(cell.load(Ordering::Relaxed)).state() != FrameState::Allocated,
                "handed out twice"
            );
            cell.store(word.0, Ordering::Relaxed);
            *slot = self.pfn(number);
        }
    }

    /// Marks the 512 pages of the pageblock at frame `first` as cached, if each is allocated, of order 0, in this
    /// zone; returns whether.
    ///
    /// # Panics
    /// As [`frame`](Self::frame).
    pub fn take_back_pageblock(&self, first: u32) -> bool {
        let at = (first as usize % SECTION_FRAMES) & !(PAGEBLOCK_PAGES - 1);
        let words = &self.managed_section(first).words[at..at + PAGEBLOCK_PAGES];
        let is_ours =
            |cell: &AtomicU32| self.is_allocated(Word(cell.load(Ordering::Relaxed)), Order(0));
        if !words.iter().all(is_ours) {
            return false;
        }
        let cached = self.cached(Order(0)).0;
        words.iter().for_each(|cell| cell.store(cached, Ordering::Relaxed));
        true
    }

    /// Where `pfn` is, if a section covers it. Whether it is a frame of this zone at all, and so whether the
    /// number means anything, its word says.
    #[inline(always)]
    pub fn locate(&self, pfn: Pfn) -> Option<Located<'m>> {
        let distance = pfn.0.wrapping_sub(self.base.0);
        let section = self.try_section(distance)?;
        let number = distance as u32;
        Some(Located {
            frame: section.frame(number as usize),
            pageblock: section.pageblock_byte(number),
            number,
        })
    }

    /// Frame `number`, or `None` in a hole of the machine.
    #[inline]
    pub fn try_frame(&self, number: u32) -> Option<Frame<'m>> {
        Some(self.try_section(number as u64)?.frame(number as usize))
    }

    /// Frame `number`.
    ///
    /// # Panics
    /// If no section covers it: numbers on lists always have a section.
    #[inline]
    pub fn frame(&self, number: u32) -> Frame<'m> {
        self.try_frame(number).expect("a listed frame has a section")
    }

    /// The section of frame `number`, and the frame's offset in it.
    ///
    /// # Panics
    /// If no section covers the frame.
    #[inline]
    pub fn section(&self, number: u32) -> (SectionFrames<'m>, u32) {
        let offset = number % SECTION_FRAMES as u32;
        let section = self.managed_section(number);
        (SectionFrames { section, first: number - offset }, offset)
    }

    /// The migratetype of the pageblock of frame `number`.
    #[inline]
    pub fn pageblock(&self, number: u32) -> Migratetype {
        self.managed_section(number).pageblock(number)
    }

    /// Sets the migratetype of the pageblock of frame `number`, which is not shared.
    #[inline]
    pub fn set_pageblock(&self, number: u32, migratetype: Migratetype) {
        self.managed_section(number).set_pageblock(number, migratetype);
    }

    /// Notes that the pageblock of frame `number`, which is movable, holds frames of other zones too.
    pub fn share_pageblock(&self, number: u32) {
        let section = self.managed_section(number);
        section.pageblock_byte(number).fetch_or(SHARED, Ordering::Relaxed);
    }

    /// Whether the pageblock of frame `number` holds frames of other zones too: its type must not change.
    pub fn is_pageblock_shared(&self, number: u32) -> bool {
        let section = self.managed_section(number);
        section.pageblock_byte(number).load(Ordering::Relaxed) & SHARED != 0
    }
}

/// What a free needs to know of a page, from one look at its section.
#[derive(Clone, Copy)]
pub struct Located<'m> {
    /// The frame.
    pub frame: Frame<'m>,
    pageblock: &'m AtomicU8,
    /// The number within the zone.
    pub number: u32,
}

impl Located<'_> {
    /// Whether the pageblock is movable and not shared, as most are: a comparison with zero.
    #[inline(always)]
    pub fn is_movable(&self) -> bool {
        self.pageblock.load(Ordering::Relaxed) == swap_first_two(Migratetype::Movable as u8)
    }

    /// The migratetype of the pageblock.
    #[inline]
    pub fn pageblock(&self) -> Migratetype {
        Migratetype::from_bits(swap_first_two(self.pageblock.load(Ordering::Relaxed)) as u32)
    }
}

/// The frames of one section by their offset, 0 to 32767. A block and its buddies of every order lie
/// in one section and have the same low bits there as in their PFN, so that merging looks a section
/// up once.
#[derive(Clone, Copy)]
pub struct SectionFrames<'m> {
    section: &'m Section,
    /// Number of the section's first frame within the zone; wraps where the section starts earlier.
    first: u32,
}

const _: () = assert!((crate::units::MAX_ORDER.0 as u32) < SECTION_SHIFT);

impl<'m> SectionFrames<'m> {
    /// The frame at `offset`, modulo the size of a section. It may belong to another zone.
    #[inline]
    pub fn frame(&self, offset: u32) -> Frame<'m> {
        self.section.frame(offset as usize)
    }

    /// The number within the zone of the frame at `offset`.
    #[inline]
    pub const fn number(&self, offset: u32) -> u32 {
        self.first.wrapping_add(offset)
    }

    /// The migratetype of the pageblock that holds the frame at `offset`.
    #[inline]
    pub fn pageblock(&self, offset: u32) -> Migratetype {
        self.section.pageblock(offset)
    }

    /// Whether frames of several zones lie in the pageblock that holds the frame at `offset`.
    #[inline]
    pub fn is_pageblock_shared(&self, offset: u32) -> bool {
        let byte = self.section.pageblock_byte(offset);
        byte.load(Ordering::Relaxed) & SHARED != 0
    }

    /// The map of loose pages of the pageblock that holds the frame at `offset`.
    #[inline]
    pub fn loose(&self, offset: u32) -> &'m LooseMap {
        &self.section.loose[offset as usize % SECTION_FRAMES / PAGEBLOCK_PAGES]
    }

    /// Sets the migratetype of the pageblock that holds the frame at `offset`.
    #[inline]
    pub fn set_pageblock(&self, offset: u32, migratetype: Migratetype) {
        self.section.set_pageblock(offset, migratetype);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All states, orders, types and a few zones: 5 × 11 × 5 × 4 words.
    #[test]
    fn words_hold_what_they_were_made_of() {
        for zone in [0, 1, 4095, u16::MAX].map(ZoneIndex) {
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
        assert_eq!(Word::BLANK.state(), FrameState::Blank);
        assert!(
            !Word::BLANK.is_allocated(Order(0)) && !Word::BLANK.is_free(Order(0), ZoneIndex(0))
        );
    }

    #[test]
    fn zero_is_a_movable_pageblock() {
        assert_eq!(swap_first_two(0), Migratetype::Movable as u8);
        for migratetype in Migratetype::ALL {
            let stored = swap_first_two(migratetype as u8);
            assert_eq!(Migratetype::from_bits(swap_first_two(stored) as u32), migratetype);
        }
    }

    #[test]
    fn shared_pageblocks_are_movable() {
        let sections = crate::testing::sections::Sections::new(1, |_| false);
        let table = sections.table();
        let frames = ZoneFrames::new(table.map(), Pfn(700), ZoneIndex(0));
        frames.share_pageblock(700);
        assert!(frames.is_pageblock_shared(1023) && !frames.is_pageblock_shared(1024));
        assert_eq!(frames.pageblock(700), Migratetype::Movable);
    }

    #[test]
    fn frames_are_found_by_number_and_by_offset() {
        let sections = crate::testing::sections::Sections::new(4, |at| at == 2);
        let table = sections.table();
        let section = SECTION_FRAMES as u32;
        // The zone starts in section 1; section 2 is a hole.
        let start = Pfn(2 * section as u64 - 10);
        let frames = ZoneFrames::new(table.map(), start, ZoneIndex(0));
        assert_eq!(frames.number(start), section - 10);
        assert!(frames.try_frame(section - 1).is_some() && frames.try_frame(section).is_none());
        assert!(frames.locate(Pfn(section as u64 - 1)).is_none(), "before the zone's section");
        for number in [section - 10, section - 1, 2 * section, 3 * section - 1] {
            let located = frames.locate(frames.pfn(number)).unwrap();
            assert_eq!(located.number, number);
            assert!(core::ptr::eq(located.frame.word, frames.frame(number).word));
            let (home, at) = frames.section(number);
            assert_eq!(home.number(at), number);
            assert!(core::ptr::eq(home.frame(at).word, frames.frame(number).word));
            assert_eq!(at % 512, frames.pfn(number).0 as u32 % 512);
            home.set_pageblock(at, Migratetype::Isolate);
            assert_eq!(frames.pageblock(number), Migratetype::Isolate);
        }
    }
}
