//! Three words for each thread, at a fixed distance from its thread pointer.
//!
//! A `thread_local!` of a shared library is found by a call, which may allocate. These words belong to the *initial-exec*
//! model instead: the loader gives them a place in the static block of every thread, and one load of the distance finds
//! them. They are zero when a thread begins, and nothing happens to them when it ends.

use std::arch::{asm, global_asm};

/// What a thread has of its own.
#[repr(C)]
pub(crate) struct Thread {
    /// The heap that `malloc` pops from; null before the first slow call, and in hardened mode.
    pub fast: *mut (),
    /// The heap that belongs to this thread, or null.
    pub heap: *mut (),
    /// The id of `fast`; 0 is no heap's.
    pub id: u32,
    /// [`INSIDE`] and [`ENDING`].
    pub flags: u32,
}

/// The thread is inside of what `malloc` stands on: it must not come back there.
pub(crate) const INSIDE: u32 = 1;
/// The thread ends, and has given its heap up.
pub(crate) const ENDING: u32 = 2;

global_asm!(
    ".section .tbss.nearpage_malloc_thread,\"awT\",@nobits",
    ".globl nearpage_malloc_thread",
    ".hidden nearpage_malloc_thread",
    ".type nearpage_malloc_thread, @object",
    ".size nearpage_malloc_thread, 24",
    ".p2align 3",
    "nearpage_malloc_thread:",
    ".zero 24",
    ".text",
);

const _: () = assert!(size_of::<Thread>() == 24);

/// The words of the calling thread.
#[inline(always)]
pub(crate) fn this() -> *mut Thread {
    let thread: *mut Thread;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the thread pointer and the variable's distance from it, which the loader has written.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + nearpage_malloc_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) thread,
            options(pure, readonly, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:nearpage_malloc_thread",
            "ldr {1}, [{1}, :gottprel_lo12:nearpage_malloc_thread]",
            "add {0}, {0}, {1}",
            out(reg) thread,
            out(reg) _,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    thread
}

/// The heap that this thread pops from.
#[inline(always)]
pub(crate) fn fast() -> *mut () {
    #[cfg(target_arch = "x86_64")]
    {
        let heap: *mut ();
        // SAFETY: as in `this`; the first word is the heap.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + nearpage_malloc_thread@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) heap,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        heap
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the words live as long as the thread.
    unsafe {
        (*this()).fast
    }
}

/// The id of the heap that this thread pops from; 0 if there is none.
#[inline(always)]
pub(crate) fn id() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let id: u32;
        // SAFETY: as in `this`; the id is 16 bytes behind the start.
        unsafe {
            asm!(
                "mov {1}, qword ptr [rip + nearpage_malloc_thread@GOTTPOFF]",
                "mov {0:e}, dword ptr fs:[{1} + 16]",
                out(reg) id,
                out(reg) _,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        id
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the words live as long as the thread.
    unsafe {
        (*this()).id
    }
}

/// Whether the thread is inside of what `malloc` stands on.
#[inline]
pub(crate) fn is_inside() -> bool {
    // SAFETY: the words live as long as the thread, and only it uses them.
    unsafe { (*this()).flags & INSIDE != 0 }
}

/// The heap that belongs to this thread, unless the thread is inside or has none.
#[inline(always)]
pub(crate) fn own() -> Option<*mut ()> {
    let thread = this();
    // SAFETY: the words live as long as the thread, and only it uses them.
    unsafe { ((*thread).flags == 0 && !(*thread).heap.is_null()).then(|| (*thread).heap) }
}

/// Runs `act` while the thread counts as inside: what it allocates meanwhile comes from [`Boot`](crate::Boot).
#[inline]
pub(crate) fn inside<R>(act: impl FnOnce() -> R) -> R {
    let thread = this();
    // SAFETY: the words live as long as the thread, and only it uses them.
    unsafe {
        let before = (*thread).flags;
        (*thread).flags = before | INSIDE;
        let result = act();
        (*thread).flags = (*thread).flags & !INSIDE | before & INSIDE;
        result
    }
}

/// A number that no other living thread has.
#[inline]
pub(crate) fn token() -> usize {
    this().addr()
}
