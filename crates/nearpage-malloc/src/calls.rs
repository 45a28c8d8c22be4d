//! malloc, free, realloc and the others, as functions of Rust.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::boot;
use crate::classes::{CLASS_SIZE_MAX, class_aligned, class_of, class_size};
use crate::hardened;
use crate::heap::{Heap, send_home};
use crate::link::{Object, is_hardened, link_checked, link_fast, next_checked, next_fast};
use crate::lock::now_ns;
use crate::mapped::{self, Mapped};
use crate::misuse::{self, MisuseKind};
use crate::pages;
use crate::parcel::Closed;
use crate::pool;
use crate::span::{self, Kind, NO_OWNER};
use crate::state;
use crate::stats;
use crate::thread;
use crate::watch;

/// Requests from this size on are mappings of their own.
const MAPPED_FROM: usize = 4 << 20;

/// The longest time after a trim in which another does nothing.
const TRIM_REST_NS: u64 = 200_000_000;

/// The malloc as the allocator of a Rust program.
///
/// ```
/// #[global_allocator]
/// static GLOBAL: nearpage_malloc::NearpageMalloc = nearpage_malloc::NearpageMalloc;
///
/// let text = String::from("near");
/// assert_eq!(text.repeat(3).len(), 12);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NearpageMalloc;

// SAFETY: blocks are as large and as aligned as asked, nobody else's, and keep their bytes when they grow.
unsafe impl GlobalAlloc for NearpageMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            malloc(layout.size())
        } else {
            aligned_alloc(layout.align(), layout.size())
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free(block) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            return calloc(1, layout.size());
        }
        let block = aligned_alloc(layout.align(), layout.size());
        if !block.is_null() {
            // SAFETY: it is as long.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: the caller's promise.
            return unsafe { realloc(block, size) };
        }
        let moved = aligned_alloc(layout.align(), size);
        if !moved.is_null() {
            // SAFETY: both have at least the shorter length; the old one is the caller's, and freed once.
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                free(block);
            }
        }
        moved
    }
}

/// Allocates `size` bytes, aligned to 16; null without memory. A size of 0 gets an address of its own.
///
/// ```
/// let block = nearpage_malloc::malloc(100);
/// assert!(!block.is_null() && nearpage_malloc::usable_size(block) >= 100);
/// // SAFETY: malloc gave it, and nobody uses it any more.
/// unsafe { nearpage_malloc::free(block) };
/// ```
#[inline]
pub fn malloc(size: usize) -> *mut u8 {
    if size > CLASS_SIZE_MAX {
        return large(size, 16).start;
    }
    let class = class_of(size);
    let heap: *mut Heap = thread::fast().cast();
    if heap.is_null() {
        return small_slow(class);
    }
    // SAFETY: the heap is this thread's, and what is on its list is free. A class is one of the list's.
    unsafe {
        let list = (&raw mut (*heap).free).cast::<*mut Object>().add(class);
        let object = *list;
        if object.is_null() {
            return small_slow(class);
        }
        *list = next_fast(object);
        object.cast()
    }
}

/// The way of hardened mode, and of the others where a list is empty.
#[inline(never)]
fn small_slow(class: usize) -> *mut u8 {
    if is_hardened()
        && let Some(heap) = thread::own()
    {
        let heap: *mut Heap = heap.cast();
        // SAFETY: the heap is this thread's, which is not inside of anything, and what is on its list is free. A class is one of
        // the list's.
        unsafe {
            let list = (&raw mut (*heap).free).cast::<*mut Object>().add(class);
            let object = *list;
            if !object.is_null()
                && let Some(next) = next_checked(object)
                && hardened::hand_out(object.addr())
            {
                *list = next;
                return object.cast();
            }
        }
    }
    // Also what is wrong is looked at there once more, and reported.
    small_anew(class)
}

#[cold]
#[inline(never)]
fn small_anew(class: usize) -> *mut u8 {
    if thread::is_inside() || !state::is_ready() {
        return boot::alloc(class_size(class), 16);
    }
    let object = match pool::mine() {
        Some(heap) => from(heap, class),
        None => pool::borrow(|heap| from(heap, class)).unwrap_or(null_mut()),
    };
    if is_hardened() && !object.is_null() {
        hardened::hand_out_or_report(object.addr(), class_size(class));
    }
    object
}

fn from(heap: &mut Heap, class: usize) -> *mut u8 {
    if heap.free[class].is_null() && !heap.refill(class) {
        return null_mut();
    }
    heap.pop_slow(class).cast()
}

