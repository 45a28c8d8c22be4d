//! Where the metadata of frames lies, and the ways to it.
//!
//! Memory comes in sections of 128 MiB that may be there or not. Adjoining sections whose metadata lies with the
//! same node are a **run**: their words are one array, and so are the bytes and the maps of their
//! pageblocks. A zone keeps the part of a run that begins with its first section; numbers in it are found by one
//! comparison and one addition. Beyond it (holes, nodes that share a section) the table of sections is asked.

use super::owners::OwnedBlock;
use super::per_pageblock::{MapWords, OwnerEntry};
use super::{
    Frame, FrameState, HELD_MASK, LINKS_OF_EACH, Migratetype, NO_FRAME, Word, WordCell, ZONE_MASK,
    ZONE_SHIFT,
};
use crate::places::map::Map;
use crate::sync::{AtomicU8, AtomicU32, Ordering};
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn, SECTION_FRAMES, SECTION_SHIFT, ZoneIndex};

/// Pageblocks of a section.
pub(crate) const PAGEBLOCKS: usize = SECTION_FRAMES >> PAGEBLOCK_ORDER.0;
const PAGEBLOCK_PAGES: usize = 1 << PAGEBLOCK_ORDER.0;

/// Bit of a pageblock's byte: frames of several zones lie in it, so that no lock guards its type and it
/// stays movable.
const SHARED: u8 = 0x80;
/// Where the byte of an isolated pageblock keeps the type that it had.
const BEFORE_SHIFT: u32 = 4;

/// What links the frames and the pageblocks of 128 MiB to lists: only who holds the zone's lock looks at it. There is none
/// where neither zones nor pagesets link frames.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SectionLists {
    listed: [OwnerEntry; PAGEBLOCKS],
    links: [[AtomicU32; 2]; SECTION_FRAMES],
}

const _: () = assert!(
    // Miri's sections are so small that their alignment adds to them.
    cfg!(miri)
        || size_of::<SectionLists>()
            + (size_of::<MapWords>() + 1) * PAGEBLOCKS
            + 4 * SECTION_FRAMES
            == 77 * PAGEBLOCKS + 12 * SECTION_FRAMES,
    "4 bytes a frame and 65 a pageblock, and 8 and 12 of links"
);

/// The metadata of adjoining sections, each part in one array.
#[derive(Clone, Copy, Debug)]
pub struct SectionRun<'m> {
    /// Number of the first section.
    pub first: u64,
    /// Words of the frames.
    pub words: &'m [[AtomicU32; SECTION_FRAMES]],
    /// Bytes of the pageblocks.
    pub pageblocks: &'m [[AtomicU8; PAGEBLOCKS]],
    /// Their maps of free pages.
    pub maps: &'m [[MapWords; PAGEBLOCKS]],
    /// The links; none, or those of each section.
    pub lists: &'m [SectionLists],
}

impl<'m> SectionRun<'m> {
    /// Enters the sections into a table whose first entry is for section number `first`.
    ///
    /// # Panics
    /// If the table does not reach as far as the run.
    pub fn enter(&self, first: u64, table: &mut [Option<Section<'m>>]) {
        let entries = &mut table[(self.first - first) as usize..][..self.words.len()];
        let parts = self.words.iter().zip(self.pageblocks).zip(self.maps).enumerate();
        for (entry, (at, ((words, pageblocks), maps))) in entries.iter_mut().zip(parts) {
            *entry = Some(Section { words, pageblocks, maps, lists: self.lists.get(at) });
        }
    }

    /// What there is from section number `first` on.
    fn from(&self, first: u64) -> Option<Self> {
        let skipped = usize::try_from(first.checked_sub(self.first)?).ok()?;
        let words = self.words.get(skipped..).filter(|words| !words.is_empty())?;
        let (pageblocks, maps) = (self.pageblocks.get(skipped..)?, self.maps.get(skipped..)?);
        let lists = self.lists.get(skipped..).unwrap_or_default();
        Some(Self { first, words, pageblocks, maps, lists })
    }
}

/// The metadata of one section, wherever its parts lie.
#[derive(Clone, Copy, Debug)]
pub struct Section<'m> {
    lists: Option<&'m SectionLists>,
    pageblocks: &'m [AtomicU8; PAGEBLOCKS],
    maps: &'m [MapWords; PAGEBLOCKS],
    words: &'m [AtomicU32; SECTION_FRAMES],
}

