//! The symbols of C++: `new` and `delete` in all forms, as the Itanium ABI names them.
//!
//! A `new` without memory ends in the same `new` of the C++ library, which asks `malloc` once more, calls the program's handler
//! until there is none, and throws or returns null. So no handler is called from here. What is thrown passes through a frame of
//! this library, unless the compiler makes a jump of the last call. Where a panic ends the process, Rust would end it for that,
//! too: in such a build the call counts as one that throws nothing, and nothing stands in the way. Nothing is to be done at
//! that end either.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use nearpage_malloc as malloc;

use crate::message::tell;
use crate::start::ensure;

/// The C++ libraries. A program may have opened its own for one of its parts only, where `dlsym` finds nothing by name.
const LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"];

/// A function of the C++ library that the process has, or null.
#[cold]
#[inline(never)]
fn of_library(name: &CStr) -> *mut c_void {
    let find = |library: &&CStr| {
        // SAFETY: names are strings. Libraries that are there already are looked at, and none is closed that this did not count.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return None;
            }
            let found = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            Some(found).filter(|found| !found.is_null())
        }
    };
    LIBRARIES.iter().find_map(find).unwrap_or(null_mut())
}

/// `new` must not return null.
#[cold]
fn ends(size: usize) -> *mut c_void {
    tell(format_args!(
        "operator new({size}): there is no memory, and no C++ library to throw std::bad_alloc"
    ));
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// `std::nothrow`.
type Nothrow = *const c_char;

/// Forms of `operator new`: how each asks first, and what it does where there is no C++ library.
macro_rules! news {
    ($abi:literal $($form:literal: $name:ident($($argument:ident: $kind:ty),*) = $first:expr, $without:expr;)*) => {$(
        #[doc = $form]
        #[unsafe(no_mangle)]
        extern $abi fn $name($($argument: $kind),*) -> *mut c_void {
            ensure();
            let block: *mut u8 = $first;
            if !block.is_null() {
                return block.cast();
            }
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has one zero"),
            };
            let of_library = of_library(NAME);
            if of_library.is_null() {
                return $without;
            }
            // SAFETY: the symbol is this operator, with these arguments.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern $abi fn($($kind),*) -> *mut c_void>(of_library)($($argument),*)
            }
        }
    )*};
}

macro_rules! all_news {
    ($abi:literal) => {
        news! { $abi
            "`operator new(size_t)`": _Znwm(size: usize) = malloc::malloc(size), ends(size);
            "`operator new[](size_t)`": _Znam(size: usize) = malloc::malloc(size), ends(size);
            "`operator new(size_t, nothrow)`": _ZnwmRKSt9nothrow_t(size: usize, nothrow: Nothrow) =
                malloc::malloc(size), null_mut();
            "`operator new[](size_t, nothrow)`": _ZnamRKSt9nothrow_t(size: usize, nothrow: Nothrow) =
                malloc::malloc(size), null_mut();
            "`operator new(size_t, align_val_t)`": _ZnwmSt11align_val_t(size: usize, align: usize) =
                malloc::aligned_alloc(align, size), ends(size);
            "`operator new[](size_t, align_val_t)`": _ZnamSt11align_val_t(size: usize, align: usize) =
                malloc::aligned_alloc(align, size), ends(size);
            "`operator new(size_t, align_val_t, nothrow)`":
                _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, nothrow: Nothrow) =
                malloc::aligned_alloc(align, size), null_mut();
            "`operator new[](size_t, align_val_t, nothrow)`":
                _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, nothrow: Nothrow) =
                malloc::aligned_alloc(align, size), null_mut();
        }
    };
}

#[cfg(panic = "unwind")]
all_news!("C-unwind");
#[cfg(not(panic = "unwind"))]
all_news!("C");

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