#[cold]
#[inline(never)]
fn large(size: usize, align: usize) -> Mapped {
    if thread::is_inside() || !state::is_ready() {
        return Mapped { start: boot::alloc(size, align), is_zero: false };
    }
    let most = size.max(align);
    if most < MAPPED_FROM
        && let Some((start, is_zero)) = pages::take_large(size, align)
    {
        if is_hardened() {
            hardened::hand_out_or_report(start.addr(), size);
        }
        stats::count_large(size);
        watch::note(1);
        return Mapped { start, is_zero };
    }
    mapped(size, align)
}

fn mapped(size: usize, align: usize) -> Mapped {
    let mapped = mapped::map(size, align);
    if !mapped.start.is_null() {
        stats::count_mapped(size);
        watch::note(1);
    }
    mapped
}

/// Frees what this malloc gave. Null is accepted.
///
/// # Safety
/// * Nobody uses the block any more. A pointer that no malloc gave is noticed if it is outside of the malloc's memory, in
///   hardened mode everywhere.
#[inline]
pub unsafe fn free(block: *mut u8) {
    if let Some(unit) = span::fast_unit(block.addr()) {
        // SAFETY: the unit is one of the tables'; a heap's own spans are its thread's, and the object is free from now on.
        unsafe {
            let owner = span::owner(unit);
            if u32::from(owner) == thread::id() {
                let span = span::span(unit);
                let object: *mut Object = block.cast();
                link_fast(object, (*span).free);
                (*span).free = object;
                let used = (*span).used - 1;
                (*span).used = used;
                if used == (*span).alarm {
                    (*thread::fast().cast::<Heap>()).alarmed(unit);
                }
                return;
            }
            // The descriptor is not looked at: its heap's thread writes there.
            if owner != NO_OWNER && thread::id() != 0 && !thread::is_inside() {
                return (*thread::fast().cast::<Heap>()).put_out(owner, unit, block.cast());
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(block) };
}

/// The way of hardened mode, and of what is no small object of this thread's in the others.
///
/// # Safety
/// * As [`free`].
#[inline(never)]
unsafe fn free_slow(block: *mut u8) {
    if is_hardened()
        && let Some(unit) = span::unit_of(block.addr())
        && let Some(heap) = thread::own()
    {
        let (heap, object): (*mut Heap, *mut Object) = (heap.cast(), block.cast());
        // SAFETY: the unit is one of the tables'; the heap is this thread's, which is not inside of anything, and so are its
        // spans. The object is free from now on.
        unsafe {
            if span::owner(unit) == (*heap).id && hardened::free_here(block.addr()) {
                let span = span::span(unit);
                link_checked(object, (*span).free);
                (*span).free = object;
                let used = (*span).used - 1;
                (*span).used = used;
                if used == (*span).alarm {
                    (*heap).alarmed(unit);
                }
                return;
            }
        }
    }
    // Also what is wrong is looked at there once more, and reported.
    // SAFETY: the caller's promise.
    unsafe { free_rarely(block) };
}

/// # Safety
/// * As [`free`].
#[cold]
#[inline(never)]
unsafe fn free_rarely(block: *mut u8) {
    if block.is_null() {
        return;
    }
    if span::unit_of(block.addr()).is_none() {
        // SAFETY: the caller's promise.
        return unsafe { free_other(block) };
    }
    let Some(unit) = span::unit_of_block(block.addr()) else {
        return misuse::report(MisuseKind::Foreign, block.addr(), 0, "free");
    };
    // SAFETY: the block's memory is the caller's until now, and its descriptor stays meanwhile.
    unsafe {
        match (*span::span(unit)).kind {
            Kind::Large if is_hardened() && !hardened::free_large(block.addr()) => {}
            Kind::Large if (*span::span(unit)).start != block => {
                let size = (*span::span(unit)).size as usize;
                misuse::report(MisuseKind::InnerPointer, block.addr(), size, "free");
            }
            Kind::Large => {
                stats::count_large_free();
                pages::give_back(unit);
            }
            Kind::Small => free_small(unit, block.cast()),
            Kind::None | Kind::Inner => {}
        }
    }
}

/// # Safety
/// * The object is free from now on, of the span at `unit`.
unsafe fn free_small(unit: usize, object: *mut Object) {
    // SAFETY: the caller's promise.
    unsafe {
        let owner = span::owner(unit);
        debug_assert_ne!(owner, NO_OWNER, "a span has an owner");
        // Inside, the heap may be in the middle of something.
        if !thread::is_inside()
            && let Some(heap) = pool::mine()
        {
            if heap.id != owner {
                if !is_hardened() || hardened::free_away(object.addr()) {
                    heap.put_out(owner, unit, object);
                }
            } else if !is_hardened() || hardened::free_here_or_report(object.addr()) {
                heap.push(unit, object);
            }
        } else if !is_hardened() || hardened::free_away(object.addr()) {
            send_home(&Closed::of_one(owner, object, span::room(unit)));
        }
    }
}

/// # Safety
/// * As [`free`].
unsafe fn free_other(block: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if boot::owns(block.addr()) {
            boot::free(block);
        } else if !mapped::unmap(block) {
            misuse::report(MisuseKind::Foreign, block.addr(), 0, "free");
        } else {
            stats::count_mapped_free();
        }
    }
}

/// The bytes that may be used of a block; 0 for null, and for what no malloc gave.
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "the header of a block of the boot range is looked at, nothing else"
)]
pub fn usable_size(block: *mut u8) -> usize {
    if block.is_null() {
        return 0;
    }
    if span::unit_of(block.addr()).is_some() {
        let Some(unit) = span::unit_of_block(block.addr()) else { return 0 };
        // SAFETY: the block's owner asks: its descriptor stays meanwhile.
        return unsafe {
            let span = &*span::span(unit);
            if span.kind == Kind::Large { (span.pages as usize) << 12 } else { span.size as usize }
        };
    }
    if boot::owns(block.addr()) {
        // SAFETY: the block's owner asks.
        return unsafe { boot::usable(block) };
    }
    mapped::size_of_mapping(block.addr()).unwrap_or_default()
}

