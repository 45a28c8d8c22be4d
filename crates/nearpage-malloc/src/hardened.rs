//! The slow, careful way: a bit for each 16 bytes tells whether an object begins there and is allocated.
//!
//! A free clears the bit by an exchange, so of two frees one finds it cleared, whichever threads make them.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::boot::map_table;
use crate::misuse::{self, MisuseKind};
use crate::span::{self, Kind, UNIT_SHIFT};

/// Words of a unit's bits.
const WORDS: usize = (1 << UNIT_SHIFT) / 16 / 64;

static BITS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Makes the bits. Without memory for them only foreign and inner pointers are noticed.
pub(crate) fn make_table() {
    if let Some(bits) = map_table(span::units_in_all() * WORDS * 8) {
        BITS.store(bits.as_ptr().cast(), Ordering::Release);
    }
}

fn bit(address: usize) -> Option<(*mut AtomicU64, u64)> {
    let bits = BITS.load(Ordering::Acquire);
    if bits.is_null() || span::unit_of(address).is_none() {
        return None;
    }
    let at = (address - span::start()) / 16;
    Some((bits.wrapping_add(at / 64), 1 << (at % 64)))
}

/// Notes that an object is allocated.
pub(crate) fn note(address: usize) {
    if let Some((word, bit)) = bit(address) {
        // SAFETY: the address is of the memory, and there is a word for each of its units.
        unsafe { (*word).fetch_or(bit, Ordering::Relaxed) };
    }
}

/// Whether `address` may be freed; reports why not. Then nobody else may free it.
pub(crate) fn may_free(address: usize, found_by: &'static str) -> bool {
    check(address, found_by, |word, bit| word.fetch_and(!bit, Ordering::Relaxed))
}

/// Whether something is allocated at `address`; reports if not.
pub(crate) fn is_allocated(address: usize, found_by: &'static str) -> bool {
    check(address, found_by, |word, _| word.load(Ordering::Relaxed))
}

fn check(
    address: usize,
    found_by: &'static str,
    look: impl FnOnce(&AtomicU64, u64) -> u64,
) -> bool {
    let Some(unit) = span::unit_of(address).and_then(span::first_unit) else {
        misuse::report(MisuseKind::Foreign, address, 0, found_by);
        return false;
    };
    // SAFETY: something is allocated in the span, or was: its descriptor does not change.
    let (kind, start, size) = unsafe {
        let span = &*span::span(unit);
        (span.kind, span.start.addr(), span.size as usize)
    };
    let offset = address - start;
    // Spans are shorter than 4 GiB, and a division of 32 bits takes a third of one of 64.
    let is_multiple = || (offset as u32).is_multiple_of(size as u32);
    let is_start = if kind == Kind::Large { offset == 0 } else { is_multiple() };
    if !is_start {
        misuse::report(MisuseKind::InnerPointer, address, size, found_by);
        return false;
    }
    let Some((word, bit)) = bit(address) else { return true };
    // SAFETY: as in `note`.
    if look(unsafe { &*word }, bit) & bit == 0 {
        misuse::report(MisuseKind::DoubleFree, address, size, found_by);
        return false;
    }
    true
}