impl<'m> Section<'m> {
    /// The frame at `offset`, modulo the size of a section.
    #[inline(always)]
    fn frame(self, offset: usize) -> Frame<'m> {
        let offset = offset % SECTION_FRAMES;
        let links = self.lists.map(|lists| &lists.links[offset]);
        Frame { word: WordCell(&self.words[offset]), links }
    }

    /// The byte of the pageblock of the frame at `offset`, modulo the size of a section.
    #[inline(always)]
    fn pageblock_byte(self, offset: u32) -> &'m AtomicU8 {
        &self.pageblocks[pageblock_at(offset)]
    }

    #[inline]
    fn pageblock(self, offset: u32) -> Migratetype {
        PageblockByte(self.pageblock_byte(offset).load(Ordering::Relaxed)).migratetype()
    }

    #[inline]
    fn set_pageblock(self, offset: u32, migratetype: Migratetype) {
        let pageblock = self.pageblock_byte(offset);
        debug_assert!(pageblock.load(Ordering::Relaxed) & SHARED == 0, "its type is nobody's");
        pageblock.store(swap_first_two(migratetype as u8), Ordering::Relaxed);
    }

    /// Makes a pageblock [`Migratetype::Isolate`]; the byte keeps the type that it had.
    fn isolate_pageblock(self, offset: u32) {
        let before = self.pageblock(offset) as u8;
        let byte = swap_first_two(Migratetype::Isolate as u8) | before << BEFORE_SHIFT;
        self.pageblock_byte(offset).store(byte, Ordering::Relaxed);
    }
}

/// Which pageblock of its section the frame at `offset` lies in.
#[inline(always)]
const fn pageblock_at(offset: u32) -> usize {
    (offset as usize % SECTION_FRAMES) >> PAGEBLOCK_ORDER.0
}

/// A pageblock's migratetype as it is stored: movable and unmovable change places, so that a byte of
/// zero, untouched memory, is movable, as Linux starts every pageblock.
#[inline]
const fn swap_first_two(bits: u8) -> u8 {
    bits ^ 1
}

/// What is stored of a pageblock: its migratetype, and whether it is shared or was isolated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageblockByte(u8);

impl PageblockByte {
    #[inline]
    fn migratetype(self) -> Migratetype {
        Migratetype::from_bits(swap_first_two(self.0) as u32)
    }
}

/// All sections of a machine by section number: the way from a PFN to its frame.
#[derive(Clone, Copy, Debug)]
pub struct SectionMap<'m> {
    first: u64,
    runs: &'m [SectionRun<'m>],
    sections: &'m [Option<Section<'m>>],
}

impl<'m> SectionMap<'m> {
    /// A map of `runs`, with a `table` of their sections ([`SectionRun::enter`]) whose first entry is for section
    /// number `first`.
    pub const fn new(
        first: u64,
        runs: &'m [SectionRun<'m>],
        table: &'m [Option<Section<'m>>],
    ) -> Self {
        Self { first, runs, sections: table }
    }

    #[inline]
    fn section(&self, pfn: Pfn) -> Option<Section<'m>> {
        let at = usize::try_from(pfn.section().wrapping_sub(self.first)).ok()?;
        *self.sections.get(at)?
    }

    #[inline]
    fn managed_section(&self, pfn: Pfn) -> Section<'m> {
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
}

/// The frames of one zone by frame number: the distance from the beginning of the zone's first section. So a
/// number's low bits are those of its PFN, and its high bits say which section. 32 bits reach 16 TiB of 4 KiB
/// pages per zone.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZoneFrames<'m> {
    /// The first PFN of the zone's first section.
    base: Pfn,
    /// The words from there on, to the first hole or to where another node's metadata begins.
    words: &'m [AtomicU32],
    /// The bytes of the same pageblocks.
    pageblocks: &'m [AtomicU8],
    /// The zone, where words have it: saves a shift on the fast path.
    zone_bits: u32,
    first: u32,
    /// The maps of the same pageblocks.
    maps: &'m [MapWords],
    /// From the zone's first section on.
    sections: &'m [Option<Section<'m>>],
}

