//! The symbols of C.
//!
//! What cannot be had is null with `ENOMEM`, what means nothing `EINVAL`, as POSIX says. `realloc` to 0 frees, as glibc's
//! does.

use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::ptr::null_mut;

use nearpage_malloc as malloc;

use crate::message::Line;
use crate::start::ensure;

#[inline(always)]
fn or_errno(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block.cast()
}

#[cold]
fn set_errno(errno: c_int) {
    // SAFETY: the thread's own place.
    unsafe { *libc::__errno_location() = errno };
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    ensure();
    or_errno(malloc::malloc(size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the program's promise.
    unsafe { malloc::free(block.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the program's promise.
    unsafe { malloc::free(block.cast()) };
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    ensure();
    or_errno(malloc::calloc(count, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    ensure();
    // SAFETY: the program's promise.
    unsafe {
        if size == 0 && !block.is_null() {
            malloc::free(block.cast());
            return null_mut();
        }
        or_errno(malloc::realloc(block.cast(), size))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return null_mut();
    };
    // SAFETY: the program's promise.
    unsafe { realloc(block, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    memalign(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    ensure();
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    or_errno(malloc::aligned_alloc(align, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    ensure();
    if !align.is_power_of_two() || align < size_of::<usize>() {
        return libc::EINVAL;
    }
    let block = malloc::aligned_alloc(align, size);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the program's promise.
    unsafe { out.write(block.cast()) };
    0
}

const PAGE: usize = 4096;

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(PAGE, size)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE) {
        Some(size) => memalign(PAGE, size.max(PAGE)),
        None => {
            set_errno(libc::ENOMEM);
            null_mut()
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    malloc::usable_size(block.cast())
}

#[unsafe(no_mangle)]
extern "C" fn malloc_trim(_: usize) -> c_int {
    c_int::from(malloc::trim() > 0)
}

#[unsafe(no_mangle)]
extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let all = malloc::statistics();
    // SAFETY: numbers; zeroes are a value.
    let mut info: libc::mallinfo2 = unsafe { std::mem::zeroed() };
    info.arena = (all.bytes_held() - all.mapped_in_use_bytes) as usize;
    info.hblks = (all.mapped - all.mapped_freed) as usize;
    info.hblkhd = all.mapped_in_use_bytes as usize;
    info.uordblks = (all.bytes_in_use() - all.mapped_in_use_bytes) as usize;
    info.fordblks = info.arena - info.uordblks;
    info
}

#[unsafe(no_mangle)]
extern "C" fn mallinfo() -> libc::mallinfo {
    let wide = mallinfo2();
    // SAFETY: numbers; zeroes are a value.
    let mut info: libc::mallinfo = unsafe { std::mem::zeroed() };
    info.arena = wide.arena as c_int;
    info.hblks = wide.hblks as c_int;
    info.hblkhd = wide.hblkhd as c_int;
    info.uordblks = wide.uordblks as c_int;
    info.fordblks = wide.fordblks as c_int;
    info
}

#[unsafe(no_mangle)]
extern "C" fn malloc_stats() {
    let all = malloc::statistics();
    let mut line = Line::<1024>::new();
    let _ = writeln!(
        line,
        "nearpage-malloc: {} allocations, {} bytes in use of {} held, {} heaps, {} freed on other heaps in {} batches, {} trims",
        all.allocations(),
        all.bytes_in_use(),
        all.bytes_held(),
        all.heaps,
        all.freed_elsewhere,
        all.batches,
        all.trims,
    );
    line.write_to(2);
}

/// Options of glibc's mean nothing here; programs that set them go on.
#[unsafe(no_mangle)]
extern "C" fn mallopt(_: c_int, _: c_int) -> c_int {
    1
}
