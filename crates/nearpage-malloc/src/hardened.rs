//! The careful way: a byte for each 16 bytes of memory tells whether an object begins there, and who has it ([`mark`]).
//!
//! So a look at one byte finds a second free, and an address inside of an object, which has no byte of its own.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::boot::map_table;
use crate::mark;
use crate::misuse::{self, MisuseKind};
use crate::span::{self, Kind, UNIT_SHIFT};

/// Bytes of a unit.
const BYTES: usize = (1 << UNIT_SHIFT) / 16;

static STATES: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

/// Makes the bytes. Without memory for them only foreign and inner pointers are noticed.
pub(crate) fn make_table() {
    if let Some(states) = map_table(span::units_in_all() * BYTES) {
        STATES.store(states.as_ptr().cast(), Ordering::Release);
    }
}

/// The byte of an address of the memory; `None` without a table.
#[inline(always)]
fn state(address: usize) -> Option<&'static AtomicU8> {
    let states = STATES.load(Ordering::Relaxed);
    // SAFETY: there is a byte for each 16 of the memory, and the table is never given back.
    (!states.is_null()).then(|| unsafe { &*states.add((address - span::start()) >> 4) })
}

/// An object is handed out, by the thread whose heap owns it. `false`, and nothing changes, if it is not free.
#[inline(always)]
pub(crate) fn hand_out(address: usize) -> bool {
    state(address).is_some_and(mark::hand_out)
}

/// The same, which reports what is not free; without a table all is.
pub(crate) fn hand_out_or_report(address: usize, size: usize) {
    if !hand_out(address)
        && let Some(state) = state(address)
    {
        misuse::report(MisuseKind::DoubleFree, address, size, "malloc");
        mark::hand_out_anyhow(state);
    }
}

/// An object is freed by the thread whose heap owns it. `false`, and nothing changes, if it may not be.
#[inline(always)]
pub(crate) fn free_here(address: usize) -> bool {
    address.is_multiple_of(16) && state(address).is_some_and(mark::free_here)
}

/// The same, which reports why not; without a table inner pointers alone are told.
pub(crate) fn free_here_or_report(address: usize) -> bool {
    free_here(address) || is_accepted(address, "free")
}

/// An object is freed by another thread. `false` if it may not be, which is reported.
pub(crate) fn free_away(address: usize) -> bool {
    free_by(address, mark::free_away)
}

/// A large block is freed. `false` if it may not be, which is reported.
pub(crate) fn free_large(address: usize) -> bool {
    free_by(address, mark::free_large)
}

/// `false` if a free that no heap's own thread does may not be, which is reported.
fn free_by(address: usize, free: fn(&AtomicU8) -> bool) -> bool {
    address.is_multiple_of(16) && state(address).is_some_and(free) || is_accepted(address, "free")
}

/// An object comes home. `false` if its own thread had it all the while, which is reported.
pub(crate) fn come_home(address: usize, size: usize) -> bool {
    let Some(state) = state(address) else { return true };
    let is_away = mark::come_home(state);
    if !is_away {
        misuse::report(MisuseKind::DoubleFree, address, size, "free");
    }
    is_away
}

/// Whether something is allocated at an address of the memory; reports if not.
pub(crate) fn is_allocated(address: usize, found_by: &'static str) -> bool {
    let is_taken = address.is_multiple_of(16) && state(address).is_some_and(mark::is_taken);
    is_taken || is_accepted(address, found_by)
}

/// What is wrong with an address that no byte says is taken. Nothing that can be seen, without a table.
#[cold]
#[inline(never)]
fn is_accepted(address: usize, found_by: &'static str) -> bool {
    let Some(unit) = span::unit_of_block(address) else {
        misuse::report(MisuseKind::Foreign, address, 0, found_by);
        return false;
    };
    // SAFETY: something is allocated in the span, or was: its descriptor does not change.
    let (kind, start, size) = unsafe {
        let span = &*span::span(unit);
        (span.kind, span.start.addr(), span.size as usize)
    };
    let offset = address - start;
    let is_start = if kind == Kind::Large { offset == 0 } else { offset.is_multiple_of(size) };
    let kind = match (is_start, state(address)) {
        (false, _) => MisuseKind::InnerPointer,
        (true, Some(_)) => MisuseKind::DoubleFree,
        (true, None) => return true,
    };
    misuse::report(kind, address, size, found_by);
    false
}