impl core::fmt::Debug for ZoneFrames<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ZoneFrames")
            .field("zone", &self.zone())
            .field("first", &self.pfn(self.first))
            .finish_non_exhaustive()
    }
}

impl<'m> ZoneFrames<'m> {
    /// The frames of `zone`, whose first PFN is `start`.
    pub(crate) fn new(map: SectionMap<'m>, start: Pfn, zone: ZoneIndex) -> Self {
        let first = usize::try_from(start.section().wrapping_sub(map.first)).ok();
        let run = map.runs.iter().find_map(|run| run.from(start.section()));
        let words = run.map_or(&[][..], |run| run.words.as_flattened());
        let pageblocks = run.map_or(&[][..], |run| run.pageblocks.as_flattened());
        let maps = run.map_or(&[][..], |run| run.maps.as_flattened());
        // What is no frame's number stays beyond the end: `near_word`.
        let words = words.get(..NO_FRAME as usize - 1).unwrap_or(words);
        Self {
            base: Pfn(start.section() << SECTION_SHIFT),
            words,
            pageblocks,
            maps,
            zone_bits: (zone.0 as u32) << ZONE_SHIFT,
            first: start.section_offset() as u32,
            sections: first.and_then(|first| map.sections.get(first..)).unwrap_or_default(),
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
    pub(crate) const fn allocated(&self, order: Order, migratetype: Migratetype) -> Word {
        Word(Word::allocated(order, migratetype, ZoneIndex(0)).0 | self.zone_bits)
    }

    /// [`Word::cached`] of a block of this zone.
    #[inline(always)]
    pub(crate) const fn cached(&self, order: Order) -> Word {
        Word(Word::cached(order, ZoneIndex(0)).0 | self.zone_bits)
    }

    /// Whether `word` is that of the head of an allocated block of exactly `order` in this zone that nobody has
    /// locked or waits for.
    #[inline(always)]
    pub(crate) const fn is_allocated(&self, word: Word, order: Order) -> bool {
        let mask = HELD_MASK | ZONE_MASK;
        word.0 & mask == self.allocated(order, Migratetype::Unmovable).0
    }

    #[inline(always)]
    fn try_section(&self, number: u64) -> Option<Section<'m>> {
        *self.sections.get(usize::try_from(number >> SECTION_SHIFT).ok()?)?
    }

    #[inline(always)]
    fn managed_section(&self, number: u32) -> Section<'m> {
        self.try_section(number as u64).expect("a managed frame has a section")
    }

    /// Overwrites the words of frames with `word` and writes their PFNs to `out`, as far as both reach.
    ///
    /// # Panics
    /// As [`frame`](Self::frame).
    #[inline(always)]
    pub(crate) fn hand_out_all(
        &self,
        numbers: impl IntoIterator<Item = u32>,
        word: Word,
        out: &mut [Pfn],
    ) {
        // Loaded once: the compiler cannot tell that writing words leaves them as they are.
        let (base, words) = (self.base.0, self.words);
        for (slot, number) in out.iter_mut().zip(numbers) {
            let near = words.get(number as usize).map(WordCell);
            let cell = near.unwrap_or_else(|| self.word_beyond(number));
            debug_assert!(cell.get().state() != FrameState::Allocated, "handed out twice");
            cell.set(word);
            *slot = Pfn(base + number as u64);
        }
    }

    /// Marks the 512 pages of the pageblock at frame `first` as cached, if each is allocated, of order 0, in this
    /// zone; returns whether.
    ///
    /// # Panics
    /// As [`frame`](Self::frame).
    pub(crate) fn take_back_pageblock(&self, first: u32) -> bool {
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

    /// The word and the number of `pfn`, if it lies in the zone's first sections, up to a hole. Whether it is a
    /// frame of this zone at all, and so whether the number means anything, its word says.
    #[inline(always)]
    pub(crate) fn locate(&self, pfn: Pfn) -> Option<(WordCell<'m>, u32)> {
        let distance = usize::try_from(pfn.0.wrapping_sub(self.base.0)).ok()?;
        Some((WordCell(self.words.get(distance)?), distance as u32))
    }

    /// The word of frame `number`, if it lies in the zone's first sections, up to a hole. The two largest
    /// numbers never do.
    #[inline(always)]
    pub(crate) fn near_word(&self, number: u32) -> Option<WordCell<'m>> {
        self.words.get(number as usize).map(WordCell)
    }

