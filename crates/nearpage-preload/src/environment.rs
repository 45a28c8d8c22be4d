//! The variables, read where the kernel has put them: `getenv` works only after the C library has started.

use std::ffi::CStr;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// A variable of the environment that is text, unless the program has more rights than its user.
pub(crate) fn variable(name: &str) -> Option<&'static str> {
    std::str::from_utf8(bytes(name)?).ok()
}

/// The bytes of such a variable, also where they are no text.
pub(crate) fn bytes(name: &str) -> Option<&'static [u8]> {
    // SAFETY: asks only. Auxiliary values are there before any code of the process runs.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: the C library keeps the variable; entries are strings, and the last is null. Nobody changes them before the
    // first allocation.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) =
                text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
            {
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}