/// Allocates `count` times `size` bytes of zeroes; null if that is too much.
pub fn calloc(count: usize, size: usize) -> *mut u8 {
    let Some(bytes) = count.checked_mul(size) else { return null_mut() };
    let (block, is_zero) = if bytes > CLASS_SIZE_MAX {
        let large = large(bytes, 16);
        (large.start, large.is_zero)
    } else {
        (malloc(bytes), false)
    };
    if !block.is_null() && !is_zero {
        // SAFETY: it is as long.
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}

/// Allocates `size` bytes at a multiple of `align`, a power of two; null if that is too much or it is none.
pub fn aligned_alloc(align: usize, size: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        return null_mut();
    }
    if align <= 16 {
        return malloc(size);
    }
    if thread::is_inside() || !state::is_ready() {
        return boot::alloc(size, align);
    }
    match class_aligned(size, align) {
        Some(class) => malloc(class_size(class)),
        None => large(size, align).start,
    }
}

/// Makes a block shorter or longer, and moves it if it must; null if it cannot, and then it stays as it is. Null as a block is
/// a new one. A size of 0 gets an address.
///
/// # Safety
/// * As [`free`], if the block moves.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        return malloc(size);
    }
    let is_ours = span::unit_of(block.addr()).is_some();
    if is_hardened() && is_ours && !hardened::is_allocated(block.addr(), "realloc") {
        return null_mut();
    }
    let usable = usable_size(block);
    if usable == 0 {
        misuse::report(MisuseKind::Foreign, block.addr(), 0, "realloc");
        return null_mut();
    }
    if size <= usable && size >= usable / 2 {
        return block;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if !is_ours && size >= MAPPED_FROM && !boot::owns(block.addr()) {
            let moved = mapped::remap(block, size);
            if !moved.is_null() {
                return moved;
            }
            // The kernel refused: a copy may be possible.
        }
        let moved = malloc(size);
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(block, usable.min(size));
            free(block);
        }
        moved
    }
}

/// Gives back to the kernel what can be: free spans of this thread and of threads that have ended, free memory below.
/// Returns bytes.
///
/// Some programs call this each time that they freed something, and take it again at once. So a call does nothing if it comes sooner
/// after the last than 99 times as long as that took, or 0.2 s; what is free then goes back as it does without a call.
pub fn trim() -> u64 {
    static RESTS_UNTIL: AtomicU64 = AtomicU64::new(0);
    if thread::is_inside() || !state::runs() {
        return 0;
    }
    let start = now_ns();
    if start < RESTS_UNTIL.load(Ordering::Relaxed) {
        return 0;
    }
    pool::release_all();
    mapped::drop_all();
    let bytes = pages::trim();
    let end = now_ns();
    RESTS_UNTIL.store(end + (99 * (end - start)).min(TRIM_REST_NS), Ordering::Relaxed);
    bytes
}
