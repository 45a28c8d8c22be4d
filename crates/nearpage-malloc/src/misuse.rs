//! Wrong frees, and what happens then.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MisuseKind {
    /// A free of what is free already.
    DoubleFree,
    /// An address inside of an object.
    InnerPointer,
    /// An address that no malloc gave.
    Foreign,
    /// Somebody wrote to an object after it was freed.
    WrittenAfterFree,
}

/// A wrong free, or what one left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Misuse {
    /// What was wrong.
    pub kind: MisuseKind,
    /// The address.
    pub address: usize,
    /// The bytes of the object there; 0 if it is not known.
    pub size: usize,
    /// The call that found it: "free", "realloc", "malloc".
    pub found_by: &'static str,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, address, size, found_by } = *self;
        match kind {
            MisuseKind::DoubleFree => {
                write!(
                    f,
                    "{found_by}({address:#x}): double free: the last operation on this object of {size} bytes was a free"
                )
            }
            MisuseKind::InnerPointer => {
                write!(
                    f,
                    "{found_by}({address:#x}): an address inside of an object of {size} bytes; the address that malloc gave is accepted"
                )
            }
            MisuseKind::Foreign => {
                write!(
                    f,
                    "{found_by}({address:#x}): a foreign pointer: no malloc gave this address, or its block was freed since"
                )
            }
            MisuseKind::WrittenAfterFree => {
                write!(
                    f,
                    "{found_by}: the free object of {size} bytes at {address:#x} was written to after its last operation, a free"
                )
            }
        }
    }
}

/// Called at each misuse; a function, so that nothing needs to be allocated for it.
pub(crate) type Hook = fn(&Misuse);

static HOOK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_hook(hook: Hook) {
    HOOK.store(hook as *mut (), Ordering::Release);
}

/// How many there were.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Reports one. The object, if there is one, stays as it is.
#[cold]
#[inline(never)]
pub(crate) fn report(kind: MisuseKind, address: usize, size: usize, found_by: &'static str) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let hook = HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `set_hook` writes it.
        let hook = unsafe { std::mem::transmute::<*mut (), Hook>(hook) };
        hook(&Misuse { kind, address, size, found_by });
    }
}
