//! Frames for tests: sections of zeroes on the heap.

use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

use crate::arena::AnyBytes;
use crate::frame::section::PAGEBLOCKS;
use crate::frame::{MapWords, Section, SectionLists, SectionMap, SectionRun, ZoneFrames};
use crate::sync::{AtomicU8, AtomicU32};
use crate::units::{Pfn, SECTION_FRAMES, ZoneIndex};

/// Owned sections of a small machine, untouched.
#[derive(Debug)]
pub struct Sections {
    runs: Vec<OwnedRun>,
    count: usize,
}

#[derive(Debug)]
struct OwnedRun {
    first: usize,
    words: Box<[[AtomicU32; SECTION_FRAMES]]>,
    pageblocks: Box<[[AtomicU8; PAGEBLOCKS]]>,
    maps: Box<[[MapWords; PAGEBLOCKS]]>,
    lists: Box<[SectionLists]>,
}

/// What a [`SectionMap`] borrows.
#[derive(Debug)]
pub struct SectionTable<'m> {
    runs: Vec<SectionRun<'m>>,
    table: Vec<Option<Section<'m>>>,
}

impl Sections {
    /// Sections 0 to `count - 1`; those for which `is_hole` holds are missing.
    pub fn new(count: usize, is_hole: impl Fn(usize) -> bool) -> Sections {
        let mut runs = Vec::new();
        let mut first = 0;
        while first < count {
            let end = (first..count).find(|&at| is_hole(at)).unwrap_or(count);
            let (words, pageblocks) = (zeroed(end - first), zeroed(end - first));
            let (maps, lists) = (zeroed(end - first), zeroed(end - first));
            runs.push(OwnedRun { first, words, pageblocks, maps, lists });
            first = end + 1;
        }
        Sections { runs, count }
    }

    /// The table of these sections.
    pub fn table(&self) -> SectionTable<'_> {
        let runs: Vec<_> = self.runs.iter().map(OwnedRun::parts).collect();
        let mut table = std_alloc::vec![None; self.count];
        runs.iter().for_each(|run| run.enter(0, &mut table));
        SectionTable { runs, table }
    }
}

impl OwnedRun {
    fn parts(&self) -> SectionRun<'_> {
        SectionRun {
            first: self.first as u64,
            words: &self.words,
            pageblocks: &self.pageblocks,
            maps: &self.maps,
            lists: &self.lists,
        }
    }
}

impl SectionTable<'_> {
    /// The frames of a zone that begins at frame `start`.
    pub fn frames(&self, start: Pfn, zone: ZoneIndex) -> ZoneFrames<'_> {
        ZoneFrames::new(self.map(), start, zone)
    }

    /// The map of these sections.
    pub(crate) fn map(&self) -> SectionMap<'_> {
        SectionMap::new(0, &self.runs, &self.table)
    }
}

#[allow(unsafe_code)]
fn zeroed<T: AnyBytes>(count: usize) -> Box<[T]> {
    // SAFETY: any bytes are a `T`. On the stack it would be half a megabyte, and its memory resident at once.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}
