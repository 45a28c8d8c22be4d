//! What failed: an errno for the program, and a message for people.
//!
//! The message lies in the thread's own storage, without a destructor: a library that was opened by `dlopen` can be closed
//! while threads live that once had an error.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nearpage::{AllocError, FreeError};
use nearpage_linux::MemoryError;
use nearpage_pagelock::PageLockError;
use nearpage_slab::{CreateError, ObjectError, SizeError, SizeFreeError};

/// The longest message, with its zero at the end. The longest that the library makes has less than a quarter.
const MESSAGE_BYTES: usize = 2048;

thread_local! {
    static MESSAGE: UnsafeCell<[u8; MESSAGE_BYTES]> = const { UnsafeCell::new([0; MESSAGE_BYTES]) };
}

/// The message of this thread's last error, in full; the empty string if there was none. It stays until the thread's next
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn nearpage_last_error() -> *const c_char {
    MESSAGE.with(|message| message.get().cast_const().cast())
}

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn nearpage_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub errno: c_int,
    pub message: String,
}

impl Failure {
    pub fn new(errno: c_int, message: impl fmt::Display) -> Self {
        Self { errno, message: message.to_string() }
    }

    /// An argument that means nothing.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(libc::EINVAL, message)
    }

    /// Leaves the message, and returns what C returns.
    #[cold]
    pub fn answer(self) -> c_int {
        leave(&self.message);
        -self.errno
    }
}

/// Runs a call that need not be fast, and turns its result into that of C.
pub(crate) fn call(act: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.answer(),
        Err(_) => Failure::new(libc::ENOTRECOVERABLE, "nearpage panicked").answer(),
    }
}

/// The message of an error, cut at a character if it is longer than there is room.
fn leave(text: &str) {
    struct Room<'a>(&'a mut [u8], usize);
    impl Write for Room<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for character in text.chars() {
                let end = self.1 + character.len_utf8();
                if end >= self.0.len() {
                    return Err(fmt::Error);
                }
                character.encode_utf8(&mut self.0[self.1..end]);
                self.1 = end;
            }
            Ok(())
        }
    }
    MESSAGE.with(|message| {
        // SAFETY: only this thread has it, and nothing here calls back into this function.
        let bytes = unsafe { &mut *message.get() };
        let mut room = Room(bytes, 0);
        let _ = room.write_str(text);
        let end = room.1;
        bytes[end] = 0;
    });
}

impl From<AllocError> for Failure {
    #[cold]
    fn from(error: AllocError) -> Self {
        let errno = match error {
            AllocError::OutOfMemory { .. } | AllocError::LimitReached { .. } => libc::ENOMEM,
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}

impl From<FreeError> for Failure {
    #[cold]
    fn from(error: FreeError) -> Self {
        let errno = match error {
            FreeError::Locked { .. } => libc::EBUSY,
            FreeError::Foreign { .. } => libc::EFAULT,
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}

impl From<PageLockError> for Failure {
    #[cold]
    fn from(error: PageLockError) -> Self {
        let errno = match error {
            PageLockError::TimedOut => libc::ETIMEDOUT,
            PageLockError::Cancelled => libc::EINTR,
            PageLockError::NotLocked { .. } => libc::EPERM,
            PageLockError::Foreign { .. } | PageLockError::OutsideMemory { .. } => libc::EFAULT,
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}

impl From<ObjectError> for Failure {
    #[cold]
    fn from(error: ObjectError) -> Self {
        let errno = match error {
            ObjectError::NotOfSlab { .. } => libc::EFAULT,
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}

impl From<SizeError> for Failure {
    #[cold]
    fn from(error: SizeError) -> Self {
        match error {
            SizeError::Pages(error) => error.into(),
            error => Self::invalid(error),
        }
    }
}

impl From<SizeFreeError> for Failure {
    #[cold]
    fn from(error: SizeFreeError) -> Self {
        match error {
            SizeFreeError::Object(error) => error.into(),
            SizeFreeError::Pages(error) => error.into(),
            error => Self::invalid(error),
        }
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        let errno = match error {
            CreateError::NameTaken { .. } => libc::EEXIST,
            CreateError::TooManyCaches { .. } => libc::ENOSPC,
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        let errno = match &error {
            MemoryError::NoAddresses { error, .. }
            | MemoryError::NoMemory { error, .. }
            | MemoryError::CannotBind { error, .. } => error.raw_os_error().unwrap_or(libc::ENOMEM),
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}
