//! Frames for tests: sections of zeroes on the heap.

use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

use crate::frame::{Section, SectionMap};

/// Owned sections of a small machine, untouched.
pub struct Sections {
    sections: Vec<Option<Box<Section>>>,
}

/// The table that a [`SectionMap`] borrows.
pub struct SectionTable<'m>(Vec<Option<&'m Section>>);

impl Sections {
    /// Sections 0 to `count - 1`; those for which `is_hole` holds are missing.
    pub fn new(count: usize, is_hole: impl Fn(usize) -> bool) -> Sections {
        let sections = (0..count).map(|at| (!is_hole(at)).then(zeroed)).collect();
        Sections { sections }
    }

    /// The table of these sections.
    pub fn table(&self) -> SectionTable<'_> {
        SectionTable(self.sections.iter().map(Option::as_deref).collect())
    }
}

impl SectionTable<'_> {
    /// The map of these sections.
    pub fn map(&self) -> SectionMap<'_> {
        SectionMap::new(0, &self.0)
    }
}

#[allow(unsafe_code)]
fn zeroed() -> Box<Section> {
    // SAFETY: a section is an array of 8-bit and one of 32-bit atomics, and every bit pattern of those
    // is a value. On the stack it would be half a megabyte, and its memory resident at once.
    unsafe { Box::new_zeroed().assume_init() }
}