    /// The word of frame `number`.
    ///
    /// # Panics
    /// As [`frame`](Self::frame).
    #[inline(always)]
    pub(crate) fn word(&self, number: u32) -> WordCell<'m> {
        self.near_word(number).unwrap_or_else(|| self.word_beyond(number))
    }

    #[cold]
    #[inline(never)]
    fn word_beyond(&self, number: u32) -> WordCell<'m> {
        self.frame(number).word
    }

    /// Frame `number`, or `None` in a hole of the machine.
    #[inline]
    pub(crate) fn try_frame(&self, number: u32) -> Option<Frame<'m>> {
        Some(self.try_section(number as u64)?.frame(number as usize))
    }

    /// Frame `number`.
    ///
    /// # Panics
    /// If no section covers it: numbers on lists always have a section.
    #[inline]
    pub(crate) fn frame(&self, number: u32) -> Frame<'m> {
        self.try_frame(number).expect("a listed frame has a section")
    }

    /// The section of frame `number`, and the frame's offset in it.
    ///
    /// # Panics
    /// If no section covers the frame.
    #[inline]
    pub(crate) fn section(&self, number: u32) -> (SectionFrames<'m>, u32) {
        let offset = number % SECTION_FRAMES as u32;
        let section = self.managed_section(number);
        (SectionFrames { section, first: number - offset }, offset)
    }

    /// What is stored of the pageblock of frame `number`.
    ///
    /// # Panics
    /// If no section covers the frame.
    #[inline(always)]
    pub(crate) fn pageblock_byte(&self, number: u32) -> PageblockByte {
        match self.pageblocks.get((number >> PAGEBLOCK_ORDER.0) as usize) {
            Some(byte) => PageblockByte(byte.load(Ordering::Relaxed)),
            None => self.pageblock_byte_beyond(number),
        }
    }

    /// The map of free pages of the pageblock of frame `number`.
    ///
    /// # Panics
    /// As [`pageblock_byte`](Self::pageblock_byte).
    #[inline(always)]
    pub(crate) fn map(&self, number: u32) -> Map<'m> {
        match self.maps.get((number >> PAGEBLOCK_ORDER.0) as usize) {
            Some(map) => Map(&map.0),
            None => self.map_beyond(number),
        }
    }

    #[cold]
    #[inline(never)]
    fn map_beyond(&self, number: u32) -> Map<'m> {
        Map(&self.managed_section(number).maps[pageblock_at(number)].0)
    }

    /// The map of a frame's pageblock, if a section covers the frame.
    pub(crate) fn try_map(&self, number: u32) -> Option<Map<'m>> {
        Some(Map(&self.try_section(number.into())?.maps[pageblock_at(number)].0))
    }

    /// What is known of the owner of the pageblock of frame `number`.
    ///
    /// # Panics
    /// If no section covers the frame.
    #[inline]
    pub(crate) fn owned(&self, number: u32) -> OwnedBlock<'m> {
        OwnedBlock::new(self.pageblock_entry(number))
    }

    /// What is kept of the pageblock of frame `number` beside its map.
    #[inline]
    pub(super) fn pageblock_entry(&self, number: u32) -> &'m OwnerEntry {
        let lists = self.managed_section(number).lists.expect(LINKS_OF_EACH);
        &lists.listed[pageblock_at(number)]
    }

    #[cold]
    #[inline(never)]
    fn pageblock_byte_beyond(&self, number: u32) -> PageblockByte {
        let byte = self.managed_section(number).pageblock_byte(number);
        PageblockByte(byte.load(Ordering::Relaxed))
    }

    /// The migratetype of the pageblock of frame `number`.
    #[inline]
    pub fn pageblock(&self, number: u32) -> Migratetype {
        self.pageblock_byte(number).migratetype()
    }

    /// Sets the migratetype of the pageblock of frame `number`, which is not shared.
    #[inline]
    pub(crate) fn set_pageblock(&self, number: u32, migratetype: Migratetype) {
        self.managed_section(number).set_pageblock(number, migratetype);
    }

    /// Gives the pageblock of frame `number` another type than `before`, unless it has another one by now: it is about to go.
    /// Returns whether it did.
    pub(crate) fn change_pageblock(
        &self,
        number: u32,
        before: Migratetype,
        now: Migratetype,
    ) -> bool {
        let byte = self.managed_section(number).pageblock_byte(number);
        let [before, now] = [before, now].map(|of| swap_first_two(of as u8));
        byte.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes the pageblock of frame `number`, which is not shared, [`Migratetype::Isolate`].
    pub(crate) fn isolate_pageblock(&self, number: u32) {
        self.managed_section(number).isolate_pageblock(number);
    }

    /// The type that the pageblock of frame `number` had before it was isolated.
    pub(crate) fn type_before_isolation(&self, number: u32) -> Migratetype {
        let byte = self.managed_section(number).pageblock_byte(number).load(Ordering::Relaxed);
        Migratetype::from_bits((byte >> BEFORE_SHIFT) as u32)
    }

    /// Notes that the pageblock of frame `number`, which is movable, holds frames of other zones too.
    pub(crate) fn share_pageblock(&self, number: u32) {
        let section = self.managed_section(number);
        section.pageblock_byte(number).fetch_or(SHARED, Ordering::Relaxed);
    }

    /// Whether the pageblock of frame `number` holds frames of other zones too: its type must not change.
    pub(crate) fn is_pageblock_shared(&self, number: u32) -> bool {
        self.pageblock_byte(number).0 & SHARED != 0
    }
}

