//! Descriptors of spans, beside the memory that they describe, and the owner of each address.
//!
//! The addresses of nearpage's memory are cut into *units* of 32 KiB, the least span. A descriptor of 64 bytes stands for
//! each unit; of a longer span, the first unit's counts. Only the heap that owns a span uses its descriptor. Other threads
//! read the owner and the room of its objects, which lie in a table of their own so that frees at home do not disturb them.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};

use crate::boot::map_table;
use crate::link::Object;

/// A unit has 2^15 bytes.
pub(crate) const UNIT_SHIFT: u32 = 15;
/// The order of a unit, in pages of 4 KiB.
pub(crate) const UNIT_ORDER: u8 = 3;

/// In place of an owner: the unit begins no span of small objects. It is not 0, which a thread without a heap has as its id.
pub(crate) const NO_OWNER: u16 = u16::MAX;
/// In place of a span.
pub(crate) const NO_SPAN: u32 = u32::MAX;

/// What a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Free, or never used. The value of fresh memory.
    None = 0,
    /// The first of a span of small objects.
    Small,
    /// A large block begins in it, behind what may be the end of another.
    Large,
    /// It has pages of what begins `units_back` before.
    Inner,
}

/// Where a span of small objects is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Place {
    /// The heap's list of this class holds its free objects.
    Current,
    /// On the heap's list of spans with free objects.
    Partial,
    /// It has no free object, and is on no list.
    Full,
}

/// The descriptor of a unit.
#[repr(C, align(64))]
pub(crate) struct Span {
    /// Free objects that the heap's list does not have.
    pub free: *mut Object,
    /// Objects that are not on `free`: allocated, on the heap's list, or on their way home.
    pub used: u32,
    /// A free that brings `used` to this number has more to do.
    pub alarm: u32,
    /// Objects that were carved so far, and that there can be.
    pub carved: u32,
    pub capacity: u32,
    pub next: u32,
    pub previous: u32,
    /// The first byte.
    pub start: *mut u8,
    /// Of an object, or of the request for a large block.
    pub size: u32,
    /// To the first unit, for inner ones.
    pub units_back: u16,
    /// The dense number of the node.
    pub node: u16,
    pub pages: u16,
    pub class: u8,
    pub kind: Kind,
    pub place: Place,
}

const _: () = assert!(size_of::<Span>() == 64);

/// What threads that are not the owner read of a unit.
#[repr(C)]
struct Outside {
    owner: AtomicU16,
    /// Addresses that an object can carry home (`parcel`).
    room: AtomicU16,
}

/// Tables for the addresses of nearpage's memory. `length` is 0 until they are there.
#[repr(C, align(64))]
struct Tables {
    start: AtomicUsize,
    length: AtomicUsize,
    /// The same as `length`, or 0 in hardened mode, where each free is looked at.
    fast_length: AtomicUsize,
    outsides: AtomicPtr<Outside>,
    spans: AtomicPtr<Span>,
}

static TABLES: Tables = Tables {
    start: AtomicUsize::new(0),
    length: AtomicUsize::new(0),
    fast_length: AtomicUsize::new(0),
    outsides: AtomicPtr::new(null_mut()),
    spans: AtomicPtr::new(null_mut()),
};

/// Makes the tables for addresses from `start` on. `None` without memory for them.
pub(crate) fn make_tables(start: usize, length: usize, is_hardened: bool) -> Option<()> {
    let units = length.div_ceil(1 << UNIT_SHIFT);
    let outsides = map_table(units * size_of::<Outside>())?;
    let spans = map_table(units * size_of::<Span>())?;
    TABLES.start.store(start, Ordering::Relaxed);
    TABLES.outsides.store(outsides.as_ptr().cast(), Ordering::Relaxed);
    TABLES.spans.store(spans.as_ptr().cast(), Ordering::Relaxed);
    // Pairs with the loads of whoever got an address of this memory, which came after.
    TABLES.length.store(length, Ordering::Release);
    if !is_hardened {
        TABLES.fast_length.store(length, Ordering::Release);
    }
    Some(())
}

/// The unit of an address that the fast path may free; `None` for all others.
#[inline(always)]
pub(crate) fn fast_unit(address: usize) -> Option<usize> {
    let offset = address.wrapping_sub(TABLES.start.load(Ordering::Relaxed));
    (offset < TABLES.fast_length.load(Ordering::Relaxed)).then_some(offset >> UNIT_SHIFT)
}

/// The unit of an address of nearpage's memory.
#[inline]
pub(crate) fn unit_of(address: usize) -> Option<usize> {
    let offset = address.wrapping_sub(TABLES.start.load(Ordering::Relaxed));
    (offset < TABLES.length.load(Ordering::Acquire)).then_some(offset >> UNIT_SHIFT)
}

