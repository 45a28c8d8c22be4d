//! The symbols of C++: `new` and `delete` in all forms, as the Itanium ABI names them.
//!
//! `new` without memory calls the handler of the program until there is none, and then `std::bad_alloc` is thrown by the
//! C++ library, if the program has one; without it the program ends.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use nearpage_malloc as malloc;

use crate::message::tell;
use crate::start::ensure;

/// Memory for `new`, which is not null. A symbol that the C++ library has throws.
fn must(align: usize, size: usize) -> *mut c_void {
    loop {
        let block = malloc::aligned_alloc(align, size);
        if !block.is_null() {
            return block.cast();
        }
        if !handled() {
            throw(size);
        }
    }
}

/// Calls the program's handler; `false` if there is none.
#[cold]
fn handled() -> bool {
    type Handler = Option<unsafe extern "C-unwind" fn()>;
    // SAFETY: the symbol is `std::get_new_handler`, if it is there.
    unsafe {
        let get = libc::dlsym(libc::RTLD_DEFAULT, c"_ZSt15get_new_handlerv".as_ptr());
        if get.is_null() {
            return false;
        }
        let get = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> Handler>(get);
        let Some(handler) = get() else { return false };
        handler();
    }
    true
}

#[cold]
fn throw(size: usize) -> ! {
    // SAFETY: the symbol is `std::__throw_bad_alloc`, if it is there. It unwinds through here, or does not return.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"_ZSt17__throw_bad_allocv".as_ptr());
        if !symbol.is_null() {
            let throw =
                std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn() -> !>(symbol);
            throw();
        }
    }
    tell(format_args!(
        "operator new({size}): there is no memory, and no C++ library to throw std::bad_alloc"
    ));
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// `std::nothrow`.
type Nothrow = *const c_char;

/// `operator new(size_t)`
#[unsafe(no_mangle)]
extern "C-unwind" fn _Znwm(size: usize) -> *mut c_void {
    ensure();
    let block = malloc::malloc(size);
    if block.is_null() { must(1, size) } else { block.cast() }
}

/// `operator new(size_t, nothrow)`
#[unsafe(no_mangle)]
extern "C" fn _ZnwmRKSt9nothrow_t(size: usize, _: Nothrow) -> *mut c_void {
    ensure();
    malloc::malloc(size).cast()
}

/// `operator new(size_t, align_val_t)`
#[unsafe(no_mangle)]
extern "C-unwind" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut c_void {
    ensure();
    must(align, size)
}

/// `operator new(size_t, align_val_t, nothrow)`
#[unsafe(no_mangle)]
extern "C" fn _ZnwmSt11align_val_tRKSt9nothrow_t(
    size: usize,
    align: usize,
    _: Nothrow,
) -> *mut c_void {
    ensure();
    if align.is_power_of_two() { malloc::aligned_alloc(align, size).cast() } else { null_mut() }
}

/// `operator new[](size_t)`
#[unsafe(no_mangle)]
extern "C-unwind" fn _Znam(size: usize) -> *mut c_void {
    ensure();
    let block = malloc::malloc(size);
    if block.is_null() { must(1, size) } else { block.cast() }
}

/// `operator new[](size_t, nothrow)`
#[unsafe(no_mangle)]
extern "C" fn _ZnamRKSt9nothrow_t(size: usize, _: Nothrow) -> *mut c_void {
    ensure();
    malloc::malloc(size).cast()
}

/// `operator new[](size_t, align_val_t)`
#[unsafe(no_mangle)]
extern "C-unwind" fn _ZnamSt11align_val_t(size: usize, align: usize) -> *mut c_void {
    ensure();
    must(align, size)
}

/// `operator new[](size_t, align_val_t, nothrow)`
#[unsafe(no_mangle)]
extern "C" fn _ZnamSt11align_val_tRKSt9nothrow_t(
    size: usize,
    align: usize,
    _: Nothrow,
) -> *mut c_void {
    ensure();
    if align.is_power_of_two() { malloc::aligned_alloc(align, size).cast() } else { null_mut() }
}

/// Forms of `operator delete`: what they are told beside the block tells the malloc nothing new.
macro_rules! deletes {
    ($($form:literal: $name:ident($($told:ty),*);)*) => {$(
        #[doc = $form]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(block: *mut c_void $(, _: $told)*) {
            // SAFETY: the program's promise.
            unsafe { malloc::free(block.cast()) };
        }
    )*};
}

deletes! {
    "`operator delete(void *)`": _ZdlPv();
    "`operator delete(void *, size_t)`": _ZdlPvm(usize);
    "`operator delete(void *, align_val_t)`": _ZdlPvSt11align_val_t(usize);
    "`operator delete(void *, size_t, align_val_t)`": _ZdlPvmSt11align_val_t(usize, usize);
    "`operator delete(void *, nothrow)`": _ZdlPvRKSt9nothrow_t(Nothrow);
    "`operator delete(void *, align_val_t, nothrow)`": _ZdlPvSt11align_val_tRKSt9nothrow_t(usize, Nothrow);
    "`operator delete[](void *)`": _ZdaPv();
    "`operator delete[](void *, size_t)`": _ZdaPvm(usize);
    "`operator delete[](void *, align_val_t)`": _ZdaPvSt11align_val_t(usize);
    "`operator delete[](void *, size_t, align_val_t)`": _ZdaPvmSt11align_val_t(usize, usize);
    "`operator delete[](void *, nothrow)`": _ZdaPvRKSt9nothrow_t(Nothrow);
    "`operator delete[](void *, align_val_t, nothrow)`": _ZdaPvSt11align_val_tRKSt9nothrow_t(usize, Nothrow);
}