/// The frames of one section by their offset, 0 to 32767. A block and its buddies of every order lie
/// in one section and have the same low bits there as in their PFN, so that merging looks a section
/// up once.
#[derive(Clone, Copy)]
pub struct SectionFrames<'m> {
    section: Section<'m>,
    /// Number of the section's first frame within the zone; wraps where the section starts earlier.
    first: u32,
}

const _: () = assert!((crate::units::MAX_ORDER.0 as u32) < SECTION_SHIFT);

impl<'m> SectionFrames<'m> {
    /// The frame at `offset`, modulo the size of a section. It may belong to another zone.
    #[inline]
    pub(crate) fn frame(&self, offset: u32) -> Frame<'m> {
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

    /// Sets the migratetype of the pageblock that holds the frame at `offset`.
    #[inline]
    pub(crate) fn set_pageblock(&self, offset: u32, migratetype: Migratetype) {
        self.section.set_pageblock(offset, migratetype);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let frames = table.frames(Pfn(700), ZoneIndex(0));
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
        let frames = table.frames(start, ZoneIndex(0));
        assert_eq!(frames.number(start), section - 10);
        assert!(frames.try_frame(section - 1).is_some() && frames.try_frame(section).is_none());
        assert!(frames.locate(Pfn(section as u64 - 1)).is_none(), "before the zone's section");
        for number in [section - 10, section - 1, 2 * section, 3 * section - 1] {
            let located = frames.locate(frames.pfn(number));
            assert_eq!(located.is_some(), number < section, "beyond the hole the table is asked");
            assert!(located.is_none_or(|(word, at)| {
                at == number && core::ptr::eq(word.0, frames.frame(number).word.0)
            }));
            assert!(core::ptr::eq(frames.word(number).0, frames.frame(number).word.0));
            let (home, at) = frames.section(number);
            assert_eq!(home.number(at), number);
            assert!(core::ptr::eq(home.frame(at).word.0, frames.frame(number).word.0));
            assert_eq!(at % 512, frames.pfn(number).0 as u32 % 512);
            home.set_pageblock(at, Migratetype::Isolate);
            assert_eq!(frames.pageblock(number), Migratetype::Isolate);
        }
    }
}