/// # Safety
/// * The unit is one of the tables'.
#[inline(always)]
unsafe fn outside<'a>(unit: usize) -> &'a Outside {
    // SAFETY: the table has an entry for each unit, and is never given back; fresh ones are zero.
    unsafe { &*TABLES.outsides.load(Ordering::Relaxed).add(unit) }
}

/// The heap that owns a unit's span.
///
/// # Safety
/// * The unit is one of the tables'.
#[inline(always)]
pub(crate) unsafe fn owner(unit: usize) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { outside(unit).owner.load(Ordering::Relaxed) }
}

/// # Safety
/// * The unit is one of the tables', and its memory belongs to the caller.
pub(crate) unsafe fn set_owner(unit: usize, owner: u16) {
    // SAFETY: the caller's promise.
    unsafe { outside(unit).owner.store(owner, Ordering::Relaxed) }
}

/// Addresses that an object of the span that begins with this unit can carry.
///
/// # Safety
/// * The unit is one of the tables', and begins a span of small objects.
#[inline]
pub(crate) unsafe fn room(unit: usize) -> u16 {
    // SAFETY: the caller's promise. Who has an object of the span got it after the store.
    unsafe { outside(unit).room.load(Ordering::Relaxed) }
}

/// # Safety
/// * The unit is one of the tables', and its memory belongs to the caller.
pub(crate) unsafe fn set_room(unit: usize, room: u16) {
    // SAFETY: the caller's promise.
    unsafe { outside(unit).room.store(room, Ordering::Relaxed) }
}

/// The descriptor of a unit.
#[inline(always)]
pub(crate) fn span(unit: usize) -> *mut Span {
    TABLES.spans.load(Ordering::Relaxed).wrapping_add(unit)
}

/// The first unit of what an address lies in, if something is allocated there.
pub(crate) fn first_unit(unit: usize) -> Option<usize> {
    let descriptor = span(unit);
    // SAFETY: the unit is one of the tables'. Its kind changes only while nobody else has memory there.
    unsafe {
        match (*descriptor).kind {
            Kind::None => None,
            Kind::Small | Kind::Large => Some(unit),
            Kind::Inner => Some(unit - (*descriptor).units_back as usize),
        }
    }
}

/// The first unit of what an address lies in, if something is allocated there: a unit may have the end of one large block and
/// the start of another.
pub(crate) fn unit_of_block(address: usize) -> Option<usize> {
    let unit = unit_of(address)?;
    let first = first_unit(unit)?;
    // SAFETY: the unit is one of the tables'.
    let is_before = unsafe { (*span(first)).start.addr() > address };
    if is_before { unit.checked_sub(1).and_then(first_unit) } else { Some(first) }
}

/// Describes pages that begin in a unit.
///
/// # Safety
/// * The pages are the caller's, and nothing lies in them. If others have pages of the last unit, the caller has the lock of
///   their chunk.
pub(crate) unsafe fn describe(first: *mut u8, pages: usize, node: u16, kind: Kind) {
    let unit = (first.addr() - start()) >> UNIT_SHIFT;
    let last = (first.addr() - start() + (pages << 12) - 1) >> UNIT_SHIFT;
    // SAFETY: the caller's promise.
    unsafe {
        set_owner(unit, NO_OWNER);
        for at in unit + 1..=last {
            let inner = span(at);
            // Another block may begin in the last unit.
            if (*inner).kind != Kind::Large {
                set_owner(at, NO_OWNER);
                (*inner).units_back = (at - unit) as u16;
                (*inner).kind = Kind::Inner;
            }
        }
        (*span(unit)).start = first;
        (*span(unit)).pages = pages as u16;
        (*span(unit)).node = node;
        (*span(unit)).kind = kind;
    }
}

/// Takes the description back.
///
/// # Safety
/// * As [`describe`], and nothing lies in the pages any more.
pub(crate) unsafe fn forget(unit: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let Span { start: first, pages, .. } = *span(unit);
        let last = (first.addr() - start() + ((pages as usize) << 12) - 1) >> UNIT_SHIFT;
        set_owner(unit, NO_OWNER);
        (*span(unit)).kind = Kind::None;
        for at in unit + 1..=last {
            let inner = span(at);
            if (*inner).kind == Kind::Inner && (*inner).units_back as usize == at - unit {
                set_owner(at, NO_OWNER);
                (*inner).kind = Kind::None;
            }
        }
    }
}

/// The first address of the tables.
#[inline]
pub(crate) fn start() -> usize {
    TABLES.start.load(Ordering::Relaxed)
}

/// Units that there are descriptors for.
pub(crate) fn units_in_all() -> usize {
    TABLES.length.load(Ordering::Relaxed).div_ceil(1 << UNIT_SHIFT)
}
